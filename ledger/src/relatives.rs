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
    ledger: &'a Ledger,
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
    /// Scans of those that are younger.
    younger: Vec<&'a Copied<'a>>,
    /// Some older one was not scanned yet.
    unread: bool,
    /// Something happened in another one since this one was scanned: what was common may be its own.
    disturbed: bool,
    count: usize,
}

/// Bytes of common pages, and how sure that is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Common {
    /// Owned by an older relative.
    pub(crate) joint: u64,
    /// Not exact.
    pub(crate) guessed: bool,
    /// How many of these bytes may be one's own all the same.
    pub(crate) unsure: u64,
}

fn common(state: PageState) -> bool {
    state.anon() && !state.has(PageState::EXCLUSIVE)
}

/// Whether what the kernel says of the page may be said of another one: of a huge page that one entry maps it tells of all
/// its pages what holds for the first (kernel `fs/proc/task_mmu.c`, `pagemap_pmd_range`).
fn roughly(state: PageState) -> bool {
    state.anon() && state.has(PageState::HUGE)
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
        Self { ledger, members, copies }
    }

    pub(crate) fn relatives(&'a self, space: &Space) -> Relatives<'a> {
        let members = self.members.get(&space.family).map_or(&[][..], Vec::as_slice);
        let before = members.partition_point(|id| *id < space.id);
        let older = members[..before].iter().filter_map(|id| self.copies.get(id));
        let older: Vec<_> = older.collect();
        let unread = older.len() < before;
        let after = members[before..].iter().filter(|id| **id != space.id);
        let younger = after.filter_map(|id| self.copies.get(id)).collect();
        let disturbed = self.ledger.doubts(space);
        Relatives { older, younger, unread, disturbed, count: members.len().saturating_sub(1) }
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

    /// Adds the offsets in `from..to` of an interval at which it has pages that are `wanted`. Whether it has any of that
    /// mapped.
    fn find(
        &self,
        id: IntervalId,
        (from, to): (u64, u64),
        wanted: impl Fn(PageState) -> bool,
        found: &mut Vec<(u64, u64)>,
    ) -> bool {
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
            for (run, _) in self.scan.pages.runs(part).filter(|(_, state)| wanted(*state)) {
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

    /// Bytes that three others may have in common or more. Where only one or two have a page that is not exclusive, all of
    /// them have the same one: whoever shares does so with another one.
    fn crowded(&self, id: IntervalId, within: (u64, u64)) -> u64 {
        if self.count < 3 {
            return 0;
        }
        let mut edges = BTreeMap::new();
        for other in self.older.iter().chain(&self.younger) {
            let mut found = Vec::new();
            other.find(id, within, |state| common(state) || roughly(state), &mut found);
            for (from, to) in found {
                *edges.entry(from).or_insert(0i64) += 1;
                *edges.entry(to).or_insert(0i64) -= 1;
            }
        }
        let (mut depth, mut since, mut bytes) = (0, 0, 0);
        for (at, step) in edges {
            if depth >= 3 {
                bytes += at - since;
            }
            (depth, since) = (depth + step, at);
        }
        bytes
    }

    /// Of the pages in `extent`, a part of `piece`, which are all in this state: those that an older relative owns, or
    /// can own.
    pub(crate) fn common(&self, piece: &Piece, extent: Extent, state: PageState) -> Common {
        let shared = common(state);
        if !(shared || roughly(state)) {
            return Common::default();
        }
        // An interval that a list of mappings began may be another one in a relative.
        let unseen = piece.traits.has(Traits::UNSEEN) && !self.oldest();
        let several = self.count > 1;
        let unknown = unseen || self.unread || self.older.iter().any(|o| o.lost);
        if unknown && shared {
            let guessed = several || self.unread || self.disturbed;
            let unsure = if guessed { extent.len() } else { 0 };
            return Common { joint: extent.len(), guessed, unsure };
        }
        let within = (piece.offset_of(extent.start), piece.offset_of(extent.end));
        let (mut found, mut mapped) = (Vec::new(), false);
        for older in &self.older {
            // Of two relatives the other one has it, whatever is said of its page.
            mapped |= match (shared, several) {
                (false, _) => older.find(piece.id, within, common, &mut found),
                (true, false) => older.find(piece.id, within, PageState::anon, &mut found),
                (true, true) => {
                    let may = |state| common(state) || roughly(state);
                    older.find(piece.id, within, may, &mut found)
                }
            };
        }
        let joint = RangeSet::union(found).bytes().min(extent.len());
        // What the kernel calls exclusive stays its own where nobody older is known to have it, as inferred.
        let guessed = unknown || (several || self.disturbed) && mapped;
        let unsure = match (guessed, self.disturbed) {
            (false, _) => 0,
            (true, true) => joint,
            (true, false) => joint.min(self.crowded(piece.id, within)),
        };
        Common { joint, guessed, unsure }
    }
}
