//! From operations that Arm's SPE sampled to accesses.
//!
//! Numbers of sources are the implementation's. Those of Neoverse and Cortex cores (their Technical Reference Manuals,
//! "Data source packet"), of AmpereOne and of HiSilicon's HIP12 are known, as perf knows them (`util/arm-spe.c`); of other
//! cores the events tell as far as they go. For stores nobody says what answered.

use memprov_ledger::evidence::{Access, Op, Served, Snoop, Tlb};
use memprov_ledger::time::MonoTime;

use super::Kind;
use super::access::{Taken, base};
use crate::nodes::Nodes;
use crate::spe::{Operation, event};

/// Where an operation was sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// When.
    pub(crate) when: MonoTime,
    /// The CPU.
    pub(crate) cpu: Option<u32>,
    /// Its main id register.
    pub(crate) midr: Option<u64>,
    /// Which node it and the page belong to.
    pub(crate) nodes: &'a Nodes,
}

/// The access of an operation; nothing where it accessed no memory. Its thread may be told, its process never.
pub(crate) fn operation(sampled: &Operation, of: Kind, place: Place<'_>) -> Option<Access> {
    let store = sampled.store()?;
    let Place { when, cpu, midr, nodes } = place;
    let taken = Taken {
        when,
        cpu,
        ip: sampled.ip,
        address: sampled.address,
        physical: sampled.physical,
        period: None,
        latency: sampled.total,
    };
    let (served, snoop) =
        if store { (Served::NotAvailable, Snoop::Unknown) } else { answered(sampled, midr) };
    Some(Access {
        tid: sampled.context.and_then(|id| u32::try_from(id).ok()).filter(|id| *id != 0),
        op: if store { Op::Store } else { Op::Load },
        served,
        snoop,
        tlb: tlb(sampled.events),
        locked: Some(sampled.atomic()),
        ..base(taken, of, nodes)
    })
}

/// Which numbers a core has for sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Common,
    AmpereOne,
    Hip12,
}

/// By implementer and part of the main id register (kernel `arch/arm64/include/asm/cputype.h`).
fn numbers(midr: u64) -> Option<Numbers> {
    match (midr >> 24 & 0xff, midr >> 4 & 0xfff) {
        // Cortex A720, A725, X1C, X3, X925; Neoverse N1, V1, N2, V2.
        (0x41, 0xd81 | 0xd87 | 0xd4c | 0xd4e | 0xd85 | 0xd0c | 0xd40 | 0xd49 | 0xd4f) => {
            Some(Numbers::Common)
        }
        (0xc0, 0xac4) => Some(Numbers::AmpereOne),
        (0x48, 0xd06) => Some(Numbers::Hip12),
        _ => None,
    }
}

fn answered(sampled: &Operation, midr: Option<u64>) -> (Served, Snoop) {
    let Some((source, numbers)) = sampled.source.zip(midr.and_then(numbers)) else {
        return by_events(sampled.events);
    };
    let remote = Served::RemoteCache { hops: None };
    match (numbers, source) {
        (Numbers::Common, 0x0) | (Numbers::AmpereOne, 0x8) => (Served::Level1, Snoop::None),
        (Numbers::Common, 0x8) | (Numbers::AmpereOne, 0x9) => (Served::Level2, Snoop::None),
        // Another core, of this cluster or another; AmpereOne says a device so, too.
        (Numbers::Common, 0x9 | 0xa | 0xc) | (Numbers::AmpereOne, 0x0) => {
            (Served::NeighbourCache, Snoop::Peer)
        }
        (Numbers::Common, 0xb) | (Numbers::AmpereOne, 0x3) => (Served::Level3, Snoop::Hit),
        (Numbers::Common, 0xd) | (Numbers::AmpereOne, 0x5) => (remote, Snoop::Peer),
        (Numbers::Common, 0xe) | (Numbers::AmpereOne, 0x7) => (Served::Local, Snoop::None),
        (Numbers::Hip12, 18) => (Served::Level1, Snoop::None),
        (Numbers::Hip12, 16) => (Served::Level2, Snoop::None),
        (Numbers::Hip12, 17) => (Served::Level2, Snoop::HitModified),
        (Numbers::Hip12, 0 | 4) => (Served::NeighbourCache, Snoop::Peer),
        (Numbers::Hip12, 1 | 5) => (Served::NeighbourCache, Snoop::HitModified),
        (Numbers::Hip12, 2) => (Served::Level3, Snoop::Hit),
        (Numbers::Hip12, 3) => (Served::Level3, Snoop::HitModified),
        (Numbers::Hip12, 6) => (remote, Snoop::Peer),
        (Numbers::Hip12, 7) => (remote, Snoop::HitModified),
        (Numbers::Hip12, 8) => (Served::Local, Snoop::None),
        (Numbers::Hip12, 9) => (Served::RemoteMemory { hops: None }, Snoop::None),
        (Numbers::Hip12, 13) => (Served::Io, Snoop::Unknown),
        _ => (Served::Unknown, Snoop::Unknown),
    }
}

