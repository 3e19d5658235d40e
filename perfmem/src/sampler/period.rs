//! How many events a sample stands for, drawn so that no regular pattern of the workload goes along with it.

/// Samples by one period at least: what was counted when it changes is not told.
pub(super) const KEPT: u32 = 64;

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// One sample for each so many events. Where a workload repeats itself in a length that shares a factor with it, only
    /// some of what it does is ever sampled.
    Fixed(u64),
    /// One for each so many events on average: a prime number, and a new one every so many samples. A prime has no factor
    /// in common with any shorter length.
    Random(u64),
    /// The same, for as many events as make about so many samples a second, of all CPUs together.
    Paced(u32),
}

impl Period {
    /// The next period, with fresh random bits: a multiple of `grain`. `paced`: the mean of one that follows a rate.
    pub(super) fn draw(self, paced: u64, grain: u64, random: u64) -> u64 {
        let grain = grain.max(1);
        let mean = match self {
            Self::Fixed(events) => return events.max(1),
            Self::Random(mean) => mean,
            Self::Paced(_) => paced,
        };
        let mean = (mean / grain).clamp(1, 1 << 40);
        prime(mean - mean / 2 + random % mean).saturating_mul(grain)
    }

    /// Whether it changes.
    pub(super) fn varies(self) -> bool {
        !matches!(self, Self::Fixed(_))
    }
}

/// The next prime number, from `from` on; 1 where that is 1.
fn prime(from: u64) -> u64 {
    (from..).find(|n| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0)).unwrap_or(from)
}

/// A generator of random bits (xorshift64, Marsaglia 2003): not to be foreseen by nobody, only unlike any workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Period, Random, prime};

    #[test]
    fn primes_are_the_next_ones() {
        let told = [1, 2, 4, 8, 90, 1_000_000].map(prime);
        assert_eq!(told, [1, 2, 5, 11, 97, 1_000_003]);
    }

    #[test]
    fn random_periods_are_as_long_as_wanted_on_average_and_hardly_twice_the_same() {
        let mut random = Random::new(7);
        let drawn: Vec<u64> =
            (0..1000).map(|_| Period::Random(10_000).draw(0, 1, random.next())).collect();
        let mean = drawn.iter().sum::<u64>() / 1000;
        assert!((9_700..10_300).contains(&mean), "{mean}");
        let unlike: std::collections::BTreeSet<_> = drawn.iter().collect();
        assert!(unlike.len() > 400 && drawn.iter().all(|n| (5_000..15_100).contains(n)));
        assert_eq!(Period::Random(1).draw(0, 1, 9), 1, "every event");
        assert_eq!([64, 0].map(|n| Period::Fixed(n).draw(0, 1, 9)), [64, 1]);
        assert_eq!(Period::Paced(100).draw(1_600_000, 16, 50_000), 16 * prime(100_000));
    }
}
