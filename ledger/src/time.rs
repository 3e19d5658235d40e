//! Time as sources report it: nanoseconds of `CLOCK_MONOTONIC`, and spans with width.

use std::time::Duration;

/// An instant on `CLOCK_MONOTONIC`, in nanoseconds. Wall time exists only at export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct MonoTime(pub u64);

impl MonoTime {
    /// The instant `d` later, saturating at the end of time.
    #[must_use]
    pub fn after(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero when it was not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// When something happened: no earlier than `begin`, no later than `end`.
///
/// A call is bracketed by its entry and its return, a reading by the instants before and after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span {
    /// The earliest instant it can have happened.
    pub begin: MonoTime,
    /// The latest instant it can have happened.
    pub end: MonoTime,
}

impl Span {
    /// The span of one instant.
    #[must_use]
    pub fn at(t: MonoTime) -> Self {
        Self { begin: t, end: t }
    }

    /// Whether some instant lies in both spans.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.begin <= other.end && other.begin <= self.end
    }
}
