//! From samples to accesses: what the kernel's bits mean.
//!
//! The rules for what is remote. Neither the remote bit nor `REM_CCE1` alone means another node: AMD sets both for another
//! core of the same node and says so by its hops (kernel `arch/x86/events/amd/ibs.c`), Intel never sets hops and sets the
//! remote bit for another node only (`arch/x86/events/intel/ds.c`).

use memprov_ledger::evidence::{Access, Blocked, Op, Population, Served, Snoop, Timing, Tlb};
use memprov_ledger::identity::{PAGE, Tgid};
use memprov_ledger::time::{MonoTime, Span};

use crate::data_src::{DataSource, blocked, level, level_number, lock, op, snoop, tlb};
use crate::ibs;
use crate::nodes::Nodes;
use crate::record::sample::{ADDR, DATA_SRC, RAW, Sample, Weight};

/// What the samples of an event are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// What they are drawn from.
    pub population: Population,
    /// What their weight is the time of.
    pub timing: Timing,
    /// What each stands for where it does not say so itself: the period that was asked for.
    pub period: Option<u64>,
    /// A clock or counter of the kernel, which accesses nothing: it has a data source, of nothing, where one was asked for.
    pub inert: bool,
}

impl Kind {
    /// Whether samples with these fields tell of accesses.
    pub(crate) fn tells_accesses(self, sample_type: u64) -> bool {
        let told = sample_type & (ADDR | DATA_SRC) != 0 || self.is_ibs() && sample_type & RAW != 0;
        told && !self.inert
    }

    fn is_ibs(self) -> bool {
        (self.population, self.timing) == (Population::Operations, Timing::Miss)
    }
}

/// Where and when a sample was taken, in numbers as the hardware and the kernel write them: 0 is none.
pub(super) struct Taken {
    pub(super) when: MonoTime,
    pub(super) cpu: Option<u32>,
    pub(super) ip: Option<u64>,
    pub(super) address: Option<u64>,
    /// Physical address.
    pub(super) physical: Option<u64>,
    pub(super) period: Option<u64>,
    /// Cycles.
    pub(super) latency: Option<u64>,
}

/// What samples of all hardware have in common.
pub(super) fn base(taken: Taken, of: Kind, nodes: &Nodes) -> Access {
    let some = |number: &u64| *number != 0;
    let frame = taken.physical.filter(some).map(|address| address / PAGE);
    let latency = taken.latency.filter(some);
    Access {
        when: Span::at(taken.when),
        cpu: taken.cpu,
        cpu_node: taken.cpu.and_then(|cpu| nodes.of_cpu(cpu)),
        page_node: frame.and_then(|frame| nodes.of_frame(frame)),
        ip: taken.ip.filter(some),
        address: taken.address.filter(some),
        frame,
        population: of.population,
        period: taken.period.or(of.period).filter(some),
        latency,
        timing: if latency.is_some() { of.timing } else { Timing::Unknown },
        ..Access::default()
    }
}

/// The access that a sample tells of; nothing without its time.
pub(crate) fn access(sample: &Sample<'_>, of: Kind, nodes: &Nodes) -> Option<Access> {
    // Ids that the kernel had none for, and numbers that mean "none".
    let known = |id: &u32| *id != u32::MAX;
    let weight = sample.weight.map(|weight| match weight {
        Weight::Full(whole) => whole,
        Weight::Three(first, _, _) => u64::from(first),
    });
    let raw = sample.data_src.filter(|bits| *bits != 0);
    let source = DataSource(raw.unwrap_or_default());
    let taken = Taken {
        when: MonoTime(sample.time?),
        cpu: sample.cpu.filter(known),
        ip: sample.ip,
        address: sample.address,
        physical: sample.physical,
        period: sample.period,
        latency: weight,
    };
    let access = Access {
        tgid: sample.task.map(|(pid, _)| pid).filter(known).map(Tgid),
        tid: sample.task.map(|(_, tid)| tid).filter(known),
        page_size: sample.data_page_size.filter(|bytes| *bytes != 0),
        op: op_of(source),
        served: served(source),
        snoop: snoop_of(source),
        tlb: tlb_of(source),
        locked: raw.and_then(|_| locked(source)),
        blocked: blocked_of(source),
        raw,
        ..base(taken, of, nodes)
    };
    let op = sample.raw.filter(|_| of.is_ibs() && raw.is_none()).and_then(ibs::Op::read);
    Some(match op {
        Some(op) => operation(op, access, nodes),
        None => access,
    })
}

