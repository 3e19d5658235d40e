//! The document `memprov.report/1`: what `report`, `replay` and the table show, and what OTLP is encoded from.

mod accesses;
mod cgroups;
mod places;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use accesses::{
    AccessRow, AccessSums, Accesses, Filled, Located, Measured, PopulatedRow, ShareRow,
};
pub use cgroups::{CacheFile, Cgroup, ChargeRow};
pub use places::{Advice, NumaNode, OnNode, Placement, Ran};

use memprov_ledger::evidence::EvidenceClass;
use memprov_semconv as semconv;
use serde::{Deserialize, Serialize};

use crate::config::Export;
use crate::histogram::Histogram;
use crate::trace::Support;

/// The schema this build writes.
pub const SCHEMA: &str = "memprov.report/1";

/// The whole document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// `daemon`, `replay`, `import` or `snapshot`.
    pub source: String,
    /// When it was made, RFC 3339 UTC.
    pub generated_at: String,
    /// Since when lifecycle events are seen.
    pub watching_since: String,
    /// No wall time is known: instants are those of a clock of its own, as if that had begun in 1970.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub no_wall_time: bool,
    /// The mechanism that tells of lifecycle events (`mapping.lifecycle` of `memprov check`), as the run began with it;
    /// `None`: scans alone do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mechanism: Option<String>,
    /// The host it speaks of.
    pub host: Host,
    /// One per live process.
    pub processes: Vec<Process>,
    /// Objects that two or more observed spaces map, once each.
    pub shared: Vec<SharedRow>,
    /// What the cgroups of these processes, and those above, are charged for; those that were read.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cgroups: Vec<Cgroup>,
    /// Sampled accesses; `None` where there are no samples.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accesses: Option<Accesses>,
    /// What monitors of memory (DAMON) found, target by target.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub regions: Vec<Monitored>,
    /// What each stream lost since the start. 0: nothing. A stream that is missing lost what nobody counted.
    pub lost: BTreeMap<String, u64>,
    /// How long scans took, in seconds, since the start.
    #[serde(default)]
    pub scan_seconds: Histogram,
    /// What the agent costs; only a daemon says it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<Agent>,
    /// Who the host is and what it can tell, for OTLP; no part of the document.
    #[serde(skip)]
    pub about: Option<Arc<About>>,
}

/// What does not change while an agent runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Who the host is.
    pub identity: Identity,
    /// What it can tell.
    pub support: Vec<Support>,
}

/// The host a report speaks of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -r`; `None`: unknown.
    pub kernel: Option<String>,
    /// NUMA nodes that hold memory; `None`: unknown.
    pub nodes: Option<u32>,
    /// Why there is no PMU memory sampling; `None` where there is.
    pub no_pmu: Option<String>,
    /// The nodes, on a host with several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub numa: Vec<NumaNode>,
}

/// Who the host is. No part of a report; it names the resources of what is exported, stays the same for as long as the
/// agent runs, and travels with a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// `/etc/machine-id`.
    pub host_id: String,
    /// `uname -n`.
    pub host_name: String,
    /// When the host booted, in nanoseconds since the Unix epoch; `None` leaves `process.creation.time` out.
    pub boot: Option<u64>,
    /// What its user says of it: keys of OpenTelemetry resources and their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

impl Identity {
    /// With what the user says of the host and of the agent.
    #[must_use]
    pub fn named(self, export: &Export) -> Self {
        let mut attributes = export.resource_attributes.0.clone();
        attributes.insert(semconv::SERVICE_NAME.as_str().to_owned(), export.service_name.clone());
        Self { attributes, ..self }
    }
}

/// What the agent costs. Fractions are of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// CPU seconds since the start, by name of the thread; `ended` is what threads ran after they were read last.
    pub cpu_seconds: BTreeMap<String, f64>,
    /// CPU of all threads over the last interval or two.
    pub cpu_fraction: Option<f64>,
    /// Resident bytes (VmRSS), where rings are mapped twice.
    pub rss_bytes: Option<u64>,
    /// What its BPF programs cost those who run into them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bpf: Option<BpfCost>,
    /// What its hooks cost every system call of the host; part of `bpf` where programs run at each.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub syscall_tax: Option<SyscallTax>,
    /// Its scans.
    pub scans: Scans,
    /// How lists of mappings differed from what events had told.
    pub differences: Differences,
    /// The configuration in effect.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub configuration: Option<Configuration>,
}

/// Which configuration is in effect, and what came of reading it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// 32 hexadecimal digits, equal for equal settings.
    pub hash: String,
    /// Times that it was read again and taken over.
    pub applied: u64,
    /// Times that it held mistakes, and the one before stayed.
    pub refused: u64,
}

