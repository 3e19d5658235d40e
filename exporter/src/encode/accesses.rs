//! What sampled accesses add to series in a pane.
//!
//! A report tells what each owner had since the start, and what of it the pane added. Series take in the latter: sums of
//! a resource neither fall nor are told twice when a process ends, an owner gets another name, or makes room for another.

use std::collections::BTreeMap;
use std::sync::Arc;

use memprov_ledger::evidence::EvidenceClass;
use memprov_semconv::{access_method, access_outcome, numa_locality};

use super::places::{UNKNOWN, has_name};
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

/// All of them.
pub(super) const CLASSES: [EvidenceClass; 3] =
    [EvidenceClass::Exact, EvidenceClass::Inferred, EvidenceClass::Sampled];

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
    /// Bytes that page faults made present, by node and how sure that is.
    pub(super) populated: BTreeMap<(Arc<str>, EvidenceClass), u64>,
}

impl Accessed {
    /// `sure`: how sure it is what faults made present. A class that was or may come again goes on with nothing: what was
    /// counted in it stays.
    fn of(sums: &AccessSums, sure: EvidenceClass) -> Self {
        let places = METHODS.map(|method| {
            let time = sums.methods.get(method).and_then(|measured| measured.time.as_ref());
            let Some(Located { weights, squares, .. }) = time else { return Default::default() };
            LOCALITIES.map(|at| {
                let squares = squares.get(at).copied().unwrap_or(0.0);
                weights.get(at).map(|time| Placed { time: *time, squares })
            })
        });
        let samples = OUTCOMES.map(|outcome| sums.samples.get(outcome).copied());
        let classes = match sure {
            EvidenceClass::Exact | EvidenceClass::Inferred => CLASSES.get(..2).unwrap_or_default(),
            EvidenceClass::Sampled => &CLASSES,
        };
        let mut populated = BTreeMap::new();
        for (node, filled) in sums.populated.iter().flat_map(|populated| &populated.nodes) {
            let known = node.parse().is_ok_and(has_name);
            let node: Arc<str> = if known { node.as_str() } else { UNKNOWN }.into();
            for class in classes {
                let bytes: &mut u64 = populated.entry((Arc::clone(&node), *class)).or_default();
                *bytes = bytes.saturating_add(if *class == sure { filled.bytes } else { 0 });
            }
        }
        Self { places, samples, latency: sums.latency.clone(), populated }
    }

    /// What a row added in the pane that ended; where nothing says it, or in the `first` pane that is told, all that it
    /// has since the start.
    pub(super) fn added(row: &AccessRow, first: bool) -> Self {
        // Books that prove the whole prove the last part of it.
        let sure = row.sums.populated.as_ref().map(|of| of.evidence).unwrap_or_default();
        let mut told = Self::of(&row.sums, sure);
        let Some(added) = row.added.as_ref().filter(|_| !first) else { return told };
        let added = Self::of(added, sure);
        let places = told.places.iter_mut().flatten().zip(added.places.into_iter().flatten());
        places.for_each(|(told, added)| *told = told.and(Some(added.unwrap_or_default())));
        for (told, added) in told.samples.iter_mut().zip(added.samples) {
            *told = told.and(Some(added.unwrap_or(0)));
        }
        told.latency = told.latency.and(Some(added.latency.unwrap_or_default()));
        for (key, told) in &mut told.populated {
            *told = added.populated.get(key).copied().unwrap_or(0);
        }
        told
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
        for (key, more) in &other.populated {
            let bytes = self.populated.entry(key.clone()).or_default();
            *bytes = bytes.saturating_add(*more);
        }
    }

    /// Time by the first method.
    pub(super) fn time(&self) -> u64 {
        self.places[0].iter().flatten().fold(0, |sum, placed| sum.saturating_add(placed.time))
    }
}
