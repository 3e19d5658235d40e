//! What memprov says under other kernels: Debian's, in guests with two NUMA nodes, a slower tier and cgroup v2.
//!
//! `get` fetches a kernel, `boot` runs it, `perform` plays the known-truth cases in it, and this program scores what came
//! out.
#![forbid(unsafe_code)]

mod charges;
mod damon;
mod faults;
mod guest;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};

use memprov_tests::agent::replayed;
use memprov_tests::play::{Performance, Scene};
use memprov_tests::report::{Process, RESIDENT, Report};
use memprov_tests::score::{self, Unseen};
use memprov_tests::truth::End;
use memprov_tests::{host, otlp};
use serde_json::Value;

use guest::{Guest, Kernel};

/// Longest first where it matters: each waits for a free CPU.
static KERNELS: [Kernel; 4] = [
    Kernel::new("6.1", "bookworm", true),
    Kernel::new("6.12", "trixie", true),
    Kernel::new("newest", "sid", false),
    Kernel::new("5.10", "bullseye", false),
];

macro_rules! kernels {
    ([$($module:ident => $index:literal),*], $cases:tt) => {
        kernels!(@lists $cases);
        $(mod $module {
            kernels!(@cases $index, $cases);

            #[test]
            fn says_what_it_can() {
                crate::KERNELS[$index].judge("check", |guest| crate::check(guest, &crate::KERNELS[$index]));
            }

            #[test]
            fn its_trace_gives_the_same_report_elsewhere() {
                crate::KERNELS[$index].judge("replay", crate::replay);
            }

            #[test]
            fn cgroups_are_charged_for_what_was_done_in_them() {
                crate::KERNELS[$index].judge("charge", crate::charges::judge);
            }

            #[test]
            fn the_part_of_memory_that_is_used_is_found_by_damon() {
                crate::KERNELS[$index].judge("damon", crate::damon::found);
            }

            #[test]
            fn damon_that_the_kernel_uses_is_left_alone_and_nothing_of_ours_is_left() {
                crate::KERNELS[$index].judge("damon left", crate::damon::left);
            }

            #[test]
            fn owners_lie_on_the_nodes_where_they_were_put() {
                crate::KERNELS[$index].judge("nodes", crate::nodes::judge);
            }

            #[test]
            fn memory_on_the_wrong_node_is_told_until_it_moves() {
                crate::KERNELS[$index].judge("placement", crate::nodes::told);
            }

            #[test]
            fn every_page_that_is_touched_is_one_fault_of_its_owner() {
                crate::KERNELS[$index].judge("faults", crate::faults::told_one_by_one);
            }

            #[test]
            fn what_is_sent_adds_up_to_the_report() {
                crate::KERNELS[$index].judge("otlp", crate::sent);
            }
        })*
    };
    (@lists { early: [$($early:ident)*] late: [$($late:ident)*] recorded: [$($recorded:ident)*] }) => {
        const EARLY: &[&str] = &[$(stringify!($early)),*];
        const LATE: &[&str] = &[$(stringify!($late)),*];
        const RECORDED: &[&str] = &[$(stringify!($recorded)),*];
    };
    (@cases $index:literal,
        { early: [$($early:ident)*] late: [$($late:ident)*] recorded: [$($recorded:ident)*] }) => {
        mod early {
            $(#[test] fn $early() { crate::case(&crate::KERNELS[$index], "early", stringify!($early)); })*
        }
        mod late {
            $(#[test] fn $late() { crate::case(&crate::KERNELS[$index], "late", stringify!($late)); })*
        }
        mod recorded {
            $(#[test] fn $recorded() { crate::case(&crate::KERNELS[$index], "recorded", stringify!($recorded)); })*
        }
    };
}

kernels! {
    [linux_6_1 => 0, linux_6_12 => 1, newest_linux => 2, linux_5_10 => 3],
    {
        early: [
            free_and_reuse cut_and_cover failing_calls thirty_thousand_pieces churn grown_down
            remap_over_another remap_and_leave remap_a_copy grow_and_shrink
            break_up_and_down large_blocks small_blocks thread_stacks named_memory
            one_space_two_processes exec_replaces vfork_and_exec zombie_leader three_generations
            the_parent_dies_first the_child_unmaps both_write preforked sysv_segment attach_over memfd
            private_file shared_file pool huge_pages collapse zero_pages paged_out compat_calls compat_break
        ]
        late: [grow_and_shrink named_memory three_generations memfd shared_file]
        recorded: [cut_and_cover large_blocks both_write sysv_segment private_file huge_pages]
    }
}

/// Cases that make thousands of calls as fast as they can. Under TCG one thread runs the case and memprov in turns, so that
/// records may be lost: then nothing false may be told for sure, and the books still close.
const RUSHES: [&str; 3] = ["free_and_reuse", "thirty_thousand_pieces", "churn"];

/// Records that were lost while a case was played.
fn lost(played: &Performance) -> u64 {
    let lost = |scene: &Scene| -> u64 {
        let streams = ["lifecycle", "stacks", "queue"];
        streams.iter().filter_map(|stream| scene.report["lost"][stream].as_u64()).sum()
    };
    let ends = played.scenes.first().zip(played.scenes.last());
    ends.map_or(0, |(first, last)| lost(last).saturating_sub(lost(first)))
}

fn honesty(played: &Performance) -> Vec<String> {
    let mut wrong = played.wrong.clone();
    for scene in &played.scenes {
        match Report::of(scene.report.clone()) {
            Ok(report) => wrong.extend(score::honesty(&scene.truth, &report, &scene.kernel)),
            Err(why) => wrong.push(why),
        }
    }
    wrong
}

/// What was said in every phase of a case.
fn case(kernel: &'static Kernel, way: &str, case: &str) {
    let what = format!("{way} {case}");
    kernel.judge(&what, |guest| {
        let played: Performance = guest.read(&format!("{way}/{case}.json"))?;
        let lost = lost(&played);
        let mut wrong = if lost > 0 && RUSHES.contains(&case) {
            let why = format!("{lost} records were lost: only what is told for sure was scored");
            host::skip(&format!("kernels {} {what}", kernel.name), &why);
            honesty(&played)
        } else {
            score::performance(&played)
        };
        match played.end {
            End::Good => {}
            End::Cannot(why) => {
                host::skip(&format!("kernels {} {what}", kernel.name), &why);
                return Ok(());
            }
            End::Bad(what) => wrong.push(format!("the workload ended badly: {what}")),
        }
        if played.scenes.is_empty() {
            wrong.push("nobody watched".to_owned());
        }
        none(wrong)
    });
}

fn none(wrong: Vec<String>) -> Result<(), Vec<String>> {
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// All hooks attach by fentry, all pages are read, and totals are known to the byte one way or another.
fn check(guest: &Guest, kernel: &Kernel) -> Result<(), Vec<String>> {
    let document: Value = guest.read("check.json")?;
    let mut wrong = Vec::new();
    let capability = |id: &str| {
        let all = document["capabilities"].as_array();
        all.and_then(|all| all.iter().find(|c| c["id"] == id)).cloned().unwrap_or_default()
    };
    for id in ["mapping.lifecycle", "mapping.stacks", "process.fork_exec_exit", "first_touch"] {
        let found = capability(id);
        let by = found["mechanism"].as_str().unwrap_or_default();
        if found["state"] != "available" || !by.split(", ").any(|m| m == "fentry") {
            wrong.push(format!("{id} is {found}"));
        }
    }
    let batches = matches!(kernel.name, "5.10" | "6.1");
    for (id, old, new) in [
        ("residency.scan", "pagemap", "PAGEMAP_SCAN"),
        ("residency.exact_rss", "/proc/PID/smaps", "/proc/PID/status"),
    ] {
        let found = capability(id);
        let state = if batches { ("degraded", old) } else { ("available", new) };
        let told = (found["state"].as_str(), found["mechanism"].as_str());
        if told != (Some(state.0), Some(state.1)) || found["class"] != "exact" {
            wrong.push(format!("{id} is {found}"));
        }
    }
    let nodes = capability("numa.nodes");
    if nodes["mechanism"] != "3 nodes" {
        wrong.push(format!("numa.nodes is {nodes}"));
    }
    none(wrong)
}

/// The last thing that was said of a recorded case in the guest.
fn last_report(guest: &Guest, case: &str) -> Result<(Performance, Report), Vec<String>> {
    let played: Performance = guest.read(&format!("recorded/{case}.json"))?;
    let last = played.scenes.last().ok_or_else(|| vec![format!("{case}: nothing was said")])?;
    let report = Report::of(last.report.clone()).map_err(|why| vec![why])?;
    Ok((played, report))
}

/// What a report says of a process that has to be the same wherever it is made.
fn totals(process: &Process) -> BTreeMap<String, [i64; 5]> {
    let books = process.books.iter().map(|(kind, book)| {
        let control = [book.control.lo, book.control.hi];
        (kind.clone(), [control[0], control[1], book.owned, book.joint, book.unattributed])
    });
    let rows = process.owners.iter().map(|row| {
        let bytes = |q: &Option<_>| {
            q.as_ref()
                .and_then(|q: &memprov_tests::report::Quantity| q.bytes)
                .map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX))
        };
        let quantities = [bytes(&row.reserved), bytes(&row.resident), bytes(&row.swapped), 0, 0];
        (format!("{} {}", row.name, row.id), quantities)
    });
    books.chain(rows).collect()
}

fn replay(guest: &Guest) -> Result<(), Vec<String>> {
    let outside = replayed(&guest.path("recorded/trace.jsonl.zst")).map_err(|why| vec![why])?;
    let mut wrong = Vec::new();
    for case in RECORDED {
        let (played, inside) = last_report(guest, case)?;
        let of_case = |p: &Process| inside.processes.iter().any(|other| other.pid == p.pid);
        let mut report = outside.clone();
        report.processes.retain(of_case);
        for process in &inside.processes {
            let again = report.processes.iter().find(|p| p.pid == process.pid);
            let (told, again) = (totals(process), again.map(totals));
            if Some(&told) != again.as_ref() {
                wrong.push(format!("{case}: {told:?} in the guest, {again:?} replayed"));
            }
        }
        if let Some(scene) = played.scenes.last() {
            wrong.extend(score::phase(&scene.truth, &report, &Unseen::new(), None));
        }
    }
    none(wrong)
}

/// The sum of the points of a metric, by the kind of book or of no kind.
fn points(request: &Value, metric: &str) -> BTreeMap<String, i64> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut sums = BTreeMap::new();
    let scopes =
        list(&request["resourceMetrics"]).into_iter().flat_map(|r| list(&r["scopeMetrics"]));
    let metrics = scopes.flat_map(|s| list(&s["metrics"])).filter(|m| m["name"] == metric);
    for point in metrics.flat_map(|m| list(&m["sum"]["dataPoints"])) {
        let attributes = list(&point["attributes"]);
        let kind = attributes.iter().find(|a| a["key"] == "memprov.kind");
        let kind = kind.and_then(|a| a["value"]["stringValue"].as_str()).unwrap_or_default();
        let value = point["asInt"].as_str().and_then(|n| n.parse::<i64>().ok()).unwrap_or(0);
        *sums.entry(kind.to_owned()).or_default() += value;
    }
    sums
}

fn sent(guest: &Guest) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    for case in RECORDED {
        let (_, report) = last_report(guest, case)?;
        let name = format!("recorded/{case}.otlp.json");
        let request: Value = guest.read(&name)?;
        wrong.extend(otlp::kept(request.to_string().as_bytes(), &[]).err());
        let spaces: BTreeMap<&str, &Process> =
            report.processes.iter().map(|p| (p.space.as_str(), p)).collect();
        let over = |of: fn(&Process) -> i64| spaces.values().map(|p| of(p)).sum::<i64>();
        let shared: u64 = report.shared.iter().filter_map(|row| row.resident.bytes).sum();
        let there = over(|p| p.over_resident(|b| b.owned + b.unattributed))
            + i64::try_from(shared).unwrap_or(i64::MAX);
        let sent = points(&request, "memprov.memory.resident").values().sum::<i64>();
        if sent != there || there == 0 {
            wrong.push(format!("{case}: {sent} bytes resident were sent, {there} reported"));
        }
        let sent = points(&request, "memprov.memory.control");
        let sent: i64 = RESIDENT.iter().filter_map(|kind| sent.get(*kind)).sum();
        let control = over(|p| p.over_resident(|b| b.control.lo));
        if sent != control || control == 0 {
            wrong.push(format!("{case}: totals of {sent} were sent, {control} reported"));
        }
    }
    none(wrong)
}

