//! Sampled accesses between panes.
//!
//! A report tells what each owner had since the start, for as long as it tells of that owner. What is added to a series
//! is the difference to the pane before: sums of a resource do not fall when a process ends.

use std::collections::HashMap;

use memprov_semconv::{access_method, access_outcome, numa_locality};

use crate::histogram::Histogram;
use crate::report::{AccessRow, AccessSums, Located};

/// Values of `memprov.numa.locality`.
pub(super) const LOCALITIES: [&str; 5] = [
    numa_locality::LOCAL,
    numa_locality::NEAR,
    numa_locality::REMOTE,
    numa_locality::TIER,
    numa_locality::UNKNOWN,
];
/// Values of `memprov.access.method`.
pub(super) const METHODS: [&str; 2] = [access_method::SERVED, access_method::PLACEMENT];
/// Values of `memprov.access.outcome`.
pub(super) const OUTCOMES: [&str; 7] = [
    access_outcome::ATTRIBUTED,
    access_outcome::AMBIGUOUS,
    access_outcome::UNOWNED,
    access_outcome::UNKNOWN,
    access_outcome::KERNEL,
    access_outcome::NO_ADDRESS,
    access_outcome::IMPLAUSIBLE,
];

/// What one place has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Placed {
    pub(super) time: u64,
    pub(super) squares: f64,
}

/// Accesses since the last pane. What is not there never was: what there was before goes on with nothing added.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Accessed {
    /// By [`METHODS`] and [`LOCALITIES`].
    pub(super) places: [[Option<Placed>; LOCALITIES.len()]; METHODS.len()],
    /// By [`OUTCOMES`].
    pub(super) samples: [Option<u64>; OUTCOMES.len()],
    pub(super) latency: Option<Histogram>,
}

impl Accessed {
    fn of(sums: &AccessSums) -> Self {
        let places = METHODS.map(|method| {
            let time = sums.methods.get(method).and_then(|measured| measured.time.as_ref());
            let Some(Located { weights, squares, .. }) = time else { return Default::default() };
            LOCALITIES.map(|at| {
                let squares = squares.get(at).copied().unwrap_or(0.0);
                weights.get(at).map(|time| Placed { time: *time, squares })
            })
        });
        let samples = OUTCOMES.map(|outcome| sums.samples.get(outcome).copied());
        Self { places, samples, latency: sums.latency.clone() }
    }

    fn since(&self, before: &Self) -> Self {
        let mut added = self.clone();
        let places = added.places.iter_mut().flatten().zip(before.places.iter().flatten());
        for (now, before) in places {
            if let (Some(now), Some(before)) = (now, before) {
                now.time = now.time.saturating_sub(before.time);
                now.squares = (now.squares - before.squares).max(0.0);
            }
        }
        for (now, before) in added.samples.iter_mut().zip(before.samples) {
            *now = now.map(|now| now.saturating_sub(before.unwrap_or(0)));
        }
        if let (Some(now), Some(before)) = (&mut added.latency, &before.latency) {
            *now = now.since(before);
        }
        added
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let places = self.places.iter_mut().flatten().zip(other.places.iter().flatten());
        for (sum, more) in places {
            if let Some(more) = more {
                let sum = sum.get_or_insert_default();
                sum.time = sum.time.saturating_add(more.time);
                sum.squares += more.squares;
            }
        }
        for (sum, more) in self.samples.iter_mut().zip(other.samples) {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        }
        if let Some(more) = &other.latency {
            self.latency.get_or_insert_default().merge(more);
        }
    }

    /// Time by the first method.
    pub(super) fn time(&self) -> u64 {
        self.places[0].iter().flatten().fold(0, |sum, placed| sum.saturating_add(placed.time))
    }
}

/// Whose accesses: space, owner, population.
type Whose = (Option<String>, String, String);

/// What rows had when they were last told.
#[derive(Debug, Default)]
pub(super) struct Seen {
    rows: HashMap<Whose, Accessed>,
    now: HashMap<Whose, Accessed>,
}

impl Seen {
    /// What a row added.
    pub(super) fn added(&mut self, row: &AccessRow) -> Accessed {
        let whose = (row.space.clone(), row.id.clone(), row.population.clone());
        let told = Accessed::of(&row.sums);
        let added = match self.rows.get(&whose) {
            Some(before) => told.since(before),
            None => told.clone(),
        };
        self.now.insert(whose, told);
        added
    }

    /// A pane ends: who was not told of in it is forgotten.
    pub(super) fn end(&mut self) {
        self.rows = std::mem::take(&mut self.now);
    }
}
