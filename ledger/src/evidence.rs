//! Evidence: the vocabulary of all sources and of the trace.
//!
//! A closed enum. Its class is derived, never stored. `when` is on `CLOCK_MONOTONIC` and stamped last.

mod access;
mod activity;
mod frames;
mod placed;

use std::sync::Arc;

pub use access::{
    Access, Blocked, Locality, Op, Population, Served, Snoop, Timing, Tlb, is_kernel,
};
pub use activity::{Activity, Region};
pub use frames::{Frames, Run};
pub use placed::{NodeRange, Placed, Policy, Ran};

use crate::charge::Charge;
use crate::identity::{Extent, ObjectKey, StackId, StartTicks, Tgid};
use crate::pages::PageSet;
use crate::recall::Recall;
use crate::time::Span;

/// How sure a number is. The order is that of weakness: `max` is the weakest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum EvidenceClass {
    /// Seen in full.
    #[default]
    Exact,
    /// Follows from what was seen.
    Inferred,
    /// Estimated from a sample.
    Sampled,
}

/// One thing that a source learned.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Evidence {
    /// Ownership of addresses changed.
    Lifecycle(Lifecycle),
    /// A page fault that was kept by the page-hash filter.
    Fault(Fault),
    /// A sampled access to memory.
    Access(Box<Access>),
    /// What a monitor of memory found in one aggregation.
    Activity(Box<Activity>),
    /// In which frames pages of a process stayed while a monitor of physical memory looked.
    Frames(Box<Frames>),
    /// On which NUMA nodes pages of a process lie, and its threads ran.
    Placed(Box<Placed>),
    /// What a scan saw of a process.
    Residency(Box<Residency>),
    /// The kernel's own totals of a process.
    Total(Total),
    /// What an earlier run of the agent knew of an address space.
    Recall(Box<Recall>),
    /// What a cgroup is charged for.
    Charge(Box<Charge>),
    /// Something was lost.
    Gap(Gap),
}

/// Where a change of address space came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum StackRef {
    /// This stack.
    Known(StackId),
    /// A stack should be there and was lost (ring full, memory unreadable, process gone).
    Lost,
    /// None is taken for this kind of event, or it happened before we watched.
    None,
}

/// A change of who owns addresses of one process.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lifecycle {
    /// From the entry of the call to its return.
    pub when: Span,
    /// The process that it happened in.
    pub tgid: Tgid,
    /// What changed.
    pub change: Change,
}

/// What changed in an address space. Extents are in whole pages, as the kernel rounds them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Change {
    /// `mmap` succeeded.
    Map {
        /// The new mapping.
        extent: Extent,
        /// What kind of mapping was asked for.
        flags: MapFlags,
        /// Who asked.
        stack: StackRef,
    },
    /// `munmap` succeeded.
    Unmap {
        /// What is no longer mapped.
        extent: Extent,
    },
    /// `mremap` succeeded.
    Remap {
        /// The old range: `old_address` and `old_size`, rounded; empty when `old_size` was 0 (a second mapping of a
        /// shared object is made).
        from: Extent,
        /// The new range.
        to: Extent,
        /// `MREMAP_DONTUNMAP`: the old range stays mapped and empty.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
        keep: bool,
        /// `MREMAP_FIXED`: whatever was at `to` is gone.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
        fixed: bool,
        /// Who asked.
        stack: StackRef,
    },
    /// `brk` moved the end of the heap. Both are the kernel's own byte values.
    Brk {
        /// The end before the call.
        #[cfg_attr(feature = "serde", serde(with = "crate::identity::hex"))]
        old: u64,
        /// The end after it.
        #[cfg_attr(feature = "serde", serde(with = "crate::identity::hex"))]
        new: u64,
        /// Who asked.
        stack: StackRef,
    },
    /// `shmat` succeeded. Its length is not in the call: the next list of mappings tells.
    Attach {
        /// The address that it returned.
        #[cfg_attr(feature = "serde", serde(with = "crate::identity::hex"))]
        at: u64,
        /// With `SHM_REMAP`: what was there is gone.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
        replaces: bool,
        /// Who asked.
        stack: StackRef,
    },
    /// `shmdt` succeeded.
    Detach {
        /// The address that was given.
        #[cfg_attr(feature = "serde", serde(with = "crate::identity::hex"))]
        at: u64,
    },
    /// `prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME)` succeeded.
    Name {
        /// What was named.
        extent: Extent,
        /// The name, or none when it was cleared. Bytes that are not UTF-8 as `\xNN`.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        name: Option<Arc<str>>,
    },
    /// The kernel told of a mapping as it is now (perf's MMAP2 record): new, grown, merged with its neighbours, or with
    /// another protection. What was there before is not told, nor who asked.
    Vma {
        /// The whole mapping.
        extent: Extent,
        /// The object behind it, if it has one.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        object: Option<ObjectKey>,
        /// What kind of mapping it is, as far as the record shows.
        flags: MapFlags,
        /// Its path, or the kernel's name of it (`[heap]`), as in [`Mapping::path`].
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        path: Option<Arc<str>>,
    },
    /// A process was made.
    Fork {
        /// The new process.
        child: Tgid,
        /// When it began.
        child_start: StartTicks,
        /// It shares this address space (`CLONE_VM`) instead of having a copy.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
        shares: bool,
    },
    /// The process runs another program now: a new address space.
    Exec,
    /// The last thread of the process ended.
    Exit,
    /// A call failed that may have changed part of the range all the same: `mmap` with `MAP_FIXED`, `munmap`,
    /// `mremap`. What is there must be read again.
    Doubt {
        /// The range that the failed call named.
        extent: Extent,
    },
}

