//! Sample records of Arm's Statistical Profiling Extension, packet by packet (Arm Architecture Reference Manual, DDI 0487,
//! "Statistical Profiling Extension Sample Record Specification"; perf `util/arm-spe-decoder`).
//!
//! A record is one sampled operation: packets up to an end or a timestamp. A byte that begins no packet costs the record
//! that it lies in.

/// `PMSEVFR`-numbered bits of an events packet.
pub mod event {
    /// The first-level data cache was looked up.
    pub const L1_ACCESS: u64 = 1 << 2;
    /// It did not have the line.
    pub const L1_REFILL: u64 = 1 << 3;
    /// The TLB was looked up.
    pub const TLB_ACCESS: u64 = 1 << 4;
    /// The translation was walked for.
    pub const TLB_WALK: u64 = 1 << 5;
    /// The last-level cache was looked up.
    pub const LLC_ACCESS: u64 = 1 << 8;
    /// It did not have the line.
    pub const LLC_MISS: u64 = 1 << 9;
    /// Another socket was asked.
    pub const REMOTE: u64 = 1 << 10;
    /// The second-level data cache was looked up.
    pub const L2_ACCESS: u64 = 1 << 19;
    /// It did not have the line.
    pub const L2_MISS: u64 = 1 << 20;
    /// The line was changed in the cache that it came from.
    pub const MODIFIED: u64 = 1 << 21;
}

/// Class of operations that load or store.
const MEMORY: u8 = 1;
/// Bytes of a packet at most.
const LONGEST: usize = 10;
/// Bits of an address without its tag.
const UNTAGGED: u64 = (1 << 56) - 1;

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Nothing; also up to an aligned place.
    Padding,
    /// The record ends.
    End,
    /// The record ends, at a time of the generic timer.
    Timestamp(u64),
    /// What happened ([`event`]).
    Events(u64),
    /// What answered, by numbers of the implementation.
    Source(u64),
    /// `CONTEXTIDR` of an exception level: Linux writes the number of the thread.
    Context {
        /// 0: EL1, 1: EL2.
        level: u8,
        /// The register.
        id: u64,
    },
    /// What kind of operation.
    Operation {
        /// 0 others, 1 loads, stores and atomics, 2 branches.
        class: u8,
        /// More of it.
        what: u64,
    },
    /// An address.
    Address {
        /// 0 instruction, 1 branch target, 2 data, 3 data, physical, 4 previous branch target.
        index: u8,
        /// With tag, security state and exception level in its highest byte.
        value: u64,
    },
    /// A number of cycles.
    Counter {
        /// 0 in total, 1 until issue, 2 for translation.
        index: u8,
        /// Cycles.
        value: u64,
    },
}

impl Packet {
    /// Reads the packet at the begin of `bytes`, which lies at `offset` of the trace, and its length; `None`: there is no
    /// whole one.
    #[must_use]
    pub fn read(bytes: &[u8], offset: u64) -> Option<(Self, usize)> {
        let first = *bytes.first()?;
        match first {
            0x00 => return Some((Self::Padding, 1)),
            0x01 => return Some((Self::End, 1)),
            _ => {}
        }
        // The extended header has two more bits of an index, and an ordinary one behind it.
        let extended = first & 0xfc == 0x20;
        let (head, header) = if extended { (*bytes.get(1)?, 2) } else { (first, 1) };
        if extended && head == 0 {
            let alignment = 2u64 << (first & 3);
            let length = usize::try_from(alignment - offset % alignment).ok()?;
            return (length <= bytes.len()).then_some((Self::Padding, length));
        }
        let size = 1usize << (head >> 4 & 3);
        let mut payload = [0; 8];
        payload.get_mut(..size)?.copy_from_slice(bytes.get(header..header + size)?);
        let value = u64::from_le_bytes(payload);
        let index = if extended { (first & 3) << 3 } else { 0 } | head & 7;
        let packet = match head {
            _ if head & 0xf8 == 0xb0 => Self::Address { index, value },
            _ if head & 0xf8 == 0x98 => Self::Counter { index, value },
            _ if extended => return None,
            0x71 => Self::Timestamp(value),
            _ if head & 0xcf == 0x42 => Self::Events(value),
            _ if head & 0xcf == 0x43 => Self::Source(value),
            _ if head & 0xfc == 0x64 => Self::Context { level: head & 3, id: value },
            _ if head & 0xfc == 0x48 => Self::Operation { class: head & 3, what: value },
            _ => return None,
        };
        Some((packet, header + size))
    }
}

