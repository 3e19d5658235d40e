//! A share of what was sampled, and its interval.
//!
//! The share is a ratio estimate: the weight of one part by the weight of the whole. Its variance is that of the
//! jackknife over equal slices of time, each left out once (Quenouille 1956, Biometrika 43:353-360), so that what makes
//! neighbouring samples alike widens the interval: bursts, phases, unequal weights. The interval is Wilson's, with
//! Student's quantile, for as many equal trials as have that variance: it stays within 0 and 1, and holds near both
//! ends, where a symmetric one doesn't (Franco, Little, Louis, Slud 2019, J. Surv. Stat. Methodol. 7:334-364).
//!
//! Limits: slices are taken to be alike, so a share that moves within the window has a wider interval than its
//! sampling error. Samples are taken to be drawn at random: no interval tells that a fixed period beats with a loop.

use crate::stats::{effective, t_quantile, wilson_at};

/// Slices with samples that a variance rests on at least.
pub const SLICES: usize = 10;
/// Equal samples that a share is worth at least.
pub const WORTH: f64 = 100.0;

/// Weights added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// Their sum.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
}

impl Weight {
    /// Adds one.
    pub fn add(&mut self, weight: f64) {
        self.sum += weight;
        self.squares += weight * weight;
    }

    /// Adds those of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// How many equal samples they are worth.
    #[must_use]
    pub fn effective(&self) -> f64 {
        effective(self.sum, self.squares)
    }
}

/// One slice of time: what is in the part, and what is in the whole but not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slice {
    /// The part.
    pub part: Weight,
    /// The rest.
    pub rest: Weight,
}

/// A share, in 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The estimate.
    pub share: f64,
    /// Lower end of its 95 % interval.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
    /// Equal samples that the whole is worth (Kish).
    pub effective: f64,
}

/// Why a share is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// Nothing of it was sampled.
    NoSamples,
    /// The whole is worth fewer than [`WORTH`] equal samples.
    FewSamples,
    /// Samples lie in fewer than [`SLICES`] slices of time.
    FewSlices,
}

impl Withheld {
    /// Its name in reports.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::NoSamples => "no_samples",
            Self::FewSamples => "few_samples",
            Self::FewSlices => "few_slices",
        }
    }
}

/// The share of the part over all `slices`, which are equally long.
///
/// # Errors
/// Why there is none.
pub fn share(slices: &[Slice]) -> Result<Share, Withheld> {
    let (mut part, mut whole) = (0.0, Weight::default());
    let mut lengths = Weight::default();
    let mut filled = 0usize;
    for slice in slices {
        let weight = slice.part.sum + slice.rest.sum;
        if weight > 0.0 {
            part += slice.part.sum;
            whole.merge(&slice.part);
            whole.merge(&slice.rest);
            lengths.add(weight);
            filled += 1;
        }
    }
    let effective = whole.effective();
    if filled == 0 {
        return Err(Withheld::NoSamples);
    }
    if effective < WORTH {
        return Err(Withheld::FewSamples);
    }
    if filled < SLICES {
        return Err(Withheld::FewSlices);
    }
    let share = (part / whole.sum).clamp(0.0, 1.0);
    let binomial = share * (1.0 - share);
    let variance = jackknife(slices, part, whole.sum);
    // All or nothing has no variance: what is not known is how many samples that rests on.
    let trials = if variance > 0.0 && binomial > 0.0 { binomial / variance } else { effective };
    // Slices of unequal weight tell less of the variance than as many equal ones.
    let (lo, hi) = wilson_at(share, trials, t_quantile(lengths.effective() - 1.0));
    Ok(Share { share, lo: lo.min(share), hi: hi.max(share), effective })
}

