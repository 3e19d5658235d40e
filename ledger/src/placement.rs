//! On which nodes the bytes of owners lie: counts of ranges laid over what owners have.
//!
//! A count says how many bytes of a range lie on a node, not which. An owner that has a whole range has just those; of one
//! that has a part of it bounds follow: at least what the other pages of the range cannot be, at most all that is counted.
//! Bounds of ranges add up. What no count tells of (a page that came after, the kernel's own) may lie on any node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::book::{Claim, Row, Sharing};
use crate::evidence::{Access, NodeRange, Placed, Policy, Ran};
use crate::identity::{Extent, PAGE};
use crate::ledger::Ledger;
use crate::relatives::Relatives;
use crate::scan::Scan;
use crate::space::Space;
use crate::time::{MonoTime, Span};

/// Readings of where threads ran that are kept.
const KEPT: usize = 10;

/// What is known of the places of one space.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    seen: Option<Arc<Placed>>,
    /// Span of the scan that the reading followed with no event and no loss between.
    beside: Option<Span>,
    ran: VecDeque<(MonoTime, Ran)>,
    total: BTreeMap<u32, u64>,
}

impl Placement {
    fn take(&mut self, seen: &Placed, beside: Option<Span>) {
        if seen.ranges.is_some() || seen.drawn.is_some() {
            self.seen = Some(Arc::new(seen.clone()));
            self.beside = beside;
        }
        // A first reading, or too many threads: what was known is of another time. Sums begin anew with it, so that nobody
        // who takes differences counts twice.
        let Some(ran) = &seen.ran else {
            self.ran.clear();
            self.total.clear();
            return;
        };
        for (node, time) in ran.by_node.iter() {
            let sum = self.total.entry(*node).or_default();
            *sum = sum.saturating_add(*time);
        }
        // A reading between did not arrive: times from before the hole are of another window.
        if self.ran.back().is_some_and(|(end, _)| *end < ran.since) {
            self.ran.clear();
        }
        self.ran.push_back((seen.when.end, ran.clone()));
        while self.ran.len() > KEPT {
            self.ran.pop_front();
        }
    }

    /// The newest reading of pages.
    #[must_use]
    pub fn newest(&self) -> Option<&Placed> {
        self.seen.as_deref()
    }

    /// CPU time by node over the newest readings, in nanoseconds, and from when to when that was.
    #[must_use]
    pub fn ran(&self) -> Option<(Span, BTreeMap<u32, u64>)> {
        let ((_, first), (end, _)) = (self.ran.front()?, self.ran.back()?);
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        for (node, time) in self.ran.iter().flat_map(|(_, ran)| ran.by_node.iter()) {
            let sum = sums.entry(*node).or_default();
            *sum = sum.saturating_add(*time);
        }
        Some((Span { begin: first.since, end: *end }, sums))
    }

    /// CPU time by node since the first reading, in nanoseconds.
    #[must_use]
    pub fn total(&self) -> &BTreeMap<u32, u64> {
        &self.total
    }
}

/// Resident bytes by node, as bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByNode {
    /// By node: at least so many, and at most so many of those that are counted.
    counted: BTreeMap<u32, (u64, u64)>,
    /// Bytes that no count tells of.
    pub unplaced: u64,
    /// Policies of the ranges.
    pub policies: BTreeSet<Policy>,
    /// Pages that were drawn, by node. Where there are any, nothing is counted.
    pub drawn: BTreeMap<u32, u64>,
    /// Counts and scan tell of equally many bytes in each range, and nothing happened meanwhile.
    pub still: bool,
}

