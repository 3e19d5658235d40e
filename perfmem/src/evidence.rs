//! From records to evidence. The only file that knows both.

mod access;
mod spe;
mod start;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::evidence::{Change, Lifecycle, MapFlags, Residency};
use memprov_ledger::identity::{Extent, ObjectKey, StartTicks, Tgid};
use memprov_ledger::time::{MonoTime, Span};

pub use access::Kind;
pub(crate) use access::access;
pub(crate) use spe::{Place, operation};
pub(crate) use start::{Objects, Start};

use crate::record::{Body, File, Mmap, Mmap2, Record, Task};

/// Nanoseconds of a clock tick in `/proc/PID/stat` (`USER_HZ` is 100).
const TICK: u128 = 10_000_000;
/// Processes whose threads are counted at most; of more the end is found by scans.
const PROCESSES: usize = 1 << 16;

// include/uapi/asm-generic/mman-common.h and linux/mman.h
const PROT_EXEC: u32 = 4;
const MAP_SHARED: u32 = 1;
const MAP_HUGETLB: u32 = 0x4_0000;

/// What a record tells, before it is put in order with those of other CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) when: MonoTime,
    tgid: Tgid,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Mapping(Region),
    /// The name of the program.
    Exec(Option<Arc<str>>),
    Fork(Tgid),
    ThreadBegan,
    ThreadEnded,
}

/// A mapping as a record tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) extent: Extent,
    pub(crate) object: Option<ObjectKey>,
    pub(crate) flags: MapFlags,
    pub(crate) path: Option<Arc<str>>,
}

/// What a record says of address spaces; nothing for other records, and for those of kernel threads and of tasks that
/// are gone already, which have no process (0, −1).
pub(crate) fn event(record: &Record<'_>) -> Option<Event> {
    let process = |pid: u32| (pid != 0 && pid < 1 << 31).then_some(Tgid(pid));
    let when = MonoTime(record.trailer.time?);
    let (tgid, what) = match &record.body {
        Body::Mmap2(mapping) => (process(mapping.pid)?, What::Mapping(mapping_of(mapping))),
        Body::Mmap(mapping) => (process(mapping.pid)?, What::Mapping(old_mapping(mapping))),
        Body::Comm { pid, name, exec: true, .. } => (process(*pid)?, What::Exec(path(name))),
        Body::Fork(Task { pid, parent_pid, .. }) if pid == parent_pid => {
            (process(*pid)?, What::ThreadBegan)
        }
        Body::Fork(task) => (process(task.parent_pid)?, What::Fork(process(task.pid)?)),
        Body::Exit(task) => (process(task.pid)?, What::ThreadEnded),
        Body::Sample(_)
        | Body::Comm { .. }
        | Body::Lost(_)
        | Body::LostSamples(_)
        | Body::Throttle
        | Body::Unthrottle
        | Body::Aux { .. }
        | Body::Switch { .. }
        | Body::Other(_) => return None,
    };
    Some(Event { when, tgid, what })
}

fn mapping_of(mapping: &Mmap2<'_>) -> Region {
    let object = match mapping.file {
        File::Inode { major: 0, minor: 0, inode: 0, .. } | File::BuildId(_) => None,
        File::Inode { major, minor, inode, .. } => Some(ObjectKey { major, minor, inode }),
    };
    let anonymous = object.is_none() && !matches!(mapping.file, File::BuildId(_));
    let flags = MapFlags {
        anonymous,
        shared: mapping.flags & MAP_SHARED != 0,
        hugetlb: mapping.flags & MAP_HUGETLB != 0,
        exec: mapping.prot & PROT_EXEC != 0,
        inaccessible: mapping.prot == 0,
        offset: if anonymous { 0 } else { mapping.offset },
        ..MapFlags::default()
    };
    let extent = Extent::new(mapping.address, mapping.length);
    Region { extent, object, flags, path: path(mapping.name) }
}

/// Only its name says whether it has a file.
fn old_mapping(mapping: &Mmap<'_>) -> Region {
    let anonymous = !mapping.name.starts_with(b"/") || mapping.name.starts_with(b"//");
    let offset = if anonymous { 0 } else { mapping.offset };
    let flags = MapFlags { anonymous, exec: mapping.exec, offset, ..MapFlags::default() };
    let extent = Extent::new(mapping.address, mapping.length);
    Region { extent, object: None, flags, path: path(mapping.name) }
}

