//! `memprov selftest pmu`: makes loads of a known mix, samples them, and says whether the share that is found holds the
//! truth.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use memprov_ledger::evidence::{Access, Evidence, Op};
use memprov_ledger::identity::{Extent, Tgid};
use memprov_ledger::time::MonoTime;
use memprov_perfmem::{
    MemEvent, ReadError, SampleError, Sampled, Sampler, Verdict, judge, probe as probe_pmu,
};
use memprov_proc::{Proc, ScanError, ScanOptions, Scanner, clock};

use crate::config::Config;
use crate::host;
use crate::recorder::Recorder;
use crate::setup::DaemonError;
use crate::stats::{effective, wilson_of};
use crate::trace::{Line, TraceError};

/// How long loads are made.
const LONG: Duration = Duration::from_secs(10);
/// Samples a second that are asked for.
const RATE: u32 = 2000;
/// Words of each buffer: 64 MiB, more than most caches hold.
const WORDS: usize = 8 << 20;
/// Of four loads so many are of the first buffer.
const OF_FOUR: u64 = 3;
/// Loads between two readings.
const LOADS: u32 = 1 << 20;
/// Fewer samples of the buffers than these say nothing.
const FEW: u64 = 100;
/// Samples that are kept for the trace at most.
const KEPT: usize = 1 << 17;

