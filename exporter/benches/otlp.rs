//! What it costs to tell 10,000 owners with 8 series each, from a report to a receiver: CPU time of this process.
//!
//! A pane is what comes again and again: the series are there, and each has a new value. "take in" folds a report into
//! them, "make" makes the messages, "pack" encodes and compresses these. "whole" is all of it, by the client's own way to
//! a receiver on the loopback, which is in this process and counts, too. Beside them stand what the OpenTelemetry SDK and
//! the text that Prometheus scrapes take for the same points. Bytes per point are printed first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use flate2::write::GzEncoder;
use memprov::config::{Compression, Detail, Export, Grain, Protocol};
use memprov::encode::{Accumulator, Options, Shared, Style, Window};
use memprov::otlp::{Exporter, Fate, Feed, Packed, Settings};
use memprov::report::{Identity, OwnerRow, Process, Quantity, Report, SCHEMA};
use memprov_ledger::evidence::EvidenceClass::{self, Exact, Inferred, Sampled};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Gauge, MeterProvider as _};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::{
    NumberDataPoint, metric::Data, number_data_point::Value,
};
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{
    InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Stream, Temporality,
};
use prost::Message;
use rustix::time::{ClockId, clock_gettime};

const OWNERS: u64 = 10_000;
/// Series of an owner: reserved and resident by three classes, swapped by two.
const SERIES: u64 = 8;
/// The begin of the watch.
const START: u64 = 1_790_000_000_000_000_000;

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// An owner whose id is a hash and whose name is one of a few hundred: neither too easy to compress nor too hard.
fn row(n: u64, class: EvidenceClass, pane: u64) -> OwnerRow {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bytes = |turn| Quantity {
        bytes: Some((mixed.rotate_left(turn) >> 30) + pane),
        evidence: class,
        lo: None,
        hi: None,
    };
    OwnerRow {
        id: format!("{mixed:016x}"),
        kind: "mapping".to_owned(),
        name: format!("service_{}::Pool<T{}>::grow (lib{}.so)", n % 677, n % 13, n % 31),
        caller: String::new(),
        stability: "content".to_owned(),
        stack: Vec::new(),
        truncated: false,
        reserved: bytes(0),
        resident: bytes(7),
        swapped: (class != Sampled).then(|| bytes(14)),
        touched: None,
        growth_per_minute: None,
        intervals: 1,
        first_touch: Vec::new(),
        placement: None,
    }
}

fn process(pid: u32, class: EvidenceClass, pane: u64) -> Process {
    Process {
        pid,
        start_time: Some(u64::from(pid)),
        comm: "server".to_owned(),
        space: format!("{pid:x}"),
        space_pids: vec![pid],
        container: Some("c".repeat(64)),
        as_of: "2026-09-21T14:14:18Z".to_owned(),
        lossless: true,
        owners: (0..OWNERS).map(|n| row(n, class, pane)).collect(),
        ..Process::default()
    }
}

fn report(pane: u64) -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        source: "daemon".to_owned(),
        generated_at: "2026-09-21T14:14:20Z".to_owned(),
        watching_since: "2026-09-21T14:13:20Z".to_owned(),
        processes: vec![
            process(1, Exact, pane),
            process(2, Inferred, pane),
            process(3, Sampled, pane),
        ],
        ..Report::default()
    }
}

/// Two reports by turns, in which no value is the same, at times of a minute apart.
struct Panes {
    reports: [Report; 2],
    number: u64,
}

impl Panes {
    fn new() -> Self {
        Self { reports: [report(0), report(1)], number: 0 }
    }

    fn next(&mut self) -> (&Report, Window) {
        self.number += 1;
        self.reports.rotate_left(1);
        let [report, _] = &self.reports;
        (report, Window { start: START, end: START + self.number * 60_000_000_000 })
    }
}

