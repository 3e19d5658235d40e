//! A sampled access: one load or store of many that a counter picked. Its class is always `sampled`.
//!
//! What a field cannot say is `None` or `Unknown`, never a guess; what the hardware said stays in `raw`.

use crate::identity::Tgid;
use crate::time::Span;

/// A sampled access to memory.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Access {
    /// When it was sampled.
    pub when: Span,
    /// The process; 0 is the kernel's idle task. `None`: the record names none (its task was gone).
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub tgid: Option<Tgid>,
    /// The thread.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub tid: Option<u32>,
    /// The CPU.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub cpu: Option<u32>,
    /// The NUMA node of that CPU.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub cpu_node: Option<u32>,
    /// The NUMA node that the page lay on.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub page_node: Option<u32>,
    /// Address of the instruction.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::identity::hex", default, skip_serializing_if = "Option::is_none")
    )]
    pub ip: Option<u64>,
    /// Address of the data, never 0. Those of the kernel are told apart by [`Access::in_kernel`].
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::identity::hex", default, skip_serializing_if = "Option::is_none")
    )]
    pub address: Option<u64>,
    /// The physical frame of that address: its number, physical address / 4096. Intel's may be as young as the moment at
    /// which its buffer was read; AMD's and Arm's are of the access.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::identity::hex", default, skip_serializing_if = "Option::is_none")
    )]
    pub frame: Option<u64>,
    /// Bytes that the page table entry of the address maps.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub page_size: Option<u64>,
    /// What was counted, of which this is a sample: shares of different populations do not add up.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub population: Population,
    /// Events of that population since the one sampled before: what it stands for.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub period: Option<u64>,
    /// How long it took, in cycles of its CPU. `None`: not measured, which hardware writes as 0. Not judged: a number
    /// that no access can take is still here.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub latency: Option<u64>,
    /// From what to what.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub timing: Timing,
    /// What kind of access.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub op: Op,
    /// What answered it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub served: Served,
    /// What the caches of other cores had of it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub snoop: Snoop,
    /// How its address was translated.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub tlb: Tlb,
    /// It was a locked instruction.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub locked: Option<bool>,
    /// Whether it waited for an earlier store.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub blocked: Blocked,
    /// What the hardware or kernel said of the source, bit by bit (`perf_mem_data_src`).
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::identity::hex", default, skip_serializing_if = "Option::is_none")
    )]
    pub raw: Option<u64>,
}

impl Access {
    /// Whether the data lies in the kernel's half of the addresses.
    #[must_use]
    pub fn in_kernel(&self) -> bool {
        self.address.is_some_and(is_kernel)
    }

    /// How far away it was served, as the hardware says: the method `served`.
    #[must_use]
    pub fn locality_served(&self) -> Locality {
        self.served.locality()
    }
}

/// Whether an address is in the kernel's half: its highest bit is set, on x86-64 and arm64.
#[must_use]
pub fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

#[cfg(feature = "serde")]
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(rename_all = "snake_case")
        )]
        pub enum $name { $($(#[$of])* $variant),* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
        }
    };
}

words! {
    /// The events that a sample is drawn from.
    Population {
        /// Another event than those below, or it is not told which.
        #[default]
        Unknown,
        /// Loads, of Intel only those slower than a threshold.
        Loads,
        /// Stores.
        Stores,
        /// Loads and stores by one event.
        Accesses,
        /// Operations of any kind, of which some touch memory (AMD's IBS, Arm's SPE).
        Operations,
        /// Page faults (software events).
        Faults,
    }
}

words! {
    /// What a latency is the time of.
    Timing {
        /// Not told.
        #[default]
        Unknown,
        /// From the dispatch of a load until its data could be used, queues included (Intel).
        Use,
        /// From a miss of the first-level cache until it was filled (AMD): hits have none.
        Miss,
        /// From the begin of the operation until it was complete (Arm).
        Whole,
    }
}

words! {
    /// What kind of access.
    Op {
        /// Not told, or several at once.
        #[default]
        Unknown,
        /// Data was read.
        Load,
        /// Data was written.
        Store,
        /// Data was asked for ahead of its use.
        Prefetch,
        /// An instruction was fetched.
        Execute,
    }
}

