//! What leaves the host: each pane's report goes into the series, which the client ships.

use std::time::Duration;

use memprov_ledger::time::MonoTime;

use crate::config::Config;
use crate::encode::{Accumulator, Options, Shared, Window};
use crate::otlp::{Exporter, Settings, StartError};
use crate::report::Report;
use crate::trace::Header;
use crate::wall;

/// How long the last shipment may take at the end.
const LAST: Duration = Duration::from_secs(3);

/// The way out; nothing where no endpoint is configured.
pub struct Exporting {
    exporter: Option<Exporter>,
    series: Shared,
    header: Header,
}

impl Exporting {
    /// Starts the exporter if an endpoint is configured.
    ///
    /// # Errors
    /// When the endpoint is none, its TLS cannot be prepared, or the thread cannot be started.
    pub fn start(config: &Config, header: &Header) -> Result<Self, StartError> {
        let series = Shared::new(Accumulator::new(Options::of(config)));
        let mut exporting = Self { exporter: None, series, header: header.clone() };
        exporting.change(config)?;
        Ok(exporting)
    }

    /// Goes by another configuration. The series stay: no endpoint, a new one and the same again tell one history.
    ///
    /// # Errors
    /// As [`Self::start`]; then nothing changes.
    pub fn change(&mut self, config: &Config) -> Result<(), StartError> {
        if config.export.endpoint.is_empty() {
            if let Some(exporter) = self.exporter.take() {
                exporter.leave(LAST);
            }
        } else {
            let settings = Settings::new(&config.export, &self.header.identity)?;
            match &self.exporter {
                Some(exporter) => exporter.change(settings)?,
                None => self.exporter = Some(Exporter::start(settings, self.series.clone())?),
            }
        }
        self.series.change(Options::of(config));
        Ok(())
    }

    /// Whether reports are wanted: somebody is told, or was, and may be told again.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.exporter.is_some() || self.series.begun()
    }

    /// Takes in the report of the pane that ended at `end`.
    pub fn offer(&self, report: &Report, end: MonoTime) {
        if !self.wanted() {
            return;
        }
        let window = Window {
            start: wall::unix_nanos(self.header.clock, self.header.watching_since),
            end: wall::unix_nanos(self.header.clock, end),
        };
        self.series.pane(report, window);
        if let Some(exporter) = &self.exporter {
            exporter.poke();
        }
    }

    /// Sends what is left, and that all series end, for a short while.
    pub fn finish(self, end: MonoTime) {
        if let Some(exporter) = self.exporter {
            self.series.close(wall::unix_nanos(self.header.clock, end));
            let before = self.series.panes().refused;
            let stats = exporter.shutdown(LAST);
            let panes = self.series.panes();
            tracing::info!(
                requests = stats.sent,
                refused_requests = stats.refused,
                retries = stats.retries,
                bytes = stats.bytes,
                points = stats.delivered_points,
                rejected_points = stats.rejected_points,
                refused_points = stats.refused_points,
                panes = panes.delivered,
                replaced_panes = panes.replaced,
                refused_panes = panes.refused,
                "export ended"
            );
            let missed = panes.refused - before;
            if missed > 0 {
                tracing::warn!(panes = missed, "what was to be sent last did not arrive");
            }
        }
    }
}
