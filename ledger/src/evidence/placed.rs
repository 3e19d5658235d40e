//! Places: on which NUMA nodes the pages of a process lie, and on whose CPUs its threads ran.

use std::sync::Arc;

use crate::identity::{Extent, Tgid};
use crate::time::{MonoTime, Span};

/// Nodes of one host at most: `MAX_NUMNODES` is `1 << CONFIG_NODES_SHIFT`, of 10 at most (kernel `arch/*/Kconfig`).
const NODES: u32 = 1 << 10;

/// What one reading of a process said: `ranges` or `drawn`, or neither.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Placed {
    /// From before the first reading to after the last.
    pub when: Span,
    /// The process.
    pub tgid: Tgid,
    /// In order of addresses, without overlap: ranges that have pages. `None`: they were not read.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub ranges: Option<Arc<[NodeRange]>>,
    /// Pages that were drawn at random where there are too many to count, each with as much chance: number of the
    /// page and node.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub drawn: Option<Arc<[(u64, u32)]>>,
    /// Where its threads ran; `None`: nobody knows of all.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub ran: Option<Ran>,
}

/// How many bytes of a range lie on each node. Which of its pages those are is not told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeRange {
    /// Its addresses.
    pub extent: Extent,
    /// Where the kernel puts new pages of it.
    pub policy: Policy,
    /// Node and bytes, in order of nodes.
    pub nodes: Vec<(u32, u64)>,
}

/// Where the kernel puts new pages (`set_mempolicy(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Policy {
    /// As the process says, else on the node of the CPU that touches a page first.
    #[default]
    Default,
    /// On one node, if there is room.
    Preferred,
    /// On some nodes, if there is room.
    PreferredMany,
    /// On some nodes and no other.
    Bind,
    /// On some nodes in turn.
    Interleave,
    /// On some nodes in turn, as often as each one's weight says.
    WeightedInterleave,
    /// On the node of the CPU that touches a page first.
    Local,
    /// In another way.
    Unknown,
}

/// CPU time by the node of the CPU that each thread ran on last: where it ran before is not known, and counts as there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ran {
    /// The reading before: the time is from there to this one.
    pub since: MonoTime,
    /// Node and nanoseconds, in order of nodes.
    pub by_node: Arc<[(u32, u64)]>,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 8] = [
        Self::Default,
        Self::Preferred,
        Self::PreferredMany,
        Self::Bind,
        Self::Interleave,
        Self::WeightedInterleave,
        Self::Local,
        Self::Unknown,
    ];

    /// Its stable short name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Preferred => "preferred",
            Self::PreferredMany => "preferred_many",
            Self::Bind => "bind",
            Self::Interleave => "interleave",
            Self::WeightedInterleave => "weighted_interleave",
            Self::Local => "local",
            Self::Unknown => "unknown",
        }
    }
}

impl NodeRange {
    /// Bytes on all nodes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.checked().unwrap_or(u64::MAX)
    }

    /// The same; `None` where they are no number of 64 bits.
    fn checked(&self) -> Option<u64> {
        self.nodes.iter().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes))
    }
}

