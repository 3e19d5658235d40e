//! On which nodes memory is said to lie whose place is known (`placed/placed.c`), before and after it moves.

use std::fs;

use serde_json::Value;

use crate::guest::Guest;

const MIB: u64 = 1 << 20;

/// What a program's functions have on the first and on the second node.
type Truth = [(&'static str, u64, u64)];

const BEFORE: &Truth = &[
    ("on_the_first", 8 * MIB, 0),
    ("on_the_second", 0, 8 * MIB),
    ("on_both_in_turn", 4 * MIB, 4 * MIB),
    // One mapping to the kernel.
    ("left_neighbour", MIB, 0),
    ("right_neighbour", 0, MIB),
];

fn owner(report: &Value, site: &str) -> Value {
    let owners = report["processes"][0]["owners"].as_array().cloned().unwrap_or_default();
    let named = |owner: &Value| {
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        text("name").contains(site) || text("caller").contains(site)
    };
    owners.into_iter().find(named).unwrap_or_default()
}

fn on(owner: &Value, node: u64) -> Option<Value> {
    let nodes = owner["placement"]["nodes"].as_array()?;
    nodes.iter().find(|on| on["node"] == node).map(|on| on["resident"].clone())
}

/// The sentence of what is wrong with an owner, if anything.
fn differs(report: &Value, when: &str, (site, first, second): (&str, u64, u64)) -> Option<String> {
    let owner = owner(report, site);
    let good = [(0, first), (1, second), (2, 0)].into_iter().all(|(node, bytes)| {
        let told = on(&owner, node);
        let said = told.as_ref().map_or(Some(0), |told| told["bytes"].as_u64());
        // As sure as what is resident is.
        let sure = told.is_none_or(|told| told["evidence"] == owner["resident"]["evidence"]);
        said == Some(bytes) && sure
    });
    let whole = owner["placement"]["unplaced"] == 0;
    (!good || !whole).then(|| format!("{when}: {site} has {first} and {second}: {owner}"))
}

/// Pages by node of the largest mapping that the kernel lists.
fn largest(numa_maps: &str) -> [u64; 2] {
    let on = |line: &str, node: &str| -> u64 {
        let counts = line.split_whitespace().filter_map(|word| word.strip_prefix(node));
        counts.filter_map(|pages| pages.parse::<u64>().ok()).sum()
    };
    let lines = numa_maps.lines().map(|line| [on(line, "N0="), on(line, "N1=")]);
    lines.max_by_key(|[first, second]| first + second).unwrap_or_default()
}

/// Each owner's bytes are on the nodes where the program put them, and where it moved them.
pub(crate) fn judge(guest: &Guest) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    let before: Value = guest.read("nodes-before.json")?;
    wrong.extend(BEFORE.iter().filter_map(|truth| differs(&before, "before", *truth)));
    let after: Value = guest.read("nodes-after.json")?;
    let moved = |(site, first, second): (&'static str, u64, u64)| match site {
        "on_the_first" => (site, 0, 8 * MIB),
        _ => (site, first, second),
    };
    wrong.extend(BEFORE.iter().filter_map(|truth| differs(&after, "after", moved(*truth))));
    for (site, policy) in [("on_the_first", "bind"), ("on_both_in_turn", "interleave")] {
        let policies = owner(&before, site)["placement"]["policies"].clone();
        if policies != Value::from(vec![policy]) {
            wrong.push(format!("{site} is under {policies}"));
        }
    }
    let ran = before["processes"][0]["ran"]["total"].clone();
    if ran["1"].as_f64().is_none_or(|seconds| seconds <= 0.0) || !ran["0"].is_null() {
        wrong.push(format!("its thread ran on the second node alone, not {ran}"));
    }

    let large: Value = guest.read("nodes-large.json")?;
    let listed = fs::read_to_string(guest.path("nodes-large.numa_maps")).unwrap_or_default();
    let owner = owner(&large, "too_many_pages");
    for (node, pages) in (0..).zip(largest(&listed)) {
        let told = on(&owner, node).unwrap_or_default();
        let (lo, hi) = (told["lo"].as_u64().unwrap_or(u64::MAX), told["hi"].as_u64().unwrap_or(0));
        let (truth, all) = (pages << 12, owner["resident"]["bytes"].as_u64().unwrap_or(0));
        // An interval of 95 % may miss by as much again about once in ten thousand times.
        let half = (hi.saturating_sub(lo)) / 2;
        if truth + half < lo || truth > hi + half || hi.saturating_sub(lo) > all / 10 {
            wrong.push(format!("{pages} pages on node {node}, told as {told}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}
