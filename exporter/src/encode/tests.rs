use std::collections::{BTreeMap, BTreeSet};

use memprov_ledger::evidence::EvidenceClass::{self, Exact, Inferred};
use memprov_semconv::contract::Contract;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    DataPointFlags, NumberDataPoint, metric::Data, number_data_point::Value,
};
use prost::Message;

use super::{Identity, Window, ended, json, request, split};
use crate::report::{
    Agent, Book, BpfCost, Control, Differences, Faults, Host, OwnerRow, Process, Quantity, Report,
    SCHEMA, Scans, SharedRow, SyscallTax,
};

const WINDOW: Window = Window { start: 1_790_000_000_000_000_000, end: 1_790_000_060_000_000_000 };
const ALL_OWNERS: usize = usize::MAX;

fn identity() -> Identity {
    let boot = Some(1_789_000_000_000_000_000);
    Identity { host_id: "4c4c".to_owned(), host_name: "n1".to_owned(), boot }
}

fn bytes(bytes: u64, evidence: EvidenceClass) -> Quantity {
    Quantity { bytes: Some(bytes), evidence, ..Default::default() }
}

fn owner(id: &str, resident: Quantity) -> OwnerRow {
    let reserved = resident.bytes.map(|bytes| bytes.saturating_mul(2));
    OwnerRow {
        id: id.to_owned(),
        kind: "mapping".to_owned(),
        name: format!("site_{id}"),
        caller: String::new(),
        stability: "content".to_owned(),
        stack: Vec::new(),
        truncated: false,
        reserved: Quantity { bytes: reserved, evidence: Exact, ..Default::default() },
        resident,
        swapped: None,
        growth_per_minute: None,
        intervals: 1,
        first_touch: Vec::new(),
    }
}

fn process(pid: u32, container: Option<&str>, owners: Vec<OwnerRow>) -> Process {
    let owned = owners.iter().filter_map(|row| row.resident.bytes).fold(0, u64::saturating_add);
    let (joint, unattributed, skew) = (300, 70, -20);
    let total = owned.saturating_add(350);
    let anon = Book {
        control: Control { lo: total, hi: total.saturating_add(50) },
        owned,
        joint,
        unattributed,
        skew,
        drift: -4096,
        at_rest: false,
    };
    Process {
        pid,
        start_time: 1000 + u64::from(pid),
        comm: format!("proc{pid}"),
        space: format!("{pid:x}"),
        space_pids: vec![pid],
        cgroup: None,
        container: container.map(str::to_owned),
        as_of: "2026-09-21T14:14:18Z".to_owned(),
        lossless: true,
        predates: 0,
        pages_unread: false,
        books: BTreeMap::from([("anon".to_owned(), anon)]),
        owners,
        faults: Faults::default(),
        first_touch: None,
    }
}

fn report(processes: Vec<Process>) -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        source: "daemon".to_owned(),
        generated_at: "2026-09-21T14:14:20Z".to_owned(),
        watching_since: "2026-09-21T14:13:20Z".to_owned(),
        host: Host::default(),
        processes,
        shared: vec![SharedRow {
            id: "5a".to_owned(),
            kind: "shm".to_owned(),
            name: "/dev/shm/*".to_owned(),
            as_of: "2026-09-21T14:14:18Z".to_owned(),
            stack: Vec::new(),
            reserved: bytes(8192, Exact),
            resident: bytes(4096, Exact),
            sharers: 2,
            sharers_complete: true,
        }],
        lost: BTreeMap::from([("lifecycle".to_owned(), 3), ("stacks".to_owned(), 0)]),
        agent: None,
        identity: None,
    }
}

/// Two processes of a container that have owners in common, and one outside.
fn busy() -> Report {
    let rows = |seed: u64| {
        let row = |n: u64| {
            let class = if (n + seed).is_multiple_of(3) { Inferred } else { Exact };
            owner(&format!("{n:02x}"), bytes(n * n % 17 * 4096 + seed, class))
        };
        (seed..seed + 12).map(row).collect()
    };
    let mut report = report(vec![
        process(7, Some("c0ffee"), rows(1)),
        process(8, Some("c0ffee"), rows(5)),
        process(9, None, rows(2)),
    ]);
    report.agent = Some(agent());
    report
}

fn agent() -> Agent {
    Agent {
        cpu_seconds: BTreeMap::from([("hooks".to_owned(), 1.5), ("ended".to_owned(), 0.0)]),
        cpu_fraction: Some(0.25),
        rss_bytes: Some(64 << 20),
        bpf: Some(BpfCost { cpu_fraction: 0.5, runs_per_second: 1e6, counted_seconds: 1.0 }),
        syscall_tax: Some(SyscallTax {
            nanoseconds_per_call: 125.0,
            calls_per_second: Some(1e6),
            cpu_fraction: Some(0.125),
        }),
        scans: Scans { skipped: BTreeMap::from([("still".to_owned(), 7)]) },
        differences: Differences { adopted: 3, vanished: 0, replaced: 1 },
    }
}

