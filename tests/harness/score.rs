//! Compares a report with the truth of a phase. Every difference is a sentence; none means that all of it held.

use std::collections::{BTreeMap, BTreeSet};

use crate::physical::Rss;
use crate::play::Performance;
use crate::report::{
    Evidence, Frame, OwnerRow, Process, Quantity, RESIDENT, Report, resident, site,
};
use crate::truth::{About, Phase, Statement};

/// What libraries and stacks of a process may add to its joint bytes beyond the truth's own.
const PROGRAM: i64 = 8 << 20;

/// Sites mapped before anybody watched: nothing can name them.
pub type Unseen = BTreeSet<String>;

/// All that is wrong with `report`. `kernel`: what the kernel said while the processes stood in that phase.
pub fn phase(truth: &Phase, report: &Report, unseen: &Unseen, kernel: Option<&Rss>) -> Vec<String> {
    let mut wrong = Vec::new();
    for said in &truth.owners {
        // What was mapped before anybody watched goes by its name in the kernel, if it has one.
        let late = said.site.as_ref().is_some_and(|s| unseen.contains(s));
        if late && said.name.is_none() {
            continue;
        }
        match said.about {
            About::Owner => owner(said, late, report, &mut wrong),
            About::Shared => shared(said, late, report, &mut wrong),
            About::Joint => joint(said, report, &mut wrong),
            About::Kind => kind(said, report, &mut wrong),
        }
    }
    dead(truth, report, unseen, &mut wrong);
    for process in &report.processes {
        books(process, truth.busy, kernel, &mut wrong);
    }
    wrong.into_iter().map(|what| format!("{}: {what}", truth.phase)).collect()
}

/// All that is wrong with what was said in every phase of a performance.
pub fn performance(played: &Performance) -> Vec<String> {
    let mut wrong = played.wrong.clone();
    for scene in &played.scenes {
        match Report::of(scene.report.clone()) {
            Ok(report) => {
                wrong.extend(phase(&scene.truth, &report, &played.unseen, Some(&scene.kernel)));
            }
            Err(why) => wrong.push(why),
        }
    }
    wrong
}

/// All that is dishonest in a report that was made under loss: an owner told for sure what it does not have, bytes of
/// the dead told for sure, books that do not close. What is missing or said to be inferred is no lie.
pub fn honesty(truth: &Phase, report: &Report, kernel: &Rss) -> Vec<String> {
    let mut wrong = Vec::new();
    for said in truth.owners.iter().filter(|said| matches!(said.about, About::Owner)) {
        let Some(process) = said.pid.and_then(|pid| report.process(pid)) else { continue };
        let rows = rows_of(said, process);
        let sure = |of: fn(&OwnerRow) -> Option<&Quantity>| -> u64 {
            let exact = |q: &&Quantity| q.evidence == Some(Evidence::Exact);
            rows.iter().filter_map(|row| of(row)).filter(exact).filter_map(|q| q.bytes).sum()
        };
        for (what, told, true_bytes) in [
            ("reserved", sure(|r| r.reserved.as_ref()), said.most_reserved()),
            ("resident", sure(|r| r.resident.as_ref()), said.resident),
        ] {
            if told > true_bytes {
                wrong.push(format!(
                    "{} {what}: {told} exact, the truth is {true_bytes}",
                    label(said)
                ));
            }
        }
    }
    for process in &report.processes {
        books(process, truth.busy, Some(kernel), &mut wrong);
    }
    wrong.into_iter().map(|what| format!("{}: {what}", truth.phase)).collect()
}

/// What is told of memory that goes by a name, whoever mapped it: the truth lies within the bounds.
pub fn bounds(truth: &Phase, report: &Report) -> Vec<String> {
    let mut wrong = Vec::new();
    let owners = truth.owners.iter().filter(|said| matches!(said.about, About::Owner));
    for said in owners.filter(|said| said.site.is_none()) {
        let Some(process) = said.pid.and_then(|pid| report.process(pid)) else { continue };
        let rows = rows_of(said, process);
        let Some(told) = sum(rows.iter().map(|row| row.resident.as_ref())) else { continue };
        if !rows.is_empty() && (told.lo > said.resident || said.resident > told.hi) {
            let shown = show(Some(&told));
            wrong.push(format!(
                "{}: {} resident: {shown}, the truth is {}",
                truth.phase,
                label(said),
                said.resident
            ));
        }
    }
    wrong
}

