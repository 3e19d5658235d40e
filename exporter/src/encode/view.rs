//! Two ways to tell the same sums: since the beginning, or since last time.

use super::series::{Phase, Series, Sum};
use crate::config::{Histograms, Temporality};

/// How the other side wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Since when counters and histograms count. Sums that go both ways are cumulative in any case, as the
    /// specification's preference `delta` says (OTLP metrics exporter, "temporality preference").
    pub temporality: Temporality,
    /// How histograms are told.
    pub histograms: Histograms,
}

impl Default for Style {
    fn default() -> Self {
        Self { temporality: Temporality::Cumulative, histograms: Histograms::Explicit }
    }
}

impl Style {
    /// Whether counters tell what was counted since last time.
    pub(super) fn deltas(self) -> bool {
        match self.temporality {
            Temporality::Cumulative => false,
            Temporality::Delta | Temporality::LowMemory => true,
        }
    }
}

/// Start and value of the point that a series makes at `now`; without a value it ends. Notes what is sent.
///
/// Delta points of a series follow each other without gap and overlap: each begins where the one before ended.
pub(super) fn ship(series: &mut Series, style: Style, now: u64) -> (u64, Option<Sum>) {
    let delta = style.deltas() && series.counts();
    let last = series.shipped.as_ref().filter(|_| delta);
    let start = last.map_or(series.start, |(at, _)| *at);
    series.told = series.phase != Phase::Live;
    if series.phase == Phase::Gone {
        return (start, None);
    }
    let value = match last {
        Some((_, before)) => series.value.since(before),
        None => series.value.clone(),
    };
    series.sent = Some((now, series.value.clone()));
    (start, Some(value))
}