fn encode(report: &Report) -> ExportMetricsServiceRequest {
    let request = request(report, &identity(), WINDOW, ALL_OWNERS);
    let breaches = Contract::default().check(&serde_json::to_value(&request).unwrap());
    assert_eq!(breaches, []);
    request
}

/// One point, flat: resource, metric, attributes, point.
struct Flat<'a> {
    resource: BTreeMap<String, String>,
    metric: &'a str,
    attributes: BTreeMap<String, String>,
    point: &'a NumberDataPoint,
}

impl Flat<'_> {
    fn value(&self) -> i64 {
        match self.point.value {
            Some(Value::AsInt(value)) => value,
            other => panic!("{} is no integer: {other:?}", self.metric),
        }
    }

    fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::BoolValue(flag) => flag.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

fn flat(request: &ExportMetricsServiceRequest) -> Vec<Flat<'_>> {
    let mut all = Vec::new();
    for resource in &request.resource_metrics {
        for metric in &resource.scope_metrics[0].metrics {
            let points = match metric.data.as_ref().unwrap() {
                Data::Sum(sum) => &sum.data_points,
                Data::Gauge(gauge) => &gauge.data_points,
                other => panic!("{other:?}"),
            };
            all.extend(points.iter().map(|point| Flat {
                resource: texts(&resource.resource.as_ref().unwrap().attributes),
                metric: &metric.name,
                attributes: texts(&point.attributes),
                point,
            }));
        }
    }
    all
}

/// Sum of a metric of integers by resource, with what `also` says of a point.
fn sums(
    request: &ExportMetricsServiceRequest,
    also: &str,
) -> BTreeMap<(String, String, String), i64> {
    let mut sums = BTreeMap::new();
    for flat in flat(request) {
        if matches!(flat.point.value, Some(Value::AsDouble(_))) {
            continue;
        }
        let resource = flat.resource["service.instance.id"].clone();
        let key = (resource, flat.metric.to_owned(), flat.get(also).to_owned());
        *sums.entry(key).or_insert(0) += flat.value();
    }
    sums
}

#[test]
fn owners_joint_and_skew_close_the_kernels_total_in_every_resource() {
    let request = encode(&busy());
    let totals = sums(&request, "");
    let places: BTreeSet<_> = totals.keys().map(|(place, ..)| place.clone()).collect();
    let mut closed = 0;
    for place in places {
        let sum = |name: &str| {
            totals.get(&(place.clone(), format!("memprov.memory.{name}"), String::new())).copied()
        };
        let Some(control) = sum("control") else { continue };
        let explained = sum("resident").unwrap() + sum("joint").unwrap() + sum("skew").unwrap();
        assert!(control <= explained, "{control} {explained}");
        assert!(explained <= control + sum("control_spread").unwrap(), "{control} {explained}");
        closed += 1;
    }
    assert_eq!(closed, 2);
}

#[test]
fn a_limit_of_owners_changes_no_sum_of_any_class() {
    let report = busy();
    let whole = sums(&encode(&report), "memprov.evidence");
    for limit in 0..20 {
        let limited = request(&report, &identity(), WINDOW, limit);
        assert_eq!(sums(&limited, "memprov.evidence"), whole, "limit {limit}");
        let mut owners: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        let points = flat(&limited);
        for flat in points.iter().filter(|flat| !flat.get("memprov.owner.id").is_empty()) {
            let place = flat.resource["service.instance.id"].clone();
            owners.entry(place).or_default().insert(flat.get("memprov.owner.id"));
        }
        assert!(owners.values().all(|ids| ids.len() <= limit), "limit {limit}: {owners:?}");
        for flat in &points {
            let other = flat.get("memprov.owner.kind") == "other";
            assert_eq!(flat.get("otel.metric.overflow") == "true", other);
        }
    }
}

#[test]
fn the_largest_owners_are_those_that_keep_their_points() {
    let rows = vec![
        owner("aa", bytes(1, Exact)),
        owner("bb", bytes(3, Exact)),
        owner("cc", bytes(2, Exact)),
    ];
    let report = report(vec![process(1, None, rows)]);
    let request = request(&report, &identity(), WINDOW, 2);
    let kept: BTreeSet<_> = flat(&request)
        .iter()
        .filter(|flat| flat.resource.contains_key("process.pid"))
        .map(|flat| flat.get("memprov.owner.id").to_owned())
        .filter(|id| !id.is_empty())
        .collect();
    assert_eq!(kept, BTreeSet::from(["bb".to_owned(), "cc".to_owned()]));
}

