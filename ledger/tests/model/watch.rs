//! A kernel that is watched by a ledger, and what makes an answer wrong.

use std::collections::{BTreeMap, BTreeSet};

use memprov_ledger::evidence::{Evidence, StackRef, Total};
use memprov_ledger::identity::{IntervalId, StartTicks, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pieces::{Piece, Traits};
use memprov_ledger::resolution::Resolution;
use memprov_ledger::space::Space;
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;

use crate::call::{Call, address};
use crate::kernel::{KERNEL, Kernel};

/// Every page in the sample.
pub(crate) const ALL: Sample = Sample { seed: 7, probability: 1.0 };

/// A resolution in terms of the kernel: intervals by the call that made them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    Unknown,
    Ambiguous(BTreeSet<u32>),
    /// `proven`: as exact.
    Owned {
        made: u32,
        proven: bool,
    },
    Unowned,
}

impl Answer {
    /// Says more than `other`, or something else.
    pub(crate) fn stronger_than(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unknown, _) => false,
            (Self::Owned { made, proven }, Self::Owned { made: m, proven: p }) => {
                made != m || *proven && !p
            }
            _ => self != other,
        }
    }
}

/// A ledger, and the names of the intervals that it minted.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) ledger: Ledger,
    names: BTreeMap<IntervalId, u32>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self::since(MonoTime(500_000))
    }

    /// A watch that sees events from `since` on.
    pub(crate) fn since(since: MonoTime) -> Self {
        Self { ledger: Ledger::new(since, ALL), names: BTreeMap::new() }
    }

    pub(crate) fn apply(&mut self, evidence: &Evidence) {
        self.ledger.apply(evidence);
        for piece in self.ledger.spaces().flat_map(Space::pieces) {
            let name = name(piece);
            let known = *self.names.entry(piece.id).or_insert(name);
            assert_eq!(known, name, "an interval has one call: {piece:?} after {evidence:?}");
        }
    }

    /// Whose a page was, as the ledger says.
    pub(crate) fn ask(&self, tgid: u32, page: u64, when: Span) -> Answer {
        let name = |id: &IntervalId| self.names.get(id).copied().unwrap_or(KERNEL);
        match self.ledger.owner_of(Tgid(tgid), address(page) + 5, when) {
            Resolution::Owned(id) => {
                let space = self.ledger.space(Tgid(tgid));
                let live = space.and_then(|s| {
                    let holds = |p: &&Piece| p.id == id && p.extent.contains(address(page));
                    s.pieces().find(holds).map(|p| s.proven(p))
                });
                let proven = live.unwrap_or(space.is_none_or(Space::lossless));
                Answer::Owned { made: name(&id), proven }
            }
            Resolution::Ambiguous { candidates, .. } => {
                assert!(candidates.len() > 1, "one candidate is an owner");
                Answer::Ambiguous(candidates.iter().map(name).collect())
            }
            Resolution::Unowned => Answer::Unowned,
            Resolution::Unknown(_) => Answer::Unknown,
        }
    }

    /// Every live piece by page; pieces never overlap.
    pub(crate) fn pieces(&self, tgid: u32) -> BTreeMap<u64, u32> {
        let mut pages = BTreeMap::new();
        for piece in self.ledger.space(Tgid(tgid)).into_iter().flat_map(Space::pieces) {
            let mut at = piece.extent.start;
            while at < piece.extent.end {
                let old = pages.insert((at - address(0)) / 4096, name(piece));
                assert_eq!(old, None, "two pieces at {at:x}");
                at += 4096;
            }
        }
        pages
    }
}

fn name(piece: &Piece) -> u32 {
    match piece.stack {
        StackRef::Known(id) => id.0,
        StackRef::Lost | StackRef::None => {
            assert!(piece.traits.has(Traits::UNSEEN), "every call has a stack");
            KERNEL
        }
    }
}

/// What a page was in a span, step by step: who had it at some instant of the span.
pub(crate) fn truth(kernel: &Kernel, mm: usize, page: u64, when: Span) -> BTreeSet<Option<u32>> {
    let mut by_instant = BTreeMap::new();
    for step in kernel.mms[mm].past.iter().filter(|s| s.page == page) {
        by_instant.insert(step.at, step.made);
    }
    let before = by_instant.range(..=when.begin.0).next_back().and_then(|(_, made)| *made);
    let during = by_instant.range(when.begin.0 + 1..=when.end.0.max(when.begin.0 + 1));
    let during = during.filter(|(at, _)| **at <= when.end.0).map(|(_, made)| *made);
    std::iter::once(before).chain(during).collect()
}

/// Whether the page can have been `made`'s in the span, as far as entries and returns of calls tell. Of calls that
/// overlap in time only the last return tells that it was gone.
pub(crate) fn plausible(kernel: &Kernel, mm: usize, page: u64, made: u32, when: Span) -> bool {
    let steps: Vec<_> = kernel.mms[mm].past.iter().filter(|s| s.page == page).collect();
    steps.iter().enumerate().filter(|(_, s)| s.made == Some(made)).any(|(i, born)| {
        let mut others = steps[i + 1..].iter().filter(|s| s.made != Some(made)).map(|s| s.call);
        let known = others.next().map(|died| {
            let overlapping =
                |end: MonoTime, next: Span| (next.begin <= end).then_some(end.max(next.end));
            let mut end = died.end;
            for next in others {
                let Some(later) = overlapping(end, next) else { break };
                end = later;
            }
            end
        });
        born.call.begin <= when.end && known.is_none_or(|end| end >= when.begin)
    })
}

