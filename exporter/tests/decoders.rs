//! The very bytes that the client sends, read by somebody else's decoder: the package opentelemetry-proto for Python.
//! The document it makes of a request is ours.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use memprov::config::{Compression, Export, Protocol};
use memprov::otlp::{Exporter, Fate, Feed, Settings, Shipment};
use memprov::report::Identity;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value::Value as Any,
};
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar,
    exponential_histogram_data_point::Buckets, metric::Data, number_data_point::Value as Number,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde_json::Value;

const PACKAGE: &str = "opentelemetry-proto==1.38.0";

/// Gives one shipment.
struct Once(Option<ExportMetricsServiceRequest>);

impl Feed for Once {
    fn next(&mut self) -> Option<Shipment> {
        let parts = vec![self.0.clone()?.into()];
        Some(Shipment { number: 1, parts, replaceable: true })
    }

    fn settle(&mut self, _number: u64, _fate: Fate) {
        self.0 = None;
    }
}

fn pair(key: &str, value: Any) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..Default::default() }
}

fn number(value: Number) -> NumberDataPoint {
    let attributes = vec![pair("k", Any::StringValue("é\u{1f600}\"\\\n".to_owned()))];
    NumberDataPoint {
        attributes,
        start_time_unix_nano: 1_700_000_000_123_456_789,
        time_unix_nano: u64::MAX,
        value: Some(value),
        ..Default::default()
    }
}

/// A request with every kind of point, and values at the ends of their ranges.
fn request() -> ExportMetricsServiceRequest {
    let exemplar = Exemplar {
        filtered_attributes: vec![pair("rate", Any::DoubleValue(0.1))],
        time_unix_nano: 7,
        span_id: (1..=8).collect(),
        trace_id: (1..=16).collect(),
        value: Some(exemplar::Value::AsDouble(-0.25)),
    };
    let sum = Sum {
        data_points: vec![
            number(Number::AsInt(i64::MAX)),
            number(Number::AsInt(i64::MIN)),
            number(Number::AsInt((1 << 53) + 1)),
            NumberDataPoint { value: None, flags: 1, ..number(Number::AsInt(0)) },
        ],
        aggregation_temporality: 2,
        is_monotonic: true,
    };
    let histogram = HistogramDataPoint {
        time_unix_nano: 9,
        count: 3,
        sum: Some(0.1 + 0.2),
        bucket_counts: vec![1, 0, 2],
        explicit_bounds: vec![0.5, 1e300],
        exemplars: vec![exemplar],
        min: Some(f64::MIN_POSITIVE),
        ..Default::default()
    };
    let exponential = ExponentialHistogramDataPoint {
        count: u64::MAX,
        scale: -10,
        zero_count: 4,
        positive: Some(Buckets { offset: -7, bucket_counts: vec![1, 1 << 60] }),
        ..Default::default()
    };
    let data = [
        Data::Gauge(Gauge { data_points: vec![number(Number::AsDouble(1.0 / 3.0))] }),
        Data::Sum(sum),
        Data::Histogram(Histogram { data_points: vec![histogram], aggregation_temporality: 1 }),
        Data::ExponentialHistogram(ExponentialHistogram {
            data_points: vec![exponential],
            aggregation_temporality: 1,
        }),
    ];
    let metric = |(data, n): (Data, usize)| Metric {
        name: format!("m{n}"),
        description: "d".to_owned(),
        unit: "By".to_owned(),
        data: Some(data),
        ..Default::default()
    };
    let list = ArrayValue { values: vec![AnyValue { value: Some(Any::IntValue(-1)) }] };
    let resource = Resource {
        attributes: vec![pair("list", Any::ArrayValue(list)), pair("yes", Any::BoolValue(true))],
        ..Default::default()
    };
    let scope = InstrumentationScope { name: "scope".to_owned(), ..Default::default() };
    let scope_metrics = vec![ScopeMetrics {
        scope: Some(scope),
        metrics: data.into_iter().zip(0..).map(metric).collect(),
        schema_url: "https://example.com/1".to_owned(),
    }];
    let resource = Some(resource);
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..Default::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

/// The body of the first request that the client sends.
fn sent(request: ExportMetricsServiceRequest) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let export = Export {
        endpoint: format!("http://{}", listener.local_addr().expect("an address")),
        protocol: Protocol::HttpProtobuf,
        compression: Compression::None,
        interval: Duration::from_millis(1),
        ..Export::default()
    };
    let exporter = Exporter::start(
        Settings::new(&export, &Identity::default()).expect("a URL"),
        Once(Some(request)),
    )
    .expect("a thread");
    exporter.poke();
    let (stream, _) = listener.accept().expect("a request");
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line");
        let line = line.trim().to_lowercase();
        if let Some(number) = line.strip_prefix("content-length: ") {
            length = number.parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("a reader");
    assert_eq!(exporter.shutdown(Duration::ZERO).rejected_points, 0);
    body
}

/// A document without what both forms may leave out: unset and zero fields.
fn bare(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let kept: serde_json::Map<_, _> =
                fields.filter_map(|(key, value)| Some((key, bare(value)?))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        // Zeros within a list stand for something.
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            Some(items.into_iter().map(|item| bare(item.clone()).unwrap_or(item)).collect())
        }
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() || text == "0" => None,
        Value::Number(number) if number.as_f64() == Some(0.0) => None,
        // One writes 2 where the other writes 2.0, and both mean the same double.
        Value::Number(number) => number.as_f64().map(Value::from),
        other => Some(other),
    }
}

/// A Python that has the package, in a cache; or why there is none.
fn python() -> Result<PathBuf, String> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join(PACKAGE.replace("==", "-"));
    let python = cache.join("bin/python3");
    let run = |program: &Path, arguments: &[&str]| {
        let done = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        let done = done.map_err(|error| format!("{}: {error}", program.display()))?;
        let text = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        done.status.success().then_some(()).ok_or(text)
    };
    if run(&python, &["-c", "import opentelemetry.proto, google.protobuf"]).is_err() {
        run(Path::new("python3"), &["-m", "venv", &cache.display().to_string()])?;
        run(&python, &["-m", "pip", "install", "--quiet", "--retries", "1", PACKAGE])?;
    }
    Ok(python)
}

#[test]
fn two_decoders_make_the_same_document_of_what_is_sent() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return println!("skipped: no Python with {PACKAGE}: {why}"),
    };
    let request = request();
    let body = sent(request.clone());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decode.py");
    let mut decoder = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    decoder.stdin.take().unwrap().write_all(&body).unwrap();
    let done = decoder.wait_with_output().unwrap();
    assert!(done.status.success());
    let theirs: Value = serde_json::from_slice(&done.stdout).unwrap();
    let ours: Value = serde_json::to_value(&request).unwrap();
    let (theirs, ours) = (bare(theirs).unwrap(), bare(ours).unwrap());
    assert_eq!(theirs, ours);
    let counted = theirs.to_string().matches("timeUnixNano").count();
    assert!(counted > 6, "the documents hold the points: {theirs}");
}