impl ByNode {
    /// Node, and how many of `resident` bytes lie on it: at least, and at most.
    pub fn bounds(&self, resident: u64) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        let most = move |hi: u64| hi.saturating_add(self.unplaced).min(resident);
        self.counted.iter().map(move |(node, (lo, hi))| (*node, *lo, most(*hi)))
    }

    /// Adds what another claim of the same owner has.
    pub fn merge(&mut self, other: &Self) {
        for (node, (lo, hi)) in &other.counted {
            self.count(*node, *lo, *hi);
        }
        for (node, pages) in &other.drawn {
            *self.drawn.entry(*node).or_default() += pages;
        }
        self.unplaced += other.unplaced;
        self.policies.extend(other.policies.iter().copied());
        self.still &= other.still;
    }

    fn count(&mut self, node: u32, lo: u64, hi: u64) {
        let sum = self.counted.entry(node).or_default();
        sum.0 += lo;
        sum.1 += hi;
    }

    /// Takes in a range of which the owner has `own` of `present` bytes.
    fn range(&mut self, range: &NodeRange, own: u64, present: u64) {
        let counted = range.bytes();
        let all = counted.max(present);
        for (node, bytes) in range.nodes.iter().filter(|(_, bytes)| *bytes > 0) {
            let elsewhere = all.saturating_sub(*bytes);
            self.count(*node, own.saturating_sub(elsewhere), own.min(*bytes));
        }
        self.unplaced += own.min(all - counted);
        self.policies.insert(range.policy);
        self.still &= counted == present;
    }
}

impl Ledger {
    /// The node of the page that an access went to, as the newest reading of its process told: of a mapping that is older,
    /// and where all of its range was counted on one node.
    #[must_use]
    pub fn node_of(&self, access: &Access) -> Option<u32> {
        let (space, address) = (self.space(access.tgid?)?, access.address?);
        let seen = space.placement.newest()?;
        let piece = space.pieces.find(address)?;
        if piece.born.end <= seen.when.begin { seen.node_of(address) } else { None }
    }

    /// Takes a reading in. Of processes that nobody else spoke of, or that began while it was made, it says nothing.
    pub(crate) fn placed(&mut self, seen: &Placed) {
        if seen.fault().is_some() {
            return;
        }
        let space = self.by_tgid.get(&seen.tgid).and_then(|id| self.spaces.get_mut(id));
        if let Some(space) = space.filter(|space| space.born <= seen.when.begin) {
            let quiet = space.still_since_scan() && space.lossless_since_scan();
            let beside = space.scan.as_ref().filter(|_| quiet).map(|scan| scan.when);
            space.placement.take(seen, beside);
        }
    }
}

