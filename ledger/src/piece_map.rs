//! The live extents of one address space: an ordered set of disjoint pieces that forks cheaply.
//!
//! A tree of three levels: a row of branches, each a row of leaves, each a few pieces. A row keeps the address that
//! each of its nodes starts at beside the nodes, so that a search reads few lines of memory: a million pieces take 80 MB
//! and their rows 2 to 3. Branches and leaves lie behind `Arc`. A clone copies the first row only (10⁵ pieces: a
//! microsecond), a change copies the one branch and the one leaf that it touches: a forked child shares what neither
//! side changed.

use std::sync::Arc;

use crate::identity::Extent;
use crate::leaf::{LEAF, Leaf};
use crate::pieces::Piece;

/// Leaves of a branch at most.
const BRANCH: usize = 64;

/// What a row is made of: never empty, and neither too large nor, beside another that is small, too small.
trait Node: Sized {
    /// Children at most.
    const MOST: usize;

    /// Children.
    fn len(&self) -> usize;

    /// Address of the first piece; none when it is empty.
    fn start(&self) -> Option<u64>;

    /// Takes the second half out.
    fn split(&mut self) -> Self;

    /// Puts the children of the next node behind its own.
    fn append(&mut self, next: Self);
}

impl Node for Leaf {
    const MOST: usize = LEAF;

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn start(&self) -> Option<u64> {
        self.pieces(0).next().map(|p| p.extent.start)
    }

    fn split(&mut self) -> Self {
        Self::split(self)
    }

    fn append(&mut self, next: Self) {
        Self::append(self, next);
    }
}

type Branch = Arc<Row<Leaf>>;

impl Node for Branch {
    const MOST: usize = BRANCH;

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn start(&self) -> Option<u64> {
        self.starts.first().copied()
    }

    fn split(&mut self) -> Self {
        let row = Self::make_mut(self);
        let half = row.nodes.len() / 2;
        Self::new(Row { starts: row.starts.split_off(half), nodes: row.nodes.split_off(half) })
    }

    fn append(&mut self, next: Self) {
        let row = Self::make_mut(self);
        row.starts.extend_from_slice(&next.starts);
        row.nodes.extend(Self::unwrap_or_clone(next).nodes);
    }
}

/// Nodes in address order.
#[derive(Clone, Debug)]
struct Row<T> {
    /// Where each node's first piece starts.
    starts: Vec<u64>,
    nodes: Vec<T>,
}

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self { starts: Vec::new(), nodes: Vec::new() }
    }
}

impl<T: Node> Row<T> {
    /// The last node that starts at or before `addr`, else the first.
    fn at(&self, addr: u64) -> usize {
        self.starts.partition_point(|start| *start <= addr).saturating_sub(1)
    }

    fn insert(&mut self, at: usize, node: T) {
        if let Some(start) = node.start() {
            self.starts.insert(at, start);
            self.nodes.insert(at, node);
        }
    }

    fn remove(&mut self, at: usize) -> T {
        self.starts.remove(at);
        self.nodes.remove(at)
    }

    /// Restores the form of the row after the node at `at` changed.
    fn settle(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(start) = node.start() else {
            self.remove(at);
            return;
        };
        self.starts[at] = start;
        if node.len() > T::MOST {
            let behind = node.split();
            self.insert(at + 1, behind);
            return;
        }
        if node.len() > T::MOST / 2 {
            return;
        }
        for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            let Some([a, b]) = self.nodes.get(left..left + 2) else { continue };
            // Well below the most, so that a node isn't split and merged by turns.
            if a.len() + b.len() <= T::MOST / 8 * 7 {
                let behind = self.remove(left + 1);
                self.nodes[left].append(behind);
                return;
            }
        }
    }
}

impl Row<Leaf> {
    /// The first piece of the leaf at `at` that ends behind `addr`.
    fn first_behind(&self, at: usize, addr: u64) -> usize {
        let leaf = &self.nodes[at];
        let last = || leaf.piece(leaf.len() - 1).extent.end;
        let end = self.starts.get(at + 1).copied().unwrap_or_else(last);
        leaf.first_behind(addr, self.starts[at], end)
    }
}

