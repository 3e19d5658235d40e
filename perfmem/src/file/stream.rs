//! The records of a recording, one after the other, with their places; those that were compressed unpacked.

use std::io::{self, BufRead, Read};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::header::read_up_to;
use crate::record::kind;

/// Bytes of a record's header.
pub(super) const HEAD: usize = 8;

// Kinds of records that perf itself writes (`tools/lib/perf/include/perf/event.h`).
const TRACING_DATA: u32 = 66;
pub(super) const AUXTRACE: u32 = 71;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;

/// Bytes that one record unpacks to at most. perf packs what one ring holds.
const UNPACKED: usize = 64 << 20;
/// Bytes of a piece of a hardware trace at most. perf takes what its buffer holds, 4 MiB unless told otherwise.
const PIECE: u64 = 64 << 20;
/// Bytes that are unpacked at once.
const CHUNK: usize = 1 << 16;

/// Why records are not read on.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The file cannot be read.
    #[error("byte {offset}: read")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no whole record at this place: where the next begins is not known.
    #[error("byte {offset}: a record of {size} bytes where {left} are left")]
    Cut {
        /// Where in the file.
        offset: u64,
        /// What its header says, 0 where there is no whole header.
        size: usize,
        /// Bytes from there on, as far as they were looked for.
        left: usize,
    },
    /// What was compressed cannot be unpacked, nor what was compressed after it.
    #[error("byte {offset}: unpack a compressed record")]
    Unpack {
        /// Where in the file.
        offset: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Records in the order of the file.
pub(super) struct Stream<R> {
    reader: R,
    /// Of what is read next.
    offset: u64,
    end: Option<u64>,
    decoder: Option<Decoder<'static>>,
    /// Unpacked records, and how far they were read.
    unpacked: Vec<u8>,
    at: usize,
    /// Where the record lies that they were packed in.
    container: u64,
    /// Pieces of hardware traces are wanted.
    traces: bool,
    /// Bytes of the AUX area and of tracepoint formats that were passed over.
    passed: u64,
}

impl<R: BufRead> Stream<R> {
    /// Reads from where `reader` stands, at `offset`, up to `end` or its own end.
    pub(super) fn new(reader: R, offset: u64, end: Option<u64>) -> Self {
        let (decoder, unpacked, at, passed) = (None, Vec::new(), 0, 0);
        let (container, traces) = (offset, false);
        Self { reader, offset, end, decoder, unpacked, at, container, traces, passed }
    }

    /// From now on a piece of a hardware trace is told with its record, which it follows; of one that is too long the record
    /// alone.
    pub(super) fn keep_traces(&mut self) {
        self.traces = true;
    }

    /// Bytes that were passed over: hardware traces, formats of tracepoints.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// The next record in `into`, and its place: that of its container where it was compressed. `None` at the end.
    /// Behind an error nothing follows.
    pub(super) fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>, StreamError> {
        loop {
            if self.next_unpacked(into)? {
                return Ok(Some(self.container));
            }
            let offset = self.offset;
            if !self.fill(into)? {
                let left = self.unpacked.len() - self.at;
                let size = 0;
                let cut = StreamError::Cut { offset, size, left };
                return if left > 0 { Err(cut) } else { Ok(None) };
            }
            let body = into.get(HEAD..).unwrap_or_default();
            let word = body.first_chunk().copied().map_or(0, u64::from_le_bytes);
            match kind(into) {
                AUXTRACE if self.traces && word <= PIECE => {
                    self.append(word, into)?;
                    return Ok(Some(offset));
                }
                AUXTRACE => {
                    self.pass(word)?;
                    // Whoever wants traces is to know that this one is not there.
                    if self.traces {
                        return Ok(Some(offset));
                    }
                }
                // Four bytes of size; what follows is padded.
                TRACING_DATA => self.pass((word & 0xffff_ffff).next_multiple_of(8))?,
                COMPRESSED => self.unpack(offset, body)?,
                COMPRESSED2 => {
                    let size = usize::try_from(word).ok();
                    let packed = size.and_then(|size| body.get(8..)?.get(..size));
                    self.unpack(offset, packed.unwrap_or_default())?;
                }
                _ => return Ok(Some(offset)),
            }
        }
    }

    /// Takes a whole record of what was unpacked.
    fn next_unpacked(&mut self, into: &mut Vec<u8>) -> Result<bool, StreamError> {
        let rest = self.unpacked.get(self.at..).unwrap_or_default();
        if rest.len() < HEAD {
            return Ok(false);
        }
        let size = size(rest);
        if size < HEAD {
            let (offset, left) = (self.container, rest.len());
            return Err(StreamError::Cut { offset, size, left });
        }
        let Some(record) = rest.get(..size) else { return Ok(false) };
        into.clear();
        into.extend_from_slice(record);
        self.at += size;
        Ok(true)
    }

    /// Reads a whole record of the file; `false` at its end.
    fn fill(&mut self, into: &mut Vec<u8>) -> Result<bool, StreamError> {
        let offset = self.offset;
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(offset));
        let fits = |bytes: usize| bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
        let failed = |source| StreamError::Read { offset, source };
        into.clear();
        into.resize(fits(HEAD), 0);
        let head = read_up_to(&mut self.reader, into).map_err(failed)?;
        if head == 0 {
            return Ok(false);
        }
        let size = if head == HEAD { size(into) } else { 0 };
        let cut = |left| StreamError::Cut { offset, size, left };
        if size < HEAD || fits(size) < size {
            return Err(cut(head.max(fits(size))));
        }
        into.resize(size, 0);
        let body = into.get_mut(HEAD..).unwrap_or_default();
        let read = read_up_to(&mut self.reader, body).map_err(failed)?;
        if read < size - HEAD {
            return Err(cut(HEAD + read));
        }
        self.offset = offset.saturating_add(size as u64);
        Ok(true)
    }

    /// Reads `count` bytes that lie behind a record.
    fn append(&mut self, count: u64, into: &mut Vec<u8>) -> Result<(), StreamError> {
        let offset = self.offset;
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(offset));
        let mut bytes = (&mut self.reader).take(count.min(left));
        let read = bytes.read_to_end(into);
        let read = read.map_err(|source| StreamError::Read { offset, source })?;
        self.offset = offset.saturating_add(read as u64);
        let size = usize::try_from(count).unwrap_or(usize::MAX);
        if read < size { Err(StreamError::Cut { offset, size, left: read }) } else { Ok(()) }
    }

    /// Passes over `count` bytes that lie behind a record.
    fn pass(&mut self, count: u64) -> Result<(), StreamError> {
        let offset = self.offset;
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(offset));
        let mut bytes = (&mut self.reader).take(count.min(left));
        let passed = io::copy(&mut bytes, &mut io::sink());
        let passed = passed.map_err(|source| StreamError::Read { offset, source })?;
        self.offset = offset.saturating_add(passed);
        self.passed = self.passed.saturating_add(passed);
        let size = usize::try_from(count).unwrap_or(usize::MAX);
        let left = usize::try_from(passed).unwrap_or(usize::MAX);
        if passed < count { Err(StreamError::Cut { offset, size, left }) } else { Ok(()) }
    }

    /// Unpacks one record's content behind what is left of the one before: records go over its end.
    fn unpack(&mut self, offset: u64, packed: &[u8]) -> Result<(), StreamError> {
        let failed = |source| StreamError::Unpack { offset, source };
        self.unpacked.drain(..self.at);
        (self.at, self.container) = (0, offset);
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new().map_err(failed)?),
        };
        let mut chunk = vec![0; CHUNK];
        let mut packed = InBuffer::around(packed);
        loop {
            let mut into = OutBuffer::around(&mut chunk[..]);
            decoder.run(&mut packed, &mut into).map_err(failed)?;
            let written = into.pos();
            let done = written < CHUNK && packed.pos() == packed.src.len();
            self.unpacked.extend_from_slice(chunk.get(..written).unwrap_or_default());
            if self.unpacked.len() > UNPACKED {
                return Err(failed(io::Error::other("it unpacks to more than 64 MiB")));
            }
            if done {
                return Ok(());
            }
        }
    }
}

/// The size of a record.
fn size(record: &[u8]) -> usize {
    let size = record.get(6..).and_then(|rest| rest.first_chunk()).copied();
    size.map_or(0, |size| usize::from(u16::from_le_bytes(size)))
}
