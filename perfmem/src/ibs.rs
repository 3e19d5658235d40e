//! A raw sample of AMD's instruction-based sampling of operations: registers as the kernel copies them
//! (`perf_ibs_handle_irq` in `arch/x86/events/amd/ibs.c`; fields in `arch/x86/include/asm/amd/ibs.h`). Kernels before 6.1 tell
//! nothing else of an access.

use crate::record::sample::Words;

/// Bytes of the capabilities, and the number of registers behind them that every processor has.
const CAPABILITIES: usize = 4;
const REGISTERS: usize = 7;
/// Of the capabilities: more sources are told, as since Zen 4.
const MORE_SOURCES: u32 = 1 << 11;

/// Where the data came from, as the processor says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing is said, or a number that has no meaning.
    None,
    /// The third-level cache of the complex.
    LocalCache,
    /// A cache of the node: the third level, or another core's.
    NodeCache,
    /// A cache of another complex of the node.
    NearCache,
    /// A cache of another node.
    FarCache,
    /// Memory; [`Op::remote`] says of which node.
    Memory,
    /// Persistent memory.
    Pmem,
    /// A device.
    Io,
    /// Memory behind CXL, or of a peer.
    Extension,
}

/// A sampled operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    capabilities: u32,
    /// Address of the instruction.
    pub rip: u64,
    data2: u64,
    data3: u64,
    address: u64,
    physical: u64,
}

impl Op {
    /// Reads a raw sample; `None` where it is too short to be one.
    #[must_use]
    pub fn read(raw: &[u8]) -> Option<Self> {
        let (capabilities, registers) = raw.split_at_checked(CAPABILITIES)?;
        let capabilities = capabilities.first_chunk().copied().map(u32::from_le_bytes)?;
        let words: Vec<u64> = Words(registers).iter().take(REGISTERS).collect();
        let [_control, rip, _data, data2, data3, address, physical] = words[..] else {
            return None;
        };
        Some(Self { capabilities, rip, data2, data3, address, physical })
    }

    fn bit(self, bit: u32) -> bool {
        self.data3 >> bit & 1 != 0
    }

    /// It loaded.
    #[must_use]
    pub fn load(self) -> bool {
        self.bit(0)
    }

    /// It stored.
    #[must_use]
    pub fn store(self) -> bool {
        self.bit(1)
    }

    /// Both levels of the TLB, or the first alone, had no translation.
    #[must_use]
    pub fn tlb_misses(self) -> (bool, bool) {
        (self.bit(2), self.bit(3))
    }

    /// It missed the first-level cache.
    #[must_use]
    pub fn missed(self) -> bool {
        self.bit(7)
    }

    /// It missed the second-level cache.
    #[must_use]
    pub fn missed_level2(self) -> bool {
        self.bit(20)
    }

    /// It was a prefetch by software.
    #[must_use]
    pub fn prefetch(self) -> bool {
        self.bit(21)
    }

    /// Its memory is not cached.
    #[must_use]
    pub fn uncached(self) -> bool {
        self.bit(14)
    }

    /// It was locked.
    #[must_use]
    pub fn locked(self) -> bool {
        self.bit(15)
    }

    /// Its line was on its way already.
    #[must_use]
    pub fn line_under_way(self) -> bool {
        self.bit(16)
    }

    /// Address of the data, where it is valid.
    #[must_use]
    pub fn address(self) -> Option<u64> {
        self.bit(17).then_some(self.address)
    }

    /// Its physical address, where it is valid.
    #[must_use]
    pub fn physical(self) -> Option<u64> {
        self.bit(18).then_some(self.physical)
    }

    /// Cycles from the miss of the first-level cache until it was filled; of loads.
    #[must_use]
    pub fn latency(self) -> u64 {
        self.data3 >> 32 & 0xffff
    }

    /// Where the data of a load came from. Of a store the register says nothing.
    #[must_use]
    pub fn source(self) -> Source {
        let more = self.capabilities & MORE_SOURCES != 0;
        let high = if more { self.data2 >> 6 & 3 } else { 0 };
        match (self.data2 & 7 | high << 3, more) {
            (1, true) => Source::LocalCache,
            (2, true) => Source::NearCache,
            (2, false) => Source::NodeCache,
            (3, _) => Source::Memory,
            (4, false) | (5, true) => Source::FarCache,
            (6, true) => Source::Pmem,
            (7, _) => Source::Io,
            (8 | 12, true) => Source::Extension,
            _ => Source::None,
        }
    }

    /// That was on another node.
    #[must_use]
    pub fn remote(self) -> bool {
        self.data2 >> 4 & 1 != 0
    }

    /// The line was changed in the cache that it came from.
    #[must_use]
    pub fn modified(self) -> bool {
        self.data2 >> 5 & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Op, Source};

    /// Recorded on a machine of AMD (kernel `tools/perf/Documentation/perf-amd-ibs.txt`); capabilities invented.
    fn recorded(capabilities: u32, data2: u64) -> Vec<u8> {
        let registers = [
            0x0000_02c3_0006_186a,
            0xffff_ffff_8204_aea7,
            0x0100_0255_0001,
            data2,
            0x3196_0092,
            0xff11_0008_a539_8920,
            0x8_a539_8920,
        ];
        let words = registers.iter().flat_map(|word: &u64| word.to_le_bytes());
        capabilities.to_le_bytes().into_iter().chain(words).collect()
    }

    #[test]
    fn a_recorded_store_reads_as_its_registers_say() {
        let op = Op::read(&recorded(0, 0x13)).unwrap();
        assert_eq!((op.load(), op.store(), op.rip), (false, true, 0xffff_ffff_8204_aea7));
        assert_eq!((op.missed(), op.missed_level2(), op.line_under_way()), (true, true, false));
        assert_eq!((op.tlb_misses(), op.locked(), op.uncached()), ((false, false), false, false));
        assert_eq!(op.address(), Some(0xff11_0008_a539_8920));
        assert_eq!(op.physical(), Some(0x8_a539_8920));
        assert_eq!((op.source(), op.remote(), op.latency()), (Source::Memory, true, 0));
    }

    #[test]
    fn numbers_of_sources_depend_on_what_the_processor_can_tell() {
        let source =
            |capabilities, data2| Op::read(&recorded(capabilities, data2)).unwrap().source();
        assert_eq!((source(0, 2), source(1 << 11, 2)), (Source::NodeCache, Source::NearCache));
        assert_eq!((source(0, 4), source(1 << 11, 4)), (Source::FarCache, Source::None));
        assert_eq!((source(0, 0x40), source(1 << 11, 0x40)), (Source::None, Source::Extension));
    }

    #[test]
    fn what_is_too_short_is_no_sample() {
        let whole = recorded(0, 0);
        assert!((0..whole.len()).all(|length| Op::read(&whole[..length]).is_none()));
        assert!(Op::read(&[whole, vec![0; 8]].concat()).is_some());
    }
}
