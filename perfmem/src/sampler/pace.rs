//! How many events a sample has to stand for, so that about so many samples come in a second.

use std::time::Duration;

use memprov_ledger::time::MonoTime;

/// The rate is looked at this often, and at once when twice as many came as a whole look may have.
const LOOK: Duration = Duration::from_secs(1);
/// What is begun with: about a thousand samples a second of a busy CPU.
const FIRST: u64 = 1 << 20;
/// A CPU makes some 10⁹ accesses a second.
const LEAST: u64 = 1 << 14;
const MOST: u64 = 1 << 40;
/// It changes by this factor at once at most.
const STEP: f64 = 8.0;

/// Follows how busy the host is.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Samples a second.
    rate: u32,
    mean: u64,
    since: MonoTime,
    samples: u64,
}

impl Pace {
    pub(super) fn new(rate: u32, now: MonoTime) -> Self {
        Self { rate: rate.max(1), mean: FIRST, since: now, samples: 0 }
    }

    /// Events that a sample stands for on average.
    pub(super) fn mean(&self) -> u64 {
        self.mean
    }

    /// So many samples came until `now`. Tells the mean where it changes.
    pub(super) fn turn(&mut self, samples: u64, now: MonoTime) -> Option<u64> {
        self.samples = self.samples.saturating_add(samples);
        let took = now.since(self.since);
        if took < LOOK && self.samples <= 2 * u64::from(self.rate) {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
        let ratio = self.samples as f64 / (f64::from(self.rate) * took.as_secs_f64().max(0.01));
        (self.since, self.samples) = (now, 0);
        if (0.8..1.25).contains(&ratio) {
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and clamped"
        )]
        let mean = (self.mean as f64 * ratio.clamp(1.0 / STEP, STEP)) as u64;
        let mean = mean.clamp(LEAST, MOST);
        (mean != self.mean).then(|| {
            self.mean = mean;
            mean
        })
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::time::MonoTime;
    use proptest::prelude::{prop_assert, proptest};

    use super::{LEAST, Pace};

    const SECOND: u64 = 1_000_000_000;

    /// Samples a second once `seconds` have passed on a host that makes so many events a second.
    fn settled(events: u64, rate: u32, seconds: u64) -> u64 {
        let mut pace = Pace::new(rate, MonoTime(0));
        for tick in 1..=20 * seconds {
            pace.turn(events / 20 / pace.mean(), MonoTime(tick * SECOND / 20));
        }
        events / pace.mean()
    }

    proptest! {
        #[test]
        fn the_rate_is_kept_on_an_idle_and_on_a_busy_host(events in 1u64 << 26..1 << 44, rate in 100u32..2000) {
            let told = settled(events, rate, 30);
            let most = events / LEAST;
            prop_assert!(told <= u64::from(rate) * 2, "{told} of {rate}");
            prop_assert!(told >= (u64::from(rate) / 3).min(most) / 2, "{told} of {rate}");
        }
    }

    #[test]
    fn a_burst_is_answered_before_a_second_has_passed() {
        let mut pace = Pace::new(1000, MonoTime(0));
        let before = pace.mean();
        assert_eq!(pace.turn(1000, MonoTime(SECOND / 20)), None);
        let after = pace.turn(2000, MonoTime(SECOND / 10)).expect("at once");
        assert!(after >= 4 * before, "{after}");
        assert_eq!(pace.turn(0, MonoTime(SECOND / 5)), None);
    }
}