/// Kinds that belong to no call site, whatever called: an allocator's or a thread's own.
const NOBODYS: [&str; 2] = ["arena", "stack"];

fn rows_of<'a>(said: &Statement, process: &'a Process) -> Vec<&'a OwnerRow> {
    let of_a_site = |row: &&OwnerRow| !NOBODYS.contains(&row.kind.as_str());
    process.owners.iter().filter(of_a_site).filter(|r| matches(said, &r.stack, &r.name)).collect()
}

fn matches(said: &Statement, stack: &[Frame], name: &str) -> bool {
    let by_site = said.site.as_deref().is_some_and(|s| site(stack) == Some(s));
    by_site
        || said.name.as_ref().is_some_and(|part| {
            let part = part.to_ascii_lowercase();
            name.to_ascii_lowercase().contains(&part)
        })
}

/// Sum of one quantity; `None` when a row doesn't know it.
struct Sum {
    bytes: u64,
    lo: u64,
    hi: u64,
    weakest: Evidence,
}

fn sum<'a>(quantities: impl Iterator<Item = Option<&'a Quantity>>) -> Option<Sum> {
    let mut sum = Sum { bytes: 0, lo: 0, hi: 0, weakest: Evidence::Exact };
    for quantity in quantities {
        let quantity = quantity?;
        let bytes = quantity.bytes?;
        sum.bytes += bytes;
        sum.lo += quantity.lo.unwrap_or(bytes);
        sum.hi += quantity.hi.unwrap_or(bytes);
        sum.weakest = sum.weakest.max(quantity.evidence?);
    }
    Some(sum)
}

/// Exactly the truth, or, where bounds will do, bounds that hold it and are at most a tenth of it wide.
fn agrees(sum: Option<&Sum>, truth: u64, bounds_will_do: bool) -> bool {
    let Some(sum) = sum else { return false };
    let exact = sum.weakest == Evidence::Exact && sum.bytes == truth;
    let narrow = sum.hi.saturating_sub(sum.lo) <= truth.max(4096) / 10;
    exact || (bounds_will_do && sum.lo <= truth && truth <= sum.hi && narrow)
}

fn show(sum: Option<&Sum>) -> String {
    sum.map_or_else(
        || "unknown".to_owned(),
        |s| format!("{} [{}, {}] {:?}", s.bytes, s.lo, s.hi, s.weakest),
    )
}

fn label(said: &Statement) -> String {
    let name = said.site.as_deref().or(said.name.as_deref()).or(said.kind.as_deref());
    let pid = said.pid.map_or_else(String::new, |pid| format!(" of {pid}"));
    format!("{}{pid}", name.unwrap_or("?"))
}

fn of_pid<'a>(
    said: &Statement,
    report: &'a Report,
    wrong: &mut Vec<String>,
) -> Option<&'a Process> {
    let process = said.pid.and_then(|pid| report.process(pid));
    if process.is_none() {
        wrong.push(format!("{}: the process is not reported", label(said)));
    }
    process
}

fn owner(said: &Statement, late: bool, report: &Report, wrong: &mut Vec<String>) {
    let Some(process) = of_pid(said, report, wrong) else { return };
    let rows = rows_of(said, process);
    if said.reserved_hi.is_some() {
        return coming_and_going(said, &rows, wrong);
    }
    let mut check = |what: &str, of: fn(&OwnerRow) -> Option<&Quantity>, truth: u64, bounds| {
        if rows.is_empty() && truth != 0 {
            wrong.push(format!(
                "{} {what}: no such owner, the truth is {truth}; there are {}",
                label(said),
                largest(process)
            ));
        } else {
            let sum = sum(rows.iter().map(|row| of(row)));
            if !agrees(sum.as_ref(), truth, bounds) {
                wrong.push(format!(
                    "{} {what}: {}, the truth is {truth}",
                    label(said),
                    show(sum.as_ref())
                ));
            }
        }
    };
    check("reserved", |r| r.reserved.as_ref(), said.reserved.unwrap_or(0), late);
    if said.wide {
        return within("resident", said, sum(rows.iter().map(|row| row.resident.as_ref())), wrong);
    }
    check("resident", |r| r.resident.as_ref(), said.resident, late || said.inferred);
    if let Some(swapped) = said.swapped {
        check("swapped", |r| r.swapped.as_ref(), swapped, late);
    }
}

