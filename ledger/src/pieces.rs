//! The live extents of one address space: an ordered set of disjoint pieces that forks cheaply.
//!
//! Pieces lie in sorted chunks behind `Arc`. A clone copies the list of chunks only (10⁵ pieces: tens of
//! microseconds), a change copies the one chunk that it touches: a forked child shares what neither side changed.

use std::sync::Arc;

use crate::evidence::{Backing, MapFlags, StackRef};
use crate::identity::{Extent, IntervalId};
use crate::time::Span;

/// Pieces of a chunk at most.
const CHUNK: usize = 64;
/// Pieces that a chunk makes room for at a time.
const GROWTH: usize = 8;

/// What a mapping is made of, once the kernel's list of mappings told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// What backs it.
    pub backing: Backing,
    /// Path or name as `/proc/PID/maps` shows it. For anonymous memory that the loader put behind a file's data
    /// (`.bss`) it is the path of that file.
    pub path: Option<Arc<str>>,
}

/// How a piece came to be, as bits. Everything that attribution needs of the call survives splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traits(pub u32);

impl Traits {
    /// Its creation was not seen: it was there when a list of mappings was read.
    pub const UNSEEN: u32 = 1;
    /// Made by `brk`.
    pub const BRK: u32 = 1 << 1;
    /// Made by `shmat`.
    pub const ATTACHED: u32 = 1 << 2;
    /// `MAP_SHARED`.
    pub const SHARED: u32 = 1 << 3;
    /// `MAP_ANONYMOUS`.
    pub const ANONYMOUS: u32 = 1 << 4;
    /// `MAP_STACK`.
    pub const STACK: u32 = 1 << 5;
    /// `MAP_NORESERVE`.
    pub const NORESERVE: u32 = 1 << 6;
    /// `MAP_HUGETLB`.
    pub const HUGETLB: u32 = 1 << 7;
    /// `PROT_EXEC` when it was made.
    pub const EXEC: u32 = 1 << 8;
    /// `PROT_NONE` when it was made.
    pub const INACCESSIBLE: u32 = 1 << 9;
    /// Its first length was 1 to 7 times a power of two.
    pub const SIZE_CLASS: u32 = 1 << 10;
    /// Its first length was a multiple of 1 MiB.
    pub const WHOLE_MIB: u32 = 1 << 11;
    /// Its first length was 64 MiB or more.
    pub const HUGE_LENGTH: u32 = 1 << 12;
    /// Born before the watch began.
    pub const PREDATES: u32 = 1 << 13;
    /// A call that failed or raced may have changed it: the next list of mappings tells.
    pub const DOUBTED: u32 = 1 << 14;
    /// Moved or grown out of a piece that is older than a loss of events: whose it is, is inferred.
    pub const INFERRED: u32 = 1 << 15;
    /// Unseen, and not in the first list of mappings: the kernel made it, or what was known of it was lost.
    pub const LATE: u32 = 1 << 16;

    /// Whether all bits of `bits` are set.
    #[must_use]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// The traits of a mapping of `len` bytes that `mmap` was asked for.
    #[must_use]
    pub fn of_call(flags: &MapFlags, len: u64) -> Self {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        Self(
            bit(flags.shared, Self::SHARED)
                | bit(flags.anonymous, Self::ANONYMOUS)
                | bit(flags.stack, Self::STACK)
                | bit(flags.noreserve, Self::NORESERVE)
                | bit(flags.hugetlb, Self::HUGETLB)
                | bit(flags.exec, Self::EXEC)
                | bit(flags.inaccessible, Self::INACCESSIBLE)
                | bit(is_size_class(len), Self::SIZE_CLASS)
                | bit(len.is_multiple_of(1 << 20), Self::WHOLE_MIB)
                | bit(len >= 64 << 20, Self::HUGE_LENGTH),
        )
    }
}

/// Whether a length is 1 to 7 times a power of two. Allocators grow by such steps, as jemalloc's classes of sizes do
/// (2.5 MiB, 3.5 MiB): an object of just such a length is taken for memory to divide.
#[must_use]
pub fn is_size_class(len: u64) -> bool {
    len != 0 && len >> len.trailing_zeros() < 8
}

