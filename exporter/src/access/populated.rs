//! What page faults made present, by node.
//!
//! A fault that ends with a frame of its own maps at least one page, and at most what its page table entry maps: with huge
//! pages these differ. Around a fault in a file the kernel maps further pages, of which nothing is told.

use std::collections::BTreeMap;

use memprov_ledger::evidence::Access;
use memprov_ledger::identity::PAGE;

/// What faults filled on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Faults that ended with a frame.
    pub faults: u64,
    /// Bytes that their page table entries map.
    pub bytes: u64,
}

/// Page faults of one owner. Empty where none was told with its frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Populated {
    /// By node of the frame; `None`: not known.
    pub nodes: BTreeMap<Option<u32>, Filled>,
    /// Some of them stand for others that were not told.
    pub sampled: bool,
    /// Some mapped more than a page of 4 KiB, or it isn't told how much.
    pub large: bool,
}

impl Populated {
    /// Takes in a fault. One that ended on the zero page, or whose frame is not told, populated nothing that is known.
    pub fn add(&mut self, fault: &Access) {
        if fault.frame.is_none() {
            return;
        }
        let times = fault.period.unwrap_or(1);
        self.sampled |= fault.period != Some(1);
        self.large |= fault.page_size != Some(PAGE);
        let filled = self.nodes.entry(fault.page_node).or_default();
        filled.faults = filled.faults.saturating_add(times);
        let bytes = fault.page_size.unwrap_or(PAGE).saturating_mul(times);
        filled.bytes = filled.bytes.saturating_add(bytes);
    }

    /// Adds those of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (node, more) in &other.nodes {
            let filled = self.nodes.entry(*node).or_default();
            filled.faults = filled.faults.saturating_add(more.faults);
            filled.bytes = filled.bytes.saturating_add(more.bytes);
        }
        self.sampled |= other.sampled;
        self.large |= other.large;
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::Access;

    use super::{Filled, Populated};

    #[test]
    fn a_fault_counts_with_what_it_mapped_and_one_without_a_frame_does_not() {
        let fault = |frame, page_node, page_size| Access {
            frame,
            page_node,
            page_size,
            period: Some(1),
            ..Access::default()
        };
        let mut populated = Populated::default();
        populated.add(&fault(None, None, Some(4096)));
        assert_eq!(populated, Populated::default(), "the zero page is nobody's");
        populated.add(&fault(Some(7), Some(1), Some(4096)));
        populated.add(&fault(Some(8), Some(1), Some(4096)));
        assert!(!populated.large && !populated.sampled);
        populated.add(&fault(Some(512), None, Some(2 << 20)));
        assert!(populated.large);
        let told = [(None, 1, 2 << 20), (Some(1), 2, 8192)];
        let told = told.map(|(node, faults, bytes)| (node, Filled { faults, bytes }));
        assert_eq!(populated.nodes, told.into());
        populated.add(&Access { period: Some(100), ..fault(Some(9), Some(1), Some(4096)) });
        let mut twice = populated.clone();
        twice.merge(&populated);
        assert!(twice.sampled);
        assert_eq!(twice.nodes[&Some(1)], Filled { faults: 204, bytes: 204 * 4096 });
    }
}
