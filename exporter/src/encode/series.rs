//! What needs two requests, or less than one: the ends of series, and parts small enough for a server.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Range;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    DataPointFlags, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric::Data,
};
use prost::Message;

/// The series of `before` that `now` no longer has, each with one point without a value
/// (`FLAG_NO_RECORDED_VALUE`, the end of a series in the OTLP data model), at the time of `now`.
///
/// Without it a backend goes on showing the last value (Prometheus: for 5 minutes), and an owner whose evidence
/// changed its class counts twice. A request without points ends nothing, as it has no time.
#[must_use]
pub fn ended(
    before: &ExportMetricsServiceRequest,
    now: &ExportMetricsServiceRequest,
) -> ExportMetricsServiceRequest {
    let hasher = RandomState::new();
    let mut live = HashSet::new();
    let mut time = 0;
    for resource in &now.resource_metrics {
        let whom = whom(&hasher, resource);
        for metric in resource.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
            for point in points(metric) {
                time = time.max(point.time_unix_nano);
                live.insert(series(&hasher, whom, metric, point));
            }
        }
    }
    if live.is_empty() {
        return ExportMetricsServiceRequest::default();
    }
    let gone = |whom: u64, metric: &Metric| {
        let gone: Vec<_> = points(metric)
            .iter()
            .filter(|point| !live.contains(&series(&hasher, whom, metric, point)))
            .map(|point| end(point, time))
            .collect();
        (!gone.is_empty()).then(|| with_points(metric, gone))
    };
    let resource_metrics = before.resource_metrics.iter().filter_map(|old| {
        let whom = whom(&hasher, old);
        let scopes = old.scope_metrics.iter().filter_map(|scope| {
            let metrics: Vec<_> = scope.metrics.iter().filter_map(|m| gone(whom, m)).collect();
            let scope = scope.scope.clone();
            (!metrics.is_empty()).then(|| ScopeMetrics { scope, metrics, ..Default::default() })
        });
        let scope_metrics: Vec<_> = scopes.collect();
        let resource = old.resource.clone();
        (!scope_metrics.is_empty()).then(|| ResourceMetrics {
            resource,
            scope_metrics,
            ..Default::default()
        })
    });
    ExportMetricsServiceRequest { resource_metrics: resource_metrics.collect() }
}

/// Splits a request into runs of whole resources of at most `limit` encoded bytes each. A single larger resource
/// stays whole and goes alone: how large it can be is bounded by the limit of owners it was encoded with.
#[must_use]
pub fn split(request: &ExportMetricsServiceRequest, limit: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut begin, mut size) = (0, 0_usize);
    for (index, resource) in request.resource_metrics.iter().enumerate() {
        let body = resource.encoded_len();
        // One byte of tag before each repeated message.
        let own = 1 + prost::length_delimiter_len(body) + body;
        if index > begin && size + own > limit {
            parts.push(begin..index);
            (begin, size) = (index, 0);
        }
        size += own;
    }
    if begin < request.resource_metrics.len() {
        parts.push(begin..request.resource_metrics.len());
    }
    parts
}

/// Hash of a resource's identity.
fn whom(hasher: &RandomState, resource: &ResourceMetrics) -> u64 {
    let attributes = resource.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
    let mut state = hasher.build_hasher();
    attributes.iter().for_each(|one| one.encode_length_delimited_to_vec().hash(&mut state));
    state.finish()
}

/// Hash of a series' identity: with 10⁵ series two share one once in 10⁹ requests, and then an end is not told.
fn series(hasher: &RandomState, whom: u64, metric: &Metric, point: &NumberDataPoint) -> u64 {
    let mut state = hasher.build_hasher();
    (whom, &metric.name).hash(&mut state);
    let attributes = &point.attributes;
    attributes.iter().for_each(|one| one.encode_length_delimited_to_vec().hash(&mut state));
    state.finish()
}

fn points(metric: &Metric) -> &[NumberDataPoint] {
    match &metric.data {
        Some(Data::Sum(sum)) => &sum.data_points,
        Some(Data::Gauge(gauge)) => &gauge.data_points,
        Some(Data::Histogram(_) | Data::ExponentialHistogram(_) | Data::Summary(_)) | None => &[],
    }
}

fn with_points(metric: &Metric, points: Vec<NumberDataPoint>) -> Metric {
    let mut metric = metric.clone();
    match &mut metric.data {
        Some(Data::Sum(sum)) => sum.data_points = points,
        Some(Data::Gauge(gauge)) => gauge.data_points = points,
        Some(Data::Histogram(_) | Data::ExponentialHistogram(_) | Data::Summary(_)) | None => {}
    }
    metric
}

fn end(point: &NumberDataPoint, time: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: point.attributes.clone(),
        start_time_unix_nano: point.start_time_unix_nano,
        time_unix_nano: time,
        flags: DataPointFlags::NoRecordedValueMask as u32,
        ..Default::default()
    }
}
