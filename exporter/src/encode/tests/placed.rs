//! Places: a partition of what is resident, and CPU time that adds up.

use super::*;
use crate::encode::PLACES;
use crate::report::{NumaNode, OnNode, Placement, Ran};

/// `busy`, on two nodes: of each owner a quarter is on the first, a half on the second, and of the rest nobody knows. Its
/// processes ran for `seconds` on the second.
pub(super) fn placed(seconds: f64) -> Report {
    let mut report = busy();
    let node = |node| NumaNode { node, cpus: 2, distances: vec![(0, 10), (1, 10)] };
    report.host.nodes = Some(2);
    report.host.numa = vec![node(0), node(1)];
    report.host.numa[1].distances = vec![(0, 20), (1, 10)];
    for process in &mut report.processes {
        process.ran = Some(Ran {
            seconds: 60.0,
            recent: BTreeMap::from([(1, seconds)]),
            total: BTreeMap::from([(1, seconds)]),
        });
        for row in &mut process.owners {
            let on = |node, part| {
                let bytes = row.resident.bytes.map(|bytes| bytes / part);
                OnNode { node, resident: Quantity { bytes, ..Quantity::default() } }
            };
            let nodes = vec![on(0, 4), on(1, 2)];
            row.placement = Some(Placement { nodes, ..Placement::default() });
        }
    }
    report
}

/// Sums of a metric over the resources of processes, by one attribute.
fn by(request: &ExportMetricsServiceRequest, metric: &str, key: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for flat in flat(request).iter().filter(|flat| flat.metric == metric) {
        let value = match flat.point.value {
            Some(Value::AsInt(n)) => n as f64,
            Some(Value::AsDouble(n)) => n,
            None => continue,
        };
        // What several processes map is no process' own, and no owner's what nobody has.
        if flat.resource["service.name"] != "memprov"
            && flat.get("memprov.owner.kind") != "unattributed"
        {
            *sums.entry(flat.get(key).to_owned()).or_insert(0.0) += value;
        }
    }
    sums
}

#[test]
fn places_are_a_partition_of_what_owners_have_resident() {
    for options in [all(), kinds(), Options { owners: 2, ..all() }] {
        let request = with(&placed(6.0), options);
        let resident: f64 = by(&request, "memprov.memory.resident", "").values().sum();
        let on = by(&request, "memprov.memory.placed", "memprov.numa.node");
        assert_eq!(on.values().sum::<f64>(), resident);
        assert!(
            (on["0"] - resident / 4.0).abs() < 100.0 && (on["1"] - resident / 2.0).abs() < 100.0
        );
        assert!(on["unknown"] > 0.0 && on.len() == 3, "{on:?}");
    }
}

#[test]
fn cpu_time_is_spread_over_the_places_of_bytes_and_counted_once() {
    let mut series = Accumulator::new(kinds());
    for (pane, seconds) in [(1, 6.0), (2, 6.0), (3, 8.0)] {
        series.pane(&placed(seconds), Window { start: START, end: START + pane * MINUTE });
        let time = by(&ship(&mut series), "memprov.placement.time", "memprov.numa.locality");
        // Three processes, which ran on the second node: half of their bytes are there, and a quarter is not.
        assert!((time.values().sum::<f64>() - 3.0 * seconds).abs() < 1e-6, "{time:?}");
        assert!((time["local"] - 1.5 * seconds).abs() < 0.01, "{time:?}");
        assert!((time["remote"] - 0.75 * seconds).abs() < 0.01, "{time:?}");
    }
}

#[test]
fn what_of_a_process_was_not_looked_at_lies_and_runs_in_unknown_places() {
    let mut report = placed(6.0);
    for (process, forgotten) in report.processes.iter_mut().zip([true, false, true]) {
        process.owners.iter_mut().filter(|_| forgotten).for_each(|row| row.placement = None);
    }
    for options in [all(), kinds()] {
        let request = with(&report, options);
        let resident: f64 = by(&request, "memprov.memory.resident", "").values().sum();
        let on = by(&request, "memprov.memory.placed", "memprov.numa.node");
        assert_eq!(on.values().sum::<f64>(), resident);
        let time = by(&request, "memprov.placement.time", "memprov.numa.locality");
        assert!((time.values().sum::<f64>() - 18.0).abs() < 1e-6, "{time:?}");
        assert!(time["unknown"] > 12.0, "{time:?}");
    }
}

#[test]
fn time_that_finds_nothing_resident_or_only_old_books_is_told_later() {
    let mut series = Accumulator::new(kinds());
    let mut early = placed(6.0);
    let rows = early.processes.iter_mut().flat_map(|process| &mut process.owners);
    rows.for_each(|row| row.resident.bytes = None);
    let mut old = placed(7.0);
    old.processes.iter_mut().for_each(|process| process.as_of = "2026-01-01T00:00:00Z".to_owned());
    let panes = [(1, early, 0.0), (2, old, 0.0), (3, placed(8.0), 24.0)];
    for (pane, report, expected) in panes {
        series.pane(&report, Window { start: START, end: START + pane * MINUTE });
        let time = by(&ship(&mut series), "memprov.placement.time", "memprov.numa.locality");
        assert!((time.values().sum::<f64>() - expected).abs() < 1e-6, "{time:?}");
    }
}

#[test]
fn a_host_with_one_node_says_nothing_of_places_and_others_no_more_than_said() {
    let ours = |report: &Report| {
        let request = with(report, kinds());
        let all = flat(&request);
        let ours = all.iter().filter(|flat| {
            matches!(flat.metric, "memprov.memory.placed" | "memprov.placement.time")
        });
        let mut by_resource = BTreeMap::new();
        ours.for_each(|flat| *by_resource.entry(flat.resource.clone()).or_insert(0) += 1);
        by_resource.into_values().max().unwrap_or(0)
    };
    assert_eq!(ours(&busy()), 0);
    assert!((1..=PLACES).contains(&ours(&placed(6.0))));
}
