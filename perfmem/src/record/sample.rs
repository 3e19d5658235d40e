//! `PERF_RECORD_SAMPLE`: the fields that `sample_type` chooses, in the order of the kernel (`perf_output_sample` in
//! `kernel/events/core.c`; `include/uapi/linux/perf_event.h`).

use super::{Fields, Format, ParseError};

/// Instruction address.
pub const IP: u64 = 1;
/// Process and thread.
pub const TID: u64 = 1 << 1;
/// Time, on the clock of the event.
pub const TIME: u64 = 1 << 2;
/// Address of the data, or of what the event is about.
pub const ADDR: u64 = 1 << 3;
/// Counts of the event and of its group.
pub const READ: u64 = 1 << 4;
/// Call chain.
pub const CALLCHAIN: u64 = 1 << 5;
/// Id of the event.
pub const ID: u64 = 1 << 6;
/// CPU.
pub const CPU: u64 = 1 << 7;
/// Events that the sample stands for.
pub const PERIOD: u64 = 1 << 8;
/// Id of the event that opened the stream.
pub const STREAM_ID: u64 = 1 << 9;
/// Bytes of a tracepoint or of the hardware.
pub const RAW: u64 = 1 << 10;
/// Branches taken before.
pub const BRANCH_STACK: u64 = 1 << 11;
/// Registers of the program.
pub const REGS_USER: u64 = 1 << 12;
/// Stack of the program.
pub const STACK_USER: u64 = 1 << 13;
/// Cost of the access, as one number.
pub const WEIGHT: u64 = 1 << 14;
/// What answered the access.
pub const DATA_SRC: u64 = 1 << 15;
/// Id of the event, at a fixed place.
pub const IDENTIFIER: u64 = 1 << 16;
/// Transactional memory.
pub const TRANSACTION: u64 = 1 << 17;
/// Registers of what was interrupted.
pub const REGS_INTR: u64 = 1 << 18;
/// Physical address of the data.
pub const PHYS_ADDR: u64 = 1 << 19;
/// A piece of the AUX area.
pub const AUX: u64 = 1 << 20;
/// Id of the cgroup.
pub const CGROUP: u64 = 1 << 21;
/// Size of the page of the data.
pub const DATA_PAGE_SIZE: u64 = 1 << 22;
/// Size of the page of the code.
pub const CODE_PAGE_SIZE: u64 = 1 << 23;
/// Cost of the access, as three numbers.
pub const WEIGHT_STRUCT: u64 = 1 << 24;
/// All of them. What else is asked for has a form that nothing here knows.
pub const KNOWN: u64 = (1 << 25) - 1;

// Bits of `read_format`.
const READ_ENABLED: u64 = 1;
const READ_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;

// Bits of `branch_sample_type`.
const BRANCH_HW_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;

/// A sample. `None`: its event does not ask for the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Id of the event, from either place.
    pub id: Option<u64>,
    /// Instruction address.
    pub ip: Option<u64>,
    /// Process and thread.
    pub task: Option<(u32, u32)>,
    /// When, in nanoseconds of the event's clock.
    pub time: Option<u64>,
    /// Address of the data.
    pub address: Option<u64>,
    /// Id of the event that opened the stream.
    pub stream_id: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
    /// Events that it stands for.
    pub period: Option<u64>,
    /// Counts.
    pub read: Option<Read>,
    /// Call chain, leaf first, with marks of context among its addresses.
    pub callchain: Option<Words<'a>>,
    /// Bytes of a tracepoint or of the hardware, padding included.
    pub raw: Option<&'a [u8]>,
    /// Branches taken before.
    pub branches: Option<Branches<'a>>,
    /// Registers of the program.
    pub regs_user: Option<Registers<'a>>,
    /// Stack of the program, as much of it as was written.
    pub stack_user: Option<&'a [u8]>,
    /// Cost of the access.
    pub weight: Option<Weight>,
    /// What answered the access.
    pub data_src: Option<u64>,
    /// Transactional memory.
    pub transaction: Option<u64>,
    /// Registers of what was interrupted.
    pub regs_intr: Option<Registers<'a>>,
    /// Physical address of the data; 0 where there is none.
    pub physical: Option<u64>,
    /// A piece of the AUX area.
    pub aux: Option<&'a [u8]>,
    /// Id of the cgroup.
    pub cgroup: Option<u64>,
    /// Bytes of the page of the data; 0 where it is not known.
    pub data_page_size: Option<u64>,
    /// Bytes of the page of the code; 0 where it is not known.
    pub code_page_size: Option<u64>,
}

/// Numbers of 8 bytes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'a>(pub(crate) &'a [u8]);

impl<'a> Words<'a> {
    /// The numbers.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        let whole = self.0.chunks_exact(8);
        whole.filter_map(|word| word.first_chunk().copied().map(u64::from_ne_bytes))
    }
}

/// Cost of an access. What the numbers mean, each hardware says for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// One number.
    Full(u64),
    /// Three: `var1_dw`, `var2_w`, `var3_w`.
    Three(u32, u16, u16),
}

/// Counts of an event, or of all of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Nanoseconds for which it was enabled.
    pub enabled: Option<u64>,
    /// Nanoseconds for which it was on the hardware.
    pub running: Option<u64>,
    /// Counts; several where the event reads its group.
    pub counts: Vec<Count>,
}

/// One count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Events.
    pub value: u64,
    /// Whose.
    pub id: Option<u64>,
    /// Samples that it lost.
    pub lost: Option<u64>,
}

