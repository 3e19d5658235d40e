//! Regions of memory and how often checks found them accessed, pooled over aggregations and laid over what owners have.
//!
//! A monitor splits and merges its regions all the time. Their edges, all together, cut the addresses into segments, and
//! the checks of every region that held a segment are the segment's: that takes a region to be alike throughout, as DAMON
//! does. One aggregation proves little, so fewer than [`POOLED`] claim nothing. Those of physical memory reach an owner by
//! the frames of its pages ([`crate::frames`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::book::{Claim, Row};
use crate::evidence::{Activity, Frames};
use crate::frames::under;
use crate::identity::Extent;
use crate::ledger::Ledger;
use crate::pages::PageState;
use crate::scan::Scan;
use crate::time::{MonoTime, Span};

/// Aggregations that a claim rests on at least.
pub const POOLED: usize = 5;
/// Aggregations kept of one target.
const KEPT: usize = 10;
/// Edges of one target: with more, the oldest aggregations are left out that a claim does not need.
const EDGES: usize = 1 << 16;

/// The newest aggregations of one target, of one monitor.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    seen: VecDeque<Arc<Activity>>,
    /// Where pages of the space lay meanwhile, if what was seen is physical memory.
    frames: Option<Arc<Frames>>,
    /// Beside what was found of the addresses of a space: what was found of its frames.
    laid: Option<Box<Heat>>,
}

/// A range that no edge of a region divides, and what the checks of its regions came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its addresses.
    pub extent: Extent,
    /// Checks that found its regions accessed.
    pub hits: u64,
    /// Checks.
    pub checks: u64,
    /// Bytes of the newest region that held it.
    pub region: u64,
}

/// What one owner has in one segment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Checks that found the segment's regions accessed.
    pub hits: u64,
    /// Checks.
    pub checks: u64,
    /// The segment.
    pub len: u64,
    /// The newest region that held it.
    pub region: u64,
    /// What the space has present in the segment; of physical memory all of it.
    pub present: u64,
    /// Of that, the owner's.
    pub own: u64,
}

/// What checks say of one owner in one space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Segment by segment.
    pub cells: Vec<Cell>,
    /// Bytes that the owner's mappings have present, those that are joint with other spaces too.
    pub present: u64,
}

impl Use {
    /// Adds what another claim of the same owner has.
    pub fn merge(&mut self, other: &Self) {
        self.cells.extend_from_slice(&other.cells);
        self.present += other.present;
    }
}

impl Heat {
    /// Takes an aggregation in. Those of another monitor are another story and begin anew.
    pub(crate) fn take(&mut self, seen: &Activity) {
        if self.seen.back().is_some_and(|last| last.monitor != seen.monitor) {
            self.seen.clear();
        }
        self.seen.push_back(Arc::new(seen.clone()));
        let edges = |seen: &VecDeque<Arc<Activity>>| -> usize {
            seen.iter().map(|activity| activity.regions.len() * 2).sum()
        };
        while self.seen.len() > KEPT || self.seen.len() > POOLED && edges(&self.seen) > EDGES {
            self.seen.pop_front();
        }
    }

    /// Those that began and ended while pages stayed in `frames`, laid under them; `None` if they are too few.
    pub(crate) fn within(&self, frames: &Frames) -> Option<Self> {
        let inside = |seen: &&Arc<Activity>| {
            frames.when.begin <= seen.when.begin && seen.when.end <= frames.when.end
        };
        let seen = self.seen.iter().filter(inside).map(Arc::clone).collect();
        let laid = Self { seen, frames: Some(Arc::new(frames.clone())), laid: None };
        laid.pooled().is_some().then_some(laid)
    }

    /// Keeps what was found of the frames of a space beside what was found of its addresses.
    pub(crate) fn lay(&mut self, found: Self) {
        self.laid = Some(Box::new(found));
    }

    /// What was found of the frames of a space.
    pub(crate) fn laid(&self) -> Option<&Self> {
        self.laid.as_deref()
    }

