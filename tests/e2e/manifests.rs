//! The Collectors' modules are what their manifests say.

use std::collections::BTreeSet;
use std::fs;

use crate::programs::root;

fn file(name: &str) -> String {
    fs::read_to_string(root().join("otel-collector").join(name)).expect("a committed file")
}

/// `module version` of every component of a manifest.
fn components(manifest: &str) -> BTreeSet<String> {
    let lines = file(manifest);
    let components = lines.lines().filter_map(|line| line.trim().strip_prefix("- gomod: "));
    components.map(str::to_owned).collect()
}

#[test]
fn each_collector_is_built_from_the_versions_of_its_manifest() {
    for set in ["core", "full"] {
        let modules = file(&format!("{set}/go.mod"));
        let required: BTreeSet<_> = modules.lines().map(str::trim).collect();
        for component in components(&format!("{set}.yaml")) {
            assert!(required.contains(component.as_str()), "{set}: {component}");
        }
    }
}

#[test]
fn the_full_collector_has_all_of_the_core_one_in_the_same_versions() {
    let (core, full) = (components("core.yaml"), components("full.yaml"));
    assert!(core.is_subset(&full), "{:?}", core.difference(&full));
    assert!(full.len() > core.len());
}
