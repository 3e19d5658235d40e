//! What docs/METRICS.md and otel-collector/README.md promise, asked of a live Prometheus.

use std::collections::BTreeSet;
use std::fs;

use crate::programs::root;
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

#[test]
fn every_documented_query_runs_and_every_name_is_as_documented() {
    let set = Scene::set("documented", "cut_and_cover", Store::Prometheus);
    let Some((scene, first)) = set else { return };
    scene.agrees(&first);
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
    // One section a metric: its name, and what Prometheus calls it.
    let documented: Vec<_> = metrics
        .split("\n## ")
        .filter_map(|section| {
            let name = section.lines().next()?;
            let (_, after) = section.split_once("- Prometheus: `")?;
            Some((name.to_owned(), after.split_once('`')?.0.to_owned()))
        })
        .collect();
    let came: BTreeSet<_> = scene.stack.witness().points.into_iter().map(|p| p.metric).collect();
    for name in came.iter().filter(|name| name.starts_with("memprov.")) {
        let called = documented.iter().find(|(documented, _)| documented == name);
        let (_, called) = called.unwrap_or_else(|| panic!("{name} is not documented"));
        let there = scene.stack.api.value(&format!("count({called} or {called}_count)"));
        assert!(there.is_ok_and(|n| n > 0.0), "{name} is not called {called}");
    }
    assert!(came.contains("memprov.memory.resident"), "{came:?}");
}
