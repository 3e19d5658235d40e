//! Of many seeded runs the intervals hold what is true.

use memprov_ledger::evidence::Served;

use crate::rig::{BEGIN, REMOTE, Random, apply, fuser, load, row, told, whole};

/// Runs.
const RUNS: usize = 2_000;
/// Nanoseconds that a run takes.
const LASTS: u64 = 120_000_000_000;

/// What a workload does: its share of remote accesses, what they cost (cycles), what local ones cost, how much both vary.
struct Mix {
    name: &'static str,
    remote: f64,
    cycles: [f64; 2],
    sigma: f64,
    samples: usize,
}

const MIXES: [Mix; 3] = [
    Mix { name: "matrix", remote: 0.327, cycles: [300.0, 300.0], sigma: 0.0, samples: 500 },
    Mix { name: "cold", remote: 0.05, cycles: [600.0, 200.0], sigma: 0.3, samples: 900 },
    Mix { name: "queue", remote: 0.6, cycles: [400.0, 150.0], sigma: 0.5, samples: 1000 },
];

impl Mix {
    fn truth(&self) -> f64 {
        let (remote, local) = (self.remote * self.cycles[0], (1.0 - self.remote) * self.cycles[1]);
        remote / (remote + local)
    }

    /// Half the width of the delta method's interval.
    fn theory(&self) -> f64 {
        let truth = self.truth();
        let mean = (self.sigma * self.sigma / 2.0).exp();
        let square = (2.0 * self.sigma * self.sigma).exp();
        let [far, near] = self.cycles;
        let total = mean * (self.remote * far + (1.0 - self.remote) * near);
        let remote = ((1.0 - truth) * far).powi(2) * self.remote;
        let local = (truth * near).powi(2) * (1.0 - self.remote);
        1.96 * ((remote + local) * square / self.samples as f64).sqrt() / total
    }
}

#[test]
fn of_all_runs_the_interval_holds_the_truth_in_95_of_100_and_is_narrow() {
    let mut random = Random(42);
    let mut held = [0usize; MIXES.len()];
    let mut widths = [const { Vec::new() }; MIXES.len()];
    let (mut worth, mut shares) = (0, 0);
    for _ in 0..RUNS {
        let mut fuser = fuser(&MIXES.map(|mix| mix.name));
        let mut accesses = Vec::new();
        for (number, mix) in MIXES.iter().enumerate() {
            for _ in 0..mix.samples {
                let at = BEGIN + whole(random.next() * LASTS as f64);
                let remote = random.next() < mix.remote;
                let cycles = mix.cycles[usize::from(!remote)] * random.spread(mix.sigma);
                let served = if remote { REMOTE } else { Served::Local };
                let mut access = load(number, at, whole(cycles.round()), served);
                access.period = Some(10_007);
                accesses.push(access);
            }
        }
        accesses.sort_by_key(|access| access.when.end);
        accesses.into_iter().for_each(|access| apply(&mut fuser, access));
        let told = told(&fuser);
        for (number, mix) in MIXES.iter().enumerate() {
            let time = row(&told, mix.name).sums.methods["served"].time.as_ref().unwrap();
            worth += usize::from(time.effective >= 400.0);
            let Some(share) = time.shares.get("remote") else { continue };
            shares += usize::from(time.effective >= 400.0);
            held[number] += usize::from(share.lo <= mix.truth() && mix.truth() <= share.hi);
            widths[number].push((share.hi - share.lo) / 2.0);
        }
    }
    assert!(worth > RUNS && shares * 100 >= worth * 95, "{shares} shares of {worth}");
    for ((mix, held), widths) in MIXES.iter().zip(held).zip(&mut widths) {
        widths.sort_by(f64::total_cmp);
        let cover = held as f64 / widths.len() as f64;
        let wide = widths[widths.len() / 2] / mix.theory();
        println!("{}: {cover} held, {wide} times theory, {} runs", mix.name, widths.len());
        assert!((0.93..=0.97).contains(&cover), "{}: {cover} held", mix.name);
        assert!((0.9..=1.3).contains(&wide), "{}: {wide} times theory", mix.name);
    }
}

#[test]
fn a_remote_share_worth_2500_samples_is_within_three_points() {
    let mut random = Random(7);
    let (runs, mut near) = (RUNS / 10, 0);
    for _ in 0..runs {
        let mut fuser = fuser(&["matrix"]);
        for number in 0..2_600 {
            let served = if random.next() < 0.327 { REMOTE } else { Served::Local };
            let cycles = 200 + random.bits() % 50;
            apply(&mut fuser, load(0, BEGIN + number * 40_000_000, cycles, served));
        }
        let told = told(&fuser);
        let time = row(&told, "matrix").sums.methods["served"].time.clone().unwrap();
        assert!(time.effective >= 2_500.0, "{time:?}");
        near += usize::from((time.shares["remote"].share - 0.327).abs() <= 0.03);
    }
    assert!(near * 100 >= runs * 95, "{near} of {runs}");
}

/// Every second access of the workload is remote. A fixed period that divides by two sees one kind only, and no interval
/// warns of it; a random one sees both.
#[test]
fn a_period_that_beats_with_the_workload_lies_and_a_random_one_does_not() {
    let share = |gap: &mut dyn FnMut() -> u64| {
        let mut fuser = fuser(&["alternating"]);
        let mut access = 1;
        for _ in 0..2_000 {
            let period = gap();
            access += period;
            let served = if access % 2 == 0 { REMOTE } else { Served::Local };
            let mut sample = load(0, BEGIN + access * 1_000_000, 250, served);
            sample.period = Some(period);
            apply(&mut fuser, sample);
        }
        row(&told(&fuser), "alternating").sums.methods["served"].time.clone().unwrap()
    };
    let fixed = share(&mut || 64);
    assert!(fixed.shares["remote"].hi < 0.01, "{fixed:?}");
    let mut random = Random(3);
    let drawn = share(&mut || 1 + whole(-(1.0 - random.next()).ln() * 64.0));
    let remote = drawn.shares["remote"];
    assert!(remote.lo < 0.5 && 0.5 < remote.hi && remote.hi - remote.lo < 0.15, "{drawn:?}");
}
