//! What a recording says of the machine and of its events (`HEADER_*` in `tools/perf/util/header.c`).

use std::collections::{BTreeMap, HashMap};

use memprov_ledger::evidence::{Population, Timing};
use memprov_ledger::identity::PAGE;

use super::bytes::{Bytes, text};
use super::header::Attribute;
use crate::evidence::Kind;
use crate::nodes::Nodes;

const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;
const ARCH: u32 = 6;
const CPUID: u32 = 9;
const EVENT_DESC: u32 = 12;
const NUMA_TOPOLOGY: u32 = 14;
const PMU_MAPPINGS: u32 = 16;
const MEM_TOPOLOGY: u32 = 22;
const DIR_FORMAT: u32 = 24;
const CLOCK_DATA: u32 = 29;

/// Nodes, CPUs and blocks of memory of one machine at most (`NR_CPUS` of x86-64; 2 MiB blocks of 32 TiB).
const NODES: u32 = 1024;
const CPUS: u32 = 8192;
const BLOCKS: u64 = 1 << 24;

// `PERF_TYPE_*`
const SOFTWARE: u32 = 1;
const RAW: u32 = 4;
const BREAKPOINT: u32 = 5;

/// The machine that a recording was made on. What the recording does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// `uname -n`.
    pub hostname: Option<String>,
    /// `uname -r`.
    pub release: Option<String>,
    /// `uname -m`.
    pub arch: Option<String>,
    /// Vendor, family, model, stepping; of arm64 the main id register.
    pub cpu: Option<String>,
    /// NUMA nodes; `None`: not told.
    pub node_count: Option<u32>,
    /// Which node CPUs and frames belong to.
    pub nodes: Nodes,
    /// One instant on the clock of the records and on that of the wall.
    pub clock: Option<ClockData>,
    /// It is one of several files in a directory.
    pub in_directory: bool,
    cpus: BTreeMap<u32, u32>,
    frames: Vec<(u64, u64, u32)>,
    pmus: HashMap<u32, String>,
    names: HashMap<u64, String>,
}

/// `HEADER_CLOCK_DATA`: one instant on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// The clock of the records, `CLOCK_*`.
    pub id: u32,
    /// Nanoseconds since 1970.
    pub wall: u64,
    /// The same instant on that clock, nanoseconds.
    pub time: u64,
}

impl About {
    /// Takes a feature in. Whether it was whole; of what is not, the begin is known.
    pub(super) fn learn(&mut self, feature: u32, bytes: &[u8]) -> bool {
        let mut fields = Bytes(bytes);
        let whole = match feature {
            HOSTNAME => fields.text().map(|text| self.hostname = Some(text)),
            OSRELEASE => fields.text().map(|text| self.release = Some(text)),
            ARCH => fields.text().map(|text| self.arch = Some(text)),
            CPUID => fields.text().map(|text| self.cpu = Some(text)),
            EVENT_DESC => self.events(&mut fields),
            NUMA_TOPOLOGY => self.topology(&mut fields),
            PMU_MAPPINGS => self.pmus(&mut fields),
            MEM_TOPOLOGY => self.memory(&mut fields),
            CLOCK_DATA => self.clock(&mut fields),
            DIR_FORMAT => {
                self.in_directory = true;
                Some(())
            }
            _ => Some(()),
        };
        self.nodes = Nodes::new(self.cpus.clone(), self.frames.clone());
        whole.is_some()
    }

    /// The main id register of an arm64 machine, whose cores are alike.
    pub(super) fn midr(&self) -> Option<u64> {
        u64::from_str_radix(self.cpu.as_deref()?.strip_prefix("0x")?, 16).ok()
    }

    fn events(&mut self, fields: &mut Bytes<'_>) -> Option<()> {
        let (count, _size) = (fields.u32()?, fields.u32()?);
        for _ in 0..count {
            Attribute::read(fields)?;
            let ids = fields.u32()?;
            let name = fields.text()?;
            for _ in 0..ids {
                self.names.insert(fields.u64()?, name.clone());
            }
        }
        Some(())
    }

    /// Nodes with the lists of their CPUs.
    fn topology(&mut self, fields: &mut Bytes<'_>) -> Option<()> {
        let count = fields.u32()?;
        self.node_count = Some(count).filter(|count| *count <= NODES);
        for _ in 0..count {
            let node = fields.u32()?;
            let (_total, _free) = (fields.u64()?, fields.u64()?);
            for part in fields.text()?.split(',').filter(|part| !part.is_empty()) {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                self.cpus
                    .extend((first..=last).take_while(|cpu| *cpu < CPUS).map(|cpu| (cpu, node)));
            }
        }
        Some(())
    }

    fn pmus(&mut self, fields: &mut Bytes<'_>) -> Option<()> {
        for _ in 0..fields.u32()? {
            let number = fields.u32()?;
            self.pmus.insert(number, fields.text()?);
        }
        Some(())
    }

