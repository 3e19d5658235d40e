//! The window: evidence of several sources, in order of its end, released when no source can say anything earlier.
//!
//! Hooks and scans state a watermark: nothing that they say later ends before it. A source that has nothing under way
//! holds nobody back. At equal times lifecycle comes before observation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use memprov_ledger::evidence::Evidence;
use memprov_ledger::time::MonoTime;

/// A source of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Hooks in the kernel.
    Hooks,
    /// Readings of `/proc`.
    Scans,
}

/// When evidence takes effect: its end (of a gap its begin), then lifecycle before what observes it, then order of arrival.
type Order = (MonoTime, u8, u64);

/// Evidence that waits for its turn.
#[derive(Debug, Default)]
pub struct Window {
    waiting: BinaryHeap<Reverse<Entry>>,
    watermarks: BTreeMap<Source, MonoTime>,
    arrived: u64,
}

#[derive(Debug)]
struct Entry {
    order: Order,
    evidence: Evidence,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl Window {
    /// Takes evidence in.
    pub fn push(&mut self, evidence: Evidence) {
        self.arrived += 1;
        let (end, rank) = match &evidence {
            // What is lost weakens all that was observed since it can have happened.
            Evidence::Gap(gap) => (gap.when.begin, 0),
            Evidence::Recall(known) => (known.when.end, 1),
            Evidence::Lifecycle(event) => (event.when.end, 1),
            Evidence::Fault(fault) => (fault.when.end, 2),
            Evidence::Access(access) => (access.when.end, 2),
            Evidence::Activity(activity) => (activity.when.end, 2),
            // What they bracket comes before them.
            Evidence::Frames(frames) => (frames.when.end, 3),
            Evidence::Total(total) => (total.when.end, 3),
            Evidence::Charge(charge) => (charge.when.end, 3),
            Evidence::Residency(seen) => (seen.when.end, 3),
            Evidence::Placed(seen) => (seen.when.end, 3),
        };
        self.waiting.push(Reverse(Entry { order: (end, rank, self.arrived), evidence }));
    }

    /// `source` says nothing more that ends before `upto`.
    pub fn passed(&mut self, source: Source, upto: MonoTime) {
        let mark = self.watermarks.entry(source).or_insert(upto);
        *mark = (*mark).max(upto);
    }

    /// `source` has nothing under way, and holds nobody back until it passes a watermark again.
    pub fn idle(&mut self, source: Source) {
        self.watermarks.remove(&source);
    }

    /// Up to when everything was released.
    #[must_use]
    pub fn watermark(&self) -> MonoTime {
        self.watermarks.values().min().copied().unwrap_or(MonoTime(u64::MAX))
    }

    /// The next evidence that nothing earlier can precede.
    pub fn pop(&mut self) -> Option<Evidence> {
        let due = self.waiting.peek()?.0.order.0 <= self.watermark();
        if due { self.waiting.pop().map(|Reverse(entry)| entry.evidence) } else { None }
    }

    /// How much waits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, Window};
    use memprov_ledger::evidence::{Change, Counters, Evidence, Gap, Lifecycle, Stream, Total};
    use memprov_ledger::identity::{StartTicks, Tgid};
    use memprov_ledger::time::{MonoTime, Span};

    fn event(end: u64) -> Evidence {
        let when = Span { begin: MonoTime(0), end: MonoTime(end) };
        Evidence::Lifecycle(Lifecycle { when, tgid: Tgid(1), change: Change::Exec })
    }

    fn reading(end: u64) -> Evidence {
        let when = Span { begin: MonoTime(0), end: MonoTime(end) };
        let (tgid, start) = (Tgid(1), StartTicks(0));
        Evidence::Total(Total { when, tgid, start, counters: Counters::default() })
    }

    #[test]
    fn a_reading_waits_for_the_events_before_its_end() {
        let mut window = Window::default();
        window.passed(Source::Hooks, MonoTime(5));
        window.passed(Source::Scans, MonoTime(10));
        window.push(reading(10));
        window.push(event(4));
        assert_eq!(window.pop(), Some(event(4)));
        assert_eq!(window.pop(), None);
        window.push(event(10));
        window.passed(Source::Hooks, MonoTime(12));
        assert_eq!(window.pop(), Some(event(10)));
        assert_eq!(window.pop(), Some(reading(10)));
    }

    #[test]
    fn a_gap_precedes_what_was_observed_since_it_can_have_begun() {
        let when = Span { begin: MonoTime(5), end: MonoTime(30) };
        let gap = Evidence::Gap(Gap { when, stream: Stream::Lifecycle, lost: 1, whose: None });
        let mut window = Window::default();
        window.passed(Source::Hooks, MonoTime(20));
        window.push(reading(10));
        window.push(gap.clone());
        assert_eq!(window.pop(), Some(gap));
        assert_eq!(window.pop(), Some(reading(10)));
    }

    #[test]
    fn an_event_after_the_end_of_a_running_scan_waits_for_it() {
        let mut window = Window::default();
        window.passed(Source::Scans, MonoTime(3));
        window.passed(Source::Hooks, MonoTime(20));
        window.push(event(8));
        assert_eq!(window.pop(), None);
        window.push(reading(7));
        window.idle(Source::Scans);
        assert_eq!(window.pop(), Some(reading(7)));
        assert_eq!(window.pop(), Some(event(8)));
    }
}
