//! Records of a perf ring (kernel `include/uapi/linux/perf_event.h`, `enum perf_event_type`), parsed from bytes.
//!
//! A record is a header (kind, misc bits, size with header), a body, and, with `sample_id_all`, a trailer whose fields
//! `sample_type` chooses. Lengths are checked; kinds that are not parsed here are told by number.

pub mod sample;

use sample::Sample;

/// Bytes of a header.
const HEADER: usize = 8;

const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const UNTHROTTLE: u32 = 6;
const FORK: u32 = 7;
/// Has no trailer: its body holds the fields.
pub(crate) const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const AUX: u32 = 11;
const LOST_SAMPLES: u32 = 13;
const SWITCH: u32 = 14;
const SWITCH_CPU_WIDE: u32 = 15;

/// `PERF_RECORD_MISC_COMM_EXEC`; of a mapping `PERF_RECORD_MISC_MMAP_DATA`: it is not executable.
const COMM_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_SWITCH_OUT`.
const SWITCH_OUT: u16 = 1 << 13;
const MMAP_DATA: u16 = COMM_EXEC;
/// `PERF_RECORD_MISC_LOST_SAMPLES_BPF`: perf's own filter dropped them, as it was asked to (`tools/lib/perf/include/perf/event.h`).
const FILTERED: u16 = 1 << 15;
/// `PERF_RECORD_MISC_MMAP_BUILD_ID`.
const MMAP_BUILD_ID: u16 = 1 << 14;

// PERF_AUX_FLAG_*
const AUX_TRUNCATED: u64 = 1;
const AUX_PARTIAL: u64 = 1 << 2;
const AUX_COLLISION: u64 = 1 << 3;

/// What an event was opened with, as far as the form of its records depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// `sample_type`.
    pub sample_type: u64,
    /// `sample_id_all`: records other than samples have a trailer.
    pub sample_id_all: bool,
    /// `read_format`.
    pub read_format: u64,
    /// `branch_sample_type`.
    pub branch_sample_type: u64,
    /// `sample_regs_user`: one bit for each register.
    pub regs_user: u64,
    /// `sample_regs_intr`.
    pub regs_intr: u64,
}

impl Format {
    /// The form of records whose event asks for nothing of variable length.
    #[must_use]
    pub const fn plain(sample_type: u64, sample_id_all: bool) -> Self {
        let (read_format, branch_sample_type, regs_user, regs_intr) = (0, 0, 0, 0);
        Self { sample_type, sample_id_all, read_format, branch_sample_type, regs_user, regs_intr }
    }
}

/// The trailer. `None`: `sample_type` does not ask for the field, or there is no trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// Process and thread that ran.
    pub task: Option<(u32, u32)>,
    /// When, in nanoseconds of the event's clock.
    pub time: Option<u64>,
    /// Id of the event.
    pub id: Option<u64>,
    /// Id of the event that opened the stream.
    pub stream_id: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it says.
    pub body: Body<'a>,
    /// When and where.
    pub trailer: Trailer,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The event was sampled.
    Sample(Box<Sample<'a>>),
    /// A mapping as older kernels and recorders told it.
    Mmap(Mmap<'a>),
    /// A mapping came to be, grew, merged with its neighbours, or has another protection.
    Mmap2(Mmap2<'a>),
    /// A thread has another name.
    Comm {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// The name.
        name: &'a [u8],
        /// Because it runs another program.
        exec: bool,
    },
    /// A thread or process was made.
    Fork(Task),
    /// A thread ended.
    Exit(Task),
    /// The ring had no room for this many records, of all events that write to it, since the last one that it had room for.
    Lost(u64),
    /// This many samples of the event were lost before they reached the ring: no count of what found no room has them.
    /// Without a time it is perf's own, and such a count.
    LostSamples(u64),
    /// The event is held back: it fired too often.
    Throttle,
    /// It is no longer.
    Unthrottle,
    /// A hardware trace has more.
    Aux {
        /// Some of it did not fit.
        truncated: bool,
        /// It has gaps.
        partial: bool,
        /// Something was to be sampled while a sample before it was not done.
        collided: bool,
    },
    /// The task of the trailer goes on, or stops.
    Switch {
        /// It stops.
        out: bool,
    },
    /// A kind that is not parsed here.
    Other(u32),
}

/// A mapping without its file and protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Offset into the file, in bytes.
    pub offset: u64,
    /// Whether it is executable.
    pub exec: bool,
    /// As in [`Mmap2`].
    pub name: &'a [u8],
}

/// A mapping as it is after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mmap2<'a> {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Offset into the file, in bytes; for memory without a file its address.
    pub offset: u64,
    /// What is mapped.
    pub file: File<'a>,
    /// `PROT_*`.
    pub prot: u32,
    /// `MAP_*`, as far as a mapping keeps them: shared or private, locked, huge pages.
    pub flags: u32,
    /// Path, or what the kernel calls memory without a file (`//anon`, `[heap]`, `[stack]`, `[vdso]`).
    pub name: &'a [u8],
}