    /// What is told of a space: what was found of its addresses, which says who used them; else what was found of its
    /// frames, once that is the newer one by so much that the other is no longer fresh.
    #[must_use]
    pub fn told(&self) -> &Self {
        let newer = |laid: &&Self| laid.pooled().is_some_and(|(_, when)| !self.fresh(when.end));
        self.laid().filter(newer).unwrap_or(self)
    }

    /// Whether they still say something at an instant: until as long after them as they took, twice.
    #[must_use]
    pub fn fresh(&self, at: MonoTime) -> bool {
        self.pooled().is_some_and(|(_, when)| {
            at.since(when.end) <= when.end.since(when.begin).saturating_mul(2)
        })
    }

    /// Where pages lay meanwhile, if what was seen is physical memory, laid under them.
    #[must_use]
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_deref()
    }

    /// The newest aggregation.
    #[must_use]
    pub fn newest(&self) -> Option<&Activity> {
        self.seen.back().map(Arc::as_ref)
    }

    /// How many are pooled, and from the begin of the first to the end of the last; `None` while they are too few.
    #[must_use]
    pub fn pooled(&self) -> Option<(usize, Span)> {
        let (first, last) = (self.seen.front()?, self.seen.back()?);
        let when = Span { begin: first.when.begin, end: last.when.end };
        (self.seen.len() >= POOLED).then_some((self.seen.len(), when))
    }

    /// Their segments in order of addresses; empty while they are too few.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        if self.pooled().is_none() {
            return Vec::new();
        }
        let regions = || self.seen.iter().flat_map(|activity| activity.regions.iter());
        let mut edges: Vec<u64> =
            regions().flat_map(|region| [region.extent.start, region.extent.end]).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut segments: Vec<Segment> = edges
            .windows(2)
            .filter_map(|pair| match *pair {
                [start, end] => Some(Extent { start, end }),
                _ => None,
            })
            .map(|extent| Segment { extent, hits: 0, checks: 0, region: 0 })
            .collect();
        for activity in &self.seen {
            for region in activity.regions.iter() {
                let from = segments.partition_point(|s| s.extent.start < region.extent.start);
                let inside = segments.iter_mut().skip(from);
                for segment in inside.take_while(|s| s.extent.end <= region.extent.end) {
                    segment.hits += u64::from(region.hits);
                    segment.checks += u64::from(activity.checks);
                    segment.region = region.extent.len();
                }
            }
        }
        segments.retain(|segment| segment.checks > 0);
        segments
    }
}

impl Ledger {
    /// Takes an aggregation in. Of processes that nobody else spoke of, or that began while it ran, it says nothing.
    pub(crate) fn activity(&mut self, seen: &Activity) {
        if seen.fault().is_some() {
            return;
        }
        match seen.tgid {
            None => {
                let monitors = self.physical.len();
                let known = self.physical.contains_key(&seen.monitor);
                if !known && monitors >= MONITORS {
                    self.physical.pop_first();
                }
                self.physical.entry(seen.monitor).or_default().take(seen);
            }
            Some(tgid) => {
                let space = self.by_tgid.get(&tgid).and_then(|id| self.spaces.get_mut(id));
                if let Some(space) = space.filter(|space| space.born <= seen.when.begin) {
                    space.heat.take(seen);
                }
            }
        }
    }

    /// What monitors of physical memory found, by their threads.
    pub fn physical(&self) -> impl Iterator<Item = (u32, &Heat)> + '_ {
        self.physical.iter().map(|(monitor, heat)| (*monitor, heat))
    }
}

/// Monitors of physical memory that are remembered at most.
const MONITORS: usize = 16;

