//! Page faults between panes: what the kernel counted since a process was last seen, divided as the sample tells.

use std::collections::HashMap;

use memprov_semconv::kind;

use crate::report::{Faults, Process};
use crate::stats::divide;

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
        let mut by_kind = samples;
        for (weight, before) in by_kind.iter_mut().zip(before.samples) {
            *weight = weight.saturating_sub(before);
        }
        if by_kind == [0; 4] {
            by_kind = [0, 0, 0, 1];
        }
        divide(minor.saturating_add(major), &mut by_kind);
        Added { minor, major, by_kind }
    }

    /// A pane ends: who was not seen in it is forgotten.
    pub(super) fn end(&mut self) {
        self.counts.retain(|_, counts| counts.pane == self.pane);
    }
}