/// The file of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File<'a> {
    /// By device and inode; all 0 for memory without a file.
    Inode {
        /// Major device number.
        major: u32,
        /// Minor device number.
        minor: u32,
        /// Inode number.
        inode: u64,
        /// Generation of the inode.
        generation: u64,
    },
    /// By build id, where the event asks for it and the file has one.
    BuildId(&'a [u8]),
}

/// A thread that began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its process.
    pub pid: u32,
    /// The process that made it, or its parent.
    pub parent_pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread that made it, or the parent's.
    pub parent_tid: u32,
    /// When, in nanoseconds of the event's clock.
    pub time: u64,
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no whole record at this place of the stream.
    #[error("byte {offset}: a record of {size} bytes where {left} are left")]
    Size {
        /// Where.
        offset: usize,
        /// What its header says, 0 where there is no whole header.
        size: usize,
        /// Bytes from there on.
        left: usize,
    },
    /// The event asks for fields that nothing here knows the form of.
    #[error("a sample with unknown fields: bits {bits:#x} of sample_type")]
    Unknown {
        /// Bits of `sample_type`.
        bits: u64,
    },
    /// A record of a hardware trace is broken.
    #[error("byte {offset} of a hardware trace begins no packet, or the trace ends in a record")]
    Trace {
        /// Where in the trace.
        offset: u64,
    },
    /// A record goes on behind its last field: it is of another form than its event says.
    #[error("record of kind {kind}: {left} bytes behind its last field")]
    Long {
        /// The kind.
        kind: u32,
        /// Bytes.
        left: usize,
    },
    /// A field lies behind the end of its record.
    #[error("record of kind {kind}: {needs} bytes at byte {offset} of {length}")]
    Short {
        /// The kind.
        kind: u32,
        /// Where in the record.
        offset: usize,
        /// Bytes of the field.
        needs: usize,
        /// Bytes of the record without its trailer.
        length: usize,
    },
}

/// Divides a stream into records. Behind an error nothing follows: where the next record begins is not known.
pub fn split(stream: &[u8]) -> impl Iterator<Item = Result<&[u8], ParseError>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = stream.get(offset..).filter(|rest| !rest.is_empty())?;
        let size = number(rest, 6, u16::from_ne_bytes).map_or(0, usize::from);
        let record = rest.get(..size).filter(|record| record.len() >= HEADER);
        let found = record.ok_or(ParseError::Size { offset, size, left: rest.len() });
        offset = if found.is_ok() { offset.saturating_add(size) } else { stream.len() };
        Some(found)
    })
}

/// The kind of a record (`PERF_RECORD_*`), 0 where it has no header.
#[must_use]
pub fn kind(record: &[u8]) -> u32 {
    number(record, 0, u32::from_ne_bytes).unwrap_or(0)
}