/// What the registers of IBS say, for kernels that say nothing else; by the kernel's own rules since 6.1. Of an operation
/// that is neither a load nor a store they say nothing.
fn operation(op: ibs::Op, access: Access, nodes: &Nodes) -> Access {
    if !op.load() && !op.store() {
        return access;
    }
    let frame = op.physical().filter(|address| *address != 0).map(|address| address / PAGE);
    let latency = Some(op.latency()).filter(|cycles| op.load() && op.missed() && *cycles != 0);
    let answered = match op.source() {
        _ if op.uncached() => Served::Uncached,
        _ if !op.missed() => Served::Level1,
        // Zen 4 counts as hits of the second level what never went there.
        _ if !op.missed_level2() && !op.prefetch() && !op.line_under_way() => Served::Level2,
        source if op.load() && source != ibs::Source::None => source_of(source, op.remote()),
        _ if op.line_under_way() => Served::LineFillBuffer,
        _ => Served::NotAvailable,
    };
    let cached = matches!(answered, Served::NeighbourCache | Served::RemoteCache { .. });
    let tlb = match op.tlb_misses() {
        _ if op.address().is_none() => Tlb::Unknown,
        (false, _) => Tlb::Level1,
        (true, false) => Tlb::Level2,
        (true, true) => Tlb::Walk,
    };
    Access {
        ip: Some(op.rip).filter(|ip| *ip != 0).or(access.ip),
        address: op.address().filter(|address| *address != 0),
        frame,
        page_node: frame.and_then(|frame| nodes.of_frame(frame)),
        latency,
        timing: if latency.is_some() { Timing::Miss } else { Timing::Unknown },
        op: if op.load() { Op::Load } else { Op::Store },
        served: answered,
        snoop: if cached && op.modified() { Snoop::HitModified } else { Snoop::Unknown },
        tlb,
        locked: Some(op.locked()),
        ..access
    }
}

fn source_of(source: ibs::Source, remote: bool) -> Served {
    match source {
        ibs::Source::None => Served::NotAvailable,
        ibs::Source::LocalCache => Served::Level3,
        ibs::Source::NodeCache | ibs::Source::NearCache => Served::NeighbourCache,
        ibs::Source::FarCache => Served::RemoteCache { hops: Some(1) },
        ibs::Source::Memory if remote => Served::RemoteMemory { hops: Some(1) },
        ibs::Source::Memory => Served::Local,
        ibs::Source::Pmem => Served::Pmem,
        ibs::Source::Io => Served::Io,
        ibs::Source::Extension => Served::Cxl,
    }
}

fn op_of(source: DataSource) -> Op {
    match source.op() {
        op::LOAD => Op::Load,
        op::STORE => Op::Store,
        op::PREFETCH => Op::Prefetch,
        op::EXEC => Op::Execute,
        _ => Op::Unknown,
    }
}

const REMOTE_RAM: u64 = level::REMOTE_RAM1 | level::REMOTE_RAM2;
const REMOTE_CACHE: u64 = level::REMOTE_CACHE1 | level::REMOTE_CACHE2;
const CACHES: u64 = level::L1 | level::LFB | level::L2 | level::L3;

