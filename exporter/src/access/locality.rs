//! How far a page lies from a CPU: the method `placement`. What the hardware says itself is the method `served`
//! ([`memprov_ledger::evidence::Served::locality`]).
//!
//! Both can be right and differ: what is in a cache is served from there wherever its page lies. Only for what memory
//! itself answered do they speak of the same thing.

use memprov_ledger::evidence::{Access, Locality, Served};

/// How far a page on node `page` is for a CPU of node `cpu`. Another node is remote: whether it is near, or a tier without
/// CPUs, no source of evidence tells.
#[must_use]
pub fn between(cpu: Option<u32>, page: Option<u32>) -> Locality {
    match (cpu, page) {
        (Some(cpu), Some(page)) if cpu == page => Locality::Local,
        (Some(_), Some(_)) => Locality::Remote,
        (None, _) | (_, None) => Locality::Unknown,
    }
}

/// Where an access went by each of [`super::sums::Method::ALL`].
#[must_use]
pub fn went(access: &Access) -> [Locality; 2] {
    [access.locality_served(), between(access.cpu_node, access.page_node)]
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

    use super::{between, contradict};

    #[test]
    fn another_node_is_remote_and_what_is_not_told_is_unknown() {
        assert_eq!(between(Some(1), Some(1)), Locality::Local);
        assert_eq!(between(Some(0), Some(1)), Locality::Remote);
        assert_eq!(between(None, Some(0)), Locality::Unknown);
        assert_eq!(between(Some(0), None), Locality::Unknown);
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
