//! Points as OTLP messages, in parts that a server takes. The only module that fills messages.
//!
//! Message format: opentelemetry-proto `metrics/v1/metrics.proto`.

use memprov_semconv::{self as semconv, Instrument, Key, Metric as Registered};
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value as Any,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, Exemplar as Told, ExponentialHistogram,
    ExponentialHistogramDataPoint, Gauge, Histogram as ExplicitHistogram, HistogramDataPoint,
    Metric, ResourceMetrics, ScopeMetrics, Sum as CountedSum, exemplar, metric::Data,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::rows::Number;
use super::series::Sum;
use super::view::Style;
use super::words::{Attributes, Value};
use crate::config::Histograms;
use crate::exemplar::Exemplar;
use crate::histogram::{Bounds, CYCLES, Histogram, SECONDS};
use crate::otlp::request::{Level, POINT, Request, fixed64, framed, number, open, text};

/// Bytes that tag and length of one message take at most.
const FRAME: usize = 6;

/// What a point says.
pub(super) struct Point<'a> {
    pub(super) attributes: &'a Attributes,
    pub(super) start: u64,
    pub(super) time: u64,
    /// `None`: the series ends.
    pub(super) value: Option<Sum>,
}

/// Packs points into requests of bounded size. Each request repeats whose points it holds.
pub(super) struct Packer<'a> {
    limit: usize,
    style: Style,
    /// The support matrix as a code, for exemplars.
    support: &'a str,
    parts: Vec<Request>,
    /// No less than the encoded bytes of the last part.
    size: usize,
    /// What the last part is in the middle of.
    open: Option<(usize, &'static str)>,
    /// The point under way.
    point: Vec<u8>,
}

impl<'a> Packer<'a> {
    /// Parts of at most `limit` bytes, but for a point that is larger with all that is around it.
    pub(super) fn new(limit: usize, style: Style, support: &'a str) -> Self {
        let (parts, point) = (Vec::new(), Vec::new());
        Self { limit, style, support, parts, size: 0, open: None, point }
    }

    /// Adds a point of a metric of resource number `number`.
    pub(super) fn push(
        &mut self,
        (number, resource): (usize, &Resource),
        metric: &'static Registered,
        point: &Point<'_>,
    ) {
        self.point.clear();
        encode(metric, point, self.style.histograms, self.support, &mut self.point);
        let cost = self.point.len() + FRAME;
        if self.open.is_none_or(|open| open != (number, metric.name) || self.full(cost)) {
            self.begin((number, resource), metric, cost);
        }
        let points = self.parts.last_mut().and_then(Request::last).and_then(Level::points);
        if let Some(points) = points {
            points.push(POINT, &self.point);
            self.size += cost;
        }
    }

    fn full(&self, cost: usize) -> bool {
        self.size + cost > self.limit
    }

    /// Begins a metric, and what is around it where that is not there, so that the last part takes `cost` bytes more.
    fn begin(
        &mut self,
        (number, resource): (usize, &Resource),
        metric: &'static Registered,
        cost: usize,
    ) {
        let header = Level::from(header(metric, self.style));
        let what = header.size() + 2 * FRAME;
        let scope = ScopeMetrics { scope: Some(scope()), ..Default::default() };
        let resource = Some(resource.clone());
        let scope_metrics = vec![scope];
        let whose = ResourceMetrics { resource, scope_metrics, ..Default::default() };
        let whose = Level::from(whose);
        let around = whose.size() + 2 * FRAME;
        let same = self.open.is_some_and(|(at, _)| at == number);
        let beside = if same { what } else { what + around };
        let next = self.open.is_none() || self.full(beside + cost);
        if next {
            self.parts.push(Request::default());
            self.size = 0;
        }
        let Some(part) = self.parts.last_mut() else { return };
        if next || !same {
            part.push(whose);
            self.size += around;
        }
        if let Some(scope) = part.last().and_then(Level::last) {
            scope.push(header);
            self.size += what;
        }
        self.open = Some((number, metric.name));
    }

    /// All parts.
    pub(super) fn finish(self) -> Vec<Request> {
        self.parts
    }
}

/// Encodes a point of one of the three forms.
fn encode(
    metric: &Registered,
    point: &Point<'_>,
    histograms: Histograms,
    support: &str,
    to: &mut Vec<u8>,
) {
    let flags = match point.value {
        Some(_) => DataPointFlags::DoNotUse,
        None => DataPointFlags::NoRecordedValueMask,
    } as u32;
    let (start_time_unix_nano, time_unix_nano) = (point.start, point.time);
    let histogram = match &point.value {
        Some(Sum::Histogram(histogram)) => Some(histogram.as_ref()),
        Some(Sum::Number(_)) | None => None,
    };
    let exemplars = |h: &Histogram| {
        let inside = h.exemplars.within(point.start, point.time);
        inside.map(|one| exemplar(one, support)).collect()
    };
    let done = match (metric.instrument, histograms) {
        (Instrument::Histogram, Histograms::Explicit) => HistogramDataPoint {
            attributes: attributes(point.attributes),
            exemplars: histogram.map(exemplars).unwrap_or_default(),
            start_time_unix_nano,
            time_unix_nano,
            flags,
            count: histogram.map_or(0, Histogram::count),
            sum: histogram.map(|h| h.sum),
            bucket_counts: histogram.map(|h| h.explicit(bounds(metric))).unwrap_or_default(),
            explicit_bounds: histogram
                .map(|_| bounds(metric).iter().map(|power| 2f64.powi(*power)).collect())
                .unwrap_or_default(),
            min: histogram.and_then(|h| h.min),
            max: histogram.and_then(|h| h.max),
        }
        .encode(to),
        (Instrument::Histogram, Histograms::Exponential) => {
            let buckets = |h: &Histogram| Buckets {
                offset: h.offset,
                bucket_counts: h.counts.iter().copied().collect(),
            };
            ExponentialHistogramDataPoint {
                attributes: attributes(point.attributes),
                exemplars: histogram.map(exemplars).unwrap_or_default(),
                start_time_unix_nano,
                time_unix_nano,
                flags,
                count: histogram.map_or(0, Histogram::count),
                sum: histogram.map(|h| h.sum),
                scale: histogram.map_or(0, |h| i32::from(h.scale)),
                zero_count: histogram.map_or(0, |h| h.zero),
                zero_threshold: histogram.map_or(0.0, |_| Histogram::zero_threshold()),
                positive: histogram.map(buckets),
                min: histogram.and_then(|h| h.min),
                max: histogram.and_then(|h| h.max),
                ..Default::default()
            }
            .encode(to)
        }
        (Instrument::Counter | Instrument::UpDownCounter | Instrument::Gauge, _) => {
            number_point(point, flags, to);
            Ok(())
        }
    };
    done.expect("memory takes all");
}

