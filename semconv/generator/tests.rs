use std::path::Path;

use super::*;

/// Resolves one file of definitions.
fn resolved(text: &str) -> Result<registry::Registry, Vec<String>> {
    let said = |problems: Vec<Problem>| problems.iter().map(chain).collect::<Vec<_>>();
    let file = files::parse("names.yaml", text).map_err(|problem| said(vec![problem]))?;
    registry::resolve(&[("names.yaml".to_owned(), file)]).map_err(said)
}

/// A registry of one attribute and one metric, which each test spoils in its own way.
const GOOD: &str = r#"file_format: definition/2
imports: {entities: [host]}
attributes:
  - key: memprov.reason
    type:
      members:
        - {id: still, value: still, brief: Nothing moved., stability: development}
        - {id: budget, value: budget, brief: Too dear., stability: development}
    brief: Why.
    stability: development
metrics:
  - name: memprov.scan.skipped
    brief: Scans that were not made.
    unit: "{scan}"
    instrument: counter
    stability: development
    attributes:
      - {ref: memprov.reason, requirement_level: required}
    entity_associations: [host]
    annotations:
      code_generation: {metric_value_type: int}
      memprov:
        query:
          tells: How many.
          promql: sum by (memprov_reason) (memprov_scan_skipped_total)
"#;

/// What is said about a registry in which `old` is replaced.
fn spoiled(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    resolved(&GOOD.replacen(old, new, 1)).expect_err("refused").join("\n")
}

#[test]
fn what_is_made_of_the_registry_is_what_lies_in_the_tree() {
    let made = made().map_err(|problems| problems.iter().map(chain).collect::<Vec<_>>()).unwrap();
    for (path, text) in made {
        let there = std::fs::read_to_string(&path).unwrap();
        let first = there.lines().zip(text.lines()).position(|(a, b)| a != b);
        assert!(
            there == text,
            "{} is out of date from line {:?}: cargo run -p memprov-semconv --example generate",
            path.display(),
            first.map_or(there.lines().count().min(text.lines().count()) + 1, |n| n + 1),
        );
    }
}

#[test]
fn a_registry_that_keeps_the_rules_is_resolved() {
    let registry = resolved(GOOD).unwrap();
    assert_eq!(registry.metrics.len(), 1);
    let [metric] = &registry.metrics[..] else { panic!("{registry:?}") };
    assert_eq!(metric.prometheus, "memprov_scan_skipped_total");
    assert_eq!(metric.attributes[0].attribute.members.len(), 2);
    let code = rust::write(&registry).unwrap();
    assert!(code.contains("attribute(REASON, Type::Text, true, reason::ALL)"), "{code}");
}

#[test]
fn every_mistake_is_told_with_its_file_and_line() {
    for (old, new, said) in [
        ("unit: \"{scan}\"", "unit: scans", "names.yaml:12: scans is none of By, s, 1"),
        ("unit: \"{scan}\"", "unit: \"1\"", "names.yaml:12: memprov.scan.skipped: only a gauge"),
        ("name: memprov.scan", "name: memprov.Scan", "names.yaml:12: memprov.Scan.skipped is not"),
        ("name: memprov.scan.skipped", "name: memprov.scan.total", "repeats its unit"),
        ("name: memprov.scan", "name: scan", "names.yaml:12: scan.skipped is not below memprov."),
        ("{ref: memprov.reason,", "{ref: memprov.why,", "names.yaml:18: nobody defines the attr"),
        ("{ref: memprov.reason,", "{ref_group: why,", "names.yaml:18: nobody defines the group"),
        (
            "_level: required}",
            "_level: required}\n      - ref: memprov.reason",
            "19: memprov.reason",
        ),
        ("value: budget", "value: still", "names.yaml:4: memprov.reason has a value twice"),
        ("id: budget", "id: still", "names.yaml:4: memprov.reason has a member twice"),
        ("Scans that were not made.", "Scans", "names.yaml:12: memprov.scan.skipped: its brief"),
        ("[host]\n    ann", "[shelf]\n    ann", "names.yaml:12: shelf is no imported entity"),
        ("memprov_scan_skipped_total", "memprov_scan_skipped", "lacks memprov_scan_skipped_total"),
        ("by (memprov_reason)", "by (memprov_why)", "nothing is named memprov_why"),
        ("definition/2", "definition/1", "names.yaml:1: "),
        ("instrument: counter", "instrument: meter", "names.yaml:15: "),
        ("    unit:", "    units:", "names.yaml:14: "),
    ] {
        let problems = spoiled(old, new);
        assert!(problems.contains(said), "{new}: {problems}");
    }
}

#[test]
fn an_attribute_that_nothing_carries_is_refused() {
    let unused = "attributes:\n  - {key: memprov.x, type: string, brief: X., stability: stable}";
    let problems = spoiled("attributes:", unused);
    assert_eq!(problems, "names.yaml:4: nothing carries memprov.x");
}

#[test]
fn a_metric_names_only_values_that_its_attribute_has() {
    let some = |value: &str| {
        let annotation = format!("required, annotations: {{memprov: {{values: [{value}]}}}}}}");
        GOOD.replacen("required}", &annotation, 1)
    };
    let code = rust::write(&resolved(&some("still")).unwrap()).unwrap();
    assert!(code.contains("attribute(REASON, Type::Text, true, &[reason::STILL])"), "{code}");
    let problems = resolved(&some("never")).expect_err("refused");
    assert_eq!(problems, ["names.yaml:18: never is no value of memprov.reason"]);
}

#[test]
fn an_attribute_of_another_registry_says_its_type_where_resources_name_it() {
    let group = |annotations: &str| {
        let group = format!(
            "attribute_groups:\n  - id: r\n    visibility: public\n    brief: R.\n    \
             stability: development\n    attributes:\n      - ref: host.id\n        \
             brief: Host.\n        {annotations}\nmetrics:"
        );
        GOOD.replacen("metrics:", &group, 1)
    };
    let registry = resolved(&group("annotations: {memprov: {type: string}}")).unwrap();
    assert_eq!(registry.resource[0].attribute.key, "host.id");
    let problems = resolved(&group("requirement_level: required")).expect_err("refused").join("\n");
    assert!(
        problems.contains("names.yaml:17: host.id is defined by another registry"),
        "{problems}"
    );
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let problems = files::read(Path::new("/nowhere/at/all")).expect_err("refused");
    assert!(chain(&problems[0]).starts_with("read /nowhere/at/all: "), "{problems:?}");
}
