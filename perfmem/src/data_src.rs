//! What answered an access: `perf_mem_data_src` (kernel `include/uapi/linux/perf_event.h`), bit by bit.
//!
//! Each field is a number here, of the kernel's own values; what they mean to memprov is said in `evidence`. Bits that this
//! build does not know stay where they are. The text is that of `perf script` since 6.13, which shows the level by its
//! number where there is one; before, it showed both namings.

use std::fmt;

/// Values of [`DataSource::op`], a set of bits.
pub mod op {
    /// Not available.
    pub const NA: u64 = 1;
    /// Load.
    pub const LOAD: u64 = 2;
    /// Store.
    pub const STORE: u64 = 4;
    /// Prefetch.
    pub const PREFETCH: u64 = 8;
    /// Fetch of an instruction.
    pub const EXEC: u64 = 16;
}

/// Values of [`DataSource::level`], a set of bits: the older naming.
pub mod level {
    /// Not available.
    pub const NA: u64 = 1;
    /// Found there.
    pub const HIT: u64 = 2;
    /// Not found there.
    pub const MISS: u64 = 4;
    /// First-level cache.
    pub const L1: u64 = 8;
    /// Line fill buffer, or miss address buffer.
    pub const LFB: u64 = 0x10;
    /// Second-level cache.
    pub const L2: u64 = 0x20;
    /// Third-level cache.
    pub const L3: u64 = 0x40;
    /// Memory of the node.
    pub const LOCAL_RAM: u64 = 0x80;
    /// Memory one hop away.
    pub const REMOTE_RAM1: u64 = 0x100;
    /// Memory two hops away.
    pub const REMOTE_RAM2: u64 = 0x200;
    /// Cache one hop away.
    pub const REMOTE_CACHE1: u64 = 0x400;
    /// Cache two hops away.
    pub const REMOTE_CACHE2: u64 = 0x800;
    /// Device.
    pub const IO: u64 = 0x1000;
    /// Memory that is not cached.
    pub const UNCACHED: u64 = 0x2000;
}

/// Values of [`DataSource::level_number`]: the newer naming. 0: the older one alone is used.
pub mod level_number {
    /// First-level cache.
    pub const L1: u64 = 1;
    /// Second-level cache.
    pub const L2: u64 = 2;
    /// Third-level cache.
    pub const L3: u64 = 3;
    /// Fourth-level cache.
    pub const L4: u64 = 4;
    /// Miss handling buffer of the second level.
    pub const L2_MHB: u64 = 5;
    /// Memory-side cache.
    pub const MSC: u64 = 6;
    /// Cache before the first level.
    pub const L0: u64 = 7;
    /// Memory that is not cached.
    pub const UNCACHED: u64 = 8;
    /// Memory behind CXL.
    pub const CXL: u64 = 9;
    /// Device.
    pub const IO: u64 = 10;
    /// Some cache.
    pub const ANY_CACHE: u64 = 11;
    /// Line fill buffer, or miss address buffer.
    pub const LFB: u64 = 12;
    /// Memory.
    pub const RAM: u64 = 13;
    /// Persistent memory.
    pub const PMEM: u64 = 14;
    /// Not available.
    pub const NA: u64 = 15;
}

/// Values of [`DataSource::snoop`] and [`DataSource::snoop_more`], sets of bits.
pub mod snoop {
    /// Not available.
    pub const NA: u64 = 1;
    /// No snoop.
    pub const NONE: u64 = 2;
    /// Hit.
    pub const HIT: u64 = 4;
    /// Miss.
    pub const MISS: u64 = 8;
    /// Hit, changed.
    pub const HITM: u64 = 16;
    /// Of the second set: forwarded.
    pub const FORWARD: u64 = 1;
    /// Of the second set: from a peer.
    pub const PEER: u64 = 2;
}

/// Values of [`DataSource::tlb`], a set of bits.
pub mod tlb {
    /// Not available.
    pub const NA: u64 = 1;
    /// Found there.
    pub const HIT: u64 = 2;
    /// Not found there.
    pub const MISS: u64 = 4;
    /// First-level TLB.
    pub const L1: u64 = 8;
    /// Second-level TLB.
    pub const L2: u64 = 16;
    /// Walk by the hardware.
    pub const WALKER: u64 = 32;
    /// Fault.
    pub const FAULT: u64 = 64;
}

/// Values of [`DataSource::lock`], a set of bits.
pub mod lock {
    /// Not available.
    pub const NA: u64 = 1;
    /// Locked.
    pub const LOCKED: u64 = 2;
}

/// Values of [`DataSource::blocked`], a set of bits.
pub mod blocked {
    /// Not available.
    pub const NA: u64 = 1;
    /// By the data of a store.
    pub const DATA: u64 = 2;
    /// By the address of a store.
    pub const ADDRESS: u64 = 4;
}

/// What answered an access, as the kernel wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataSource(pub u64);

impl DataSource {
    fn bits(self, shift: u32, count: u32) -> u64 {
        self.0 >> shift & ((1 << count) - 1)
    }

    /// What kind of access: [`op`].
    #[must_use]
    pub fn op(self) -> u64 {
        self.bits(0, 5)
    }

    /// Where, in the older naming: [`level`].
    #[must_use]
    pub fn level(self) -> u64 {
        self.bits(5, 14)
    }

