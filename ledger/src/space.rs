//! One address space: its live pieces, its recent dead, and what is in doubt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::activity::Heat;
use crate::attach::Attach;
use crate::evidence::{Backing, Counters, Fault, StackRef};
use crate::identity::{
    Extent, Generation, IntervalId, ObjectKey, PAGE, SpaceId, StackId, StartTicks, Tgid,
};
use crate::piece_map::PieceMap;
use crate::pieces::{Piece, Traits};
use crate::placement::Placement;
use crate::scan::Scan;
use crate::time::{MonoTime, Span};
use crate::touch::{Sample, Touches};

/// Dead pieces kept per space at most. What falls out is answered as unknown, not as unowned.
const DEAD: usize = 4096;
/// Pieces of one space at most; more means that the list of mappings says what there is, which the kernel bounds.
pub(crate) const PIECES: usize = 1 << 21;
/// Open questions kept per space at most; more means that the whole space is read again.
const QUESTIONS: usize = 1024;

/// A piece that is no longer live.
#[derive(Clone, Debug)]
pub(crate) struct Dead {
    pub(crate) piece: Piece,
    pub(crate) died: Span,
}

/// What a call did to a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) extent: Extent,
    pub(crate) when: Span,
}

/// A range where anything may have been, from the begin of a call until a list of mappings was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) extent: Extent,
    pub(crate) when: Span,
    /// The end of time while it is open.
    pub(crate) until: MonoTime,
}

impl Open {
    /// Whether no list of mappings was read since.
    pub(crate) fn open(&self) -> bool {
        self.until == MonoTime(u64::MAX)
    }
}

