//! Anonymous pages that fork left in common: the oldest relative that still has such a page owns it.
//!
//! The kernel says of a page whether it is mapped by one space alone. A page that is not is in some relative too: it
//! is found there by interval and offset, also where either has moved it. Of two relatives that is exact. Of more it
//! is a lower bound of what is one's own: two of them may have in common what a third has another page of. And so it
//! is where an interval was lost: what cannot be found may still be an older relative's.

use std::collections::BTreeMap;

use crate::identity::{Extent, IntervalId, SpaceId};
use crate::ledger::Ledger;
use crate::pages::PageState;
use crate::pieces::{Piece, Traits};
use crate::ranges::RangeSet;
use crate::scan::Scan;
use crate::space::Space;

/// A scan of a space that has a live relative.
#[derive(Debug)]
pub(crate) struct Copied<'a> {
    scan: &'a Scan,
    /// By interval and offset, with the farthest offset that any piece of that interval up to this one reaches.
    pieces: Vec<(&'a Piece, u64)>,
    /// It has common pages in a mapping that was found late.
    lost: bool,
}

/// Bytes of common pages, and how sure that is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Common {
    /// Owned by an older relative.
    pub(crate) joint: u64,
    /// Not exact.
    pub(crate) guessed: bool,
}

/// The relatives of one space.
#[derive(Debug)]
pub(crate) struct Relatives<'a> {
    older: Vec<&'a Copied<'a>>,
    count: usize,
}

fn common(state: PageState) -> bool {
    state.anon() && !state.has(PageState::EXCLUSIVE)
}

/// Scans of all spaces that have a live relative.
pub(crate) fn copies(ledger: &Ledger) -> BTreeMap<SpaceId, Copied<'_>> {
    let mut members: BTreeMap<SpaceId, usize> = BTreeMap::new();
    for space in ledger.spaces() {
        *members.entry(space.family).or_default() += 1;
    }
    let related = |s: &&Space| members.get(&s.family).is_some_and(|n| *n > 1);
    let copied = ledger.spaces().filter(related);
    copied.filter_map(|s| Some((s.id, Copied::new(s.scan.as_deref()?)))).collect()
}

impl<'a> Copied<'a> {
    fn new(scan: &'a Scan) -> Self {
        let mut pieces: Vec<(&Piece, u64)> =
            scan.pieces.iter().map(|p| (p, p.offset_of(p.extent.end))).collect();
        pieces.sort_unstable_by_key(|(p, _)| (p.id, p.offset));
        for i in 1..pieces.len() {
            if pieces[i - 1].0.id == pieces[i].0.id {
                pieces[i].1 = pieces[i].1.max(pieces[i - 1].1);
            }
        }
        let has_common = |p: &Piece| scan.pages.runs(p.extent).any(|(_, state)| common(state));
        let lost = scan.pieces.iter().filter(|p| p.traits.has(Traits::LATE)).any(has_common);
        Self { scan, pieces, lost }
    }

    /// Offsets in `from..to` of an interval at which it has common pages.
    fn common(&self, id: IntervalId, from: u64, to: u64, found: &mut Vec<(u64, u64)>) {
        let mut first = self.pieces.partition_point(|(p, _)| (p.id, p.offset) < (id, from));
        while first > 0 && self.pieces[first - 1].0.id == id && self.pieces[first - 1].1 > from {
            first -= 1;
        }
        let pieces = self.pieces[first..].iter().map(|(p, _)| *p);
        for piece in pieces.take_while(|p| p.id == id && p.offset < to) {
            let at = |offset: u64| {
                piece.extent.start.saturating_add(offset.saturating_sub(piece.offset))
            };
            let part = piece.extent.intersect(Extent { start: at(from), end: at(to) });
            for (run, _) in self.scan.pages.runs(part).filter(|(_, state)| common(*state)) {
                found.push((piece.offset_of(run.start), piece.offset_of(run.end)));
            }
        }
    }
}

impl<'a> Relatives<'a> {
    pub(crate) fn of(
        space: &Space,
        ledger: &Ledger,
        copies: &'a BTreeMap<SpaceId, Copied<'a>>,
    ) -> Self {
        let relatives = || ledger.family(space.family).filter(|s| s.id != space.id);
        let older = relatives().filter(|s| s.id < space.id);
        let older = older.filter_map(|s| copies.get(&s.id)).collect();
        Self { older, count: relatives().count() }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether none of them is older, as far as they were scanned.
    pub(crate) fn oldest(&self) -> bool {
        self.older.is_empty()
    }

    /// Of the pages in `extent`, a part of `piece`, which are not exclusive: those that an older relative owns, or can
    /// own.
    pub(crate) fn common(&self, piece: &Piece, extent: Extent) -> Common {
        let (from, to) = (piece.offset_of(extent.start), piece.offset_of(extent.end));
        // An interval that a list of mappings began may be another one in a relative.
        let unseen = piece.traits.has(Traits::UNSEEN) && !self.oldest();
        let lost = unseen || self.older.iter().any(|o| o.lost);
        if lost {
            return Common { joint: extent.len(), guessed: true };
        }
        let mut found = Vec::new();
        self.older.iter().for_each(|o| o.common(piece.id, from, to, &mut found));
        let joint = RangeSet::union(found).bytes().min(extent.len());
        Common { joint, guessed: self.count > 1 }
    }
}
