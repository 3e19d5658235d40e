//! One address space: its live pieces, its recent dead, and what is in doubt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::evidence::{Backing, Change, Counters, Fault, Lifecycle, MapFlags, StackRef};
use crate::identity::{Extent, Generation, IntervalId, ObjectKey, PAGE, SpaceId, StartTicks, Tgid};
use crate::pieces::{Origin, Piece, PieceMap, Traits};
use crate::scan::Scan;
use crate::time::{MonoTime, Span};
use crate::touch::{Sample, Touches};

/// Dead pieces kept per space at most. What falls out is answered as unknown, not as unowned.
const DEAD: usize = 4096;
/// Open questions kept per space at most; more means that the whole space is read again.
const QUESTIONS: usize = 1024;

/// A piece that is no longer live.
#[derive(Clone, Debug)]
pub(crate) struct Dead {
    pub(crate) piece: Piece,
    pub(crate) died: Span,
}

/// A new mapping lay where the ledger had an old one: a call that ended the old one is still in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Displaced {
    pub(crate) extent: Extent,
    pub(crate) when: Span,
}

/// A `shmat` whose length the next list of mappings tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attach {
    pub(crate) at: u64,
    pub(crate) when: Span,
    pub(crate) stack: StackRef,
}

/// Faults of the sample, by the kind of memory that they were in. Counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledFaults {
    /// In anonymous memory (copies of private file pages with it).
    pub anon: u64,
    /// In memory of a file.
    pub file: u64,
    /// In shared memory: shmem and hugetlb.
    pub shmem: u64,
    /// Where the ledger knew nothing.
    pub unknown: u64,
}

impl SampledFaults {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.anon + self.file + self.shmem + self.unknown
    }
}

/// An address space: one per `mm` of the kernel.
#[derive(Clone, Debug)]
pub struct Space {
    /// Its identity.
    pub id: SpaceId,
    /// Processes that live in it: several after `clone(CLONE_VM)` or `vfork`.
    pub tgids: BTreeSet<Tgid>,
    /// The first space of its family: copies made by fork since the last exec.
    pub family: SpaceId,
    /// The space it was forked from, or the nearest ancestor of it that lives; after exec that of the old space.
    pub parent: Option<SpaceId>,
    /// When its processes began, as far as known.
    pub starts: BTreeMap<Tgid, StartTicks>,
    /// When the space began, or zero when it was there before the watch.
    pub born: MonoTime,
    /// The newest scan.
    pub scan: Option<Arc<Scan>>,
    /// When a later reading proved that the newest scan still holds: totals unmoved, no event since.
    pub confirmed: Option<MonoTime>,
    pub(crate) pieces: PieceMap,
    pub(crate) touches: Touches,
    pub(crate) next: u64,
    pub(crate) dead: VecDeque<Dead>,
    /// Deaths before this instant may have been forgotten.
    pub(crate) forgotten: MonoTime,
    pub(crate) displaced: Vec<Displaced>,
    pub(crate) attaches: Vec<Attach>,
    /// End of the newest event.
    pub(crate) changed: MonoTime,
    /// Before this instant events may be missing: what was born before is inferred.
    pub(crate) loss: MonoTime,
    /// The list of mappings must be read before anything is claimed.
    pub(crate) unread: bool,
    /// Some range is in doubt.
    pub(crate) doubt: bool,
    /// Time of the last list of mappings that was taken in.
    pub(crate) read: MonoTime,
    /// Objects that it maps, by the last list of mappings or its parent's.
    pub(crate) objects: Arc<BTreeSet<ObjectKey>>,
    /// The kernel's totals, newest reading.
    pub(crate) total: Option<(Span, Counters)>,
    /// Faults of the sample, by kind of memory.
    pub(crate) faults: SampledFaults,
    /// The kernel's count of faults, minor and major, at the first reading.
    pub(crate) first_faults: Option<u64>,
}

impl Space {
    /// A space whose mappings nobody listed yet.
    pub(crate) fn new(id: SpaceId, tgid: Tgid, born: MonoTime) -> Self {
        Self {
            id,
            tgids: BTreeSet::from([tgid]),
            family: id,
            parent: None,
            starts: BTreeMap::new(),
            born,
            scan: None,
            confirmed: None,
            pieces: PieceMap::default(),
            touches: Touches::default(),
            next: 0,
            dead: VecDeque::new(),
            forgotten: MonoTime(0),
            displaced: Vec::new(),
            attaches: Vec::new(),
            changed: MonoTime(0),
            loss: MonoTime(0),
            unread: true,
            doubt: false,
            read: born,
            objects: Arc::default(),
            total: None,
            faults: SampledFaults::default(),
            first_faults: None,
        }
    }

