//! Histograms of weighted observations, in base-2 exponential buckets.
//!
//! One accumulator, two views: the buckets themselves (OTLP data model, "Exponential Buckets"), and explicit buckets
//! whose bounds are powers of two, into which they add up exactly.
//!
//! Weights are turned into whole counts as they come, with a carry: counts only grow, `count` is the zero count plus
//! all buckets, and is less than 1 away from the sum of the weights.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::exemplar::Exemplars;

/// The finest scale; Prometheus reads none that is finer.
const MAX_SCALE: u8 = 8;
/// Buckets at most, as many as the OpenTelemetry SDKs have.
const MAX_BUCKETS: i32 = 160;
/// Values up to 2 to this power are in the zero bucket, values above its inverse in the last one. So 80 octaves are
/// told apart, two buckets each at least, and no bucket ever spans a power of two.
const TINY: i32 = -40;
/// Upper bounds of explicit buckets as powers of two.
pub type Bounds = [i32; 10];
/// 61 µs to 16 s, each four times the one before.
pub const SECONDS: Bounds = [-14, -12, -10, -8, -6, -4, -2, 0, 2, 4];
/// 16 to 8192 cycles, from the first cache to memory behind a queue, each twice the one before.
pub const CYCLES: Bounds = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13];

/// A histogram. The bucket at `offset + i` counts values in `(base^(offset+i), base^(offset+i+1)]`, where `base` is
/// 2^(2^-scale).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Unchecked")]
pub struct Histogram {
    /// How fine the buckets are.
    pub scale: u8,
    /// Index of the first bucket.
    pub offset: i32,
    /// Counts of the buckets.
    pub counts: VecDeque<u64>,
    /// Count of values that are 0, or too small to tell from it.
    pub zero: u64,
    /// Sum of the values, each times its weight.
    pub sum: f64,
    /// The smallest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The largest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Observations that stand for others; no part of a document.
    #[serde(skip)]
    pub exemplars: Exemplars,
    /// Weight that is no whole count yet.
    #[serde(skip)]
    carry: f64,
}

/// A histogram as a document has it.
#[derive(Deserialize)]
struct Unchecked {
    scale: u8,
    offset: i32,
    counts: VecDeque<u64>,
    zero: u64,
    sum: f64,
    min: Option<f64>,
    max: Option<f64>,
}

/// A document with buckets that no histogram of this kind has is an empty one.
impl From<Unchecked> for Histogram {
    fn from(Unchecked { scale, offset, counts, zero, sum, min, max }: Unchecked) -> Self {
        let reach = (1 - TINY) << MAX_SCALE;
        let few = i32::try_from(counts.len()).is_ok_and(|length| length <= MAX_BUCKETS);
        if scale > MAX_SCALE || offset.checked_abs().is_none_or(|at| at > reach) || !few {
            return Self::default();
        }
        Self { scale, offset, counts, zero, sum, min, max, ..Self::default() }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            scale: MAX_SCALE,
            offset: 0,
            counts: VecDeque::new(),
            zero: 0,
            sum: 0.0,
            min: None,
            max: None,
            exemplars: Exemplars::default(),
            carry: 0.0,
        }
    }
}

