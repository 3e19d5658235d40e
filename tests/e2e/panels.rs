//! Every panel of `dashboards/`, asked of a live Prometheus that two hosts write to and that runs the rules.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use memprov_tests::agent::Agent;
use memprov_tests::physical;
use memprov_tests::truth::{Phase, Workload};
use tempfile::TempDir;

use crate::boards::{Boards, by, total};
use crate::nodes::{cpu_seconds, described};
use crate::programs::truth;
use crate::scene::{Scene, exact};
use crate::service::until;
use crate::stack::Store;
use crate::{evidence, numa};

const CASE: &str = "cut_and_cover";

/// Queries that need not answer in this run, by title and legend, and why.
const SILENT: [(&str, &str, &str); 2] = [
    ("Owners now", "Growth", "all owners are younger than an hour"),
    ("What hosts lack", "Hosts", "a host may lack nothing"),
];

/// Resident and reserved bytes by a part of the owner's name, over all hosts.
fn owners(phases: &[&Phase]) -> BTreeMap<String, [f64; 2]> {
    let mut owners: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for said in phases.iter().flat_map(|phase| &phase.owners) {
        let Some(site) = &said.site else { continue };
        let sums = owners.entry(site.clone()).or_default();
        sums[0] += exact(said.resident);
        sums[1] += exact(said.reserved.unwrap_or(0));
    }
    owners
}

/// Nodes with memory, of a list such as `0-1,3`.
fn nodes_here() -> f64 {
    let list = fs::read_to_string("/sys/devices/system/node/has_memory").expect("a list of nodes");
    let number = |text: &str| text.parse::<u32>().expect("a node");
    let count = list.trim().split(',').map(|part| match part.split_once('-') {
        Some((first, last)) => number(last) - number(first) + 1,
        None => 1,
    });
    count.sum::<u32>().into()
}

/// Panels of the dashboard of owners, against what the oracles say of both hosts.
fn owned(boards: &Boards, phases: &[&Phase], rss: f64) {
    // Bytes are exact on the way: tolerance 0.
    boards.shows("Kernel's total", rss);
    until("the first row is an equation", || {
        let terms = ["Owned", "Shared", "Unattributed", "Skew"].map(|term| boards.value(term));
        let sum = terms.iter().cloned().sum::<Result<f64, _>>()?;
        (sum == rss).then_some(()).ok_or(format!("{terms:?} are not {rss}"))
    });
    boards.shows("Swapped out", 0.0);
    until("owners of both hosts add up", || {
        let largest = "{{memprov_owner_kind}} {{memprov_owner_name}}";
        let panels = [
            ("Owners now", "Resident"),
            ("Owners now", "Reserved"),
            ("Resident, ten largest owners", largest),
        ];
        let shown = panels.map(|(title, legend)| {
            boards.ask(title, legend).map(|found| by("memprov_owner_name", &found))
        });
        let [resident, reserved, largest] = shown;
        let (resident, reserved, largest) = (resident?, reserved?, largest?);
        for (site, expected) in owners(phases) {
            let of = |shown: &BTreeMap<String, f64>| {
                let named = |name: &str| name == site || name.starts_with(&format!("{site} "));
                shown.iter().filter(|(name, _)| named(name)).map(|(_, bytes)| bytes).sum::<f64>()
            };
            let shown = [of(&resident), of(&reserved)];
            if shown != expected {
                return Err(format!("{site}: {shown:?}, not {expected:?}: {resident:?}"));
            }
            let (one, least) = (of(&largest), largest.values().copied().fold(f64::MAX, f64::min));
            if one != expected[0] && (one != 0.0 || expected[0] > least) {
                return Err(format!("{site}: {expected:?}, of the largest {largest:?}"));
            }
        }
        Ok(())
    });
    until("kinds and services add up", || {
        let kinds = boards.ask("Resident by kind of owner", "{{memprov_owner_kind}}")?;
        let services = boards.ask("Resident, ten largest services", "{{job}}")?;
        let terms = ["Owned", "Unattributed", "Shared objects"].map(|term| boards.value(term));
        let owned = terms.into_iter().sum::<Result<f64, _>>()?;
        let sums = [total(&kinds), total(&services)];
        (sums == [owned; 2]).then_some(()).ok_or(format!("{sums:?}, of {owned}"))
    });
    until("kinds of faults add up to the faults that the kernel counts", || {
        let kinds = total(&boards.ask("Page faults by kind of memory", "{{memprov_kind}}")?);
        let faults = boards.value_of("sum(rate(memprov_memory_faults_total[10m]))")?;
        let near = (kinds - faults).abs() <= 0.01 * faults;
        near.then_some(()).ok_or(format!("{kinds}, of {faults} a second"))
    });
}

