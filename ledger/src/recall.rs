//! What an earlier run of the agent knew of an address space that still lives.
//!
//! Intervals and spaces keep their identity. What happened between the runs nobody saw: as after a loss of events, all
//! that is remembered is inferred, and the next list of mappings ends what it contradicts. Records of first touches
//! and pages are not remembered: pages move without an event.

use std::sync::Arc;

use crate::evidence::{Backing, StackRef};
use crate::identity::{Extent, Generation, IntervalId, SpaceId, StartTicks, Tgid};
use crate::ledger::Ledger;
use crate::pieces::{Origin, Piece, Traits};
use crate::space::Space;
use crate::time::{MonoTime, Span};

/// An address space as it was remembered.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Recall {
    /// When it was recalled: before the first event that the new run can see.
    pub when: Span,
    /// Its identity.
    pub space: SpaceId,
    /// The first space of its family.
    pub family: SpaceId,
    /// The space it was forked from.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub parent: Option<SpaceId>,
    /// The newest generation that was minted in it.
    pub newest: Generation,
    /// Processes that live in it, at least one, and when each began.
    pub tgids: Vec<(Tgid, StartTicks)>,
    /// Where the kernel put stack and code: another layout is another program.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::identity::hex", default, skip_serializing_if = "Option::is_none")
    )]
    pub layout: Option<(u64, u64)>,
    /// What was mapped, in address order.
    pub pieces: Arc<[Remembered]>,
}

/// A piece as it was remembered. What was only ever found in a list of mappings is not: a list tells it again.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Remembered {
    /// Its addresses.
    pub extent: Extent,
    /// The interval it is a part of.
    pub id: IntervalId,
    /// When it became live.
    pub born: Span,
    /// How it came to be.
    pub traits: Traits,
    /// As [`Piece::offset`].
    #[cfg_attr(feature = "serde", serde(with = "crate::identity::hex"))]
    pub offset: u64,
    /// Who asked for it.
    pub stack: StackRef,
    /// What backed it, once known.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub backing: Option<Backing>,
}

impl Remembered {
    fn of(piece: &Piece) -> Option<Self> {
        let forgettable = Traits::UNSEEN | Traits::DOUBTED;
        (piece.traits.0 & forgettable == 0).then(|| Self {
            extent: piece.extent,
            id: piece.id,
            born: piece.born,
            traits: piece.traits,
            offset: piece.offset,
            stack: piece.stack,
            backing: piece.origin.as_ref().map(|origin| origin.backing),
        })
    }

    fn piece(&self) -> Piece {
        let origin = |backing| Arc::new(Origin { backing, path: None });
        Piece {
            extent: self.extent,
            id: self.id,
            born: self.born,
            traits: Traits(self.traits.0 | Traits::PREDATES),
            offset: self.offset,
            stack: self.stack,
            origin: self.backing.map(origin),
        }
    }
}

impl Ledger {
    /// What a later run can be told of the spaces that live now.
    pub fn remembered(&self, when: Span) -> impl Iterator<Item = Recall> + '_ {
        self.spaces().filter_map(move |space| space.remembered(when))
    }

    /// Takes in what an earlier run knew. What this run already knows of these processes is newer, and stays.
    pub(crate) fn recall(&mut self, known: &Recall) {
        let Some((first, _)) = known.tgids.first() else { return };
        let met = known.tgids.iter().any(|(tgid, _)| self.space(*tgid).is_some());
        if met || self.spaces().any(|space| space.id == known.space) {
            return;
        }
        let ids = [Some(known.space), Some(known.family), known.parent];
        self.minted(ids.into_iter().flatten());
        let mut space = Space::new(known.space, *first, MonoTime(0));
        space.family = known.family;
        space.parent = known.parent;
        space.tgids = known.tgids.iter().map(|(tgid, _)| *tgid).collect();
        space.starts = known.tgids.iter().copied().collect();
        space.layout = known.layout;
        space.remember(&known.pieces, known.newest, known.when.end.max(self.watching_since()));
        self.house(space);
    }
}

impl Space {
    fn remembered(&self, when: Span) -> Option<Recall> {
        let tgids: Vec<_> = self.starts.iter().map(|(tgid, start)| (*tgid, *start)).collect();
        let pieces: Arc<[Remembered]> = self.pieces().filter_map(Remembered::of).collect();
        let layout = self.scan.as_ref().and_then(|scan| scan.layout).or(self.layout);
        // Whether processes still share a space that was never scanned cannot be told later: one may exec meanwhile.
        let untold = layout.is_none() && tgids.len() > 1;
        // Without pieces, too: who lives in one space, and who is related, no list tells.
        (!tgids.is_empty() && !untold).then_some(Recall {
            when,
            space: self.id,
            family: self.family,
            parent: self.parent,
            newest: Generation(self.next),
            tgids,
            layout,
            pieces,
        })
    }

    /// Knows `pieces` again; events may be missing up to `seen_since`.
    fn remember(&mut self, pieces: &[Remembered], newest: Generation, seen_since: MonoTime) {
        let mut at = 0;
        for known in pieces.iter().filter(|known| !known.extent.is_empty()) {
            if known.extent.start >= at {
                at = known.extent.end;
                self.pieces.insert(known.piece());
            }
        }
        self.next = newest.0;
        self.lose(seen_since);
        self.bound();
    }
}
