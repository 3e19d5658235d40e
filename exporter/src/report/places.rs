//! Where the bytes of owners lie, and where threads ran, by NUMA node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Quantity;

/// On which nodes the resident bytes of an owner lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// When that was read. Pages can be moved later without a trace.
    pub as_of: String,
    /// By node, in order of nodes. A node that is missing has nothing, but for what is unplaced.
    pub nodes: Vec<OnNode>,
    /// Bytes of which no reading tells a node: on any of them.
    pub unplaced: u64,
    /// Where the kernel puts new pages of it: `default`, `preferred`, `preferred_many`, `bind`, `interleave`,
    /// `weighted_interleave`, `local`, `unknown`.
    pub policies: Vec<String>,
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
