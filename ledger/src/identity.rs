//! What sources may say (tgid, address, device and inode) and what only the ledger mints (space, generation).

use std::fmt;

/// Bytes of a base page on every architecture memprov runs on.
pub const PAGE: u64 = 4096;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name(pub $int);
    };
}

number! {
    /// A thread group id in the initial pid namespace: a name the kernel reuses, never an identity.
    Tgid(u32)
}
number! {
    /// When a process began, in clock ticks (10 ms) since boot: field 22 of `/proc/PID/stat`.
    StartTicks(u64)
}
number! {
    /// A virtual address.
    VirtAddr(u64)
}
number! {
    /// An address space: one per kernel `mm`. Minted by the ledger, never reused.
    SpaceId(u64)
}
number! {
    /// A generation: the how-manieth interval of its space. Never reused.
    Generation(u64)
}
number! {
    /// An entry of the stack table. 0 is never used.
    StackId(u32)
}
number! {
    /// An entry of the module table. 0 is never used.
    ModuleId(u32)
}

/// A virtual interval's identity. It outlives the addresses: a new mapping at an old address is a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IntervalId {
    /// The space that it was made in.
    pub space: SpaceId,
    /// Which interval of that space it is.
    pub generation: Generation,
}

/// A half-open range of addresses, `start <= end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
}

impl Extent {
    /// The extent of `len` bytes from `start`; saturating at the end of the address space.
    #[must_use]
    pub fn new(start: u64, len: u64) -> Self {
        Self { start, end: start.saturating_add(len) }
    }

    /// The smallest extent of whole pages that holds `len` bytes from `start`.
    #[must_use]
    pub fn pages(start: u64, len: u64) -> Self {
        let end = start.saturating_add(len);
        Self { start: start & !(PAGE - 1), end: end.saturating_add(PAGE - 1) & !(PAGE - 1) }
    }

    /// Bytes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether `addr` lies in it.
    #[must_use]
    pub fn contains(self, addr: u64) -> bool {
        self.start <= addr && addr < self.end
    }

    /// Whether some address lies in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What lies in both; empty when nothing does.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.start, self.end)
    }
}

/// An object that has pages of its own, as `/proc/PID/maps` names it: device and inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ObjectKey {
    /// Major device number.
    pub major: u32,
    /// Minor device number.
    pub minor: u32,
    /// Inode number.
    pub inode: u64,
}

/// Addresses in a trace are hex text, and extents `start-end`, as `/proc/PID/maps` prints them: no reader rounds them
/// to a double.
#[cfg(feature = "serde")]
pub mod hex {
    use std::fmt;

    use serde::de::{Error, Unexpected, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Extent;

    /// The types of fields that hold addresses and say `#[serde(with = "hex")]`.
    pub trait Addresses: Sized {
        /// The same with text.
        type Wire: Serialize + for<'de> Deserialize<'de>;
        /// As text.
        fn to_wire(&self) -> Self::Wire;
        /// From text.
        fn from_wire(wire: Self::Wire) -> Self;
    }

    impl Addresses for u64 {
        type Wire = Hex;
        fn to_wire(&self) -> Hex {
            Hex(*self)
        }
        fn from_wire(wire: Hex) -> Self {
            wire.0
        }
    }

    impl<T: Addresses> Addresses for Option<T> {
        type Wire = Option<T::Wire>;
        fn to_wire(&self) -> Self::Wire {
            self.as_ref().map(T::to_wire)
        }
        fn from_wire(wire: Self::Wire) -> Self {
            wire.map(T::from_wire)
        }
    }

    impl Addresses for (u64, u64) {
        type Wire = (Hex, Hex);
        fn to_wire(&self) -> Self::Wire {
            (Hex(self.0), Hex(self.1))
        }
        fn from_wire(wire: Self::Wire) -> Self {
            (wire.0.0, wire.1.0)
        }
    }

    /// Writes addresses as text.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn serialize<T: Addresses, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.to_wire().serialize(to)
    }

    /// Reads addresses from text.
    ///
    /// # Errors
    /// The text is something else than hex digits of 64 bits.
    pub fn deserialize<'de, T: Addresses, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::Wire::deserialize(from).map(T::from_wire)
    }

    /// One address.
    #[derive(Debug)]
    pub struct Hex(u64);

    impl Serialize for Hex {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_str(&format_args!("{:x}", self.0))
        }
    }

    impl<'de> Deserialize<'de> for Hex {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_str(Text("an address in hex", |text| digits(text).map(Hex)))
        }
    }

    impl Serialize for Extent {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Extent {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_str(Text("addresses `start-end` in hex, in order", |text| {
                let (start, end) = text.split_once('-')?;
                let extent = Self { start: digits(start)?, end: digits(end)? };
                (extent.start <= extent.end).then_some(extent)
            }))
        }
    }

    /// Hex digits and nothing else: `from_str_radix` alone takes a sign.
    fn digits(text: &str) -> Option<u64> {
        let plain = text.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    }

    struct Text<T>(&'static str, fn(&str) -> Option<T>);

    impl<T> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            (self.1)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
}
