//! The panels of the dashboard NUMA against what is known: where memory lies and threads run on a host that is said to have
//! two nodes, and the loads of a recording.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use memprov_tests::host;

use crate::boards::{Boards, INTERVAL_SECONDS, by, newest, total};
use crate::nodes::cpu_seconds;
use crate::promql::{Labels, Series};
use crate::recording::{Loads, PERIOD, stream};
use crate::scene::{Scene, exact};
use crate::service::until;

/// 12 of 20 samples go to the other node, 2 to nobody knows where.
const LOADS: [Loads; 3] = [
    Loads { file: "/srv/near", each_second: 6, cycles: 200, node: Some(0) },
    Loads { file: "/srv/far", each_second: 12, cycles: 400, node: Some(1) },
    Loads { file: "/srv/vague", each_second: 2, cycles: 100, node: None },
];
const SECONDS: u64 = 40;
/// How far an increase may be from what happened, as a part of it: `increase` extrapolates by a pane. Shares are of equal
/// panes, and nearly exact.
const EXTRAPOLATED: f64 = 0.05;
const NEARLY: f64 = 0.001;

/// Time, and the sum of its squares, that the kinds of loads take which are chosen.
fn weights(chosen: impl Fn(&Loads) -> bool) -> (f64, f64) {
    let chosen = LOADS.iter().filter(|loads| chosen(loads));
    chosen.fold((0.0, 0.0), |(time, squares), loads| {
        let (samples, one) = (exact(loads.each_second * SECONDS), exact(loads.cycles * PERIOD));
        (time + samples * one, squares + samples * one * one)
    })
}

/// What panels of accesses show of the recording, the only accesses of this run.
pub(crate) fn accesses(scene: &Scene, boards: &Boards, files: &Path) {
    let recording = files.join("perf.data");
    fs::write(&recording, stream(&LOADS, SECONDS)).expect("a recording is written");
    let sent = host::command(&host::memprov())
        .arg("import")
        .arg(&recording)
        .args(["--interval", "1s", "--endpoint", &scene.stack.endpoint()])
        .args(["--set", "export.detail=owners"])
        .stdin(Stdio::null())
        .output();
    let sent = sent.expect("memprov starts");
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));

    let (remote, squares_of_remote) = weights(|loads| loads.node == Some(1));
    let (local, squares_of_local) = weights(|loads| loads.node == Some(0));
    let all = weights(|_| true).0;
    let (known, squares) = (remote + local, squares_of_remote + squares_of_local);
    let share = remote / known;
    let variance = (1.0 - share).powi(2) * squares_of_remote + share.powi(2) * squares_of_local;
    let at_least = share - 1.96 * variance.sqrt() / known;
    // By what the hardware says; the pages of loads of which it says nothing lie on the first node.
    let served = |value: fn(&Series) -> f64| by_method("served", value);
    let method = "{{job}} ({{memprov_access_method}})";
    boards.agrees(("Remote share of access time", method), served(newest), (share, NEARLY));
    boards.agrees(
        ("Remote share of access time, at least", method),
        served(newest),
        (at_least, EXTRAPOLATED),
    );
    boards.agrees(
        (
            "Remote share of hosts, and what even spreading would give",
            "{{host_id}} ({{memprov_access_method}})",
        ),
        served(newest),
        (share, NEARLY),
    );
    boards.agrees(
        ("Remote cycles in a second of CPU time", method),
        served(newest),
        (remote / INTERVAL_SECONDS, EXTRAPOLATED),
    );
    boards.agrees(
        ("Equal samples in ten minutes", method),
        served(newest),
        (known * known / squares, EXTRAPOLATED),
    );
    let locality = "{{memprov_numa_locality}}";
    for (title, at, part) in [
        ("Access time by locality, as the hardware says", "remote", remote),
        ("Access time by locality, as the hardware says", "local", local),
        ("Access time by locality, as the hardware says", "unknown", all - known),
        ("Access time by locality, as pages lie", "remote", remote),
        ("Access time by locality, as pages lie", "local", all - remote),
    ] {
        let read = |found: &[Series]| by("memprov_numa_locality", found).remove(at).unwrap_or(0.0);
        boards.agrees((title, locality), read, (part / all, NEARLY));
    }
    let owner = |file: &'static str| {
        move |found: &[Series]| {
            let of_file = |labels: &Labels| {
                labels.get("memprov_owner_name").is_some_and(|name| name == file)
                    && labels.get("memprov_access_method").is_some_and(|method| method == "served")
            };
            found.iter().filter(|series| of_file(&series.labels)).map(newest).sum::<f64>()
        }
    };
    let samples = exact(LOADS[1].each_second * SECONDS);
    for (legend, file, expected, within) in [
        ("Remote cycles", "/srv/far", remote, EXTRAPOLATED),
        ("Remote cycles", "/srv/near", 0.0, 0.0),
        ("Share", "/srv/far", 1.0, NEARLY),
        ("Share", "/srv/near", 0.0, 0.0),
        ("At least", "/srv/far", 1.0, NEARLY),
        ("Equal samples", "/srv/far", samples, EXTRAPOLATED),
    ] {
        boards.agrees(("Owners by remote time", legend), owner(file), (expected, within));
    }
    let count: u64 = LOADS.iter().map(|loads| loads.each_second * SECONDS).sum();
    boards.agrees(
        ("Samples by what became of them", "{{memprov_access_outcome}}"),
        |found| by("memprov_access_outcome", found).remove("attributed").unwrap_or(0.0),
        (exact(count) / INTERVAL_SECONDS, EXTRAPOLATED),
    );
    // More than half of the samples, and all of the slowest, took 400 cycles: a quantile lies in the bucket of that.
    let bounds = scene.stack.api.query("memprov_access_latency_bucket offset 5s");
    let bounds = bounds.map(|found| {
        found
            .into_iter()
            .filter_map(|series| series.labels.get("le")?.parse().ok())
            .collect::<Vec<f64>>()
    });
    let bounds = bounds.expect("a query");
    let (above, below): (Vec<f64>, Vec<f64>) =
        bounds.into_iter().partition(|bound| *bound >= 400.0);
    let bucket =
        below.into_iter().fold(0.0, f64::max)..=above.into_iter().fold(f64::INFINITY, f64::min);
    assert!(bucket.end().is_finite(), "{bucket:?}");
    for legend in ["median", "99 %"] {
        until(&format!("the {legend} of latency is in {bucket:?}"), || {
            let found = boards.ask("Latency of sampled accesses, in cycles", legend)?;
            let inside = found.iter().map(newest).all(|cycles| bucket.contains(&cycles));
            (inside && !found.is_empty()).then_some(()).ok_or(format!("{found:?}"))
        });
    }
}

