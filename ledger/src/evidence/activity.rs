//! Activity: how often the checks of a monitor found regions of memory accessed. Its class is always `sampled`.
//!
//! DAMON picks one page of a region at random, clears its accessed bit, and looks one sampling interval later; an
//! aggregation is a number of such checks (kernel `Documentation/mm/damon/design.rst`, "Region Based Sampling"). So `hits`
//! of `checks` estimates which part of a region is accessed within one sampling interval. It saturates there, says
//! nothing of how often, and none is no proof of rest.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::{Extent, Tgid};
use crate::time::Span;

/// One whole aggregation of one target of a monitor.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Activity {
    /// The aggregation: from its first check to the telling of its last region.
    pub when: Span,
    /// The monitor: its thread. What two of them say of one page is not added up, for each takes bits from the other.
    pub monitor: u32,
    /// Whose addresses. `None`: physical ones, by whomever they are accessed.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub tgid: Option<Tgid>,
    /// Checks of each region, at least 1.
    pub checks: u32,
    /// Its regions in order of addresses; none overlaps another. Bytes, whatever unit the monitor counts in.
    pub regions: Arc<[Region]>,
}

/// What a monitor says of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Region {
    /// Its addresses.
    pub extent: Extent,
    /// Checks that found it accessed, at most all. After merging the average of what was merged, weighed by size.
    pub hits: u32,
    /// Aggregations since its size or its hits last changed notably.
    pub age: u32,
}

impl Activity {
    /// Time between two checks, as far as the aggregation's own length tells.
    #[must_use]
    pub fn every(&self) -> Duration {
        self.when.end.since(self.when.begin) / self.checks.max(1)
    }

    /// What is wrong with it, if anything.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let overlap = |pair: &[Region]| match pair {
            [a, b] => a.extent.end > b.extent.start,
            _ => false,
        };
        if self.checks == 0 {
            return Some("an activity without checks");
        }
        if self.regions.iter().any(|r| r.hits > self.checks) {
            return Some("more hits than checks");
        }
        if self.regions.iter().any(|r| r.extent.is_empty()) {
            return Some("an empty region");
        }
        self.regions.windows(2).any(overlap).then_some("regions overlap")
    }
}

#[cfg(test)]
mod tests {
    use super::{Activity, Region};
    use crate::identity::Extent;
    use crate::time::{MonoTime, Span};

    fn region(start: u64, len: u64, hits: u32) -> Region {
        Region { extent: Extent::new(start, len), hits, age: 0 }
    }

    fn of(checks: u32, regions: &[Region]) -> Activity {
        let when = Span { begin: MonoTime(1_000), end: MonoTime(21_000) };
        Activity { when, checks, regions: regions.into(), ..Activity::default() }
    }

    #[test]
    fn what_contradicts_itself_is_named() {
        assert_eq!(of(20, &[region(0, 8, 20), region(8, 8, 0)]).fault(), None);
        assert_eq!(of(0, &[]).fault(), Some("an activity without checks"));
        assert_eq!(of(20, &[region(0, 8, 21)]).fault(), Some("more hits than checks"));
        assert_eq!(of(20, &[region(8, 0, 1)]).fault(), Some("an empty region"));
        let tangled = [region(0, 9, 1), region(8, 8, 1)];
        assert_eq!(of(20, &tangled).fault(), Some("regions overlap"));
        assert_eq!(of(20, &[region(8, 8, 1), region(0, 8, 1)]).fault(), Some("regions overlap"));
    }

    #[test]
    fn an_aggregation_is_as_long_as_its_checks() {
        assert_eq!(of(20, &[]).every().as_nanos(), 1_000);
    }
}
