//! The scan: the kernel's totals, the list of mappings, their pages, and the totals again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::evidence::{Counters, Mapping, Residency, Total};
use memprov_ledger::identity::{PAGE, StartTicks, Tgid};
use memprov_ledger::time::{MonoTime, Span};

use crate::accuracy::RssAccuracy;
use crate::backing::Devices;
use crate::budget::SkipReason;
use crate::cgroup::memory_path;
use crate::clock::{now, thread_cpu};
use crate::cost::Costs;
use crate::evidence::{counters, mappings, torn};
use crate::maps::{self, MapLine};
use crate::pages::{Walker, Wanted};
use crate::procfs::{Proc, parse_error};
use crate::read::{ReadError, open};
use crate::smaps;
use crate::stat::Stat;
use crate::status::Status;
use crate::sums::Sums;
use crate::text::lossless;

/// Readings of one process that contradict themselves before it is given up.
const TRIES: usize = 3;

/// How to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanOptions {
    /// Present pages told by one `PAGEMAP_SCAN`, while the target's mmap lock is held. 25,000 take 1.8 ms at 72 ns a page,
    /// the slowest seen on a 2 GHz machine. Also the largest process whose totals are summed from `smaps`.
    pub pages_per_call: u64,
    /// How exact Rss figures are; `None`: find out by trying.
    pub accuracy: Option<RssAccuracy>,
    /// Read `pagemap` entry by entry even where `PAGEMAP_SCAN` works, as before Linux 6.7.
    pub entries_only: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { pages_per_call: 25_000, accuracy: None, entries_only: false }
    }
}

/// A process was not scanned.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// It has ended, or its pid belongs to another now.
    #[error("process {} has vanished", tgid.0)]
    Vanished {
        /// The process.
        tgid: Tgid,
    },
    /// We may not look, not even at its totals.
    #[error("process {} may not be looked at", tgid.0)]
    Refused {
        /// The process.
        tgid: Tgid,
        /// The file.
        source: ReadError,
    },
    /// It is a kernel thread.
    #[error("process {} is a kernel thread", tgid.0)]
    KernelThread {
        /// The process.
        tgid: Tgid,
    },
    /// It ran another program during each of three readings.
    #[error("process {} ran another program during each reading", tgid.0)]
    Restless {
        /// The process.
        tgid: Tgid,
    },
    /// A file could not be read or understood.
    #[error("scan process {}", tgid.0)]
    Read {
        /// The process.
        tgid: Tgid,
        /// The file.
        source: ReadError,
    },
}

impl ScanError {
    /// The reason to count it under, if it is one of the ordinary ones.
    #[must_use]
    pub fn skip_reason(&self) -> Option<SkipReason> {
        match self {
            Self::Vanished { .. } => Some(SkipReason::Vanished),
            Self::Refused { .. } => Some(SkipReason::Refused),
            Self::KernelThread { .. } | Self::Restless { .. } | Self::Read { .. } => None,
        }
    }
}

/// Scans processes, one at a time, in the thread that calls.
#[derive(Debug)]
pub struct Scanner {
    proc: Proc,
    accuracy: RssAccuracy,
    pages_per_call: u64,
    walker: Walker,
    devices: Devices,
    costs: Costs,
    text: Vec<u8>,
}

/// Totals and identity, from one pass over `stat` and `status`.
struct Reading {
    stat: Stat,
    /// Of a live thread: the leader may have exited.
    layout: Option<(u64, u64)>,
    counters: Counters,
    /// How far they may be off: anonymous memory and swap, files and shmem.
    slack: (u64, u64),
}

impl Scanner {
    /// A scanner of the processes below a root. Tries what the kernel can do, which takes a millisecond or two.
    #[must_use]
    pub fn new(proc: Proc, options: ScanOptions) -> Self {
        let accuracy = options.accuracy.unwrap_or_else(|| RssAccuracy::probe(&proc));
        let devices = Devices::new(proc.is_live());
        let ScanOptions { pages_per_call, entries_only, .. } = options;
        let walker = Walker::new(pages_per_call, entries_only);
        let (costs, text) = (Costs::default(), Vec::new());
        Self { proc, accuracy, pages_per_call, walker, devices, costs, text }
    }

    /// How exact Rss figures are here.
    #[must_use]
    pub fn accuracy(&self) -> RssAccuracy {
        self.accuracy
    }

    /// Whether the kernel tells ranges of pages (`PAGEMAP_SCAN`, Linux 6.7) instead of single entries.
    #[must_use]
    pub fn can_scan(&self) -> bool {
        self.walker.scans()
    }

    /// What is below the root.
    #[must_use]
    pub fn proc(&self) -> &Proc {
        &self.proc
    }

