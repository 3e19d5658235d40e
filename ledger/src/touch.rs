//! First touch: which stack made a page exist, for the pages of a sample that a hash of their number selects.
//!
//! A page, not a fault, is kept: every later fault of a kept page is seen too and replaces the older record
//! (random faults go stale). Since membership is a function of the page, the denominator is known at every scan:
//! of the resident pages that are in the sample, so many have a known stack.

use std::collections::BTreeMap;

use crate::evidence::{Fault, StackRef};
use crate::identity::{Extent, PAGE};
use crate::pages::BLOCK;

/// Entries of one space at most; above it every second page of the sample is dropped.
const ENTRIES: usize = 8192;

/// How samples of pages are drawn: equal in the hook that keeps faults and in the reader of scans.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sample {
    /// Drawn once per run, so that no workload can be aligned with the hash.
    pub seed: u32,
    /// Probability with which a page, and a block of 2 MiB, is in the sample.
    pub probability: f64,
}

impl Sample {
    /// The bound that a hash must be below: probability × 2^32.
    #[must_use]
    pub fn bound(self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to 0..=2^32"
        )]
        let bound = (self.probability.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        bound
    }

    /// Whether page number `page` is in the sample.
    #[must_use]
    pub fn has_page(self, page: u64) -> bool {
        u64::from(hash(page, self.seed)) < self.bound()
    }

    /// Whether block number `block` (of 2 MiB) is in the sample.
    #[must_use]
    pub fn has_block(self, block: u64) -> bool {
        u64::from(hash(!block, self.seed)) < self.bound()
    }

    /// Whether faults at `address` are kept: its page or its block is in the sample.
    #[must_use]
    pub fn has(self, address: u64) -> bool {
        self.has_page(address / PAGE) || self.has_block(address / BLOCK)
    }
}

/// The hash of a page number (or the complement of a block number): the 64-bit finaliser of MurmurHash3, upper half.
#[must_use]
pub fn hash(number: u64, seed: u32) -> u32 {
    let mut x = number ^ u64::from(seed) << 32;
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^= x >> 33;
    u32::try_from(x >> 32).unwrap_or(u32::MAX)
}

/// What is remembered of the newest fault that made a page exist.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    /// Where the program was.
    pub stack: StackRef,
    /// It was a write.
    pub write: bool,
}

/// A touch, and the page it was in the sample by: where it faulted.
#[derive(Clone, Copy, Debug)]
struct Entry {
    touch: Touch,
    born: u64,
}

/// The kept faults of one space, by the page they lie in now.
#[derive(Clone, Debug)]
pub struct Touches {
    entries: BTreeMap<u64, Entry>,
    /// Entries are kept only of pages that are in the sample of this probability too.
    most: f64,
}

impl Default for Touches {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), most: 1.0 }
    }
}

impl Touches {
    /// Takes a fault in.
    ///
    /// A write to a page that is present is copy-on-write or the end of a zero page: the earlier *write* keeps the
    /// page if there was one, else this one has it (FIRST-TOUCH: error codes 4, 7 and 6, 7).
    ///
    /// Where the hook keeps fewer pages than `sample` has, nobody knows of the others: the space's sample is the
    /// smallest that any of its faults was kept by. No fault is kept by a probability of 0.
    pub fn fault(&mut self, fault: &Fault, sample: Sample) {
        let page = fault.address / PAGE;
        let kept_by = Sample { probability: fault.probability, ..sample };
        if kept_by.bound() == 0 {
            return;
        }
        if kept_by.bound() < self.sample(sample).bound() {
            self.lower(kept_by);
        }
        if !self.sample(sample).has(fault.address) {
            return;
        }
        let touch = Touch { stack: fault.stack, write: fault.write };
        match self.entries.get(&page) {
            Some(earlier) if fault.present && earlier.touch.write => {}
            _ => {
                self.entries.insert(page, Entry { touch, born: page });
            }
        }
        while self.entries.len() > ENTRIES {
            let probability = self.sample(sample).probability / 2.0;
            self.lower(Sample { probability, ..sample });
        }
    }

    /// Keeps no more than what is in `sample` from now on.
    fn lower(&mut self, sample: Sample) {
        self.most = sample.probability;
        self.entries.retain(|_, entry| sample.has(entry.born * PAGE));
    }

    /// The sample that this space's entries are complete for.
    #[must_use]
    pub fn sample(&self, sample: Sample) -> Sample {
        Sample { probability: sample.probability.min(self.most), ..sample }
    }

    /// The entry of a page.
    #[must_use]
    pub fn page(&self, page: u64) -> Option<Touch> {
        self.entries.get(&page).map(|entry| entry.touch)
    }

    /// Any entry inside a block: all faults of a block in the sample are kept, and a huge page has only one.
    #[must_use]
    pub fn block(&self, block: u64) -> Option<Touch> {
        let first = block * (BLOCK / PAGE);
        self.entries.range(first..first + BLOCK / PAGE).next_back().map(|(_, entry)| entry.touch)
    }

    /// Forgets what lay in `extent`: it is unmapped.
    pub fn retire(&mut self, extent: Extent) {
        let pages: Vec<u64> = self.range(extent).map(|(page, _)| page).collect();
        for page in pages {
            self.entries.remove(&page);
        }
    }

    /// Follows `mremap`: what lay in `from` lies at `to` now, and stays in the sample by where it faulted.
    pub fn moved(&mut self, from: Extent, to: u64) {
        let entries: Vec<(u64, Entry)> = self.range(from).collect();
        self.retire(from);
        for (page, entry) in entries {
            self.entries.insert(page - from.start / PAGE + to / PAGE, entry);
        }
    }

    fn range(&self, extent: Extent) -> impl Iterator<Item = (u64, Entry)> + '_ {
        self.entries.range(extent.start / PAGE..extent.end.div_ceil(PAGE)).map(|(p, e)| (*p, *e))
    }

    /// Stacks of all entries.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = StackRef> + '_ {
        self.entries.values().map(|entry| entry.touch.stack)
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Sampled pages by who touched them first. Counts of sample units (pages; blocks of 2 MiB where huge) in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TouchTally {
    /// Resident units in the sample.
    pub sampled: u64,
    /// Bytes that those units stand for.
    pub sampled_bytes: u64,
    /// Sum of the squares of those bytes, in units of pages: units of unequal weight are worth fewer equal ones.
    pub sampled_squares: u64,
    /// By stack: units and bytes.
    pub by_stack: BTreeMap<StackRef, (u64, u64)>,
}

impl TouchTally {
    pub(crate) fn add(&mut self, stack: Option<StackRef>, bytes: u64) {
        self.sampled += 1;
        self.sampled_bytes += bytes;
        self.sampled_squares += (bytes / PAGE).pow(2);
        if let Some(stack) = stack {
            let entry = self.by_stack.entry(stack).or_default();
            entry.0 += 1;
            entry.1 += bytes;
        }
    }

    /// Adds another tally to this one.
    pub fn merge(&mut self, other: &Self) {
        self.sampled += other.sampled;
        self.sampled_bytes += other.sampled_bytes;
        self.sampled_squares += other.sampled_squares;
        for (stack, (units, bytes)) in &other.by_stack {
            let entry = self.by_stack.entry(*stack).or_default();
            entry.0 += units;
            entry.1 += bytes;
        }
    }
}