/// Branches taken before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branches<'a> {
    /// Place of the newest in the hardware's list.
    pub index: Option<u64>,
    /// Each as from, to, flags; newest first.
    pub entries: Words<'a>,
    /// Counters of each, where they are asked for.
    pub counters: Words<'a>,
}

/// Registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers<'a> {
    /// `PERF_SAMPLE_REGS_ABI_*`; 0: there are none, as of a kernel thread.
    pub abi: u64,
    /// One for each bit that the event asks for, lowest first.
    pub values: Words<'a>,
}

/// The fields behind the header of a sample.
pub(super) fn parse<'a>(fields: &mut Fields<'a>, format: Format) -> Result<Sample<'a>, ParseError> {
    let unknown = format.sample_type & !KNOWN;
    if unknown != 0 {
        return Err(ParseError::Unknown { bits: unknown });
    }
    let asked = |bit: u64| format.sample_type & bit != 0;
    let mut sample = Sample::default();
    macro_rules! word {
        ($bit:expr, $field:ident) => {
            if asked($bit) {
                sample.$field = Some(fields.u64()?);
            }
        };
    }
    word!(IDENTIFIER, id);
    word!(IP, ip);
    if asked(TID) {
        sample.task = Some((fields.u32()?, fields.u32()?));
    }
    word!(TIME, time);
    word!(ADDR, address);
    word!(ID, id);
    word!(STREAM_ID, stream_id);
    if asked(CPU) {
        sample.cpu = Some(fields.u32()?);
        fields.u32()?;
    }
    word!(PERIOD, period);
    if asked(READ) {
        sample.read = Some(read(fields, format.read_format)?);
    }
    if asked(CALLCHAIN) {
        let count = fields.u64()?;
        sample.callchain = Some(Words(fields.words(count)?));
    }
    if asked(RAW) {
        let size = fields.u32()?;
        sample.raw = Some(fields.bytes(usize::try_from(size).unwrap_or(usize::MAX))?);
    }
    if asked(BRANCH_STACK) {
        sample.branches = Some(branches(fields, format.branch_sample_type)?);
    }
    if asked(REGS_USER) {
        sample.regs_user = Some(registers(fields, format.regs_user)?);
    }
    if asked(STACK_USER) {
        sample.stack_user = Some(stack(fields)?);
    }
    if asked(WEIGHT_STRUCT) {
        // One word, of which the order of bytes tells where the halves lie: little-endian here.
        sample.weight = Some(Weight::Three(fields.u32()?, fields.u16()?, fields.u16()?));
    } else if asked(WEIGHT) {
        sample.weight = Some(Weight::Full(fields.u64()?));
    }
    word!(DATA_SRC, data_src);
    word!(TRANSACTION, transaction);
    if asked(REGS_INTR) {
        sample.regs_intr = Some(registers(fields, format.regs_intr)?);
    }
    word!(PHYS_ADDR, physical);
    word!(CGROUP, cgroup);
    word!(DATA_PAGE_SIZE, data_page_size);
    word!(CODE_PAGE_SIZE, code_page_size);
    if asked(AUX) {
        let size = fields.u64()?;
        sample.aux = Some(fields.bytes(usize::try_from(size).unwrap_or(usize::MAX))?);
    }
    match fields.left() {
        0 => Ok(sample),
        left => Err(ParseError::Long { kind: fields.kind, left }),
    }
}

/// `perf_output_read`: of one event value, times, id, lost; of a group its size, times, then value, id, lost of each.
fn read(fields: &mut Fields<'_>, format: u64) -> Result<Read, ParseError> {
    let asked = |bit: u64| format & bit != 0;
    let group = asked(READ_GROUP);
    let first = fields.u64()?;
    let enabled = if asked(READ_ENABLED) { Some(fields.u64()?) } else { None };
    let running = if asked(READ_RUNNING) { Some(fields.u64()?) } else { None };
    let mut counts = Vec::new();
    // Each takes bytes of the record, which bounds them.
    for _ in 0..if group { first } else { 1 } {
        let value = if group { fields.u64()? } else { first };
        let id = if asked(READ_ID) { Some(fields.u64()?) } else { None };
        let lost = if asked(READ_LOST) { Some(fields.u64()?) } else { None };
        counts.push(Count { value, id, lost });
    }
    Ok(Read { enabled, running, counts })
}

fn branches<'a>(fields: &mut Fields<'a>, of: u64) -> Result<Branches<'a>, ParseError> {
    let count = fields.u64()?;
    let index = if of & BRANCH_HW_INDEX != 0 { Some(fields.u64()?) } else { None };
    let entries = Words(fields.words(count.saturating_mul(3))?);
    let counters = if of & BRANCH_COUNTERS != 0 { count } else { 0 };
    Ok(Branches { index, entries, counters: Words(fields.words(counters)?) })
}

fn registers<'a>(fields: &mut Fields<'a>, mask: u64) -> Result<Registers<'a>, ParseError> {
    let abi = fields.u64()?;
    let count = if abi == 0 { 0 } else { mask.count_ones() };
    Ok(Registers { abi, values: Words(fields.words(u64::from(count))?) })
}

/// Size, as many bytes, and how many of them were written; the size alone where it is 0.
fn stack<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], ParseError> {
    let size = usize::try_from(fields.u64()?).unwrap_or(usize::MAX);
    let bytes = fields.bytes(size)?;
    let written = if size == 0 { 0 } else { fields.u64()? };
    let written = usize::try_from(written).unwrap_or(usize::MAX);
    Ok(bytes.get(..written).unwrap_or(bytes))
}
