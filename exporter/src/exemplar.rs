//! Exemplars: single observations that stand for the others of their bucket.
//!
//! One a bucket at most, drawn in proportion to weight: of all the one with the largest `u^(1/w)`, where `u` is drawn
//! evenly from 0 to 1 (Efraimidis, Spirakis 2006, Inf. Process. Lett. 97:181-185). What is drawn from parts of a bucket
//! can be put together. `u` is a hash of the observation: the same evidence gives the same exemplars.

use std::collections::BTreeMap;

use crate::histogram::Bounds;

/// An observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// When, in nanoseconds; of which clock, says who keeps it.
    pub at: u64,
    /// What was observed.
    pub value: f64,
    /// How many events it stands for: the period of sampling.
    pub rate: u64,
    /// What became of it, where it has not one owner.
    pub ambiguity: Option<&'static str>,
    /// The logarithm of what the largest is kept by.
    rank: f64,
}

/// Exemplars by number of their bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exemplars(BTreeMap<usize, Exemplar>);

impl Exemplars {
    /// Puts an observation of `weight` in, as one of those drawn from. `seed` tells it from others.
    pub fn offer(&mut self, bounds: &Bounds, weight: f64, seed: u64, mut one: Exemplar) {
        let bucket = bounds.partition_point(|power| 2f64.powi(*power) < one.value);
        one.rank = even(seed).ln() / weight;
        self.keep(bucket, one);
    }

    /// Puts those of `other` in.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(bucket, one)| self.keep(*bucket, *one));
    }

    /// With times of another clock.
    #[must_use]
    pub fn by(&self, clock: impl Fn(u64) -> u64) -> Self {
        let told =
            |(bucket, one): (&usize, &Exemplar)| (*bucket, Exemplar { at: clock(one.at), ..*one });
        Self(self.0.iter().map(told).collect())
    }

    /// Those from after `start` until `end`.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = &Exemplar> {
        self.0.values().filter(move |one| start < one.at && one.at <= end)
    }

    fn keep(&mut self, bucket: usize, one: Exemplar) {
        let kept = self.0.entry(bucket).or_insert(one);
        if one.rank > kept.rank {
            *kept = one;
        }
    }
}

impl Exemplar {
    /// An observation that was drawn from none so far.
    #[must_use]
    pub fn new(at: u64, value: f64, rate: u64, ambiguity: Option<&'static str>) -> Self {
        Self { at, value, rate, ambiguity, rank: f64::NEG_INFINITY }
    }
}

/// In 0 to 1, neither of them: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn even(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let even = ((z ^ z >> 31) >> 11) as f64 + 0.5;
    even / 9_007_199_254_740_992.0
}

#[cfg(test)]
mod tests {
    use super::{Exemplar, Exemplars};
    use crate::histogram::CYCLES;

    fn offer(to: &mut Exemplars, value: f64, weight: f64, seed: u64) {
        to.offer(&CYCLES, weight, seed, Exemplar::new(seed, value, 1, None));
    }

    #[test]
    fn there_is_one_a_bucket_and_only_within_the_window() {
        let mut all = Exemplars::default();
        (1..=1000).for_each(|n| offer(&mut all, n as f64, 1.0, n));
        assert_eq!(all.within(0, 1000).count(), 7);
        assert_eq!(all.within(1000, 2000).count(), 0);
    }

    #[test]
    fn what_weighs_three_times_as_much_is_drawn_three_times_as_often_in_parts_or_as_a_whole() {
        let mut heavy = 0;
        for seed in 0..4000 {
            let (mut one, mut other) = (Exemplars::default(), Exemplars::default());
            offer(&mut one, 300.0, 1.0, 2 * seed);
            offer(&mut other, 400.0, 3.0, 2 * seed + 1);
            one.merge(&other);
            heavy += u32::from(one.within(0, u64::MAX).any(|e| e.value == 400.0) || seed == 0);
        }
        assert!((2_880..=3_120).contains(&heavy), "{heavy}");
    }
}
