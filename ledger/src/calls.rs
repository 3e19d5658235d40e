//! What a change of address space does to the pieces of its space.
//!
//! Records come in order of the end of their calls, and calls overlap. What they leave open is never guessed:
//! - A call without `MAP_FIXED` returns only what is free. Where the ledger still has something, one call that ended
//!   it is in flight: the new mapping is certain, and the first record of a call that can have been that one has no
//!   effect on it.
//! - An old mapping whose own call overlaps in time with the call that takes its place may be the newer one of both:
//!   the range is open until the next list of mappings.
//! - A mapping whose call overlaps in time with one that unmaps it may have survived: it is in doubt. The next list of
//!   mappings tells, since nothing else can be there.
//! - What `mremap` moved may have been something else when another call ended or replaced it at its old place in that
//!   time: the new place is open.

use std::sync::Arc;

use crate::evidence::{Backing, Change, Lifecycle, MapFlags, StackRef};
use crate::identity::{Extent, ObjectKey, PAGE};
use crate::pieces::{Origin, Piece, Traits};
use crate::ranges::RangeSet;
use crate::scan::object;
use crate::space::{Mark, Moved, Open, Space};
use crate::time::{MonoTime, Span};

impl Change {
    /// The ranges that it is about; of an attachment the first page.
    pub(crate) fn extents(&self) -> [Extent; 2] {
        let none = Extent::default();
        match self {
            Self::Map { extent, .. }
            | Self::Unmap { extent }
            | Self::Vma { extent, .. }
            | Self::Doubt { extent } => [*extent, none],
            Self::Remap { from, to, .. } => [*from, *to],
            Self::Brk { old, new, .. } => {
                [Extent { start: page_up(*old.min(new)), end: page_up(*old.max(new)) }, none]
            }
            Self::Attach { at, .. } | Self::Detach { at } => [Extent::new(*at, PAGE), none],
            Self::Name { .. } | Self::Fork { .. } | Self::Exec | Self::Exit => [none, none],
        }
    }
}

impl Space {
    /// Applies a change of address space; `Fork`, `Exec` and `Exit` are the ledger's.
    pub(crate) fn apply(&mut self, event: &Lifecycle) {
        let when = event.when;
        match &event.change {
            Change::Map { extent, flags, stack } => self.map(*extent, flags, *stack, when),
            Change::Unmap { extent } => self.unmap(*extent, when),
            Change::Remap { from, to, keep, fixed, stack: _ } => {
                self.remap(*from, *to, *keep, *fixed, when);
            }
            Change::Brk { old, new, stack } => self.brk(*old, *new, *stack, when),
            Change::Attach { at, replaces, stack } => self.attach(*at, *replaces, *stack, when),
            Change::Detach { at } => self.detach(*at, when),
            Change::Name { extent, name } => self.name(*extent, name.as_deref()),
            Change::Vma { extent, object, flags, path } => {
                let origin = path.as_ref().map(|path| {
                    let backing = Backing::told(*object, flags.hugetlb, Some(path));
                    Arc::new(Origin { backing, path: Some(Arc::clone(path)) })
                });
                self.vma(*extent, *object, flags, origin, when);
            }
            Change::Doubt { extent } => {
                self.contest(*extent, when);
                self.take_displaced(*extent, when);
                self.put_in_doubt(*extent, when);
            }
            Change::Fork { .. } | Change::Exec | Change::Exit => {}
        }
        self.changed = self.changed.max(when.end);
        self.bound();
    }

    fn map(&mut self, extent: Extent, flags: &MapFlags, stack: StackRef, when: Span) {
        let id = self.mint();
        // Shared anonymous memory is an object, mapped from its beginning.
        let private = flags.anonymous && !flags.shared;
        let offset = if private { extent.start } else { flags.offset };
        let traits = Traits::of_call(flags, extent.len());
        let piece = Piece { extent, id, born: when, traits, offset, stack, origin: None };
        self.place(extent, [piece], flags.fixed, when);
    }

    /// A mapping as it is now. What can be a part of it goes on, what cannot has ended, and the rest is new; all of it is
    /// inferred, since what went on may have ended and come back.
    fn vma(
        &mut self,
        extent: Extent,
        object: Option<ObjectKey>,
        flags: &MapFlags,
        origin: Option<Arc<Origin>>,
        when: Span,
    ) {
        let others: Vec<Extent> = self
            .pieces
            .overlapping(extent)
            .filter(|piece| !continues(piece, extent, object, flags))
            .map(|piece| piece.extent.intersect(extent))
            .collect();
        for other in others {
            self.end(other, Span { begin: self.read.min(when.begin), end: when.end });
        }
        for hole in self.pieces.holes(extent) {
            let traits = Traits::of_call(flags, hole.len());
            let offset = if flags.anonymous {
                hole.start
            } else {
                flags.offset.wrapping_add(hole.start.wrapping_sub(extent.start))
            };
            let piece = Piece {
                extent: hole,
                id: self.mint(),
                born: when,
                traits: Traits(traits.0 | Traits::INFERRED),
                offset,
                stack: StackRef::Lost,
                origin: None,
            };
            self.pieces.insert(piece);
        }
        self.endless = true;
        let exec = if flags.exec { Traits::EXEC } else { 0 };
        self.pieces.update(extent, |piece| {
            piece.traits.0 |= Traits::INFERRED | exec;
            if piece.origin.is_none() {
                piece.origin = origin.clone();
            }
        });
    }

