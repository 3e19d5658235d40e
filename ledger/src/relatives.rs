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

/// All families of two and more.
#[derive(Debug)]
pub(crate) struct Families<'a> {
    /// Members by family, oldest first.
    members: BTreeMap<SpaceId, Vec<SpaceId>>,
    /// Scans of the members.
    copies: BTreeMap<SpaceId, Copied<'a>>,
}

/// A scan of a space that has a live relative.
#[derive(Debug)]
struct Copied<'a> {
    scan: &'a Scan,
    /// By interval and offset, with the farthest offset that any piece of that interval up to this one reaches.
    pieces: Vec<(&'a Piece, u64)>,
    /// It has common pages in a mapping that was found late, or its pages are not known.
    lost: bool,
}

/// The relatives of one space.
#[derive(Debug)]
pub(crate) struct Relatives<'a> {
    /// Scans of those that are older.
    older: Vec<&'a Copied<'a>>,
    count: usize,
}

/// Bytes of common pages, and how sure that is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Common {
    /// Owned by an older relative.
    pub(crate) joint: u64,
    /// Not exact.
    pub(crate) guessed: bool,
}

fn common(state: PageState) -> bool {
    state.anon() && !state.has(PageState::EXCLUSIVE)
}

impl<'a> Families<'a> {
    pub(crate) fn of(ledger: &'a Ledger) -> Self {
        let mut members: BTreeMap<SpaceId, Vec<SpaceId>> = BTreeMap::new();
        for space in ledger.spaces() {
            members.entry(space.family).or_default().push(space.id);
        }
        members.retain(|_, members| members.len() > 1);
        let related = ledger.spaces().filter(|s| members.contains_key(&s.family));
        let copied = |s: &'a Space| Some((s.id, Copied::new(s.scan.as_deref()?)));
        let copies = related.filter_map(copied).collect();
        Self { members, copies }
    }

    pub(crate) fn relatives(&'a self, space: &Space) -> Relatives<'a> {
        let members = self.members.get(&space.family).map_or(&[][..], Vec::as_slice);
        let older = members.iter().take_while(|id| **id < space.id);
        let older = older.filter_map(|id| self.copies.get(id)).collect();
        Relatives { older, count: members.len().saturating_sub(1) }
    }
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
        let late = scan.pieces.iter().filter(|p| p.traits.has(Traits::LATE)).any(has_common);
        let lost = late || !scan.pages_known;
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

impl Relatives<'_> {
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
        // An interval that a list of mappings began may be another one in a relative.
        let unseen = piece.traits.has(Traits::UNSEEN) && !self.oldest();
        let joint = if unseen || self.older.iter().any(|o| o.lost) {
            extent.len()
        } else {
            let (from, to) = (piece.offset_of(extent.start), piece.offset_of(extent.end));
            let mut found = Vec::new();
            self.older.iter().for_each(|o| o.common(piece.id, from, to, &mut found));
            RangeSet::union(found).bytes().min(extent.len())
        };
        Common { joint, guessed: self.count > 1 }
    }
}
