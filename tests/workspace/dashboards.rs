//! What dashboards and rules speak of: the names of docs/METRICS.md, which are made from the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::{root, written};

/// Metrics of others, with their labels: OpenTelemetry's `container.cpu.time`, and cAdvisor's.
const FOREIGN: [(&str, &[&str]); 2] = [
    ("container_cpu_time_seconds_total", &["container_id"]),
    ("container_cpu_usage_seconds_total", &["id"]),
];
/// Labels that Prometheus or a rule gives: `level` is of recorded series, the last three of alerts.
const GIVEN: [&str; 7] = ["job", "instance", "le", "level", "alertname", "alertstate", "evidence"];
/// What rules add to the labels of `ALERTS`.
const SEVERITY: &str = "severity";

/// Labels of every metric, by its name in Prometheus, and those of resources.
struct Names {
    metrics: BTreeMap<String, BTreeSet<String>>,
    resources: BTreeSet<String>,
}

impl Names {
    /// Those that docs/METRICS.md has.
    fn documented() -> Self {
        let document = fs::read_to_string(root().join("docs/METRICS.md")).expect("a document");
        let mut names = Self { metrics: BTreeMap::new(), resources: BTreeSet::new() };
        for section in document.split("\n## ") {
            // | `key` | `label` | present | values |
            let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
            let labels = rows.filter_map(|row| Some(row.split('`').nth(2)?.to_owned()));
            let labels: BTreeSet<_> = labels.collect();
            match section.split_once("- Prometheus: `").and_then(|(_, rest)| rest.split_once('`')) {
                Some((name, rest)) if rest.contains("- Instrument: histogram") => {
                    for part in ["_bucket", "_sum", "_count"] {
                        names.metrics.insert(format!("{name}{part}"), labels.clone());
                    }
                }
                Some((name, _)) => {
                    names.metrics.insert(name.to_owned(), labels);
                }
                None if section.starts_with("Resources") => names.resources = labels,
                None => {}
            }
        }
        for (name, labels) in FOREIGN {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            names.metrics.insert(name.to_owned(), labels);
        }
        // What the shipped Prometheus promotes, names of pods among it.
        let promoted = fs::read_to_string(root().join("otel-collector/prometheus.yml"));
        let promoted = promoted.expect("a configuration");
        let promoted = promoted.lines().filter_map(|line| line.trim().strip_prefix("- "));
        names.resources.extend(promoted.map(|key| key.replace('.', "_")));
        names.resources.extend(GIVEN.map(str::to_owned));
        names
    }

    /// What is wrong with the names in a text with PromQL; `recorded`: names that rules make.
    fn wrong(&self, text: &str, recorded: &BTreeSet<String>) -> Vec<String> {
        let mut wrong = Vec::new();
        let any: BTreeSet<_> = self.metrics.values().flatten().chain(&self.resources).collect();
        for (at, name) in words(text) {
            let ours = name.starts_with("memprov_") || name.contains(':');
            let labels = self.metrics.get(name);
            let known =
                labels.is_some() || recorded.contains(name) || any.contains(&name.to_owned());
            if ours && !known {
                wrong.push(format!("{name} is no name"));
            }
            let after = text.get(at + name.len()..).unwrap_or_default();
            for label in matched(after) {
                let has = match labels {
                    Some(labels) => labels.contains(label) || self.resources.contains(label),
                    // A recorded series has labels of those it is made of.
                    None => any.contains(&label.to_owned()) || label == SEVERITY,
                };
                if !has && (labels.is_some() || recorded.contains(name) || name == "ALERTS") {
                    wrong.push(format!("{name} has no label {label}"));
                }
            }
        }
        wrong
    }
}

