//! Which memory is used, as DAMON finds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Allow, units};

/// Which memory is used, as DAMON finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Damon {
    /// Whose findings are read.
    pub mode: DamonMode,
    /// What a monitor of our own watches.
    pub watch: Watched,
    /// Whom it may watch.
    pub allow: Allow,
    /// Time between two of its checks of a region.
    #[serde(with = "units::duration")]
    pub sample: Duration,
    /// Time between two of its tellings.
    #[serde(with = "units::duration")]
    pub aggregation: Duration,
    /// How many regions it has at most.
    pub regions: u32,
}

choice! {
    /// What a monitor of our own watches.
    Watched {
        /// `fvaddr`; `vaddr` where the kernel has no such thing, or nobody has a large mapping.
        Auto = "auto",
        /// Large mappings of processes.
        Fvaddr = "fvaddr",
        /// All that processes map.
        Vaddr = "vaddr",
        /// Physical memory, by whomever it is used.
        Paddr = "paddr",
    }
}

choice! {
    /// Whose findings are read.
    DamonMode {
        /// Nobody's.
        Off = "off",
        /// Those of a monitor that somebody else runs, which is left alone.
        Passive = "passive",
        /// Those of a monitor of our own too, where nobody else has one.
        Active = "active",
    }
}

impl Default for Damon {
    fn default() -> Self {
        Self {
            mode: DamonMode::Passive,
            watch: Watched::Auto,
            allow: Allow::default(),
            sample: Duration::from_millis(5),
            aggregation: Duration::from_millis(100),
            regions: 1000,
        }
    }
}