impl Sharing<'_> {
    /// Lays the counts of a space over the pieces of its scan.
    pub(crate) fn place(
        &self,
        space: &Space,
        scan: &Scan,
        relatives: &Relatives<'_>,
        rows: &mut BTreeMap<Claim, Row>,
    ) {
        let Some(seen) = space.placement.newest() else { return };
        for (page, node) in seen.drawn.iter().flat_map(|drawn| drawn.iter()) {
            let page = Extent::new(page.saturating_mul(PAGE), PAGE);
            let Some(piece) = scan.pieces.find(page.start) else { continue };
            let page = piece.part(page);
            let owned = self.part(space, scan, &page, relatives).owned.rss() > 0;
            if let Some(row) = rows.get_mut(&Claim::of(piece)).filter(|_| owned) {
                *row.nodes.get_or_insert_default().drawn.entry(*node).or_default() += 1;
            }
        }
        let Some(ranges) = seen.ranges.as_deref() else { return };
        let still = scan.exact() && space.placement.beside == Some(scan.when);
        let mut placed: BTreeMap<Claim, u64> = BTreeMap::new();
        for range in ranges {
            let mut own: BTreeMap<Claim, u64> = BTreeMap::new();
            let mut present = 0;
            for piece in scan.pieces.overlapping(range.extent) {
                let part = self.part(space, scan, &piece.part(range.extent), relatives);
                present += part.owned.rss() + part.joint.rss();
                *own.entry(Claim::of(piece)).or_default() += part.owned.rss();
            }
            for (claim, own) in own.into_iter().filter(|(_, own)| *own > 0) {
                let Some(row) = rows.get_mut(&claim) else { continue };
                let nodes = row.nodes.get_or_insert_with(|| ByNode { still, ..ByNode::default() });
                nodes.range(range, own, present);
                *placed.entry(claim).or_default() += own;
            }
        }
        for (claim, row) in rows {
            let rest = row.owned.rss().saturating_sub(placed.get(claim).copied().unwrap_or(0));
            if rest > 0 {
                let nodes = row.nodes.get_or_insert_with(|| ByNode { still, ..ByNode::default() });
                nodes.unplaced += rest;
                nodes.still = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ByNode, NodeRange, Placement};
    use crate::evidence::{Placed, Policy, Ran};
    use crate::identity::Extent;
    use crate::time::{MonoTime, Span};

    #[test]
    fn a_reading_that_lacks_threads_ends_what_is_known_of_where_they_ran() {
        let seen = |end, ran| Placed { when: Span::at(MonoTime(end)), ran, ..Placed::default() };
        let mut known = Placement::default();
        known.take(&seen(9, Some(Ran { since: MonoTime(5), by_node: [(1, 3)].into() })), None);
        assert!(known.ran().is_some());
        known.take(&seen(12, None), None);
        assert!(known.ran().is_none() && known.total().is_empty());
    }

    #[test]
    fn where_threads_ran_is_told_of_a_time_without_a_hole() {
        let mut known = Placement::default();
        let mut told = |since, end| {
            let ran = Some(Ran { since: MonoTime(since), by_node: [(1, 3)].into() });
            let when = Span::at(MonoTime(end));
            known.take(&Placed { when, ran, ..Placed::default() }, None);
            known.ran().map(|(when, by_node)| (when.begin.0, when.end.0, by_node[&1]))
        };
        assert_eq!(told(5, 9), Some((5, 9, 3)));
        assert_eq!(told(8, 12), Some((5, 12, 6)), "threads are read before a reading ends");
        assert_eq!(told(20, 24), Some((20, 24, 3)), "the reading up to 20 did not arrive");
    }

    fn told(own: u64, present: u64, nodes: &[(u32, u64)]) -> (Vec<(u32, u64, u64)>, u64, bool) {
        let range = NodeRange {
            extent: Extent { start: 0, end: 1000 },
            policy: Policy::Default,
            nodes: nodes.to_vec(),
        };
        let mut by_node = ByNode { still: true, ..ByNode::default() };
        by_node.range(&range, own, present);
        (by_node.bounds(own).collect(), by_node.unplaced, by_node.still)
    }

    #[test]
    fn a_whole_range_is_told_to_the_byte_and_a_part_of_one_within_bounds() {
        assert_eq!(told(10, 10, &[(0, 4), (1, 6)]), (vec![(0, 4, 4), (1, 6, 6)], 0, true));
        assert_eq!(told(7, 10, &[(0, 4), (1, 6)]), (vec![(0, 1, 4), (1, 3, 6)], 0, true));
        assert_eq!(told(3, 10, &[(0, 4), (1, 6)]), (vec![(0, 0, 3), (1, 0, 3)], 0, true));
        assert_eq!(told(3, 10, &[(1, 10)]), (vec![(1, 3, 3)], 0, true), "all lie on one node");
    }

    #[test]
    fn what_no_count_tells_of_may_lie_on_any_node() {
        let (bounds, unplaced, still) = told(10, 10, &[(0, 4), (1, 4)]);
        assert_eq!((bounds, unplaced, still), (vec![(0, 4, 6), (1, 4, 6)], 2, false));
        let (bounds, unplaced, still) = told(8, 8, &[(0, 4), (1, 6)]);
        assert_eq!((bounds, unplaced, still), (vec![(0, 2, 4), (1, 4, 6)], 0, false));
    }

    #[test]
    fn bounds_always_hold_every_way_that_pages_can_lie() {
        // Small worlds: each page is the owner's, another's or not there, and lies on one of two nodes.
        for world in 0..6u32.pow(5) {
            let pages: Vec<u32> = (0..5).map(|page| world / 6u32.pow(page) % 6).collect();
            let on = |node: u32, whose: u32| {
                pages.iter().filter(|page| *page % 2 == node && *page / 2 == whose).count() as u64
            };
            let nodes = [(0, on(0, 0) + on(0, 1)), (1, on(1, 0) + on(1, 1))];
            let own = on(0, 0) + on(1, 0);
            let (bounds, ..) = told(own, own + on(0, 1) + on(1, 1), &nodes);
            for (node, lo, hi) in bounds {
                let truth = on(node, 0);
                assert!(lo <= truth && truth <= hi, "{pages:?}: node {node}: {lo}..{hi}");
            }
        }
    }
}
