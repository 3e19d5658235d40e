//! What it costs to send 10,000 owners with 8 series each: CPU time of this process, in which the receiver is too.
//!
//! "pack" is encoding and compression of all parts. "send" is the client's whole way to a receiver on the loopback that
//! reads each request and answers with a success. Bytes per point are printed first.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use memprov::config::{Compression, Export, Protocol};
use memprov::otlp::{Exporter, Fate, Feed, Packed, Settings, Shipment};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric::Data,
    number_data_point::Value,
};
use rustix::time::{ClockId, clock_gettime};

const OWNERS: u64 = 10_000;
const SERIES: u64 = 8;
/// Owners in one part: about 2.4 MB.
const PART: u64 = 1_500;

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

fn pair(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: key.to_owned(), value, ..Default::default() }
}

/// A point whose owner's id is a hash and whose name is one of a few hundred: neither too easy to compress nor too hard.
fn point(series: u64, owner: u64) -> NumberDataPoint {
    let mixed = owner.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let name =
        format!("service_{}::Pool<T{}>::grow (lib{}.so)", owner % 677, owner % 13, owner % 31);
    let bytes = mixed.rotate_left(u32::try_from(series).unwrap_or(0) * 7) >> 30;
    NumberDataPoint {
        attributes: vec![
            pair("memprov.owner.id", format!("{mixed:016x}")),
            pair("memprov.owner.kind", "anon".to_owned()),
            pair("memprov.owner.name", name),
            pair("memprov.evidence", "exact".to_owned()),
        ],
        start_time_unix_nano: 1_700_000_000_000_000_000,
        time_unix_nano: 1_700_000_060_000_000_000,
        value: Some(Value::AsInt(i64::try_from(bytes).unwrap_or(0))),
        ..Default::default()
    }
}

fn parts() -> Vec<ExportMetricsServiceRequest> {
    let part = |first: u64| {
        let metric = |series| {
            let data_points =
                (first..(first + PART).min(OWNERS)).map(|o| point(series, o)).collect();
            let data =
                Data::Sum(Sum { data_points, aggregation_temporality: 2, is_monotonic: false });
            let name = format!("memprov.memory.m{series}");
            Metric { name, unit: "By".to_owned(), data: Some(data), ..Default::default() }
        };
        let metrics = (0..SERIES).map(metric).collect();
        let scope_metrics = vec![ScopeMetrics { metrics, ..Default::default() }];
        let resource_metrics = vec![ResourceMetrics { scope_metrics, ..Default::default() }];
        ExportMetricsServiceRequest { resource_metrics }
    };
    (0..OWNERS).step_by(usize::try_from(PART).unwrap_or(1)).map(part).collect()
}

/// Gives what a measurement puts in.
#[derive(Clone, Default)]
struct Outbox(Arc<Mutex<Option<Shipment>>>);

impl Feed for Outbox {
    fn next(&mut self) -> Option<Shipment> {
        self.0.lock().expect("no panic").take()
    }

    fn settle(&mut self, _number: u64, fate: Fate) {
        assert_eq!(fate, Fate::Delivered);
    }
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

fn otlp(c: &mut Criterion) {
    let parts = parts();
    let mut group = c.benchmark_group("otlp, 10,000 owners of 8 series, CPU time");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let word = String::from(compression);
        let pack = |part| Packed::new(part, compression).expect("memory").len();
        let bytes: u64 = parts.iter().map(pack).sum();
        println!(
            "{word}: {} requests, {bytes} bytes, {} a point",
            parts.len(),
            bytes / OWNERS / SERIES
        );
        group.bench_function(format!("pack, {word}"), |b| {
            b.iter_custom(|times| {
                let begin = cpu();
                for _ in 0..times {
                    black_box(parts.iter().map(pack).sum::<u64>());
                }
                cpu() - begin
            });
        });
        let export = Export {
            endpoint: format!("http://{}", receiver()),
            protocol: Protocol::HttpProtobuf,
            compression,
            interval: Duration::ZERO,
            ..Export::default()
        };
        let outbox = Outbox::default();
        let settings = Settings::new(&export, "bench").expect("a URL");
        let exporter = Exporter::start(settings, outbox.clone()).expect("a thread");
        group.bench_function(format!("send, {word}"), |b| {
            b.iter_custom(|times| {
                let mut spent = Duration::ZERO;
                for _ in 0..times {
                    let before = exporter.stats().delivered_points;
                    let shipment = Shipment { number: 1, parts: parts.clone(), replaceable: false };
                    *outbox.0.lock().expect("no panic") = Some(shipment);
                    let begin = cpu();
                    exporter.poke();
                    while exporter.stats().delivered_points < before + OWNERS * SERIES {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    spent += cpu() - begin;
                }
                spent
            });
        });
        let stats = exporter.shutdown(Duration::ZERO);
        assert_eq!((stats.refused, stats.retries), (0, 0));
    }
    group.finish();
}

criterion_group!(benches, otlp);
criterion_main!(benches);