/// What answered.
pub(crate) fn served(source: DataSource) -> Served {
    let said = source.level();
    // What was named was missed; what answered then is not told.
    if said & level::MISS != 0 && said & level::HIT == 0 {
        return Served::NotAvailable;
    }
    let said = said & !(level::NA | level::HIT | level::MISS);
    let number = source.level_number();
    let memory = number == level_number::RAM || said & (REMOTE_RAM | level::LOCAL_RAM) != 0;
    match number {
        level_number::PMEM => return Served::Pmem,
        level_number::CXL => return Served::Cxl,
        _ => {}
    }
    let far = said & (REMOTE_RAM | REMOTE_CACHE) != 0;
    match source.hops() {
        0 if source.remote() || far => remote(source, said, memory),
        0 => near(said, number),
        1 if memory => Served::Ambiguous,
        1 => Served::NeighbourCache,
        hops @ 2..=4 => {
            let hops = u8::try_from(hops - 1).ok();
            match said {
                said if said & level::LOCAL_RAM != 0 => Served::Ambiguous,
                _ if memory => Served::RemoteMemory { hops },
                _ => Served::RemoteCache { hops },
            }
        }
        _ => Served::Unknown,
    }
}

/// Beyond the node, and how far is not told: by its bit, or by the older naming alone.
fn remote(source: DataSource, said: u64, memory: bool) -> Served {
    let both = said & REMOTE_RAM != 0 && said & REMOTE_CACHE != 0;
    // Before Linux 6.2 AMD named so what may be another core of the node.
    let here = said & level::LOCAL_RAM != 0 || !source.remote() && said & CACHES != 0;
    match source.level_number() {
        _ if both || here => Served::Ambiguous,
        level_number::IO => Served::Io,
        level_number::UNCACHED => Served::Uncached,
        _ if memory => Served::RemoteMemory { hops: None },
        0 | level_number::NA if said & REMOTE_CACHE == 0 => Served::Unknown,
        _ => Served::RemoteCache { hops: None },
    }
}

/// Nothing says that it was beyond the core.
fn near(said: u64, number: u64) -> Served {
    let by_bits = match said {
        0 => None,
        level::L1 => Some(Served::Level1),
        level::LFB => Some(Served::LineFillBuffer),
        level::L2 => Some(Served::Level2),
        level::L3 => Some(Served::Level3),
        level::LOCAL_RAM => Some(Served::Local),
        level::IO => Some(Served::Io),
        level::UNCACHED => Some(Served::Uncached),
        _ => Some(Served::Ambiguous),
    };
    let by_number = match number {
        0 | level_number::NA => return by_bits.unwrap_or_default(),
        level_number::L0 => Served::Level0,
        level_number::L1 => Served::Level1,
        level_number::L2 => Served::Level2,
        level_number::L2_MHB => Served::Level2Buffer,
        level_number::L3 => Served::Level3,
        level_number::L4 => Served::Level4,
        level_number::MSC => Served::MemorySideCache,
        level_number::UNCACHED => Served::Uncached,
        level_number::IO => Served::Io,
        level_number::ANY_CACHE => Served::AnyCache,
        level_number::LFB => Served::LineFillBuffer,
        level_number::RAM => Served::Local,
        _ => Served::Unknown,
    };
    // The older naming has no words for some of the newer.
    let agrees = match (by_bits, by_number) {
        (None, _) => true,
        (Some(Served::Level1), Served::Level0) => true,
        (Some(Served::Level2), Served::Level2Buffer) => true,
        (Some(older), newer) => older == newer,
    };
    if agrees { by_number } else { Served::Ambiguous }
}

fn snoop_of(source: DataSource) -> Snoop {
    match (source.snoop() & !snoop::NA, source.snoop_more()) {
        (snoop::HITM, _) => Snoop::HitModified,
        (_, snoop::FORWARD) => Snoop::Forwarded,
        (_, snoop::PEER) => Snoop::Peer,
        (snoop::HIT, 0) => Snoop::Hit,
        (snoop::MISS, 0) => Snoop::Miss,
        (snoop::NONE, 0) => Snoop::None,
        _ => Snoop::Unknown,
    }
}

