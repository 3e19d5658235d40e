//! Every panel of `dashboards/`, asked of a live Prometheus that two hosts write to and that runs the rules.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use memprov_tests::agent::Agent;
use memprov_tests::physical;
use memprov_tests::truth::{Phase, Workload};
use serde_json::Value;
use tempfile::TempDir;

use crate::programs::{root, truth};
use crate::promql::Series;
use crate::scene::{Scene, exact};
use crate::service::until;
use crate::stack::Store;

const CASE: &str = "cut_and_cover";
const HOSTS: f64 = 2.0;

/// Queries that need not answer in this run, by the begin of their titles, and why.
const SILENT: [(&str, &str); 8] = [
    ("Remote share of access time", "nothing samples accesses"),
    ("Remote share of hosts", "nothing samples accesses; what is spread evenly is asked below"),
    ("Owners by remote time", "nothing samples accesses"),
    ("Access time by locality", "nothing samples accesses"),
    ("Remote cycles in a second", "nothing samples accesses"),
    ("Equal samples", "nothing samples accesses"),
    ("Samples by what became", "nothing samples accesses"),
    ("Latency of sampled accesses", "nothing samples accesses"),
];
/// The same for single queries, by title and legend.
const SILENT_QUERIES: [(&str, &str, &str); 2] = [
    ("Owners now", "Growth", "all owners are younger than an hour"),
    ("What hosts lack", "Hosts", "a host may lack nothing"),
];

/// One query of a panel, ready to be asked.
#[derive(Debug)]
struct Query {
    title: String,
    legend: String,
    promql: String,
}

/// All queries of a dashboard, for all hosts and services.
fn queries(board: &str) -> Vec<Query> {
    let path = root().join(format!("dashboards/{board}.json"));
    let text = fs::read_to_string(&path).expect("a dashboard");
    let board: Value = serde_json::from_str(&text).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().expect("a title").to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| Query {
            title: title.clone(),
            legend: target["legendFormat"].as_str().unwrap_or_default().to_owned(),
            promql: ["$host", "$job"]
                .iter()
                .fold(target["expr"].as_str().expect("a query").to_owned(), |promql, variable| {
                    promql.replace(variable, ".*")
                })
                // Some panes of a second.
                .replace("$__rate_interval", "30s"),
        })
    };
    panels.iter().flat_map(of_panel).collect()
}

/// The newest values of all series, added up by the label `label`.
fn by(label: &str, found: &[Series]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for Series { labels, samples } in found {
        let name = labels.get(label).cloned().unwrap_or_default();
        *sums.entry(name).or_default() += samples.last().map_or(0.0, |sample| sample.1);
    }
    sums
}

/// Dashboards and who answers their queries.
struct Boards<'a> {
    scene: &'a Scene,
    queries: Vec<Query>,
}

impl Boards<'_> {
    fn ask(&self, title: &str, legend: &str) -> Result<Vec<Series>, String> {
        let query = self.queries.iter().find(|q| q.title == title && q.legend == legend);
        let query = query.unwrap_or_else(|| panic!("no panel {title:?} with {legend:?}"));
        self.scene.stack.api.query(&query.promql)
    }

    /// The one value of a panel that shows one.
    fn value(&self, title: &str) -> Result<f64, String> {
        match self.ask(title, "")?.as_slice() {
            [Series { samples, .. }] => samples.last().map(|s| s.1).ok_or("no sample".to_owned()),
            others => Err(format!("{title}: {} series", others.len())),
        }
    }

    /// Fails unless a panel comes to show `expected`, exactly.
    fn shows(&self, title: &str, expected: f64) {
        until(&format!("panel {title:?} shows {expected}"), || {
            let shown = self.value(title)?;
            (shown == expected).then_some(()).ok_or(format!("it shows {shown}"))
        });
    }
}

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
fn nodes() -> f64 {
    let list = fs::read_to_string("/sys/devices/system/node/has_memory").expect("a list of nodes");
    let number = |text: &str| text.parse::<u32>().expect("a node");
    let count = list.trim().split(',').map(|part| match part.split_once('-') {
        Some((first, last)) => number(last) - number(first) + 1,
        None => 1,
    });
    count.sum::<u32>().into()
}

