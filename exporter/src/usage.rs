//! What checks of a monitor prove of an owner: bytes that it used, at least and at most.
//!
//! DAMON's checks estimate which part of a region is accessed within one sampling interval. Their share gets the Wilson
//! interval of as many independent draws, which is nominal: draws of one page are not independent, counts were averaged
//! where regions merged, and a region is taken to be alike throughout. A region may hold pages of several owners, and
//! holes: then what others could have answered for is not proven of one.

use std::time::Duration;

use memprov_ledger::activity::{Cell, Heat, Use};
use memprov_ledger::evidence::EvidenceClass;
use memprov_ledger::frames::Laid;
use memprov_ledger::time::MonoTime;

use crate::report::{Framed, Monitored, Quantity, Touched};
use crate::stats::{fraction, wilson};

/// How long it is told of pages what was found of their frames: frames are read as rarely as the budget of scans wants.
const LAID: Duration = Duration::from_secs(60);

/// Whether a monitor still covers what it told of.
#[must_use]
pub fn fresh(heat: &Heat, at: MonoTime) -> bool {
    let laid = heat.frames().and_then(|_| heat.pooled());
    heat.fresh(at) || laid.is_some_and(|(_, when)| at.since(when.end) <= LAID)
}

/// What `used` proves of an owner. `None`: no region covers any of it.
#[must_use]
pub fn touched(used: &Use, heat: &Heat) -> Option<Touched> {
    let (aggregations, when) = heat.pooled()?;
    let mut sum = Bounds::default();
    let (mut covered, mut outside, mut regions) = (0u64, 0u128, 0u128);
    for cell in &used.cells {
        sum.add(cell)?;
        covered = covered.saturating_add(cell.own);
        // Of the region that the cell lies in, seen through the cell.
        regions += u128::from(cell.len);
        outside += u128::from(cell.len - cell.own.min(cell.len));
    }
    if covered == 0 {
        return None;
    }
    let upper = used.present.max(covered);
    Some(Touched {
        method: if heat.frames().is_some() { "frames" } else { "addresses" }.to_owned(),
        lower: sum.lo,
        upper,
        in_use: sum.quantity(),
        covered,
        spill: ratio(outside, regions),
        aggregations: aggregations as u64,
        checks: used.cells.iter().map(|cell| cell.checks).min().unwrap_or(0),
        sampling_seconds: sampling(heat),
        seconds: when.end.since(when.begin).as_secs_f64(),
    })
}

/// What a monitor tells of all that it watches.
#[must_use]
pub fn monitored(pid: Option<u32>, heat: &Heat) -> Option<Monitored> {
    let (aggregations, when) = heat.pooled()?;
    let newest = heat.newest()?;
    let mut sum = Bounds::default();
    let mut watched = 0u64;
    for segment in heat.segments() {
        let len = segment.extent.len();
        watched = watched.saturating_add(len);
        let (hits, checks, region) = (segment.hits, segment.checks, segment.region);
        sum.add(&Cell { hits, checks, len, region, present: len, own: len })?;
    }
    Some(Monitored {
        monitor: newest.monitor,
        pid,
        regions: newest.regions.len() as u64,
        watched,
        in_use: sum.quantity(),
        aggregations: aggregations as u64,
        checks: u64::from(newest.checks),
        sampling_seconds: sampling(heat),
        seconds: when.end.since(when.begin).as_secs_f64(),
        frames: None,
    })
}

/// The same of physical memory, whose findings were laid under pages that stayed in their frames.
#[must_use]
pub fn laid(found: &Laid<'_>) -> Option<Monitored> {
    let mut unknown = Bounds::default();
    let mut all = 0u64;
    for (segment, owned) in found.segments() {
        let len = segment.extent.len();
        let (hits, checks, region) = (segment.hits, segment.checks, segment.region);
        all = all.saturating_add(owned);
        unknown.add(&Cell { hits, checks, len, region, present: len, own: len - owned })?;
    }
    let frames = Framed { owned: all, moved: found.moved, unknown: unknown.quantity() };
    Some(Monitored { frames: Some(frames), ..monitored(None, found.heat)? })
}

