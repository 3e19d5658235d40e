//! What samples of one owner in one space add up to.

use super::populated::Populated;
use super::slices::{Grid, Slices};
use super::sums::Sums;
use crate::exemplar::Exemplars;
use crate::histogram::Histogram;

/// What became of a sample: one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It has an owner.
    Attributed,
    /// It can be one of several owners'.
    Ambiguous,
    /// Nothing was mapped at its address.
    Unowned,
    /// What was mapped at its address is not known.
    Unknown,
    /// Its address is the kernel's.
    Kernel,
    /// It has no address.
    NoAddress,
    /// It has an owner, and a latency that no access takes.
    Implausible,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Attributed,
        Self::Ambiguous,
        Self::Unowned,
        Self::Unknown,
        Self::Kernel,
        Self::NoAddress,
        Self::Implausible,
    ];

    /// Its name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Attributed => "attributed",
            Self::Ambiguous => "ambiguous",
            Self::Unowned => "unowned",
            Self::Unknown => "unknown",
            Self::Kernel => "kernel",
            Self::NoAddress => "no_address",
            Self::Implausible => "implausible",
        }
    }
}

/// Samples added up.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// By locality.
    pub sums: Sums,
    /// Cycles, each counted as often as its period says.
    pub latency: Histogram,
    /// Samples by [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Samples whose latency is known and can be.
    pub timed: u64,
    /// Samples of which the two methods contradict each other.
    pub conflicts: u64,
    /// What page faults made present.
    pub populated: Populated,
}

impl Part {
    /// Adds those of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        self.latency.merge(&other.latency);
        self.outcomes.iter_mut().zip(other.outcomes).for_each(|(sum, n)| *sum += n);
        self.timed += other.timed;
        self.conflicts += other.conflicts;
        self.populated.merge(&other.populated);
    }
}

/// Samples of one owner in one space.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    /// Up to the begin of the pane that is open. Its exemplars are told already.
    pub before: Part,
    /// In that pane.
    pub pane: Part,
    /// In the window.
    pub slices: Slices,
}

impl Slot {
    /// The pane that is open ends.
    pub(super) fn close(&mut self) {
        self.before.merge(&self.pane);
        self.before.latency.exemplars = Exemplars::default();
        self.pane = Part::default();
    }

    /// Takes in all that `other` has.
    pub(super) fn absorb(&mut self, other: &Self, grid: &Grid) {
        self.before.merge(&other.before);
        self.pane.merge(&other.pane);
        self.slices.merge(&other.slices, grid);
    }
}
