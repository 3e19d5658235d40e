//! How much CPU scans may take: a token bucket, pure arithmetic over the times that it is given.
//!
//! A scan that fits in the burst waits until it is saved up. One that does not would never: it goes once the bucket is
//! not empty, and what it takes beyond becomes *debt*, which one half of the income pays off. Until then no other huge
//! scan goes, while the other half keeps all small ones going. In the long run no more than the stated fraction is spent.

use std::time::Duration;

use memprov_ledger::time::MonoTime;

/// Why a process was not scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SkipReason {
    /// The budget is spent.
    Budget,
    /// Nothing has moved since the last scan.
    Still,
    /// It has ended.
    Vanished,
    /// We may not look.
    Refused,
}

/// How often what was skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// [`SkipReason::Budget`].
    pub budget: u64,
    /// [`SkipReason::Still`].
    pub still: u64,
    /// [`SkipReason::Vanished`].
    pub vanished: u64,
    /// [`SkipReason::Refused`].
    pub refused: u64,
}

impl Skipped {
    /// Counts one.
    pub fn add(&mut self, reason: SkipReason) {
        let count = match reason {
            SkipReason::Budget => &mut self.budget,
            SkipReason::Still => &mut self.still,
            SkipReason::Vanished => &mut self.vanished,
            SkipReason::Refused => &mut self.refused,
        };
        *count += 1;
    }
}

/// Whether a scan may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Now.
    Go,
    /// Not now.
    Later {
        /// Why.
        reason: SkipReason,
    },
}

/// The bucket. Amounts are nanoseconds of CPU.
#[derive(Clone, Debug)]
pub struct Budget {
    fraction: f64,
    burst: f64,
    level: f64,
    debt: f64,
    filled: MonoTime,
    /// How often what was skipped: [`Budget::decide`] counts its own refusals, the caller the others.
    pub skipped: Skipped,
}

impl Budget {
    /// A budget of `fraction` of one CPU (clamped to 0…1) that saves up at most `burst`. It begins full at `now`.
    #[must_use]
    pub fn new(fraction: f64, burst: Duration, now: MonoTime) -> Self {
        let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        let burst = nanos(burst);
        Self { fraction, burst, level: burst, debt: 0.0, filled: now, skipped: Skipped::default() }
    }

    /// Whether a scan that is predicted to take `predicted` may begin at `now`. A refusal is counted.
    pub fn decide(&mut self, now: MonoTime, predicted: Duration) -> Decision {
        self.fill(now);
        let predicted = nanos(predicted);
        let go = if predicted > self.burst {
            self.debt == 0.0 && self.level > 0.0
        } else {
            self.level >= predicted
        };
        if go {
            return Decision::Go;
        }
        self.skipped.add(SkipReason::Budget);
        Decision::Later { reason: SkipReason::Budget }
    }

    /// A scan ended at `now` and took `cost`.
    pub fn spent(&mut self, now: MonoTime, cost: Duration) {
        self.fill(now);
        self.level -= nanos(cost);
        // A small scan that takes more than predicted leaves a debt as well.
        if self.level < 0.0 {
            self.debt -= self.level;
            self.level = 0.0;
        }
    }

    fn fill(&mut self, now: MonoTime) {
        let income = nanos(now.since(self.filled)) * self.fraction;
        self.filled = self.filled.max(now);
        let repaid = self.debt.min(income / 2.0);
        self.debt -= repaid;
        self.level = (self.level + income - repaid).min(self.burst);
    }
}

fn nanos(d: Duration) -> f64 {
    d.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memprov_ledger::time::MonoTime;
    use proptest::prelude::proptest;

    use super::{Budget, Decision, SkipReason};

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> MonoTime {
        MonoTime(ms * 1_000_000)
    }

    #[test]
    fn a_scan_waits_until_it_is_saved_up() {
        let mut budget = Budget::new(0.01, 50 * MS, at(0));
        assert_eq!(budget.decide(at(0), 50 * MS), Decision::Go);
        budget.spent(at(0), 50 * MS);
        let later = Decision::Later { reason: SkipReason::Budget };
        assert_eq!(budget.decide(at(900), 10 * MS), later);
        assert_eq!(budget.decide(at(1000), 10 * MS), Decision::Go);
        assert_eq!(budget.skipped.budget, 1);
    }

    #[test]
    fn a_huge_scan_goes_and_small_ones_still_get_half_of_the_income() {
        let mut budget = Budget::new(0.01, 50 * MS, at(0));
        assert_eq!(budget.decide(at(0), 2000 * MS), Decision::Go);
        budget.spent(at(0), 2000 * MS);
        let mut small = 0;
        for second in 1..=100 {
            while budget.decide(at(second * 1000), MS) == Decision::Go {
                budget.spent(at(second * 1000), MS);
                small += 1;
            }
        }
        assert!((495..=505).contains(&small), "half of 1 % of 100 s: {small}");
        assert_ne!(budget.decide(at(100_000), 2000 * MS), Decision::Go, "its debt is not paid");
    }

    #[test]
    fn small_scans_do_not_starve_a_huge_one() {
        let mut budget = Budget::new(0.01, 50 * MS, at(0));
        budget.spent(at(0), 500 * MS);
        let mut huge = 0;
        for second in 1..=1000 {
            while budget.decide(at(second * 1000), 2 * MS) == Decision::Go {
                budget.spent(at(second * 1000), 2 * MS);
            }
            if budget.decide(at(second * 1000 + 500), 500 * MS) == Decision::Go {
                budget.spent(at(second * 1000 + 500), 500 * MS);
                huge += 1;
            }
        }
        assert!(huge >= 8, "about one in 100 s: {huge}");
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let mut budget = Budget::new(1.0, MS, at(10));
        budget.spent(at(10), MS);
        assert_ne!(budget.decide(at(5), MS), Decision::Go);
        assert_eq!(budget.decide(at(11), MS), Decision::Go);
    }

    proptest! {
        #[test]
        fn no_more_is_spent_than_was_earned_and_saved_and_owed(
            costs in proptest::collection::vec(1u64..200, 1..200), gap in 1u64..200,
        ) {
            let (fraction, burst) = (0.1, 20u64);
            let mut budget = Budget::new(fraction, Duration::from_millis(burst), at(0));
            let (mut spent, mut now, mut largest) = (0, 0, 0);
            for cost in costs {
                now += gap;
                let cost_time = Duration::from_millis(cost);
                if budget.decide(at(now), cost_time) == Decision::Go {
                    budget.spent(at(now), cost_time);
                    spent += cost;
                    largest = largest.max(cost);
                }
            }
            let earned = now as f64 * fraction;
            assert!(spent as f64 <= earned + (burst + largest) as f64 + 1e-3);
        }
    }
}