/// A live extent of an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Its addresses.
    pub extent: Extent,
    /// The interval it is a part of.
    pub id: IntervalId,
    /// When this extent became live.
    pub born: Span,
    /// How it came to be.
    pub traits: Traits,
    /// Offset of `extent.start` in its object; for anonymous memory the address that the byte was born at, so that
    /// relatives find each other's pages after a move.
    pub offset: u64,
    /// Who asked for it.
    pub stack: StackRef,
    /// What it is made of, once known.
    pub origin: Option<Arc<Origin>>,
}

impl Piece {
    /// Whether it is private memory without an object, as far as is known.
    #[must_use]
    pub fn private_anonymous(&self) -> bool {
        match &self.origin {
            Some(origin) => origin.backing == Backing::Anonymous,
            None => self.traits.has(Traits::ANONYMOUS) && !self.traits.has(Traits::SHARED),
        }
    }

    /// The offset of an address of it in its object.
    #[must_use]
    pub fn offset_of(&self, addr: u64) -> u64 {
        self.offset.wrapping_add(addr.wrapping_sub(self.extent.start))
    }

    /// The part of it inside `within`; empty when there is none.
    #[must_use]
    pub fn part(&self, within: Extent) -> Self {
        let extent = self.extent.intersect(within);
        Self { extent, offset: self.offset_of(extent.start), ..self.clone() }
    }
}

#[derive(Clone, Debug)]
struct Chunk {
    /// Start of the first piece.
    start: u64,
    /// End of the last piece.
    end: u64,
    /// At least one.
    pieces: Arc<Vec<Piece>>,
}

impl Chunk {
    fn new(pieces: Vec<Piece>) -> Self {
        let mut chunk = Self { start: 0, end: 0, pieces: Arc::new(pieces) };
        chunk.measure();
        chunk
    }

    /// Sets its addresses to those of its pieces; whether it has any.
    fn measure(&mut self) -> bool {
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else {
            return false;
        };
        (self.start, self.end) = (first.extent.start, last.extent.end);
        true
    }

    /// The first piece that ends behind `addr`. It is looked for where it would be if all were alike: what a search
    /// waits for is memory that is in no cache.
    fn first_behind(&self, addr: u64) -> usize {
        let count = self.pieces.len();
        if addr >= self.end {
            return count;
        }
        let share = u128::from(addr.saturating_sub(self.start)) * count as u128
            / u128::from(self.end.saturating_sub(self.start)).max(1);
        let mut at = usize::try_from(share).unwrap_or(0).min(count - 1);
        while at > 0 && self.pieces[at - 1].extent.end > addr {
            at -= 1;
        }
        while self.pieces[at].extent.end <= addr {
            at += 1;
        }
        at
    }
}

/// Disjoint pieces in address order.
#[derive(Clone, Debug, Default)]
pub struct PieceMap {
    chunks: Vec<Chunk>,
    len: usize,
}

impl PieceMap {
    /// Pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The last chunk that starts at or before `addr`, else the first.
    fn chunk_at(&self, addr: u64) -> usize {
        self.chunks.partition_point(|c| c.start <= addr).saturating_sub(1)
    }

    /// The piece that holds `addr`.
    #[must_use]
    pub fn find(&self, addr: u64) -> Option<&Piece> {
        let chunk = self.chunks.get(self.chunk_at(addr))?;
        let at = chunk.first_behind(addr);
        chunk.pieces.get(at).filter(|p| p.extent.contains(addr))
    }

