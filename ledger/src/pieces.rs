//! What is mapped: a piece is a live extent of an interval, with how it came to be and what it is made of.

use std::sync::Arc;

use crate::evidence::{Backing, MapFlags, StackRef};
use crate::identity::{Extent, IntervalId};
use crate::time::Span;

/// What a mapping is made of, once the kernel's list of mappings told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// What backs it.
    pub backing: Backing,
    /// Path or name as `/proc/PID/maps` shows it. For anonymous memory that the loader put behind a file's data
    /// (`.bss`) it is the path of that file.
    pub path: Option<Arc<str>>,
}

/// How a piece came to be, as bits. Everything that attribution needs of the call survives splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Traits(pub u32);

impl Traits {
    /// Its creation was not seen: it was there when a list of mappings was read.
    pub const UNSEEN: u32 = 1;
    /// Made by `brk`.
    pub const BRK: u32 = 1 << 1;
    /// Made by `shmat`.
    pub const ATTACHED: u32 = 1 << 2;
    /// `MAP_SHARED`.
    pub const SHARED: u32 = 1 << 3;
    /// `MAP_ANONYMOUS`.
    pub const ANONYMOUS: u32 = 1 << 4;
    /// `MAP_STACK`.
    pub const STACK: u32 = 1 << 5;
    /// `MAP_NORESERVE`.
    pub const NORESERVE: u32 = 1 << 6;
    /// `MAP_HUGETLB`.
    pub const HUGETLB: u32 = 1 << 7;
    /// `PROT_EXEC` when it was made, or later as far as that was told.
    pub const EXEC: u32 = 1 << 8;
    /// `PROT_NONE` when it was made.
    pub const INACCESSIBLE: u32 = 1 << 9;
    /// Its first length was 1 to 7 times a power of two.
    pub const SIZE_CLASS: u32 = 1 << 10;
    /// Its first length was a multiple of 1 MiB.
    pub const WHOLE_MIB: u32 = 1 << 11;
    /// Its first length was 64 MiB or more.
    pub const HUGE_LENGTH: u32 = 1 << 12;
    /// Born before the watch began.
    pub const PREDATES: u32 = 1 << 13;
    /// A call that failed or raced may have changed it: the next list of mappings tells.
    pub const DOUBTED: u32 = 1 << 14;
    /// Moved or grown out of a piece that is older than a loss of events: whose it is, is inferred.
    pub const INFERRED: u32 = 1 << 15;
    /// Unseen, and not in the first list of mappings: the kernel made it, or what was known of it was lost.
    pub const LATE: u32 = 1 << 16;
    /// `MAP_GROWSDOWN`: the kernel makes it longer where somebody faults right below it.
    pub const GROWS_DOWN: u32 = 1 << 17;

    /// Whether all bits of `bits` are set.
    #[must_use]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Whether what has these traits and this origin is private memory without an object, as far as is known.
    #[must_use]
    pub fn private_anonymous(self, origin: Option<&Origin>) -> bool {
        match origin {
            Some(origin) => origin.backing == Backing::Anonymous,
            None => self.has(Self::ANONYMOUS) && !self.has(Self::SHARED),
        }
    }

    /// The traits of a mapping of `len` bytes that `mmap` was asked for.
    #[must_use]
    pub fn of_call(flags: &MapFlags, len: u64) -> Self {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        Self(
            bit(flags.shared, Self::SHARED)
                | bit(flags.anonymous, Self::ANONYMOUS)
                | bit(flags.stack, Self::STACK)
                | bit(flags.grows_down, Self::GROWS_DOWN)
                | bit(flags.noreserve, Self::NORESERVE)
                | bit(flags.hugetlb, Self::HUGETLB)
                | bit(flags.exec, Self::EXEC)
                | bit(flags.inaccessible, Self::INACCESSIBLE)
                | bit(is_size_class(len), Self::SIZE_CLASS)
                | bit(len.is_multiple_of(1 << 20), Self::WHOLE_MIB)
                | bit(len >= 64 << 20, Self::HUGE_LENGTH),
        )
    }
}

/// Whether a length is 1 to 7 times a power of two. Allocators grow by such steps, as jemalloc's classes of sizes do
/// (2.5 MiB, 3.5 MiB): an object of just such a length is taken for memory to divide.
#[must_use]
pub fn is_size_class(len: u64) -> bool {
    len != 0 && len >> len.trailing_zeros() < 8
}

/// A live extent of an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Its addresses.
    pub extent: Extent,
    /// The interval it is a part of.
    pub id: IntervalId,
    /// When this extent became live.
    pub born: Span,
    /// How it came to be.
    pub traits: Traits,
    /// Offset of `extent.start` in its object; for anonymous memory the address that the byte was born at, so that
    /// relatives find each other's pages after a move.
    pub offset: u64,
    /// Who asked for it.
    pub stack: StackRef,
    /// What it is made of, once known.
    pub origin: Option<Arc<Origin>>,
}

impl Piece {
    /// Whether it is private memory without an object, as far as is known.
    #[must_use]
    pub fn private_anonymous(&self) -> bool {
        self.traits.private_anonymous(self.origin.as_deref())
    }

    /// The offset of an address of it in its object.
    #[must_use]
    pub fn offset_of(&self, addr: u64) -> u64 {
        self.offset.wrapping_add(addr.wrapping_sub(self.extent.start))
    }

    /// The part of it inside `within`; empty when there is none.
    #[must_use]
    pub fn part(&self, within: Extent) -> Self {
        let extent = self.extent.intersect(within);
        Self { extent, offset: self.offset_of(extent.start), ..self.clone() }
    }
}
