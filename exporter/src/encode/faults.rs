//! Page faults between panes: what the kernel counted since a process was last seen, divided as the sample tells.

use std::collections::HashMap;

use memprov_semconv::kind;

use crate::report::{Faults, Process};

/// Kinds of memory that faults are divided by; what the sample cannot tell is in the last.
pub(super) const KINDS: [&str; 4] = [kind::ANON, kind::FILE, kind::SHMEM, kind::UNKNOWN];

/// What processes had when they were last seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By pid and start: a process keeps its counters over exec.
    counts: HashMap<(u32, Option<u64>), Counts>,
    pane: u64,
}

#[derive(Debug)]
struct Counts {
    minor: u64,
    major: u64,
    samples: [u64; 4],
    pane: u64,
}

/// Faults since the last pane. The sum of `by_kind` is that of `minor` and `major`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) minor: u64,
    pub(super) major: u64,
    pub(super) by_kind: [u64; 4],
}

impl Added {
    pub(super) fn merge(&mut self, other: &Self) {
        self.minor = self.minor.saturating_add(other.minor);
        self.major = self.major.saturating_add(other.major);
        for (sum, n) in self.by_kind.iter_mut().zip(other.by_kind) {
            *sum = sum.saturating_add(n);
        }
    }
}

impl Seen {
    /// A pane begins.
    pub(super) fn begin(&mut self) {
        self.pane += 1;
    }

    /// What a process added. Nothing when it is seen for the first time: what it counted before was not ours.
    pub(super) fn added(&mut self, process: &Process) -> Added {
        let Some(Faults { minor, major, by_kind, .. }) = &process.faults else {
            return Added::default();
        };
        let (minor, major) = (*minor, *major);
        let samples = KINDS.map(|kind| by_kind.get(kind).map_or(0, |s| s.samples));
        let now = Counts { minor, major, samples, pane: self.pane };
        let before = self.counts.insert((process.pid, process.start_time), now);
        let Some(before) = before else { return Added::default() };
        let minor = minor.saturating_sub(before.minor);
        let major = major.saturating_sub(before.major);
        let mut weights = samples;
        for (weight, before) in weights.iter_mut().zip(before.samples) {
            *weight = weight.saturating_sub(before);
        }
        Added { minor, major, by_kind: divide(minor.saturating_add(major), weights) }
    }

    /// A pane ends: who was not seen in it is forgotten.
    pub(super) fn end(&mut self) {
        self.counts.retain(|_, counts| counts.pane == self.pane);
    }
}

/// `whole` in proportion to `weights`, rounded so that the parts add up to it; all of it unknown without any weight.
fn divide(whole: u64, weights: [u64; 4]) -> [u64; 4] {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return [0, 0, 0, whole];
    }
    let mut told = 0;
    let mut passed = 0;
    weights.map(|weight| {
        passed += u128::from(weight);
        let upto = u64::try_from(u128::from(whole) * passed / sum).unwrap_or(whole);
        let part = upto - told;
        told = upto;
        part
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::divide;

    proptest! {
        #[test]
        fn parts_add_up_and_lie_next_to_their_share(whole in any::<u64>(), weights in any::<[u32; 4]>()) {
            let weights = weights.map(u64::from);
            let parts = divide(whole, weights);
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(whole));
            let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
            for (part, weight) in parts.iter().zip(weights).filter(|_| sum > 0) {
                let share = u128::from(whole) * u128::from(weight) / sum;
                prop_assert!(u128::from(*part).abs_diff(share) <= 1);
            }
        }
    }
}
