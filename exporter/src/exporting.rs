//! What leaves the host: a pane's report, encoded and offered to the endpoint.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use memprov_ledger::time::MonoTime;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;

use crate::config::Config;
use crate::encode::{self, Window, request};
use crate::otlp::{Exporter, Fate, Feed, Settings, Shipment, StartError};
use crate::report::Report;
use crate::trace::Header;
use crate::wall;

/// How long the last request may take at the end.
const LAST: Duration = Duration::from_secs(3);

/// Encoded bytes of one part of a shipment.
const PART: usize = 3 << 20;

/// The way out; nothing where no endpoint is configured.
pub struct Exporting {
    exporter: Option<Exporter>,
    newest: Arc<Mutex<Newest>>,
    header: Header,
    owners: usize,
    max_age: Duration,
}

/// The newest totals, and those that were delivered last: all points are cumulative.
#[derive(Default)]
struct Newest {
    number: u64,
    settled: u64,
    request: ExportMetricsServiceRequest,
    delivered: ExportMetricsServiceRequest,
    sending: ExportMetricsServiceRequest,
}

/// The client's hold on what is shared with the fuser.
struct Shared(Arc<Mutex<Newest>>);

impl Feed for Shared {
    /// Series that ended since the last delivery go last, so that their ends cannot overtake what replaces them.
    fn next(&mut self) -> Option<Shipment> {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.number == newest.settled {
            return None;
        }
        newest.sending = newest.request.clone();
        let ended = encode::ended(&newest.delivered, &newest.request);
        let mut parts = Vec::new();
        for message in [&newest.request, &ended] {
            for range in encode::split(message, PART) {
                let resource_metrics = message.resource_metrics.get(range).unwrap_or_default();
                let resource_metrics = resource_metrics.to_vec();
                parts.push(ExportMetricsServiceRequest { resource_metrics });
            }
        }
        Some(Shipment { number: newest.number, parts, replaceable: true })
    }

    fn settle(&mut self, number: u64, fate: Fate) {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = std::mem::take(&mut newest.sending);
        match fate {
            Fate::Delivered => newest.delivered = sent,
            Fate::Refused => {}
            Fate::Replaced => return,
        }
        newest.settled = number;
    }
}

impl Exporting {
    /// Starts the exporter if an endpoint is configured.
    ///
    /// # Errors
    /// When the endpoint is none, its TLS cannot be prepared, or the thread cannot be started.
    pub fn start(config: &Config, header: &Header) -> Result<Self, StartError> {
        let newest = Arc::default();
        let exporter = match config.export.endpoint.is_empty() {
            true => None,
            false => {
                let settings = Settings::new(&config.export, &header.identity.host_id)?;
                Some(Exporter::start(settings, Shared(Arc::clone(&newest)))?)
            }
        };
        let owners = usize::try_from(config.export.max_owners).unwrap_or(usize::MAX);
        let (header, max_age) = (header.clone(), config.scan.max_age);
        Ok(Self { exporter, newest, header, owners, max_age })
    }

    /// Whether anybody wants reports.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.exporter.is_some()
    }

    /// Sends a report of the pane that ended at `end`. A process whose books are older than the configured age is left
    /// out: a gap, not a repeated number.
    pub fn offer(&self, report: &Report, end: MonoTime) {
        if let Some(exporter) = &self.exporter {
            let oldest = MonoTime(end.0.saturating_sub(nanos(self.max_age)));
            let oldest = wall::unix_nanos(self.header.clock, oldest);
            let mut report = report.clone();
            report.processes.retain(|p| wall::parse(&p.as_of).is_some_and(|at| at >= oldest));
            let report = &report;
            let window = Window {
                start: wall::unix_nanos(self.header.clock, self.header.watching_since),
                end: wall::unix_nanos(self.header.clock, end),
            };
            let request = request(report, &self.header.identity, window, self.owners);
            let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
            newest.number += 1;
            newest.request = request;
            drop(newest);
            exporter.poke();
        }
    }

    /// Sends what is left, for a short while.
    pub fn finish(self) {
        if let Some(exporter) = self.exporter {
            let stats = exporter.shutdown(LAST);
            tracing::info!(?stats, "export ended");
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