/// The nearest cache that was asked and did not miss. Whoever missed everywhere was answered by something that no event
/// names; another socket answered from a cache or from memory, which none says either.
fn by_events(events: u64) -> (Served, Snoop) {
    let hit = |access: u64, miss: u64| events & access != 0 && events & miss == 0;
    let served = if events & event::REMOTE != 0 {
        Served::RemoteCache { hops: None }
    } else if hit(event::L1_ACCESS, event::L1_REFILL) {
        Served::Level1
    } else if hit(event::L2_ACCESS, event::L2_MISS) {
        Served::Level2
    } else if hit(event::LLC_ACCESS, event::LLC_MISS) {
        Served::Level3
    } else {
        Served::NotAvailable
    };
    let modified = events & event::MODIFIED != 0;
    (served, if modified { Snoop::HitModified } else { Snoop::Unknown })
}

fn tlb(events: u64) -> Tlb {
    match (events & event::TLB_ACCESS != 0, events & event::TLB_WALK != 0) {
        (_, true) => Tlb::Walk,
        (true, false) => Tlb::Hit,
        (false, false) => Tlb::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::{Locality, Op, Population, Served, Snoop, Timing, Tlb};
    use memprov_ledger::time::MonoTime;

    use super::{Place, by_events, operation};
    use crate::evidence::Kind;
    use crate::nodes::Nodes;
    use crate::spe::{Operation, event};

    const N1: u64 = 0x413f_d0c1;
    const LOAD: Operation = Operation {
        kind: Some((1, 0)),
        ip: Some(0x40_0000),
        address: Some(0x5000),
        physical: Some(0x1234_5678),
        total: Some(300),
        events: event::L1_ACCESS | event::L1_REFILL | event::TLB_ACCESS,
        source: Some(0xd),
        context: Some(9),
        time: Some(1),
    };

    fn told(sampled: Operation, midr: u64) -> Option<memprov_ledger::evidence::Access> {
        let nodes = Nodes::new([(3, 1)].into(), vec![(0x12_345, 0x12_346, 0)]);
        let (population, timing) = (Population::Operations, Timing::Whole);
        let kind = Kind { population, timing, period: Some(4096), inert: false };
        let place = Place { when: MonoTime(7), cpu: Some(3), midr: Some(midr), nodes: &nodes };
        operation(&sampled, kind, place)
    }

    #[test]
    fn a_load_is_told_with_its_total_latency_its_frame_and_where_it_was_answered() {
        let access = told(LOAD, N1).unwrap();
        assert_eq!((access.tgid, access.tid, access.cpu), (None, Some(9), Some(3)));
        assert_eq!((access.address, access.frame), (Some(0x5000), Some(0x12_345)));
        assert_eq!((access.cpu_node, access.page_node), (Some(1), Some(0)));
        assert_eq!((access.latency, access.timing), (Some(300), Timing::Whole));
        assert_eq!((access.period, access.op), (Some(4096), Op::Load));
        assert_eq!(
            (access.served, access.snoop),
            (Served::RemoteCache { hops: None }, Snoop::Peer)
        );
        assert_eq!((access.tlb, access.locked), (Tlb::Hit, Some(false)));
        assert_eq!(access.served.locality(), Locality::Remote);
    }

    #[test]
    fn numbers_of_sources_are_those_of_the_core_and_unknown_ones_stay_unknown() {
        let served =
            |midr, source| told(Operation { source: Some(source), ..LOAD }, midr).unwrap().served;
        let (ampere, hip) = (0xc00f_ac40, 0x481f_d060);
        assert_eq!(
            (served(N1, 0), served(ampere, 8), served(hip, 18)),
            (Served::Level1, Served::Level1, Served::Level1)
        );
        assert_eq!(
            (served(N1, 0xe), served(ampere, 7), served(hip, 8)),
            (Served::Local, Served::Local, Served::Local)
        );
        assert_eq!(served(hip, 9), Served::RemoteMemory { hops: None });
        assert_eq!(
            (served(N1, 3), served(ampere, 0xe), served(hip, 15)),
            (Served::Unknown, Served::Unknown, Served::Unknown)
        );
        // A core without a table of its own: the events say that the first level missed, and no more.
        assert_eq!(served(0x411f_d801, 0xd), Served::NotAvailable);
    }

    #[test]
    fn of_stores_no_source_is_told_and_what_is_no_access_is_none() {
        let store = told(Operation { kind: Some((1, 1)), ..LOAD }, N1).unwrap();
        assert_eq!((store.op, store.served), (Op::Store, Served::NotAvailable));
        assert_eq!(told(Operation { kind: Some((2, 1)), ..LOAD }, N1), None);
        assert_eq!(told(Operation { kind: None, ..LOAD }, N1), None);
        let empty = Operation { kind: Some((1, 0)), ..Operation::default() };
        let empty = told(empty, N1).unwrap();
        assert_eq!((empty.address, empty.latency, empty.timing), (None, None, Timing::Unknown));
    }

    #[test]
    fn events_tell_the_nearest_cache_that_had_the_line() {
        use event::{L1_ACCESS, L1_REFILL, L2_ACCESS, L2_MISS, LLC_ACCESS, LLC_MISS, REMOTE};
        let served = |events| by_events(events).0;
        assert_eq!(served(L1_ACCESS), Served::Level1);
        assert_eq!(served(L1_ACCESS | L1_REFILL | L2_ACCESS), Served::Level2);
        assert_eq!(served(L1_ACCESS | L1_REFILL | LLC_ACCESS), Served::Level3);
        let missed = L1_ACCESS | L1_REFILL | L2_ACCESS | L2_MISS | LLC_ACCESS | LLC_MISS;
        assert_eq!((served(missed), served(0)), (Served::NotAvailable, Served::NotAvailable));
        assert_eq!(served(missed | REMOTE).locality(), Locality::Remote);
    }
}