/// Why the test could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// There is no event to sample.
    #[error("{0}")]
    NoPmu(Verdict),
    /// The one there is, is not read here.
    #[error("{0} writes packets, which are read in recordings only")]
    Unread(MemEvent),
    /// No event opens.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// An event is not described.
    #[error("find the event of the PMU")]
    Description(#[from] memprov_perfmem::DescriptionError),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// This process cannot be read.
    #[error("read our own mappings")]
    Scan(#[from] ScanError),
    /// The trace cannot be begun or ended.
    #[error("write the trace")]
    Begin(#[from] DaemonError),
    /// The trace cannot be written.
    #[error("write the trace")]
    Trace(#[from] TraceError),
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Events that were sampled.
    pub events: Vec<String>,
    /// Samples of this process.
    pub samples: u64,
    /// Those of them that are loads of one of the buffers.
    pub of_buffers: u64,
    /// Samples that were lost, of all processes.
    pub lost: u64,
    /// Share of the time in which an event left its counter to others, the largest of all events. `None`: not known.
    pub idle: Option<f64>,
    /// The share of the first buffer: what was found, and its 95 % interval. `None`: too few samples.
    pub share: Option<[f64; 3]>,
    /// The true one.
    pub truth: f64,
}

impl Found {
    /// Whether the interval holds the truth.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.share.is_some_and(|[_, lo, hi]| lo <= self.truth && self.truth <= hi)
    }

    /// For people, a line each.
    #[must_use]
    pub fn lines(&self) -> [String; 3] {
        let Self { events, samples, of_buffers, lost, idle, share, truth } = self;
        let percent = |share: f64| share * 100.0;
        let told = match share {
            Some([share, lo, hi]) => format!(
                "share of the first buffer: {:.1} % [{:.1}, {:.1}], of the loads that were made: {:.1} %: {}",
                percent(*share),
                percent(*lo),
                percent(*hi),
                percent(*truth),
                if self.holds() {
                    "the interval holds the truth"
                } else {
                    "THE INTERVAL LACKS THE TRUTH"
                }
            ),
            None => format!("too few samples of the buffers for a share: {FEW} are needed"),
        };
        let idle = idle.map_or_else(String::new, |idle| {
            format!(", counted for {:.1} % of the time", percent(1.0 - idle))
        });
        let counts = format!(
            "{samples} samples of this process, {of_buffers} of two buffers, {lost} lost{idle}"
        );
        [format!("sampled: {}", events.join(", ")), counts, told]
    }
}

/// Two buffers, and loads of them.
struct Mix {
    buffers: [Vec<u64>; 2],
    random: u64,
}

impl Mix {
    /// Buffers of so many words, each page of which is there.
    fn new(words: usize) -> Self {
        Self { buffers: [vec![1; words], vec![2; words]], random: 0x9e37_79b9_7f4a_7c15 }
    }

    fn extents(&self) -> [Extent; 2] {
        self.buffers.each_ref().map(|buffer| {
            Extent::new(buffer.as_ptr().addr() as u64, size_of_val(buffer.as_slice()) as u64)
        })
    }

    /// Buffer and word of the next load: of four, three are of the first buffer.
    fn draw(&mut self) -> (usize, usize) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let [first, _] = &self.buffers;
        let at = usize::try_from(self.random >> 20).unwrap_or(0) % first.len().max(1);
        (usize::from(self.random >> 62 >= OF_FOUR), at)
    }

    /// Loads at random places.
    fn load(&mut self, loads: u32) {
        for _ in 0..loads {
            let (which, at) = self.draw();
            black_box(self.buffers.get(which).and_then(|buffer| buffer.get(at)).copied());
        }
    }
}

/// Adds up samples by buffer.
#[derive(Default)]
struct Tally {
    samples: u64,
    lost: u64,
    /// Sums of periods, and of their squares, by buffer.
    weights: [f64; 2],
    squares: f64,
    counts: [u64; 2],
}

impl Tally {
    /// Takes in evidence. Whether it is a sample of ours.
    fn add(&mut self, evidence: &Evidence, buffers: &[Extent; 2]) -> bool {
        let access: &Access = match evidence {
            Evidence::Access(access) => access,
            Evidence::Gap(gap) => {
                self.lost = self.lost.saturating_add(gap.lost);
                return false;
            }
            _ => return false,
        };
        if access.tgid != Some(Tgid(std::process::id())) {
            return false;
        }
        self.samples += 1;
        let holds = |extent: &Extent| {
            access.address.is_some_and(|at| extent.start <= at && at < extent.end)
        };
        if let Some(which) = buffers.iter().position(holds).filter(|_| access.op != Op::Store) {
            #[expect(clippy::cast_precision_loss, reason = "periods are below 2^53")]
            let weight = access.period.unwrap_or(1) as f64;
            self.squares += weight * weight;
            for (at, (sum, count)) in self.weights.iter_mut().zip(&mut self.counts).enumerate() {
                if at == which {
                    *sum += weight;
                    *count += 1;
                }
            }
        }
        true
    }

    fn found(&self, events: Vec<String>, idle: Option<f64>) -> Found {
        let [first, second] = self.weights;
        let of_buffers = self.counts.iter().sum();
        let n = effective(first + second, self.squares);
        let p = first / (first + second);
        let share = (of_buffers >= FEW).then(|| {
            let (lo, hi) = wilson_of(p, n);
            [p, lo, hi]
        });
        #[expect(clippy::cast_precision_loss, reason = "three")]
        let truth = OF_FOUR as f64 / 4.0;
        let Self { samples, lost, .. } = *self;
        Found { events, samples, of_buffers, lost, idle, share, truth }
    }
}

/// Samples what `work` does until `end`, and tells of each sample of ours.
fn measure(
    sampler: &mut Sampler,
    buffers: &[Extent; 2],
    end: MonoTime,
    mut work: impl FnMut(),
    mut tell: impl FnMut(&Evidence) -> Result<(), SelftestError>,
) -> Result<Tally, SelftestError> {
    let mut tally = Tally::default();
    let mut evidence = Vec::new();
    let mut over = false;
    while !over {
        over = clock::now() >= end;
        if over {
            // What was sampled last is told once it is settled.
            std::thread::sleep(Duration::from_millis(20));
            sampler.poll(Duration::ZERO, &mut evidence)?;
        } else {
            work();
        }
        sampler.poll(Duration::ZERO, &mut evidence)?;
        for evidence in evidence.drain(..) {
            if tally.add(&evidence, buffers) {
                tell(&evidence)?;
            }
        }
    }
    Ok(tally)
}

/// Tests the PMU of this host. `trace`: where samples of ours are written, with hashes for names and moved addresses.
///
/// # Errors
/// When there is no PMU that samples, or the trace cannot be written.
pub fn pmu(config: &Config, trace: Option<&Path>) -> Result<Found, SelftestError> {
    let probe = probe_pmu(&config.root);
    let events = match judge(&probe) {
        Verdict::Available(event) if !event.is_read() => return Err(SelftestError::Unread(event)),
        Verdict::Available(_) => probe.events.unwrap_or_default(),
        verdict => return Err(SelftestError::NoPmu(verdict)),
    };
    let mut sampler = Sampler::open(&config.root, config.rings.accesses, clock::now().0)?;
    let (mut names, mut failed) = (Vec::new(), None);
    for event in events.iter().filter(|event| event.is_read()) {
        // A kind of core or stores may be missing; something must open.
        match sampler.sample(Sampled::memory(&config.root, event, RATE)?) {
            Ok(()) => names.push(event.to_string()),
            Err(error) => failed = Some(error),
        }
    }
    if let (true, Some(error)) = (names.is_empty(), failed) {
        return Err(error.into());
    }
    let mut mix = Mix::new(WORDS);
    let buffers = mix.extents();
    let own = Tgid(std::process::id());
    let mut recorder = match trace {
        Some(path) => Some(Recorder::create(path, &host::header(config, &[own.0]), true)?),
        None => None,
    };
    if let Some(recorder) = &mut recorder {
        let proc = Proc::at(&config.root);
        let seen = Scanner::new(proc, ScanOptions::default()).scan(own, false)?;
        recorder.write(&Line::Evidence(Evidence::Residency(Box::new(seen))))?;
    }
    let mut kept = 0;
    let end = clock::now().after(LONG);
    let tally = measure(
        &mut sampler,
        &buffers,
        end,
        || mix.load(LOADS),
        |sample| {
            kept += 1;
            match &mut recorder {
                Some(recorder) if kept <= KEPT => {
                    Ok(recorder.write(&Line::Evidence(sample.clone()))?)
                }
                _ => Ok(()),
            }
        },
    )?;
    if let Some(recorder) = recorder {
        recorder.finish(clock::now())?;
    }
    let idle = sampler.ran().filter_map(|(_, ran)| ran.idle()).reduce(f64::max);
    Ok(tally.found(names, idle))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use memprov_ledger::evidence::{Evidence, Population};
    use memprov_ledger::identity::{Extent, Tgid};
    use memprov_ledger::time::MonoTime;
    use memprov_perfmem::{Period, Sampled, Sampler, Words};
    use memprov_proc::clock;

    use super::{Mix, SelftestError, Tally, measure, pmu};
    use crate::config::Config;

    #[test]
    fn a_host_without_a_pmu_is_told_so() {
        match pmu(&Config { root: "/nowhere".into(), ..Config::default() }, None) {
            Err(SelftestError::NoPmu(verdict)) => assert!(verdict.to_string().contains("ENOENT")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn loads_are_of_both_buffers_in_the_proportion_that_is_said() {
        let mut mix = Mix::new(1024);
        let [first, second] = mix.extents();
        assert!(!first.overlaps(second) && first.len() == 8192);
        let drawn: Vec<(usize, usize)> = (0..100_000).map(|_| mix.draw()).collect();
        let of_first = drawn.iter().filter(|(which, _)| *which == 0).count();
        // Four standard deviations of 137 to either side; the seed is always the same.
        assert!((74_450..=75_550).contains(&of_first), "{of_first}");
        let words: std::collections::BTreeSet<_> = drawn.into_iter().collect();
        assert_eq!(words.len(), 2 * 1024, "every word of both");
    }

    /// Faults stand for loads: what is sampled, by which events and threads, goes the same way.
    #[test]
    fn live_a_known_mix_of_faults_is_found_within_its_interval() {
        let event =
            Sampled::new("faults", Words::software(2), Period::Random(16), Population::Faults);
        let opened = Sampler::open(Path::new("/"), 4 << 20, 7).and_then(|mut sampler| {
            sampler.watch(Tgid(std::process::id()), &[event].into())?;
            Ok(sampler)
        });
        let mut sampler = match opened {
            Ok(sampler) => sampler,
            Err(error) => {
                assert!(!rustix::process::geteuid().is_root(), "{error}");
                println!("skipped: {error}");
                return;
            }
        };
        // Every round touches new memory, three pages of the first part for each of the second.
        let pages = 4 * 10_000;
        let memory = vec![0u8; pages * 4096];
        let start = memory.as_ptr().addr() as u64;
        let middle = start + 3 * 10_000 * 4096;
        let buffers = [
            Extent { start, end: middle },
            Extent { start: middle, end: start + (pages as u64) * 4096 },
        ];
        let mut round = 0;
        let work = || {
            for n in round * 100..(round + 1) * 100 {
                let pages = [3 * n, 3 * n + 1, 3 * n + 2, 30_000 + n];
                for page in pages.into_iter().filter(|_| n < 10_000) {
                    std::hint::black_box(memory.get(page * 4096).copied());
                }
            }
            round += 1;
        };
        let mut told = 0;
        let end = MonoTime(clock::now().0 + 1_000_000_000);
        let tell = |sample: &Evidence| {
            told += u64::from(matches!(sample, Evidence::Access(_)));
            Ok(())
        };
        let tally: Tally = measure(&mut sampler, &buffers, end, work, tell).unwrap();
        let found = tally.found(vec!["faults".to_owned()], None);
        println!("{}", found.lines().join("\n"));
        assert_eq!(told, found.samples);
        // A seed that misses its 95 % would always miss it: the test asks for three times as much.
        let [share, lo, hi] = found.share.expect("enough samples");
        let half = (hi - lo) / 2.0;
        assert!((share - found.truth).abs() < 3.0 * half, "{found:?}");
        assert_eq!(found.lost, 0);
    }
}
