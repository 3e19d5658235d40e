//! The hooks as the rest of the program sees them: loaded once, polled for evidence.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use libbpf_rs::{ErrorKind, MapCore as _, MapFlags};
use memprov_ledger::evidence::{Evidence, Lifecycle, StackRef};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;
use memprov_ledger::touch::Sample;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{HookError, LoadError};
use crate::evidence::{self, StackKey};
use crate::load::{self, Loaded, Role};
use crate::loss::{self, Told};
use crate::options::{Mechanism, Options, Scope};
use crate::record;
use crate::ring::Ring;
use crate::sink::StackSink;
use crate::skeleton::types::side_kind;
use crate::status::{Capability, HookStatus, Losses, RunTime};

/// How long a drain waits for records that are being written: a program writes in microseconds, but a virtual CPU
/// may be descheduled meanwhile.
const PATIENCE: Duration = Duration::from_millis(5);
/// How long a stack waits for its record, which is written right after it or is lost.
const ORPHAN: Duration = Duration::from_secs(1);
/// Stacks that may wait so.
const WAITING: usize = 65_536;

/// Loaded and attached hooks. Dropping them detaches everything.
pub struct Hooks {
    lifecycle: Ring,
    stacks: Ring,
    wait: OwnedFd,
    loaded: Loaded,
    status: Vec<HookStatus>,
    seed: u32,
    told: Told,
    watermark: MonoTime,
    /// Stacks whose record was not drained yet, and when they were.
    waiting: HashMap<StackKey, (StackRef, MonoTime)>,
    /// While the kernel counts run time: what has it do so, since when, and the sums of then.
    counting: Option<(OwnedFd, MonoTime, RunTime)>,
    calls: Option<u64>,
}

