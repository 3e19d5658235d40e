//! The names memprov exports: metrics, attribute keys, and the values of closed attributes.
//!
//! Names of our own begin with `memprov.`; names of the OpenTelemetry semantic conventions are used for what they
//! already describe (process, container, host, service). Units are UCUM. Nothing outside this crate spells a name.
//!
//! The names themselves are in `registry/*.yaml`, in the format of OpenTelemetry's weaver (`definition/2`). The example
//! `generate` makes constants of them, and `docs/METRICS.md`.
#![forbid(unsafe_code)]

#[cfg(feature = "contract")]
pub mod contract;
// Laid out by the generator: a tool that formats it would make it differ from what is made.
#[rustfmt::skip]
mod generated;

pub use generated::*;

/// An attribute key. Only this crate makes one, so a literal cannot stand where a key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(&'static str);

impl Key {
    /// The key as it travels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// What kind of stream a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instrument {
    /// A monotonic sum.
    Counter,
    /// A sum that goes both ways; adding it over any attribute is meaningful.
    UpDownCounter,
    /// A value that does not add up.
    Gauge,
    /// How often values lay where.
    Histogram,
}

/// What the points of a metric are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Integers of 63 bits and a sign.
    Int,
    /// IEEE 754 doubles.
    Double,
}

/// What the values of an attribute are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Text.
    Text,
    /// Integers of 63 bits and a sign.
    Int,
    /// Booleans.
    Bool,
}

/// An attribute as a metric or a resource carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its key.
    pub key: Key,
    /// What its values are written as.
    pub kind: Type,
    /// Whether every point has it.
    pub required: bool,
    /// The values that occur; none: any.
    pub values: &'static [&'static str],
}

impl Attribute {
    /// The key as it travels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.key.as_str()
    }
}

const fn attribute(
    key: Key,
    kind: Type,
    required: bool,
    values: &'static [&'static str],
) -> Attribute {
    Attribute { key, kind, required, values }
}

/// A metric: everything about it but its points.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name as it travels.
    pub name: &'static str,
    /// UCUM.
    pub unit: &'static str,
    /// The kind of stream.
    pub instrument: Instrument,
    /// What its points are written as.
    pub number: Number,
    /// One sentence for people.
    pub brief: &'static str,
    /// Every attribute that a point may carry.
    pub attributes: &'static [Attribute],
}
