//! Segments of System V shared memory: `shmat` does not tell how long what it attaches is, the next list of mappings does.

use std::sync::Arc;

use crate::evidence::{Backing, Mapping, StackRef};
use crate::identity::Extent;
use crate::piece_map::PieceMap;
use crate::pieces::{Origin, Piece, Traits};
use crate::ranges::RangeSet;
use crate::scan::contradicts;
use crate::space::{PIECES, Space};
use crate::time::Span;

/// A `shmat` whose length the next list of mappings tells.
#[derive(Clone, Debug)]
pub(crate) struct Attach {
    pub(crate) at: u64,
    pub(crate) when: Span,
    pub(crate) stack: StackRef,
    /// It is no longer what is there, or not all of it.
    ended: bool,
    /// The segment, once a list showed its first page.
    segment: Option<Backing>,
    /// What the list shows of a segment that begins there is of this one.
    sole: bool,
    /// What lay where it may reach, and nothing ended since: what it did not replace is still there.
    under: PieceMap,
}

impl Attach {
    /// Whether `mapping` is surely a part of the segment, which is attached from its beginning on.
    pub(crate) fn shows(&self, mapping: &Mapping) -> bool {
        let same = |piece: &Piece| {
            let backing = piece.origin.as_ref().map(|origin| origin.backing);
            self.began(piece) && backing == Some(mapping.backing)
        };
        mapping.extent.start.checked_sub(mapping.offset) == Some(self.at)
            && is_segment(mapping.path.as_deref())
            && !self.ended
            && (mapping.extent.start == self.at
                || self.sole
                    && self.segment == Some(mapping.backing)
                    && !self.under.overlapping(mapping.extent).any(same))
    }

    /// Whether `piece` is of an object that is mapped from there on.
    fn began(&self, piece: &Piece) -> bool {
        piece.extent.start.checked_sub(piece.offset) == Some(self.at)
    }

    /// Whether `mapping`, which is of no new segment, can be what `piece` was.
    fn left(&self, piece: &Piece, mapping: &Mapping, unseen: bool) -> bool {
        let path = piece.origin.as_ref().and_then(|origin| origin.path.as_deref());
        let placed = piece.offset_of(mapping.extent.start) == mapping.offset;
        // It cannot be told from the same segment when that began there before, nor from any without its first page.
        let alike =
            self.segment.is_none_or(|segment| segment == mapping.backing) && self.began(piece);
        !contradicts(piece, mapping, unseen)
            && (!is_segment(mapping.path.as_deref()) || is_segment(path) && placed && !alike)
    }

    /// Who asked for it, and for what lay there.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = StackRef> {
        self.under.iter().map(|piece| piece.stack).chain([self.stack])
    }

    /// What is in `extent` now, something else ended.
    pub(crate) fn end(&mut self, extent: Extent) {
        self.under.cut(extent, &mut Vec::new());
    }
}

/// Whether a mapping has the name that all segments have (kernel `ipc/shm.c`, `newseg`).
fn is_segment(path: Option<&str>) -> bool {
    path.is_some_and(|path| path.starts_with("/SYSV"))
}

impl Space {
    /// Its length is not in the call: up to the next mapping that is surely there everything is open, and without end
    /// where it `replaces` what is there. When the record of what ended there is still to come, old pieces lie at `at`:
    /// all that follow without a hole are open then. What the list shows that it did not reach comes back.
    pub(crate) fn attach(&mut self, at: u64, replaces: bool, stack: StackRef, when: Span) {
        let mut end = at;
        let mut behind = u64::MAX;
        for piece in self.pieces.overlapping(Extent { start: at, end: u64::MAX }) {
            if replaces {
                break;
            }
            if piece.extent.start > end && !piece.traits.has(Traits::DOUBTED) {
                behind = piece.extent.start;
                break;
            }
            end = piece.extent.end;
        }
        let later = |a: &&Attach| !replaces && !a.ended && a.at > at && a.when.end < when.begin;
        let behind = self.attaches.iter().filter(later).map(|a| a.at).fold(behind, u64::min);
        let reach = Extent { start: at, end: behind };
        let known = |p: &&Piece| !p.traits.has(Traits::DOUBTED) && p.born.end < when.begin;
        // What an earlier one could not be told from stays unknown.
        let earlier = self
            .attaches
            .iter()
            .flat_map(|a| a.under.overlapping(reach).filter(move |piece| !a.began(piece)));
        let room = PIECES - self.attaches.iter().map(|a| a.under.len()).sum::<usize>().min(PIECES);
        let mut under = PieceMap::default();
        for piece in earlier.chain(self.pieces.overlapping(reach).filter(known)).take(room) {
            under.insert(piece.part(reach));
        }
        self.open(reach, when);
        self.attaches.push(Attach {
            at,
            when,
            stack,
            ended: false,
            segment: None,
            sole: false,
            under,
        });
    }

