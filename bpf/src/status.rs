//! What the hooks can see here, by which mechanism, and why not.

use std::time::Duration;

use crate::options::Mechanism;

/// Something that the hooks can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Calls that map, unmap, move and name memory, by the native ABI (and x32).
    Mapping,
    /// The same calls by the i386 ABI.
    Compat,
    /// Fork, exec and exit.
    Process,
    /// Page faults of sampled pages.
    FirstTouch,
}

impl Capability {
    /// A stable short name: `mapping`, `compat`, `process`, `first_touch`.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Mapping => "mapping",
            Self::Compat => "compat",
            Self::Process => "process",
            Self::FirstTouch => "first_touch",
        }
    }
}

/// Whether a capability is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookState {
    /// Loaded and attached.
    Attached,
    /// The kernel has it and said no.
    Refused,
    /// The kernel, the mechanism or the options do not have it.
    Unsupported,
}

/// One capability by one mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookStatus {
    /// What it sees.
    pub capability: Capability,
    /// The mechanism that was tried.
    pub mechanism: Mechanism,
    /// What came of it.
    pub state: HookState,
    /// Why it is so: the error with its causes, or why this mechanism was taken. Empty when there is nothing to say.
    pub reason: String,
}

/// What was lost since the hooks were loaded. Counts of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Lifecycle records without room in the ring, over the budget of their process, or of calls with an end
    /// that was not seen.
    pub lifecycle: u64,
    /// Stacks without room in the ring, over the budget of their process, or unreadable.
    pub stacks: u64,
    /// Faults without room in the ring or over a budget.
    pub faults: u64,
    /// Beginnings of calls that found no room in the table of threads. Those that succeeded are in `halves` too.
    pub threads_full: u64,
    /// Part of `lifecycle`: calls with one end that was not seen, because the kernel skipped the program or because it
    /// was before the hooks were attached or the process was selected.
    pub halves: u64,
    /// Runs of lifecycle programs, for whatever process, that the kernel skipped because the program was already
    /// running on that CPU: it does so when another thread was preempted in it. Where a watched call lost one end by it
    /// is in `halves`. Always 0 before Linux 5.12,
    /// which does not count them.
    pub lifecycle_misses: u64,
    /// The same for fault programs. Most of these are no page of a process: a fault program that reads a stack that is not
    /// there faults, and that fault is skipped.
    pub fault_misses: u64,
}

/// What the BPF programs cost while the kernel counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// How long it counted.
    pub span: Duration,
    /// Time in the programs, over all CPUs.
    pub time: Duration,
    /// How often one ran.
    pub runs: u64,
    /// System calls of the host meanwhile; `None` where the mechanism does not see all of them.
    pub calls: Option<u64>,
}
