//! Reports made for tests, and points flattened for looking at them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::evidence::EvidenceClass::{self, Exact, Inferred};
use memprov_semconv::Instrument;
use memprov_semconv::contract::Contract;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, NumberDataPoint, metric::Data, number_data_point::Value,
};

use super::{Accumulator, Identity, Options, Panes, Style, Window};
use crate::config::{Detail, Grain, Histograms, Temporality};
use crate::otlp::{Fate, Feed, Request, Shipment};
use crate::report::{
    About, Agent, Book, BpfCost, Configuration, Control, Differences, Faults, Host, OwnerRow,
    Process, Quantity, Report, SCHEMA, Scans, SharedRow, SyscallTax, Touched,
};
use crate::trace::Support;

mod accessed;
mod charge;
mod life;
mod placed;
mod reader;
mod said;
mod scale;
mod whom;

/// 2026-09-21T14:14:20Z less a minute, and that.
const START: u64 = 1_790_000_000_000_000_000;
const MINUTE: u64 = 60_000_000_000;
const WINDOW: Window = Window { start: START, end: START + MINUTE };

/// Everything is told.
fn all() -> Options {
    Options {
        detail: Detail::Owners,
        grain: Grain::Container,
        owners: usize::MAX,
        resources: usize::MAX,
        exemplar_logs: false,
        max_age: Duration::from_secs(600),
        style: Style::default(),
    }
}

/// The default.
fn kinds() -> Options {
    Options { detail: Detail::Kinds, owners: 50, resources: 32, ..all() }
}

fn identity() -> Identity {
    let boot = Some(1_789_000_000_000_000_000);
    let (host_id, host_name) = ("4c4c".to_owned(), "n1".to_owned());
    Identity { host_id, host_name, boot, attributes: BTreeMap::new() }
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
        touched: None,
        growth_per_minute: None,
        intervals: 1,
        first_touch: Vec::new(),
        placement: None,
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
        start_time: Some(1000 + u64::from(pid)),
        comm: format!("proc{pid}"),
        space: format!("{pid:x}"),
        space_pids: vec![pid],
        cgroup: None,
        container: container.map(str::to_owned),
        as_of: "2026-09-21T14:14:18Z".to_owned(),
        lossless: true,
        pages_unread: false,
        predates: 0,
        books: BTreeMap::from([("anon".to_owned(), anon)]),
        owners,
        faults: Some(Faults { minor: 100, major: 1, ..Default::default() }),
        first_touch: None,
        ran: None,
    }
}

fn report(processes: Vec<Process>) -> Report {
    let support = vec![Support {
        id: "mapping.lifecycle".to_owned(),
        state: "available".to_owned(),
        mechanism: Some("fentry".to_owned()),
        class: Some(Exact),
    }];
    Report {
        schema: SCHEMA.to_owned(),
        source: "daemon".to_owned(),
        generated_at: "2026-09-21T14:14:20Z".to_owned(),
        watching_since: "2026-09-21T14:13:20Z".to_owned(),
        no_wall_time: false,
        mechanism: None,
        host: Host { nodes: Some(1), ..Host::default() },
        processes,
        cgroups: Vec::new(),
        regions: Vec::new(),
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
        scan_seconds: Default::default(),
        agent: None,
        accesses: None,
        about: Some(Arc::new(About { identity: identity(), support })),
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
    report.processes[2].cgroup = Some("/system.slice/ssh.service".to_owned());
    report.agent = Some(agent());
    report.scan_seconds.record(0.004, 1.0);
    report
}

fn touched() -> Touched {
    Touched {
        method: "addresses".into(),
        lower: 0,
        upper: 0,
        in_use: bytes(0, EvidenceClass::Sampled),
        covered: 0,
        spill: 0.0,
        aggregations: 5,
        checks: 100,
        sampling_seconds: 0.005,
        seconds: 0.5,
    }
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
        configuration: Some(Configuration { hash: "5e7".to_owned(), applied: 2, refused: 1 }),
    }
}