    /// What other caches had: [`snoop`].
    #[must_use]
    pub fn snoop(self) -> u64 {
        self.bits(19, 5)
    }

    /// Whether it was locked: [`lock`].
    #[must_use]
    pub fn lock(self) -> u64 {
        self.bits(24, 2)
    }

    /// How its address was translated: [`tlb`].
    #[must_use]
    pub fn tlb(self) -> u64 {
        self.bits(26, 7)
    }

    /// Where, in the newer naming: [`level_number`].
    #[must_use]
    pub fn level_number(self) -> u64 {
        self.bits(33, 4)
    }

    /// Another core or node: it depends on the hardware, see [`DataSource::hops`].
    #[must_use]
    pub fn remote(self) -> bool {
        self.bits(37, 1) != 0
    }

    /// More of [`snoop`].
    #[must_use]
    pub fn snoop_more(self) -> u64 {
        self.bits(38, 2)
    }

    /// Whether it waited for a store: [`blocked`].
    #[must_use]
    pub fn blocked(self) -> u64 {
        self.bits(40, 3)
    }

    /// How far: 0 not told, 1 another core of the node, 2 another node of the socket, 3 another socket of the board,
    /// 4 another board.
    #[must_use]
    pub fn hops(self) -> u64 {
        self.bits(43, 3)
    }

    /// Region of memory (Linux 7.0): 0 not told, from 8 on the number of a region plus 8.
    #[must_use]
    pub fn region(self) -> u64 {
        self.bits(46, 5)
    }

    /// Bits that no kernel had a meaning for when this was written.
    #[must_use]
    pub fn unknown(self) -> u64 {
        self.0 >> 51
    }
}

const LEVELS: [&str; 14] = [
    "N/A",
    "HIT",
    "MISS",
    "L1",
    "LFB/MAB",
    "L2",
    "L3",
    "Local RAM",
    "Remote RAM (1 hop)",
    "Remote RAM (2 hops)",
    "Remote Cache (1 hop)",
    "Remote Cache (2 hops)",
    "I/O",
    "Uncached",
];
const LEVEL_NUMBERS: [&str; 16] = [
    "",
    "L1",
    "L2",
    "L3",
    "L4",
    "L2 MHB",
    "Memory-side Cache",
    "L0",
    "Uncached",
    "CXL",
    "I/O",
    "Any cache",
    "LFB/MAB",
    "RAM",
    "PMEM",
    "N/A",
];
const HOPS: [&str; 5] =
    ["", "core, same node ", "node, same socket ", "socket, same board ", "board "];
const SNOOPS: [&str; 7] = ["N/A", "None", "Hit", "Miss", "HitM", "Fwd", "Peer"];
const TLBS: [&str; 7] = ["N/A", "HIT", "MISS", "L1", "L2", "Walker", "Fault"];
const OPS: [&str; 5] = ["N/A", "LOAD", "STORE", "PFETCH", "EXEC"];

/// The names of the bits that are set.
fn names<'a>(names: &'a [&'a str], bits: u64) -> impl Iterator<Item = &'a str> {
    names.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 != 0).map(|(_, name)| *name)
}

/// They, joined; `N/A` where none is set.
fn joined(of: &[&str], bits: u64) -> String {
    match names(of, bits).collect::<Vec<_>>().join(" or ") {
        none if none.is_empty() => "N/A".to_owned(),
        some => some,
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = names(&OPS, self.op()).next().unwrap_or("No");
        let outcome = |bits: u64| match bits {
            bits if bits & level::HIT != 0 => " hit",
            bits if bits & level::MISS != 0 => " miss",
            _ => "",
        };
        write!(f, "|OP {op}|LVL ")?;
        let level = self.level() & !(level::NA | level::HIT | level::MISS);
        match self.level_number() {
            0 | level_number::NA if level == 0 => f.write_str("N/A")?,
            0 | level_number::NA => {
                write!(f, "{}{}", joined(&LEVELS, level), outcome(self.level()))?;
            }
            number => {
                let place = |names: &[&'static str], n| {
                    usize::try_from(n).ok().and_then(|n| names.get(n).copied())
                };
                let remote = if self.remote() { "Remote " } else { "" };
                let hops = place(&HOPS, self.hops()).unwrap_or("");
                let name = place(&LEVEL_NUMBERS, number).unwrap_or("N/A");
                write!(f, "{remote}{hops}{name}{}", outcome(self.level()))?;
            }
        }
        let snoop = self.snoop() | self.snoop_more() << 5;
        let tlb = self.tlb() & !(tlb::HIT | tlb::MISS);
        let (snoop, tlb) = (joined(&SNOOPS, snoop), joined(&TLBS, tlb));
        write!(f, "|SNP {snoop}|TLB {tlb}{}", outcome(self.tlb()))?;
        let lock = match self.lock() {
            bits if bits & lock::NA != 0 => "N/A",
            bits if bits & lock::LOCKED != 0 => "Yes",
            _ => "No",
        };
        write!(f, "|LCK {lock}|BLK ")?;
        match self.blocked() {
            bits if bits == 0 || bits & blocked::NA != 0 => f.write_str(" N/A"),
            bits => {
                let said = [(blocked::DATA, " Data"), (blocked::ADDRESS, " Addr")];
                said.iter()
                    .filter(|(bit, _)| bits & bit != 0)
                    .try_for_each(|(_, name)| f.write_str(name))
            }
        }
    }
}
