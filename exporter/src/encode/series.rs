//! The life of a series: begins with the pane in which something is said of it, is carried on from pane to pane, and
//! ends once.
//!
//! | said at a pane | a level | a total, a histogram | a count |
//! |---|---|---|---|
//! | again | the new value | the new value; a smaller one is a reset, and begins anew | is added |
//! | not | ends | ends | ends |
//!
//! A series that was shipped ends with one point without a value (`FLAG_NO_RECORDED_VALUE`, the end of a series in the
//! OTLP data model): otherwise a backend goes on showing the last value (Prometheus: for 5 minutes), and an owner whose
//! evidence changed its class counts twice. What it counted since it was shipped last goes out before.

use std::sync::Arc;

use super::rows::{Amount, Number};
use crate::histogram::Histogram;

/// The time between two closings of books, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pane {
    /// The end of the pane before.
    pub(super) begin: u64,
    /// Its own end, the time of all points.
    pub(super) end: u64,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sum {
    Number(Number),
    Histogram(Arc<Histogram>),
}

/// Where a series is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Live,
    /// It is over, and what it counted last is not shipped.
    Last,
    /// It is over, and that has to be told.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Level,
    Total,
    Count,
}

/// One series.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) phase: Phase,
    /// The start of all its points, but for resets.
    pub(super) start: u64,
    pub(super) value: Sum,
    /// The value that arrived last, and as of when.
    pub(super) shipped: Option<(u64, Sum)>,
    /// The value that was sent last, and as of when; whether it arrives is not known yet.
    pub(super) sent: Option<(u64, Sum)>,
    /// The shipment under way holds its last value, or its end.
    pub(super) told: bool,
    kind: Kind,
}

impl Series {
    /// A series of which something is said for the first time.
    pub(super) fn begin(amount: Amount, pane: Pane) -> Self {
        let (kind, value) = match amount {
            Amount::Level(number) => (Kind::Level, Sum::Number(number)),
            Amount::Total(number) => (Kind::Total, Sum::Number(number)),
            Amount::Observed(histogram) => (Kind::Total, Sum::Histogram(histogram)),
            Amount::Added(sum) => (Kind::Count, sum),
        };
        Self {
            phase: Phase::Live,
            start: pane.begin,
            value,
            shipped: None,
            sent: None,
            told: false,
            kind,
        }
    }

    /// Something is said of it again. One that is over goes on, unless the shipment under way tells its end: then another
    /// one begins, of which the other side knows if that shipment does not arrive.
    pub(super) fn again(&mut self, amount: Amount, pane: Pane) {
        let next = Self::begin(amount, pane);
        if self.phase == Phase::Gone && self.told || self.kind != next.kind {
            let sent = self.sent.take().or(self.shipped.take());
            *self = Self { sent, told: self.told, ..next };
            return;
        }
        let (value, reset) = match self.kind {
            Kind::Count => (self.value.with(&next.value), false),
            Kind::Level => (next.value, false),
            Kind::Total => {
                let reset = less(&next.value, &self.value);
                (next.value, reset)
            }
        };
        (self.phase, self.told) = (Phase::Live, false);
        self.value = value;
        if reset {
            (self.start, self.shipped, self.sent) = (pane.begin, None, None);
        }
    }

    /// The shipment under way met its fate: it `arrived`, or not; what was counted in it is `lost` then. Returns whether
    /// the series is to be kept.
    pub(super) fn settled(&mut self, arrived: bool, lost: bool) -> bool {
        let told = std::mem::take(&mut self.told);
        if told && self.phase == Phase::Live {
            // What was told is the end of one before it.
            self.sent = self.sent.take().filter(|_| !arrived);
            return true;
        }
        if arrived || lost {
            self.shipped = self.sent.take().or(self.shipped.take());
            if told && self.phase == Phase::Last {
                self.phase = Phase::Gone;
                return true;
            }
        }
        !(told && arrived && self.phase == Phase::Gone)
    }

    /// Whether it only grows.
    pub(super) fn counts(&self) -> bool {
        self.kind != Kind::Level
    }

    /// Nothing is said of it: it is over. Returns whether it is to be kept, as somebody has to be told.
    pub(super) fn silent(&mut self) -> bool {
        if self.phase != Phase::Live {
            return true;
        }
        let arrived = self.shipped.as_ref().is_some_and(|(_, value)| *value == self.value);
        self.phase = if self.counts() && !arrived { Phase::Last } else { Phase::Gone };
        self.phase == Phase::Last || self.shipped.is_some() || self.sent.is_some()
    }
}

fn less(a: &Sum, b: &Sum) -> bool {
    match (a, b) {
        (Sum::Number(Number::Int(a)), Sum::Number(Number::Int(b))) => a < b,
        (Sum::Number(Number::Float(a)), Sum::Number(Number::Float(b))) => a < b,
        (Sum::Histogram(a), Sum::Histogram(b)) => a.count() < b.count(),
        (Sum::Number(_) | Sum::Histogram(_), Sum::Number(_) | Sum::Histogram(_)) => true,
    }
}

impl Sum {
    /// With what was counted since. One of another form takes its place.
    fn with(&self, added: &Self) -> Self {
        match (self, added) {
            (Self::Number(Number::Int(a)), Self::Number(Number::Int(b))) => {
                Self::Number(Number::Int(a.saturating_add(*b)))
            }
            (Self::Number(Number::Float(a)), Self::Number(Number::Float(b))) => {
                Self::Number(Number::Float(a + b))
            }
            (Self::Histogram(a), Self::Histogram(b)) => {
                let mut sum = a.as_ref().clone();
                sum.merge(b);
                // Those of earlier panes have been told.
                sum.exemplars = b.exemplars.clone();
                Self::Histogram(Arc::new(sum))
            }
            (_, added) => added.clone(),
        }
    }

    /// What was counted since it was `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        match (self, earlier) {
            (Self::Number(Number::Int(a)), Self::Number(Number::Int(b))) => {
                Self::Number(Number::Int(a.saturating_sub(*b)))
            }
            (Self::Number(Number::Float(a)), Self::Number(Number::Float(b))) => {
                Self::Number(Number::Float(a - b))
            }
            (Self::Histogram(a), Self::Histogram(b)) => Self::Histogram(Arc::new(a.since(b))),
            (whole, _) => whole.clone(),
        }
    }
}