/// Seconds between two checks of a region.
fn sampling(heat: &Heat) -> f64 {
    heat.newest().map_or(Duration::ZERO, |newest| newest.every()).as_secs_f64()
}

fn ratio(part: u128, whole: u128) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share is told to few digits")]
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    share
}

/// Bytes used within one sampling interval.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    lo: u64,
    estimate: u64,
    hi: u64,
}

impl Bounds {
    fn quantity(self) -> Quantity {
        Quantity {
            bytes: Some(self.estimate.clamp(self.lo, self.hi)),
            evidence: EvidenceClass::Sampled,
            lo: Some(self.lo),
            hi: Some(self.hi),
        }
    }

    /// Adds a cell; `None` of one without checks.
    fn add(&mut self, cell: &Cell) -> Option<()> {
        let (lo, hi) = wilson(cell.hits, cell.checks)?;
        let others = cell.present.saturating_sub(cell.own);
        // What was accessed is in memory, and others can have answered for no more than they have there.
        let used = |share| fraction(cell.len, share).min(cell.present);
        let own = ratio(u128::from(cell.own), u128::from(cell.present));
        #[expect(clippy::cast_precision_loss, reason = "counts of checks are far below 2^53")]
        let share = cell.hits as f64 / cell.checks as f64;
        self.lo = self.lo.saturating_add(used(lo).saturating_sub(others));
        self.estimate = self.estimate.saturating_add(fraction(used(share), own));
        self.hi = self.hi.saturating_add(used(hi).min(cell.own));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::activity::Cell;

    use super::Bounds;

    const MIB: u64 = 1 << 20;

    fn bounds(cell: Cell) -> (u64, u64, u64) {
        let mut sum = Bounds::default();
        sum.add(&cell).unwrap();
        assert!(sum.lo <= sum.hi && sum.hi <= cell.own, "{sum:?}");
        (sum.lo / MIB, sum.estimate / MIB, sum.hi / MIB)
    }

    fn cell(hits: u64, present: u64, own: u64) -> Cell {
        let (present, own) = (present * MIB, own * MIB);
        Cell { hits, checks: 100, len: 100 * MIB, region: 100 * MIB, present, own }
    }

    #[test]
    fn of_a_region_with_one_owner_the_interval_is_wilsons() {
        assert_eq!(bounds(cell(0, 100, 100)), (0, 0, 3));
        assert_eq!(bounds(cell(50, 100, 100)), (40, 50, 59));
        assert_eq!(bounds(cell(100, 100, 100)), (96, 100, 100));
    }

    #[test]
    fn what_others_can_have_answered_for_is_not_proven() {
        assert_eq!(bounds(cell(50, 100, 80)), (20, 40, 59));
        assert_eq!(bounds(cell(50, 100, 20)), (0, 10, 20));
    }

    #[test]
    fn holes_answer_for_nothing() {
        assert_eq!(bounds(cell(20, 40, 40)), (13, 20, 28));
        assert_eq!(bounds(cell(100, 40, 40)), (40, 40, 40));
        assert_eq!(bounds(cell(100, 0, 0)), (0, 0, 0));
    }

    #[test]
    fn no_checks_prove_nothing() {
        assert_eq!(Bounds::default().add(&Cell { checks: 0, ..cell(0, 1, 1) }), None);
    }

    /// Whatever regions hold, the bounds of all owners together hold what was used.
    #[test]
    fn bounds_of_owners_hold_the_truth_that_they_share() {
        for hits in [0, 3, 50, 97, 100] {
            for own in [0, 1, 30, 99, 100] {
                let (lo, _, hi) = bounds(cell(hits, 100, own));
                let (other_lo, _, other_hi) = bounds(cell(hits, 100, 100 - own));
                assert!(lo + other_lo <= hits.max(1) && hits <= hi + other_hi + 2, "{hits} {own}");
            }
        }
    }
}
