//! Reports that somebody waits for: each asks for scans out of turn and is answered when they are in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;

use crate::report::Report;
use crate::socket::Refusal;

/// How often a process that moves is scanned again before its book is closed as it is.
const RETRIES: u8 = 3;
/// Processes that one report waits for at most.
const LATECOMERS: usize = 10_000;
/// How long a report may wait for its scans.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A wanted report.
#[derive(Debug)]
pub struct Ask {
    /// About this process and its descendants; about all without one.
    pub pid: Option<Tgid>,
    /// Where the answer goes.
    pub reply: SyncSender<Result<Report, Refusal>>,
}

/// A report that waits for scans.
#[derive(Debug)]
pub struct Pending {
    /// What was asked.
    pub ask: Ask,
    /// Scans must have begun after this.
    pub since: MonoTime,
    /// All that was read for it is in once evidence up to this instant is.
    pub upto: MonoTime,
    waiting: BTreeSet<Tgid>,
    asked: BTreeSet<Tgid>,
    tries: BTreeMap<Tgid, u8>,
    /// Why processes could not be read.
    pub failures: Vec<String>,
}

impl Pending {
    /// Waits for a scan of each of `tgids`.
    #[must_use]
    pub fn new(ask: Ask, since: MonoTime, tgids: impl IntoIterator<Item = Tgid>) -> Self {
        let waiting: BTreeSet<Tgid> = tgids.into_iter().collect();
        let asked = waiting.clone();
        let (tries, failures) = (BTreeMap::new(), Vec::new());
        Self { ask, since, upto: since, waiting, asked, tries, failures }
    }

    /// A scan that began at `begin` is in. Returns whether another one is wanted because the process moved.
    pub fn seen(&mut self, tgid: Tgid, begin: MonoTime, at_rest: bool) -> bool {
        if begin < self.since || !self.waiting.contains(&tgid) {
            return false;
        }
        let tries = self.tries.entry(tgid).or_default();
        *tries += 1;
        if at_rest || *tries > RETRIES {
            self.waiting.remove(&tgid);
            return false;
        }
        true
    }

    /// What was read of a process beside its scan ends at `end`: the answer waits for it.
    pub fn reads(&mut self, tgid: Tgid, end: MonoTime) {
        if self.asked.contains(&tgid) {
            self.upto = self.upto.max(end);
        }
    }

    /// A process cannot be read, or is gone.
    pub fn failed(&mut self, tgid: Tgid, why: Option<&str>) {
        if self.waiting.remove(&tgid)
            && let Some(why) = why
        {
            self.failures.push(why.to_owned());
        }
    }

    /// Waits for one more process. Returns whether it is new to this report and there is room for it.
    pub fn add(&mut self, tgid: Tgid) -> bool {
        let new = self.asked.len() < LATECOMERS && self.asked.insert(tgid);
        if new {
            self.waiting.insert(tgid);
        }
        new
    }

    /// Waits for a process once more, because its scan did not read all that is needed now. Returns whether there are
    /// tries left.
    pub fn again(&mut self, tgid: Tgid) -> bool {
        let tries = self.tries.entry(tgid).or_default();
        *tries += 1;
        let left = *tries <= RETRIES;
        if left {
            self.waiting.insert(tgid);
        }
        left
    }

    /// Whether all scans are in, or time is up.
    #[must_use]
    pub fn done(&self, now: MonoTime) -> bool {
        self.waiting.is_empty() || self.overdue(now)
    }

    /// Whether time is up.
    #[must_use]
    pub fn overdue(&self, now: MonoTime) -> bool {
        now.since(self.since) > PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::{Ask, PATIENCE, Pending};
    use memprov_ledger::identity::Tgid;
    use memprov_ledger::time::MonoTime;

    fn pending() -> Pending {
        let (reply, _) = std::sync::mpsc::sync_channel(1);
        Pending::new(Ask { pid: None, reply }, MonoTime(100), [Tgid(1)])
    }

    #[test]
    fn a_scan_that_began_before_the_question_is_no_answer() {
        let mut p = pending();
        assert!(!p.seen(Tgid(1), MonoTime(99), true));
        assert!(!p.done(MonoTime(101)));
        assert!(!p.seen(Tgid(1), MonoTime(100), true));
        assert!(p.done(MonoTime(101)));
    }

    #[test]
    fn an_answer_waits_for_what_was_read_of_its_own_processes() {
        let mut p = pending();
        p.reads(Tgid(2), MonoTime(300));
        assert_eq!(p.upto, MonoTime(100));
        p.reads(Tgid(1), MonoTime(200));
        p.reads(Tgid(1), MonoTime(150));
        assert_eq!(p.upto, MonoTime(200));
    }

    #[test]
    fn a_process_that_moves_is_scanned_three_times_more() {
        let mut p = pending();
        for _ in 0..3 {
            assert!(p.seen(Tgid(1), MonoTime(100), false));
        }
        assert!(!p.seen(Tgid(1), MonoTime(100), false));
        assert!(p.done(MonoTime(101)));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let p = pending();
        assert!(!p.done(MonoTime(100)));
        assert!(p.done(MonoTime(101).after(PATIENCE)));
    }
}
