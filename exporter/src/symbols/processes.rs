//! Which processes have which code where: read lazily from `/proc`, kept current by lifecycle events.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use memprov_ledger::identity::{Extent, Tgid};
use memprov_ledger::time::MonoTime;
use rustix::time::{ClockId, clock_gettime};

use super::modules::Modules;
use super::segments::{self, Binding, Segment};
use super::unwind::UnwindError;

/// A list is read again without a reason from lifecycle events when it is older and misses an address.
const REREAD: Duration = Duration::from_secs(1);
/// Time that re-reading one process' list may take: at once, and as a share of time passed. A list of 65,530 lines
/// takes 20 ms, and its process decides how often we would like to.
const BURST: Duration = Duration::from_millis(50);
const SHARE: u32 = 50;

/// Segments of one process that are no longer there and are still known. Stacks of a batch come after its calls, so that
/// a library can be closed before a stack that leads through it is unwound.
const PAST: usize = 64;

#[derive(Clone, Debug)]
struct Process {
    /// When its program began; stacks from before are another program's.
    since: MonoTime,
    segments: Vec<Segment>,
    /// What was there, until when.
    past: VecDeque<(MonoTime, Segment)>,
    /// Before the list was read; `None` when it was not.
    read: Option<MonoTime>,
    /// Code was mapped after that.
    stale: bool,
    /// Reading time left, as of `refilled`.
    credit: Duration,
    refilled: MonoTime,
    used: u64,
}

impl Process {
    fn new(since: MonoTime) -> Self {
        Self {
            since,
            segments: Vec::new(),
            past: VecDeque::new(),
            read: None,
            stale: false,
            credit: BURST,
            refilled: since,
            used: 0,
        }
    }

    fn weight(&self) -> usize {
        1 + self.segments.len() + self.past.len()
    }

    fn find(&self, address: u64) -> Option<usize> {
        let behind = self.segments.partition_point(|s| s.extent.start <= address);
        let last = behind.checked_sub(1)?;
        self.segments.get(last)?.extent.contains(address).then_some(last)
    }

    fn may_read_again(&mut self, when: MonoTime) -> bool {
        let passed = when.since(self.refilled);
        self.credit = BURST.min(self.credit + passed / SHARE);
        self.refilled = self.refilled.max(when);
        let old = self.read.is_none_or(|read| when.since(read) > REREAD);
        (self.stale || old) && !self.credit.is_zero()
    }
}

/// All processes that had stacks.
#[derive(Debug)]
pub(crate) struct Processes {
    root: PathBuf,
    limit: usize,
    all: HashMap<Tgid, Process>,
    /// Segments, past ones too, and processes, together.
    weight: usize,
    clock: u64,
}

fn now() -> MonoTime {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    MonoTime(seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0))
}

impl Processes {
    pub(crate) fn new(root: PathBuf, limit: usize) -> Self {
        Self { root, limit, all: HashMap::new(), weight: 0, clock: 0 }
    }

    /// Makes sure that the list of a process is there, for a stack copied at `when`.
    pub(crate) fn prepare(&mut self, tgid: Tgid, when: MonoTime) -> Result<(), UnwindError> {
        self.clock += 1;
        let clock = self.clock;
        if let Some(process) = self.all.get_mut(&tgid) {
            process.used = clock;
            if when < process.since {
                return Err(UnwindError::Gone(tgid));
            }
            if process.read.is_some() {
                return Ok(());
            }
        }
        let mut process = self.take(tgid).unwrap_or_else(|| Process::new(MonoTime(0)));
        let result = self.read(tgid, &mut process);
        let found = !process.segments.is_empty();
        process.used = clock;
        if found || process.since > MonoTime(0) {
            self.put(tgid, process);
        }
        match result {
            Ok(()) if found => Ok(()),
            Ok(()) => Err(UnwindError::Gone(tgid)),
            // A process that exits in between answers ESRCH.
            Err(err) if err.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                Err(UnwindError::Gone(tgid))
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => Err(UnwindError::Gone(tgid)),
            Err(source) => Err(UnwindError::Maps { tgid, source }),
        }
    }

    /// Reads the list; keeps what it has when the process is gone meanwhile.
    fn read(&self, tgid: Tgid, process: &mut Process) -> io::Result<()> {
        let begin = now();
        let segments = segments::read(&self.root, tgid)?;
        if !segments.is_empty() {
            process.segments = segments;
            process.read = Some(begin);
            process.stale = false;
        }
        process.credit = process.credit.saturating_sub(now().since(begin));
        Ok(())
    }

    /// What the segment that holds `address` is bound to; `None` when no code is known there.
    pub(crate) fn locate(
        &mut self,
        tgid: Tgid,
        when: MonoTime,
        address: u64,
        modules: &mut Modules,
    ) -> Option<Binding> {
        let process = self.all.get_mut(&tgid)?;
        let past =
            |(until, s): &&mut (MonoTime, Segment)| when <= *until && s.extent.contains(address);
        if let Some((_, segment)) = process.past.iter_mut().find(past) {
            if matches!(segment.binding, Binding::Unbound) {
                segment.binding = modules.bind(tgid, process.since.0, segment);
            }
            return Some(segment.binding);
        }
        let Some(index) = process.find(address) else {
            // What cannot be read again is as it was, and the address unknown.
            return if process.may_read_again(when) && self.read_again(tgid).is_ok() {
                let index = self.all.get(&tgid)?.find(address)?;
                self.bind(tgid, index, modules)
            } else {
                None
            };
        };
        match process.segments.get(index)?.binding {
            Binding::Unbound => self.bind(tgid, index, modules),
            binding => Some(binding),
        }
    }