/// Which event a record is of, where `sample_type` of any event of its stream asks for it: the place is one for all.
#[must_use]
pub fn event_id(record: &[u8], format: Format) -> Option<u64> {
    let asked = |bits: &[u64]| bits.iter().filter(|bit| format.sample_type & *bit != 0).count();
    let identifier = asked(&[sample::IDENTIFIER]) != 0;
    if !identifier && asked(&[sample::ID]) == 0 {
        return None;
    }
    let at = match kind(record) {
        SAMPLE if identifier => HEADER,
        SAMPLE => HEADER + 8 * asked(&[sample::IP, sample::TID, sample::TIME, sample::ADDR]),
        _ if !format.sample_id_all => return None,
        _ if identifier => record.len().checked_sub(8)?,
        _ => record.len().checked_sub(8 + 8 * asked(&[sample::STREAM_ID, sample::CPU]))?,
    };
    number(record, at, u64::from_ne_bytes).filter(|_| at >= HEADER)
}

/// Reads one record, header included.
///
/// # Errors
/// When a field lies behind its end, or a sample goes on behind its last field.
pub fn parse(record: &[u8], format: Format) -> Result<Record<'_>, ParseError> {
    let headless = ParseError::Size { offset: 0, size: 0, left: record.len() };
    let kind = number(record, 0, u32::from_ne_bytes).ok_or(headless)?;
    let misc = number(record, 4, u16::from_ne_bytes).ok_or(headless)?;
    let mut whole = Fields { record, at: HEADER, kind };
    if kind == SAMPLE {
        let body = Body::Sample(Box::new(sample::parse(&mut whole, format)?));
        return Ok(Record { body, trailer: Trailer::default() });
    }
    let length = trailer_length(format);
    let end = record.len().checked_sub(length).filter(|end| *end >= HEADER);
    let end = end.ok_or(whole.short(length))?;
    whole.at = end;
    let trailer = trailer(&mut whole, format)?;
    let body =
        body(Fields { record: record.get(..end).unwrap_or_default(), at: HEADER, kind }, misc)?;
    Ok(Record { body, trailer })
}

fn body(mut fields: Fields<'_>, misc: u16) -> Result<Body<'_>, ParseError> {
    Ok(match fields.kind {
        MMAP => Body::Mmap(mmap(&mut fields, misc & MMAP_DATA == 0)?),
        MMAP2 => Body::Mmap2(mmap2(&mut fields, misc & MMAP_BUILD_ID != 0)?),
        COMM => Body::Comm {
            pid: fields.u32()?,
            tid: fields.u32()?,
            name: fields.text(),
            exec: misc & COMM_EXEC != 0,
        },
        FORK => Body::Fork(task(&mut fields)?),
        EXIT => Body::Exit(task(&mut fields)?),
        LOST => {
            fields.u64()?;
            Body::Lost(fields.u64()?)
        }
        LOST_SAMPLES if misc & FILTERED == 0 => Body::LostSamples(fields.u64()?),
        THROTTLE => Body::Throttle,
        UNTHROTTLE => Body::Unthrottle,
        AUX => {
            let (_offset, _size, flags) = (fields.u64()?, fields.u64()?, fields.u64()?);
            let has = |flag: u64| flags & flag != 0;
            Body::Aux {
                truncated: has(AUX_TRUNCATED),
                partial: has(AUX_PARTIAL),
                collided: has(AUX_COLLISION),
            }
        }
        SWITCH | SWITCH_CPU_WIDE => Body::Switch { out: misc & SWITCH_OUT != 0 },
        other => Body::Other(other),
    })
}

fn mmap<'a>(fields: &mut Fields<'a>, exec: bool) -> Result<Mmap<'a>, ParseError> {
    let (pid, tid) = (fields.u32()?, fields.u32()?);
    let (address, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    Ok(Mmap { pid, tid, address, length, offset, exec, name: fields.text() })
}