    /// Scans a process: totals, mappings, pages, totals. Mappings or pages that we may not read are absent. With `want_exclusive` anonymous pages that no other process
    /// maps are told from those that one may, at 40 ns a page more.
    ///
    /// # Errors
    /// See [`ScanError`]. Nothing is published of a reading that failed.
    pub fn scan(&mut self, tgid: Tgid, want_exclusive: bool) -> Result<Residency, ScanError> {
        let began = thread_cpu();
        for _ in 0..TRIES {
            match self.reading(tgid, want_exclusive) {
                Ok(Some((residency, present))) => {
                    let cost = thread_cpu().saturating_sub(began);
                    let maps = residency.maps.as_ref().map_or(0, |maps| maps.len());
                    self.costs.note(tgid, present, maps, cost);
                    return Ok(residency);
                }
                Ok(None) => {}
                Err(error) => {
                    self.costs.forget(tgid);
                    return Err(error);
                }
            }
        }
        Err(ScanError::Restless { tgid })
    }

    /// The kernel's totals alone, as `stat` and `status` tell them in 40 µs. Those that only the walk of a scan tells to
    /// the byte are left out.
    ///
    /// # Errors
    /// See [`ScanError`].
    pub fn totals(&mut self, tgid: Tgid) -> Result<Total, ScanError> {
        let begin = now();
        let (stat, _, status) = self.first(tgid)?;
        let mut counters = counters(&stat, &status, None);
        if self.walks(&status) {
            let Counters { anon, file, shmem, swap, .. } = &mut counters;
            [anon, file, shmem, swap].into_iter().for_each(|total| *total = None);
        }
        let start = StartTicks(stat.start_ticks);
        Ok(Total { when: Span { begin, end: now() }, tgid, start, counters })
    }

    /// The CPU time that a scan will take, by what it took before; for a process that was not scanned yet by its size.
    #[must_use]
    pub fn predicted(&self, tgid: Tgid) -> Duration {
        let resident = || self.proc.status(tgid).ok().and_then(|status| status.amounts.vm_rss);
        let unseen = if self.costs.knows(tgid) { None } else { resident() };
        self.costs.predict(tgid, unseen.unwrap_or(0) / PAGE)
    }

    /// Forgets what is known of the costs of a process that has ended.
    pub fn forget(&mut self, tgid: Tgid) {
        self.costs.forget(tgid);
    }

    /// One try, with the number of present pages. `None`: it ran another program meanwhile.
    fn reading(
        &mut self,
        tgid: Tgid,
        want_exclusive: bool,
    ) -> Result<Option<(Residency, u64)>, ScanError> {
        let begin = now();
        let before = self.before(tgid)?;
        let memory = self.proc.memory(tgid).map_err(|e| self.failed(tgid, e))?;
        let cgroup = self.proc.cgroups(tgid).ok();
        let cgroup = cgroup.as_deref().and_then(memory_path).map(|path| Arc::from(lossless(path)));
        // Open before the mappings are read: it stays with this memory when another program runs.
        let path = memory.join("pagemap");
        let pagemap = permitted(open(&path)).map_err(|e| self.failed(tgid, e))?;
        let maps = permitted(self.mappings(tgid, &memory, begin));
        let maps = maps.map_err(|e| self.failed(tgid, e))?;
        let wanted = Wanted { exclusive: want_exclusive, swap: before.counters.swap != Some(0) };
        let walked = pagemap.zip(maps.as_deref());
        let walked = walked.map(|(pagemap, maps)| self.walker.walk(&pagemap, maps, wanted));
        let walked = walked.transpose();
        let (pages, present) = walked
            .map_err(|source| self.failed(tgid, ReadError::io(&path, source)))?
            .map_or((None, 0), |(pages, present)| (Some(Arc::new(pages)), present));
        let after = self.after(tgid)?;
        let empty = maps.as_ref().is_some_and(Vec::is_empty);
        if after.stat.start_ticks != before.stat.start_ticks || empty {
            return Err(ScanError::Vanished { tgid });
        }
        if after.layout != before.layout {
            return Ok(None);
        }
        let residency = Residency {
            tgid,
            start: Some(StartTicks(before.stat.start_ticks)),
            comm: Arc::from(lossless(&after.stat.comm)),
            parent: Tgid(after.stat.ppid),
            layout: after.layout,
            cgroup,
            before: before.counters,
            maps: maps.map(Into::into),
            exclusive_known: want_exclusive && pages.is_some(),
            pages,
            after: after.counters,
            slack: before.slack.0.max(after.slack.0),
            object_slack: before.slack.1.max(after.slack.1),
            when: Span { begin, end: now() },
        };
        Ok(Some((residency, present)))
    }

    fn mappings(
        &mut self,
        tgid: Tgid,
        memory: &Path,
        now: MonoTime,
    ) -> Result<Vec<Mapping>, ReadError> {
        let mut text = std::mem::take(&mut self.text);
        let maps = self.mappings_in(tgid, memory, now, &mut text);
        self.text = text;
        maps
    }