/// Disjoint pieces in address order.
#[derive(Clone, Debug, Default)]
pub struct PieceMap {
    branches: Row<Branch>,
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

    /// The piece that holds `addr`.
    #[must_use]
    pub fn find(&self, addr: u64) -> Option<&Piece> {
        let branch = self.branches.nodes.get(self.branches.at(addr))?;
        let at = branch.at(addr);
        let mut pieces = branch.nodes[at].pieces(branch.first_behind(at, addr));
        pieces.next().filter(|p| p.extent.contains(addr))
    }

    /// Pieces that overlap `within`, in address order, whole.
    pub fn overlapping(&self, within: Extent) -> impl Iterator<Item = &Piece> + '_ {
        let first = self.branches.at(within.start);
        let branches = self.branches.starts.iter().zip(&self.branches.nodes).skip(first);
        branches
            .take_while(move |(start, _)| **start < within.end)
            .flat_map(move |(_, branch)| {
                let leaves = branch.at(within.start)..branch.nodes.len();
                leaves.take_while(move |at| branch.starts[*at] < within.end).flat_map(move |at| {
                    branch.nodes[at].pieces(branch.first_behind(at, within.start))
                })
            })
            .take_while(move |p| p.extent.start < within.end)
    }

    /// All pieces in address order.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> + '_ {
        self.branches.nodes.iter().flat_map(|b| b.nodes.iter().flat_map(|leaf| leaf.pieces(0)))
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
        let mut next = Some(within.start);
        while let Some(from) = next.filter(|from| *from < within.end) {
            let at = self.branches.at(from);
            let Some(branch) = self.branches.nodes.get(at) else { return };
            let leaf = branch.at(from);
            next = branch.starts.get(leaf + 1).or(self.branches.starts.get(at + 1)).copied();
            let first = branch.first_behind(leaf, from);
            let last = branch.nodes[leaf].first_beyond(first, within.end);
            if first == last {
                continue;
            }
            let row = Arc::make_mut(&mut self.branches.nodes[at]);
            let before = row.nodes[leaf].len();
            row.nodes[leaf].replace(first..last, |piece, put| {
                let (start, end) = (piece.extent.start, piece.extent.end);
                let tail = (end > within.end)
                    .then(|| piece.part(Extent { start: within.end, end: u64::MAX }));
                if start < within.start {
                    put.push(piece.part(Extent { start: 0, end: within.start }));
                }
                let inside = start >= within.start && end <= within.end;
                each(if inside { piece } else { piece.part(within) }, put);
                put.extend(tail);
            });
            self.len = self.len - before + row.nodes[leaf].len();
            row.settle(leaf);
            self.branches.settle(at);
        }
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
        let at = self.branches.at(start);
        let Some(branch) = self.branches.nodes.get_mut(at) else {
            let mut row = Row::default();
            row.insert(0, Leaf::of(piece));
            self.branches.insert(0, Arc::new(row));
            return;
        };
        let row = Arc::make_mut(branch);
        let leaf = row.at(start);
        let place = row.first_behind(leaf, start);
        if row.nodes[leaf].len() == LEAF && (place == 0 || place == LEAF) {
            // Mappings mostly grow in one direction: a full leaf is left full.
            row.insert(leaf + usize::from(place != 0), Leaf::of(piece));
        } else {
            row.nodes[leaf].insert(place, piece);
            row.settle(leaf);
        }
        self.branches.settle(at);
    }

    /// Bytes of memory that the map itself takes; what is shared with a relative counts in each.
    #[must_use]
    pub fn footprint(&self) -> usize {
        fn row<T>(row: &Row<T>) -> usize {
            row.starts.capacity() * size_of::<u64>() + row.nodes.capacity() * size_of::<T>()
        }
        let branch = |b: &Branch| row(b) + b.nodes.iter().map(Leaf::footprint).sum::<usize>();
        row(&self.branches) + self.branches.nodes.iter().map(branch).sum::<usize>()
    }

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
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::{Leaf, Piece, PieceMap};
    use crate::evidence::StackRef;
    use crate::identity::{Extent, Generation, IntervalId, SpaceId};
    use crate::pieces::Traits;
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

    /// Numbers below a bound, the same in every run.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut x = 88_172_645_463_325_252u64;
        move |below| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % below
        }
    }

    /// Every cell of a plain array has the generation that the map says, through thousands of random changes.
    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    fn it_agrees_with_a_plain_array() {
        let mut map = PieceMap::default();
        let mut cells = [0u64; 1000];
        let mut random = numbers();
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

    /// Thousands of pieces come and go at random, by more coming, then by more going: the pieces are those of a plain
    /// ordered map, those of a copy are what they were when it was made, and no memory is held for those that went.
    #[test]
    fn a_large_map_agrees_with_an_ordered_map_and_gives_memory_back() {
        let mut random = numbers();
        let mut map = PieceMap::default();
        let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let rows = |map: &PieceMap| -> Vec<(u64, (u64, u64))> {
            map.iter().map(|p| (p.extent.start, (p.extent.end, p.id.generation.0))).collect()
        };
        let mut copies = Vec::new();
        for step in 1..120_000u64 {
            let grows = step % 60_000 < 30_000;
            let part = if grows { random(8) } else { 7 };
            let one = Extent::new(random(20_000) * 8, 1 + part);
            let wide = random(2000) == 0;
            let extent = if wide { Extent::new(one.start, random(3000)) } else { one };
            let mut removed = Vec::new();
            map.cut(extent, &mut removed);
            let mut gone = Vec::new();
            let (s, e) = (extent.start, extent.end);
            let over = model.range(s.saturating_sub(8)..e).map(|(k, v)| (*k, *v));
            for (start, (end, g)) in over.collect::<Vec<_>>() {
                if end <= s || extent.is_empty() {
                    continue;
                }
                model.remove(&start);
                gone.push((start.max(s), end.min(e)));
                if start < s {
                    model.insert(start, (s, g));
                }
                if end > e {
                    model.insert(e, (end, g));
                }
            }
            let cut: Vec<_> = removed.iter().map(|p| (p.extent.start, p.extent.end)).collect();
            assert_eq!(cut, gone, "step {step}");
            if grows && !wide && random(8) < 6 {
                map.insert(piece(s, e - s, step));
                model.insert(s, (e, step));
            }
            assert_eq!(map.len(), model.len());
            if step % 10_000 == 0 {
                let now = rows(&map);
                assert!(now.iter().copied().eq(model.iter().map(|(k, v)| (*k, *v))), "step {step}");
                assert!(map.footprint() <= map.len() * 96 + 2048, "{} pieces", map.len());
                copies.push((map.clone(), now));
            }
        }
        assert!(copies.iter().all(|(copy, then)| rows(copy) == *then));
    }

    #[test]
    fn a_copy_of_a_hundred_thousand_pieces_shares_all_but_the_leaf_that_changed() {
        let mut parent = PieceMap::default();
        for n in 0..100_000 {
            parent.insert(piece(n * 8, 4, n + 1));
        }
        let leaves = |map: &PieceMap| -> Vec<Leaf> {
            map.branches.nodes.iter().flat_map(|b| b.nodes.clone()).collect()
        };
        let shared = |a: &PieceMap, b: &PieceMap| {
            leaves(a).iter().zip(&leaves(b)).filter(|(a, b)| a.shares(b)).count()
        };
        let mut child = parent.clone();
        assert_eq!(shared(&parent, &child), leaves(&parent).len());
        child.update(Extent::new(80_000, 4), |piece| piece.traits.0 |= Traits::EXEC);
        parent.update(Extent::new(640_000, 4), |piece| piece.traits.0 |= Traits::EXEC);
        assert_eq!(shared(&parent, &child), leaves(&parent).len() - 2);
        let branches = parent.branches.nodes.iter().zip(&child.branches.nodes);
        assert_eq!(branches.filter(|(a, b)| !Arc::ptr_eq(a, b)).count(), 2);
    }
}