/// Bounds that hold the truth, however far apart; what is told is no more than that.
fn within(what: &str, said: &Statement, sum: Option<Sum>, wrong: &mut Vec<String>) {
    let truth = said.resident;
    if !sum.as_ref().is_some_and(|s| s.lo <= truth && truth <= s.hi && s.bytes <= truth) {
        wrong.push(format!("{} {what}: {}, the truth is {truth}", label(said), show(sum.as_ref())));
    }
}

/// Of memory that comes and goes no instant has one truth: what is told lies within its bounds.
fn coming_and_going(said: &Statement, rows: &[&OwnerRow], wrong: &mut Vec<String>) {
    let reserved = sum(rows.iter().map(|row| row.reserved.as_ref()));
    let resident = sum(rows.iter().map(|row| row.resident.as_ref()));
    let holds = |sum: &Sum, lo, hi| sum.lo <= hi && lo <= sum.hi;
    let most = said.most_reserved();
    if !reserved.as_ref().is_some_and(|sum| holds(sum, said.reserved.unwrap_or(0), most)) {
        let shown = show(reserved.as_ref());
        wrong.push(format!("{} reserved: {shown}, the truth is {most} at most", label(said)));
    }
    if !resident.as_ref().is_some_and(|sum| holds(sum, said.resident, said.resident)) {
        let (shown, truth) = (show(resident.as_ref()), said.resident);
        wrong.push(format!("{} resident: {shown}, the truth is {truth}", label(said)));
    }
}

/// The rows that a reader of a failure looks at first.
fn largest(process: &Process) -> String {
    let mut rows: Vec<_> = process.owners.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(resident(row)));
    let show = |row: &&OwnerRow| format!("{} {} {}", row.kind, row.name, resident(row));
    rows.iter().take(5).map(show).collect::<Vec<_>>().join(", ")
}

fn shared(said: &Statement, late: bool, report: &Report, wrong: &mut Vec<String>) {
    let rows: Vec<_> = report.shared.iter().filter(|r| matches(said, &r.stack, &r.name)).collect();
    let [row] = rows.as_slice() else {
        wrong.push(format!("{}: {} rows under shared, the truth is one", label(said), rows.len()));
        return;
    };
    let there = sum([Some(&row.resident)].into_iter());
    if !agrees(there.as_ref(), said.resident, late || said.inferred) {
        let shown = show(there.as_ref());
        wrong.push(format!(
            "{} shared resident: {shown}, the truth is {}",
            label(said),
            said.resident
        ));
    }
    if Some(row.sharers) != said.sharers {
        wrong.push(format!(
            "{}: {} sharers, the truth is {:?}",
            label(said),
            row.sharers,
            said.sharers
        ));
    }
    for process in &report.processes {
        let own: u64 = rows_of(said, process).into_iter().map(resident).sum();
        if own != 0 {
            wrong.push(format!(
                "{} is shared, and {own} bytes of it are also owned by {}",
                label(said),
                process.pid
            ));
        }
    }
}

fn joint(said: &Statement, report: &Report, wrong: &mut Vec<String>) {
    let Some(process) = of_pid(said, report, wrong) else { return };
    let joint = said.kind.as_ref().and_then(|kind| process.books.get(kind)).map(|book| book.joint);
    let truth = i64::try_from(said.resident).unwrap_or(i64::MAX);
    if joint.is_none_or(|joint| joint < truth || joint > truth.saturating_add(PROGRAM)) {
        wrong.push(format!(
            "joint {}: {joint:?}, the truth is {truth} and little more",
            label(said)
        ));
    }
}

