//! Sampled accesses: sums that never fall, by owner and place, within a bound.

use std::collections::BTreeMap;

use memprov_ledger::evidence::EvidenceClass;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;

use super::*;
use crate::encode::{ACCESSES, Mirrored, Records};
use crate::exemplar::Exemplar;
use crate::histogram::{CYCLES, Histogram};
use crate::report::{AccessRow, AccessSums, Accesses, Filled, Located, Measured, PopulatedRow};
use crate::support::code;

/// An owner's samples: so many remote ones and local ones of 300 and 100 cycles, in a space.
fn row(space: &str, id: &str, remote: u64, local: u64) -> AccessRow {
    let mut latency = Histogram::default();
    (0..remote).for_each(|_| latency.record(300.0, 1.0));
    (0..local).for_each(|_| latency.record(100.0, 1.0));
    let places = [("remote", remote, 300u64), ("local", local, 100)];
    let places = places.into_iter().filter(|(_, n, _)| *n > 0);
    let time = Located {
        weights: places.clone().map(|(at, n, cycles)| (at.to_owned(), n * cycles)).collect(),
        squares: places
            .map(|(at, n, cycles)| (at.to_owned(), (n * cycles * cycles) as f64))
            .collect(),
        ..Located::default()
    };
    let served = Measured { time: Some(time), count: Located::default() };
    AccessRow {
        space: Some(space.to_owned()),
        pid: Some(7),
        start_time: Some(70),
        cgroup: None,
        container: Some("c0ffee".to_owned()),
        id: id.to_owned(),
        kind: "mapping".to_owned(),
        name: format!("site {id}"),
        caller: String::new(),
        population: "loads".to_owned(),
        sums: AccessSums {
            samples: BTreeMap::from([("attributed".to_owned(), remote + local)]),
            timed: remote + local,
            conflicts: 0,
            latency: Some(latency),
            methods: BTreeMap::from([("served".to_owned(), served)]),
            populated: None,
        },
        added: None,
    }
}

/// Page faults of an owner that filled so many pages of two nodes, and as many in the pane that is told.
fn faults(id: &str, pages: [u64; 2], added: [u64; 2]) -> AccessRow {
    let filled = |faults| Filled { faults, bytes: faults * 4096 };
    let sums = |[first, unknown]: [u64; 2]| {
        let nodes = [("0", first), ("unknown", unknown)];
        let nodes = nodes.map(|(node, pages)| (node.to_owned(), filled(pages))).into();
        let populated = Some(PopulatedRow { evidence: EvidenceClass::Exact, nodes });
        AccessSums { populated, ..AccessSums::default() }
    };
    AccessRow {
        population: "faults".to_owned(),
        sums: sums(pages),
        added: Some(Box::new(sums(added))),
        ..row("1", id, 0, 0)
    }
}

/// As many samples, of which the pane that is told added so many.
fn added(whole: AccessRow, remote: u64, local: u64) -> AccessRow {
    let sums = row("1", "01", remote, local).sums;
    AccessRow { added: Some(Box::new(sums)), ..whole }
}

fn with_rows(owners: Vec<AccessRow>) -> Report {
    Report { accesses: Some(Accesses { totals: BTreeMap::new(), owners }), ..busy() }
}

/// A report with everything that there can be of accesses.
pub(super) fn sampled() -> Report {
    with_rows(vec![row("1", "01", 2, 3), faults("01", [3, 1], [3, 1])])
}

/// Samples of every kind and outcome, of each owner of these processes and of nobody.
pub(super) fn everywhere(processes: &[Process]) -> Accesses {
    use crate::encode::accesses::{LOCALITIES, METHODS, OUTCOMES};
    let rows = processes.iter().flat_map(|process| {
        let ids = process.owners.iter().map(|owner| (owner.id.as_str(), "mapping"));
        ids.chain([("nobody", "unattributed")]).map(move |(id, kind)| {
            // Nobody is not among those who are named.
            let time = if kind == "mapping" { 1000 } else { 1 };
            let mut one = row(&process.space, id, 1, 1);
            let time = Located {
                weights: LOCALITIES.map(|at| (at.to_owned(), time)).into(),
                ..Located::default()
            };
            let measured = Measured { time: Some(time), count: Located::default() };
            one.sums.methods = METHODS.map(|method| (method.to_owned(), measured.clone())).into();
            // One more than there are names of nodes.
            let filled = Filled { faults: 1, bytes: 4096 };
            let nodes = (0..17).map(|node| (node.to_string(), filled)).collect();
            let evidence = EvidenceClass::Sampled;
            one.sums.populated = Some(PopulatedRow { evidence, nodes });
            one.sums.samples = OUTCOMES.map(|outcome| (outcome.to_owned(), 1)).into();
            one.kind = kind.to_owned();
            (one.container, one.cgroup) = (process.container.clone(), process.cgroup.clone());
            one
        })
    });
    Accesses { totals: BTreeMap::new(), owners: rows.collect() }
}

