//! The header of a recording and the attributes of its events (`tools/perf/util/header.h`, `perf.data-file-format.txt`).

use std::io::{self, Read, Seek, SeekFrom};

use super::bytes::Bytes;
use crate::record::Format;

/// First bytes of a recording that was written by a machine of this byte order.
const MAGIC: &[u8; 8] = b"PERFILE2";
/// Bytes of the header of a stream: magic and size.
pub(super) const PIPE: usize = 16;
/// Bytes of `perf_file_header`.
const HEADER: usize = 104;
/// Bytes of the first `perf_event_attr`, whose size field is 0 or this.
const ATTR: usize = 64;
/// Bytes of header sections at most: attributes, ids or a feature. Those of a machine with thousands of CPUs have some MiB.
const SECTION: u64 = 64 << 20;
/// Events of a recording at most.
const EVENTS: usize = 1 << 16;

/// What is wrong with a header.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// It cannot be read.
    #[error("read")]
    Read(#[source] io::Error),
    /// The first bytes are others.
    #[error("this is no recording of perf")]
    Magic,
    /// It was recorded on a machine of the other byte order.
    #[error("recorded on a machine of the other byte order, which is not supported")]
    ByteOrder,
    /// A part of it lies outside the file, or is larger than any can be.
    #[error("{what} at byte {offset}: {size} bytes, of a file of {length}")]
    Section {
        /// Which part.
        what: &'static str,
        /// Where.
        offset: u64,
        /// Bytes that it should have.
        size: u64,
        /// Bytes of the file.
        length: u64,
    },
    /// The description of an event is cut, or of a size that none has.
    #[error("event {0}: its attributes are cut")]
    Attribute(usize),
    /// There is no event: nothing says what form its records have.
    #[error("no event is described")]
    NoEvents,
}

/// What an event was opened with (`perf_event_attr`), as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribute {
    /// The form of its records.
    pub format: Format,
    /// `type`: `PERF_TYPE_*`, or the number of a PMU.
    pub pmu: u32,
    /// `config`.
    pub config: u64,
    /// `config1`: of Intel's loads the threshold in cycles.
    pub config1: u64,
    /// The period that was asked for; `None` where a frequency was.
    pub period: Option<u64>,
    /// It tells of mappings or tasks.
    pub sideband: bool,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// The header of a file, or of a stream.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// Attributes and ids of each event; a stream tells them later.
    pub(super) events: Vec<(Attribute, Vec<u64>)>,
    /// Number and content of each feature that could be read.
    pub(super) features: Vec<(u32, Vec<u8>)>,
    /// Where records begin.
    pub(super) data: u64,
    /// Where they end, if that is told: a stream goes on, and so does a file whose recorder was killed.
    pub(super) end: Option<u64>,
    /// Features that lie outside the file.
    pub(super) broken: u32,
}

impl Attribute {
    /// Reads attributes of the size that they say themselves; what newer kernels added is left out.
    pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let size = Bytes(bytes.0.get(4..)?).u32()?;
        let size = match usize::try_from(size).ok()? {
            0 => ATTR,
            size if size < ATTR => return None,
            size => size,
        };
        let mut all = [0; 128];
        let given = bytes.take(size)?;
        let known = given.len().min(all.len());
        all.get_mut(..known)?.copy_from_slice(given.get(..known)?);
        let mut fields = Bytes(&all);
        let (pmu, _size) = (fields.u32()?, fields.u32()?);
        let (config, period) = (fields.u64()?, fields.u64()?);
        let (sample_type, read_format, flags) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (_wakeup, _bp_type) = (fields.u32()?, fields.u32()?);
        let (config1, _config2, branch_sample_type) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (regs_user, _stack, _clock) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let regs_intr = fields.u64()?;
        let flag = |bit: u32| flags >> bit & 1 != 0;
        let (mmap, comm, frequency, task, sample_id_all) =
            (flag(8), flag(9), flag(10), flag(13), flag(18));
        let masks = (branch_sample_type, regs_user, regs_intr);
        let (branch_sample_type, regs_user, regs_intr) = masks;
        let plain = Format::plain(sample_type, sample_id_all);
        let format = Format { read_format, branch_sample_type, regs_user, regs_intr, ..plain };
        let period = (!frequency).then_some(period).filter(|period| *period != 0);
        Some(Self { format, pmu, config, config1, period, sideband: mmap || comm || task })
    }
}