#[test]
fn evidence_partitions_an_owner_and_no_series_occurs_twice() {
    let report = report(vec![
        process(7, Some("c0ffee"), vec![owner("aa", bytes(100, Exact))]),
        process(8, Some("c0ffee"), vec![owner("aa", bytes(30, Inferred))]),
        process(9, Some("c0ffee"), vec![owner("aa", bytes(5, Exact))]),
    ]);
    let request = encode(&report);
    let points = flat(&request);
    let of_owner: BTreeMap<_, _> = points
        .iter()
        .filter(|flat| {
            flat.metric == "memprov.memory.resident" && flat.get("memprov.owner.id") == "aa"
        })
        .map(|flat| (flat.get("memprov.evidence"), flat.value()))
        .collect();
    assert_eq!(of_owner, BTreeMap::from([("exact", 105), ("inferred", 30)]));
    let request = encode(&busy());
    let points = flat(&request);
    let series: BTreeSet<_> =
        points.iter().map(|flat| (&flat.resource, flat.metric, &flat.attributes)).collect();
    assert_eq!(series.len(), points.len());
}

#[test]
fn processes_of_a_container_are_one_resource_and_others_have_their_own() {
    let request = encode(&busy());
    let resources: Vec<_> = request
        .resource_metrics
        .iter()
        .map(|one| texts(&one.resource.as_ref().unwrap().attributes))
        .collect();
    let seen: Vec<_> = resources
        .iter()
        .map(|r| {
            (
                r["service.name"].as_str(),
                r.get("container.id").map(String::as_str),
                r.get("process.pid").map(String::as_str),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [("memprov", None, None), ("proc7", Some("c0ffee"), None), ("proc9", None, Some("9"))]
    );
    assert_eq!(resources[2]["process.creation.time"], "2026-09-10T00:26:50.090Z");
    let instances: BTreeSet<_> = resources.iter().map(|r| &r["service.instance.id"]).collect();
    assert_eq!(instances.len(), 3);
}

#[test]
fn an_address_space_of_several_processes_is_counted_once() {
    let mut twin = process(7, None, vec![owner("aa", bytes(100, Exact))]);
    twin.space_pids = vec![7, 8];
    let mut other = twin.clone();
    (other.pid, other.start_time) = (8, twin.start_time + 1);
    let once = sums(&encode(&report(vec![other.clone(), twin.clone()])), "");
    assert_eq!(once, sums(&encode(&report(vec![twin])), ""));
}

#[test]
fn shared_objects_are_on_the_host_and_nowhere_else() {
    let request = encode(&busy());
    let shared: Vec<_> = flat(&request)
        .iter()
        .filter(|flat| flat.get("memprov.owner.id") == "5a")
        .map(|flat| {
            (flat.resource.contains_key("process.pid"), flat.metric.to_owned(), flat.value())
        })
        .collect();
    assert_eq!(
        shared,
        [
            (false, "memprov.memory.reserved".to_owned(), 8192),
            (false, "memprov.memory.resident".to_owned(), 4096)
        ]
    );
}

#[test]
fn what_is_unknown_makes_no_point_and_zero_makes_one() {
    let unknown = owner("aa", Quantity::default());
    let report = report(vec![process(1, None, vec![unknown, owner("bb", bytes(0, Exact))])]);
    let request = encode(&report);
    let points = flat(&request);
    let values = |id: &str| -> Vec<i64> {
        points.iter().filter(|flat| flat.get("memprov.owner.id") == id).map(Flat::value).collect()
    };
    assert!(values("aa").is_empty());
    assert_eq!(values("bb"), [0, 0]);
}

#[test]
fn integers_stay_exact_beyond_the_precision_of_a_double() {
    let large = (1 << 53) + 1;
    let report = report(vec![process(1, None, vec![owner("aa", bytes(large, Exact))])]);
    let request = encode(&report);
    let resident =
        |flat: &Flat<'_>| flat.metric.ends_with("resident") && flat.get("memprov.owner.id") == "aa";
    let value = flat(&request).iter().find(|flat| resident(flat)).unwrap().value();
    assert_eq!(value, i64::try_from(large).unwrap());
    assert!(json(&request).contains(r#""asInt":"9007199254740993""#));
}

#[test]
fn a_sum_that_no_otlp_integer_holds_makes_no_point_and_harms_no_other() {
    let rows = vec![owner("aa", bytes(u64::MAX, Exact)), owner("bb", bytes(4096, Exact))];
    let request = encode(&report(vec![process(1, None, rows)]));
    let points = flat(&request);
    assert!(points.iter().all(|flat| flat.get("memprov.owner.id") != "aa"));
    assert!(points.iter().any(|flat| flat.get("memprov.owner.id") == "bb"));
}

#[test]
fn the_order_of_rows_in_a_report_does_not_change_the_request() {
    let mut report = busy();
    let first = encode(&report).encode_to_vec();
    report.processes.reverse();
    for process in &mut report.processes {
        process.owners.reverse();
    }
    assert_eq!(encode(&report).encode_to_vec(), first);
}

#[test]
fn every_point_has_the_windows_times_and_only_registered_names_and_keys() {
    let request = encode(&busy());
    let mut seen = BTreeSet::new();
    for flat in flat(&request) {
        let metric = memprov_semconv::ALL.iter().find(|metric| metric.name == flat.metric).unwrap();
        seen.insert(metric.name);
        for key in flat.attributes.keys() {
            assert!(metric.attributes.iter().any(|known| known.as_str() == key), "{key}");
        }
        assert_eq!(flat.point.start_time_unix_nano, WINDOW.start);
        assert_eq!(flat.point.time_unix_nano, WINDOW.end);
    }
    let unused: Vec<_> = memprov_semconv::ALL
        .iter()
        .map(|metric| metric.name)
        .filter(|name| !seen.contains(name))
        .collect();
    assert_eq!(unused, ["memprov.memory.swapped"], "no process of this report swaps");
}

#[test]
fn the_cost_of_the_agent_is_on_the_host_and_what_was_not_measured_makes_no_point() {
    let told = |agent: Agent| -> BTreeMap<(String, String), Value> {
        let mut report = report(vec![process(7, None, Vec::new())]);
        report.agent = Some(agent);
        let request = encode(&report);
        let of_agent = |flat: &Flat<'_>| {
            flat.metric.starts_with("memprov.budget") || flat.metric.starts_with("memprov.ledger")
        };
        let points: Vec<_> = flat(&request).into_iter().filter(of_agent).collect();
        assert!(points.iter().all(|flat| flat.resource["service.name"] == "memprov"));
        points
            .iter()
            .map(|flat| {
                let attribute = flat.attributes.values().next().cloned().unwrap_or_default();
                ((flat.metric.to_owned(), attribute), flat.point.value.unwrap())
            })
            .collect()
    };
    let all = told(agent());
    let value = |metric: &str, of: &str| all[&(format!("memprov.{metric}"), of.to_owned())];
    assert_eq!(value("budget.cpu.time", "hooks"), Value::AsDouble(1.5));
    assert_eq!(value("budget.cpu.time", "ended"), Value::AsDouble(0.0));
    assert_eq!(value("budget.cpu.utilization", ""), Value::AsDouble(0.25));
    assert_eq!(value("budget.resident", ""), Value::AsInt(64 << 20));
    assert_eq!(value("budget.bpf.utilization", ""), Value::AsDouble(0.5));
    assert_eq!(value("budget.syscall.latency", ""), Value::AsDouble(1.25e-7));
    assert_eq!(value("budget.syscall.utilization", ""), Value::AsDouble(0.125));
    assert_eq!(value("budget.scan.skipped", "still"), Value::AsInt(7));
    assert_eq!(value("ledger.differences", "adopted"), Value::AsInt(3));
    assert_eq!(value("ledger.differences", "vanished"), Value::AsInt(0));
    let nothing: Vec<_> = told(Agent::default()).into_keys().map(|(metric, _)| metric).collect();
    assert_eq!(nothing, ["memprov.ledger.differences"; 3]);
}

#[test]
fn the_age_of_a_book_is_that_of_its_oldest_reading() {
    let mut late = process(8, Some("c0ffee"), Vec::new());
    late.as_of = "2026-09-21T14:14:10.5Z".to_owned();
    let mut broken = process(9, Some("c0ffee"), Vec::new());
    broken.as_of = "yesterday".to_owned();
    let request = encode(&report(vec![process(7, Some("c0ffee"), Vec::new()), late, broken]));
    let points = flat(&request);
    let ages: Vec<_> = points.iter().filter(|flat| flat.metric.ends_with(".age")).collect();
    assert_eq!(ages.len(), 1);
    assert_eq!(ages[0].point.value, Some(Value::AsDouble(9.5)));
}

#[test]
fn a_long_name_is_cut_at_a_character_and_the_id_still_tells_it_apart() {
    let mut row = owner("aa", bytes(1, Exact));
    row.name = "ü".repeat(1000);
    let request = encode(&report(vec![process(1, None, vec![row])]));
    let points = flat(&request);
    let named = points.iter().find(|flat| flat.get("memprov.owner.id") == "aa").unwrap();
    assert_eq!(named.get("memprov.owner.name"), format!("{}…", "ü".repeat(200)));
}

#[path = "wire_tests.rs"]
mod wire;