impl Histogram {
    /// Counts `value` as often as `weight` says. What is no quantity (negative, infinite, no number) is left out.
    pub fn record(&mut self, value: f64, weight: f64) {
        let usual = value.is_finite() && weight.is_finite();
        if !usual || value < 0.0 || weight <= 0.0 {
            return;
        }
        self.sum += value * weight;
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
        let due = weight + self.carry;
        let whole = due.floor();
        self.carry = due - whole;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and not negative; float to int saturates"
        )]
        let count = whole as u64;
        if value <= Self::zero_threshold() {
            self.zero = self.zero.saturating_add(count);
        } else if count > 0 {
            self.add(index(value.min(2f64.powi(-TINY)), MAX_SCALE), MAX_SCALE, count);
        }
    }

    /// Adds what `other` counted. What neither has as a whole count is lost.
    pub fn merge(&mut self, other: &Self) {
        while self.scale > other.scale {
            self.coarsen();
        }
        for (at, n) in (other.offset..).zip(&other.counts).filter(|(_, n)| **n > 0) {
            self.add(at, other.scale, *n);
        }
        let least = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::min);
        let most = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        self.zero = self.zero.saturating_add(other.zero);
        self.sum += other.sum;
        self.exemplars.merge(&other.exemplars);
        (self.min, self.max) = (least(self.min, other.min), most(self.max, other.max));
    }

    /// Values up to this one are in the zero bucket.
    #[must_use]
    pub fn zero_threshold() -> f64 {
        2f64.powi(TINY)
    }

    /// All that was counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(self.zero, |sum, n| sum.saturating_add(*n))
    }

    /// Counts between `bounds`; the last one is above them all.
    #[must_use]
    pub fn explicit(&self, bounds: &Bounds) -> Vec<u64> {
        let mut counts = vec![0u64; bounds.len() + 1];
        let mut add = |at: usize, n: u64| {
            if let Some(count) = counts.get_mut(at) {
                *count = count.saturating_add(n);
            }
        };
        add(0, self.zero);
        for (upper, n) in (self.offset.saturating_add(1)..).zip(&self.counts) {
            let upper = i64::from(upper);
            add(bounds.partition_point(|power| i64::from(*power) << self.scale < upper), *n);
        }
        counts
    }

    /// What was counted since it was `earlier`. Its smallest and largest value are unknown.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut earlier = earlier.clone();
        while earlier.scale > self.scale {
            earlier.coarsen();
        }
        let before = |at: i32| {
            let at = usize::try_from(at.saturating_sub(earlier.offset)).ok();
            at.and_then(|at| earlier.counts.get(at)).copied().unwrap_or(0)
        };
        let counts = (self.offset..).zip(&self.counts).map(|(at, n)| n.saturating_sub(before(at)));
        Self {
            counts: counts.collect(),
            zero: self.zero.saturating_sub(earlier.zero),
            sum: self.sum - earlier.sum,
            min: None,
            max: None,
            exemplars: self.exemplars.clone(),
            ..*self
        }
    }

    fn add(&mut self, mut at: i32, scale: u8, count: u64) {
        at >>= scale.saturating_sub(self.scale);
        loop {
            let length = i32::try_from(self.counts.len()).unwrap_or(i32::MAX);
            let first = if length == 0 { at } else { self.offset.min(at) };
            let last = if length == 0 { at } else { (self.offset + length - 1).max(at) };
            if last - first < MAX_BUCKETS {
                self.stretch(first, last);
                break;
            }
            self.coarsen();
            at >>= 1;
        }
        let at = usize::try_from(at - self.offset).unwrap_or(usize::MAX);
        if let Some(bucket) = self.counts.get_mut(at) {
            *bucket = bucket.saturating_add(count);
        }
    }

    fn stretch(&mut self, first: i32, last: i32) {
        if self.counts.is_empty() {
            self.offset = first;
        }
        while self.offset > first {
            self.counts.push_front(0);
            self.offset -= 1;
        }
        let length = usize::try_from(last - first + 1).unwrap_or(0);
        if self.counts.len() < length {
            self.counts.resize(length, 0);
        }
    }

    /// Joins buckets in pairs.
    fn coarsen(&mut self) {
        let mut joined = VecDeque::with_capacity(self.counts.len() / 2 + 1);
        let first = self.offset >> 1;
        for (at, n) in (self.offset..).zip(&self.counts) {
            if joined.is_empty() || (at & 1) == 0 {
                joined.push_back(*n);
            } else if let Some(last) = joined.back_mut() {
                *last += n;
            }
        }
        self.scale = self.scale.saturating_sub(1);
        (self.offset, self.counts) = (first, joined);
    }
}