#[test]
fn every_panel_answers_and_says_what_the_oracle_says_of_two_hosts_after_a_restart() {
    let set = Scene::set("panels", CASE, Store::Prometheus);
    let Some((mut scene, here)) = set else { return };
    let files = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut workload = Workload::start(&truth(), CASE, files.path()).expect("a workload");
    workload.phase().expect("it is ready").expect("a phase");
    let endpoint = format!("export.endpoint={}", scene.stack.endpoint());
    let settings = [&*endpoint, "export.detail=owners"];
    let machine = format!("{:032x}", std::process::id());
    let agent = Agent::elsewhere(workload.pid(), &settings, &machine).expect("memprov starts");
    agent.fresh(workload.pid(), &[], SystemTime::now()).expect("the hooks are attached");
    workload.go();
    let there = workload.phase().expect("the oracle agrees with the kernel").expect("a phase");
    scene.memprov.again().expect("memprov starts again");

    let pids = [scene.workload.pid(), workload.pid()];
    scene.agrees_with_the_kernel(&pids);
    let all = ["owners", "numa", "evidence"].iter().flat_map(|board| queries(board)).collect();
    let boards = Boards { scene: &scene, queries: all };
    let rss: Option<u64> = pids.iter().map(|pid| physical::rollup(*pid, "Rss")).sum();
    let rss = exact(rss.expect("the processes live"));

    // Bytes are exact on the way: tolerance 0.
    boards.shows("Kernel's total", rss);
    until("the first row is an equation", || {
        let terms = ["Owned", "Shared", "Unattributed", "Skew"].map(|term| boards.value(term));
        let sum = terms.iter().cloned().sum::<Result<f64, _>>()?;
        (sum == rss).then_some(()).ok_or(format!("{terms:?} are not {rss}"))
    });
    boards.shows("Swapped out", 0.0);
    until("owners of both hosts add up", || {
        let [resident, reserved] = ["Resident", "Reserved"].map(|legend| {
            boards.ask("Owners now", legend).map(|found| by("memprov_owner_name", &found))
        });
        let (resident, reserved) = (resident?, reserved?);
        for (site, expected) in owners(&[&here, &there]) {
            let of = |shown: &BTreeMap<String, f64>| {
                let named = |name: &str| name == site || name.starts_with(&format!("{site} "));
                shown.iter().filter(|(name, _)| named(name)).map(|(_, bytes)| bytes).sum::<f64>()
            };
            let shown = [of(&resident), of(&reserved)];
            if shown != expected {
                return Err(format!("{site}: {shown:?}, not {expected:?}: {resident:?}"));
            }
        }
        let kinds = by(
            "memprov_owner_kind",
            &boards.ask("Resident by kind of owner", "{{memprov_owner_kind}}")?,
        );
        let (kinds, owned) =
            (kinds.values().sum::<f64>(), boards.value("Owned")? + boards.value("Unattributed")?);
        (kinds == owned).then_some(()).ok_or(format!("kinds are {kinds}, owners {owned}"))
    });
    boards.shows("Agents", HOSTS);
    boards.shows("Books that are open", 0.0);
    boards.shows("Settings refused in a day", 0.0);
    let spread = boards
        .ask(
            "Remote share of hosts, and what even spreading would give",
            "{{host_id}}, spread evenly",
        )
        .expect("a panel");
    let expected = 1.0 - 1.0 / nodes();
    assert_eq!(by("host_id", &spread).into_values().collect::<Vec<_>>(), [expected; 2]);
    let share = boards.value("Exact share of resident memory").expect("a share");
    assert!((0.0..=1.0).contains(&share), "{share} of memory is exact");
    // What agents say of themselves is within a factor of two of what the kernel says.
    let said = boards.ask("Resident memory of agents", "{{host_id}}").expect("a panel");
    for pid in [scene.memprov.pid(), agent.pid()] {
        let is = exact(physical::rollup(pid, "Rss").expect("memprov lives"));
        let near = |s: &Series| s.samples.last().is_some_and(|s| s.1 / is < 2.0 && is / s.1 < 2.0);
        assert!(said.iter().any(near), "{said:?}, not {is}");
    }

    for query in &boards.queries {
        let silent = SILENT.iter().any(|(title, _)| query.title.starts_with(title));
        let silent = silent
            || SILENT_QUERIES.iter().any(|(t, l, _)| query.title == *t && query.legend == *l);
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
