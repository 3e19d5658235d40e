//! What this host can tell: a pure function from what was probed to the support matrix (`memprov.check/1`).
//!
//! Each capability that is not there says what the user loses and how to get it.

use memprov_damon::Presence;
use memprov_perfmem::Verdict;
use serde::{Deserialize, Serialize};

mod calls;
pub mod code;
mod rules;
mod samples;

/// The schema of `memprov check --output json`.
pub const SCHEMA: &str = "memprov.check/1";

/// The mechanism that serves where no BPF program loads.
pub const SIDEBAND: &str = "perf-sideband";

/// The kind of hook that samples memory accesses.
pub const PMU: &str = "pmu";

/// The kind of hook that tells page faults with their frames.
pub const FAULTS: &str = "faults";

/// Whether a capability is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In full.
    Available,
    /// Less than in full: `loses` says what is missing.
    Degraded,
    /// Not at all.
    Unavailable,
}

/// How sure are the numbers that rest on a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Seen in full.
    Exact,
    /// Follows from what was seen.
    Inferred,
    /// Estimated from a sample.
    Sampled,
    /// No number rests on it.
    None,
}

/// One row of the support matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Stable name.
    pub id: String,
    /// Whether it is there.
    pub state: State,
    /// What serves it, or what of it was found.
    pub mechanism: Option<String>,
    /// How sure are the numbers that rest on it.
    pub class: Class,
    /// Why it is so.
    pub reason: Option<String>,
    /// What the user does without.
    pub loses: Option<String>,
    /// What would change it.
    pub fix: Option<String>,
}

/// The support matrix as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// [`SCHEMA`].
    pub schema: String,
    /// In the order in which they are shown.
    pub capabilities: Vec<Capability>,
}

impl Matrix {
    /// Judges what was probed.
    #[must_use]
    pub fn of(probes: &Probes) -> Self {
        Self { schema: SCHEMA.to_owned(), capabilities: rules::capabilities(probes) }
    }

    /// The capability of this name.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Capability> {
        self.capabilities.iter().find(|capability| capability.id == id)
    }
}

/// What trying things out gave. Values only: tests state any host.
#[derive(Clone, Debug)]
pub struct Probes {
    /// `uname -r`.
    pub kernel: String,
    /// Each kind of hook by each mechanism, in the order of preference.
    pub hooks: Vec<HookProbe>,
    /// Effective capabilities, a bit each (`CapEff` of `/proc/self/status`); `None`: unreadable.
    pub held: Option<u64>,
    /// The kernel describes its types (`/sys/kernel/btf/vmlinux`).
    pub btf: bool,
    /// How pages can be read.
    pub pages: PagesProbe,
    /// Page frame numbers are shown to us.
    pub frames: bool,
    /// NUMA nodes that hold memory; `None`: unknown.
    pub nodes: Option<u32>,
    /// We are in the initial pid namespace; `None`: unknown.
    pub initial_pids: Option<bool>,
    /// Which cgroup hierarchies are mounted.
    pub cgroup: Cgroup,
    /// Memory sampling by the PMU.
    pub pmu: Verdict,
    /// DAMON.
    pub damon: Presence,
    /// A monitor of our own, where one is wanted (`damon.mode = active`).
    pub damon_own: Option<OwnMonitor>,
}

/// A monitor of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnMonitor {
    /// DAMON's tree cannot be written: why.
    Refused(String),
    /// Nothing of ours is there, and nothing keeps us from it but others.
    Possible,
    /// What is there is ours.
    There,
}

/// One kind of hook by one mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookProbe {
    /// `mapping`, `compat`, `process`, `first_touch`, `regions`, [`PMU`] or [`FAULTS`].
    pub id: String,
    /// What came of it.
    pub state: HookState,
    /// The mechanism.
    pub mechanism: String,
    /// Why; empty when there is nothing to say.
    pub reason: String,
}

/// What came of loading and attaching a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookState {
    /// It is attached.
    Attached,
    /// The kernel has it and said no.
    Refused,
    /// The kernel or the mechanism does not have it.
    Unsupported,
}

/// How pages of processes can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagesProbe {
    /// `/proc/self/pagemap` opens.
    pub pagemap: bool,
    /// The ioctl PAGEMAP_SCAN works (Linux 6.7).
    pub scan: bool,
    /// The kernel sums its Rss figures exactly; `None`: not measured.
    pub exact_rss: Option<bool>,
}

/// Which cgroup hierarchies are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroup {
    /// Version 2 alone, with its memory controller.
    V2,
    /// Version 2 is there, and memory is accounted by version 1.
    Hybrid,
    /// Version 1 alone.
    V1,
    /// None.
    Absent,
}

#[cfg(test)]
mod tests;