/// A `NumberDataPoint`, of which there are tens of thousands: written without making one.
fn number_point(point: &Point<'_>, flags: u32, to: &mut Vec<u8>) {
    fixed64(to, 2, point.start.to_le_bytes());
    fixed64(to, 3, point.time.to_le_bytes());
    match &point.value {
        Some(Sum::Number(Number::Int(value))) => fixed64(to, 6, value.to_le_bytes()),
        Some(Sum::Number(Number::Float(value))) => fixed64(to, 4, value.to_le_bytes()),
        Some(Sum::Histogram(_)) | None => {}
    }
    for (key, value) in point.attributes.iter() {
        let key = key.as_str();
        let length = match value {
            Value::Word(word) => framed(word.as_str().len()),
            Value::Flag(_) => 2,
        };
        open(to, 7, framed(key.len()) + framed(length));
        text(to, 1, key.as_bytes());
        open(to, 2, length);
        match value {
            Value::Word(word) => text(to, 1, word.as_str().as_bytes()),
            Value::Flag(flag) => number(to, 2, u64::from(*flag)),
        }
    }
    if flags != 0 {
        number(to, 8, u64::from(flags));
    }
}

/// An exemplar as a log record, seen at `observed`.
pub(super) fn record(
    metric: &Registered,
    of: &Attributes,
    one: &Exemplar,
    support: &str,
    observed: u64,
) -> LogRecord {
    let text = format!("{} = {} {}", metric.name, one.value, metric.unit);
    let mut attributes = attributes(of);
    attributes.extend(exemplar(one, support).filtered_attributes);
    LogRecord {
        time_unix_nano: one.at,
        observed_time_unix_nano: observed,
        severity_number: SeverityNumber::Info.into(),
        event_name: "memprov.exemplar".to_owned(),
        body: Some(AnyValue { value: Some(Any::StringValue(text)) }),
        attributes,
        ..Default::default()
    }
}

/// An exemplar without trace and span: who ran then is not known. Its attributes have 65 characters at most, as
/// OpenMetrics takes no more beside the ids.
fn exemplar(one: &Exemplar, support: &str) -> Told {
    let text = |key: Key, text: &str| attribute(key.as_str(), Any::StringValue(text.to_owned()));
    let attributes = [
        text(semconv::RATE, &one.rate.to_string()),
        text(semconv::SUPPORT_CODE, support),
        text(semconv::AMBIGUITY, one.ambiguity.unwrap_or("none")),
    ];
    Told {
        filtered_attributes: attributes.into(),
        time_unix_nano: one.at,
        value: Some(exemplar::Value::AsDouble(one.value)),
        ..Default::default()
    }
}

/// The explicit buckets of what a histogram is in.
fn bounds(metric: &Registered) -> &'static Bounds {
    if metric.unit == "s" { &SECONDS } else { &CYCLES }
}

/// A metric without points.
fn header(metric: &Registered, style: Style) -> Metric {
    let cumulative = AggregationTemporality::Cumulative;
    let temporality = match style.deltas() {
        true => AggregationTemporality::Delta,
        false => cumulative,
    };
    let sum = |temporality: AggregationTemporality, is_monotonic| {
        let aggregation_temporality = temporality.into();
        Data::Sum(CountedSum { aggregation_temporality, is_monotonic, ..Default::default() })
    };
    let aggregation_temporality = temporality.into();
    let data = match (metric.instrument, style.histograms) {
        (Instrument::Counter, _) => sum(temporality, true),
        (Instrument::UpDownCounter, _) => sum(cumulative, false),
        (Instrument::Gauge, _) => Data::Gauge(Gauge::default()),
        (Instrument::Histogram, Histograms::Explicit) => {
            Data::Histogram(ExplicitHistogram { aggregation_temporality, ..Default::default() })
        }
        (Instrument::Histogram, Histograms::Exponential) => {
            Data::ExponentialHistogram(ExponentialHistogram {
                aggregation_temporality,
                ..Default::default()
            })
        }
    };
    Metric {
        name: metric.name.to_owned(),
        description: metric.brief.to_owned(),
        unit: metric.unit.to_owned(),
        data: Some(data),
        ..Default::default()
    }
}

pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "memprov".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    }
}

fn attributes(set: &Attributes) -> Vec<KeyValue> {
    let one = |(key, value): &(memprov_semconv::Key, Value)| {
        let value = match value {
            Value::Word(word) => Any::StringValue(word.as_str().to_owned()),
            Value::Flag(flag) => Any::BoolValue(*flag),
        };
        attribute(key.as_str(), value)
    };
    set.iter().map(one).collect()
}

/// One attribute of a resource or a point.
pub(super) fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }
}
