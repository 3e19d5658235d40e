//! How far a page lies from a CPU: the method `placement`. What the hardware says itself is the method `served`
//! ([`memprov_ledger::evidence::Served::locality`]).
//!
//! Both can be right and differ: what is in a cache is served from there wherever its page lies. Only for what memory
//! itself answered do they speak of the same thing.

use std::collections::BTreeMap;

use memprov_ledger::evidence::{Access, Locality, Served};

/// A NUMA node, as `/sys/devices/system/node` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The package (socket) of its CPUs; `None` where it is not known.
    pub package: Option<u32>,
    /// It has memory and no CPU: a tier (CXL, persistent memory, memory of a device).
    pub memory_only: bool,
}

/// The nodes of a host, by number. Of a node that is not among them only its number is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology(pub BTreeMap<u32, Node>);

impl Topology {
    /// How far a page on node `page` is for a CPU of node `cpu`.
    #[must_use]
    pub fn between(&self, cpu: Option<u32>, page: Option<u32>) -> Locality {
        let (Some(cpu), Some(page)) = (cpu, page) else { return Locality::Unknown };
        let node = |number| self.0.get(&number).copied().unwrap_or_default();
        let package = |number| node(number).package;
        if cpu == page {
            Locality::Local
        } else if node(page).memory_only {
            Locality::Tier
        } else if package(cpu).is_some() && package(cpu) == package(page) {
            // Sub-NUMA clusters.
            Locality::Near
        } else {
            Locality::Remote
        }
    }

    /// Where an access went by each of [`super::sums::Method::ALL`].
    #[must_use]
    pub fn went(&self, access: &Access) -> [Locality; 2] {
        [access.locality_served(), self.between(access.cpu_node, access.page_node)]
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
    use std::collections::BTreeMap;

    use memprov_ledger::evidence::{Locality, Served};

    use super::{Node, Topology, contradict};

    #[test]
    fn a_socket_is_near_memory_without_cpus_is_a_tier_and_what_is_not_told_is_unknown() {
        let node = |package, memory_only| Node { package, memory_only };
        let topology = Topology(BTreeMap::from([
            (0, node(Some(0), false)),
            (1, node(Some(0), false)),
            (2, node(Some(1), false)),
            (3, node(None, true)),
        ]));
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