/// What BPF programs cost, as counted for a moment now and then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BpfCost {
    /// Time in the programs.
    pub cpu_fraction: f64,
    /// Runs of programs.
    pub runs_per_second: f64,
    /// How long the newest count lasted.
    pub counted_seconds: f64,
}

/// What system calls cost more, watched or not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyscallTax {
    /// Nanoseconds a call (`getppid`), with the hooks minus before.
    pub nanoseconds_per_call: f64,
    /// Calls of the host; `None` where nothing counts them.
    pub calls_per_second: Option<f64>,
    /// Their product.
    pub cpu_fraction: Option<f64>,
}

/// Scans of processes since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scans {
    /// Readings that were not made, by reason: `still`, `budget`, `vanished`, `refused`; `placement`: the budget did not allow to
    /// read where pages lie, too.
    pub skipped: BTreeMap<String, u64>,
}

/// Mappings since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differences {
    /// Listed, and no event had told of them.
    pub adopted: u64,
    /// Not listed any more, and no event had told.
    pub vanished: u64,
    /// Listed as another mapping than events had told.
    pub replaced: u64,
}

/// One live process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Thread group id.
    pub pid: u32,
    /// Start in clock ticks since boot.
    pub start_time: Option<u64>,
    /// Its name.
    pub comm: String,
    /// Its address space, hex.
    pub space: String,
    /// All processes of that space.
    pub space_pids: Vec<u32>,
    /// Cgroup path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cgroup: Option<String>,
    /// Container id found in the cgroup path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
    /// All of this holds as of this instant.
    pub as_of: String,
    /// No lifecycle event of this space was ever lost.
    pub lossless: bool,
    /// Resident bytes of mappings born before `watching_since`.
    pub predates: u64,
    /// Its pages could not be read (capabilities are missing): `resident` of its owners is unknown, and each book is
    /// unattributed as a whole.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub pages_unread: bool,
    /// Books by kind: `anon`, `file`, `shmem`, `hugetlb`, `swap`.
    pub books: BTreeMap<String, Book>,
    /// Owners, largest resident first.
    pub owners: Vec<OwnerRow>,
    /// Faults since the process began, by the kernel's count.
    pub faults: Option<Faults>,
    /// Resident bytes by who touched them first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_touch: Option<FirstTouch>,
    /// On which NUMA nodes its threads ran; missing on hosts with one node, and where nobody looked twice.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ran: Option<Ran>,
}

/// One book: owned + joint + unattributed + skew lies in control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    /// The kernel's own total before and after the scan.
    pub control: Control,
    /// Bytes of this process' owners.
    pub owned: u64,
    /// Bytes owned elsewhere, or under `shared`.
    pub joint: u64,
    /// Bytes nobody is known to own.
    pub unattributed: u64,
    /// What the kernel's total moved, or cannot be explained by, while the scan ran.
    pub skew: i64,
    /// The kernel's total at the last reading minus that of the scan.
    pub drift: i64,
    /// Nothing moved while the scan ran.
    pub at_rest: bool,
}

/// Bounds of a control total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Lower.
    pub lo: u64,
    /// Upper.
    pub hi: u64,
}

/// Page faults: the kernel's counts, divided by kind of memory as a sample of them tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// Minor ones since the process began.
    pub minor: u64,
    /// Major ones since the process began.
    pub major: u64,
    /// Both, since it was first read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub watched: Option<u64>,
    /// `watched` by kind of memory: `anon`, `file`, `shmem`, `unknown`. Missing with too few samples.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub by_kind: BTreeMap<String, FaultShare>,
}

/// An estimated count of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultShare {
    /// The estimate.
    pub faults: u64,
    /// Lower end of its 95 % interval.
    pub lo: u64,
    /// Upper end.
    pub hi: u64,
    /// Sampled faults it rests on.
    pub samples: u64,
}

/// A number with its evidence. `bytes: null` is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantity {
    /// The number.
    pub bytes: Option<u64>,
    /// How sure it is.
    pub evidence: EvidenceClass,
    /// Lower bound where it is not exact.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lo: Option<u64>,
    /// Upper bound where it is not exact.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hi: Option<u64>,
}

/// One owner in one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnerRow {
    /// Hash of the content key.
    pub id: String,
    /// `mapping`, `arena`, `file`, `shm`, `named`, `stack`, `image`, `preexisting`, `pending`, `other`.
    pub kind: String,
    /// For people: the site, the arena, the path template.
    pub name: String,
    /// For people: who called the site; empty when unknown or not apt.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub caller: String,
    /// `content` (stable over rebuilds), or `build` (no symbols: valid for these builds).
    pub stability: String,
    /// One of its stacks, whole, leaf first.
    pub stack: Vec<FrameView>,
    /// The stack ended before its root.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub truncated: bool,
    /// Bytes of live extents.
    pub reserved: Quantity,
    /// Bytes present, owned here.
    pub resident: Quantity,
    /// Bytes swapped out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub swapped: Option<Quantity>,
    /// On which NUMA nodes `resident` lies; missing on hosts with one node, and where nobody looked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub placement: Option<Placement>,
    /// What checks of a monitor prove of its use; missing while none covers it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub touched: Option<Touched>,
    /// Change of `resident` in bytes a minute over the window, when two books of it are known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub growth_per_minute: Option<i64>,
    /// How many live intervals it has here.
    pub intervals: u64,
    /// Resident bytes of this owner by the functions that touched its pages first, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub first_touch: Vec<TouchRow>,
}