/// Lays segments over the pieces of a scan. A mapping that is younger than the first aggregation has no part in it.
pub(crate) fn lay(heat: &Heat, scan: &Scan, rows: &mut BTreeMap<Claim, Row>) {
    let heat = heat.told();
    let Some((_, when)) = heat.pooled().filter(|_| scan.pages_known) else { return };
    for piece in scan.pieces.iter() {
        if let Some(row) = rows.get_mut(&Claim::of(piece)) {
            row.used.get_or_insert_default().present += present(scan, piece.extent);
        }
    }
    let segments = heat.segments();
    let places = match heat.frames() {
        Some(frames) => under(frames, &segments),
        None => segments.iter().map(|segment| vec![segment.extent]).collect(),
    };
    for (segment, places) in segments.into_iter().zip(places) {
        let mut own: BTreeMap<Claim, u64> = BTreeMap::new();
        let mut all = 0;
        for place in places {
            for piece in scan.pieces.overlapping(place) {
                let bytes = present(scan, piece.extent.intersect(place));
                all += bytes;
                if bytes > 0 && piece.born.end <= when.begin {
                    *own.entry(Claim::of(piece)).or_default() += bytes;
                }
            }
        }
        let Segment { extent, hits, checks, region } = segment;
        let len = extent.len();
        // Whoever has the other frames of physical memory, they are in memory.
        let present = if heat.frames.is_some() { len } else { all };
        for (claim, own) in own {
            let Some(row) = rows.get_mut(&claim) else { continue };
            let cell = Cell { hits, checks, len, region, present, own };
            row.used.get_or_insert_default().cells.push(cell);
        }
    }
}

/// Bytes of pages in `extent` that are in memory.
fn present(scan: &Scan, extent: Extent) -> u64 {
    let runs = scan.pages.runs(extent).filter(|(_, state)| state.has(PageState::PRESENT));
    runs.map(|(run, _)| run.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::{EDGES, Heat, KEPT, POOLED};
    use crate::evidence::{Activity, Region};
    use crate::identity::Extent;
    use crate::time::{MonoTime, Span};

    fn seen(at: u64, monitor: u32, regions: &[(u64, u64, u32)]) -> Activity {
        let region = |&(start, end, hits): &(u64, u64, u32)| Region {
            extent: Extent { start, end },
            hits,
            age: 0,
        };
        Activity {
            when: Span { begin: MonoTime(at), end: MonoTime(at + 10) },
            monitor,
            checks: 20,
            regions: regions.iter().map(region).collect(),
            ..Activity::default()
        }
    }

    #[test]
    fn regions_that_change_are_pooled_where_they_overlap() {
        let mut heat = Heat::default();
        for at in 0..4 {
            heat.take(&seen(at, 1, &[(0, 10, 20), (10, 30, 0)]));
            assert_eq!((heat.segments(), heat.pooled()), (Vec::new(), None), "too few");
        }
        heat.take(&seen(4, 1, &[(0, 20, 10), (20, 30, 5)]));
        let told: Vec<_> = heat
            .segments()
            .iter()
            .map(|s| (s.extent.start, s.extent.end, s.hits, s.checks, s.region))
            .collect();
        assert_eq!(told, [(0, 10, 90, 100, 20), (10, 20, 10, 100, 20), (20, 30, 5, 100, 10)]);
        assert_eq!(heat.pooled(), Some((5, Span { begin: MonoTime(0), end: MonoTime(14) })));
    }

    #[test]
    fn a_gap_between_regions_is_no_segment() {
        let mut heat = Heat::default();
        (0..5).for_each(|at| heat.take(&seen(at, 1, &[(0, 10, 1), (50, 60, 1)])));
        assert_eq!(heat.segments().iter().map(|s| s.extent.start).collect::<Vec<_>>(), [0, 50]);
    }

    #[test]
    fn what_two_monitors_say_is_not_added_up() {
        let mut heat = Heat::default();
        (0..POOLED as u64).for_each(|at| heat.take(&seen(at, 1, &[(0, 10, 1)])));
        heat.take(&seen(9, 2, &[(0, 10, 1)]));
        assert_eq!((heat.pooled(), heat.newest().map(|a| a.monitor)), (None, Some(2)));
    }

    #[test]
    fn memory_is_bounded_by_aggregations_and_by_regions_as_far_as_claims_allow() {
        let mut heat = Heat::default();
        (0..100).for_each(|at| heat.take(&seen(at, 1, &[(0, 10, 1)])));
        assert_eq!(heat.seen.len(), KEPT);
        let many: Vec<_> = (0..EDGES as u64 / 4).map(|n| (n * 10, n * 10 + 10, 1)).collect();
        (0..9).for_each(|at| heat.take(&seen(200 + at, 1, &many)));
        assert_eq!(heat.pooled().map(|(number, _)| number), Some(POOLED));
    }
}
