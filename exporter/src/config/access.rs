//! Sampling of memory accesses and page faults.

use serde::{Deserialize, Serialize};

use super::Allow;

/// Sampling of memory accesses and page faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Whether the PMU samples memory accesses of all processes.
    pub pmu: bool,
    /// Samples of the PMU in a second, of the whole host.
    pub rate: u32,
    /// Whose page faults are all told.
    pub faults: Allow,
}

impl Default for Access {
    fn default() -> Self {
        Self { pmu: false, rate: 1000, faults: Allow::default() }
    }
}