    /// A copy as fork makes it: same pieces, same intervals, nothing scanned.
    pub(crate) fn fork(&self, id: SpaceId, tgid: Tgid, start: StartTicks, when: Span) -> Self {
        Self {
            id,
            tgids: BTreeSet::from([tgid]),
            parent: Some(self.id),
            starts: BTreeMap::from([(tgid, start)]),
            born: when.end,
            scan: None,
            confirmed: None,
            pieces: self.pieces.clone(),
            touches: Touches::default(),
            next: 0,
            dead: VecDeque::new(),
            forgotten: when.begin,
            displaced: Vec::new(),
            attaches: self.attaches.clone(),
            changed: when.end,
            objects: Arc::clone(&self.objects),
            total: None,
            faults: SampledFaults::default(),
            first_faults: Some(0),
            ..*self
        }
    }

    /// Live intervals and extents, in address order.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> + '_ {
        self.pieces.iter()
    }

    /// Whether the list of mappings must be read for what is claimed now: never read, lost, or in doubt.
    #[must_use]
    pub fn questions(&self) -> bool {
        self.unread || self.doubt || !self.attaches.is_empty()
    }

    /// Whether no event was seen since its newest scan.
    #[must_use]
    pub fn still_since_scan(&self) -> bool {
        self.scan.as_ref().is_some_and(|scan| self.changed < scan.when.begin) && !self.questions()
    }

    /// Takes a sampled fault in.
    pub(crate) fn fault(&mut self, fault: &Fault, sample: Sample) {
        let kind = match self.pieces.find(fault.address) {
            None => &mut self.faults.unknown,
            Some(piece) => match piece.origin.as_ref().map(|o| o.backing) {
                Some(Backing::File(_)) if fault.write && !piece.traits.has(Traits::SHARED) => {
                    &mut self.faults.anon
                }
                Some(Backing::File(_) | Backing::Special) => &mut self.faults.file,
                Some(Backing::Shmem(_) | Backing::Hugetlb(_)) => &mut self.faults.shmem,
                None if piece.traits.has(Traits::SHARED) => &mut self.faults.shmem,
                Some(Backing::Anonymous) | None => &mut self.faults.anon,
            },
        };
        // Faults of a sampled block come in clusters: they are kept for huge pages and count no kinds.
        *kind += u64::from(sample.has_page(fault.address / PAGE));
        self.touches.fault(fault, sample);
    }

    /// Faults of the sample so far, by kind.
    #[must_use]
    pub fn sampled_faults(&self) -> SampledFaults {
        self.faults
    }

    /// Faults between the first and the newest reading of the kernel's count.
    #[must_use]
    pub fn faults_counted(&self) -> Option<u64> {
        let (_, newest) = self.total?;
        let newest = newest.minor_faults.saturating_add(newest.major_faults);
        Some(newest.saturating_sub(self.first_faults?))
    }

    /// Takes the kernel's totals in.
    pub(crate) fn totals(&mut self, when: Span, counters: Counters) {
        let faults = counters.minor_faults.saturating_add(counters.major_faults);
        self.first_faults.get_or_insert(faults);
        self.total = Some((when, counters));
    }

    /// Whether no event of it was ever lost.
    #[must_use]
    pub fn lossless(&self) -> bool {
        self.loss == MonoTime(0)
    }

    /// The sample of pages that its first touches are complete for.
    #[must_use]
    pub fn sample(&self, sample: Sample) -> Sample {
        self.touches.sample(sample)
    }

    /// Whether no loss lies since `piece` was born.
    #[must_use]
    pub fn proven(&self, piece: &Piece) -> bool {
        piece.born_begin >= self.loss && !piece.traits.has(Traits::DOUBTED)
    }

    pub(crate) fn mint(&mut self) -> IntervalId {
        self.next += 1;
        IntervalId { space: self.id, generation: Generation(self.next) }
    }

    /// Applies a change of address space; `Fork`, `Exec` and `Exit` are the ledger's.
    pub(crate) fn apply(&mut self, event: &Lifecycle) {
        let when = event.when;
        match &event.change {
            Change::Map { extent, flags, stack } => self.map(*extent, flags, *stack, when),
            Change::Unmap { extent } => self.unmap(*extent, when),
            Change::Remap { from, to, keep, fixed, stack } => {
                self.remap(*from, *to, *keep, *fixed, *stack, when);
            }
            Change::Brk { old, new, stack } => self.brk(*old, *new, *stack, when),
            Change::Attach { at, stack } => {
                self.attaches.push(Attach { at: *at, when, stack: *stack });
                self.bound_questions();
            }
            Change::Detach { at } => self.detach(*at, when),
            Change::Name { extent, name } => self.name(*extent, name.as_deref()),
            Change::Doubt { extent } => self.put_in_doubt(*extent),
            Change::Fork { .. } | Change::Exec | Change::Exit => {}
        }
        self.changed = self.changed.max(when.end);
    }

    fn map(&mut self, extent: Extent, flags: &MapFlags, stack: StackRef, when: Span) {
        if flags.fixed {
            self.end(extent, when);
        } else {
            self.displace(extent, when);
        }
        let id = self.mint();
        let offset = if flags.anonymous { extent.start } else { flags.offset };
        let traits = Traits::of_call(flags, extent.len());
        self.put(extent, id, offset, traits, stack, None, when);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a piece, named at every call")]
    fn put(
        &mut self,
        extent: Extent,
        id: IntervalId,
        offset: u64,
        traits: Traits,
        stack: StackRef,
        origin: Option<Arc<Origin>>,
        when: Span,
    ) {
        let mut piece = Piece {
            extent,
            id,
            born_begin: when.begin,
            born_width: 0,
            traits,
            offset,
            stack,
            origin,
        };
        piece.set_born(when);
        self.pieces.insert(piece);
    }

    /// Ends what is live in `extent`.
    pub(crate) fn end(&mut self, extent: Extent, died: Span) -> Vec<Piece> {
        let mut removed = Vec::new();
        self.pieces.cut(extent, &mut removed);
        for piece in &removed {
            self.touches.retire(piece.extent);
            self.bury(piece.clone(), died);
        }
        removed
    }

    fn bury(&mut self, piece: Piece, died: Span) {
        if self.dead.len() >= DEAD
            && let Some(oldest) = self.dead.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.died.end);
        }
        self.dead.push_back(Dead { piece, died });
    }

    /// A call without `MAP_FIXED` returned `extent`: whatever the ledger has there ended before, by a call whose
    /// record comes later, unless a list of mappings showed this very mapping first.
    fn displace(&mut self, extent: Extent, when: Span) {
        let removed = self.end(extent, when);
        for piece in removed {
            let listed = piece.traits.has(Traits::UNSEEN) && piece.born().end >= when.begin;
            if !listed {
                self.displaced.push(Displaced { extent: piece.extent, when });
            }
        }
        self.bound_questions();
    }

    fn unmap(&mut self, extent: Extent, when: Span) {
        // What a newer mapping displaced while this call was in flight is what this call ended.
        let mut rest = vec![extent];
        for d in std::mem::take(&mut self.displaced) {
            if d.when.overlaps(when) && d.extent.overlaps(extent) {
                rest = rest.iter().flat_map(|r| outside(*r, d.extent)).collect();
                let left = outside(d.extent, extent);
                self.displaced.extend(left.map(|extent| Displaced { extent, ..d }));
            } else {
                self.displaced.push(d);
            }
        }
        for range in rest {
            // Born while this call ran, and nothing says what was there when it began: either order is possible.
            let racing: Vec<Extent> = self
                .pieces
                .overlapping(range)
                .filter(|p| p.born().end >= when.begin)
                .map(|p| p.extent.intersect(range))
                .collect();
            let mut at = range.start;
            for race in racing {
                self.end(Extent { start: at, end: race.start }, when);
                self.put_in_doubt(race);
                at = race.end;
            }
            self.end(Extent { start: at, end: range.end.max(at) }, when);
        }
    }

    fn remap(
        &mut self,
        from: Extent,
        to: Extent,
        keep: bool,
        fixed: bool,
        stack: StackRef,
        when: Span,
    ) {
        if from.start == to.start && !keep {
            if to.end < from.end {
                self.end(Extent { start: to.end, end: from.end }, when);
            } else if to.end > from.end {
                let last = self.pieces.find(from.end.saturating_sub(1)).cloned();
                self.displace(Extent { start: from.end, end: to.end }, when);
                self.extend(last, from.end, Extent { start: from.end, end: to.end }, stack, when);
            }
            return;
        }
        // Old size 0 makes a second mapping of what is at the old address.
        let source = if from.is_empty() { Extent::new(from.start, to.len()) } else { from };
        let moving: Vec<Piece> = self.pieces.overlapping(source).map(|p| p.part(source)).collect();
        if fixed {
            self.end(to, when);
        } else {
            self.displace(to, when);
        }
        if !keep && !from.is_empty() {
            let mut removed = Vec::new();
            self.pieces.cut(from, &mut removed);
            for piece in removed {
                self.bury(piece, when);
            }
            self.touches.moved(Extent::new(from.start, from.len().min(to.len())), to.start);
            self.touches.retire(from);
        }
        let mut at = to.start;
        let mut last = None;
        for piece in moving {
            let start = to.start + (piece.extent.start - source.start);
            let extent = Extent::new(start, piece.extent.len()).intersect(to);
            if extent.is_empty() {
                break;
            }
            if extent.start > at {
                // The ledger did not know what was moved here.
                self.extend(None, at, Extent { start: at, end: extent.start }, stack, when);
            }
            at = extent.end;
            let mut placed = Piece { extent, ..piece };
            placed.set_born(when);
            self.pieces.insert(placed.clone());
            last = Some(placed);
        }
        if at < to.end {
            self.extend(last, at, Extent { start: at, end: to.end }, stack, when);
        }
    }

    /// New addresses for an interval that grew; a new interval when the ledger does not know which one grew.
    fn extend(
        &mut self,
        last: Option<Piece>,
        behind: u64,
        extent: Extent,
        stack: StackRef,
        when: Span,
    ) {
        match last {
            Some(last) => {
                let offset = last.offset + (behind - last.extent.start);
                let traits = Traits(last.traits.0 & !Traits::PREDATES);
                self.put(extent, last.id, offset, traits, last.stack, last.origin, when);
            }
            None => {
                let id = self.mint();
                let traits = Traits(Traits::UNSEEN);
                self.put(extent, id, extent.start, traits, stack, None, when);
            }
        }
    }

    fn brk(&mut self, old: u64, new: u64, stack: StackRef, when: Span) {
        let page = |end: u64| end.saturating_add(PAGE - 1) & !(PAGE - 1);
        let (old, new) = (page(old), page(new));
        if new > old {
            let extent = Extent { start: old, end: new };
            self.displace(extent, when);
            let id = self.mint();
            let traits = Traits(Traits::BRK | Traits::ANONYMOUS);
            self.put(extent, id, old, traits, stack, None, when);
        } else {
            self.unmap(Extent { start: new, end: old }, when);
        }
    }

    fn detach(&mut self, at: u64, when: Span) {
        self.attaches.retain(|a| a.at != at);
        let Some(first) = self.pieces.find(at).cloned() else { return };
        // The kernel removes every part of that attachment that lies where the attachment put it.
        let parts: Vec<Extent> = self
            .pieces
            .overlapping(Extent { start: at, end: u64::MAX })
            .take_while(|p| p.extent.start.saturating_sub(at) <= 1 << 47)
            .filter(|p| p.id == first.id && p.extent.start - at == p.offset - first.offset)
            .map(|p| p.extent)
            .collect();
        for part in parts {
            self.end(part, when);
        }
    }

    fn name(&mut self, extent: Extent, name: Option<&str>) {
        let path: Option<Arc<str>> = name.map(|n| format!("[anon:{n}]").into());
        let origin =
            path.map(|path| Arc::new(Origin { backing: Backing::Anonymous, path: Some(path) }));
        self.pieces.update(extent, |piece| match &piece.origin {
            Some(o) if o.backing != Backing::Anonymous => {}
            _ => piece.origin.clone_from(&origin),
        });
    }

    pub(crate) fn put_in_doubt(&mut self, extent: Extent) {
        self.doubt = true;
        self.pieces.update(extent, |piece| piece.traits.0 |= Traits::DOUBTED);
    }

    /// Events of this space may be missing up to `end`.
    pub(crate) fn lose(&mut self, end: MonoTime) {
        self.loss = self.loss.max(end);
        self.unread = true;
        self.displaced.clear();
    }

    fn bound_questions(&mut self) {
        if self.displaced.len() > QUESTIONS || self.attaches.len() > QUESTIONS {
            self.displaced.clear();
            self.attaches.truncate(QUESTIONS);
            self.unread = true;
        }
    }

    /// Forgets deaths before `t`.
    pub(crate) fn forget_before(&mut self, t: MonoTime) {
        while self.dead.front().is_some_and(|d| d.died.end < t) {
            self.dead.pop_front();
        }
        self.forgotten = self.forgotten.max(t);
        self.displaced.retain(|d| d.when.end >= t);
    }
}

/// The parts of `range` outside `hole`.
fn outside(range: Extent, hole: Extent) -> impl Iterator<Item = Extent> {
    let left = Extent { start: range.start, end: range.end.min(hole.start) };
    let right = Extent { start: range.start.max(hole.end), end: range.end };
    [left, right].into_iter().filter(|e| !e.is_empty())
}