/// What kind of mapping was asked for: bits of `mmap`'s `prot` and `flags` that matter to ownership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct MapFlags {
    /// `MAP_FIXED` without `MAP_FIXED_NOREPLACE`: what was there is gone.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub fixed: bool,
    /// `MAP_ANONYMOUS`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub anonymous: bool,
    /// `MAP_SHARED` or `MAP_SHARED_VALIDATE`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub shared: bool,
    /// `MAP_STACK`, as glibc maps thread stacks.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub stack: bool,
    /// `MAP_GROWSDOWN`: a fault right below it makes it longer.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub grows_down: bool,
    /// `MAP_NORESERVE`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub noreserve: bool,
    /// `MAP_HUGETLB`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub hugetlb: bool,
    /// `PROT_EXEC`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub exec: bool,
    /// `prot` was `PROT_NONE`: a reservation.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub inaccessible: bool,
    /// Offset into the file, in bytes; 0 for anonymous memory.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub offset: u64,
}

/// A line of `/proc/PID/maps` (kernel `fs/proc/task_mmu.c`, `show_map_vma`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Mapping {
    /// Its addresses.
    pub extent: Extent,
    /// What backs it.
    pub backing: Backing,
    /// Offset into the backing object, in bytes.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub offset: u64,
    /// `MAP_SHARED`: the fourth permission letter is `s`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub shared: bool,
    /// The permission letters hold an `x`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub exec: bool,
    /// The permission letters hold a `w`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub write: bool,
    /// The text behind the inode: a path, `[heap]`, `[stack]`, `[anon:…]`, or nothing. Lossless text: the kernel's
    /// octal escape of a newline is undone, bytes that are not UTF-8 appear as `\xNN`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub path: Option<Arc<str>>,
}

/// What a mapping's object pages belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Backing {
    /// No object: every page is anonymous.
    Anonymous,
    /// A file of a disk, network or pseudo file system: its pages count as RssFile.
    File(ObjectKey),
    /// A file of tmpfs, a memfd, SysV memory or shared anonymous memory: its pages count as RssShmem.
    Shmem(ObjectKey),
    /// A hugetlbfs file, or anonymous memory of hugetlb: counted as HugetlbPages, never as Rss.
    Hugetlb(ObjectKey),
    /// Pages that the kernel inserted without counting them (`[vvar]`, device memory).
    Special,
}

impl Backing {
    /// What backs a mapping, as far as its object and name tell, where nobody knows the devices of the host.
    #[must_use]
    pub fn told(object: Option<ObjectKey>, hugetlb: bool, path: Option<&str>) -> Self {
        let path = path.unwrap_or("");
        let named = |names: &[&str]| names.iter().any(|name| path.starts_with(name));
        match object {
            Some(key) if hugetlb || named(&["/anon_hugepage"]) => Self::Hugetlb(key),
            Some(key) if named(&["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"]) => Self::Shmem(key),
            Some(key) => Self::File(key),
            None if named(&["[vvar", "[vsyscall]", "[uprobes]"]) => Self::Special,
            None if named(&["[vdso]", "[vectors]", "[sigpage]"]) => {
                Self::File(ObjectKey::default())
            }
            None => Self::Anonymous,
        }
    }
}