/// What `mremap` did: what was in `from` lies in `to` now, or grew into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) from: Extent,
    pub(crate) to: Extent,
    pub(crate) when: Span,
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
    /// Where the kernel put stack and code, as an earlier run of the agent saw it.
    pub(crate) layout: Option<(u64, u64)>,
    /// The newest scan.
    pub scan: Option<Arc<Scan>>,
    /// When a later reading proved that the newest scan still holds: totals unmoved, no event since, of it and, unless it is
    /// the oldest, of its relatives ([`crate::ledger::Ledger::doubts`]).
    pub confirmed: Option<MonoTime>,
    pub(crate) pieces: PieceMap,
    pub(crate) touches: Touches,
    /// What monitors found in it.
    pub(crate) heat: Heat,
    /// On which nodes its pages lie, and its threads ran.
    pub(crate) placement: Placement,
    pub(crate) next: u64,
    pub(crate) dead: VecDeque<Dead>,
    /// Deaths before this instant may have been forgotten.
    pub(crate) forgotten: MonoTime,
    /// New mappings lay there where the ledger had old ones: calls that ended the old ones are in flight.
    pub(crate) displaced: Vec<Mark>,
    /// Unmapped where the ledger knew of nothing, or perhaps unmapped: an older list of mappings may still show what
    /// was there, and a mapping whose call overlaps in time may be gone.
    pub(crate) cleared: VecDeque<Mark>,
    pub(crate) open: VecDeque<Open>,
    pub(crate) moves: VecDeque<Moved>,
    pub(crate) attaches: Vec<Attach>,
    /// End of the newest event.
    pub(crate) changed: MonoTime,
    /// When its totals were last found changed.
    pub(crate) stirred: MonoTime,
    /// Before this instant events may be missing: what was born before is inferred.
    pub(crate) loss: MonoTime,
    /// The list of mappings must be read before anything is claimed.
    pub(crate) unread: bool,
    /// A list of mappings was taken in, here or before the fork.
    pub(crate) listed: bool,
    /// Its mappings are told without their ends: without lists, what was told says nothing of what is there.
    pub(crate) endless: bool,
    /// Some range is open or in doubt.
    pub(crate) doubt: bool,
    /// End of the newest call that left a question.
    pub(crate) doubted: MonoTime,
    /// End of the newest scan that settled doubts. A call that ran then may have placed what the list showed.
    pub(crate) resolved: MonoTime,
    /// Copies that fork made, and when each was made at the latest.
    pub(crate) forks: VecDeque<(SpaceId, MonoTime)>,
    /// Time of the last list of mappings that was taken in: not older than this.
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
            layout: None,
            scan: None,
            confirmed: None,
            pieces: PieceMap::default(),
            touches: Touches::default(),
            heat: Heat::default(),
            placement: Placement::default(),
            next: 0,
            dead: VecDeque::new(),
            forgotten: MonoTime(0),
            displaced: Vec::new(),
            cleared: VecDeque::new(),
            open: VecDeque::new(),
            moves: VecDeque::new(),
            attaches: Vec::new(),
            changed: MonoTime(0),
            stirred: MonoTime(0),
            loss: MonoTime(0),
            unread: true,
            listed: false,
            endless: false,
            doubt: false,
            doubted: MonoTime(0),
            resolved: MonoTime(0),
            forks: VecDeque::new(),
            read: born,
            objects: Arc::default(),
            total: None,
            faults: SampledFaults::default(),
            first_faults: None,
        }
    }

    /// It was not there before `at`.
    pub(crate) fn began(&mut self, at: MonoTime) {
        self.born = self.born.max(at);
        self.read = self.read.max(at);
    }

    /// A copy as fork makes it: same pieces, same intervals, nothing scanned.
    ///
    /// What changed while fork ran may be in the copy or not: there it is open.
    pub(crate) fn fork(&self, id: SpaceId, tgid: Tgid, start: StartTicks, when: Span) -> Self {
        let mut copy = Self {
            id,
            tgids: BTreeSet::from([tgid]),
            parent: Some(self.id),
            starts: BTreeMap::from([(tgid, start)]),
            born: when.end,
            scan: None,
            confirmed: None,
            pieces: self.pieces.clone(),
            touches: Touches::default(),
            heat: Heat::default(),
            placement: Placement::default(),
            next: 0,
            dead: VecDeque::new(),
            forgotten: when.begin,
            displaced: Vec::new(),
            cleared: VecDeque::new(),
            open: self.open.iter().filter(|o| o.open()).copied().collect(),
            moves: self.moves.clone(),
            forks: VecDeque::new(),
            attaches: self.attaches.clone(),
            changed: when.end,
            stirred: MonoTime(0),
            objects: Arc::clone(&self.objects),
            total: None,
            faults: SampledFaults::default(),
            first_faults: Some(0),
            ..*self
        };
        if self.changed >= when.begin {
            let born = self.pieces.iter().filter(|p| p.born.end >= when.begin).map(|p| p.extent);
            let died = self.dead.iter().rev().take_while(|d| d.died.end >= when.begin);
            let cleared = self.cleared.iter().filter(|c| c.when.end >= when.begin);
            let open: Vec<Extent> =
                born.chain(died.map(|d| d.piece.extent)).chain(cleared.map(|c| c.extent)).collect();
            for extent in open {
                copy.open(extent, when);
            }
            copy.bound();
        }
        copy
    }

    /// Live intervals and extents, in address order.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> + '_ {
        self.pieces.iter()
    }

    /// Stacks that answers about this space may name.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = StackId> + '_ {
        let scanned = self.scan.iter().flat_map(|scan| scan.pieces.iter());
        let pieces = self.pieces.iter().chain(scanned).map(|piece| piece.stack);
        let dead = self.dead.iter().map(|dead| dead.piece.stack);
        let attaches = self.attaches.iter().flat_map(Attach::stacks);
        pieces.chain(dead).chain(attaches).chain(self.touches.stacks()).filter_map(|by| match by {
            StackRef::Known(id) => Some(id),
            StackRef::Lost | StackRef::None => None,
        })
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

    /// Whether nothing was lost since its newest scan.
    pub(crate) fn lossless_since_scan(&self) -> bool {
        self.scan.as_ref().is_some_and(|scan| self.loss <= scan.when.begin)
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

    /// What monitors found in it.
    #[must_use]
    pub fn heat(&self) -> &Heat {
        &self.heat
    }

    /// On which nodes its pages lie, and its threads ran.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
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
        if self.total.is_some_and(|(_, before)| before != counters) {
            self.stirred = when.end;
        }
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

    /// Whether no loss lies since `piece` was born, and no doubt.
    #[must_use]
    pub fn proven(&self, piece: &Piece) -> bool {
        piece.born.begin >= self.loss && piece.traits.0 & (Traits::DOUBTED | Traits::INFERRED) == 0
    }

    pub(crate) fn mint(&mut self) -> IntervalId {
        self.next += 1;
        IntervalId { space: self.id, generation: Generation(self.next) }
    }

    /// Ends what is live in `extent`. The parts that were.
    pub(crate) fn end(&mut self, extent: Extent, died: Span) -> Vec<Piece> {
        // An attachment that was not listed yet is no longer what is there.
        self.forget_attached(|at| extent.contains(at));
        self.attaches.iter_mut().for_each(|a| a.end(extent));
        let mut removed = Vec::new();
        self.pieces.cut(extent, &mut removed);
        for piece in &removed {
            self.touches.retire(piece.extent);
            if self.dead.len() >= DEAD
                && let Some(oldest) = self.dead.pop_front()
            {
                self.forgotten = self.forgotten.max(oldest.died.end);
            }
            let mut piece = piece.clone();
            if died.begin <= self.resolved {
                piece.traits.0 |= Traits::DOUBTED;
            }
            self.dead.push_back(Dead { piece, died });
        }
        removed
    }

    /// Nothing is in `extent` any more, whether the ledger knew what was there or not.
    pub(crate) fn clear(&mut self, extent: Extent, when: Span) {
        let removed = self.end(extent, when);
        let mut at = extent.start;
        let holes =
            removed.iter().map(|p| p.extent).chain([Extent { start: extent.end, end: extent.end }]);
        for known in holes {
            if at < known.start {
                self.cleared
                    .push_back(Mark { extent: Extent { start: at, end: known.start }, when });
            }
            at = known.end;
        }
    }

    /// It is not known what is in `extent`, if anything, until the next list of mappings.
    pub(crate) fn open(&mut self, extent: Extent, when: Span) {
        if extent.is_empty() {
            return;
        }
        let removed = self.end(extent, when);
        // What was made by a call that overlaps this one in time may never have been there.
        let concurrent = removed.iter().filter(|p| p.born.end >= when.begin);
        let begin = concurrent.map(|p| p.born.begin).fold(when.begin, Ord::min);
        let when = Span { begin, ..when };
        self.open.push_back(Open { extent, when, until: MonoTime(u64::MAX) });
        self.question(when);
    }

    /// What is in `extent` may be gone, or part of it; nothing else can be there. Where the ledger knows of nothing,
    /// it is open.
    pub(crate) fn put_in_doubt(&mut self, extent: Extent, when: Span) {
        for hole in self.pieces.holes(extent) {
            self.open(hole, when);
        }
        self.pieces.update(extent, |piece| piece.traits.0 |= Traits::DOUBTED);
        self.cleared.push_back(Mark { extent, when });
        self.question(when);
    }

    fn question(&mut self, when: Span) {
        self.doubt = true;
        self.doubted = self.doubted.max(when.end);
    }

    /// Events of this space may be missing up to `end`.
    pub(crate) fn lose(&mut self, end: MonoTime) {
        self.loss = self.loss.max(end);
        self.unread = true;
        self.displaced.clear();
    }

    /// Keeps every list within its bound. What falls out is answered as unknown until the mappings are read again.
    pub(crate) fn bound(&mut self) {
        if self.pieces.len() > PIECES {
            self.pieces = PieceMap::default();
            self.lose(self.changed);
        }
        if self.displaced.len() > QUESTIONS || self.attaches.len() > QUESTIONS {
            self.displaced.clear();
            self.bound_attached(QUESTIONS - 1);
            self.unread = true;
        }
        while self.cleared.len() > QUESTIONS
            && let Some(oldest) = self.cleared.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.when.end);
        }
        while self.moves.len() > QUESTIONS {
            self.moves.pop_front();
        }
        while self.forks.len() > QUESTIONS {
            self.forks.pop_front();
        }
        while self.open.len() > QUESTIONS
            && let Some(oldest) = self.open.pop_front()
        {
            self.unread |= oldest.open();
            self.forgotten = self.forgotten.max(oldest.until.min(self.changed));
        }
    }

    /// Forgets deaths before `t`.
    pub(crate) fn forget_before(&mut self, t: MonoTime) {
        while self.dead.front().is_some_and(|d| d.died.end < t) {
            self.dead.pop_front();
        }
        self.forgotten = self.forgotten.max(t);
        self.displaced.retain(|d| d.when.end >= t);
        self.cleared.retain(|c| c.when.end >= t);
        self.open.retain(|o| o.until >= t);
        self.moves.retain(|m| m.when.end >= t);
        self.forks.retain(|(_, made)| *made >= t);
    }
}
