//! Whose was an address at a time: the answer, or why there is none.

use crate::identity::{IntervalId, SpaceId, Tgid};
use crate::ledger::Ledger;
use crate::pieces::{Piece, Traits};
use crate::space::{Open, Space};
use crate::time::Span;

/// Whose an address was. The ledger never picks among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// This interval's, for all of the span that it can have been anybody's.
    Owned(IntervalId),
    /// One of these, in the order of their birth.
    Ambiguous {
        /// Intervals that were live for a part of the span.
        candidates: Vec<IntervalId>,
        /// Why they cannot be told apart.
        cause: Cause,
    },
    /// Nothing was mapped there.
    Unowned,
    /// Not known.
    Unknown(Cause),
}

/// Why an answer is weak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The address changed hands within the span.
    GenerationRace,
    /// A call that failed or raced left it open what is there.
    Doubt,
    /// Lifecycle events were lost, and the mappings were not read again yet.
    LifecycleGap,
    /// Nobody spoke of that process, or its mappings were not read yet.
    NeverSeen,
    /// The span lies before what the ledger remembers.
    Forgotten,
}

impl Ledger {
    /// Whose `addr` was in process `tgid` at some instant within `when`.
    #[must_use]
    pub fn owner_of(&self, tgid: Tgid, addr: u64, when: Span) -> Resolution {
        let live = self.space(tgid).filter(|s| s.born <= when.end);
        let mut answer = live.map(|space| owner_in(space, addr, when));
        if live.is_none_or(|space| space.born > when.begin) {
            // The span reaches back into lives before exec or pid reuse.
            let lives =
                self.ended.iter().rev().filter(|e| {
                    e.tgid == tgid && e.space.born <= when.end && e.died.end >= when.begin
                });
            for life in lives {
                let before = owner_in(&life.space, addr, when);
                answer = Some(match answer {
                    Some(after) => merge(before, after),
                    None => before,
                });
            }
        }
        answer.unwrap_or(Resolution::Unknown(Cause::NeverSeen))
    }

    /// The piece of interval `id`, which `addr` was answered to be of in process `tgid`, and the space that it was found
    /// in. `None` when it has been forgotten since.
    #[must_use]
    pub fn piece_of(&self, tgid: Tgid, addr: u64, id: IntervalId) -> Option<(SpaceId, &Piece)> {
        let ended = self.ended.iter().rev().filter(|e| e.tgid == tgid).map(|e| &e.space);
        self.space(tgid).into_iter().chain(ended).find_map(|space| {
            let dead = space.dead.iter().rev().map(|dead| &dead.piece);
            let mut pieces = space.pieces.find(addr).into_iter().chain(dead);
            let piece = pieces.find(|piece| piece.id == id && piece.extent.contains(addr))?;
            Some((space.id, piece))
        })
    }
}

fn owner_in(space: &Space, addr: u64, when: Span) -> Resolution {
    let lost = when.begin < space.loss;
    if space.unread {
        let lost = lost || space.loss > space.born;
        return Resolution::Unknown(if lost { Cause::LifecycleGap } else { Cause::NeverSeen });
    }
    if when.begin < space.forgotten {
        return Resolution::Unknown(if lost { Cause::LifecycleGap } else { Cause::Forgotten });
    }
    let holds = |p: &&Piece| p.extent.contains(addr) && p.born.begin <= when.end;
    let live = space.pieces.find(addr).filter(holds);
    let open =
        |o: &Open| o.extent.contains(addr) && o.when.begin <= when.end && o.until >= when.begin;
    let newer = live.is_some_and(|p| p.born.end <= when.begin);
    if !newer && space.open.iter().any(open) {
        return Resolution::Unknown(Cause::Doubt);
    }
    // Deaths are kept in order of their end.
    let dead = space
        .dead
        .iter()
        .rev()
        .take_while(|d| d.died.end >= when.begin)
        .map(|d| &d.piece)
        .filter(holds);
    let alone = |piece: &Piece| match piece.traits.has(Traits::DOUBTED) {
        true => Resolution::Unknown(Cause::Doubt),
        false => Resolution::Owned(piece.id),
    };
    let mut candidates: Vec<&Piece> = dead.collect();
    if candidates.is_empty() {
        return live.map_or(Resolution::Unowned, alone);
    }
    candidates.extend(live);
    candidates.sort_by_key(|p| p.id);
    candidates.dedup_by_key(|p| p.id);
    match candidates.as_slice() {
        [one] => alone(one),
        several => Resolution::Ambiguous {
            candidates: several.iter().map(|p| p.id).collect(),
            cause: Cause::GenerationRace,
        },
    }
}

/// The answer when either of two lives of a process can be meant.
fn merge(before: Resolution, after: Resolution) -> Resolution {
    let ids = |r: &Resolution| match r {
        Resolution::Owned(id) => vec![*id],
        Resolution::Ambiguous { candidates, .. } => candidates.clone(),
        Resolution::Unowned | Resolution::Unknown(_) => Vec::new(),
    };
    match (&before, &after) {
        (Resolution::Unknown(_), _) => before,
        (_, Resolution::Unknown(_)) => after,
        _ => {
            let mut candidates = ids(&before);
            candidates.extend(ids(&after));
            match candidates.as_slice() {
                [] => Resolution::Unowned,
                [one] => Resolution::Owned(*one),
                _ => Resolution::Ambiguous { candidates, cause: Cause::GenerationRace },
            }
        }
    }
}
