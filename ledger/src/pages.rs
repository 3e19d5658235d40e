//! What is known of pages at one time: a compact set of page states, kept per block of 2 MiB.
//!
//! A block is uniform, a few runs, or bitmaps, whichever is smallest, so that a sparse 64 GiB arena costs what its
//! touched blocks cost.

use crate::identity::{Extent, PAGE};

/// Bytes of a block.
pub const BLOCK: u64 = 2 << 20;
/// Pages of a block.
const PAGES: usize = 512;
const WORDS: usize = PAGES / 64;

/// The state of one page. `PageState(0)`: nothing there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct PageState(pub u8);

impl PageState {
    /// Present in the page table.
    pub const PRESENT: u8 = 1;
    /// Belongs to an object (file or shmem), not to anonymous memory.
    pub const OBJECT: u8 = 2;
    /// The zero page: present, but not Rss.
    pub const ZERO: u8 = 4;
    /// Swapped out.
    pub const SWAPPED: u8 = 8;
    /// Mapped by this space alone (pagemap bit 56). Only where it was read.
    pub const EXCLUSIVE: u8 = 16;
    /// Part of a huge page mapped as one.
    pub const HUGE: u8 = 32;
    const PLANES: usize = 6;

    /// Whether all bits of `bits` are set.
    #[must_use]
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
    /// Counts as Rss of kind anon.
    #[must_use]
    pub fn anon(self) -> bool {
        self.0 & (Self::PRESENT | Self::OBJECT | Self::ZERO) == Self::PRESENT
    }
    /// Is a page of an object, and counts as Rss of kind file or shmem.
    #[must_use]
    pub fn object(self) -> bool {
        self.0 & (Self::PRESENT | Self::OBJECT | Self::ZERO) == Self::PRESENT | Self::OBJECT
    }
}

/// A set of page states, by block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSet {
    blocks: Vec<(u64, Block)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Block {
    Uniform(PageState),
    Runs(Box<[Run]>),
    Bitmaps(Box<[[u64; WORDS]; PageState::PLANES]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u16,
    pages: u16,
    state: PageState,
}

impl PageSet {
    /// The states of all pages in `within` that are not empty, as maximal runs inside a block, in address order.
    pub fn runs(&self, within: Extent) -> impl Iterator<Item = (Extent, PageState)> + '_ {
        let first = self.blocks.partition_point(|(index, _)| (index + 1) * BLOCK <= within.start);
        self.blocks[first..]
            .iter()
            .take_while(move |(index, _)| index * BLOCK < within.end)
            .flat_map(move |(index, block)| {
                let base = index * BLOCK;
                block.runs(within.start.saturating_sub(base) / PAGE).map(move |r| {
                    let start = base + u64::from(r.first) * PAGE;
                    (Extent::new(start, u64::from(r.pages) * PAGE), r.state)
                })
            })
            .take_while(move |(extent, _)| extent.start < within.end)
            .map(move |(extent, state)| (extent.intersect(within), state))
            .filter(|(extent, _)| !extent.is_empty())
    }

    /// All runs.
    pub fn all(&self) -> impl Iterator<Item = (Extent, PageState)> + '_ {
        self.runs(Extent { start: 0, end: u64::MAX })
    }

    /// The state of the page that holds `addr`.
    #[must_use]
    pub fn at(&self, addr: u64) -> PageState {
        let page = addr & !(PAGE - 1);
        self.runs(Extent::new(page, PAGE)).next().map_or(PageState(0), |(_, state)| state)
    }

    /// Bytes of memory that the set itself takes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let inner: usize = self
            .blocks
            .iter()
            .map(|(_, b)| match b {
                Block::Uniform(_) => 0,
                Block::Runs(r) => size_of_val::<[Run]>(r),
                Block::Bitmaps(_) => size_of::<[[u64; WORDS]; PageState::PLANES]>(),
            })
            .sum();
        inner + self.blocks.capacity() * size_of::<(u64, Block)>()
    }
}

