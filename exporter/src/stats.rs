//! Statistics of shares.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The 95 % normal quantile, two-sided.
const Z: f64 = 1.959_963_984_540_054;

/// The Wilson score interval of a share: `hits` of `trials` (Wilson 1927, JASA 22:209-212). `None` without trials.
#[must_use]
pub fn wilson(hits: u64, trials: u64) -> Option<(f64, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "counts of samples are far below 2^53")]
    let (k, n) = (hits.min(trials) as f64, trials as f64);
    (trials > 0).then(|| wilson_of(k / n, n))
}

/// The same of a share `p` that rests on `n` equal trials, or on unequal ones that are worth `n` equal ones (Kish's
/// effective sample size, (Σw)² / Σw²; Kish 1965, Survey Sampling). `n` > 0.
#[must_use]
pub fn wilson_of(p: f64, n: f64) -> (f64, f64) {
    wilson_at(p, n, Z)
}

/// The same with another two-sided `quantile` than the normal one.
#[must_use]
pub fn wilson_at(p: f64, n: f64, quantile: f64) -> (f64, f64) {
    let z = quantile;
    let scale = 1.0 + z * z / n;
    let centre = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).max(0.0).sqrt();
    (((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0))
}

/// The 95 % quantile, two-sided, of Student's t with `freedom` degrees of freedom, 1 at least.
#[must_use]
pub fn t_quantile(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

/// How many equal weights are worth as much as weights with this sum and this sum of squares (Kish's effective sample
/// size). 0 of nothing.
#[must_use]
pub fn effective(sum: f64, squares: f64) -> f64 {
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// Replaces weights by parts of `whole` in proportion to them, rounded so that they add up to it. Without any weight there
/// are no parts: zeros stay.
pub fn divide(whole: u64, weights: &mut [u64]) {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let (mut told, mut passed) = (0, 0);
    for weight in weights.iter_mut().filter(|_| sum > 0) {
        passed += u128::from(*weight);
        let share = u128::from(whole).checked_mul(passed).map(|share| share / sum);
        let upto = share.and_then(|upto| u64::try_from(upto).ok()).unwrap_or(whole);
        (*weight, told) = (upto - told, upto);
    }
}

/// `part` of `whole` applied to `bytes`, rounded; 0 when `whole` is 0.
#[must_use]
pub fn scale(bytes: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    let scaled = (u128::from(bytes) * u128::from(part) + u128::from(whole / 2)) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A share of `bytes`, rounded.
#[must_use]
pub fn fraction(bytes: u64, share: f64) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate: rounding to 53 bits is below its error, and the share lies in 0..=1"
    )]
    let bytes = (bytes as f64 * share.clamp(0.0, 1.0)).round() as u64;
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{divide, effective, scale, t_quantile, wilson};

    proptest! {
        #[test]
        fn parts_add_up_and_lie_next_to_their_share(whole in any::<u64>(), weights in any::<[u32; 4]>()) {
            let weights = weights.map(u64::from);
            let mut parts = weights;
            divide(whole, &mut parts);
            let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
            let expected = if sum > 0 { u128::from(whole) } else { 0 };
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), expected);
            for (part, weight) in parts.iter().zip(weights).filter(|_| sum > 0) {
                let share = u128::from(whole) * u128::from(weight) / sum;
                prop_assert!(u128::from(*part).abs_diff(share) <= 1);
            }
        }
    }

    #[test]
    fn the_interval_is_that_of_the_paper() {
        let (lo, hi) = wilson(2, 20).unwrap();
        assert!((lo - 0.0279).abs() < 5e-4 && (100.0 * hi - 30.1).abs() < 0.05, "{lo} {hi}");
        assert_eq!(wilson(0, 0), None);
        assert!(wilson(0, 10).unwrap().0.abs() < 1e-12);
    }

    /// Of many seeded draws the interval holds the truth in about 95 %.
    #[test]
    fn the_interval_covers_the_truth() {
        let mut x = 42u64;
        let mut covered = 0;
        for _ in 0..2000 {
            let mut hits = 0;
            for _ in 0..200 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                hits += u64::from(x >> 32 & 0xff < 26);
            }
            let (lo, hi) = wilson(hits, 200).unwrap();
            covered += u32::from(lo <= 26.0 / 256.0 && 26.0 / 256.0 <= hi);
        }
        assert!((1860..=1940).contains(&covered), "{covered} of 2000");
    }

    #[test]
    fn quantiles_of_student_are_those_of_the_tables() {
        for (freedom, quantile) in [(1.0, 12.706), (9.0, 2.262), (19.0, 2.093), (1e6, super::Z)] {
            assert!((t_quantile(freedom) - quantile).abs() < 1e-3, "{freedom}");
        }
        assert_eq!(t_quantile(f64::NAN), t_quantile(1.0));
    }

    #[test]
    fn equal_weights_are_worth_their_number() {
        assert_eq!(effective(30.0, 90.0), 10.0);
        assert_eq!(effective(0.0, 0.0), 0.0);
    }

    #[test]
    fn scaling_does_not_overflow() {
        assert_eq!(scale(u64::MAX, 1, 2), u64::MAX / 2 + 1);
        assert_eq!(scale(100, 1, 0), 0);
    }
}
