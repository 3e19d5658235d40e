//! The section `accesses`: sampled accesses, whose they are, and where they went.

use std::collections::BTreeMap;

use memprov_ledger::evidence::EvidenceClass;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Sampled accesses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accesses {
    /// All that `owners` have, by population.
    pub totals: BTreeMap<String, AccessSums>,
    /// By owner, space and population, most time first.
    pub owners: Vec<AccessRow>,
}

/// Accesses of one owner in one space.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessRow {
    /// Its address space, hex; `None`: of several, or not known.
    pub space: Option<String>,
    /// The oldest process of the space.
    pub pid: Option<u32>,
    /// Its start in clock ticks since boot.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub start_time: Option<u64>,
    /// Its cgroup path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cgroup: Option<String>,
    /// Container id found in the cgroup path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
    /// As in [`super::OwnerRow`].
    pub id: String,
    /// As there, or `kernel` (addresses of the kernel), `unattributed`.
    pub kind: String,
    /// For people.
    pub name: String,
    /// For people: who called the site.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub caller: String,
    /// What the samples are drawn from: those of two populations do not add up.
    pub population: String,
    /// What they add up to.
    pub sums: AccessSums,
    /// What of it the pane that is open added, for OTLP; no part of the document.
    #[serde(skip)]
    pub added: Option<Box<AccessSums>>,
}

/// What samples add up to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessSums {
    /// Samples since the start, by what became of them: `attributed`, `ambiguous`, `unowned`, `unknown`, `kernel`,
    /// `no_address`, `implausible`.
    pub samples: BTreeMap<String, u64>,
    /// Those whose latency is known.
    pub timed: u64,
    /// Those of which the two methods contradict each other.
    pub conflicts: u64,
    /// Cycles that an access took, since the start, each counted as often as its period says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<Histogram>,
    /// By method: `served` (the hardware says), `placement` (the page's node and the CPU's; only where both are known of some
    /// sample of the population).
    pub methods: BTreeMap<String, Measured>,
    /// Of page faults that were told with their frames: what they made present.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub populated: Option<PopulatedRow>,
}

/// What page faults made present, since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PopulatedRow {
    /// How sure it is.
    pub evidence: EvidenceClass,
    /// By node of the frame; `unknown`.
    pub nodes: BTreeMap<String, Filled>,
}

/// What faults filled on one node: a page of 4 KiB each at least, `bytes` at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Faults that ended with a frame.
    pub faults: u64,
    /// Bytes that their page table entries map.
    pub bytes: u64,
}

impl AccessSums {
    /// Cycles that all of it took.
    #[must_use]
    pub fn time(&self) -> u64 {
        let served = self.methods.get("served").and_then(|measured| measured.time.as_ref());
        served.map_or(0, |time| time.weights.values().fold(0, |sum, n| sum.saturating_add(*n)))
    }
}

/// One method's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// By period × latency, in cycles.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time: Option<Located>,
    /// By period, in events.
    pub count: Located,
}

/// Weights and shares by locality: `local`, `near`, `remote`, `tier`, `unknown`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Located {
    /// Weights since the start.
    pub weights: BTreeMap<String, u64>,
    /// Their squares.
    pub squares: BTreeMap<String, f64>,
    /// Equal samples that those of known locality in the window are worth.
    pub effective: f64,
    /// Share of the window's weight whose locality is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unknown_share: Option<f64>,
    /// Shares of what is known, over the window. Empty when withheld.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub shares: BTreeMap<String, ShareRow>,
    /// Why there are no shares: `no_samples`, `few_samples`, `few_slices`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub withheld: Option<String>,
}

/// A share, in 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareRow {
    /// The estimate.
    pub share: f64,
    /// Lower end of its 95 % interval.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}