    /// Puts new pieces into `extent`, where whatever was there has ended: by this call if it is `fixed`, else by
    /// another one.
    fn place(
        &mut self,
        extent: Extent,
        pieces: impl IntoIterator<Item = Piece>,
        fixed: bool,
        when: Span,
    ) {
        if fixed {
            self.take_displaced(extent, when);
            self.contest(extent, when);
        }
        let (mut open, doubted) = self.contested(extent, fixed, when);
        for old in self.end(extent, when) {
            let concurrent = old.born.end >= when.begin;
            // A list of mappings showed this very mapping before its record came, or another that is gone.
            let listed = old.traits.has(Traits::UNSEEN);
            if concurrent && !listed {
                open.push(Mark { extent: old.extent, when: old.born });
            } else if !fixed && !concurrent && !old.traits.has(Traits::DOUBTED) {
                self.displaced.push(Mark { extent: old.extent, when });
            }
        }
        for piece in pieces {
            self.pieces.insert(piece);
        }
        for part in doubted {
            self.put_in_doubt(part, when);
        }
        for mark in open {
            let begin = mark.when.begin.min(when.begin);
            self.open(mark.extent, Span { begin, ..when });
        }
    }

    /// Parts of `extent` where calls that overlap in time and whose records came first may be younger than a new
    /// mapping: those where anything may be, and since when, and those where nothing else can be.
    fn contested(&self, extent: Extent, fixed: bool, when: Span) -> (Vec<Mark>, Vec<Extent>) {
        let part = |other: Extent| Some(other.intersect(extent)).filter(|e| !e.is_empty());
        let open = self.open.iter().rev().filter(|o| o.when.end >= when.begin);
        // What was surely there when it was ended was ended before something else could be placed.
        let died = self.dead.iter().rev().take_while(|d| d.died.end >= when.begin);
        let died = died.filter(|d| fixed || d.piece.traits.has(Traits::DOUBTED));
        let cleared = self.cleared.iter().rev().take_while(|c| c.when.end >= when.begin);
        let ended = died.map(|d| d.piece.extent).chain(cleared.map(|c| c.extent));
        let mark = |o: &Open| Some(Mark { extent: part(o.extent)?, when: o.when });
        (open.filter_map(mark).collect(), ended.filter_map(part).collect())
    }

    /// A call ends or replaces what is in `extent`: what was moved from there meanwhile, or grew, may be something else.
    fn contest(&mut self, extent: Extent, when: Span) {
        let moves = self.moves.iter().rev().take_while(|m| m.when.end >= when.begin);
        let to: Vec<Extent> = moves.filter(|m| m.from.overlaps(extent)).map(|m| m.to).collect();
        for extent in to {
            self.open(extent, when);
        }
    }

    /// A call of the space that this one is a copy of may have happened before the copy was made.
    pub(crate) fn unsettle(&mut self, extent: Extent, when: Span) {
        self.contest(extent, when);
        self.open(extent, when);
    }

    /// Forgets which parts of `extent` a call displaced while that of `when` ran, and tells them.
    fn take_displaced(&mut self, extent: Extent, when: Span) -> Vec<Extent> {
        let mut taken = Vec::new();
        for d in std::mem::take(&mut self.displaced) {
            if d.when.overlaps(when) && d.extent.overlaps(extent) {
                taken.push(d.extent.intersect(extent));
                let left = outside(d.extent, extent);
                self.displaced.extend(left.map(|extent| Mark { extent, ..d }));
            } else {
                self.displaced.push(d);
            }
        }
        taken
    }

    fn unmap(&mut self, extent: Extent, when: Span) {
        self.contest(extent, when);
        let taken = self.take_displaced(extent, when);
        let taken = RangeSet::union(taken.iter().map(|e| (e.start, e.end)).collect());
        for range in taken.outside(extent) {
            // Born while this call ran: either order is possible.
            let racing = self.born_since(when.begin, range);
            let mut at = range.start;
            for race in racing {
                self.clear(Extent { start: at, end: race.start }, when);
                self.put_in_doubt(race, when);
                at = race.end;
            }
            self.clear(Extent { start: at, end: range.end }, when);
        }
    }

    /// The parts of `within` that became live at `t` or later, as far as that can be.
    fn born_since(&self, t: MonoTime, within: Extent) -> Vec<Extent> {
        let listed = self.scan.as_ref().map_or(MonoTime(0), |scan| scan.when.end);
        if self.changed.max(listed) < t {
            return Vec::new();
        }
        let born = self.pieces.overlapping(within).filter(|p| p.born.end >= t);
        born.map(|p| p.extent.intersect(within)).collect()
    }

