//! The series of a recording, sent to an OTLP receiver: pane after pane, each when the one before has arrived.
//!
//! A daemon never waits, and a newer pane goes instead of one that did not arrive. A recording has time: every pane
//! arrives, or the import has failed. So it is with log records, where exemplars are sent as such, too.

use std::time::Duration;

use crate::config::Config;
use crate::encode::{Accumulator, Options, Records, Shared, Window};
use crate::otlp::{Exporter, Settings, StartError, Stats};
use crate::report::Report;
use crate::trace::Header;

/// How many times the longest wait for one answer a pane may take to arrive.
const ATTEMPTS: u32 = 3;
/// How much later than the last pane all series end: stores tell times apart by milliseconds.
const AFTER: u64 = 1_000_000;

/// Why a recording was not sent as a whole.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no way to send.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A pane did not arrive in time.
    #[error("send the pane that ends at {end} to {endpoint}: no success within {within:?}")]
    Late {
        /// Its end, RFC 3339.
        end: String,
        /// Where to.
        endpoint: String,
        /// How long it was tried.
        within: Duration,
    },
    /// The receiver did not take all of it.
    #[error(
        "send to {endpoint}: {delivered} {what} arrived, {rejected} were rejected, {refused} refused"
    )]
    Partly {
        /// Where to.
        endpoint: String,
        /// Points, or log records.
        what: &'static str,
        /// Those that arrived.
        delivered: u64,
        /// Those that were left out of requests that were taken.
        rejected: u64,
        /// Those of requests that were not, or that found no room.
        refused: u64,
    },
}

/// Series on their way.
pub struct Sending {
    exporter: Exporter,
    series: Shared,
    /// Exemplars as log records, where they are asked for.
    logs: Option<(Exporter, Records)>,
    endpoint: String,
    within: Duration,
    /// The end of the newest pane.
    end: u64,
}

impl Sending {
    /// Starts the client.
    ///
    /// # Errors
    /// When the endpoint is none, its TLS cannot be prepared, or the thread cannot be started.
    pub fn start(config: &Config, header: &Header) -> Result<Self, SendError> {
        let export = &config.export;
        let settings = Settings::new(export, &header.identity)?.of_the_past();
        let series = Shared::new(Accumulator::new(Options::of(config)));
        let exporter = Exporter::start(settings, series.clone())?;
        let mut logs = None;
        if export.exemplar_logs {
            let settings = Settings::logs(export, &config.logs, &header.identity)?.of_the_past();
            let records = Records::default();
            logs = Some((Exporter::start(settings, records.clone())?, records));
        }
        let (endpoint, within) = (export.endpoint.clone(), export.timeout * ATTEMPTS);
        Ok(Self { exporter, series, logs, endpoint, within, end: 0 })
    }

    /// Sends the report of a pane, and waits until its fate is known.
    ///
    /// # Errors
    /// When it did not arrive in time. What of it was refused is told at the end.
    pub fn pane(&mut self, report: &Report) -> Result<(), SendError> {
        let window = Window::of(report);
        self.end = window.end;
        let records = self.series.pane(report, window);
        if let Some((logs, waiting)) = &self.logs
            && records.points() > 0
        {
            waiting.offer(records);
            logs.poke();
        }
        self.settle(&report.generated_at)
    }

    fn settle(&self, end: &str) -> Result<(), SendError> {
        self.exporter.poke();
        let arrived = |(_, records): &(Exporter, Records)| records.settled(self.within);
        if self.series.settled(self.within) && self.logs.as_ref().is_none_or(arrived) {
            return Ok(());
        }
        let (end, endpoint) = (end.to_owned(), self.endpoint.clone());
        Err(SendError::Late { end, endpoint, within: self.within })
    }

    /// Sends that all series end, and ends the client.
    ///
    /// # Errors
    /// When not everything arrived.
    pub fn finish(self) -> Result<Stats, SendError> {
        self.series.close(self.end.saturating_add(AFTER));
        let ended = self.settle("the end");
        let stats = self.exporter.shutdown(Duration::ZERO);
        let partly = |what, stats: Stats| {
            let Stats { delivered_points, rejected_points, refused_points, .. } = stats;
            let (delivered, rejected, refused) =
                (delivered_points, rejected_points, refused_points);
            let endpoint = self.endpoint.clone();
            let whole = rejected == 0 && refused == 0;
            let partly = SendError::Partly { endpoint, what, delivered, rejected, refused };
            if whole { Ok(()) } else { Err(partly) }
        };
        let records = self.logs.map(|(logs, records)| {
            let stats = logs.shutdown(self.within);
            let refused_points = stats.refused_points + records.dropped();
            Stats { refused_points, ..stats }
        });
        partly("points", stats)?;
        ended?;
        records.map_or(Ok(()), |stats| partly("log records", stats))?;
        Ok(stats)
    }
}