    fn mappings_in(
        &mut self,
        tgid: Tgid,
        memory: &Path,
        now: MonoTime,
        text: &mut Vec<u8>,
    ) -> Result<Vec<Mapping>, ReadError> {
        let path = memory.join("maps");
        let mut tries = 0;
        loop {
            self.proc.map_text(tgid, text)?;
            let lines: Result<Vec<MapLine<'_>>, _> = maps::lines(text).collect();
            let lines = lines.map_err(|error| parse_error(&path, error))?;
            tries += 1;
            if torn(&lines) && tries < TRIES {
                continue;
            }
            self.devices.learn(&self.proc, tgid, &lines, now);
            return Ok(mappings(&lines, &self.devices));
        }
    }

    /// Faults first: between them and those of [`Scanner::after`] lies all that was read.
    fn before(&mut self, tgid: Tgid) -> Result<Reading, ScanError> {
        let (stat, thread, status) = self.first(tgid)?;
        let sums = self.sums(tgid, &status);
        Ok(self.told(stat, thread.as_ref(), &status, sums))
    }

    fn first(&self, tgid: Tgid) -> Result<(Stat, Option<Stat>, Status), ScanError> {
        let stat = self.proc.stat(tgid).map_err(|e| self.failed(tgid, e))?;
        if stat.kernel_thread() {
            return Err(ScanError::KernelThread { tgid });
        }
        let (thread, status) = self.thread(tgid, &stat)?;
        Ok((stat, thread, status))
    }

    /// Faults last.
    fn after(&mut self, tgid: Tgid) -> Result<Reading, ScanError> {
        let leader = self.proc.stat(tgid).map_err(|e| self.failed(tgid, e))?;
        let (thread, status) = self.thread(tgid, &leader)?;
        let sums = self.sums(tgid, &status);
        let stat = self.proc.stat(tgid).map_err(|e| self.failed(tgid, e))?;
        Ok(self.told(stat, thread.as_ref(), &status, sums))
    }

    fn told(
        &self,
        stat: Stat,
        thread: Option<&Stat>,
        status: &Status,
        sums: Option<Sums>,
    ) -> Reading {
        let slack = match sums {
            Some(_) => (0, 0),
            None => self.accuracy.slack(status.threads.unwrap_or(1)),
        };
        let counters = counters(&stat, status, sums);
        let layout = thread.unwrap_or(&stat).layout();
        Reading { stat, layout, counters, slack }
    }

    /// Whether a scan sums the mappings, because `status` is approximate. The kernel holds the lock of the target while it
    /// walks one of its mappings, so that larger processes keep their bounds.
    fn walks(&self, status: &Status) -> bool {
        let fits = |rss: u64| rss / PAGE <= self.pages_per_call;
        self.accuracy != RssAccuracy::Exact && status.amounts.vm_rss.is_some_and(fits)
    }

    fn sums(&mut self, tgid: Tgid, status: &Status) -> Option<Sums> {
        if !self.walks(status) {
            return None;
        }
        let mut text = std::mem::take(&mut self.text);
        // A process that vanished is found out by what is read next.
        let read = self.proc.smaps_text(tgid, &mut text).ok();
        let entries = read.and_then(|()| smaps::entries(&text).ok());
        let sums = entries.and_then(|entries| {
            let lines: Vec<_> = entries.iter().map(|entry| entry.map).collect();
            self.devices.learn(&self.proc, tgid, &lines, now());
            Sums::of(&entries, &self.devices)
        });
        self.text = text;
        sums
    }

    /// `stat` and `status` of a thread that shows the memory: those of the leader, unless it has exited.
    fn thread(&self, tgid: Tgid, leader: &Stat) -> Result<(Option<Stat>, Status), ScanError> {
        let read = |e| self.failed(tgid, e);
        if !leader.exited() {
            return Ok((None, self.proc.status(tgid).map_err(read)?));
        }
        let memory = self.proc.memory(tgid).map_err(read)?;
        let status = self.proc.status_in(&memory).map_err(read)?;
        let stat = self.proc.stat_in(&memory).map_err(read)?;
        if stat.exited() {
            return Err(ScanError::Vanished { tgid });
        }
        Ok((Some(stat), status))
    }

    /// A file that is missing means the process has vanished only if all of it has.
    fn failed(&self, tgid: Tgid, source: ReadError) -> ScanError {
        let gone = || self.proc.stat(tgid).is_err_and(|error| error.vanished());
        if source.vanished() && gone() {
            ScanError::Vanished { tgid }
        } else if source.refused() {
            ScanError::Refused { tgid, source }
        } else {
            ScanError::Read { tgid, source }
        }
    }
}

/// What may be read; `None` where we may not look.
fn permitted<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Err(error) if error.refused() => Ok(None),
        read => read.map(Some),
    }
}