/// A page fault that was kept because its page is in the sample.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fault {
    /// When it was taken.
    pub when: Span,
    /// The process.
    pub tgid: Tgid,
    /// The faulting address.
    #[cfg_attr(feature = "serde", serde(with = "crate::identity::hex"))]
    pub address: u64,
    /// It was a write (bit 1 of the x86 error code).
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub write: bool,
    /// The page was present (bit 0 of the x86 error code): a write to a page that is shared or zero.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub present: bool,
    /// A page is kept when the hash of its number is below 2^32 × this probability: that of the process at that instant.
    /// A lower one than the ledger's sample has makes the sample of the space smaller.
    pub probability: f64,
    /// Where the program was.
    pub stack: StackRef,
}

/// The kernel's own totals of one process: `/proc/PID/status` and `/proc/PID/stat`. Bytes.
///
/// `None`: the kernel did not print the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Counters {
    /// `RssAnon`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub anon: Option<u64>,
    /// `RssFile`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub file: Option<u64>,
    /// `RssShmem`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub shmem: Option<u64>,
    /// `HugetlbPages`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub hugetlb: Option<u64>,
    /// `VmSwap`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub swap: Option<u64>,
    /// Minor faults of the whole thread group, ever (`stat` field 10).
    pub minor_faults: u64,
    /// Major faults of the whole thread group, ever (`stat` field 12).
    pub major_faults: u64,
}

/// A reading of the totals alone; those that only a scan tells are `None`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Total {
    /// When it was read.
    pub when: Span,
    /// The process.
    pub tgid: Tgid,
    /// When the process began.
    pub start: StartTicks,
    /// What the kernel said.
    pub counters: Counters,
}

/// What a scan saw of a process: totals, list of mappings, pages, totals again, in that order within `when`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Residency {
    /// From before the first reading to after the last.
    pub when: Span,
    /// The process.
    pub tgid: Tgid,
    /// When the process began; `None`: unknown.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub start: Option<StartTicks>,
    /// Its name (`comm`), lossless text.
    pub comm: Arc<str>,
    /// The parent process at that time.
    pub parent: Tgid,
    /// Where the kernel put stack and code (`stat` fields 26 and 28): equal in a parent and a child that did not
    /// exec since the fork, random otherwise. `None` where they are hidden (0).
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::identity::hex", default, skip_serializing_if = "Option::is_none")
    )]
    pub layout: Option<(u64, u64)>,
    /// Cgroup path, lossless text; `None` when it could not be read.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub cgroup: Option<Arc<str>>,
    /// Totals before.
    pub before: Counters,
    /// All mappings; `None` where we may not read the list.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub maps: Option<Arc<[Mapping]>>,
    /// Pages; `None` where we may not read them.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub pages: Option<Arc<PageSet>>,
    /// `PageState::exclusive` was read for anonymous pages. Else nothing is known of sharing after fork.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub exclusive_known: bool,
    /// Totals after.
    pub after: Counters,
    /// How far `anon` and `swap` of `before` and `after` may be off, in bytes; 0 where they are known to the byte.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub slack: u64,
    /// The same for `file` and `shmem`: one fault can map several pages of an object.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub object_slack: u64,
}

/// What was lost, by whom, how many at least, when, whose.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Gap {
    /// When it can have been.
    pub when: Span,
    /// The stream that lost it.
    pub stream: Stream,
    /// How many records at least; 0 when nobody counted.
    pub lost: u64,
    /// Whose records: one process, or nobody knows.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub whose: Option<Tgid>,
}

/// A stream that can lose records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Stream {
    /// Lifecycle records.
    Lifecycle,
    /// Side-band records of perf, which stand for lifecycle records where no hooks load.
    Sideband,
    /// Stacks of lifecycle records and faults.
    Stacks,
    /// Sampled faults.
    Faults,
    /// Sampled accesses.
    Accesses,
    /// Regions of monitors: aggregations that did not arrive whole.
    Regions,
    /// The queue between a source and the fuser.
    Queue,
    /// Scans.
    Scans,
}

#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Stream {
    /// All streams.
    pub const ALL: [Self; 8] = [
        Self::Lifecycle,
        Self::Sideband,
        Self::Stacks,
        Self::Faults,
        Self::Accesses,
        Self::Regions,
        Self::Queue,
        Self::Scans,
    ];

    /// Its stable short name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Sideband => "sideband",
            Self::Stacks => "stacks",
            Self::Faults => "faults",
            Self::Accesses => "accesses",
            Self::Regions => "regions",
            Self::Queue => "queue",
            Self::Scans => "scans",
        }
    }
}