fn told(request: &ExportMetricsServiceRequest, metric: &str) -> BTreeMap<String, i64> {
    let all = flat(request);
    let ours = all.iter().filter(|flat| flat.metric == metric && flat.point.value.is_some());
    ours.map(|flat| {
        let of = ["memprov.owner.id", "memprov.numa.locality", "memprov.access.outcome"];
        (of.map(|key| flat.get(key)).concat(), flat.value())
    })
    .collect()
}

fn expected<const N: usize>(of: [(&str, i64); N]) -> BTreeMap<String, i64> {
    of.map(|(key, n)| (key.to_owned(), n)).into()
}

#[test]
fn sums_by_owner_and_place_grow_and_do_not_fall_when_a_process_ends() {
    let mut series = Accumulator::new(all());
    let first = vec![row("1", "01", 2, 3), row("2", "01", 1, 0), row("1", "ff", 0, 5)];
    series.pane(&with_rows(first), WINDOW);
    let request = ship(&mut series);
    let time = "memprov.access.time";
    let before = expected([("01remote", 900), ("01local", 300), ("fflocal", 500)]);
    assert_eq!(told(&request, time), before);
    assert_eq!(told(&request, "memprov.access.latency"), expected([("01", 6), ("ff", 5)]));
    assert_eq!(told(&request, "memprov.access.samples"), expected([("attributed", 11)]));
    // Space 2 has ended, and the first owner has one more sample.
    let second = vec![added(row("1", "01", 3, 3), 1, 0), added(row("1", "ff", 0, 5), 0, 0)];
    let window = Window { start: START, end: WINDOW.end + MINUTE };
    series.pane(&with_rows(second), window);
    let request = ship(&mut series);
    let after = expected([("01remote", 1200), ("01local", 300), ("fflocal", 500)]);
    assert_eq!(told(&request, time), after);
    assert_eq!(told(&request, "memprov.access.samples"), expected([("attributed", 12)]));
}

#[test]
fn a_series_goes_on_though_nothing_was_sampled_in_a_pane() {
    let mut series = Accumulator::new(all());
    for minute in 0..3 {
        let end = WINDOW.end + minute * MINUTE;
        let rows = vec![added(row("1", "01", 2, 0), 0, 0)];
        series.pane(&with_rows(rows), Window { start: START, end });
        let request = ship(&mut series);
        let all = flat(&request);
        let ours: Vec<_> = all.iter().filter(|f| f.metric == "memprov.access.time").collect();
        assert_eq!((ours.len(), ours[0].value()), (1, 600));
        assert_eq!(ours[0].point.start_time_unix_nano, START);
    }
}

#[test]
fn samples_of_an_owner_that_has_another_name_now_are_not_told_twice() {
    let mut series = Accumulator::new(kinds());
    series.pane(&with_rows(vec![row("1", "01", 2, 0)]), WINDOW);
    drop(ship(&mut series));
    let window = Window { start: START, end: WINDOW.end + MINUTE };
    series.pane(&with_rows(vec![added(row("1", "02", 3, 0), 1, 0)]), window);
    let request = ship(&mut series);
    assert_eq!(told(&request, "memprov.access.samples"), expected([("attributed", 3)]));
    assert_eq!(told(&request, "memprov.access.time"), expected([("remote", 900)]));
}

#[test]
fn without_owners_places_are_added_up_and_there_are_no_more_series_than_said() {
    let rows = vec![row("1", "01", 2, 3), row("1", "ff", 0, 5)];
    let request = with(&with_rows(rows), kinds());
    assert_eq!(told(&request, "memprov.access.time"), expected([("remote", 600), ("local", 800)]));
    let all = flat(&request);
    let ours = all.iter().filter(|flat| flat.metric.starts_with("memprov.access."));
    assert!(ours.count() <= ACCESSES);
    let without = flat(&with(&busy(), kinds())).len();
    assert_eq!(all.len() - without, 2 + 2 + 1 + 1);
}