/// Why an answer is wrong, or nothing. A weak answer is never wrong; a mapping whose making nobody saw claims no call.
pub(crate) fn wrong(
    kernel: &Kernel,
    mm: usize,
    page: u64,
    when: Span,
    answer: &Answer,
) -> Option<String> {
    let truth = truth(kernel, mm, page, when);
    let owners: BTreeSet<u32> = truth.iter().filter_map(|made| *made).collect();
    let fine = match answer {
        Answer::Unknown | Answer::Owned { proven: false, .. } => true,
        Answer::Owned { made: KERNEL, .. } => true,
        Answer::Owned { made, .. } => {
            owners.iter().all(|owner| owner == made) && plausible(kernel, mm, page, *made, when)
        }
        Answer::Ambiguous(candidates) => {
            candidates.contains(&KERNEL) || owners.is_subset(candidates)
        }
        Answer::Unowned => owners.is_empty(),
    };
    (!fine).then(|| format!("page {page} in {when:?}: {answer:?}, truth {truth:?}"))
}

/// A kernel and its watcher; calls follow each other.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) kernel: Kernel,
    pub(crate) watch: Watch,
}

impl World {
    /// One process that has been scanned.
    pub(crate) fn new() -> Self {
        let mut world = Self { kernel: Kernel::new(), watch: Watch::new() };
        world.scan(1);
        world
    }

    /// Lets a call take its time: from now to 30 ns later, with its effect in the middle.
    pub(crate) fn run(&mut self, tgid: u32, call: Call) -> Option<Evidence> {
        let begin = self.kernel.now + 10;
        self.kernel.now = begin + 10;
        let when = Span { begin: MonoTime(begin), end: MonoTime(begin + 20) };
        let evidence = self.kernel.execute(tgid, call, when);
        self.kernel.now = begin + 30;
        evidence
    }

    /// A call that is seen.
    pub(crate) fn call(&mut self, tgid: u32, call: Call) {
        if let Some(evidence) = self.run(tgid, call) {
            self.watch.apply(&evidence);
        }
    }

    /// A scan at rest.
    pub(crate) fn scan(&mut self, tgid: u32) {
        let begin = self.kernel.now + 10;
        let when = Span { begin: MonoTime(begin), end: MonoTime(begin + 20) };
        if let Some(seen) = self.kernel.scan(tgid, when) {
            self.watch.apply(&Evidence::Residency(Box::new(seen)));
        }
        self.kernel.now = begin + 30;
    }

    /// A reading of the totals alone.
    pub(crate) fn total(&mut self, tgid: u32) {
        let start = StartTicks(self.kernel.live[&tgid].start);
        let (when, counters) = (self.now(), self.kernel.counters(tgid));
        self.watch.apply(&Evidence::Total(Total { when, tgid: Tgid(tgid), start, counters }));
        self.kernel.now += 10;
    }

    pub(crate) fn scan_all(&mut self) {
        let live: Vec<u32> = self.kernel.live.keys().copied().collect();
        for tgid in live {
            self.scan(tgid);
        }
    }

    pub(crate) fn now(&self) -> Span {
        Span::at(MonoTime(self.kernel.now))
    }

    /// Whether the ledger wants the mappings of a process to be read.
    pub(crate) fn asks(&self, tgid: u32) -> bool {
        self.watch.ledger.space(Tgid(tgid)).is_none_or(Space::questions)
    }

    /// No answer about any page at this time is wrong.
    pub(crate) fn check_no_wrong_answer(&self, tgid: u32, when: Span) {
        let Some(process) = self.kernel.live.get(&tgid) else { return };
        for page in 0..64 {
            let answer = self.watch.ask(tgid, page, when);
            let wrong = wrong(&self.kernel, process.mm, page, when, &answer);
            assert_eq!(wrong, None, "process {tgid}");
        }
    }

    /// Pieces and answers are those of the kernel. With `site_lost` a mapping's call may have been forgotten.
    pub(crate) fn check_exact(&self, tgid: u32, site_lost: bool) {
        let truth = &self.kernel.mm(tgid).cells;
        let pieces = self.watch.pieces(tgid);
        for page in 0..64 {
            let answer = self.watch.ask(tgid, page, self.now());
            let piece = pieces.get(&page).copied();
            match truth.get(&page) {
                None => {
                    assert_eq!((piece, answer), (None, Answer::Unowned), "{tgid}, page {page}");
                }
                Some(cell) => {
                    let Answer::Owned { made, .. } = answer else {
                        panic!("{tgid}, page {page}: {answer:?}, truth {cell:?}");
                    };
                    let lost = site_lost && made == KERNEL;
                    assert!(made == cell.made || lost, "{tgid}, page {page}: {made}, {cell:?}");
                    assert_eq!(piece, Some(made));
                }
            }
        }
    }
}