/// A sampled operation. What it does not say is `None`, or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Class, and more of it.
    pub kind: Option<(u8, u64)>,
    /// Address of the instruction.
    pub ip: Option<u64>,
    /// Address of the data, without its tag.
    pub address: Option<u64>,
    /// Its physical address.
    pub physical: Option<u64>,
    /// Cycles from dispatch until all was done.
    pub total: Option<u64>,
    /// What happened ([`event`]).
    pub events: u64,
    /// What answered, by numbers of the implementation.
    pub source: Option<u64>,
    /// The thread, where the kernel tells it.
    pub context: Option<u64>,
    /// When, on the generic timer.
    pub time: Option<u64>,
}

impl Operation {
    /// Whether it stored; `None` where it accessed no memory.
    #[must_use]
    pub fn store(&self) -> Option<bool> {
        self.kind.filter(|(class, _)| *class == MEMORY).map(|(_, what)| what & 1 != 0)
    }

    /// Whether it read and wrote at once.
    #[must_use]
    pub fn atomic(&self) -> bool {
        self.store().is_some() && self.kind.is_some_and(|(_, what)| what & 0xe6 == 0x06)
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Events(events) => self.events = events,
            Packet::Source(source) => self.source = Some(source),
            Packet::Context { id, .. } => self.context = Some(id),
            Packet::Operation { class, what } => self.kind = Some((class, what)),
            Packet::Address { index: 0, value } => self.ip = Some(instruction(value)),
            Packet::Address { index: 2, value } => self.address = Some(canonical(value)),
            Packet::Address { index: 3, value } => self.physical = Some(value & UNTAGGED),
            Packet::Counter { index: 0, value } => self.total = Some(value),
            Packet::Timestamp(time) => self.time = Some(time),
            Packet::Address { .. } | Packet::Counter { .. } | Packet::Padding | Packet::End => {}
        }
    }
}

/// Of the kernel (EL1, EL2, not secure) the highest byte is not stored and all ones.
fn instruction(value: u64) -> u64 {
    let (secure, level) = (value >> 63 == 0, value >> 61 & 3);
    let kernel = !secure && (level == 1 || level == 2);
    value & UNTAGGED | if kernel { !UNTAGGED } else { 0 }
}

/// The tag replaced by what the bits below it say: the kernel's addresses have ones there.
fn canonical(value: u64) -> u64 {
    let kernel = value >> 52 & 0xf == 0xf;
    value & UNTAGGED | if kernel { !UNTAGGED } else { 0 }
}

/// A record that is broken: by a byte that begins no packet, or because the trace ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Where in the trace.
    pub offset: u64,
}

/// The operations of a trace, one after the other.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Operations<'a> {
    /// Reads a piece of a trace that begins with a record, at `offset` of the whole.
    #[must_use]
    pub fn new(piece: &'a [u8], offset: u64) -> Self {
        Self { rest: piece, offset }
    }

    fn skip(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.offset = self.offset.saturating_add(length as u64);
    }
}

