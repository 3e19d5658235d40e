//! On which nodes memory is said to lie whose place is known (`placed/placed.c`), before and after it moves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memprov_tests::{host, otlp};
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
    let seconds = |node: &str| ran[node].as_f64().unwrap_or(0.0);
    // It may have been read before its thread chose the second node: loading a program takes some ticks there.
    if seconds("1") <= 0.0 || seconds("0") > 0.1 * seconds("1") {
        wrong.push(format!("its thread ran on the second node, not {ran}"));
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

/// Points of a metric as they were sent: name of the owner, another attribute, value.
fn sent(guest: &Guest, when: &str, metric: &str, key: &str) -> Result<Sent, Vec<String>> {
    let request: Value = guest.read(&format!("nodes-{when}.otlp.json"))?;
    otlp::kept(request.to_string().as_bytes(), &[]).map_err(|why| vec![why])?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let scopes =
        list(&request["resourceMetrics"]).into_iter().flat_map(|r| list(&r["scopeMetrics"]));
    let metrics = scopes.flat_map(|s| list(&s["metrics"])).filter(|m| m["name"] == metric);
    let points = metrics.flat_map(|m| list(&m["sum"]["dataPoints"])).map(|point| {
        let attributes = list(&point["attributes"]);
        let text = |key: &str| {
            let found = attributes.iter().find(|a| a["key"] == key);
            found.and_then(|a| a["value"]["stringValue"].as_str()).unwrap_or_default().to_owned()
        };
        let whole = point["asInt"].as_str().and_then(|n| n.parse::<f64>().ok());
        let value = whole.or_else(|| point["asDouble"].as_f64()).unwrap_or(0.0);
        ((text("memprov.owner.name"), text(key)), value)
    });
    Ok(points.collect())
}

type Sent = BTreeMap<(String, String), f64>;

/// Which part of all that was sent is of one owner (or of any) and of one place.
fn share(sent: &Sent, owner: Option<&str>, at: &str) -> f64 {
    let of = |at: Option<&str>| -> f64 {
        let mine = |((name, place), _): &(&(String, String), &f64)| {
            owner.is_none_or(|owner| name == owner) && at.is_none_or(|at| place == at)
        };
        sent.iter().filter(mine).map(|(_, value)| value).sum()
    };
    of(Some(at)) / of(None)
}

/// What is sent says the same, and the rules of `dashboards/` tell of a service whose memory lies on the wrong node until it
/// is moved.
pub(crate) fn told(guest: &Guest) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    let bytes = sent(guest, "before", "memprov.memory.placed", "memprov.numa.node")?;
    for (site, first, second) in BEFORE {
        for (node, truth) in [("0", *first), ("1", *second)] {
            let told = bytes.get(&((*site).to_owned(), node.to_owned())).copied().unwrap_or(0.0);
            #[expect(clippy::cast_precision_loss, reason = "a few MiB")]
            let truth = truth as f64;
            if (told - truth).abs() > 0.5 {
                wrong
                    .push(format!("{told} bytes of {site} were sent for node {node}, not {truth}"));
            }
        }
    }
    let time = |when| sent(guest, when, "memprov.placement.time", "memprov.numa.locality");
    let (far, near) = (time("wrong")?, time("right")?);
    let shares = [&far, &near].map(|time| share(time, Some("on_the_first"), "remote"));
    let whole = [&far, &near].map(|time| share(time, None, "remote"));
    println!("remote: {whole:.3?} of all, {shares:.3?} of the owner, before and after it moves");
    if shares != [1.0, 0.0] || whole[0] < 0.9 || whole[1] > 0.1 {
        wrong.push(format!("remote shares of {whole:?}, of the owner {shares:?}"));
    }
    wrong.extend(alerted(guest, &far, &near));
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Plays an hour and a half of the first and an hour of the second to Prometheus' own test of rules, one CPU busy.
fn alerted(guest: &Guest, far: &Sent, near: &Sent) -> Option<String> {
    let Some(promtool) = promtool() else {
        host::skip("kernels alert on places", "no promtool: `make e2e` builds it");
        return None;
    };
    let seconds = |sent: &Sent, key: &(String, String)| {
        60.0 * sent.get(key).copied().unwrap_or(0.0) / sent.values().sum::<f64>()
    };
    let mut series = String::new();
    let keys: std::collections::BTreeSet<_> = far.keys().chain(near.keys()).collect();
    for key in keys {
        let (owner, locality) = key;
        let (before, after) = (seconds(far, key), seconds(near, key));
        series.push_str(&format!(
            "      - {{series: 'memprov_placement_time_seconds_total{{job=\"j\", host_id=\"h\", \
             memprov_owner_id=\"{owner}\", memprov_numa_locality=\"{locality}\"}}', \
             values: 0+{before:.6}x90 {:.6}+{after:.6}x60}}\n",
            before * 90.0
        ));
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards/rules/placement.yaml");
    let rules = rules.canonicalize().ok()?;
    // Annotations are the shipped tests' business: here it is asked whether the alert fires.
    let test = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n      \
         - {{series: 'memprov_numa_nodes{{host_id=\"h\"}}', values: 3x150}}\n{series}    promql_expr_test:\n      \
         - {{expr: 'count(ALERTS{{alertname=\"MemprovPlacedRemote\", alertstate=\"firing\"}})', eval_time: 80m, \
         exp_samples: [{{labels: '{{}}', value: 1}}]}}\n      \
         - {{expr: 'count(ALERTS{{alertname=\"MemprovPlacedRemote\"}})', eval_time: 110m, exp_samples: []}}\n",
        rules.display()
    );
    let path = guest.path("placement.test.yaml");
    fs::write(&path, test).ok()?;
    let said =
        Command::new(promtool).args(["test", "rules"]).arg(&path).stdin(Stdio::null()).output();
    match said {
        Ok(said) if said.status.success() => None,
        Ok(said) => {
            Some(String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned())
        }
        Err(why) => Some(format!("promtool: {why}")),
    }
}

/// Prometheus' test of rules, where `otel-collector/build` made it.
fn promtool() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let built = fs::read_dir(target.join("otel-collector")).ok()?.flatten();
    built.map(|folder| folder.path().join("promtool")).find(|program| program.is_file())
}