#[test]
fn accesses_of_a_container_that_is_gone_are_the_hosts() {
    let mut gone = row("1", "01", 1, 0);
    gone.container = Some("dead".to_owned());
    let request = encode(&with_rows(vec![gone]));
    let all = flat(&request);
    let ours = all.iter().find(|flat| flat.metric == "memprov.access.time").unwrap();
    assert_eq!(ours.resource["service.name"], "host");
}

#[test]
fn an_owner_with_much_access_time_is_named_before_one_with_some_more_memory() {
    let mut report = with_rows(vec![row("1", "0b", 900, 0)]);
    report.processes.truncate(1);
    let options = Options { owners: 2, ..all() };
    let request = with(&report, options);
    assert!(told(&request, "memprov.access.time").contains_key("0bremote"));
}

#[test]
fn exemplars_are_log_records_where_these_are_asked_for_and_only_in_their_pane() {
    let mut one = row("1", "01", 2, 3);
    let latency = one.sums.latency.as_mut().unwrap();
    for (at, cycles) in [(START + 1, 100.0), (START + 2, 300.0), (START - 5, 5000.0)] {
        let sample = Exemplar::new(at, cycles, 10_007, Some("ambiguous"));
        latency.exemplars.offer(&CYCLES, 1.0, at, sample);
    }
    let report = with_rows(vec![one]);
    assert_eq!(Accumulator::new(all()).pane(&report, WINDOW).points(), 0);
    let mut series = Accumulator::new(Options { exemplar_logs: true, ..all() });
    series.mirrored(Some(Mirrored { delivered: 7, rejected: 1, refused: 0 }));
    let told: ExportLogsServiceRequest = series.pane(&report, WINDOW).decode().unwrap();
    let [resource] = &told.resource_logs[..] else { panic!("{told:?}") };
    let whose = texts(&resource.resource.as_ref().unwrap().attributes);
    assert_eq!(whose["container.id"], "c0ffee");
    let records = &resource.scope_logs[0].log_records;
    assert_eq!(records.len(), 2, "{records:?}");
    for (record, cycles) in records.iter().zip([100, 300]) {
        assert_eq!(record.event_name, "memprov.exemplar");
        assert_eq!(record.observed_time_unix_nano, WINDOW.end);
        assert!((START + 1..=START + 2).contains(&record.time_unix_nano));
        let text = record.body.as_ref().and_then(|body| body.value.clone());
        let expected = format!("memprov.access.latency = {cycles} {{cycle}}");
        assert_eq!(text, Some(any_value::Value::StringValue(expected)));
        let words = texts(&record.attributes);
        assert_eq!((&*words["rate"], &*words["memprov.owner.id"]), ("10007", "01"));
    }
    let request = ship(&mut series);
    let told = flat(&request);
    let of = |outcome: &str| {
        told.iter()
            .find(|flat| {
                flat.metric == "memprov.export.records"
                    && flat.get("memprov.export.outcome") == outcome
            })
            .map(|flat| flat.value())
    };
    assert_eq!(["delivered", "rejected", "refused"].map(of), [Some(7), Some(1), Some(0)]);
}

#[test]
fn records_that_nobody_takes_wait_within_a_bound_and_the_rest_is_counted() {
    let mut latency = Histogram::default();
    latency.exemplars.offer(&CYCLES, 1.0, 1, Exemplar::new(START + 1, 100.0, 1, None));
    let mut one = row("1", "01", 2, 3);
    one.sums.latency = Some(latency);
    let mut series = Accumulator::new(Options { exemplar_logs: true, ..all() });
    let made = series.pane(&with_rows(vec![one]), WINDOW);
    let mut records = Records::default();
    for _ in 0..20_000 {
        records.offer(made.clone());
    }
    assert!(records.dropped() > 0);
    let shipment = records.next().unwrap();
    assert_eq!(shipment.parts[0].points() as u64 + records.dropped(), 20_000);
    assert!(shipment.parts[0].size() <= 4 << 20 && !shipment.replaceable);
    records.offer(made);
    assert_eq!(records.next(), None, "one at a time");
    records.settle(shipment.number, Fate::Delivered);
    assert_eq!(records.next().unwrap().parts[0].points(), 1);
}

