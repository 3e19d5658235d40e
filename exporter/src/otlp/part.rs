//! One request of a shipment: how many points it has, its two halves, and the bytes that travel.

use std::io::{self, Write};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, Gauge, Histogram, Metric, ResourceMetrics, ScopeMetrics, Sum, Summary,
    metric::Data,
};
use prost::Message;

use crate::config::Compression;

/// zlib's level: 2 costs two fifths of the time of the usual 6, for a tenth more bytes (docs/PERFORMANCE.md).
const GZIP_LEVEL: u32 = 2;
/// zstd's level.
const ZSTD_LEVEL: i32 = 3;

/// Bytes before a message in a body of gRPC: a flag, and the length in big endian (gRPC over HTTP/2, "Length-Prefixed
/// Message").
pub(super) const PREFIX: usize = 5;

/// A request as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// [`PREFIX`] of gRPC, then the message, compressed.
    framed: Bytes,
}

impl Packed {
    /// Encodes and compresses a request.
    ///
    /// # Errors
    /// When the compressor fails.
    pub fn new(request: &impl Message, compression: Compression) -> io::Result<Self> {
        let message = request.encode_to_vec();
        let flag = u8::from(compression != Compression::None);
        let mut framed = vec![flag, 0, 0, 0, 0];
        match compression {
            Compression::None => framed.extend_from_slice(&message),
            Compression::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                let mut encoder = flate2::write::GzEncoder::new(&mut framed, level);
                encoder.write_all(&message)?;
                encoder.finish()?;
            }
            Compression::Zstd => zstd::stream::copy_encode(&message[..], &mut framed, ZSTD_LEVEL)?,
        }
        let length = framed.len() - PREFIX;
        let length = u32::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if let Some(place) = framed.get_mut(1..PREFIX) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        Ok(Self { framed: framed.into() })
    }

    /// A body of HTTP: the message.
    pub(super) fn message(&self) -> Bytes {
        self.framed.slice(PREFIX..)
    }

    /// A body of gRPC.
    pub(super) fn framed(&self) -> Bytes {
        self.framed.clone()
    }

    /// Bytes of the message after compression.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.framed.len() - PREFIX) as u64
    }

    /// Whether there is no message: an empty request, not compressed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How many points a request has.
pub(super) fn points(request: &ExportMetricsServiceRequest) -> usize {
    request.resource_metrics.iter().map(in_resource).sum()
}

/// Two requests with half the points each; the request itself where there are no two points.
pub(super) fn halves(
    mut request: ExportMetricsServiceRequest,
) -> Result<(ExportMetricsServiceRequest, ExportMetricsServiceRequest), ExportMetricsServiceRequest>
{
    let half = points(&request) / 2;
    if half == 0 {
        return Err(request);
    }
    let rest = cut(&mut request.resource_metrics, half, in_resource, cut_resource);
    Ok((request, ExportMetricsServiceRequest { resource_metrics: rest }))
}

fn in_resource(resource: &ResourceMetrics) -> usize {
    resource.scope_metrics.iter().map(in_scope).sum()
}

fn in_scope(scope: &ScopeMetrics) -> usize {
    scope.metrics.iter().map(in_metric).sum()
}

fn in_metric(metric: &Metric) -> usize {
    match &metric.data {
        None => 0,
        Some(Data::Gauge(data)) => data.data_points.len(),
        Some(Data::Sum(data)) => data.data_points.len(),
        Some(Data::Histogram(data)) => data.data_points.len(),
        Some(Data::ExponentialHistogram(data)) => data.data_points.len(),
        Some(Data::Summary(data)) => data.data_points.len(),
    }
}

/// Leaves the first `at` points in `items` and returns the others. The item in which the cut lies is in both.
fn cut<T>(
    items: &mut Vec<T>,
    mut at: usize,
    points: fn(&T) -> usize,
    inside: fn(&mut T, usize) -> T,
) -> Vec<T> {
    let mut whole = 0;
    for item in items.iter() {
        let here = points(item);
        if here > at {
            break;
        }
        at -= here;
        whole += 1;
    }
    let mut rest = items.split_off(whole);
    if at > 0
        && let Some(first) = rest.first_mut()
    {
        let tail = inside(first, at);
        items.push(std::mem::replace(first, tail));
    }
    rest
}

fn cut_resource(resource: &mut ResourceMetrics, at: usize) -> ResourceMetrics {
    let scope_metrics = cut(&mut resource.scope_metrics, at, in_scope, cut_scope);
    let (of, schema_url) = (resource.resource.clone(), resource.schema_url.clone());
    ResourceMetrics { resource: of, scope_metrics, schema_url }
}

fn cut_scope(scope: &mut ScopeMetrics, at: usize) -> ScopeMetrics {
    let metrics = cut(&mut scope.metrics, at, in_metric, cut_metric);
    ScopeMetrics { scope: scope.scope.clone(), metrics, schema_url: scope.schema_url.clone() }
}

fn cut_metric(metric: &mut Metric, at: usize) -> Metric {
    let data = metric.data.as_mut().map(|data| match data {
        Data::Gauge(data) => {
            let data_points = data.data_points.split_off(at);
            Data::Gauge(Gauge { data_points })
        }
        Data::Sum(data) => {
            let data_points = data.data_points.split_off(at);
            Data::Sum(Sum { data_points, ..*data })
        }
        Data::Histogram(data) => {
            let data_points = data.data_points.split_off(at);
            Data::Histogram(Histogram { data_points, ..*data })
        }
        Data::ExponentialHistogram(data) => {
            let data_points = data.data_points.split_off(at);
            Data::ExponentialHistogram(ExponentialHistogram { data_points, ..*data })
        }
        Data::Summary(data) => {
            let data_points = data.data_points.split_off(at);
            Data::Summary(Summary { data_points })
        }
    });
    Metric {
        name: metric.name.clone(),
        description: metric.description.clone(),
        unit: metric.unit.clone(),
        metadata: metric.metadata.clone(),
        data,
    }
}
