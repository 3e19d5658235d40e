//! What was read from many rings, put in the order of time.
//!
//! perf empties all rings in turn and ends each round with a mark. What a round holds can be younger than what the next
//! one does, but not than what the one after that does (`tools/perf/util/ordered-events.c`): at a mark everything is in
//! order up to the newest time of the round before.

use memprov_ledger::time::{MonoTime, Span};

/// Bytes that are held back at most, as far as their sizes are known. A recording without marks is put in order within
/// these; what is late all the same is counted.
const HELD: usize = 256 << 20;

/// Things with a time, held until nothing can come before them.
#[derive(Debug)]
pub(super) struct Order<T> {
    held: Vec<(MonoTime, u64, T)>,
    arrived: u64,
    bytes: usize,
    limit: usize,
    /// The newest time of the round that ended last, and of all.
    before: MonoTime,
    newest: MonoTime,
    /// Records that follow are no older.
    passed: MonoTime,
    released: MonoTime,
    /// Things that are older than what was released before.
    late: u64,
    waits: bool,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self::within(HELD)
    }
}

impl<T> Order<T> {
    /// With room for as many bytes.
    fn within(limit: usize) -> Self {
        let zero = MonoTime(0);
        let (held, arrived, bytes, late) = (Vec::new(), 0, 0, 0);
        let (before, newest, passed, released, waits) = (zero, zero, zero, zero, false);
        Self { held, arrived, bytes, limit, before, newest, passed, released, late, waits }
    }

    /// Takes a thing of `size` bytes in. Returns what is in order now.
    pub(super) fn push(&mut self, time: MonoTime, size: usize, thing: T) -> Vec<(MonoTime, T)> {
        self.late += u64::from(time < self.released);
        self.newest = self.newest.max(time);
        self.held.push((time, self.arrived, thing));
        self.arrived += 1;
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes <= self.limit {
            return Vec::new();
        }
        // The older half, so that sorting again and again costs little.
        self.sort();
        let half = self.held.get(self.held.len() / 2).map_or(time, |(time, ..)| *time);
        self.release(half)
    }

    /// A round ended. Returns what is in order now.
    pub(super) fn round(&mut self) -> Vec<(MonoTime, T)> {
        self.passed = std::mem::replace(&mut self.before, self.newest).max(self.passed);
        if self.waits {
            return Vec::new();
        }
        self.sort();
        self.release(self.passed)
    }

    /// From now on things may be older than the rounds that they lie in: all wait.
    pub(super) fn wait(&mut self) {
        self.waits = true;
    }

    /// Nothing comes any more. Returns the rest.
    pub(super) fn finish(&mut self) -> Vec<(MonoTime, T)> {
        self.sort();
        self.release(MonoTime(u64::MAX))
    }

    /// When what has no time was told, as far as its place says: records behind it are no older than the begin, and none
    /// before it is younger than the end.
    pub(super) fn here(&self) -> Span {
        let begin = self.passed.max(self.released);
        Span { begin, end: self.newest.max(begin) }
    }

    /// How many came too late.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    fn sort(&mut self) {
        self.held.sort_by_key(|(time, arrived, _)| (*time, *arrived));
    }

    fn release(&mut self, upto: MonoTime) -> Vec<(MonoTime, T)> {
        let count = self.held.partition_point(|(time, ..)| *time <= upto);
        let newest = count.checked_sub(1).and_then(|last| self.held.get(last));
        self.released = newest.map_or(self.released, |(time, ..)| self.released.max(*time));
        let share = count.saturating_mul(self.bytes) / self.held.len().max(1);
        self.bytes -= share;
        self.held.drain(..count).map(|(time, _, thing)| (time, thing)).collect()
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::time::{MonoTime, Span};

    use super::Order;

    fn numbers(released: Vec<(MonoTime, u64)>) -> Vec<u64> {
        assert!(released.iter().all(|(time, thing)| time.0 == *thing));
        released.into_iter().map(|(_, thing)| thing).collect()
    }

    fn push(order: &mut Order<u64>, times: &[u64]) {
        for time in times {
            assert_eq!(order.push(MonoTime(*time), 1, *time), []);
        }
    }

    #[test]
    fn a_round_releases_what_the_next_cannot_precede() {
        let mut order = Order::default();
        push(&mut order, &[1, 2, 4, 3]);
        assert_eq!(numbers(order.round()), []);
        push(&mut order, &[6, 4, 5, 7]);
        assert_eq!(numbers(order.round()), [1, 2, 3, 4, 4]);
        assert_eq!(order.here(), Span { begin: MonoTime(4), end: MonoTime(7) });
        push(&mut order, &[9, 8]);
        assert_eq!(numbers(order.round()), [5, 6, 7]);
        assert_eq!((numbers(order.finish()), order.late()), (vec![8, 9], 0));
    }

    #[test]
    fn what_has_no_marks_is_released_within_bounds_and_what_is_late_is_counted() {
        let mut order = Order::within(3);
        push(&mut order, &[4, 2, 3]);
        assert_eq!(numbers(order.push(MonoTime(1), 1, 1)), [1, 2, 3]);
        push(&mut order, &[2]);
        assert_eq!((numbers(order.finish()), order.late()), (vec![2, 4], 1));
    }
}