/// Ids of owners by case, kind and name. The kernel's own mappings have names that change from one to the next, and rushes
/// may have lost who called.
type Ids = BTreeMap<(&'static str, String, String), BTreeSet<String>>;

fn ids(guest: &Guest) -> Result<Ids, Vec<String>> {
    let mut ids = Ids::new();
    for case in EARLY.iter().filter(|case| !RUSHES.contains(case)) {
        let played: Performance = guest.read(&format!("early/{case}.json"))?;
        for scene in played.scenes {
            let report = Report::of(scene.report).map_err(|why| vec![why])?;
            for row in report.processes.into_iter().flat_map(|process| process.owners) {
                if !matches!(row.kind.as_str(), "other" | "preexisting") {
                    ids.entry((case, row.kind, row.name)).or_default().insert(row.id);
                }
            }
        }
    }
    Ok(ids)
}

/// Which owners there are differs with what calls that fail have done; what both have is the same owner.
fn same_ids(one: &Guest, other: &Guest) -> Result<(), Vec<String>> {
    let (one, mut other) = (ids(one)?, ids(other)?);
    let both: Vec<_> = one
        .into_iter()
        .filter_map(|(owner, ids)| other.remove(&owner).map(|others| (owner, ids, others)))
        .collect();
    let sites = both.iter().filter(|((_, kind, _), ..)| kind == "mapping").count();
    let differ = both.iter().filter(|(_, ids, others)| ids != others);
    let mut wrong: Vec<String> = differ.map(|differ| format!("{differ:?}")).collect();
    if sites < SITES {
        wrong.push(format!("only {sites} call sites are in both"));
    }
    none(wrong)
}

/// How many call sites the cases have at least, each counted in its case.
const SITES: usize = 25;

#[test]
fn an_owner_has_the_same_id_in_two_guests() {
    let [one, other, ..] = &KERNELS;
    one.judge("owner ids", |here| {
        other.judge("owner ids", |there| same_ids(here, there));
        Ok(())
    });
}