fn accumulator() -> Accumulator {
    Accumulator::new(Options {
        detail: Detail::Owners,
        grain: Grain::Container,
        owners: usize::MAX,
        resources: 32,
        exemplar_logs: false,
        max_age: Duration::MAX,
        style: Style::default(),
    })
}

/// A receiver that takes everything.
fn receiver() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || take(BufReader::new(stream)));
        }
    });
    address
}

fn take(mut stream: BufReader<TcpStream>) -> std::io::Result<()> {
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        let mut line = String::new();
        while stream.read_line(&mut line)? > 2 {
            if let Some(number) = line.to_lowercase().strip_prefix("content-length: ") {
                length = number.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
    }
}

/// The points of memory of owners, with their metric's name and unit.
fn points(parts: &[ExportMetricsServiceRequest]) -> impl Iterator<Item = (&str, &NumberDataPoint)> {
    let scopes = parts.iter().flat_map(|p| &p.resource_metrics).flat_map(|r| &r.scope_metrics);
    scopes.flat_map(|scope| &scope.metrics).flat_map(|metric| {
        let points = match &metric.data {
            Some(Data::Sum(sum)) if metric.unit == "By" => sum.data_points.as_slice(),
            _ => &[],
        };
        points.iter().map(|point| (metric.name.as_str(), point))
    })
}

fn texts(point: &NumberDataPoint) -> impl Iterator<Item = (&str, &str)> {
    point.attributes.iter().filter_map(|attribute| {
        match attribute.value.as_ref()?.value.as_ref()? {
            Any::StringValue(text) => Some((attribute.key.as_str(), text.as_str())),
            _ => None,
        }
    })
}

/// As Prometheus would scrape the same points (text format 0.0.4).
fn text(parts: &[ExportMetricsServiceRequest]) -> String {
    let mut text = String::new();
    for (name, point) in points(parts) {
        let labels: Vec<_> = texts(point)
            .map(|(key, value)| format!("{}={value:?}", key.replace('.', "_")))
            .collect();
        let Some(Value::AsInt(bytes)) = point.value else { continue };
        let (name, labels) = (name.replace('.', "_"), labels.join(","));
        writeln!(text, "{name}_bytes{{{labels}}} {bytes}").expect("text takes text");
    }
    text
}

/// The SDK takes a reader for good, and it is still to be asked.
#[derive(Clone, Debug)]
struct Reader(Arc<ManualReader>);

impl MetricReader for Reader {
    fn register_pipeline(&self, pipeline: std::sync::Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }
    fn collect(&self, metrics: &mut ResourceMetrics) -> opentelemetry_sdk::error::OTelSdkResult {
        self.0.collect(metrics)
    }
    fn force_flush(&self) -> opentelemetry_sdk::error::OTelSdkResult {
        self.0.force_flush()
    }
    fn shutdown_with_timeout(&self, timeout: Duration) -> opentelemetry_sdk::error::OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }
    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

/// The same points by the SDK: a gauge of each metric, and what is recorded with it.
struct Sdk {
    reader: Reader,
    _provider: SdkMeterProvider,
    values: Vec<(Gauge<i64>, i64, Vec<KeyValue>)>,
}

impl Sdk {
    fn new(parts: &[ExportMetricsServiceRequest]) -> Self {
        let reader = Reader(Arc::new(ManualReader::builder().build()));
        let limit = usize::try_from(OWNERS * SERIES).expect("64 bits") + 1;
        let view = move |_: &_| Stream::builder().with_cardinality_limit(limit).build().ok();
        let provider = SdkMeterProvider::builder().with_reader(reader.clone()).with_view(view);
        let provider = provider.build();
        let meter = provider.meter("memprov");
        let mut gauges = BTreeMap::new();
        let values = points(parts)
            .filter_map(|(name, point)| {
                let gauge = gauges
                    .entry(name)
                    .or_insert_with(|| meter.i64_gauge(name.to_owned()).with_unit("By").build());
                let Some(Value::AsInt(bytes)) = point.value else { return None };
                let text =
                    |(key, value): (&str, &str)| KeyValue::new(key.to_owned(), value.to_owned());
                Some((gauge.clone(), bytes, texts(point).map(text).collect()))
            })
            .collect();
        Self { reader, _provider: provider, values }
    }

    fn request(&self) -> ExportMetricsServiceRequest {
        for (gauge, bytes, attributes) in &self.values {
            gauge.record(*bytes, attributes);
        }
        let mut metrics = ResourceMetrics::default();
        self.reader.collect(&mut metrics).expect("a reader that is registered");
        ExportMetricsServiceRequest::from(&metrics)
    }
}

fn compressed(bytes: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(2));
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory").len()
}

