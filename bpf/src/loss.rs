//! What was lost, and whose it was.

use std::collections::HashMap;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, libbpf_sys};
use memprov_ledger::evidence::{Evidence, Gap, Stream};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::{MonoTime, Span};

use crate::load::{Program, Role};
use crate::record;
use crate::skeleton::types::space;
use crate::status::Losses;

/// What the kernel counts of a program: run time, runs, runs skipped. Older kernels leave fields at 0.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProgramCounts {
    pub(crate) time: Duration,
    pub(crate) runs: u64,
    pub(crate) misses: u64,
}

pub(crate) fn program_counts(program: impl AsFd) -> ProgramCounts {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let Ok(mut len) = u32::try_from(size_of_val(&info)) else {
        return ProgramCounts::default();
    };
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: `info` has room for `len` bytes, and asks for no arrays behind its pointers, which are null.
    let code = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut len) };
    if code != 0 {
        return ProgramCounts::default();
    }
    ProgramCounts {
        time: Duration::from_nanos(info.run_time_ns),
        runs: info.run_cnt,
        misses: info.recursion_misses,
    }
}

/// Has the kernel count run time of BPF programs for as long as the descriptor is open. Needs CAP_SYS_ADMIN.
pub(crate) fn count_run_time() -> Option<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    // SAFETY: a fresh descriptor that nobody else has.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs that the kernel skipped, of each attached program, since load.
pub(crate) fn misses(programs: &[Program]) -> Vec<u64> {
    programs.iter().map(|program| program_counts(&program.fd).misses).collect()
}

/// How many records the skipped runs may have cost that nothing else tells of: those of processes, and of calls whose
/// both ends were skipped.
///
/// A call with one end skipped is noticed by the other end, and is a loss of its process. Both ends are skipped only
/// where a thread is preempted in each of the two programs on one CPU, which is rarer by the share of skipped runs; the
/// count of runs says little, because it is of all calls of the host. So it is believed only when `halves`, calls with
/// one end skipped, were noticed at the same time.
fn unnoticed(programs: &[Program], skipped: &[u64], halves: bool) -> u64 {
    let mut ends: HashMap<&str, Vec<u64>> = HashMap::new();
    let mut sum = 0;
    for (program, skipped) in programs.iter().zip(skipped) {
        match program.role {
            Role::Call(_) | Role::CompatCall => {
                ends.entry(&program.place).or_default().push(*skipped);
            }
            Role::Process => sum += skipped,
            Role::Fault | Role::Count => {}
        }
    }
    // A clone has one such end.
    let both = ends.values().filter(|ends| ends.len() == 2);
    let both = both.filter_map(|ends| ends.iter().min()).sum::<u64>();
    sum + if halves { both } else { 0 }
}

/// Which losses were told already.
pub(crate) struct Told {
    /// When the counters were read last.
    since: MonoTime,
    /// Lifecycle records lost that a gap was made of.
    lifecycle: u64,
    /// Of these, by process: the epoch of its space.
    spaces: HashMap<Tgid, u64>,
    stacks: u64,
    faults: u64,
    halves: u64,
    /// Skipped runs, by program.
    misses: Vec<u64>,
}

impl Told {
    pub(crate) fn new(since: MonoTime) -> Self {
        Self {
            since,
            lifecycle: 0,
            spaces: HashMap::new(),
            stacks: 0,
            faults: 0,
            halves: 0,
            misses: Vec::new(),
        }
    }

    /// Makes gaps of what was lost since the last call. `spaces` is the programs' table, read only when records were
    /// lost. The programs bump a space before the total: whatever the total holds, the table holds.
    pub(crate) fn tell(
        &mut self,
        losses: &Losses,
        spaces: &impl MapCore,
        programs: &[Program],
        now: MonoTime,
        out: &mut Vec<Evidence>,
    ) {
        let when = Span { begin: mem::replace(&mut self.since, now), end: now };
        let mut gap = |stream, lost, whose| {
            if lost > 0 {
                out.push(Evidence::Gap(Gap { when, stream, lost, whose }));
            }
        };
        if losses.lifecycle != self.lifecycle {
            let before = mem::take(&mut self.spaces);
            for (tgid, epoch) in epochs(spaces) {
                let told = before.get(&tgid).copied().unwrap_or(0);
                // A lower epoch is a new entry for the same number.
                let lost = epoch.checked_sub(told).unwrap_or(epoch);
                gap(Stream::Lifecycle, lost, Some(tgid));
                self.lifecycle += lost;
                self.spaces.insert(tgid, epoch);
            }
            let rest = losses.lifecycle.saturating_sub(self.lifecycle);
            gap(Stream::Lifecycle, rest, None);
            self.lifecycle += rest;
        }
        let misses = misses(programs);
        self.misses.resize(misses.len(), 0);
        let new: Vec<u64> =
            misses.iter().zip(&self.misses).map(|(now, told)| now.saturating_sub(*told)).collect();
        gap(Stream::Lifecycle, unnoticed(programs, &new, losses.halves > self.halves), None);
        self.halves = losses.halves;
        self.misses = misses;
        gap(Stream::Stacks, losses.stacks.saturating_sub(self.stacks), None);
        gap(Stream::Faults, losses.faults.saturating_sub(self.faults), None);
        (self.stacks, self.faults) = (losses.stacks, losses.faults);
    }
}

/// The spaces that ever lost something.
fn epochs(spaces: &impl MapCore) -> Vec<(Tgid, u64)> {
    let entry = |key: Vec<u8>| {
        let value = spaces.lookup(&key, MapFlags::ANY).ok().flatten()?;
        let tgid = u32::from_ne_bytes(key.try_into().ok()?);
        let space: space = record::read(&value)?;
        (space.lost > 0).then_some((Tgid(tgid), space.lost))
    };
    spaces.keys().filter_map(entry).collect()
}