/// A name as text; bytes that are not UTF-8 as `\xNN`. Memory without a name has none.
fn path(name: &[u8]) -> Option<Arc<str>> {
    if name.is_empty() || name == b"//anon" {
        return None;
    }
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    Some(text.into())
}

impl Event {
    /// Of a process that runs another program, and has nothing mapped yet: all of its mappings are told from here on.
    pub(crate) fn program(&self) -> Option<Residency> {
        let What::Exec(name) = &self.what else { return None };
        let comm = name.clone().unwrap_or_default();
        Some(start::list(self.tgid, comm, Tgid(0), [].into(), Span::at(self.when)))
    }

    /// Gives the file of its mapping a number where the record names it by path alone.
    pub(crate) fn number(&mut self, objects: &mut Objects) {
        if let What::Mapping(region) = &mut self.what {
            objects.number(region);
        }
    }
}

/// Takes in a record of what there was before the recording began.
pub(crate) fn found(body: &Body<'_>, start: &mut Start, objects: &mut Objects) {
    let process = |pid: u32| (pid != 0 && pid < 1 << 31).then_some(Tgid(pid));
    let region = match body {
        Body::Mmap2(mapping) => process(mapping.pid).zip(Some(mapping_of(mapping))),
        Body::Mmap(mapping) => process(mapping.pid).zip(Some(old_mapping(mapping))),
        Body::Comm { pid, tid, name, .. } if pid == tid => {
            return process(*pid).into_iter().for_each(|tgid| start.named(tgid, name));
        }
        Body::Fork(task) => {
            let parent = Tgid(task.parent_pid);
            return process(task.pid).into_iter().for_each(|tgid| start.thread(tgid, parent));
        }
        _ => None,
    };
    if let Some((tgid, mut region)) = region {
        objects.number(&mut region);
        start.mapped(tgid, &region);
    }
}

/// Counts threads, so that the end of the last one is the end of its process.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// Of processes whose begin or exec was told since the last loss.
    live: HashMap<Tgid, u32>,
    /// End of that loss.
    lost: MonoTime,
}

impl Threads {
    /// The evidence of an event. Events come in order of their time. `suspended`: how far the clock of start times is
    /// ahead of that of records.
    pub(crate) fn lifecycle(&mut self, event: Event, suspended: Duration) -> Option<Lifecycle> {
        let Event { when, tgid, what } = event;
        let change = match what {
            What::Mapping(Region { extent, object, flags, path }) => {
                Change::Vma { extent, object, flags, path }
            }
            What::Exec(_) => {
                // No other thread outlives it.
                self.set(tgid, when);
                Change::Exec
            }
            What::Fork(child) => {
                self.set(child, when);
                let boot = (u128::from(when.0) + suspended.as_nanos()) / TICK;
                let child_start = StartTicks(u64::try_from(boot).unwrap_or(u64::MAX));
                // Whether it shares the space is not told.
                Change::Fork { child, child_start, shares: false }
            }
            What::ThreadBegan => {
                if let Some(live) = self.live.get_mut(&tgid) {
                    *live = live.saturating_add(1);
                }
                return None;
            }
            What::ThreadEnded => {
                let live = self.live.get_mut(&tgid)?;
                *live = live.saturating_sub(1);
                if *live > 0 {
                    return None;
                }
                self.live.remove(&tgid);
                Change::Exit
            }
        };
        Some(Lifecycle { when: Span::at(when), tgid, change })
    }

    /// These were there before.
    pub(crate) fn found(&mut self, threads: impl Iterator<Item = (Tgid, u32)>) {
        self.live.extend(threads.filter(|(_, count)| *count > 0).take(PROCESSES));
    }

    /// It has one thread since `when`.
    fn set(&mut self, tgid: Tgid, when: MonoTime) {
        let room = self.live.len() < PROCESSES || self.live.contains_key(&tgid);
        if room && when > self.lost {
            self.live.insert(tgid, 1);
        }
    }

