//! Putting snapshots together from single events of the tracepoint `damon:damon_aggregated`.
//!
//! A monitor tells its regions one after the other in one thread, target by target, in order of addresses, and says with
//! each how many its target has (kernel `mm/damon/core.c`, `kdamond_reset_aggregated`). So a snapshot is whole when so
//! many ascending ones came; what is not whole claims nothing.

use std::collections::BTreeMap;

use memprov_ledger::time::{MonoTime, Span};

/// Regions of one snapshot at most; the kernel's own default is 1,000.
pub(crate) const REGIONS: usize = 1 << 16;
/// Snapshots under way at most: threads times targets.
const OPEN: usize = 4096;

/// One region as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub when: MonoTime,
    /// By which thread.
    pub thread: u32,
    /// Of which of its targets.
    pub target: u32,
    /// How many regions that target has.
    pub regions: u32,
    /// The region.
    pub region: Region,
}

/// A region in the monitor's own words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First address, in the monitor's units.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Checks that found it accessed. From the tracepoint the count of this aggregation; from `tried_regions` a moving
    /// sum (Linux 6.7).
    pub accesses: u32,
    /// Aggregations since it last changed notably.
    pub age: u32,
}

/// All regions of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// By which thread.
    pub thread: u32,
    /// Of which of its targets.
    pub target: u32,
    /// While they were told.
    pub when: Span,
    /// When the one before of the same target had been told; `None` of the first one, and after one that was not whole.
    pub since: Option<MonoTime>,
    /// In order of addresses.
    pub regions: Vec<Region>,
}

/// Snapshots under way.
#[derive(Debug, Default)]
pub struct Assembler {
    open: BTreeMap<(u32, u32), (u32, Snapshot)>,
    /// When the newest whole one of each target was told.
    told: BTreeMap<(u32, u32), MonoTime>,
    truncated: u64,
}

impl Assembler {
    /// Takes an event in; returns the snapshot that it makes whole.
    pub fn take(&mut self, event: &Event) -> Option<Snapshot> {
        let key = (event.thread, event.target);
        let Event { region, regions: of, .. } = *event;
        if let Some((number, open)) = self.open.get(&key) {
            let ascends = open.regions.last().is_none_or(|last| last.end <= region.start);
            if *number != of || !ascends {
                self.drop(key);
            }
        }
        if region.start >= region.end || of as usize > REGIONS {
            self.drop(key);
            return None;
        }
        if self.open.len() >= OPEN && !self.open.contains_key(&key) {
            let first = self.open.keys().next().copied().unwrap_or(key);
            self.drop(first);
        }
        let when = Span::at(event.when);
        let (thread, target) = key;
        let since = self.told.get(&key).copied();
        let new = || (of, Snapshot { thread, target, when, since, regions: Vec::new() });
        let (_, open) = self.open.entry(key).or_insert_with(new);
        open.when.end = open.when.end.max(event.when);
        open.regions.push(region);
        let whole = open.regions.len() >= of as usize;
        if !whole {
            return None;
        }
        if self.told.len() >= OPEN {
            self.told.clear();
        }
        self.told.insert(key, event.when);
        self.open.remove(&key).map(|(_, snapshot)| snapshot)
    }

    /// Gives up what is under way of a target.
    fn drop(&mut self, key: (u32, u32)) {
        self.truncated += u64::from(self.open.remove(&key).is_some());
        self.told.remove(&key);
    }

    /// Snapshots that were begun and never became whole.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        self.truncated
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::time::{MonoTime, Span};

    use super::{Assembler, Event, Region};

    fn event(thread: u32, target: u32, number: u32, start: u64) -> Event {
        let region = Region { start, end: start + 10, accesses: 3, age: 1 };
        Event { when: MonoTime(start), thread, target, regions: number, region }
    }

    #[test]
    fn threads_and_targets_are_told_apart_however_they_interleave() {
        let mut assembler = Assembler::default();
        let mut whole = Vec::new();
        for start in [0, 10] {
            for (thread, target) in [(1, 0), (2, 0), (1, 1)] {
                whole.extend(assembler.take(&event(thread, target, 2, start)));
            }
        }
        let of: Vec<_> = whole.iter().map(|s| (s.thread, s.target, s.regions.len())).collect();
        assert_eq!(of, [(1, 0, 2), (2, 0, 2), (1, 1, 2)]);
        assert_eq!(whole[0].when, Span { begin: MonoTime(0), end: MonoTime(10) });
        assert_eq!((whole[0].since, assembler.truncated()), (None, 0));
        let next = [20, 30].map(|start| assembler.take(&event(1, 0, 2, start)));
        assert_eq!(next[1].as_ref().and_then(|s| s.since), Some(MonoTime(10)));
    }

    #[test]
    fn a_snapshot_that_lost_an_event_anywhere_is_dropped_and_the_next_one_is_whole() {
        for lost in 0..4u64 {
            let mut assembler = Assembler::default();
            let mut whole = Vec::new();
            let first = (0..4).filter(|n| *n != lost).map(|n| event(1, 0, 4, n * 10));
            // The next one has another number of regions, or the same.
            for number in [3, 4] {
                let next = (0..number).map(|n| event(1, 0, number, u64::from(n) * 10));
                first.clone().chain(next).for_each(|e| whole.extend(assembler.take(&e)));
            }
            assert_eq!(whole.len(), 2, "{lost}");
            assert!(whole.iter().all(|s| s.regions.first().map(|r| r.start) == Some(0)));
            assert_eq!(assembler.truncated(), 2, "{lost}");
        }
    }

    #[test]
    fn what_no_monitor_says_is_dropped() {
        let mut assembler = Assembler::default();
        let mut backwards = event(1, 0, 1, 10);
        backwards.region.end = 10;
        assert_eq!(assembler.take(&backwards), None);
        assert_eq!(assembler.take(&event(1, 0, u32::MAX, 0)), None);
        assert!(assembler.take(&event(1, 0, 1, 0)).is_some());
        assert!(assembler.take(&event(1, 0, 0, 0)).is_some(), "one came");
        for thread in 0..10_000 {
            assembler.take(&event(thread, 0, 2, 0));
        }
        assert!(assembler.open.len() <= super::OPEN);
    }
}