impl Iterator for Operations<'_> {
    type Item = Result<Operation, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut operation, mut begun, mut broken) = (Operation::default(), false, None);
        while !self.rest.is_empty() {
            let Some((packet, length)) = Packet::read(self.rest, self.offset) else {
                broken.get_or_insert(Broken { offset: self.offset });
                // So near to the end it is rather cut than none.
                self.skip(if self.rest.len() < LONGEST { self.rest.len() } else { 1 });
                continue;
            };
            self.skip(length);
            operation.take(packet);
            match packet {
                Packet::Padding => {}
                Packet::End | Packet::Timestamp(_) => {
                    return Some(broken.map_or(Ok(operation), Err));
                }
                _ => begun = true,
            }
        }
        let cut = Broken { offset: self.offset };
        broken.or(begun.then_some(cut)).map(Err)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    use super::{Broken, Operation, Operations, Packet};

    /// A load as a Neoverse N1 writes it: instruction, operation, total and issue latency, events, source, address,
    /// physical address, context, timestamp.
    fn load() -> Vec<u8> {
        let parts: [&[u8]; 11] = [
            &[0xb0, 0x78, 0x56, 0x34, 0x12, 0xff, 0xaa, 0, 0x80],
            &[0x65, 0x2a, 0x01, 0, 0],
            &[0x49, 0x00],
            &[0x99, 0x05, 0],
            &[0x98, 0x2c, 0x01],
            &[0x9a, 0x02, 0],
            &[0x52, 0x1e, 0x07],
            &[0x43, 0x0d],
            &[0xb2, 0, 0x50, 0, 0, 0xff, 0xff, 0, 0x3c],
            &[0xb3, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0x80],
            &[0x71, 1, 2, 0, 0, 0, 0, 0, 0],
        ];
        parts.concat()
    }

    const LOAD: Operation = Operation {
        kind: Some((1, 0)),
        ip: Some(0xaaff_1234_5678),
        address: Some(0xffff_0000_5000),
        physical: Some(0x1234_5678),
        total: Some(300),
        events: 0x71e,
        source: Some(13),
        context: Some(298),
        time: Some(0x201),
    };

    fn read(bytes: &[u8]) -> Vec<Result<Operation, Broken>> {
        Operations::new(bytes, 0).collect()
    }

    #[test]
    fn every_packet_of_a_load_is_read() {
        assert_eq!(read(&[load(), vec![0; 7], load()].concat()), [Ok(LOAD), Ok(LOAD)]);
        assert_eq!((LOAD.store(), LOAD.atomic()), (Some(false), false));
    }

    #[test]
    fn classes_tell_what_accesses_memory() {
        let of = |header: u8, what: u8| read(&[header, what, 0x01])[0].unwrap();
        assert_eq!(of(0x49, 0x01).store(), Some(true));
        assert_eq!((of(0x49, 0x06).atomic(), of(0x49, 0x07).atomic()), (true, true));
        assert_eq!((of(0x49, 0x0a).atomic(), of(0x49, 0x04).atomic()), (false, false));
        assert_eq!((of(0x48, 0x01).store(), of(0x4a, 0x01).store()), (None, None));
    }

    #[test]
    fn addresses_of_the_kernel_are_whole_and_tags_are_not_part_of_any() {
        let of = |header: u8, value: u64| {
            let bytes = [&[header][..], &value.to_le_bytes(), &[1]].concat();
            let read = read(&bytes)[0].unwrap();
            read.ip.or(read.address).or(read.physical).unwrap()
        };
        // Not secure, EL1 and EL2; EL0; secure.
        assert_eq!(of(0xb0, 0xa0ff_8000_1234_5678), 0xffff_8000_1234_5678);
        assert_eq!(of(0xb0, 0xc0ff_8000_1234_5678), 0xffff_8000_1234_5678);
        assert_eq!(of(0xb0, 0x8000_aaaa_1234_5678), 0xaaaa_1234_5678);
        assert_eq!(of(0xb0, 0x20ff_8000_1234_5678), 0xff_8000_1234_5678);
        assert_eq!(of(0xb2, 0xb4ff_8000_0000_1000), 0xffff_8000_0000_1000);
        assert_eq!(of(0xb2, 0xb400_ffff_0000_1000), 0xffff_0000_1000);
        assert_eq!(of(0xb3, 0x8000_0000_0000_1000), 0x1000);
    }

    #[test]
    fn extended_headers_have_larger_indices_and_alignment_ends_at_its_multiple() {
        let counter = [0x21, 0x98, 7, 0];
        assert_eq!(Packet::read(&counter, 0), Some((Packet::Counter { index: 8, value: 7 }, 4)));
        let aligned = [0x22, 0x00, 9, 9, 9, 9, 9, 9];
        assert_eq!(Packet::read(&aligned, 0), Some((Packet::Padding, 8)));
        assert_eq!(Packet::read(&aligned, 5), Some((Packet::Padding, 3)));
        assert_eq!(Packet::read(&[0x23, 0x00], 0), None);
        assert_eq!(Packet::read(&[0x20], 0), None);
    }

    #[test]
    fn a_byte_that_begins_no_packet_costs_its_record_alone() {
        let mut middle = load();
        middle.insert(9, 0xff);
        let at = load().len() as u64 + 9;
        let all = [load(), middle, load()].concat();
        assert_eq!(read(&all), [Ok(LOAD), Err(Broken { offset: at }), Ok(LOAD)]);
    }

    #[test]
    fn a_record_that_is_cut_is_broken_and_padding_is_no_record() {
        let whole = load();
        for cut in 1..whole.len() {
            let told = read(&whole[..cut]);
            assert!(matches!(told[..], [Err(_)]), "{cut}: {told:?}");
        }
        assert_eq!(read(&[0; 64]), []);
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_is_read_beyond_them(bytes in proptest::collection::vec(any::<u8>(), 0..600), offset in any::<u64>()) {
            let mut operations = Operations::new(&bytes, offset);
            let count = operations.by_ref().count();
            prop_assert!(count <= bytes.len());
            prop_assert_eq!(operations.next(), None);
        }

        #[test]
        fn a_record_is_read_behind_any_that_is_broken(junk in proptest::collection::vec(any::<u8>().prop_filter("ends", |b| *b != 0x20), 0..40)) {
            // Enough ends that none of them is a payload of what came before.
            let all = [junk, vec![0x01; 16], load()].concat();
            prop_assert_eq!(read(&all).last().copied(), Some(Ok(LOAD)));
        }
    }
}
