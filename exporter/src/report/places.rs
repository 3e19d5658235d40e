//! Where the bytes of owners lie, and where threads ran, by NUMA node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Quantity;

/// On which nodes the resident bytes of an owner lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// When that was read. Pages can be moved later without a trace.
    pub as_of: String,
    /// By node, in order of nodes. A node that is missing has nothing, but for what is unplaced. Where pages are sampled,
    /// all nodes of the host are told: one where none was drawn has no number but an upper bound.
    pub nodes: Vec<OnNode>,
    /// Bytes of which no reading tells a node: on any of them.
    pub unplaced: u64,
    /// Where the kernel puts new pages of it: `default`, `preferred`, `preferred_many`, `bind`, `interleave`,
    /// `weighted_interleave`, `local`, `unknown`.
    pub policies: Vec<String>,
    /// Shares of its process' recent CPU time by how far its bytes are from there (`local`, `near`, `remote`, `tier`,
    /// `unknown`), if accesses went to all of them alike. Empty with too little CPU time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub shares: BTreeMap<String, f64>,
    /// What would have to move for less of it to be remote.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub advice: Option<Advice>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Its id.
    pub node: u32,
    /// Its online CPUs. 0: memory that no CPU is next to, as behind CXL.
    pub cpus: u32,
    /// Node and distance to it (ACPI SLIT: 10 is the node itself); empty: unknown.
    pub distances: Vec<(u32, u32)>,
}

/// What would have to move for less of an owner to be remote. It takes accesses to go to all its bytes alike, threads to
/// stay where they ran, and a node to have room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// `move`: bytes to `node`. `shared`: threads run on several nodes, so that no one would be nearer. `tier`: half of it or
    /// more lies in memory without CPUs.
    pub what: String,
    /// Where to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<u32>,
    /// Bytes that lie elsewhere.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// The remote share then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote: Option<f64>,
    /// A policy holds it where it lies (`bind`, `interleave`): somebody wanted it there.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub against_policy: bool,
}

/// Resident bytes on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OnNode {
    /// Its id.
    pub node: u32,
    /// How many. `bytes: null`: only the bounds are known.
    pub resident: Quantity,
}

/// CPU time of a process by the node of the CPU that each thread ran on last at a reading: where it ran before is not
/// known, and counts as there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// How long the newest readings lie apart.
    pub seconds: f64,
    /// CPU seconds in that time, by node.
    pub recent: BTreeMap<u32, f64>,
    /// CPU seconds since the first reading, by node.
    pub total: BTreeMap<u32, f64>,
}