fn tlb_of(source: DataSource) -> Tlb {
    const BOTH: u64 = tlb::L1 | tlb::L2;
    let said = source.tlb();
    match said & !(tlb::NA | tlb::HIT | tlb::MISS) {
        tlb::FAULT => Tlb::Fault,
        tlb::WALKER => Tlb::Walk,
        tlb::L2 | BOTH if said & tlb::MISS != 0 => Tlb::Walk,
        tlb::L1 if said & tlb::HIT != 0 => Tlb::Level1,
        tlb::L2 if said & tlb::HIT != 0 => Tlb::Level2,
        BOTH if said & tlb::HIT != 0 => Tlb::Hit,
        _ => Tlb::Unknown,
    }
}

fn locked(source: DataSource) -> Option<bool> {
    (source.lock() & lock::NA == 0).then_some(source.lock() & lock::LOCKED != 0)
}

fn blocked_of(source: DataSource) -> Blocked {
    match source.blocked() & !blocked::NA {
        blocked::DATA => Blocked::Data,
        blocked::ADDRESS => Blocked::Address,
        0 => Blocked::Unknown,
        _ => Blocked::Both,
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::{Access, Locality, Op, Population, Served, Snoop, Timing, Tlb};
    use memprov_ledger::identity::Tgid;

    use super::{Kind, access, served};
    use crate::data_src::{DataSource, level, level_number};
    use crate::nodes::Nodes;
    use crate::record::sample::{RAW, Sample, Weight};

    fn source(said: u64, number: u64, remote: u64, hops: u64) -> Served {
        served(DataSource((said | level::HIT) << 5 | number << 33 | remote << 37 | hops << 43))
    }

    #[test]
    fn what_intel_and_amd_write_is_told_as_they_mean_it() {
        use level_number::{ANY_CACHE, L3, RAM};
        let any = |hops| Served::RemoteCache { hops };
        let ram = |hops| Served::RemoteMemory { hops };
        // Intel: an older table with another number, servers, older kernels without numbers.
        assert_eq!(source(level::REMOTE_RAM1, L3, 1, 0), ram(None));
        assert_eq!(source(0, RAM, 1, 0), ram(None));
        assert_eq!(source(0, ANY_CACHE, 1, 0), any(None));
        assert_eq!(source(level::REMOTE_CACHE1, 0, 0, 0), any(None));
        assert_eq!(source(level::LOCAL_RAM, RAM, 0, 0), Served::Local);
        // AMD: near and far complexes, memory of this and of another node.
        assert_eq!(source(level::L3 | level::REMOTE_CACHE1, L3, 0, 1), Served::NeighbourCache);
        assert_eq!(source(level::REMOTE_CACHE1, ANY_CACHE, 1, 1), Served::NeighbourCache);
        assert_eq!(source(level::REMOTE_CACHE2, ANY_CACHE, 1, 2), any(Some(1)));
        assert_eq!(source(level::REMOTE_RAM1, RAM, 1, 2), ram(Some(1)));
        assert_eq!(source(0, RAM, 1, 4), ram(Some(3)));
    }

    #[test]
    fn sources_that_exclude_each_other_are_ambiguous_and_new_ones_unknown() {
        assert_eq!(served(DataSource(0x51_088_842)), Served::Ambiguous, "L3 and a remote cache");
        assert_eq!(source(level::L1, level_number::L3, 0, 0), Served::Ambiguous);
        assert_eq!(source(level::LOCAL_RAM, 0, 1, 0), Served::Ambiguous);
        assert_eq!(source(level::L1 | level::L2, 0, 0, 0), Served::Ambiguous);
        assert_eq!(source(0, 0, 0, 7), Served::Unknown);
        assert_eq!(source(0, 0, 1, 0), Served::Unknown);
        assert_eq!(source(level::L2, level_number::L2_MHB, 0, 0), Served::Level2Buffer);
    }

    #[test]
    fn another_tier_is_no_distance_and_a_miss_no_place() {
        assert_eq!(source(0, level_number::PMEM, 1, 0).locality(), Locality::Tier);
        assert_eq!(source(0, level_number::CXL, 1, 2), Served::Cxl);
        let miss = DataSource((level::L1 | level::MISS) << 5 | 4);
        assert_eq!(served(miss), Served::NotAvailable);
        assert_eq!(served(DataSource(0x1e_0508_0021)), Served::NotAvailable);
        assert_eq!(served(DataSource(0)), Served::NotAvailable);
    }

    #[test]
    fn where_a_kernel_says_nothing_the_registers_of_ibs_do() {
        let raw = |data2: u64, data3: u64| -> Vec<u8> {
            let words = [0, 0x40_0000, 0, data2, data3, 0x5000, 0x12_345_678];
            let words = words.iter().flat_map(|word: &u64| word.to_le_bytes());
            [0; 4].into_iter().chain(words).collect()
        };
        let (population, timing) = (Population::Operations, Timing::Miss);
        let kind = Kind { population, timing, ..Kind::default() };
        let told = |raw: &[u8]| {
            let sample = Sample { time: Some(5), raw: Some(raw), ..Sample::default() };
            access(&sample, kind, &Nodes::default()).unwrap()
        };
        // A load that missed both levels, with both addresses, 300 cycles.
        let missed = 1 | 1 << 7 | 1 << 17 | 1 << 18 | 1 << 20 | 300 << 32;
        let far = told(&raw(0x13, missed));
        assert_eq!((far.op, far.served), (Op::Load, Served::RemoteMemory { hops: Some(1) }));
        assert_eq!((far.address, far.frame, far.latency), (Some(0x5000), Some(0x12345), Some(300)));
        assert_eq!(told(&raw(0x3, missed)).served, Served::Local);
        let hit = told(&raw(0, 1 | 1 << 17 | 300 << 32));
        assert_eq!((hit.served, hit.latency), (Served::Level1, None), "hits have no latency");
        let store = told(&raw(0x13, missed & !1 | 2));
        assert_eq!((store.op, store.served), (Op::Store, Served::NotAvailable));
        let other = told(&raw(0x13, missed & !1));
        assert_eq!(
            (other.op, other.address, other.served),
            (Op::Unknown, None, Served::NotAvailable)
        );
        assert!(kind.tells_accesses(RAW) && !Kind::default().tells_accesses(RAW));
    }

    #[test]
    fn what_is_zero_or_minus_one_is_not_there() {
        let empty = Sample {
            time: Some(5),
            task: Some((u32::MAX, u32::MAX)),
            cpu: Some(u32::MAX),
            ip: Some(0),
            address: Some(0),
            period: Some(0),
            weight: Some(Weight::Full(0)),
            data_src: Some(0),
            physical: Some(0),
            data_page_size: Some(0),
            ..Sample::default()
        };
        let kind = Kind { timing: Timing::Use, ..Kind::default() };
        let read = access(&empty, kind, &Nodes::default()).unwrap();
        assert_eq!(read, Access { when: read.when, ..Access::default() });
        assert_eq!(access(&Sample { time: None, ..empty }, kind, &Nodes::default()), None);
    }

    #[test]
    fn a_sample_of_a_load_is_read_whole() {
        let sample = Sample {
            time: Some(5),
            task: Some((7, 9)),
            cpu: Some(3),
            address: Some(0x5000),
            weight: Some(Weight::Three(225, 9, 9)),
            data_src: Some(0x11_868_100_242),
            physical: Some(0x1234_5678),
            ..Sample::default()
        };
        let population = Population::Loads;
        let kind = Kind { population, timing: Timing::Use, period: Some(10009), inert: false };
        let nodes = Nodes::new([(3, 1)].into(), vec![(0x12_345, 0x12_346, 0)]);
        let read = access(&sample, kind, &nodes).unwrap();
        assert_eq!((read.tgid, read.tid, read.period), (Some(Tgid(7)), Some(9), Some(10009)));
        assert_eq!((read.latency, read.timing), (Some(225), Timing::Use));
        assert_eq!((read.op, read.served), (Op::Load, Served::LineFillBuffer));
        assert_eq!((read.snoop, read.tlb, read.locked), (Snoop::None, Tlb::Hit, Some(false)));
        assert_eq!((read.cpu_node, read.page_node), (Some(1), Some(0)));
        assert_eq!((read.frame, read.population), (Some(0x12_345), population));
    }
}