/// The shipment of a feed as one request, which keeps to the registry; it arrives.
fn ship(series: &mut Accumulator) -> ExportMetricsServiceRequest {
    let request = ship_any(series);
    let breaches = Contract::default().check(&serde_json::to_value(&request).unwrap());
    assert_eq!(breaches, []);
    request
}

/// The same with names that a user gives.
fn ship_any(series: &mut Accumulator) -> ExportMetricsServiceRequest {
    let Some(shipment) = series.next() else { return ExportMetricsServiceRequest::default() };
    series.settle(shipment.number, Fate::Delivered);
    message(&shipment)
}

/// What a shipment holds, as one request.
fn message(shipment: &Shipment) -> ExportMetricsServiceRequest {
    let part = |part: &Request| {
        let part: ExportMetricsServiceRequest = part.decode().unwrap();
        part.resource_metrics
    };
    let resource_metrics = shipment.parts.iter().flat_map(part).collect();
    ExportMetricsServiceRequest { resource_metrics }
}

fn with(report: &Report, options: Options) -> ExportMetricsServiceRequest {
    let mut series = Accumulator::new(options);
    series.pane(report, WINDOW);
    ship(&mut series)
}

fn encode(report: &Report) -> ExportMetricsServiceRequest {
    with(report, all())
}

/// One point, flat: resource, metric, attributes, point. Of a histogram there is its count.
struct Flat<'a> {
    resource: BTreeMap<String, String>,
    metric: &'a str,
    attributes: BTreeMap<String, String>,
    point: NumberDataPoint,
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
            let points: Vec<NumberDataPoint> = match metric.data.as_ref().unwrap() {
                Data::Sum(sum) => sum.data_points.clone(),
                Data::Gauge(gauge) => gauge.data_points.clone(),
                Data::Histogram(histogram) => {
                    let one = |p: &opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint| {
                        number(
                            &p.attributes,
                            p.start_time_unix_nano,
                            p.time_unix_nano,
                            p.count,
                            p.flags,
                        )
                    };
                    histogram.data_points.iter().map(one).collect()
                }
                Data::ExponentialHistogram(histogram) => {
                    let one = |p: &opentelemetry_proto::tonic::metrics::v1::ExponentialHistogramDataPoint| {
                        number(&p.attributes, p.start_time_unix_nano, p.time_unix_nano, p.count, p.flags)
                    };
                    histogram.data_points.iter().map(one).collect()
                }
                other => panic!("{other:?}"),
            };
            all.extend(points.into_iter().map(|point| Flat {
                resource: texts(&resource.resource.as_ref().unwrap().attributes),
                metric: &metric.name,
                attributes: texts(&point.attributes),
                point,
            }));
        }
    }
    all
}

fn number(
    attributes: &[KeyValue],
    start: u64,
    time: u64,
    count: u64,
    flags: u32,
) -> NumberDataPoint {
    let ended = flags == DataPointFlags::NoRecordedValueMask as u32;
    NumberDataPoint {
        attributes: attributes.to_vec(),
        start_time_unix_nano: start,
        time_unix_nano: time,
        flags,
        value: (!ended).then(|| Value::AsInt(count.try_into().unwrap())),
        ..Default::default()
    }
}

/// Sum of a metric of integers by resource, with what `also` says of a point.
fn sums(
    request: &ExportMetricsServiceRequest,
    also: &str,
) -> BTreeMap<(String, String, String), i64> {
    let mut sums = BTreeMap::new();
    for flat in flat(request) {
        if matches!(flat.point.value, Some(Value::AsDouble(_)) | None) {
            continue;
        }
        let resource = flat.resource["service.instance.id"].clone();
        let key = (resource, flat.metric.to_owned(), flat.get(also).to_owned());
        *sums.entry(key).or_insert(0) += flat.value();
    }
    sums
}