/// A frame for people and scorers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameView {
    /// Demangled function, or `null` where nothing names it.
    pub function: Option<String>,
    /// Module file name.
    pub module: Option<String>,
    /// Build id, hex.
    pub build_id: Option<String>,
    /// ELF virtual address.
    pub offset: u64,
    /// Source file and line, where they were asked for and are known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<String>,
}

/// First touch of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstTouch {
    /// The probability with which a page is in the sample.
    pub probability: f64,
    /// Kept pages that were resident at the scan and whose first touch is known.
    pub pages: u64,
    /// Share of resident anonymous bytes whose first touch nobody saw: older than us, filled by the kernel, lost.
    pub unknown_share: Option<f64>,
    /// By site, largest first.
    pub rows: Vec<TouchRow>,
}

/// Resident bytes by who touched them first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TouchRow {
    /// Hash of the site's content key.
    pub id: String,
    /// The site.
    pub name: String,
    /// Who called it.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub caller: String,
    /// Estimated bytes with a 95 % interval.
    pub resident: Quantity,
    /// Kept pages it rests on.
    pub pages: u64,
    /// One of its stacks, leaf first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stack: Vec<FrameView>,
}

/// What checks of a monitor prove of one owner's use in `seconds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Touched {
    /// How regions came to be its: `addresses`, as a monitor of its process tells, or `frames` of its pages, as one of
    /// physical memory tells, whoever used them.
    pub method: String,
    /// Bytes that were used, at least. Nominal: a 95 % bound if a region is alike throughout.
    pub lower: u64,
    /// Bytes that can have been used: all that its mappings have in memory, also what is joint. That no check found
    /// a page used is no proof.
    pub upper: u64,
    /// Bytes used within one sampling interval, with a nominal 95 % interval.
    pub in_use: Quantity,
    /// Bytes of `upper` that lie in watched regions.
    pub covered: u64,
    /// Share of those regions that is not the owner's: holes, and others' pages.
    pub spill: f64,
    /// Aggregations that are pooled.
    pub aggregations: u64,
    /// Checks of each of its pages' regions, at least.
    pub checks: u64,
    /// Between two checks of a region, at most.
    pub sampling_seconds: f64,
    /// From the begin of the first of the aggregations to the end of the last.
    pub seconds: f64,
}

/// What a monitor found of one target. Addresses stay out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Monitored {
    /// Its thread.
    pub monitor: u32,
    /// The process that it watches; `None`: physical memory, whoever uses it.
    pub pid: Option<u32>,
    /// Regions of its newest aggregation.
    pub regions: u64,
    /// Bytes of all of them.
    pub watched: u64,
    /// Bytes of them used within one sampling interval, with a nominal 95 % interval.
    pub in_use: Quantity,
    /// Aggregations that are pooled.
    pub aggregations: u64,
    /// Checks of each region in the newest one.
    pub checks: u64,
    /// Between two checks of a region, at most.
    pub sampling_seconds: f64,
    /// From the begin of the first of the aggregations to the end of the last.
    pub seconds: f64,
    /// Of physical memory: how much of it was laid under pages; `None`: nobody's frames are known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub frames: Option<Framed>,
}

/// Physical memory whose findings were laid under the pages that stayed in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Framed {
    /// Bytes of frames that chosen processes kept meanwhile, each once.
    pub owned: u64,
    /// Bytes that moved, went or were let go meanwhile: nothing is told of them.
    pub moved: u64,
    /// Of `in_use`, bytes in frames that none of them is known to have had.
    pub unknown: Quantity,
}

/// An object that two or more observed spaces map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedRow {
    /// Hash of the content key.
    pub id: String,
    /// As in [`OwnerRow`].
    pub kind: String,
    /// For people.
    pub name: String,
    /// The oldest of the readings it rests on.
    pub as_of: String,
    /// Stack of whoever mapped it first, when seen.
    pub stack: Vec<FrameView>,
    /// Bytes of the object that anybody has mapped.
    pub reserved: Quantity,
    /// Bytes of the object that anybody has present, once.
    pub resident: Quantity,
    /// Observed spaces that map it.
    pub sharers: u64,
    /// Whether these are all spaces of the host that map it.
    pub sharers_complete: bool,
}
