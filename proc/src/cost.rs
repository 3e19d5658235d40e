//! What a scan of a process will cost, from what the last ones did.

use std::collections::HashMap;
use std::time::Duration;

use memprov_ledger::identity::Tgid;

/// Weight of the newest scan.
const NEWEST: f64 = 0.3;
/// Nanoseconds of a process without pages: two readings of totals, cgroup, opening of files.
const FIXED: f64 = 200_000.0;
/// A mapping costs as much as this many pages.
const PAGES_PER_MAPPING: f64 = 10.0;
/// Nanoseconds a page before anything was seen.
const UNSEEN: f64 = 50.0;
/// Processes that are remembered at most; beyond, all are forgotten.
const MOST: usize = 65_536;

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Pages and mappings of the last scan, in pages.
    units: f64,
    /// Moving average of nanoseconds a unit.
    rate: f64,
}

/// Costs by process.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    seen: HashMap<Tgid, Seen>,
}

impl Costs {
    /// A scan of `pages` present pages and `mappings` took `cost` of CPU.
    pub(crate) fn note(&mut self, tgid: Tgid, pages: u64, mappings: usize, cost: Duration) {
        let units = (pages as f64 + mappings as f64 * PAGES_PER_MAPPING).max(1.0);
        let rate = (cost.as_secs_f64() * 1e9 - FIXED).max(0.0) / units;
        if self.seen.len() >= MOST && !self.seen.contains_key(&tgid) {
            self.seen.clear();
        }
        let seen = self.seen.entry(tgid).or_insert(Seen { units, rate });
        seen.units = units;
        seen.rate += NEWEST * (rate - seen.rate);
    }

    /// What the next scan will take. For one never seen: `resident_pages` at a usual rate.
    pub(crate) fn predict(&self, tgid: Tgid, resident_pages: u64) -> Duration {
        let unseen = Seen { units: resident_pages as f64, rate: UNSEEN };
        let seen = self.seen.get(&tgid).unwrap_or(&unseen);
        Duration::from_secs_f64((FIXED + seen.units * seen.rate) / 1e9)
    }

    pub(crate) fn forget(&mut self, tgid: Tgid) {
        self.seen.remove(&tgid);
    }

    pub(crate) fn knows(&self, tgid: Tgid) -> bool {
        self.seen.contains_key(&tgid)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memprov_ledger::identity::Tgid;

    use super::Costs;

    #[test]
    fn a_process_is_predicted_by_its_own_last_scans() {
        let mut costs = Costs::default();
        let unseen = costs.predict(Tgid(1), 1_000_000);
        assert_eq!(unseen, Duration::from_micros(50_200));
        for _ in 0..20 {
            costs.note(Tgid(1), 1_000_000, 0, Duration::from_micros(20_200));
        }
        let seen = costs.predict(Tgid(1), 0);
        assert!((seen.as_secs_f64() - 0.0202).abs() < 1e-6, "{seen:?}");
        // It has grown: the rate stays, the size is the newest.
        costs.note(Tgid(1), 2_000_000, 0, Duration::from_micros(40_200));
        assert!(costs.predict(Tgid(1), 0) > Duration::from_millis(40));
        costs.forget(Tgid(1));
        assert_eq!(costs.predict(Tgid(1), 1_000_000), unseen);
    }

    #[test]
    fn one_slow_scan_does_not_settle_the_rate() {
        let mut costs = Costs::default();
        for _ in 0..20 {
            costs.note(Tgid(1), 1_000_000, 0, Duration::from_millis(20));
        }
        costs.note(Tgid(1), 1_000_000, 0, Duration::from_millis(200));
        assert!(costs.predict(Tgid(1), 0) < Duration::from_millis(80));
    }
}
