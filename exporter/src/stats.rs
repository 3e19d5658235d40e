//! Statistics of shares.

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
    let scale = 1.0 + Z * Z / n;
    let centre = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).max(0.0).sqrt();
    (((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0))
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
    use super::{scale, wilson};

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
    fn scaling_does_not_overflow() {
        assert_eq!(scale(u64::MAX, 1, 2), u64::MAX / 2 + 1);
        assert_eq!(scale(100, 1, 0), 0);
    }
}