    /// Pieces that overlap `within`, in address order, whole.
    pub fn overlapping(&self, within: Extent) -> impl Iterator<Item = &Piece> + '_ {
        self.chunks[self.chunk_at(within.start).min(self.chunks.len())..]
            .iter()
            .take_while(move |c| c.start < within.end)
            .flat_map(move |c| {
                let first = c.first_behind(within.start);
                c.pieces[first..].iter()
            })
            .take_while(move |p| p.extent.start < within.end)
    }

    /// All pieces in address order.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> + '_ {
        self.chunks.iter().flat_map(|c| c.pieces.iter())
    }

    /// Takes `within` out; what sticks out of it stays. The parts taken are appended to `removed` in address order.
    pub fn cut(&mut self, within: Extent, removed: &mut Vec<Piece>) {
        self.replace(within, |piece, _| removed.push(piece));
    }

    /// Changes every part inside `within` by `change`; what sticks out stays as it is.
    pub fn update(&mut self, within: Extent, mut change: impl FnMut(&mut Piece)) {
        self.replace(within, |mut piece, keep| {
            change(&mut piece);
            keep.push(piece);
        });
    }

    /// Hands every part inside `within` to `each`, which may push what takes its place.
    fn replace(&mut self, within: Extent, mut each: impl FnMut(Piece, &mut Vec<Piece>)) {
        if within.is_empty() {
            return;
        }
        let mut index = self.chunk_at(within.start);
        let mut put = Vec::new();
        while let Some(chunk) = self.chunks.get_mut(index).filter(|c| c.start < within.end) {
            let first = chunk.first_behind(within.start);
            let behind = chunk.pieces[first..].iter();
            let last = first + behind.take_while(|p| p.extent.start < within.end).count();
            if first == last {
                index += 1;
                continue;
            }
            let pieces = Arc::make_mut(&mut chunk.pieces);
            for piece in pieces.drain(first..last) {
                let (start, end) = (piece.extent.start, piece.extent.end);
                let tail = (end > within.end)
                    .then(|| piece.part(Extent { start: within.end, end: u64::MAX }));
                if start < within.start {
                    put.push(piece.part(Extent { start: 0, end: within.start }));
                }
                let inside = start >= within.start && end <= within.end;
                each(if inside { piece } else { piece.part(within) }, &mut put);
                put.extend(tail);
            }
            self.len = self.len + put.len() - (last - first);
            pieces.splice(first..first, put.drain(..));
            index = self.settle(index);
        }
    }

    /// Restores the form of the chunk at `index` after a change; the index of the chunk behind it.
    fn settle(&mut self, index: usize) -> usize {
        let chunk = &mut self.chunks[index];
        if chunk.pieces.len() > CHUNK {
            let pieces = Arc::make_mut(&mut chunk.pieces);
            let behind = pieces.split_off(pieces.len() / 2);
            pieces.shrink_to(pieces.len() + GROWTH);
            chunk.measure();
            self.chunks.insert(index + 1, Chunk::new(behind));
            return index + 2;
        }
        if !chunk.measure() {
            self.chunks.remove(index);
            return index;
        }
        if chunk.pieces.capacity() > chunk.pieces.len() + CHUNK / 4
            && chunk.pieces.len() < CHUNK / 2
        {
            let pieces = Arc::make_mut(&mut chunk.pieces);
            pieces.shrink_to(pieces.len() + GROWTH);
        }
        self.merge(index)
    }

    /// Puts the chunk at `index` to its left neighbour when both are small; the index of the chunk behind it.
    fn merge(&mut self, index: usize) -> usize {
        let Some(left) = index.checked_sub(1) else { return index + 1 };
        if self.chunks[left].pieces.len() + self.chunks[index].pieces.len() > CHUNK / 2 {
            return index + 1;
        }
        let chunk = self.chunks.remove(index);
        let pieces = Arc::make_mut(&mut self.chunks[left].pieces);
        pieces.reserve_exact(chunk.pieces.len());
        pieces.extend(chunk.pieces.iter().cloned());
        pieces.shrink_to(pieces.len() + GROWTH);
        self.chunks[left].measure();
        index
    }

    /// Puts a piece where nothing is.
    ///
    /// The caller cut the range before: pieces never overlap.
    pub fn insert(&mut self, piece: Piece) {
        if piece.extent.is_empty() {
            return;
        }
        self.len += 1;
        let start = piece.extent.start;
        let index = self.chunk_at(start);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.chunks.push(Chunk::new(vec![piece]));
            return;
        };
        let at = chunk.first_behind(start);
        if chunk.pieces.len() == CHUNK && (at == 0 || at == CHUNK) {
            // Mappings mostly grow in one direction: a full chunk is left full.
            let place = index + usize::from(at != 0);
            let mut pieces = Vec::with_capacity(CHUNK);
            pieces.push(piece);
            self.chunks.insert(place, Chunk::new(pieces));
            return;
        }
        let pieces = Arc::make_mut(&mut chunk.pieces);
        if pieces.len() == pieces.capacity() {
            pieces.reserve_exact(GROWTH);
        }
        pieces.insert(at, piece);
        self.settle(index);
    }

    /// Bytes of memory that the map itself takes; chunks shared with a relative count in each.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let chunks: usize =
            self.chunks.iter().map(|c| c.pieces.capacity() * size_of::<Piece>() + 40).sum();
        chunks + self.chunks.capacity() * size_of::<Chunk>()
    }
}

