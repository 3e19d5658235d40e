//! Points as OTLP messages, in parts that a server takes. The only module that fills protobuf structs.
//!
//! Message format: opentelemetry-proto `metrics/v1/metrics.proto`.

use memprov_semconv::{self as semconv, Instrument, Key, Metric as Registered};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value as Any,
};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, Exemplar as Told, ExponentialHistogram,
    ExponentialHistogramDataPoint, Gauge, Histogram as ExplicitHistogram, HistogramDataPoint,
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum as CountedSum, exemplar,
    metric::Data, number_data_point::Value as Is,
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
    parts: Vec<ExportMetricsServiceRequest>,
    /// No less than the encoded bytes of the last part.
    size: usize,
    /// What the last part is in the middle of.
    open: Option<(usize, &'static str)>,
}

impl<'a> Packer<'a> {
    /// Parts of at most `limit` bytes, but for a point that is larger with all that is around it.
    pub(super) fn new(limit: usize, style: Style, support: &'a str) -> Self {
        Self { limit, style, support, parts: Vec::new(), size: 0, open: None }
    }

    /// Adds a point of a metric of resource number `number`.
    pub(super) fn push(
        &mut self,
        (number, resource): (usize, &Resource),
        metric: &'static Registered,
        point: &Point<'_>,
    ) {
        let point = Encoded::of(metric, point, self.style.histograms, self.support);
        let cost = point.size() + FRAME;
        let mut around = self.around(number, resource, metric);
        if self.parts.is_empty() || self.open.is_some() && self.size + around + cost > self.limit {
            self.parts.push(ExportMetricsServiceRequest::default());
            (self.size, self.open) = (0, None);
            around = self.around(number, resource, metric);
        }
        let Some(part) = self.parts.last_mut() else { return };
        if self.open.is_none_or(|(at, _)| at != number) {
            let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), ..Default::default() }];
            let resource = Some(resource.clone());
            let metrics = ResourceMetrics { resource, scope_metrics, ..Default::default() };
            part.resource_metrics.push(metrics);
        }
        let scope = part.resource_metrics.last_mut().and_then(|r| r.scope_metrics.last_mut());
        let Some(scope) = scope else { return };
        if self.open != Some((number, metric.name)) {
            scope.metrics.push(header(metric, self.style));
            self.open = Some((number, metric.name));
        }
        self.size += around;
        self.size += cost;
        if let Some(data) = scope.metrics.last_mut().and_then(|metric| metric.data.as_mut()) {
            point.join(data);
        }
    }

    /// Bytes that a point needs around it where the last part is.
    fn around(&self, number: usize, resource: &Resource, metric: &'static Registered) -> usize {
        let whose = match self.open {
            Some((at, _)) if at == number => 0,
            Some(_) | None => resource.encoded_len() + scope().encoded_len() + 4 * FRAME,
        };
        let what = match self.open {
            Some(open) if open == (number, metric.name) => 0,
            Some(_) | None => header(metric, self.style).encoded_len() + 4 * FRAME,
        };
        whose + what
    }

    /// All parts.
    pub(super) fn finish(self) -> Vec<ExportMetricsServiceRequest> {
        self.parts
    }
}

/// A point of one of the three forms.
enum Encoded {
    Number(NumberDataPoint),
    Explicit(HistogramDataPoint),
    Exponential(ExponentialHistogramDataPoint),
}

impl Encoded {
    fn of(metric: &Registered, point: &Point<'_>, histograms: Histograms, support: &str) -> Self {
        let attributes = attributes(point.attributes);
        let (start_time_unix_nano, time_unix_nano) = (point.start, point.time);
        let flags = match point.value {
            Some(_) => DataPointFlags::DoNotUse,
            None => DataPointFlags::NoRecordedValueMask,
        } as u32;
        let histogram = match &point.value {
            Some(Sum::Histogram(histogram)) => Some(histogram.as_ref()),
            Some(Sum::Number(_)) | None => None,
        };
        let exemplars = |h: &Histogram| {
            let inside = h.exemplars.within(point.start, point.time);
            inside.map(|one| exemplar(one, support)).collect()
        };
        match (metric.instrument, histograms) {
            (Instrument::Histogram, Histograms::Explicit) => Self::Explicit(HistogramDataPoint {
                attributes,
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
            }),
            (Instrument::Histogram, Histograms::Exponential) => {
                let buckets = |h: &Histogram| Buckets {
                    offset: h.offset,
                    bucket_counts: h.counts.iter().copied().collect(),
                };
                Self::Exponential(ExponentialHistogramDataPoint {
                    attributes,
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
                })
            }
            (Instrument::Counter | Instrument::UpDownCounter | Instrument::Gauge, _) => {
                let value = match &point.value {
                    Some(Sum::Number(Number::Int(value))) => Some(Is::AsInt(*value)),
                    Some(Sum::Number(Number::Float(value))) => Some(Is::AsDouble(*value)),
                    Some(Sum::Histogram(_)) | None => None,
                };
                Self::Number(NumberDataPoint {
                    attributes,
                    start_time_unix_nano,
                    time_unix_nano,
                    flags,
                    value,
                    ..Default::default()
                })
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Number(point) => point.encoded_len(),
            Self::Explicit(point) => point.encoded_len(),
            Self::Exponential(point) => point.encoded_len(),
        }
    }

    fn join(self, data: &mut Data) {
        match (self, data) {
            (Self::Number(point), Data::Sum(sum)) => sum.data_points.push(point),
            (Self::Number(point), Data::Gauge(gauge)) => gauge.data_points.push(point),
            (Self::Explicit(point), Data::Histogram(data)) => data.data_points.push(point),
            (Self::Exponential(point), Data::ExponentialHistogram(data)) => {
                data.data_points.push(point);
            }
            // The header was made for the same metric in the same style.
            (Self::Number(_) | Self::Explicit(_) | Self::Exponential(_), _) => {}
        }
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

fn scope() -> InstrumentationScope {
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