impl Header {
    /// The header of a stream, which is all of its first [`PIPE`] bytes; `None` for a file.
    pub(super) fn stream(first: &[u8]) -> Result<Option<Self>, HeaderError> {
        let mut fields = Bytes(first);
        match fields.take(8) {
            Some(magic) if magic == MAGIC => {}
            Some(magic) if magic.iter().rev().eq(MAGIC.iter()) => {
                return Err(HeaderError::ByteOrder);
            }
            _ => return Err(HeaderError::Magic),
        }
        let stream = fields.u64() == Some(PIPE as u64);
        Ok(stream.then(|| Self { data: PIPE as u64, ..Self::default() }))
    }

    /// Reads it; of a stream only that it is one.
    pub(super) fn read(file: &mut (impl Read + Seek), length: u64) -> Result<Self, HeaderError> {
        let mut first = [0; HEADER];
        let read = read_up_to(file, &mut first).map_err(HeaderError::Read)?;
        let first = first.get(..read).unwrap_or_default();
        if let Some(header) = Self::stream(first)? {
            return Ok(header);
        }
        let mut fields = Bytes(first.get(PIPE..).unwrap_or_default());
        let cut = Section { offset: 0, size: HEADER as u64 };
        Self::sections(file, length, &mut fields).ok_or(outside("header", cut, length))?
    }

    fn sections(
        file: &mut (impl Read + Seek),
        length: u64,
        fields: &mut Bytes<'_>,
    ) -> Option<Result<Self, HeaderError>> {
        let _entry = fields.u64()?;
        let mut section = || Some(Section { offset: fields.u64()?, size: fields.u64()? });
        let (attributes, data, _types) = (section()?, section()?, section()?);
        let mut present = [0; 4];
        for word in &mut present {
            *word = fields.u64()?;
        }
        Some(Self::whole(file, length, attributes, data, present))
    }

    fn whole(
        file: &mut (impl Read + Seek),
        length: u64,
        attributes: Section,
        data: Section,
        present: [u64; 4],
    ) -> Result<Self, HeaderError> {
        let listed = content(file, length, "attributes", attributes)?;
        let mut events = Vec::new();
        let mut rest = Bytes(&listed);
        while !rest.0.is_empty() && events.len() < EVENTS {
            let cut = HeaderError::Attribute(events.len());
            let Some(attribute) = Attribute::read(&mut rest) else { return Err(cut) };
            let (Some(offset), Some(size)) = (rest.u64(), rest.u64()) else { return Err(cut) };
            let ids = content(file, length, "ids", Section { offset, size })?;
            let ids = ids.chunks_exact(8).filter_map(|id| id.first_chunk().copied());
            events.push((attribute, ids.map(u64::from_le_bytes).collect()));
        }
        if events.is_empty() {
            return Err(HeaderError::NoEvents);
        }
        let end = (data.size != 0).then(|| data.offset.saturating_add(data.size));
        let mut header = Self { events, data: data.offset, end, ..Self::default() };
        let Some(end) = end else { return Ok(header) };
        header.describe(file, length, end, present);
        Ok(header)
    }

    /// Features: their sections are listed behind the records. Without one of them less is known, and the rest is read.
    fn describe(
        &mut self,
        file: &mut (impl Read + Seek),
        length: u64,
        end: u64,
        present: [u64; 4],
    ) {
        let is =
            |bit: &u32| present.get(*bit as usize / 64).is_some_and(|w| w >> (bit % 64) & 1 != 0);
        let numbers: Vec<u32> = (0..256).filter(is).collect();
        let list = Section { offset: end, size: 16 * numbers.len() as u64 };
        let Ok(list) = content(file, length, "features", list) else {
            self.broken = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            return;
        };
        let mut list = Bytes(&list);
        for number in numbers {
            let (Some(offset), Some(size)) = (list.u64(), list.u64()) else { return };
            match content(file, length, "feature", Section { offset, size }) {
                Ok(bytes) => self.features.push((number, bytes)),
                Err(_) => self.broken += 1,
            }
        }
    }
}

fn outside(what: &'static str, section: Section, length: u64) -> HeaderError {
    HeaderError::Section { what, offset: section.offset, size: section.size, length }
}

/// The bytes of a part, if it lies in the file.
fn content(
    file: &mut (impl Read + Seek),
    length: u64,
    what: &'static str,
    section: Section,
) -> Result<Vec<u8>, HeaderError> {
    let end = section.offset.checked_add(section.size);
    let fits = end.is_some_and(|end| end <= length) && section.size <= SECTION;
    let size = usize::try_from(section.size).ok().filter(|_| fits);
    let size = size.ok_or(outside(what, section, length))?;
    let mut bytes = vec![0; size];
    file.seek(SeekFrom::Start(section.offset)).map_err(HeaderError::Read)?;
    file.read_exact(&mut bytes).map_err(HeaderError::Read)?;
    Ok(bytes)
}

/// Fills `into` as far as the file goes.
pub(super) fn read_up_to(file: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while let Some(rest) = into.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}