/// Index of the bucket of a normal positive value.
fn index(value: f64, scale: u8) -> i32 {
    let bits = value.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or(0) - 1023;
    let fraction = bits & ((1 << 52) - 1);
    let begin = exponent << scale;
    if fraction == 0 {
        // Upper bounds are inclusive: a power of two ends the bucket below.
        return begin - 1;
    }
    let octave = f64::from_bits(fraction | 1023 << 52).log2();
    let buckets = 1i32 << scale;
    #[expect(clippy::cast_possible_truncation, reason = "0 to 2^scale")]
    let within = (octave * f64::from(buckets)).ceil() as i32 - 1;
    begin + within.clamp(0, buckets - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    use super::{CYCLES, Histogram, MAX_BUCKETS, SECONDS, index};

    fn of(values: &[(f64, f64)]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|(value, weight)| histogram.record(*value, *weight));
        histogram
    }

    fn observations() -> impl Strategy<Value = Vec<(f64, f64)>> {
        let value = (-60.0f64..60.0).prop_map(f64::exp2);
        proptest::collection::vec((value, 0.01f64..50.0), 0..300)
    }

    #[test]
    fn bounds_are_powers_of_two_and_belong_to_the_bucket_below_them() {
        for bounds in [SECONDS, CYCLES] {
            for (at, power) in bounds.iter().enumerate() {
                let bound = 2f64.powi(*power);
                assert_eq!(of(&[(bound, 1.0)]).explicit(&bounds)[at], 1);
                assert_eq!(of(&[(bound * 1.0001, 1.0)]).explicit(&bounds)[at + 1], 1);
            }
        }
    }

    #[test]
    fn what_is_no_quantity_is_left_out() {
        let odd = [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, f64::NAN)];
        assert_eq!(of(&odd), Histogram::default());
    }

    #[test]
    fn values_of_any_size_are_counted() {
        let histogram = of(&[(0.0, 1.0), (1e-300, 1.0), (1e300, 1.0), (1.0, 1.0)]);
        assert_eq!((histogram.count(), histogram.zero), (4, 2));
        assert_eq!(histogram.explicit(&SECONDS), [2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
        assert_eq!((histogram.min, histogram.max), (Some(0.0), Some(1e300)));
    }

    #[test]
    fn a_document_gives_the_histogram_back_and_a_broken_one_does_no_harm() {
        let histogram = of(&[(0.5, 1.0), (3.0, 2.0)]);
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        let offset = |at: i32| format!("\"offset\":{at}");
        let broken = text.replace(&offset(histogram.offset), &offset(i32::MAX));
        assert_ne!(broken, text);
        assert_eq!(serde_json::from_str::<Histogram>(&broken).unwrap(), Histogram::default());
    }

    proptest! {
        #[test]
        fn a_bucket_holds_what_lies_between_its_bounds(power in -39.0f64..39.0, scale in 0u8..=8) {
            let value = power.exp2();
            let at = f64::from(index(value, scale));
            let width = f64::from(scale).exp2();
            let (lo, hi) = ((at / width).exp2(), ((at + 1.0) / width).exp2());
            prop_assert!(value > lo * (1.0 - 1e-12) && value <= hi * (1.0 + 1e-12), "{lo} {value} {hi}");
        }

        #[test]
        fn counts_add_up_to_the_weights_and_both_views_agree(values in observations()) {
            let histogram = of(&values);
            let weights: f64 = values.iter().map(|(_, weight)| weight).sum();
            prop_assert!((histogram.count() as f64 - weights).abs() < 1.0 + 1e-6);
            prop_assert_eq!(histogram.explicit(&SECONDS).iter().sum::<u64>(), histogram.count());
            prop_assert!(histogram.counts.len() <= usize::try_from(MAX_BUCKETS).unwrap());
            let sum: f64 = values.iter().map(|(value, weight)| value * weight).sum();
            prop_assert!((histogram.sum - sum).abs() <= sum * 1e-9);
        }

        #[test]
        fn a_difference_and_what_was_before_make_up_the_whole(values in observations(), cut in any::<proptest::sample::Index>()) {
            let cut = cut.index(values.len() + 1);
            let mut histogram = of(&values[..cut]);
            let earlier = histogram.clone();
            values[cut..].iter().for_each(|(value, weight)| histogram.record(*value, *weight));
            let since = histogram.since(&earlier);
            prop_assert_eq!(since.count() + earlier.count(), histogram.count());
            let sums = since.explicit(&SECONDS).into_iter().zip(earlier.explicit(&SECONDS)).map(|(a, b)| a + b);
            prop_assert_eq!(sums.collect::<Vec<_>>(), histogram.explicit(&SECONDS));
        }

        #[test]
        fn the_sum_of_two_is_that_of_all_their_values(values in observations(), cut in any::<proptest::sample::Index>()) {
            let whole: Vec<_> = values.iter().map(|(value, _)| (*value, 1.0)).collect();
            let (a, b) = whole.split_at(cut.index(whole.len() + 1));
            let mut merged = of(a);
            merged.merge(&of(b));
            let whole = of(&whole);
            prop_assert_eq!((merged.scale, merged.offset, merged.zero), (whole.scale, whole.offset, whole.zero));
            prop_assert_eq!(&merged.counts, &whole.counts);
            prop_assert_eq!((merged.min, merged.max), (whole.min, whole.max));
        }

        #[test]
        fn explicit_buckets_are_those_of_the_values(values in observations()) {
            let mut histogram = Histogram::default();
            let mut naive = vec![0u64; SECONDS.len() + 1];
            for (value, _) in &values {
                histogram.record(*value, 1.0);
                naive[SECONDS.partition_point(|power| 2f64.powi(*power) < *value)] += 1;
            }
            prop_assert_eq!(histogram.explicit(&SECONDS), naive);
        }
    }
}