/// Names of metrics, labels and all else that looks like one, with their places.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(move |c| !inside(c))
        .map(|word| word.trim_matches(':'))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
        .map(move |word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

/// The labels in the braces that a text begins with.
fn matched(text: &str) -> Vec<&str> {
    let Some(inside) = text.strip_prefix('{') else { return Vec::new() };
    let mut labels = Vec::new();
    let mut rest = inside;
    while let Some((label, after)) = rest.split_once(['=', '!']) {
        if label.contains('}') {
            break;
        }
        labels.push(label.trim_matches([',', ' ']));
        // Values are in quotes, and hold no quote.
        let Some((_, after)) = after.split_once('"') else { break };
        let Some((_, after)) = after.split_once('"') else { break };
        rest = after;
    }
    labels
}

/// A file of `dashboards/` and the PromQL in it: comments and prose left out.
fn texts() -> Vec<(String, String)> {
    let files = written(&root().join("dashboards")).into_iter();
    let texts = files.filter_map(|path| {
        let text = fs::read_to_string(&path).expect("a text");
        let kept = match path.extension()?.to_str()? {
            "json" => {
                let board = serde_json::from_str(&text).expect("JSON");
                let mut queries = Vec::new();
                collect(&board, &mut queries);
                queries.join("\n")
            }
            "yaml" => {
                let code = text.lines().filter(|line| !line.trim_start().starts_with('#'));
                code.collect::<Vec<_>>().join("\n")
            }
            _ => return None,
        };
        Some((path.file_name()?.to_str()?.to_owned(), kept))
    });
    texts.collect()
}

/// Every query below a JSON value: `expr` of panels, `query` of variables.
fn collect(value: &serde_json::Value, queries: &mut Vec<String>) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(query) if key == "expr" || key == "query" => {
                        queries.push(query.clone());
                    }
                    other => collect(other, queries),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, queries)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn after<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(key)).map(str::trim).collect()
}

#[test]
fn dashboards_and_rules_speak_of_names_of_the_registry_only() {
    let (names, texts) = (Names::documented(), texts());
    let recorded = texts.iter().flat_map(|(_, text)| after(text, "- record:"));
    let recorded: BTreeSet<_> = recorded.map(str::to_owned).collect();
    assert!(!recorded.is_empty() && texts.len() > 8, "{recorded:?} in {} files", texts.len());
    let wrong: Vec<_> = texts
        .iter()
        .flat_map(|(file, text)| {
            let wrong = names.wrong(text, &recorded).into_iter();
            wrong.map(move |what| format!("{file}: {what}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_name_or_label_that_nobody_sends_is_noticed() {
    let names = Names::documented();
    for (text, expected) in [
        ("sum(memprov_memory_resident_bytes{memprov_owner_kind=\"file\", job=\"a\"})", None),
        ("memprov_memory_residents_bytes", Some("memprov_memory_residents_bytes is no name")),
        ("sum by (memprov_owner) (up)", Some("memprov_owner is no name")),
        ("a:b:c", Some("a:b:c is no name")),
        (
            "rate(memprov_source_lost_total{job=\"a\", memprov_owner_kind!~\"b\"}[1h])",
            Some("memprov_source_lost_total has no label memprov_owner_kind"),
        ),
    ] {
        let wrong = names.wrong(text, &BTreeSet::new());
        assert_eq!(wrong.first().map(String::as_str), expected, "{text}: {wrong:?}");
    }
}

#[test]
fn every_alert_is_a_ticket_with_a_runbook() {
    let rules: Vec<_> = written(&root().join("dashboards/rules"));
    let mut alerts = 0;
    for path in rules {
        let text = fs::read_to_string(&path).expect("rules");
        for alert in text.split("- alert:").skip(1) {
            alerts += 1;
            let tickets = after(alert, "labels:");
            assert!(tickets.iter().any(|l| l.contains("severity: ticket")), "{alert}");
            let runbooks = after(alert, "runbook_url:");
            assert_eq!(runbooks.len(), 1, "{alert}");
            assert!(runbooks.iter().all(|name| root().join(name).is_file()), "{runbooks:?}");
        }
    }
    assert!(alerts > 5, "{alerts} alerts");
}

/// Whoever reads of lost records finds each stream that can lose some.
#[test]
fn the_runbook_of_lost_evidence_knows_every_source() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a document");
    let (metrics, runbook) = (read("docs/METRICS.md"), read("docs/runbooks/evidence-lost.md"));
    let (_, section) = metrics.split_once("\n### memprov.source.name\n").expect("a section");
    let section = section.split("\n### ").next().unwrap_or_default();
    let sources = |text: &str| -> BTreeSet<String> {
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
    };
    let known = sources(section);
    assert!(known.len() > 5, "{known:?}");
    assert_eq!(known, sources(&runbook));
}
