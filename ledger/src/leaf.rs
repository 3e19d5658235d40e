//! A few neighbouring pieces in one block of memory.
//!
//! What a change of many pieces costs is lines of memory that are in no cache, not comparisons. So a piece stays at the
//! place where it was put, and only one-byte numbers of places are kept in order of address: a change touches the
//! lines of its own pieces, not those of half the block. No header lies between a leaf and its block. Copies share the
//! block until one of them changes.

use std::array;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use crate::evidence::StackRef;
use crate::identity::{Extent, Generation, IntervalId, SpaceId};
use crate::pieces::{Piece, Traits};
use crate::time::{MonoTime, Span};

/// Pieces of a leaf at most, between changes.
pub(crate) const LEAF: usize = 45;
/// Places of a block at most: a change makes two pieces more, when it is inside of one. With them, a leaf is 64 bytes.
const PLACES: usize = LEAF + 2;
/// Places of a block that are free, at most, once a change is done.
const FREE: usize = 3;

/// What lies at a free place.
const BLANK: Piece = Piece {
    extent: Extent { start: 0, end: 0 },
    id: IntervalId { space: SpaceId(0), generation: Generation(0) },
    born: Span { begin: MonoTime(0), end: MonoTime(0) },
    traits: Traits(0),
    offset: 0,
    stack: StackRef::None,
    origin: None,
};

/// Disjoint pieces, by their rank in address order.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    block: Arc<[Piece]>,
    /// The places of the block: first those of pieces, in address order, then free ones.
    order: [u8; PLACES],
    /// Pieces.
    len: u8,
}

impl Leaf {
    /// A leaf of one piece.
    pub(crate) fn of(piece: Piece) -> Self {
        Self::new([piece].into_iter(), FREE)
    }

    /// A leaf of pieces in address order, `LEAF` at most, with some free places.
    fn new(pieces: impl ExactSizeIterator<Item = Piece>, free: usize) -> Self {
        let len = u8::try_from(pieces.len()).unwrap_or(u8::MAX);
        let block = pieces.chain(repeat_n(BLANK, free)).collect();
        Self { block, order: array::from_fn(|place| u8::try_from(place).unwrap_or(u8::MAX)), len }
    }

    /// Pieces.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    fn place(&self, rank: usize) -> usize {
        usize::from(self.order[rank])
    }

    /// The piece of a rank below `len`.
    pub(crate) fn piece(&self, rank: usize) -> &Piece {
        &self.block[self.place(rank)]
    }

    /// Pieces from a rank on.
    pub(crate) fn pieces(&self, from: usize) -> impl Iterator<Item = &Piece> + '_ {
        self.order[from..self.len()].iter().map(|place| &self.block[usize::from(*place)])
    }

    /// The first piece that ends behind `addr`; as many as there are when none does. It is looked for where it would
    /// be if all were alike between `start` and `end`.
    pub(crate) fn first_behind(&self, addr: u64, start: u64, end: u64) -> usize {
        let len = self.len();
        let stride = end.saturating_sub(start) / u64::from(self.len).max(1);
        let share = addr.saturating_sub(start) / stride.max(1);
        let guess = usize::try_from(share).unwrap_or(len).min(len);
        if guess < len && self.piece(guess).extent.start <= addr {
            (guess..len).find(|rank| self.piece(*rank).extent.end > addr).unwrap_or(len)
        } else {
            let before = (0..guess).rev().find(|rank| self.piece(*rank).extent.end <= addr);
            before.map_or(0, |rank| rank + 1)
        }
    }

    /// The first piece from rank `first` on that starts at `end` or later; as many as there are when none does. One that
    /// ends there spares a look at the next.
    pub(crate) fn first_beyond(&self, first: usize, end: u64) -> usize {
        for (rank, piece) in (first..).zip(self.pieces(first)) {
            if piece.extent.start >= end {
                return rank;
            }
            if piece.extent.end >= end {
                return rank + 1;
            }
        }
        self.len()
    }

    /// Puts a piece before that of rank `at`.
    pub(crate) fn insert(&mut self, at: usize, piece: Piece) {
        let len = self.len();
        if len == self.block.len() {
            self.pack(FREE.min(PLACES - len));
        }
        self.order[at..=len].rotate_right(1);
        let place = self.place(at);
        Arc::make_mut(&mut self.block)[place] = piece;
        self.len += 1;
    }

    /// Takes the pieces of `ranks` out.
    fn take(&mut self, ranks: Range<usize>) -> impl ExactSizeIterator<Item = Piece> {
        let len = self.len();
        let count = ranks.len();
        self.order[ranks.start..len].rotate_left(count);
        self.len -= u8::try_from(count).unwrap_or(0);
        let block = Arc::make_mut(&mut self.block);
        let places = self.order[len - count..len].iter();
        places.map(|place| std::mem::replace(&mut block[usize::from(*place)], BLANK))
    }

    /// Hands the pieces of `ranks` to `each`, which may push what takes their place.
    pub(crate) fn replace(
        &mut self,
        ranks: Range<usize>,
        mut each: impl FnMut(Piece, &mut Vec<Piece>),
    ) {
        let (first, mut put) = (ranks.start, Vec::new());
        self.take(ranks).for_each(|piece| each(piece, &mut put));
        for (rank, piece) in (first..).zip(put) {
            self.insert(rank, piece);
        }
        if self.block.len() > self.len() + FREE {
            self.pack(FREE / 2);
        }
    }

    /// Moves the pieces to a block with so many free places, in order.
    fn pack(&mut self, free: usize) {
        let len = self.len();
        *self = Self::new(self.take(0..len), free);
    }

    /// Takes the second half out.
    pub(crate) fn split(&mut self) -> Self {
        let len = self.len();
        let behind = Self::new(self.take(len / 2..len), FREE);
        self.pack(FREE);
        behind
    }

    /// Puts the pieces of the next leaf behind those of this one.
    pub(crate) fn append(&mut self, mut next: Self) {
        let len = next.len();
        self.pack(len);
        for piece in next.take(0..len) {
            self.insert(self.len(), piece);
        }
    }

    /// Bytes of memory of its block: the pieces, two counters, and what `malloc` adds.
    pub(crate) fn footprint(&self) -> usize {
        size_of_val(&*self.block) + 24
    }

    #[cfg(test)]
    pub(crate) fn shares(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
    }
}