    fn remap(&mut self, from: Extent, to: Extent, keep: bool, fixed: bool, when: Span) {
        // A segment whose length no list has told yet may have grown.
        if !self.attaches.is_empty() && !self.pieces.holes(from).is_empty() {
            self.forget_attached(|at| at <= from.start);
        }
        if from.start == to.start && !keep {
            if to.end < from.end {
                self.unmap(Extent { start: to.end, end: from.end }, when);
            } else {
                let last = self.certain(from, when).pop().filter(|p| p.extent.end == from.end);
                let more = Extent { start: from.end, end: to.end };
                self.place(more, last.map(|last| grown(last, more, when)), false, when);
                self.open_holes(more, when);
                self.moves.push_back(Moved { from, to: more, when });
            }
            return;
        }
        // Old size 0 makes a second mapping of what is at the old address.
        let source = if from.is_empty() { Extent::new(from.start, to.len()) } else { from };
        let mut moved = Vec::new();
        for piece in self.certain(source, when) {
            let start = to.start.saturating_add(piece.extent.start - source.start);
            let extent = Extent::new(start, piece.extent.len()).intersect(to);
            if !extent.is_empty() {
                moved.push(Piece { extent, born: when, ..piece });
            }
        }
        if let Some(last) = moved.last().filter(|p| p.extent.end - to.start == source.len()) {
            let more = Extent { start: last.extent.end, end: to.end };
            moved.push(grown(last.clone(), more, when));
        }
        if !moved.is_empty() {
            self.touches.moved(Extent::new(from.start, from.len().min(to.len())), to.start);
        }
        if !keep {
            self.unmap(from, when);
        }
        self.place(to, moved, fixed, when);
        self.open_holes(to, when);
        self.moves.push_back(Moved { from: source, to, when });
    }

    /// Mapped by a call, and the ledger does not know as what.
    fn open_holes(&mut self, extent: Extent, when: Span) {
        for hole in self.pieces.holes(extent) {
            self.open(hole, when);
        }
    }

    /// The parts inside `within`, or none when other calls left it open what is there.
    fn certain(&self, within: Extent, when: Span) -> Vec<Piece> {
        // What a doubt left there may be another mapping by now, whose record is still to come.
        let racing = |p: &Piece| {
            p.born.end >= when.begin && !p.traits.has(Traits::UNSEEN)
                || p.traits.has(Traits::DOUBTED)
        };
        let mut parts: Vec<Piece> =
            self.pieces.overlapping(within).map(|p| p.part(within)).collect();
        for part in parts.iter_mut().filter(|p| p.born.begin < self.loss) {
            part.traits.0 |= Traits::INFERRED;
        }
        if parts.iter().any(racing) {
            return Vec::new();
        }
        parts
    }

    fn brk(&mut self, old: u64, new: u64, stack: StackRef, when: Span) {
        let (old, new) = (page_up(old), page_up(new));
        if new > old {
            let extent = Extent { start: old, end: new };
            let id = self.mint();
            let traits = Traits(Traits::BRK | Traits::ANONYMOUS);
            let piece = Piece { extent, id, born: when, traits, offset: old, stack, origin: None };
            self.place(extent, [piece], false, when);
        } else {
            self.unmap(Extent { start: new, end: old }, when);
        }
    }

    fn name(&mut self, extent: Extent, name: Option<&str>) {
        let origin = name.map(|name| {
            let path = Some(format!("[anon:{name}]").into());
            Arc::new(Origin { backing: Backing::Anonymous, path })
        });
        self.pieces.update(extent, |piece| match &piece.origin {
            Some(o) if o.backing != Backing::Anonymous => {}
            _ => piece.origin.clone_from(&origin),
        });
    }
}

/// Whether `piece` can be a part of the mapping of `object` at `extent`.
fn continues(piece: &Piece, extent: Extent, of: Option<ObjectKey>, flags: &MapFlags) -> bool {
    let known = piece.origin.as_ref().map(|origin| object(origin.backing));
    let placed = piece.offset_of(extent.start) == flags.offset;
    let alike = match known {
        Some(known) => known == of || of.is_none() && !flags.anonymous,
        // What a list showed without an origin is anonymous.
        None => (piece.private_anonymous() || piece.traits.has(Traits::UNSEEN)) == flags.anonymous,
    };
    piece.traits.has(Traits::SHARED) == flags.shared && alike && (flags.anonymous || placed)
}

/// New addresses `extent` for the interval of `last`, behind it.
fn grown(last: Piece, extent: Extent, when: Span) -> Piece {
    let offset = if last.private_anonymous() { extent.start } else { last.offset_of(extent.start) };
    let traits = Traits(last.traits.0 & !Traits::PREDATES);
    Piece { extent, born: when, traits, offset, ..last }
}

/// The end of a heap in whole pages.
fn page_up(end: u64) -> u64 {
    end.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// The parts of `range` outside `hole`.
fn outside(range: Extent, hole: Extent) -> impl Iterator<Item = Extent> {
    let left = Extent { start: range.start, end: range.end.min(hole.start) };
    let right = Extent { start: range.start.max(hole.end), end: range.end };
    [left, right].into_iter().filter(|e| !e.is_empty())
}