    /// Attachments at such addresses are no longer what is there. What lay below them may still be.
    pub(crate) fn forget_attached(&mut self, at: impl Fn(u64) -> bool) {
        self.attaches.iter_mut().for_each(|attach| attach.ended |= at(attach.at));
    }

    /// Keeps the newest attachments, and one that ended: it tells that there were such.
    pub(crate) fn bound_attached(&mut self, most: usize) {
        let attaches = std::mem::take(&mut self.attaches);
        let (ended, live): (Vec<_>, Vec<_>) = attaches.into_iter().partition(|a| a.ended);
        let beyond = live.len().saturating_sub(most);
        self.attaches = ended.into_iter().next_back().into_iter().collect();
        self.attaches.extend(live.into_iter().skip(beyond));
    }

    /// The kernel removes every part of that attachment that lies where the attachment put it (`ksys_shmdt`).
    pub(crate) fn detach(&mut self, at: u64, when: Span) {
        self.forget_attached(|attached| attached == at);
        let mut object = None;
        let mut parts = Vec::new();
        for piece in self.pieces.overlapping(Extent { start: at, end: u64::MAX }) {
            let Some(origin) = &piece.origin else { continue };
            let attached = piece.traits.has(Traits::ATTACHED) || is_segment(origin.path.as_deref());
            let placed = piece.extent.start.checked_sub(at) == Some(piece.offset);
            if attached && placed && origin.backing == *object.get_or_insert(origin.backing) {
                parts.push((piece.extent, piece.born));
            }
        }
        // What is open before the first of them may be of another segment, and then these stay.
        let Some(first) = parts.first().map(|(extent, _)| *extent) else { return };
        let before = Extent { start: at, end: first.start };
        let unclear = self.open.iter().any(|o| o.open() && o.extent.overlaps(before));
        for (extent, born) in parts {
            if unclear || born.end >= when.begin {
                self.put_in_doubt(extent, when);
            } else {
                self.clear(extent, when);
            }
        }
    }

    /// Which segments were attached, as a list of mappings shows. What is left of one that ended before a list showed it,
    /// or that grew, cannot be told from a part of another one.
    pub(crate) fn recognise(&mut self, maps: &[Mapping]) {
        let sole = self.attaches.iter().all(|attach| !attach.ended)
            && self.moves.iter().all(|moved| moved.when.end < self.read);
        for attach in &mut self.attaches {
            let at = maps.partition_point(|mapping| mapping.extent.start < attach.at);
            let first = maps.get(at).filter(|mapping| {
                mapping.extent.start == attach.at && is_segment(mapping.path.as_deref())
            });
            attach.segment = first.map(|mapping| mapping.backing);
            attach.sole = sole;
        }
    }

    /// Puts back what lay where an attachment might have reached and did not.
    pub(crate) fn uncover(
        &mut self,
        mapping: &Mapping,
        origin: Option<&Arc<Origin>>,
        when: Span,
        younger: &RangeSet,
    ) {
        if self.attaches.is_empty() || self.attaches.iter().any(|a| a.shows(mapping)) {
            return;
        }
        let unseen = self.loss > self.read;
        let mut left = Vec::new();
        for hole in self.pieces.holes(mapping.extent) {
            for hole in younger.outside(hole) {
                for attach in self.attaches.iter().filter(|a| a.when.end < when.begin) {
                    let born = Span { begin: attach.when.begin, end: when.end };
                    let under = attach.under.overlapping(hole);
                    for piece in under.filter(|p| attach.left(p, mapping, unseen)) {
                        let part = piece.part(hole);
                        let inferred =
                            if part.born.begin < self.loss { Traits::INFERRED } else { 0 };
                        let traits = Traits(part.traits.0 | inferred);
                        left.push(Piece { traits, born, origin: origin.cloned(), ..part });
                    }
                }
            }
        }
        left.into_iter().for_each(|piece| self.pieces.insert(piece));
    }
}
