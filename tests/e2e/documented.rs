//! What docs/METRICS.md and otel-collector/README.md promise, asked of a live Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::programs::root;
use crate::promql::Labels;
use crate::scene::Scene;
use crate::service::until;
use crate::stack::Store;

/// What is in the queries that find nothing in this run, and why they don't.
const WITHOUT_DATA: [(&str, &str); 9] = [
    ("memprov_access_", "accesses are sampled on request only"),
    ("memprov_memory_populated_", "page faults are told on request only"),
    ("memprov_export_records_", "exemplars are sent as log records on request only"),
    ("memprov_memory_placed_", "only one node holds memory"),
    ("memprov_placement_time_", "only one node holds memory"),
    ("memprov_memory_touched_", "no monitor of DAMON watches the workload"),
    ("memprov_memory_resident_exact_bytes", "sent where less is told of owners"),
    ("memprov_config_reloads_total", "no settings are refused"),
    ("container_id", "the workload is in no container; `join` asks with one"),
];

/// The fenced blocks of one language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let after = document.split(&fence).skip(1);
    after.filter_map(|rest| rest.split_once("\n```")).map(|(block, _)| block.to_owned()).collect()
}

/// A metric's section of docs/METRICS.md.
struct Documented<'a> {
    name: &'a str,
    /// What Prometheus calls it.
    called: &'a str,
    counts: bool,
    /// Labels, and whether every series has them.
    labels: BTreeMap<&'a str, bool>,
}

/// What Prometheus adds, and what the shipped configuration promotes of resources.
const OTHERS: [&str; 5] = ["__name__", "job", "instance", "host_id", "container_id"];

impl<'a> Documented<'a> {
    fn of(section: &'a str) -> Option<Self> {
        let (_, after) = section.split_once("- Prometheus: `")?;
        let (called, rest) = after.split_once('`')?;
        let instrument = rest.lines().find_map(|line| line.strip_prefix("- Instrument: "))?;
        // | `key` | `label` | present | values |
        let row = |line: &'a str| {
            let mut cells = line.strip_prefix("| `")?.split('|').map(|cell| cell.trim());
            let (label, present) = (cells.nth(1)?, cells.next()?);
            Some((label.trim_matches('`'), present == "always"))
        };
        Some(Self {
            name: section.lines().next()?,
            called,
            counts: instrument.starts_with("counter") || instrument.starts_with("histogram"),
            labels: section.lines().filter_map(row).collect(),
        })
    }

    /// Fails unless these labels are as documented.
    fn has(&self, labels: &Labels) {
        let own = labels.keys().map(String::as_str).filter(|label| !OTHERS.contains(label));
        let own: BTreeSet<_> = own.collect();
        let unknown = own.iter().find(|label| !self.labels.contains_key(*label));
        assert_eq!(unknown, None, "{} has labels {labels:?}", self.name);
        let always = self.labels.iter().filter(|(_, always)| **always).map(|(label, _)| *label);
        let missing: Vec<_> = always.filter(|label| !own.contains(label)).collect();
        assert!(missing.is_empty(), "{} lacks {missing:?}: {labels:?}", self.name);
    }
}

#[test]
fn every_documented_query_runs_and_every_name_is_as_documented() {
    let set = Scene::set("documented", "cut_and_cover", Store::Prometheus);
    let Some((mut scene, first)) = set else { return };
    scene.agrees(&first);
    // What moves is scanned once more: averages of scans are of those since the first pane.
    let next = scene.next().expect("a phase");
    scene.agrees(&next);
    let document = |name: &str| fs::read_to_string(root().join(name)).expect("a document");
    let metrics = document("docs/METRICS.md");
    let mut queries = blocks(&metrics, "promql");
    assert!(!queries.is_empty());
    queries.extend(blocks(&document("otel-collector/README.md"), "promql"));
    let without = |query: &str| WITHOUT_DATA.iter().any(|(part, _)| query.contains(part));
    until("documented queries find something, but for those that can't", || {
        let mut wrong = Vec::new();
        for query in &queries {
            let found = scene.stack.api.query(query)?.len();
            if (found == 0) != without(query) {
                wrong.push(format!("{query} finds {found} series"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    });
    for (part, _) in WITHOUT_DATA {
        assert!(queries.iter().any(|query| query.contains(part)), "no query has {part}");
    }
    scene.keeps_to_the_registry();
    let documented: Vec<_> = metrics.split("\n## ").filter_map(Documented::of).collect();
    let came: BTreeSet<_> = scene.stack.witness().points.into_iter().map(|p| p.metric).collect();
    for name in came.iter().filter(|name| name.starts_with("memprov.")) {
        let metric = documented.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not documented"));
        let called = metric.called;
        let found = scene.stack.api.query(&format!("{called} or {called}_count"));
        let found = found.expect("a query");
        assert!(!found.is_empty(), "{name} is not called {called}");
        found.iter().for_each(|series| metric.has(&series.labels));
        // Nothing has begun anew: a counter that falls is added up twice by whoever asks for its rate.
        if metric.counts {
            let falls = format!("sum(resets({called}[10m])) or sum(resets({called}_count[10m]))");
            assert_eq!(scene.stack.api.value(&falls), Ok(0.0), "{name} fell");
        }
    }
    assert!(came.contains("memprov.memory.resident"), "{came:?}");
}
