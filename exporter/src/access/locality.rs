//! How far a page lies from a CPU: the method `placement`. What the hardware says itself is the method `served`
//! ([`memprov_ledger::evidence::Served::locality`]).
//!
//! Both can be right and differ: what is in a cache is served from there wherever its page lies. Only for what memory
//! itself answered do they speak of the same thing.

use std::collections::BTreeMap;

use memprov_ledger::evidence::{Access, Locality, Served};
use memprov_ledger::ledger::Ledger;

use crate::report::NumaNode;

/// Distances up to this one are within a socket: 10 is the node itself, clusters of a socket have 11 to 13, and another
/// socket 16 and more (ACPI SLIT, as `/sys/devices/system/node/nodeN/distance` shows it).
const NEAR: u32 = 15;

/// The nodes of a host. Of one that is not among them only its number is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology(BTreeMap<u32, NumaNode>);

impl Topology {
    /// Of the nodes that a report's host has.
    #[must_use]
    pub fn of(nodes: &[NumaNode]) -> Self {
        Self(nodes.iter().map(|node| (node.node, node.clone())).collect())
    }

    /// Ids of its nodes, in order.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.keys().copied()
    }

    /// How far a page on node `page` is for a CPU of node `cpu`.
    #[must_use]
    pub fn between(&self, cpu: Option<u32>, page: Option<u32>) -> Locality {
        let (Some(cpu), Some(page)) = (cpu, page) else { return Locality::Unknown };
        let distances = self.0.get(&cpu).map(|node| node.distances.as_slice()).unwrap_or_default();
        if cpu == page {
            Locality::Local
        } else if self.0.get(&page).is_some_and(|node| node.cpus == 0) {
            Locality::Tier
        } else if distances.iter().any(|(node, distance)| *node == page && *distance <= NEAR) {
            Locality::Near
        } else {
            Locality::Remote
        }
    }

    /// Where an access went by each of [`super::sums::Method::ALL`]. Where the sample does not tell the node of the page, the
    /// newest reading of its process may.
    #[must_use]
    pub fn went(&self, access: &Access, ledger: &Ledger) -> [Locality; 2] {
        let page = access.page_node.or_else(|| ledger.node_of(access));
        [access.locality_served(), self.between(access.cpu_node, page)]
    }
}

/// Whether the two methods contradict each other: memory answered, and it is not the memory that the page lies in.
#[must_use]
pub fn contradict(served: Served, placement: Locality) -> bool {
    match (served, placement) {
        (_, Locality::Unknown) => false,
        (Served::Local, _) => placement != Locality::Local,
        (Served::RemoteMemory { .. }, _) => {
            matches!(placement, Locality::Local | Locality::Tier)
        }
        (Served::Pmem | Served::Cxl, _) => placement != Locality::Tier,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::{Locality, Served};

    use super::{NumaNode, Topology, contradict};

    #[test]
    fn a_socket_is_near_memory_without_cpus_is_a_tier_and_what_is_not_told_is_unknown() {
        let node = |node, cpus, distances: [u32; 4]| {
            let distances = (0..).zip(distances).collect();
            NumaNode { node, cpus, distances }
        };
        let topology = Topology::of(&[
            node(0, 4, [10, 12, 32, 50]),
            node(1, 4, [12, 10, 32, 50]),
            node(2, 4, [32, 32, 10, 50]),
            node(3, 0, [50, 50, 50, 10]),
        ]);
        let between = |cpu, page| topology.between(Some(cpu), Some(page));
        assert_eq!(between(0, 0), Locality::Local);
        assert_eq!(between(0, 1), Locality::Near);
        assert_eq!(between(0, 2), Locality::Remote);
        assert_eq!(between(2, 3), Locality::Tier);
        assert_eq!(topology.between(None, Some(0)), Locality::Unknown);
        assert_eq!(topology.between(Some(0), None), Locality::Unknown);
        // Of nodes that nothing is known of, another one is remote.
        assert_eq!(Topology::default().between(Some(0), Some(1)), Locality::Remote);
    }

    #[test]
    fn only_what_memory_answered_can_contradict_the_place_of_the_page() {
        let remote = Served::RemoteMemory { hops: Some(1) };
        assert!(contradict(Served::Local, Locality::Remote));
        assert!(contradict(remote, Locality::Local) && contradict(remote, Locality::Tier));
        assert!(contradict(Served::Cxl, Locality::Local));
        // AMD says one hop of another node of the socket, too.
        assert!(!contradict(remote, Locality::Near));
        for served in [Served::Level1, Served::RemoteCache { hops: None }, Served::NotAvailable] {
            assert!(!contradict(served, Locality::Remote) && !contradict(served, Locality::Local));
        }
        assert!(!contradict(Served::Local, Locality::Unknown));
    }
}
