//! Anonymous pages that fork left in common: the oldest relative that still has such a page owns it.
//!
//! The kernel says of a page whether it is mapped by one space alone. A page that is not is in some relative too: it
//! is found there by interval and offset, also where either has moved it. That is exact of the oldest that has it mapped,
//! whose pages are its own whoever else has them, and of two relatives. Of more it is a lower bound of what is the younger ones' own: two
//! of them may have in common what a third has another page of. And so it is where an interval was lost, or an older
//! relative was not scanned yet: what cannot be found may still be an older relative's.

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
    /// It has common pages in a mapping that was found late or was not known then, or its pages are not known.
    lost: bool,
}

/// The relatives of one space.
#[derive(Debug)]
pub(crate) struct Relatives<'a> {
    /// Scans of those that are older.
    older: Vec<&'a Copied<'a>>,
    /// Some older one was not scanned yet.
    unread: bool,
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
        let before = members.partition_point(|id| *id < space.id);
        let older = members[..before].iter().filter_map(|id| self.copies.get(id));
        let older: Vec<_> = older.collect();
        let unread = older.len() < before;
        Relatives { older, unread, count: members.len().saturating_sub(1) }
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
        let mut common_pages = scan.pages.all().filter(|(_, state)| common(*state));
        let nowhere = common_pages.any(|(extent, _)| !scan.pieces.holes(extent).is_empty());
        let lost = late || nowhere || !scan.pages_known;
        Self { scan, pieces, lost }
    }

    /// Adds the offsets in `from..to` of an interval at which it has common pages. Whether it has any of that mapped.
    fn common(&self, id: IntervalId, from: u64, to: u64, found: &mut Vec<(u64, u64)>) -> bool {
        let mut first = self.pieces.partition_point(|(p, _)| (p.id, p.offset) < (id, from));
        while first > 0 && self.pieces[first - 1].0.id == id && self.pieces[first - 1].1 > from {
            first -= 1;
        }
        let pieces = self.pieces[first..].iter().map(|(p, _)| *p);
        let mut mapped = false;
        for piece in pieces.take_while(|p| p.id == id && p.offset < to) {
            let at = |offset: u64| {
                piece.extent.start.saturating_add(offset.saturating_sub(piece.offset))
            };
            let part = piece.extent.intersect(Extent { start: at(from), end: at(to) });
            mapped |= !part.is_empty();
            for (run, _) in self.scan.pages.runs(part).filter(|(_, state)| common(*state)) {
                found.push((piece.offset_of(run.start), piece.offset_of(run.end)));
            }
        }
        mapped
    }
}

impl Relatives<'_> {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether none of them is older.
    pub(crate) fn oldest(&self) -> bool {
        self.older.is_empty() && !self.unread
    }

    /// Of the pages in `extent`, a part of `piece`, which are not exclusive: those that an older relative owns, or can
    /// own.
    pub(crate) fn common(&self, piece: &Piece, extent: Extent) -> Common {
        // An interval that a list of mappings began may be another one in a relative.
        let unseen = piece.traits.has(Traits::UNSEEN) && !self.oldest();
        let several = self.count > 1;
        if unseen || self.unread || self.older.iter().any(|o| o.lost) {
            return Common { joint: extent.len(), guessed: several || self.unread };
        }
        let (from, to) = (piece.offset_of(extent.start), piece.offset_of(extent.end));
        let mut found = Vec::new();
        let mut mapped = false;
        for older in &self.older {
            mapped |= older.common(piece.id, from, to, &mut found);
        }
        let joint = RangeSet::union(found).bytes().min(extent.len());
        Common { joint, guessed: several && mapped }
    }
}