impl Block {
    /// Its runs from page `from` on; the first may begin before it.
    fn runs(&self, from: u64) -> Box<dyn Iterator<Item = Run> + '_> {
        match self {
            Self::Uniform(state) => {
                Box::new(std::iter::once(Run { first: 0, pages: 512, state: *state }))
            }
            Self::Runs(runs) => {
                let first = runs.partition_point(|r| u64::from(r.first + r.pages) <= from);
                Box::new(runs[first..].iter().copied())
            }
            Self::Bitmaps(planes) => {
                let next = usize::try_from(from).map_or(PAGES, |from| from.min(PAGES));
                Box::new(BitmapRuns { planes, next })
            }
        }
    }

    /// The smallest form of `runs`, which are in order, do not touch with equal states, and hold no empty state.
    fn pack(runs: &[Run]) -> Self {
        match runs {
            [Run { first: 0, pages: 512, state }] => Self::Uniform(*state),
            _ if size_of_val::<[Run]>(runs) <= size_of::<[[u64; WORDS]; PageState::PLANES]>() => {
                Self::Runs(runs.into())
            }
            _ => {
                let mut planes = Box::new([[0u64; WORDS]; PageState::PLANES]);
                for run in runs {
                    for page in usize::from(run.first)..usize::from(run.first + run.pages) {
                        for (plane, words) in planes.iter_mut().enumerate() {
                            if run.state.0 >> plane & 1 == 1 {
                                words[page / 64] |= 1 << (page % 64);
                            }
                        }
                    }
                }
                Self::Bitmaps(planes)
            }
        }
    }
}

struct BitmapRuns<'a> {
    planes: &'a [[u64; WORDS]; PageState::PLANES],
    next: usize,
}

impl BitmapRuns<'_> {
    fn state(&self, page: usize) -> PageState {
        let bit = |plane: usize| (self.planes[plane][page / 64] >> (page % 64) & 1) as u8;
        PageState((0..PageState::PLANES).fold(0, |bits, plane| bits | bit(plane) << plane))
    }
}

impl Iterator for BitmapRuns<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        while self.next < PAGES && self.state(self.next) == PageState(0) {
            self.next += 1;
        }
        if self.next == PAGES {
            return None;
        }
        let (first, state) = (self.next, self.state(self.next));
        while self.next < PAGES && self.state(self.next) == state {
            self.next += 1;
        }
        // Both are at most 512.
        let narrow = |n: usize| u16::try_from(n).unwrap_or(512);
        Some(Run { first: narrow(first), pages: narrow(self.next - first), state })
    }
}

/// Builds a [`PageSet`] from runs in address order.
#[derive(Debug, Default)]
pub struct PageSetBuilder {
    blocks: Vec<(u64, Block)>,
    current: u64,
    runs: Vec<Run>,
    end: u64,
}

impl PageSetBuilder {
    /// Adds a run of pages in one state.
    ///
    /// Runs come in address order; what overlaps an earlier one is cut off its front, so that no page is counted
    /// twice whatever the kernel printed. Empty states are skipped. `extent` is in whole pages.
    pub fn push(&mut self, extent: Extent, state: PageState) {
        let mut at = extent.start.max(self.end);
        // The last block of 64-bit addresses is no memory of a process, and its end is not a number.
        let extent = Extent { end: extent.end.min(u64::MAX / BLOCK * BLOCK), ..extent };
        if state == PageState(0) {
            return;
        }
        while at < extent.end {
            let index = at / BLOCK;
            if index != self.current {
                self.flush();
                self.current = index;
            }
            let end = extent.end.min((index + 1) * BLOCK);
            // At most 512 pages lie in a block.
            let page = |addr: u64| u16::try_from((addr - index * BLOCK) / PAGE).unwrap_or(512);
            let (first, pages) = (page(at), page(end) - page(at));
            match self.runs.last_mut() {
                Some(last) if last.first + last.pages == first && last.state == state => {
                    last.pages += pages;
                }
                _ => self.runs.push(Run { first, pages, state }),
            }
            at = end;
        }
        self.end = self.end.max(extent.end);
    }

    fn flush(&mut self) {
        if !self.runs.is_empty() {
            self.blocks.push((self.current, Block::pack(&self.runs)));
            self.runs.clear();
        }
    }