    /// Records were lost up to `end`: no count is right any more.
    pub(crate) fn lose(&mut self, end: MonoTime) {
        self.live.clear();
        self.lost = self.lost.max(end);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memprov_ledger::evidence::{Change, Lifecycle};
    use memprov_ledger::identity::{Extent, ObjectKey, StartTicks, Tgid};
    use memprov_ledger::time::MonoTime;

    use super::{Threads, event};
    use crate::record::{Body, File, Mmap2, Record, Task, Trailer};

    fn at(time: u64, body: Body<'_>) -> Record<'_> {
        Record { body, trailer: Trailer { time: Some(time), ..Trailer::default() } }
    }

    fn task(pid: u32, parent_pid: u32, tid: u32) -> Task {
        Task { pid, parent_pid, tid, parent_tid: parent_pid, time: 0 }
    }

    fn mapping<'a>(file: File<'a>, name: &'a [u8]) -> Body<'a> {
        let (address, length, offset) = (0x7000_0000, 0x3000, 0x1000);
        Body::Mmap2(Mmap2 {
            pid: 7,
            tid: 9,
            address,
            length,
            offset,
            file,
            prot: 5,
            flags: 1,
            name,
        })
    }

    fn told(threads: &mut Threads, body: Body<'_>) -> Option<Change> {
        let event = event(&at(25_000_000, body))?;
        threads.lifecycle(event, Duration::from_millis(10)).map(|Lifecycle { change, .. }| change)
    }

    #[test]
    fn a_mapping_is_told_with_its_object_and_memory_without_a_file_with_none() {
        let mut threads = Threads::default();
        let inode = |major, inode| File::Inode { major, minor: 0, inode, generation: 3 };
        let Some(Change::Vma { extent, object, flags, path }) =
            told(&mut threads, mapping(inode(8, 42), b"/bin/x"))
        else {
            panic!()
        };
        assert_eq!(extent, Extent::new(0x7000_0000, 0x3000));
        assert_eq!(object, Some(ObjectKey { major: 8, minor: 0, inode: 42 }));
        assert!(flags.exec && flags.shared && !flags.anonymous && flags.offset == 0x1000);
        assert_eq!(path.as_deref(), Some("/bin/x"));
        let Some(Change::Vma { object: None, flags, path: None, .. }) =
            told(&mut threads, mapping(inode(0, 0), b"//anon"))
        else {
            panic!()
        };
        assert!(flags.anonymous && flags.offset == 0);
        let by_id = told(&mut threads, mapping(File::BuildId(&[1; 20]), b"/bin/x"));
        assert!(matches!(by_id, Some(Change::Vma { object: None, flags, .. }) if !flags.anonymous));
    }

    #[test]
    fn a_process_ends_with_its_last_thread_and_not_before() {
        let mut threads = Threads::default();
        let fork = told(&mut threads, Body::Fork(task(8, 7, 8)));
        let start = StartTicks(3);
        assert_eq!(fork, Some(Change::Fork { child: Tgid(8), child_start: start, shares: false }));
        assert_eq!(told(&mut threads, Body::Fork(task(8, 8, 10))), None);
        assert_eq!(told(&mut threads, Body::Exit(task(8, 7, 8))), None, "its leader alone");
        assert_eq!(told(&mut threads, Body::Exit(task(8, 7, 10))), Some(Change::Exit));
        assert_eq!(told(&mut threads, Body::Exit(task(8, 7, 10))), None);
    }

    #[test]
    fn of_a_process_that_was_there_before_or_after_a_loss_no_end_is_told_until_it_runs_a_program() {
        let mut threads = Threads::default();
        assert_eq!(told(&mut threads, Body::Exit(task(7, 1, 7))), None);
        assert!(told(&mut threads, Body::Fork(task(8, 7, 8))).is_some());
        threads.lose(MonoTime(24_999_999));
        assert_eq!(told(&mut threads, Body::Exit(task(8, 7, 8))), None);
        let exec = |exec| Body::Comm { pid: 7, tid: 7, name: b"x", exec };
        assert_eq!(told(&mut threads, exec(false)), None);
        assert_eq!(told(&mut threads, exec(true)), Some(Change::Exec));
        threads.lose(MonoTime(25_000_000));
        assert!(told(&mut threads, exec(true)).is_some(), "held back, and older than the loss");
        assert_eq!(told(&mut threads, Body::Exit(task(7, 1, 7))), None);
    }

    #[test]
    fn what_has_no_process_is_told_of_nobody() {
        for pid in [0, u32::MAX] {
            assert_eq!(event(&at(1, Body::Exit(task(pid, 1, 5)))), None);
        }
        assert_eq!(event(&at(1, Body::Other(99))), None);
        let timeless = Record { body: Body::Exit(task(5, 1, 5)), trailer: Trailer::default() };
        assert_eq!(event(&timeless), None);
    }
}