impl PieceMap {
    /// Bytes of `within` that no piece covers.
    pub fn holes(&self, within: Extent) -> Vec<Extent> {
        let mut holes = Vec::new();
        let mut at = within.start;
        for piece in self.overlapping(within) {
            if piece.extent.start > at {
                holes.push(Extent { start: at, end: piece.extent.start });
            }
            at = at.max(piece.extent.end);
        }
        if at < within.end {
            holes.push(Extent { start: at, end: within.end });
        }
        holes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Chunk, Piece, PieceMap, Traits};
    use crate::evidence::StackRef;
    use crate::identity::{Extent, Generation, IntervalId, SpaceId};
    use crate::time::Span;

    fn piece(start: u64, len: u64, generation: u64) -> Piece {
        Piece {
            extent: Extent::new(start, len),
            id: IntervalId { space: SpaceId(1), generation: Generation(generation) },
            born: Span::default(),
            traits: Traits(0),
            offset: start,
            stack: StackRef::None,
            origin: None,
        }
    }

    /// Every cell of a plain array has the generation that the map says, through thousands of random changes.
    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    fn it_agrees_with_a_plain_array() {
        let mut map = PieceMap::default();
        let mut cells = [0u64; 1000];
        let mut x = 88_172_645_463_325_252u64;
        let mut random = move |below: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % below
        };
        for step in 1..20_000u64 {
            let start = random(990);
            let len = 1 + random(if step % 50 == 0 { 300 } else { 6 }).min(999 - start);
            let mut removed = Vec::new();
            let before = map.clone();
            map.cut(Extent::new(start, len), &mut removed);
            let gone: u64 = removed.iter().map(|p| p.extent.len()).sum();
            let there = cells[start as usize..(start + len) as usize].iter().filter(|c| **c != 0);
            assert_eq!(gone, there.count() as u64);
            let fill = if random(3) == 0 { 0 } else { step };
            if fill != 0 {
                map.insert(piece(start, len, fill));
            }
            cells[start as usize..(start + len) as usize].fill(fill);
            assert_eq!(map.len(), map.iter().count());
            if step % 97 == 0 {
                for (i, cell) in cells.iter().enumerate() {
                    let found = map.find(i as u64).map_or(0, |p| {
                        assert_eq!(p.offset, p.extent.start);
                        p.id.generation.0
                    });
                    assert_eq!(found, *cell, "cell {i} at step {step}");
                }
                let covered: u64 = map.iter().map(|p| p.extent.len()).sum();
                let holes: u64 = map.holes(Extent::new(0, 1000)).iter().map(|e| e.len()).sum();
                assert_eq!(covered + holes, 1000);
                assert!(
                    before
                        .iter()
                        .zip(before.iter().skip(1))
                        .all(|(a, b)| a.extent.end <= b.extent.start)
                );
            }
        }
    }

    #[test]
    fn a_copy_of_a_hundred_thousand_pieces_shares_all_but_the_chunk_that_changed() {
        let mut parent = PieceMap::default();
        for n in 0..100_000 {
            parent.insert(piece(n * 8, 4, n + 1));
        }
        let shared = |a: &PieceMap, b: &PieceMap| {
            let same = |(a, b): (&Chunk, &Chunk)| Arc::ptr_eq(&a.pieces, &b.pieces);
            a.chunks.iter().zip(&b.chunks).filter(|chunks| same(*chunks)).count()
        };
        let mut child = parent.clone();
        assert_eq!(shared(&parent, &child), parent.chunks.len());
        child.update(Extent::new(80_000, 4), |piece| piece.traits.0 |= Traits::EXEC);
        parent.update(Extent::new(640_000, 4), |piece| piece.traits.0 |= Traits::EXEC);
        assert_eq!(shared(&parent, &child), parent.chunks.len() - 2);
        let own = parent.chunks.len() * size_of::<Chunk>();
        assert!(own < 100_000, "{own} bytes of its own");
    }
}