fn told(what: &str, bytes: usize) {
    println!("{what}: {bytes} bytes, {:.1} a point", bytes as f64 / (OWNERS * SERIES) as f64);
}

/// CPU time of `run`, again and again.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut run: impl FnMut() -> Duration,
) {
    group.bench_function(name, |b| b.iter_custom(|times| (0..times).map(|_| run()).sum()));
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let begin = cpu();
    let done = black_box(run());
    (done, cpu() - begin)
}

fn otlp(c: &mut Criterion) {
    let mut group = c.benchmark_group("otlp, 10,000 owners of 8 series, CPU time");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    let mut panes = Panes::new();
    let mut series = accumulator();
    let mut parts = Vec::new();
    measure(&mut group, "take in", || {
        let (report, window) = panes.next();
        let spent = timed(|| series.pane(report, window)).1;
        let shipment = series.next().expect("a pane was taken in");
        series.settle(shipment.number, Fate::Delivered);
        parts = shipment.parts;
        spent
    });
    measure(&mut group, "make", || {
        let (report, window) = panes.next();
        series.pane(report, window);
        let (shipment, spent) = timed(|| {
            let shipment = series.next().expect("a pane was taken in");
            series.settle(shipment.number, Fate::Delivered);
            shipment
        });
        parts = shipment.parts;
        spent
    });
    let messages: Vec<_> = parts.iter().map(|part| part.decode().expect("a request")).collect();
    assert_eq!(points(&messages).count() as u64, OWNERS * SERIES);
    let scrape = text(&messages);
    told("Prometheus text", scrape.len());
    told("Prometheus text, gzip", compressed(scrape.as_bytes()));
    let sdk = Sdk::new(&messages);
    let request = sdk.request().encode_to_vec();
    told("SDK", request.len());
    told("SDK, gzip", compressed(&request));
    measure(&mut group, "SDK: record, collect, make", || timed(|| sdk.request()).1);
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let word = String::from(compression);
        let pack = |part| Packed::new(part, compression).expect("memory").len();
        let bytes: u64 = parts.iter().map(pack).sum();
        told(
            &format!("{word}, {} requests", parts.len()),
            usize::try_from(bytes).expect("64 bits"),
        );
        measure(&mut group, &format!("pack, {word}"), || {
            timed(|| parts.iter().map(pack).sum::<u64>()).1
        });
        let export = Export {
            endpoint: format!("http://{}", receiver()),
            protocol: Protocol::HttpProtobuf,
            compression,
            interval: Duration::ZERO,
            ..Export::default()
        };
        let settings = Settings::new(&export, &Identity::default()).expect("a URL");
        let series = Shared::new(accumulator());
        let exporter = Exporter::start(settings, series.clone()).expect("a thread");
        let mut pane = || {
            let before = exporter.stats().delivered_points;
            let (report, window) = panes.next();
            timed(|| {
                series.pane(report, window);
                exporter.poke();
                while exporter.stats().delivered_points < before + OWNERS * SERIES {
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
            .1
        };
        pane();
        measure(&mut group, &format!("whole, {word}"), pane);
        let stats = exporter.shutdown(Duration::ZERO);
        assert_eq!((stats.refused, stats.retries), (0, 0));
    }
    group.finish();
}

criterion_group!(benches, otlp);
criterion_main!(benches);