fn kind(said: &Statement, report: &Report, wrong: &mut Vec<String>) {
    let Some(process) = of_pid(said, report, wrong) else { return };
    let kind = said.kind.as_deref().unwrap_or_default();
    let bytes = process.resident_of(&[kind]);
    let hi = said.resident_hi.unwrap_or(said.resident);
    if bytes < said.resident || bytes > hi {
        wrong.push(format!(
            "rows of kind {kind}: {bytes}, the truth is in [{}, {hi}]; there are {}",
            said.resident,
            largest(process)
        ));
    }
}

/// No site holds bytes in a space where the truth doesn't name it.
fn dead(truth: &Phase, report: &Report, unseen: &Unseen, wrong: &mut Vec<String>) {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for said in &truth.owners {
        let spaces = report
            .processes
            .iter()
            .filter(|p| said.pid.is_none_or(|pid| p.pid == pid || p.space_pids.contains(&pid)));
        for process in spaces {
            named.entry(&process.space).or_default().extend(said.site.as_deref());
        }
    }
    for process in &report.processes {
        let known = named.get(process.space.as_str());
        let held = |row: &&OwnerRow| resident(row) > 0 && !NOBODYS.contains(&row.kind.as_str());
        for row in process.owners.iter().filter(held) {
            let Some(site) = site(&row.stack) else { continue };
            if !known.is_some_and(|k| k.contains(site)) && !unseen.contains(site) {
                wrong.push(format!(
                    "{} bytes of {} are attributed to {site}, which holds none",
                    resident(row),
                    process.pid
                ));
            }
        }
    }
}

/// The laws that every process' books obey, whatever it does: no truth is needed.
pub fn books(process: &Process, busy: bool, kernel: Option<&Rss>, wrong: &mut Vec<String>) {
    let pid = process.pid;
    for (kind, book) in &process.books {
        let (lo, hi) = (book.control.lo, book.control.hi);
        let explained = book.accounted() + book.skew;
        if explained < lo || explained > hi {
            wrong.push(format!("book {kind} of {pid} doesn't close: {explained}, the kernel says [{lo}, {hi}]: {book:?}"));
        }
        if book.owned.min(book.joint).min(book.unattributed) < 0 {
            wrong.push(format!("book {kind} of {pid} holds less than nothing: {book:?}"));
        }
        if book.at_rest && (book.skew != 0 || lo != hi) {
            wrong.push(format!("book {kind} of {pid} is at rest with a skew: {book:?}"));
        }
        if !busy && !book.at_rest {
            wrong.push(format!(
                "book {kind} of {pid} is not at rest, and the process stands still: {book:?}"
            ));
        }
    }
    let rows: u64 = process.owners.iter().map(resident).sum();
    let owned = process.over_resident(|book| book.owned);
    if i64::try_from(rows) != Ok(owned) {
        wrong.push(format!("owner rows of {pid} add up to {rows}, its books to {owned}"));
    }
    for row in &process.owners {
        let all = [&row.reserved, &row.resident, &row.swapped];
        if all.into_iter().flatten().any(|q| q.bytes.is_some() && q.evidence.is_none()) {
            wrong.push(format!("owner {} of {pid} has a number without evidence", row.id));
        }
    }
    if let Some(kernel) = kernel.filter(|_| !busy) {
        against_the_kernel(process, kernel, wrong);
    }
}

/// The control totals of a process that stands still are smaps_rollup's, to the byte.
fn against_the_kernel(process: &Process, kernel: &Rss, wrong: &mut Vec<String>) {
    let pid = process.pid;
    let (lo, hi) =
        (process.over_resident(|b| b.control.lo), process.over_resident(|b| b.control.hi));
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let Some((least, rss)) = kernel.get(&pid).map(|(least, most)| (signed(*least), signed(*most)))
    else {
        wrong.push(format!("the kernel gives no Rss of {pid}"));
        return;
    };
    if rss < lo || least > hi {
        wrong.push(format!(
            "the {RESIDENT:?} books of {pid} are [{lo}, {hi}], smaps_rollup's Rss is [{least}, {rss}]"
        ));
    }
    let unattributed = process.over_resident(|b| b.unattributed);
    if unattributed > (rss / 20).max(64 << 10) {
        wrong.push(format!("{unattributed} bytes of {rss} of {pid} are unattributed, 5 % may be"));
    }
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
