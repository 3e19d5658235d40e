//! The client's own metrics, by the OpenTelemetry SDK.
//!
//! They travel as the last part of each shipment, on the same line: a second exporter would have a connection, retries
//! and limits of its own. The SDK counts and encodes; its reader is asked when a shipment begins, so that they say what
//! became of the shipments before.

use std::sync::{Arc, Weak};
use std::time::Duration;

use memprov_semconv as semconv;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, MeterProvider};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, SdkMeterProvider};
use tokio::sync::watch;

use super::request::Request;
use super::stats::Stats;
use crate::config::{Attributes, Temporality};

/// Bounds of the duration of one attempt, in seconds.
const SECONDS: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Counts of the client, ready to be sent by it.
pub(super) struct Own {
    reader: Reader,
    duration: Histogram<f64>,
    /// Instruments live as long as their provider.
    _provider: SdkMeterProvider,
}

impl Own {
    /// `resource` says who the agent is; `stats` is what is told.
    pub(super) fn new(
        resource: &Attributes,
        temporality: Temporality,
        stats: &watch::Receiver<Stats>,
    ) -> Self {
        let temporality = match temporality {
            Temporality::Cumulative => opentelemetry_sdk::metrics::Temporality::Cumulative,
            Temporality::Delta => opentelemetry_sdk::metrics::Temporality::Delta,
            Temporality::LowMemory => opentelemetry_sdk::metrics::Temporality::LowMemory,
        };
        let reader = ManualReader::builder().with_temporality(temporality).build();
        let reader = Reader(Arc::new(reader));
        let attributes = resource.0.iter().map(|(key, v)| KeyValue::new(key.clone(), v.clone()));
        let resource = Resource::builder_empty().with_attributes(attributes).build();
        let provider =
            SdkMeterProvider::builder().with_resource(resource).with_reader(reader.clone()).build();
        let meter = provider.meter("memprov");
        let count = |metric: &semconv::Metric, outcomes: &'static [Outcome]| {
            let stats = stats.clone();
            let observe = move |observer: &dyn opentelemetry::metrics::AsyncInstrument<u64>| {
                let stats = *stats.borrow();
                for (outcome, number) in outcomes {
                    observer.observe(
                        number(&stats),
                        &[KeyValue::new(semconv::EXPORT_OUTCOME.as_str(), *outcome)],
                    );
                }
            };
            let counter = meter.u64_observable_counter(metric.name).with_unit(metric.unit);
            let _registered = counter.with_description(metric.brief).with_callback(observe).build();
        };
        count(&semconv::EXPORT_REQUESTS, &REQUESTS);
        count(&semconv::EXPORT_POINTS, &POINTS);
        count(&semconv::EXPORT_SIZE, &BYTES);
        let told = &semconv::EXPORT_DURATION;
        let duration = meter.f64_histogram(told.name).with_unit(told.unit);
        let duration = duration.with_description(told.brief);
        let duration = duration.with_boundaries(SECONDS.to_vec()).build();
        Self { reader, duration, _provider: provider }
    }

    /// An attempt took this long.
    pub(super) fn took(&self, duration: Duration) {
        self.duration.record(duration.as_secs_f64(), &[]);
    }

    /// What was counted until now.
    pub(super) fn collect(&self) -> Option<Request> {
        let mut metrics = ResourceMetrics::default();
        self.reader.collect(&mut metrics).ok()?;
        Some(ExportMetricsServiceRequest::from(&metrics).into())
    }
}

/// What became of something, and how many of it there are.
type Outcome = (&'static str, fn(&Stats) -> u64);

const REQUESTS: [Outcome; 3] = [
    ("delivered", |stats| stats.sent),
    ("refused", |stats| stats.refused),
    ("retried", |stats| stats.retries),
];

const POINTS: [Outcome; 4] = [
    ("delivered", |stats| stats.delivered_points),
    ("rejected", |stats| stats.rejected_points),
    ("refused", |stats| stats.refused_points),
    ("replaced", |stats| stats.replaced_points),
];

const BYTES: [Outcome; 1] = [("delivered", |stats| stats.bytes)];

/// The SDK takes a reader for good, and it is still to be asked.
#[derive(Clone, Debug)]
struct Reader(Arc<ManualReader>);

impl MetricReader for Reader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> opentelemetry_sdk::metrics::Temporality {
        self.0.temporality(kind)
    }
}