/// The variance of part / whole, each slice left out once.
fn jackknife(slices: &[Slice], part: f64, whole: f64) -> f64 {
    let without = slices.iter().filter_map(|slice| {
        let own = slice.part.sum + slice.rest.sum;
        (own > 0.0 && own < whole).then(|| (part - slice.part.sum) / (whole - own))
    });
    let (mut n, mut mean, mut spread) = (0.0, 0.0, 0.0);
    for ratio in without {
        n += 1.0;
        let step = ratio - mean;
        mean += step / n;
        spread += step * (ratio - mean);
    }
    if n > 1.0 { spread * (n - 1.0) / n } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{Share, Slice, Withheld, share};

    /// SplitMix64 (Steele, Lea, Flood 2014).
    struct Random(u64);

    impl Random {
        /// In 0 to 1.
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Log-normal with this deviation of the logarithm.
        fn latency(&mut self, sigma: f64) -> f64 {
            let radius = (-2.0 * (1.0 - self.next()).ln()).sqrt();
            (sigma * radius * (std::f64::consts::TAU * self.next()).cos()).exp()
        }
    }

    fn whole(number: f64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "small and not negative")]
        let whole = number as usize;
        whole
    }

    /// A mix of accesses: so many are remote, and take so many times as long, with such a spread of both.
    #[derive(Clone, Copy, Debug)]
    struct Mix {
        remote: f64,
        slower: f64,
        sigma: f64,
    }

    impl Mix {
        /// The share of remote time.
        fn truth(self) -> f64 {
            let remote = self.remote * self.slower;
            remote / (remote + 1.0 - self.remote)
        }

        /// Half the width of the interval that the delta method gives for `samples`.
        fn theory(self, samples: f64) -> f64 {
            let truth = self.truth();
            let mean = (self.sigma * self.sigma / 2.0).exp();
            let square = (2.0 * self.sigma * self.sigma).exp();
            let total = mean * (self.remote * self.slower + 1.0 - self.remote);
            let remote = (1.0 - truth).powi(2) * self.remote * self.slower.powi(2);
            let rest = truth.powi(2) * (1.0 - self.remote);
            1.96 * ((remote + rest) * square / samples).sqrt() / total
        }

        fn run(self, random: &mut Random, samples: usize) -> Result<Share, Withheld> {
            let mut slices = [Slice::default(); 20];
            for _ in 0..samples {
                let at = whole(random.next() * slices.len() as f64);
                let remote = random.next() < self.remote;
                let latency = random.latency(self.sigma);
                match remote {
                    true => slices[at].part.add(latency * self.slower),
                    false => slices[at].rest.add(latency),
                }
            }
            share(&slices)
        }
    }

    const MIXES: [Mix; 5] = [
        Mix { remote: 0.327, slower: 1.0, sigma: 0.0 },
        Mix { remote: 0.2, slower: 2.0, sigma: 0.6 },
        Mix { remote: 0.05, slower: 3.0, sigma: 0.4 },
        Mix { remote: 0.7, slower: 4.0, sigma: 0.6 },
        Mix { remote: 0.98, slower: 1.0, sigma: 0.3 },
    ];

    #[test]
    fn of_two_thousand_runs_the_interval_holds_the_truth_in_95_of_100_and_is_narrow() {
        for (seed, mix) in (1..).zip(MIXES) {
            let (runs, samples) = (2_000, 700);
            let mut random = Random(seed);
            let (mut held, mut widths) = (0, Vec::new());
            for _ in 0..runs {
                let Ok(told) = mix.run(&mut random, samples) else { continue };
                held += usize::from(told.lo <= mix.truth() && mix.truth() <= told.hi);
                widths.push((told.hi - told.lo) / 2.0);
            }
            widths.sort_by(f64::total_cmp);
            let told = widths.len();
            assert!(told * 100 >= runs * 95, "{mix:?}: {told} told");
            let held = held as f64 / told as f64;
            assert!((0.93..=0.97).contains(&held), "{mix:?}: {held} held");
            let wide = widths[told / 2] / mix.theory(samples as f64);
            assert!((0.9..=1.3).contains(&wide), "{mix:?}: {wide} times theory");
        }
    }

    #[test]
    fn shares_that_rest_on_2500_samples_are_within_three_points() {
        for (seed, mix) in (1..).zip(MIXES) {
            let mut random = Random(seed);
            let spread = (mix.sigma * mix.sigma).exp() * mix.slower;
            let mut near = 0;
            for _ in 0..200 {
                let told = mix.run(&mut random, whole(2_600.0 * spread)).unwrap();
                assert!(told.effective >= 2_500.0, "{mix:?}: {}", told.effective);
                near += u32::from((told.share - mix.truth()).abs() <= 0.03);
            }
            assert!(near >= 190, "{mix:?}: {near} of 200");
        }
    }

    /// Every second access is remote. Whoever looks at each 64th sees one kind only, and nothing warns him.
    #[test]
    fn a_random_period_tells_a_regular_alternation_and_a_fixed_one_does_not() {
        let look = |gap: &mut dyn FnMut() -> u64| {
            let mut slices = [Slice::default(); 20];
            let mut at = 1;
            for sample in 0..2_000 {
                at += gap();
                let slice = &mut slices[sample / 100];
                if at % 2 == 0 { slice.part.add(1.0) } else { slice.rest.add(1.0) }
            }
            share(&slices).unwrap()
        };
        assert!(look(&mut || 64).hi < 0.01);
        let mut random = Random(7);
        let told = look(&mut || 32 + whole(random.next() * 64.0) as u64);
        assert!(told.lo < 0.5 && 0.5 < told.hi && told.hi - told.lo < 0.06, "{told:?}");
    }

    #[test]
    fn all_or_nothing_is_as_sure_as_its_samples_are_many() {
        let all = |samples: usize| {
            let mut slices = [Slice::default(); 10];
            (0..samples).for_each(|at| slices[at % 10].part.add(1.0));
            share(&slices).unwrap()
        };
        let (few, many) = (all(100), all(10_000));
        assert_eq!((few.share, few.hi), (1.0, 1.0));
        assert!(0.93 < few.lo && few.lo < 0.96 && 0.999 < many.lo && many.lo < 1.0, "{few:?}");
    }

    #[test]
    fn what_comes_in_one_burst_is_less_sure_than_what_is_spread_out() {
        let mut even = [Slice::default(); 20];
        let mut burst = even;
        for slice in &mut even {
            (0..10).for_each(|_| slice.part.add(1.0));
            (0..30).for_each(|_| slice.rest.add(1.0));
        }
        for (at, slice) in burst.iter_mut().enumerate() {
            let part = if at == 3 { 200 } else { 0 };
            (0..part).for_each(|_| slice.part.add(1.0));
            (0..30).for_each(|_| slice.rest.add(1.0));
        }
        let (even, burst) = (share(&even).unwrap(), share(&burst).unwrap());
        assert!((even.share - burst.share).abs() < 1e-12);
        assert!(burst.hi - burst.lo > 5.0 * (even.hi - even.lo), "{even:?} {burst:?}");
    }

    #[test]
    fn too_little_is_withheld_with_its_reason() {
        assert_eq!(share(&[]), Err(Withheld::NoSamples));
        let mut slices = vec![Slice::default(); 20];
        assert_eq!(share(&slices), Err(Withheld::NoSamples));
        slices.iter_mut().for_each(|slice| slice.rest.add(5.0));
        assert_eq!(share(&slices), Err(Withheld::FewSamples));
        // One heavy sample among many light ones is worth one.
        (0..1000).for_each(|at| slices[at % 20].rest.add(1.0));
        slices[0].part.add(1e9);
        assert_eq!(share(&slices), Err(Withheld::FewSamples));
        let mut short = [Slice::default(); 20];
        (0..900).for_each(|at| short[at % 9].rest.add(1.0));
        assert_eq!(share(&short), Err(Withheld::FewSlices));
    }
}