/// Hooks belong to one thread at a time, and may be handed to another.
const _: () = {
    const fn sent<T: Send>() {}
    sent::<Hooks>();
};

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Hooks {
    /// Loads and attaches the hooks.
    ///
    /// With [`Scope::Only`] the processes are selected before anything is attached; the caller then selects those of
    /// their descendants that exist already.
    ///
    /// # Errors
    /// An option out of range, a step that the kernel refused or that failed, of the forced mechanism or of the last
    /// one that was tried.
    pub fn load(options: &Options) -> Result<Self, LoadError> {
        validate(options)?;
        load::keep_log();
        let mut status = Vec::new();
        let (loaded, calls) = match options.mechanism {
            Some(mechanism) => (load::load_with(mechanism, options, &mut status)?, None),
            None => load_best(options, &mut status)?,
        };
        let maps = &loaded.skel.maps;
        let step = "map a BPF ring";
        let ring = |map: &libbpf_rs::MapMut<'_>, size| {
            Ring::new(map.as_fd(), size).map_err(|source| LoadError::Ring { step, source })
        };
        let lifecycle = ring(&maps.lifecycle, options.lifecycle_ring)?;
        let stacks = ring(&maps.stacks, options.stack_ring)?;
        let wait = waiter(&[&maps.lifecycle, &maps.stacks])
            .map_err(|source| LoadError::Ring { step: "wait for BPF rings", source })?;
        Ok(Self {
            lifecycle,
            stacks,
            wait,
            loaded,
            status,
            seed: options.seed,
            told: Told::new(now()),
            watermark: MonoTime(0),
            waiting: HashMap::new(),
            counting: None,
            calls,
        })
    }

    /// What was tried and what came of it.
    #[must_use]
    pub fn status(&self) -> &[HookStatus] {
        &self.status
    }

    /// Watches a process too, and what it forks from then on. Nothing to do where all are watched.
    ///
    /// # Errors
    /// The table is full (65,536 processes).
    pub fn select(&self, tgid: Tgid) -> Result<(), HookError> {
        let selected = &self.loaded.skel.maps.selected;
        selected
            .update(&tgid.0.to_ne_bytes(), &[1], MapFlags::ANY)
            .map_err(|source| HookError::Table { table: "selection", tgid, source })
    }

    /// Watches a process no longer. It is no error when it was not watched.
    ///
    /// # Errors
    /// The kernel refuses to change the table.
    pub fn deselect(&self, tgid: Tgid) -> Result<(), HookError> {
        let selected = &self.loaded.skel.maps.selected;
        match selected.delete(&tgid.0.to_ne_bytes()) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(HookError::Table { table: "selection", tgid, source })
            }
            _ => Ok(()),
        }
    }

    /// Sets the fraction of pages of one process whose faults are reported, until it exits.
    ///
    /// # Errors
    /// The table is full (8,192 processes).
    pub fn set_touch_probability(&self, tgid: Tgid, p: f64) -> Result<(), HookError> {
        let error = |source| HookError::Table { table: "touch probability", tgid, source };
        let maps = &self.loaded.skel.maps;
        let (bound, key) = (load::bound(p), 0u32.to_ne_bytes());
        maps.touch
            .update(&tgid.0.to_ne_bytes(), &bound.to_ne_bytes(), MapFlags::ANY)
            .map_err(error)?;
        // Two words: the default, and the highest of all, which lets the hook skip most faults without a look-up.
        let bounds = maps.data_touch.lookup(&key, MapFlags::ANY).map_err(error)?;
        let Some(mut bounds) = bounds.and_then(|b| <[u8; 16]>::try_from(b).ok()) else {
            return Ok(());
        };
        let (_, highest) = bounds.split_at_mut(8);
        if highest.iter().rev().lt(bound.to_ne_bytes().iter().rev()) {
            highest.copy_from_slice(&bound.to_ne_bytes());
            maps.data_touch.update(&key, &bounds, MapFlags::ANY).map_err(error)?;
        }
        Ok(())
    }

    /// Whether faults at `address` are kept with `probability`.
    #[must_use]
    pub fn in_sample(&self, address: u64, probability: f64) -> bool {
        Sample { seed: self.seed, probability }.has(address)
    }

    /// Waits at most `timeout` (less when a ring fills up), drains both rings, and appends evidence in order of
    /// `when.end`. Returns the watermark: everything that ended before it has been returned.
    ///
    /// # Errors
    /// The wait failed.
    pub fn poll(
        &mut self,
        timeout: Duration,
        sink: &mut impl StackSink,
        out: &mut Vec<Evidence>,
    ) -> Result<MonoTime, HookError> {
        wait_for(&self.wait, timeout)?;
        let first = out.len();
        // What ended before this instant was reserved before it: programs stamp the end in the ring.
        let begun = now();
        let mut batch: Vec<(Lifecycle, Option<StackKey>)> = Vec::new();
        let mut drained = self.lifecycle.drain(PATIENCE, |bytes| {
            let Some(record) = record::record(bytes) else { return };
            let known = evidence::lifecycle(&record, |lifecycle, stack| {
                sink.lifecycle(&lifecycle);
                batch.push((lifecycle, stack));
            });
            debug_assert_eq!(known, Ok(()), "programs and loader are of one build");
        });
        let waiting = &mut self.waiting;
        drained &= self.stacks.drain(PATIENCE, |bytes| {
            let Some((head, stack)) = record::side(bytes) else { return };
            let raw = evidence::raw_stack(&head, stack);
            let stack = if stack.is_empty() { StackRef::Lost } else { sink.stack(&raw) };
            if head.kind == side_kind::SIDE_FAULT {
                out.push(Evidence::Fault(evidence::fault(&head, stack)));
            } else if waiting.len() < WAITING {
                waiting.insert((head.tid, head.when), (stack, begun));
            }
        });
        for (mut lifecycle, key) in batch {
            if let Some(key) = key {
                let stack = self.waiting.remove(&key).map_or(StackRef::Lost, |(stack, _)| stack);
                evidence::set_stack(&mut lifecycle.change, stack);
            }
            out.push(Evidence::Lifecycle(lifecycle));
        }
        self.waiting.retain(|_, (_, drained)| begun.since(*drained) < ORPHAN);
        let losses = self.losses();
        let Loaded { skel, programs, .. } = &self.loaded;
        self.told.tell(&losses, &skel.maps.spaces, programs, now(), out);
        if let Some(new) = out.get_mut(first..) {
            new.sort_by_key(end_of);
        }
        if drained {
            self.watermark = begun;
        }
        Ok(self.watermark)
    }

    /// What was lost since the hooks were loaded.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let lost = self.loaded.counters().map(|counters| counters.lost).unwrap_or_default();
        let programs = &self.loaded.programs;
        let misses = |fault: bool| {
            let skipped = programs.iter().zip(loss::misses(programs));
            let of = skipped.filter(|(program, _)| (program.role == Role::Fault) == fault);
            of.map(|(_, skipped)| skipped).sum()
        };
        Losses {
            lifecycle: lost.lifecycle,
            stacks: lost.stacks,
            faults: lost.faults,
            threads_full: lost.threads_full,
            halves: lost.halves,
            lifecycle_misses: misses(false),
            fault_misses: misses(true),
        }
    }

    /// System calls of the host in a second when the mechanism was chosen, where that took counting them.
    #[must_use]
    pub fn calls_per_second(&self) -> Option<u64> {
        self.calls
    }

    /// Has the kernel count what its BPF programs cost, until [`counted`](Self::counted). Counting itself costs each
    /// run of every BPF program of the host two readings of the clock (some 40 ns), so it is for a moment now and then.
    /// Returns whether it counts: it takes CAP_SYS_ADMIN.
    pub fn count(&mut self) -> bool {
        self.counting = loss::count_run_time().map(|on| (on, now(), self.run_time()));
        self.counting.is_some()
    }

    /// Ends counting: what the hooks cost meanwhile. `None` where nothing was counted.
    pub fn counted(&mut self) -> Option<RunTime> {
        let (on, since, before) = self.counting.take()?;
        let after = self.run_time();
        let span = now().since(since);
        drop(on);
        Some(RunTime {
            span,
            time: after.time.saturating_sub(before.time),
            runs: after.runs.saturating_sub(before.runs),
            calls: after
                .calls
                .zip(before.calls)
                .map(|(after, before)| after.saturating_sub(before)),
        })
    }

    /// Sums over the programs since they were loaded, of the times that the kernel counted.
    fn run_time(&self) -> RunTime {
        let mut sum = RunTime::default();
        for program in &self.loaded.programs {
            let counts = loss::program_counts(&program.fd);
            sum.time += counts.time;
            sum.runs += counts.runs;
            if program.role == Role::Call(Mechanism::TpBtf) {
                // A call runs two of them.
                sum.calls = Some(sum.calls.unwrap_or(0).max(counts.runs));
            }
        }
        sum
    }
}