impl Placed {
    /// What is wrong with it, if anything.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let ranges = self.ranges.as_deref().unwrap_or_default();
        let unordered = |nodes: &[(u32, u64)]| !nodes.is_sorted_by(|(a, _), (b, _)| a < b);
        if ranges.iter().any(|range| range.extent.is_empty()) {
            return Some("an empty range");
        }
        if !ranges.is_sorted_by(|a, b| a.extent.end <= b.extent.start) {
            return Some("ranges overlap");
        }
        if ranges.iter().any(|range| unordered(&range.nodes)) {
            return Some("nodes out of order");
        }
        if ranges.iter().any(|range| range.checked().is_none()) {
            return Some("more bytes than there are");
        }
        let of_ran = self.ran.iter().flat_map(|ran| ran.by_node.iter().map(|(node, _)| *node));
        let of_drawn = self.drawn.iter().flat_map(|drawn| drawn.iter().map(|(_, node)| *node));
        let of_ranges = ranges.iter().flat_map(|range| range.nodes.iter().map(|(node, _)| *node));
        if of_ranges.chain(of_drawn).chain(of_ran).any(|node| node >= NODES) {
            return Some("a node that no kernel has");
        }
        let ran = self.ran.as_ref()?;
        if unordered(&ran.by_node) {
            return Some("nodes out of order");
        }
        (ran.since > self.when.end).then_some("time that ran backwards")
    }

    /// The node of the page that holds an address, where all of its range was counted and lies on one: which pages of a range
    /// are counted is not told.
    #[must_use]
    pub fn node_of(&self, address: u64) -> Option<u32> {
        let ranges = self.ranges.as_deref()?;
        let at = ranges.partition_point(|range| range.extent.end <= address);
        let range = ranges.get(at).filter(|range| range.extent.contains(address))?;
        match range.nodes.as_slice() {
            [(node, bytes)] if *bytes >= range.extent.len() => Some(*node),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NodeRange, Placed, Policy, Ran};
    use crate::identity::Extent;
    use crate::time::MonoTime;

    fn range(start: u64, len: u64, nodes: &[(u32, u64)]) -> NodeRange {
        let extent = Extent::new(start, len);
        NodeRange { extent, policy: Policy::Default, nodes: nodes.to_vec() }
    }

    fn of(ranges: &[NodeRange]) -> Placed {
        Placed { ranges: Some(ranges.into()), ..Placed::default() }
    }

    #[test]
    fn what_contradicts_itself_is_named() {
        let good = of(&[range(0, 8, &[(0, 4), (2, 4)]), range(8, 8, &[(1, 8)])]);
        assert_eq!(good.fault(), None);
        assert_eq!(of(&[range(8, 0, &[])]).fault(), Some("an empty range"));
        assert_eq!(of(&[range(0, 9, &[]), range(8, 8, &[])]).fault(), Some("ranges overlap"));
        let twice = of(&[range(0, 8, &[(1, 4), (1, 4)])]);
        assert_eq!(twice.fault(), Some("nodes out of order"));
        let all = of(&[range(0, 8, &[(0, u64::MAX), (1, 1)])]);
        assert_eq!(all.fault(), Some("more bytes than there are"));
        let ran = Ran { since: MonoTime(1), by_node: [(0, 1)].into() };
        let early = Placed { ran: Some(ran), ..good };
        assert_eq!(early.fault(), Some("time that ran backwards"));
    }

    #[test]
    fn no_evidence_names_more_nodes_than_kernels_have() {
        let beyond = Some("a node that no kernel has");
        for (node, fault) in [(1023, None), (1024, beyond), (u32::MAX, beyond)] {
            let ran = Some(Ran { since: MonoTime(0), by_node: [(node, 1)].into() });
            assert_eq!(Placed { ran, ..Placed::default() }.fault(), fault);
            let drawn = Some([(7, node)].into());
            assert_eq!(Placed { drawn, ..Placed::default() }.fault(), fault);
            assert_eq!(of(&[range(0, 8, &[(0, 1), (node, 1)])]).fault(), fault);
        }
    }

    #[test]
    fn a_page_has_a_node_only_where_its_whole_range_lies_on_one() {
        let placed = of(&[
            range(0, 8, &[(3, 8)]),
            range(8, 8, &[(0, 4), (1, 4)]),
            range(32, 8, &[]),
            range(40, 8, &[(3, 7)]),
        ]);
        let asked = [0, 7, 8, 16, 20, 32, 99];
        let told = asked.map(|address| placed.node_of(address));
        assert_eq!(told, [Some(3), Some(3), None, None, None, None, None]);
        assert_eq!(placed.node_of(40), None, "a page of it was not counted, and may be this one");
        assert_eq!(Placed::default().node_of(0), None);
    }
}