/// The value of the one series of a method.
fn by_method(method: &'static str, value: fn(&Series) -> f64) -> impl Fn(&[Series]) -> f64 {
    move |found| {
        let of_method =
            |s: &&Series| s.labels.get("memprov_access_method").is_some_and(|m| m == method);
        found.iter().filter(of_method).map(value).sum()
    }
}

/// What panels of places show of a host whose memory all lies on its first node: `owners` with what they have, `busy` works on
/// the other node.
pub(crate) fn places(
    scene: &Scene,
    boards: &Boards,
    host: &str,
    owners: &BTreeMap<String, [f64; 2]>,
    busy: u32,
) {
    until("owners lie where the kernel says", || {
        let found = boards.ask("Owners by node", "Resident")?;
        for (site, [resident, _]) in owners {
            let of_site = |series: &&Series| {
                let name = &series.labels["memprov_owner_name"];
                name == site || name.starts_with(&format!("{site} "))
            };
            let of_site: Vec<_> = found.iter().filter(of_site).cloned().collect();
            let mut nodes = by("memprov_numa_node", &of_site);
            nodes.retain(|_, bytes| *bytes != 0.0);
            let expected = BTreeMap::from([("0".to_owned(), *resident)]);
            if nodes != expected && *resident > 0.0 {
                return Err(format!("{site} has {expected:?}, the panel {nodes:?}"));
            }
        }
        Ok(())
    });
    until("nodes add up to what is resident", || {
        let nodes = by(
            "memprov_numa_node",
            &boards.ask("Resident memory by node", "node {{memprov_numa_node}}")?,
        );
        // Of processes: where shared objects lie is not told.
        let query = format!(
            "sum(memprov_memory_resident_bytes{{host_id=\"{host}\"}} and on (job, instance) \
             memprov_memory_control_bytes{{memprov_book=\"process\"}})"
        );
        let resident = scene.stack.api.value(&query)?;
        let sum: f64 = nodes.values().sum();
        let second = nodes.get("1").copied().unwrap_or(0.0);
        (sum == resident && second == 0.0).then_some(()).ok_or(format!("{nodes:?}, of {resident}"))
    });
    // As good as all CPU time is that of the process that works on the second node.
    let read = |found: &[Series]| found.iter().map(newest).fold(0.0, f64::max);
    boards.agrees(
        ("CPU time on other nodes than memory, by service, at least", "{{job}}"),
        read,
        (0.95, 0.06),
    );
    let before = cpu_seconds(busy);
    let owners = "Owners by CPU time on other nodes, at least";
    boards.agrees((owners, "Seconds"), total, (before, 0.25));
    let share = |found: &[Series]| found.iter().map(newest).fold(0.0, f64::max);
    boards.agrees((owners, "Share"), share, (1.0, 0.0));
}