/// Tries every mechanism by loading and attaching it, with nothing selected, and detaches it again.
#[must_use]
pub fn probe() -> Vec<HookStatus> {
    load::keep_log();
    let mut status = Vec::new();
    for mechanism in [Mechanism::Fentry, Mechanism::TpBtf, Mechanism::Tp] {
        let mut options = Options::new(Scope::Only(Vec::new()));
        options.lifecycle_ring = 4096;
        options.stack_ring = 65_536;
        options.first_touch = Some(0.0);
        drop(load::load_with(mechanism, &options, &mut status));
    }
    status
}

/// The first mechanism of the order of preference that loads, and the host's system calls in a second if they mattered.
fn load_best(
    options: &Options,
    status: &mut Vec<HookStatus>,
) -> Result<(Loaded, Option<u64>), LoadError> {
    if let Ok(loaded) = load::load_with(Mechanism::Fentry, options, status) {
        return Ok((loaded, None));
    }
    // Not counted is as good as idle: the mechanism that sees most comes first.
    let measured = load::measure_calls().ok();
    let (calls, watched) = measured.unwrap_or_default();
    let order = if load::prefers_tp(calls, watched) {
        [Mechanism::Tp, Mechanism::TpBtf]
    } else {
        [Mechanism::TpBtf, Mechanism::Tp]
    };
    let loaded = load::load_with(order[0], options, status)
        .or_else(|_| load::load_with(order[1], options, status))?;
    let taken = status.iter_mut().rfind(|status| status.capability == Capability::Mapping);
    if let Some(taken) = taken {
        taken.reason = format!("{calls} system calls a second on this host, {watched} watched");
    }
    Ok((loaded, measured.map(|(calls, _)| calls)))
}

fn validate(options: &Options) -> Result<(), LoadError> {
    let ring = |name, size: u32, least: u32| {
        let problem = "must be a power of two, at least a page (64 KiB for stacks)";
        let good = size.is_power_of_two() && size >= least;
        if good { Ok(()) } else { Err(LoadError::Option { name, problem }) }
    };
    ring("lifecycle_ring", options.lifecycle_ring, 4096)?;
    ring("stack_ring", options.stack_ring, 65_536)?;
    let probabilities = [
        ("first_touch", options.first_touch.unwrap_or(0.0)),
        ("inject.lifecycle", options.inject.lifecycle),
        ("inject.stacks", options.inject.stacks),
        ("inject.faults", options.inject.faults),
    ];
    for (name, p) in probabilities {
        if !(0.0..=1.0).contains(&p) {
            return Err(LoadError::Option { name, problem: "must be from 0 to 1" });
        }
    }
    Ok(())
}

/// An epoll of the rings' wake-ups. Edge-triggered, so that records that wait for the timer do not count as one.
pub(crate) fn waiter(rings: &[&libbpf_rs::MapMut<'_>]) -> std::io::Result<OwnedFd> {
    let wait = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for ring in rings {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&wait, ring, epoll::EventData::new_u64(0), flags)?;
    }
    Ok(wait)
}

pub(crate) fn wait_for(wait: &OwnedFd, timeout: Duration) -> Result<(), HookError> {
    let mut events = Vec::with_capacity(2);
    let timeout =
        Timespec::try_from(timeout).map_err(|e| HookError::Wait(std::io::Error::other(e)))?;
    match epoll::wait(wait, spare_capacity(&mut events), Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(HookError::Wait(errno.into())),
    }
}

pub(crate) fn now() -> MonoTime {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    MonoTime(seconds.unwrap_or(0) * 1_000_000_000 + nanos.unwrap_or(0))
}

fn end_of(evidence: &Evidence) -> MonoTime {
    match evidence {
        Evidence::Lifecycle(lifecycle) => lifecycle.when.end,
        Evidence::Fault(fault) => fault.when.end,
        Evidence::Access(access) => access.when.end,
        Evidence::Activity(activity) => activity.when.end,
        Evidence::Frames(frames) => frames.when.end,
        Evidence::Placed(placed) => placed.when.end,
        Evidence::Residency(residency) => residency.when.end,
        Evidence::Total(total) => total.when.end,
        Evidence::Recall(known) => known.when.end,
        Evidence::Charge(charge) => charge.when.end,
        Evidence::Gap(gap) => gap.when.end,
    }
}
