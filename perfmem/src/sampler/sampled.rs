//! What is sampled: an event, the fields that are asked for, how often, and what its samples are of.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use memprov_ledger::evidence::{Population, Timing};
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleSkid};

use super::period::Period;
use super::turns::Ran;
use crate::clock::nanos;
use crate::errno::{EINVAL, ENODEV, ENOENT};
use crate::evidence::Kind;
use crate::open::list;
use crate::pmu::MemEvent;
use crate::record::{Format, sample};
use crate::ring::{Ring, set_period};
use crate::words::{self, DescriptionError, Words};

/// Fields that samples of all events have: the trailer of other records is of one form.
pub(super) const BASE: u64 = sample::IDENTIFIER | sample::TID | sample::TIME | sample::CPU;
/// Where, and at which address.
const PLACE: u64 = sample::IP | sample::ADDR | sample::PHYS_ADDR;

/// Minor and major page faults, told when they are done (`PERF_COUNT_SW_PAGE_FAULTS_MIN` and `_MAJ`).
const FAULTS: [(&str, u64); 2] = [("minor-faults", 5), ("major-faults", 6)];
/// What IBS counts in: its counters have no lower bits.
const IBS_GRAIN: u64 = 16;

/// A period that any event takes.
const TRIAL: u64 = 1 << 20;

/// An event that is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Its name, for messages.
    pub name: String,
    /// Which.
    pub words: Words,
    /// What has to be opened first, in one group with it. It counts, and nothing is told of it.
    pub leader: Option<Words>,
    /// The hardware is to name the very instruction (`precise_ip` 2).
    pub precise: bool,
    /// Fields (bits of `sample_type`) beyond identity, time, place and address.
    pub fields: u64,
    /// How often.
    pub period: Period,
    /// The period is a multiple of this.
    pub grain: u64,
    /// What its samples are of.
    pub kind: Kind,
    /// CPUs that have it, of those that were online when it was described; `None`: all of them.
    pub cpus: Option<BTreeSet<u32>>,
}

impl Sampled {
    /// An event with nothing beyond the usual fields.
    #[must_use]
    pub fn new(name: &str, words: Words, period: Period, population: Population) -> Self {
        Self {
            name: name.to_owned(),
            words,
            leader: None,
            precise: false,
            fields: 0,
            period,
            grain: 1,
            kind: Kind { population, ..Kind::default() },
            cpus: None,
        }
    }

    /// Every page fault, minor and major: address, and the frame that it has now. Only faults, not what the kernel maps
    /// around them or ahead of use.
    #[must_use]
    pub fn faults() -> [Self; 2] {
        FAULTS.map(|(name, number)| {
            let words = Words::software(number);
            let event = Self::new(name, words, Period::Fixed(1), Population::Faults);
            Self { fields: sample::DATA_PAGE_SIZE, ..event }
        })
    }

    /// Memory accesses by an event of the PMU, about so many samples a second of all CPUs together.
    ///
    /// # Errors
    /// When the PMU's description below `root` cannot be read.
    pub fn memory(root: &Path, event: &MemEvent, rate: u32) -> Result<Self, DescriptionError> {
        let pmu = root.join("sys/bus/event_source/devices").join(&event.device);
        let ibs = event.event.is_none();
        // Operations that were dispatched, not cycles: slow ones are no likelier then.
        let words = Words::of(&pmu, event.event, &[("cnt_ctl", u64::from(ibs))])?;
        // Since Sapphire Rapids loads have their source only in a group that this event leads.
        let auxiliary =
            event.event == Some("mem-loads") && pmu.join("events/mem-loads-aux").exists();
        let leader = auxiliary.then(|| Words::of(&pmu, Some("mem-loads-aux"), &[])).transpose()?;
        let (population, timing) = match event.event {
            None => (Population::Operations, Timing::Miss),
            // The load latency facility is Intel's.
            Some("mem-loads") if pmu.join("format/ldlat").exists() => {
                (Population::Loads, Timing::Use)
            }
            Some("mem-loads") => (Population::Loads, Timing::Unknown),
            Some(_) => (Population::Stores, Timing::Unknown),
        };
        Ok(Self {
            leader,
            precise: !ibs,
            fields: sample::PERIOD | sample::WEIGHT | sample::DATA_SRC,
            grain: if ibs { IBS_GRAIN } else { 1 },
            kind: Kind { population, timing, ..Kind::default() },
            cpus: cpus(&pmu)?,
            ..Self::new(&event.to_string(), words, Period::Paced(rate), population)
        })
    }

