//! Which scans to ask for: what is in question soon, what moved once an interval, what stands still hardly ever.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use memprov_ledger::identity::{StartTicks, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::time::MonoTime;

use crate::sources::scans::Job;

/// A process younger than this is not worth a scan out of turn: most end before.
const SETTLED: Duration = Duration::from_millis(500);
/// Questions about one process are asked this often at most.
const AGAIN: Duration = Duration::from_secs(1);

/// Keeps track of scans that were asked for.
#[derive(Debug)]
pub struct Plan {
    interval: Duration,
    max_age: Duration,
    next: MonoTime,
    outstanding: BTreeMap<Tgid, u32>,
    asked: BTreeMap<Tgid, MonoTime>,
    /// Readings that were not made, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
}

impl Plan {
    /// Asks for what moved every `interval`, and for what stands still when its book is older than `max_age`.
    #[must_use]
    pub fn new(interval: Duration, max_age: Duration, now: MonoTime) -> Self {
        Self {
            interval,
            max_age,
            next: now.after(interval),
            outstanding: BTreeMap::new(),
            asked: BTreeMap::new(),
            skipped: BTreeMap::new(),
        }
    }

    /// Does so with another interval and age from `now` on.
    pub fn every(&mut self, interval: Duration, max_age: Duration, now: MonoTime) {
        self.next = self.next.min(now.after(interval));
        (self.interval, self.max_age) = (interval, max_age);
    }

    /// Asks for a scan of `tgid` now, because somebody waits.
    pub fn urgent(&mut self, ledger: &Ledger, tgid: Tgid, now: MonoTime) -> Job {
        *self.outstanding.entry(tgid).or_default() += 1;
        self.asked.insert(tgid, now);
        Job::Scan { tgid, exclusive: ledger.has_relative(tgid), still: None, urgent: true }
    }

    fn routine(&mut self, ledger: &Ledger, tgid: Tgid, now: MonoTime) -> Job {
        *self.outstanding.entry(tgid).or_default() += 1;
        self.asked.insert(tgid, now);
        let exclusive = ledger.has_relative(tgid);
        let space = ledger.space(tgid);
        let still = space
            .filter(|s| s.still_since_scan())
            .and_then(|s| s.scan.as_ref())
            .filter(|scan| now.since(scan.when.begin) < self.max_age)
            // A scan from before a relative was known did not read what they have in common.
            .filter(|scan| scan.exclusive_known || !exclusive || !scan.pages_known)
            // Nor does one tell what is common since, when a relative ended or wrote.
            .filter(|_| !exclusive || space.is_none_or(|space| !ledger.doubted(space)))
            .map(|scan| scan.after);
        Job::Scan { tgid, exclusive, still, urgent: false }
    }

    /// A job for `tgid` is done.
    pub fn done(&mut self, tgid: Tgid) {
        if let Some(count) = self.outstanding.get_mut(&tgid) {
            *count -= 1;
            if *count == 0 {
                self.outstanding.remove(&tgid);
            }
        }
    }

    /// Counts a reading that was not made.
    pub fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// Whether no scan is under way.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Processes that were listed and that the ledger has not scanned: their first scans, oldest first.
    pub fn discover(
        &mut self,
        ledger: &Ledger,
        live: &[(Tgid, StartTicks)],
        now: MonoTime,
    ) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (tgid, _) in live {
            let known = ledger.space(*tgid).is_some_and(|s| s.scan.is_some());
            if !known && !self.outstanding.contains_key(tgid) {
                jobs.push(self.routine(ledger, *tgid, now));
            }
        }
        jobs
    }

    /// The scans that are due now.
    pub fn due(&mut self, ledger: &Ledger, now: MonoTime) -> Vec<Job> {
        let all = now >= self.next;
        if all {
            while self.next <= now {
                self.next = self.next.after(self.interval.max(Duration::from_millis(100)));
            }
            let live: BTreeSet<Tgid> =
                ledger.spaces().flat_map(|s| s.tgids.iter().copied()).collect();
            self.asked.retain(|tgid, _| live.contains(tgid));
        }
        let mut jobs = Vec::new();
        for space in ledger.spaces() {
            let Some(tgid) = space.tgids.first().copied() else { continue };
            if self.outstanding.contains_key(&tgid) {
                continue;
            }
            let settled = now.since(space.born) >= SETTLED;
            let rested = self.asked.get(&tgid).is_none_or(|at| now.since(*at) >= AGAIN);
            if all || space.questions() && settled && rested {
                jobs.push(self.routine(ledger, tgid, now));
            }
        }
        jobs
    }

    /// Whether an interval ends now; asks for the list of live processes then.
    #[must_use]
    pub fn interval_ends(&self, now: MonoTime) -> bool {
        now >= self.next
    }
}