/// What answered an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Served {
    /// The hardware says nothing of this access; of a store that missed nothing more than that.
    #[default]
    NotAvailable,
    /// A cache before the first level.
    Level0,
    /// First-level cache.
    Level1,
    /// A line that was on its way already: fill buffer, miss address buffer.
    LineFillBuffer,
    /// Second-level cache.
    Level2,
    /// A line on its way to the second level.
    Level2Buffer,
    /// Third-level cache.
    Level3,
    /// Fourth-level cache.
    Level4,
    /// A cache in front of memory.
    MemorySideCache,
    /// Some cache; which is not told.
    AnyCache,
    /// The cache of another core of the same node.
    NeighbourCache,
    /// A cache beyond the node. `hops`: how far, see [`Served::RemoteMemory`].
    RemoteCache {
        /// Hops, where they are told.
        hops: Option<u8>,
    },
    /// Memory of the node of the CPU.
    Local,
    /// Memory of another node. Hops: 1 another node of the socket, 2 another socket, 3 another board. AMD says 1 for all of
    /// them, Intel says none.
    RemoteMemory {
        /// Hops, where they are told.
        hops: Option<u8>,
    },
    /// Persistent memory: a tier, whose distance is not told.
    Pmem,
    /// Memory behind CXL: a tier, whose distance is not told.
    Cxl,
    /// A device.
    Io,
    /// Memory that is not cached.
    Uncached,
    /// What was said names several sources that exclude each other.
    Ambiguous,
    /// A source that this build has no word for.
    Unknown,
}

impl Served {
    /// How far away that is from the node of the CPU.
    #[must_use]
    pub fn locality(self) -> Locality {
        match self {
            Self::Level0
            | Self::Level1
            | Self::LineFillBuffer
            | Self::Level2
            | Self::Level2Buffer
            | Self::Level3
            | Self::Level4
            | Self::MemorySideCache
            | Self::Local => Locality::Local,
            Self::NeighbourCache => Locality::Near,
            Self::RemoteCache { .. } | Self::RemoteMemory { .. } => Locality::Remote,
            Self::Pmem | Self::Cxl => Locality::Tier,
            Self::AnyCache
            | Self::Io
            | Self::Uncached
            | Self::NotAvailable
            | Self::Ambiguous
            | Self::Unknown => Locality::Unknown,
        }
    }
}

words! {
    /// How far an access went.
    Locality {
        /// Not told.
        #[default]
        Unknown,
        /// No farther than the node's own memory, nor into another core.
        Local,
        /// Into another core of the same node.
        Near,
        /// To another node.
        Remote,
        /// Memory of another kind: persistent, or behind CXL.
        Tier,
    }
}

impl Locality {
    /// Its stable short name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Local => "local",
            Self::Near => "near",
            Self::Remote => "remote",
            Self::Tier => "tier",
        }
    }
}

words! {
    /// What the caches of other cores had of the line.
    Snoop {
        /// Not told, or in words that exclude each other.
        #[default]
        Unknown,
        /// They were not asked.
        None,
        /// None had it.
        Miss,
        /// One had it.
        Hit,
        /// One had it changed.
        HitModified,
        /// It was forwarded.
        Forwarded,
        /// It came from the cache of a peer.
        Peer,
    }
}

words! {
    /// How an address was translated.
    Tlb {
        /// Not told.
        #[default]
        Unknown,
        /// By the first-level TLB.
        Level1,
        /// By the second-level TLB.
        Level2,
        /// By one of them.
        Hit,
        /// By a walk of the page table, after both missed.
        Walk,
        /// By the operating system: a fault.
        Fault,
    }
}

words! {
    /// Why an access waited for an earlier store.
    Blocked {
        /// Not told, or it did not.
        #[default]
        Unknown,
        /// The data of the store was not there yet.
        Data,
        /// The address of the store was not known yet.
        Address,
        /// Both.
        Both,
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Locality, Served, is_kernel};

    #[test]
    fn neither_a_cache_of_the_node_nor_another_tier_nor_silence_is_called_remote() {
        for hops in [None, Some(1), Some(3)] {
            assert_eq!(Served::RemoteCache { hops }.locality(), Locality::Remote);
            assert_eq!(Served::RemoteMemory { hops }.locality(), Locality::Remote);
        }
        assert_eq!(Served::NeighbourCache.locality(), Locality::Near);
        assert_eq!(Served::Cxl.locality(), Locality::Tier);
        for served in [Served::NotAvailable, Served::Ambiguous, Served::AnyCache, Served::Unknown] {
            assert_eq!(served.locality(), Locality::Unknown);
        }
        assert_eq!(Access::default().locality_served(), Locality::Unknown);
    }

    #[test]
    fn addresses_of_the_kernel_are_told_apart() {
        assert!(is_kernel(0xffff_8818_17d6_3e02) && is_kernel(1 << 63));
        assert!(!is_kernel(0x7ffe_7a33_07d8) && !is_kernel(0));
        assert!(!Access::default().in_kernel());
    }
}