fn mmap2<'a>(fields: &mut Fields<'a>, by_build_id: bool) -> Result<Mmap2<'a>, ParseError> {
    let (pid, tid) = (fields.u32()?, fields.u32()?);
    let (address, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let file = if by_build_id {
        // One byte of length, three of padding, 20 of build id.
        let (size, id) = fields.bytes(24)?.split_at(4);
        let size = size.first().copied().map_or(0, usize::from);
        File::BuildId(id.get(..size).unwrap_or(id))
    } else {
        File::Inode {
            major: fields.u32()?,
            minor: fields.u32()?,
            inode: fields.u64()?,
            generation: fields.u64()?,
        }
    };
    let (prot, flags) = (fields.u32()?, fields.u32()?);
    Ok(Mmap2 { pid, tid, address, length, offset, file, prot, flags, name: fields.text() })
}

fn task(fields: &mut Fields<'_>) -> Result<Task, ParseError> {
    let (pid, parent_pid) = (fields.u32()?, fields.u32()?);
    let (tid, parent_tid) = (fields.u32()?, fields.u32()?);
    Ok(Task { pid, parent_pid, tid, parent_tid, time: fields.u64()? })
}

/// The fields of a trailer in their order, 8 bytes each.
const TRAILER: [u64; 6] =
    [sample::TID, sample::TIME, sample::ID, sample::STREAM_ID, sample::CPU, sample::IDENTIFIER];

fn trailer_length(format: Format) -> usize {
    let asked = TRAILER.iter().filter(|bit| format.sample_type & *bit != 0).count();
    if format.sample_id_all { asked * 8 } else { 0 }
}

fn trailer(fields: &mut Fields<'_>, format: Format) -> Result<Trailer, ParseError> {
    let mut trailer = Trailer::default();
    if !format.sample_id_all {
        return Ok(trailer);
    }
    for bit in TRAILER.into_iter().filter(|bit| format.sample_type & bit != 0) {
        match bit {
            sample::TID => trailer.task = Some((fields.u32()?, fields.u32()?)),
            sample::TIME => trailer.time = Some(fields.u64()?),
            sample::STREAM_ID => trailer.stream_id = Some(fields.u64()?),
            sample::CPU => {
                trailer.cpu = Some(fields.u32()?);
                fields.u32()?;
            }
            _ => trailer.id = Some(fields.u64()?),
        }
    }
    Ok(trailer)
}

/// A number of `N` bytes at `at`.
fn number<T, const N: usize>(bytes: &[u8], at: usize, of: fn([u8; N]) -> T) -> Option<T> {
    bytes.get(at..)?.first_chunk().copied().map(of)
}

/// Fields of a record, one after the other.
struct Fields<'a> {
    record: &'a [u8],
    at: usize,
    kind: u32,
}

impl<'a> Fields<'a> {
    fn short(&self, needs: usize) -> ParseError {
        ParseError::Short { kind: self.kind, offset: self.at, needs, length: self.record.len() }
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], ParseError> {
        let rest = self.record.get(self.at..).unwrap_or_default();
        let bytes = rest.get(..count).ok_or(self.short(count))?;
        self.at += count;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, ParseError> {
        let short = self.short(4);
        number(self.bytes(4)?, 0, u32::from_ne_bytes).ok_or(short)
    }

    fn u64(&mut self) -> Result<u64, ParseError> {
        let short = self.short(8);
        number(self.bytes(8)?, 0, u64::from_ne_bytes).ok_or(short)
    }

    fn left(&self) -> usize {
        self.record.len().saturating_sub(self.at)
    }

    fn u16(&mut self) -> Result<u16, ParseError> {
        let short = self.short(2);
        number(self.bytes(2)?, 0, u16::from_ne_bytes).ok_or(short)
    }

    /// `count` numbers of 8 bytes each.
    fn words(&mut self, count: u64) -> Result<&'a [u8], ParseError> {
        let length = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(8);
        self.bytes(length)
    }

    /// What is left, up to the first zero byte.
    fn text(&mut self) -> &'a [u8] {
        let rest = self.record.get(self.at..).unwrap_or_default();
        self.at = self.record.len();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