    fn read_again(&mut self, tgid: Tgid) -> io::Result<()> {
        let Some(mut process) = self.take(tgid) else { return Ok(()) };
        let result = self.read(tgid, &mut process);
        self.put(tgid, process);
        result
    }

    fn bind(&mut self, tgid: Tgid, index: usize, modules: &mut Modules) -> Option<Binding> {
        let process = self.all.get_mut(&tgid)?;
        let segment = process.segments.get_mut(index)?;
        segment.binding = modules.bind(tgid, process.since.0, segment);
        Some(segment.binding)
    }

    /// The process runs a new program since `when`.
    pub(crate) fn begin(&mut self, tgid: Tgid, when: MonoTime) {
        self.take(tgid);
        self.put(tgid, Process::new(when));
    }

    /// The process is gone.
    pub(crate) fn end(&mut self, tgid: Tgid) {
        self.take(tgid);
    }

    /// A child has what its parent had.
    pub(crate) fn fork(&mut self, parent: Tgid, child: Tgid, when: MonoTime) {
        self.take(child);
        if let Some(parent) = self.all.get(&parent) {
            // No stack of the child is from when that was there.
            let past = VecDeque::new();
            let process = Process { since: when, used: self.clock, past, ..parent.clone() };
            self.put(child, process);
        }
    }

    /// What was in `extent` is no longer there, after a call that returned at `when`; new code may be.
    pub(crate) fn changed(&mut self, tgid: Tgid, extent: Extent, when: MonoTime, code: bool) {
        let Some(process) = self.all.get_mut(&tgid) else { return };
        // A list that was read after the call has it already.
        if process.read.is_none_or(|read| when < read) {
            return;
        }
        process.stale |= code;
        let first = process.segments.partition_point(|s| s.extent.end <= extent.start);
        let hit = process.segments.get(first).is_some_and(|s| s.extent.overlaps(extent));
        if hit {
            // The rest of a segment that was cut is read again, too.
            process.stale = true;
            let before = process.weight();
            let gone = process.segments.extract_if(first.., |s| s.extent.overlaps(extent));
            process.past.extend(gone.map(|segment| (when, segment)));
            let beyond = process.past.len().saturating_sub(PAST);
            process.past.drain(..beyond);
            self.weight -= before - process.weight();
        }
    }

    /// Forgets the lists of one process, or of all.
    pub(crate) fn forget(&mut self, whose: Option<Tgid>) {
        match whose {
            Some(tgid) => {
                if let Some(Process { since, .. }) = self.take(tgid) {
                    self.put(tgid, Process::new(since));
                }
            }
            None => {
                self.all.clear();
                self.weight = 0;
            }
        }
    }

    fn take(&mut self, tgid: Tgid) -> Option<Process> {
        let process = self.all.remove(&tgid)?;
        self.weight -= process.weight();
        Some(process)
    }

    fn put(&mut self, tgid: Tgid, process: Process) {
        self.weight += process.weight();
        self.all.insert(tgid, process);
        while self.weight > self.limit {
            let others = self.all.iter().filter(|(other, _)| **other != tgid);
            let Some((&oldest, _)) = others.min_by_key(|(_, p)| p.used) else { break };
            self.take(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Extent, MonoTime, PAST, Process, Processes, Segment, Tgid};
    use crate::symbols::segments::{Binding, Code};

    /// A process whose list was read at 1: so many pages of code, one after the other.
    fn process(pages: u64) -> Process {
        let segment = |n: u64| Segment {
            extent: Extent { start: n << 12, end: (n + 1) << 12 },
            code: Code::Generated,
            binding: Binding::Unbound,
        };
        let segments = (0..pages).map(segment).collect();
        Process { segments, read: Some(MonoTime(1)), ..Process::new(MonoTime(0)) }
    }

    #[test]
    fn what_is_no_longer_there_counts_and_a_child_has_none_of_it() {
        let mut all = Processes::new(PathBuf::new(), 300);
        let gone = Extent { start: 0, end: 100 << 12 };
        for tgid in 1..=9 {
            all.put(Tgid(tgid), process(100));
            all.changed(Tgid(tgid), gone, MonoTime(2), false);
        }
        let kept: usize = all.all.values().map(|process| 1 + process.past.len()).sum();
        assert_eq!((all.weight, kept), (kept, 4 * (1 + PAST)));
        all.fork(Tgid(9), Tgid(10), MonoTime(3));
        assert!(all.all[&Tgid(10)].past.is_empty());
        let tgids: Vec<Tgid> = all.all.keys().copied().collect();
        tgids.into_iter().for_each(|tgid| all.end(tgid));
        assert_eq!(all.weight, 0);
    }
}