    /// Whether a CPU has it.
    pub(super) fn is_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// Whether it opens on the first CPU that has it, for all processes. It is closed again and was never enabled.
    pub(crate) fn trial(&self) -> io::Result<()> {
        let first = self.cpus.as_ref().map_or(Some(0), |cpus| cpus.first().copied());
        let cpu = first.ok_or_else(|| io::Error::from_raw_os_error(ENODEV))?;
        self.open(cpu, None, TRIAL).map(drop)
    }

    /// Opens it, without a sound until it is enabled: of a thread and those that it makes, or of all processes.
    pub(super) fn open(&self, cpu: u32, thread: Option<u32>, period: u64) -> io::Result<Event> {
        let leader = self.leader.map(|words| {
            let mut builder = words.builder();
            aim(&mut builder, cpu, thread)?;
            builder.include_kernel().include_hv().build()
        });
        let mut leader = leader.transpose()?;
        let mut builder = self.words.builder();
        aim(&mut builder, cpu, thread)?;
        builder
            .include_kernel()
            .include_hv()
            .sample_period(period)
            .sample_id_all(true)
            .clockid(Clock::MONOTONIC);
        if self.precise {
            builder.precise_ip(SampleSkid::RequestZero);
        }
        // Older kernels count no losses (before 6.0), and know no size of pages (before 5.11).
        let whole = BASE | PLACE | self.fields;
        let fewer = whole & !sample::DATA_PAGE_SIZE;
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        let lost = times | ReadFormat::LOST;
        let tried = [(whole, lost), (whole, times), (fewer, lost), (fewer, times)];
        let mut failed = io::Error::from_raw_os_error(EINVAL);
        for (fields, read) in tried {
            builder.attrs_mut().sample_type = fields;
            builder.read_format(read);
            let opened = match &mut leader {
                Some(leader) => builder.build_with_group(leader),
                None => builder.build(),
            };
            match opened {
                Ok(counter) => {
                    let format = Format::plain(fields, true);
                    let counts = read.contains(ReadFormat::LOST);
                    return Ok(Event { counter, leader, format, counts });
                }
                Err(error) if error.raw_os_error() == Some(EINVAL) => failed = error,
                Err(error) => return Err(error),
            }
        }
        Err(failed)
    }
}

/// CPUs that a PMU of one kind of core has, where a host has several kinds (`intel_hybrid_get_attr_cpus` of the kernel's
/// `arch/x86/events/intel/core.c`; Arm's core PMUs say it alike). An empty list: they are offline.
fn cpus(pmu: &Path) -> Result<Option<BTreeSet<u32>>, DescriptionError> {
    let path = pmu.join("cpus");
    let text = match words::read(&path) {
        Ok(text) if text.is_empty() => return Ok(Some(BTreeSet::new())),
        Ok(text) => text,
        Err(error) if error.errno() == Some(ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    match list(&text) {
        Some(cpus) => Ok(Some(cpus.into_iter().collect())),
        None => Err(DescriptionError::Text { path, text }),
    }
}

fn aim(builder: &mut Builder<'_>, cpu: u32, thread: Option<u32>) -> io::Result<()> {
    builder.one_cpu(usize::try_from(cpu).map_err(io::Error::other)?);
    match thread {
        Some(thread) => {
            builder.observe_pid(i32::try_from(thread).map_err(io::Error::other)?).inherit(true);
        }
        None => {
            builder.any_pid();
        }
    }
    Ok(())
}

/// An open event.
#[derive(Debug)]
pub(super) struct Event {
    counter: Counter,
    leader: Option<Counter>,
    /// The form of its records.
    pub(super) format: Format,
    /// It counts what it loses.
    pub(super) counts: bool,
}

impl Event {
    pub(super) fn id(&self) -> u64 {
        self.counter.id()
    }

    pub(super) fn enable(&mut self) -> io::Result<()> {
        self.leader.as_mut().map_or(Ok(()), Counter::enable)?;
        self.counter.enable()
    }

    /// Samples that found no room.
    pub(super) fn lost(&mut self) -> Option<u64> {
        self.counter.read_full().ok()?.lost()
    }

    /// For how long it was enabled, and ran.
    pub(super) fn ran(&mut self) -> Option<Ran> {
        let read = self.counter.read_full().ok()?;
        let (enabled, running) = (read.time_enabled()?, read.time_running()?);
        Some(Ran { enabled: nanos(enabled), running: nanos(running) })
    }

    /// Has it write to this ring, of its CPU.
    pub(super) fn write_to(&self, ring: &Ring) -> io::Result<()> {
        ring.take_from(&self.counter)
    }

    /// One sample for each so many events from now on.
    pub(super) fn every(&self, period: u64) -> io::Result<()> {
        set_period(&self.counter, period)
    }
}
