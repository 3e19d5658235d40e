//! Reading a trace. It belongs to whoever wrote it: every line is bounded and checked.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use super::line::{Header, Line};
use super::{Problem, TraceError};

/// Bytes of the longest line, without its newline. A scan of 10⁶ runs of pages takes about 20 MB.
pub const MAX_LINE: usize = 64 << 20;

/// What a zstd frame starts with (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Log 2 of the largest window that a frame may ask for: 128 MiB.
const ZSTD_WINDOW: u32 = 27;

/// Reads a trace: the header on opening, then the other lines as an iterator.
///
/// A line that is broken is an error with its number, and reading goes on behind it. Lines of an unknown kind are skipped
/// and counted. What is cut off ends in one [`Problem::Truncated`] after everything before it.
pub struct Reader<'a> {
    path: PathBuf,
    header: Header,
    lines: Lines<'a>,
    unknown: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Body,
    Ended,
    Done,
}

impl Reader<'static> {
    /// Opens the trace `path` and reads its header. Zstd is told by its magic number, whatever the file is called.
    ///
    /// # Errors
    /// The file cannot be opened or read, or does not start with a header of this schema.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|e| {
            let problem = Problem::Open(e);
            TraceError { path: path.to_owned(), line: 0, problem }
        })?;
        Self::new(BufReader::new(file), path)
    }
}

impl<'a> Reader<'a> {
    /// Reads the header of a trace from `input`, plain or zstd; errors speak of `path`.
    ///
    /// # Errors
    /// The input cannot be read, or does not start with a header of this schema.
    pub fn new(input: impl BufRead + Send + 'a, path: &Path) -> Result<Self, TraceError> {
        let fail = |problem| TraceError { path: path.to_owned(), line: 1, problem };
        let input = plain(input).map_err(|e| fail(Problem::Read(e)))?;
        let mut lines = Lines { input, text: Vec::new(), number: 0 };
        let header = match lines.next().map_err(fail)? {
            Some(Ending::Newline | Ending::Missing) => Header::parse(&lines.text).map_err(fail)?,
            None => return Err(fail(Problem::Truncated)),
        };
        Ok(Self { path: path.to_owned(), header, lines, unknown: 0, state: State::Body })
    }

    /// What holds for the whole trace.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Lines skipped so far because their kind is unknown.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    fn step(&mut self) -> Result<Option<Line>, Problem> {
        while self.state != State::Done {
            let Some(ending) = self.lines.next().inspect_err(|problem| {
                if !matches!(problem, Problem::TooLong) {
                    self.state = State::Done;
                }
            })?
            else {
                let whole = self.state == State::Ended;
                self.state = State::Done;
                return if whole { Ok(None) } else { Err(Problem::Truncated) };
            };
            if self.state == State::Ended {
                self.state = State::Done;
                return Err(Problem::BehindEnd);
            }
            match Line::parse(&self.lines.text) {
                Ok(None) => self.unknown += 1,
                Ok(Some(line)) => {
                    if matches!(line, Line::End { .. }) {
                        self.state = State::Ended;
                    }
                    return Ok(Some(line));
                }
                Err(_) if ending == Ending::Missing => {
                    self.state = State::Done;
                    return Err(Problem::Truncated);
                }
                Err(problem) => return Err(problem),
            }
        }
        Ok(None)
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Line, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step()
            .map_err(|problem| TraceError {
                path: self.path.clone(),
                line: self.lines.number,
                problem,
            })
            .transpose()
    }
}

/// `input` without its compression. Zstd is decompressed as it is read: what a frame grows to takes no memory.
fn plain<'a>(mut input: impl BufRead + Send + 'a) -> io::Result<Box<dyn BufRead + Send + 'a>> {
    let mut start = Vec::new();
    input.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut start)?;
    let zstd = start == ZSTD_MAGIC;
    let input = Cursor::new(start).chain(input);
    if !zstd {
        return Ok(Box::new(input));
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.window_log_max(ZSTD_WINDOW)?;
    Ok(Box::new(BufReader::new(decoder)))
}

/// How a line ended.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Newline,
    /// With the input.
    Missing,
}

/// Lines of text, of bounded length.
struct Lines<'a> {
    input: Box<dyn BufRead + Send + 'a>,
    text: Vec<u8>,
    number: u64,
}

impl Lines<'_> {
    /// Reads the next line into `text`, without its newline; `None` at the end of the input.
    fn next(&mut self) -> Result<Option<Ending>, Problem> {
        self.text.clear();
        self.number += 1;
        let most = MAX_LINE as u64 + 1;
        let read =
            self.input.by_ref().take(most).read_until(b'\n', &mut self.text).map_err(stop)?;
        if read == 0 {
            return Ok(None);
        }
        if self.text.last() == Some(&b'\n') {
            self.text.pop();
            return Ok(Some(Ending::Newline));
        }
        if self.text.len() <= MAX_LINE {
            return Ok(Some(Ending::Missing));
        }
        self.input.skip_until(b'\n').map_err(stop)?;
        Err(Problem::TooLong)
    }
}

/// A zstd frame that is cut off reads as an unexpected end.
fn stop(e: io::Error) -> Problem {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => Problem::Truncated,
        _ => Problem::Read(e),
    }
}
