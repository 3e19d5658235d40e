//! What leaves the host: a pane's report, encoded and offered to the endpoint.

use std::time::Duration;

use memprov_ledger::time::MonoTime;

use crate::config::Config;
use crate::encode::{Window, request};
use crate::otlp::{Exporter, Pace, StartError};
use crate::report::Report;
use crate::trace::Header;
use crate::wall;

/// How long the last request may take at the end.
const LAST: Duration = Duration::from_secs(3);

/// The way out; nothing where no endpoint is configured.
pub struct Exporting {
    exporter: Option<Exporter>,
    header: Header,
    owners: usize,
    max_age: Duration,
}

impl Exporting {
    /// Starts the exporter if an endpoint is configured.
    ///
    /// # Errors
    /// When the endpoint is none, or the thread cannot be started.
    pub fn start(config: &Config, header: &Header) -> Result<Self, StartError> {
        let endpoint = &config.export.endpoint;
        let exporter = match endpoint.is_empty() {
            true => None,
            false => Some(Exporter::start(endpoint, Pace::default())?),
        };
        let owners = usize::try_from(config.export.max_owners).unwrap_or(usize::MAX);
        Ok(Self { exporter, header: header.clone(), owners, max_age: config.scan.max_age })
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
            exporter.offer(request(report, &self.header.identity, window, self.owners));
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