    /// Blocks of memory that each node has, as bits: of each node its number and how many bits, then the bitmap, which
    /// says so once more (perf `util/header.c`, `write_mem_topology`, `do_write_bitmap`).
    fn memory(&mut self, fields: &mut Bytes<'_>) -> Option<()> {
        let (_version, size, nodes) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let block = size / PAGE;
        let mut frames: Vec<(u64, u64, u32)> = Vec::new();
        for _ in 0..nodes {
            let (node, count) = (u32::try_from(fields.u64()?).ok()?, fields.u64()?);
            let again = fields.u64()?;
            let count = Some(count).filter(|count| *count <= BLOCKS && *count == again)?;
            for word in 0..count.div_ceil(64) {
                let bits = fields.u64()?;
                let set = (0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| word * 64 + bit);
                for number in set {
                    let (first, end) =
                        (number.checked_mul(block)?, (number + 1).checked_mul(block)?);
                    match frames.last_mut() {
                        Some(last) if last.1 == first && last.2 == node => last.1 = end,
                        _ => frames.push((first, end, node)),
                    }
                }
            }
        }
        self.frames = frames;
        Some(())
    }

    fn clock(&mut self, fields: &mut Bytes<'_>) -> Option<()> {
        let (_version, id) = (fields.u32()?, fields.u32()?);
        let (wall, time) = (fields.u64()?, fields.u64()?);
        self.clock = Some(ClockData { id, wall, time });
        Some(())
    }

    /// `PERF_RECORD_EVENT_UPDATE`: of a stream, the name of an event.
    pub(super) fn update(&mut self, body: &[u8]) -> Option<()> {
        const NAME: u64 = 2;
        let mut fields = Bytes(body);
        let (what, id) = (fields.u64()?, fields.u64()?);
        if what == NAME {
            self.names.insert(id, text(fields.0));
        }
        Some(())
    }

    /// What perf called the event with one of these ids.
    pub(super) fn name(&self, ids: &[u64]) -> Option<&str> {
        ids.iter().find_map(|id| self.names.get(id)).map(String::as_str)
    }

    /// What the samples of an event are, by its PMU and the codes of Intel's events (kernel
    /// `arch/x86/events/intel/core.c`).
    pub(super) fn kind(&self, event: &Attribute) -> Kind {
        let pmu = self.pmus.get(&event.pmu).map_or("", String::as_str);
        let intel = self.cpu.as_deref().is_none_or(|cpu| cpu.starts_with("GenuineIntel"));
        let core = event.pmu == RAW || pmu.starts_with("cpu");
        let (population, timing) = match (event.pmu, event.config & 0xffff) {
            (SOFTWARE, 2 | 5 | 6) => (Population::Faults, Timing::Unknown),
            (BREAKPOINT, _) => (Population::Accesses, Timing::Unknown),
            _ if pmu.starts_with("ibs_op") => (Population::Operations, Timing::Miss),
            _ if pmu.starts_with("arm_spe") => (Population::Operations, Timing::Whole),
            (_, 0x1cd | 0x5d0) if core && intel => (Population::Loads, Timing::Use),
            (_, 0x82d0 | 0x2cd | 0x6d0) if core && intel => (Population::Stores, Timing::Unknown),
            _ => (Population::Unknown, Timing::Unknown),
        };
        let inert = event.pmu == SOFTWARE && population == Population::Unknown;
        Kind { population, timing, period: event.period, inert }
    }
}

#[cfg(test)]
mod tests {
    use super::{About, MEM_TOPOLOGY};

    fn section(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn blocks_of_memory_belong_to_the_node_that_perf_lists_them_at() {
        // As a machine of one node wrote it: blocks of 128 MiB, 0 to 23 and 32 to 199.
        let one = [1, 0x800_0000, 1, 0, 0xc8, 0xc8, 0xffff_ffff_00ff_ffff, !0, !0, 0xff];
        // The same, of which blocks from 128 on are another node's.
        let two = [
            1,
            0x800_0000,
            2,
            0,
            0xc8,
            0xc8,
            0xffff_ffff_00ff_ffff,
            !0,
            0,
            0, //
            1,
            0xc8,
            0xc8,
            0,
            0,
            !0,
            0xff,
        ];
        let of = |words: &[u64], block: u64| {
            let mut about = About::default();
            assert!(about.learn(MEM_TOPOLOGY, &section(words)));
            about.nodes.of_frame(block * 0x8000)
        };
        let blocks = [0, 23, 24, 31, 32, 63, 64, 127, 128, 199, 200];
        let (some, none) = (Some(0), None);
        let all = [some, some, none, none, some, some, some, some, some, some, none];
        assert_eq!(blocks.map(|block| of(&one, block)), all);
        let parted = [some, some, none, none, some, some, some, some, Some(1), Some(1), none];
        assert_eq!(blocks.map(|block| of(&two, block)), parted);
    }

    #[test]
    fn a_section_that_is_cut_or_contradicts_itself_tells_no_node() {
        let whole = [1, 0x800_0000, 1, 0, 64, 64, !0];
        let cut = &section(&whole)[..section(&whole).len() - 1];
        let contradicts = section(&[1, 0x800_0000, 1, 0, 64, 128, !0, !0]);
        for bytes in [cut, &contradicts] {
            let mut about = About::default();
            assert!(!about.learn(MEM_TOPOLOGY, bytes));
            assert_eq!(about.nodes.of_frame(0), None);
        }
    }
}