#[test]
fn every_panel_answers_and_says_what_the_oracle_says_of_two_hosts_after_a_restart() {
    let begun = Instant::now();
    let set = Scene::set("panels", CASE, Store::Prometheus);
    let Some((mut scene, here)) = set else { return };
    let files = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut workload = Workload::start(&truth(), CASE, files.path()).expect("a workload");
    workload.phase().expect("it is ready").expect("a phase");
    // The other host has two nodes.
    let nodes = described("e2e panels of places");
    let busy = nodes.as_ref().map(|nodes| nodes.busy());
    let mut there = vec![workload.pid()];
    there.extend(busy.as_ref().map(|busy| busy.pid()));
    let endpoint = format!("export.endpoint={}", scene.stack.endpoint());
    let root = nodes.as_ref().map(|nodes| nodes.setting());
    let settings = [&*endpoint, "export.detail=owners"].into_iter().chain(root.as_deref());
    let machine = format!("{:032x}", std::process::id());
    let agent = Agent::elsewhere(&there, &settings.collect::<Vec<_>>(), &machine);
    let agent = agent.expect("memprov starts");
    agent.fresh(workload.pid(), &[], SystemTime::now()).expect("the hooks are attached");
    workload.go();
    let other = workload.phase().expect("the oracle agrees with the kernel").expect("a phase");
    let before = cpu_seconds(scene.memprov.pid());
    scene.memprov.again().expect("memprov starts again");

    let pids: Vec<u32> = [scene.workload.pid()].into_iter().chain(there).collect();
    scene.agrees_with_the_kernel(&pids);
    let boards = Boards::of(&scene.stack.api);
    let rss: Option<u64> = pids.iter().map(|pid| physical::rollup(*pid, "Rss")).sum();
    let rss = exact(rss.expect("the processes live"));
    owned(&boards, &[&here, &other], rss);
    let agents = [scene.memprov.pid(), agent.pid()];
    evidence::panels(&boards, &agents, before, begun.elapsed().as_secs_f64());
    let spread = boards
        .ask(
            "Remote share of hosts, and what even spreading would give",
            "{{host_id}}, spread evenly",
        )
        .expect("a panel");
    let mut spread = by("host_id", &spread);
    let of_other = spread.remove(&machine);
    let expected = |nodes: f64| 1.0 - 1.0 / nodes;
    let said = if busy.is_some() { 2.0 } else { nodes_here() };
    assert_eq!(of_other, Some(expected(said)), "{spread:?}");
    assert_eq!(spread.into_values().collect::<Vec<_>>(), [expected(nodes_here())]);
    if let Some(busy) = &busy {
        numa::places(&scene, &boards, &machine, &owners(&[&other]), busy.pid());
    }
    numa::accesses(&scene, &boards, files.path());

    for query in &boards.queries {
        let silent = SILENT.iter().any(|(t, l, _)| query.title == *t && query.legend == *l);
        let silent = silent || busy.is_none() && query.promql.contains("placement");
        let silent = silent || busy.is_none() && query.promql.contains("memory_placed");
        until(&format!("{query:?} answers"), || {
            let found = scene.stack.api.query(&query.promql)?;
            (silent || !found.is_empty()).then_some(()).ok_or("it is empty".to_owned())
        });
    }
    // Long enough for books at some seconds after the restart.
    sleep(Duration::from_secs(6));
    scene.books_are_closed();
    scene.nothing_was_refused_or_repeated();
}