#[test]
fn exemplars_are_one_a_bucket_inside_the_window_short_and_say_what_the_host_can_tell() {
    let mut one = row("1", "01", 2, 3);
    let latency = one.sums.latency.as_mut().unwrap();
    for (number, cycles) in (0..400).zip([100.0, 110.0, 300.0, 301.0].into_iter().cycle()) {
        let sample = Exemplar::new(START + 1 + number, cycles, 10_007, Some("ambiguous"));
        latency.exemplars.offer(&CYCLES, 10_007.0, number, sample);
    }
    let early = Exemplar::new(START - 5, 5000.0, 1, None);
    latency.exemplars.offer(&CYCLES, 1.0, 1, early);
    let request = encode(&with_rows(vec![one]));
    let metrics = request.resource_metrics.iter().flat_map(|r| &r.scope_metrics[0].metrics);
    let points = metrics.filter_map(|metric| match metric.data.as_ref() {
        Some(Data::Histogram(h)) if metric.name == "memprov.access.latency" => Some(&h.data_points),
        _ => None,
    });
    let exemplars: Vec<_> = points.flatten().flat_map(|point| &point.exemplars).collect();
    assert_eq!(exemplars.len(), 2, "{exemplars:?}");
    for told in exemplars {
        assert!((START..=WINDOW.end).contains(&told.time_unix_nano));
        let words = texts(&told.filtered_attributes);
        let length: usize = words.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(length <= 65, "{words:?}");
        assert_eq!((&*words["rate"], &*words["ambiguity"]), ("10007", "ambiguous"));
        let matrix = code::decode(&words["support.code"]).unwrap();
        assert_eq!(matrix[0], ("mapping.lifecycle", "available"));
    }
}

/// Bytes that faults populated by attribute.
fn populated(request: &ExportMetricsServiceRequest, of: &[&str]) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for flat in flat(request).iter().filter(|flat| flat.metric == "memprov.memory.populated") {
        let key: Vec<&str> = of.iter().map(|key| flat.get(key)).collect();
        *sums.entry(key.join(" ")).or_default() += flat.value();
    }
    sums
}

#[test]
fn bytes_that_faults_populated_are_added_up_by_node_and_how_sure_they_are_is_a_partition() {
    let mut series = Accumulator::new(all());
    let mut told = |minute, row| {
        let end = WINDOW.end + minute * MINUTE;
        series.pane(&with_rows(vec![row]), Window { start: START, end });
        let request = ship(&mut series);
        let by = |key: &[&str]| populated(&request, key);
        (by(&["memprov.owner.id", "memprov.numa.node"]), by(&["memprov.evidence"]))
    };
    let (first, sure) = told(0, faults("01", [10, 2], [1, 0]));
    assert_eq!(first, expected([("01 0", 40_960), ("01 unknown", 8192)]), "all since the start");
    assert_eq!(sure, expected([("exact", 49_152), ("inferred", 0)]));
    // What was exact once stays so.
    let mut doubted = faults("01", [11, 2], [1, 0]);
    doubted.sums.populated.as_mut().unwrap().evidence = EvidenceClass::Inferred;
    let (then, sure) = told(1, doubted);
    assert_eq!(then, expected([("01 0", 45_056), ("01 unknown", 8192)]));
    assert_eq!(sure, expected([("exact", 49_152), ("inferred", 4096)]));
    let (_, sure) = told(2, faults("01", [13, 2], [2, 0]));
    assert_eq!(sure, expected([("exact", 57_344), ("inferred", 4096)]));
}

#[test]
fn nodes_with_large_ids_are_told_together_as_unknown() {
    let mut row = faults("01", [0, 2], [0, 2]);
    let nodes = &mut row.sums.populated.as_mut().unwrap().nodes;
    for id in ["15", "16", "900"] {
        nodes.insert(id.to_owned(), Filled { faults: 1, bytes: 4096 });
    }
    let told = populated(&encode(&with_rows(vec![row])), &["memprov.numa.node"]);
    assert_eq!(told, expected([("0", 0), ("15", 4096), ("unknown", 4 * 4096)]));
}
