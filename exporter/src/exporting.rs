//! What leaves the host: each pane's report goes into the series, which the client ships.

use std::time::Duration;

use memprov_ledger::time::MonoTime;

use crate::config::Config;
use crate::encode::{Accumulator, Mirrored, Options, Records, Shared, Window};
use crate::otlp::{Exporter, Settings, StartError, Stats};
use crate::report::Report;
use crate::trace::Header;
use crate::wall;

/// How long the last shipment may take at the end.
const LAST: Duration = Duration::from_secs(3);

/// The way out; nothing where no endpoint is configured.
pub struct Exporting {
    exporter: Option<Exporter>,
    /// Exemplars as log records, where they are asked for.
    logs: Option<Exporter>,
    /// Who sent them before: some may still be under way.
    left: Vec<Exporter>,
    /// What became of those that others sent before, who have ended.
    before: Mirrored,
    records: Records,
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
        let (before, records) = (Mirrored::default(), Records::default());
        let (exporter, logs, left, header) = (None, None, Vec::new(), header.clone());
        let mut exporting = Self { exporter, logs, left, before, records, series, header };
        exporting.change(config)?;
        Ok(exporting)
    }

    /// Goes by another configuration. The series stay: no endpoint, a new one and the same again tell one history.
    ///
    /// # Errors
    /// As [`Self::start`]; then nothing changes.
    pub fn change(&mut self, config: &Config) -> Result<(), StartError> {
        let [metrics, logs] = Settings::both(config, &self.header.identity)?;
        let logs = logs.map(Settings::proved).transpose()?;
        match (metrics, &self.exporter) {
            (Some(settings), Some(exporter)) => exporter.change(settings)?,
            (Some(settings), None) => {
                self.exporter = Some(Exporter::start(settings, self.series.clone())?);
            }
            (None, _) => {
                if let Some(exporter) = self.exporter.take() {
                    exporter.leave(LAST);
                }
            }
        }
        match (logs, &self.logs) {
            (Some(settings), Some(logs)) => logs.change(settings)?,
            (Some(settings), None) => {
                self.logs = Some(Exporter::start(settings, self.records.clone())?);
            }
            (None, _) => {
                if let Some(logs) = self.logs.take() {
                    logs.leave(LAST);
                    for ended in self.left.extract_if(.., |left| left.ended()) {
                        self.before = with(self.before, &ended.stats());
                    }
                    self.left.push(logs);
                }
            }
        }
        // Records that nobody takes are not made.
        let exemplar_logs = self.logs.is_some();
        self.series.change(Options { exemplar_logs, ..Options::of(config) });
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
        self.series.mirrored(self.mirrored(self.logs.as_ref().map(Exporter::stats)));
        let records = self.series.pane(report, window);
        if let Some(exporter) = &self.exporter {
            exporter.poke();
        }
        if let Some(logs) = &self.logs
            && records.points() > 0
        {
            self.records.offer(records);
            logs.poke();
        }
    }

    /// What became of log records so far, with what those who send them now say; `None`: none were asked for yet. Counts go
    /// on while there are none and when there are some again.
    fn mirrored(&self, now: Option<Stats>) -> Option<Mirrored> {
        let left = self.left.iter().map(Exporter::stats);
        let refused = self.before.refused + self.records.dropped();
        let before = Mirrored { refused, ..self.before };
        let senders: Vec<Stats> = now.into_iter().chain(left).collect();
        (!senders.is_empty()).then(|| senders.iter().fold(before, with))
    }

    /// Sends what is left, and that all series end, for a short while.
    pub fn finish(mut self, end: MonoTime) {
        // Both have the same time.
        let logs = self.logs.take().inspect(|logs| logs.leave(LAST));
        if let Some(exporter) = self.exporter.take() {
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
        if let Some(Mirrored { delivered, rejected, refused }) =
            self.mirrored(logs.map(|logs| logs.shutdown(LAST)))
        {
            tracing::info!(delivered, rejected, refused, "export of log records ended");
        }
    }
}

fn with(sum: Mirrored, more: &Stats) -> Mirrored {
    Mirrored {
        delivered: sum.delivered + more.delivered_points,
        rejected: sum.rejected + more.rejected_points,
        refused: sum.refused + more.refused_points,
    }
}