    /// The set.
    #[must_use]
    pub fn build(mut self) -> PageSet {
        self.flush();
        self.blocks.shrink_to_fit();
        PageSet { blocks: self.blocks }
    }
}

impl FromIterator<(Extent, PageState)> for PageSet {
    fn from_iter<T: IntoIterator<Item = (Extent, PageState)>>(iter: T) -> Self {
        let mut builder = PageSetBuilder::default();
        for (extent, state) in iter {
            builder.push(extent, state);
        }
        builder.build()
    }
}

/// In a trace a page set is a list of `[first page, pages, state]`: maximal runs in address order, pages by number.
#[cfg(feature = "serde")]
mod wire {
    use std::fmt;

    use serde::de::{Error, SeqAccess, Visitor};

    use super::{Extent, PAGE, PageSet, PageSetBuilder, PageState};

    impl serde::Serialize for PageSet {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let mut runs = self.all().peekable();
            to.collect_seq(std::iter::from_fn(|| {
                let (mut whole, state) = runs.next()?;
                while let Some((next, _)) =
                    runs.next_if(|(next, s)| next.start == whole.end && *s == state)
                {
                    whole.end = next.end;
                }
                Some((whole.start / PAGE, whole.len() / PAGE, state.0))
            }))
        }
    }

    /// Pages that one set may hold: 16 TiB. A uniform block takes up to 32 bytes: no short line asks for more than
    /// 256 MiB.
    const MOST: u64 = 1 << 32;

    impl<'de> serde::Deserialize<'de> for PageSet {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_seq(Runs)
        }
    }

    struct Runs;

    impl<'de> Visitor<'de> for Runs {
        type Value = PageSet;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a list of [first page, pages, state]")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut runs: A) -> Result<PageSet, A::Error> {
            let mut builder = PageSetBuilder::default();
            let mut total = 0u64;
            while let Some((first, pages, state)) = runs.next_element::<(u64, u64, u8)>()? {
                total = total.saturating_add(pages);
                if total > MOST || first > (1 << 57) / PAGE {
                    return Err(A::Error::custom("page run outside the address space"));
                }
                if state >> PageState::PLANES != 0 {
                    return Err(A::Error::custom("unknown page state bit"));
                }
                builder.push(Extent::new(first * PAGE, pages * PAGE), PageState(state));
            }
            Ok(builder.build())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Extent, PAGE, PageSet, PageState};

    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    fn any_pattern_of_states_reads_back_as_it_was_written() {
        for seed in 0u64..24 {
            let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut pages = Vec::new();
            for _ in 0..1536 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let sparse = seed % 4;
                pages.push(if x >> 8 & sparse != 0 { 0u8 } else { (x >> 16) as u8 & 0x3f });
            }
            let runs = pages.iter().enumerate();
            let set: PageSet = runs
                .map(|(i, s)| {
                    (Extent::new(BLOCK - 3 * PAGE + i as u64 * PAGE, PAGE), PageState(*s))
                })
                .collect();
            for (i, s) in pages.iter().enumerate() {
                assert_eq!(set.at(BLOCK - 3 * PAGE + i as u64 * PAGE), PageState(*s));
            }
            let total: u64 = set.all().map(|(e, _)| e.len()).sum();
            assert_eq!(total, pages.iter().filter(|s| **s != 0).count() as u64 * PAGE);
        }
    }

    #[test]
    fn a_page_told_twice_is_counted_once() {
        let set: PageSet = [
            (Extent::new(0, 4 * PAGE), PageState(1)),
            (Extent::new(2 * PAGE, 4 * PAGE), PageState(1)),
        ]
        .into_iter()
        .collect();
        assert_eq!(set.all().map(|(e, _)| e.len()).sum::<u64>(), 6 * PAGE);
    }

    #[test]
    fn a_uniform_gibibyte_costs_a_few_kilobytes() {
        let set: PageSet = [(Extent::new(0, 1 << 30), PageState(1))].into_iter().collect();
        assert!(set.footprint() <= 512 * 32, "{}", set.footprint());
    }
}
