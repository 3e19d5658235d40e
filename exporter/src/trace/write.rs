//! Writing a trace.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use zstd::stream::write::Encoder;

use super::line::{Header, Line};
use super::{Problem, TraceError};

/// Lines after which everything written reaches the file, so that a killed recorder leaves a readable prefix.
const FLUSH_LINES: u32 = 1024;

/// How the bytes of a trace are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    Plain,
    /// As one zstd frame.
    Zstd,
}

impl Form {
    /// What a file name asks for: zstd when it ends in `.zst`.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|e| e == "zst") { Self::Zstd } else { Self::Plain }
    }
}

/// Writes a trace: the header on creation, then lines.
#[derive(Debug)]
pub struct Writer<W: Write> {
    path: PathBuf,
    out: Out<W>,
    text: Vec<u8>,
    line: u64,
    unflushed: u32,
}

enum Out<W: Write> {
    Plain(BufWriter<W>),
    Zstd(Encoder<'static, BufWriter<W>>),
}

impl<W: Write> std::fmt::Debug for Out<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl Writer<File> {
    /// Makes or replaces the file `path`, in the form that its name asks for. A new file is its user's alone: it holds
    /// addresses and paths.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn create(path: &Path, header: &Header) -> Result<Self, TraceError> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.map_err(|e| at(path, 0, Problem::Open(e)))?;
        Self::new(file, Form::of(path), path, header)
    }
}

impl<W: Write> Writer<W> {
    /// Writes a trace to `out`; errors speak of `path`.
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn new(out: W, form: Form, path: &Path, header: &Header) -> Result<Self, TraceError> {
        let out = BufWriter::new(out);
        let out = match form {
            Form::Plain => Out::Plain(out),
            Form::Zstd => Out::Zstd(
                Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)
                    .map_err(|e| at(path, 0, Problem::Write(e)))?,
            ),
        };
        let mut writer =
            Self { path: path.to_owned(), out, text: Vec::new(), line: 0, unflushed: 0 };
        writer.put(|text| header.write(text))?;
        Ok(writer)
    }

    /// Writes one line. Every 1024 lines all of them reach the file.
    ///
    /// # Errors
    /// The line cannot be written, or no reader would take it ([`Problem::Unsound`], [`Problem::TooLong`]); then the trace
    /// is as it was.
    pub fn write(&mut self, line: &Line) -> Result<(), TraceError> {
        line.check().map_err(|problem| at(&self.path, self.line + 1, problem))?;
        self.put(|text| line.write(text))
    }

    /// Brings all lines to the file. For the recorder to call at each interval.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.unflushed = 0;
        let flushed = match &mut self.out {
            Out::Plain(out) => out.flush(),
            Out::Zstd(out) => out.flush(),
        };
        flushed.map_err(|e| at(&self.path, self.line, Problem::Write(e)))
    }

    /// Completes what was written and gives it back. The trace is whole when its last line was [`Line::End`].
    ///
    /// # Errors
    /// The rest cannot be written.
    pub fn finish(self) -> Result<W, TraceError> {
        let out = match self.out {
            Out::Plain(out) => Ok(out),
            Out::Zstd(out) => out.finish(),
        };
        out.and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error))
            .map_err(|e| at(&self.path, self.line, Problem::Write(e)))
    }

    fn put(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) -> Result<(), TraceError> {
        let number = self.line + 1;
        let fail = |problem| at(&self.path, number, problem);
        self.text.clear();
        write(&mut self.text).map_err(|e| fail(Problem::Json(e)))?;
        if self.text.len() > super::MAX_LINE {
            return Err(fail(Problem::TooLong));
        }
        self.text.push(b'\n');
        let written = match &mut self.out {
            Out::Plain(out) => out.write_all(&self.text),
            Out::Zstd(out) => out.write_all(&self.text),
        };
        written.map_err(|e| fail(Problem::Write(e)))?;
        self.line = number;
        self.unflushed += 1;
        if self.unflushed >= FLUSH_LINES { self.flush() } else { Ok(()) }
    }
}

fn at(path: &Path, line: u64, problem: Problem) -> TraceError {
    TraceError { path: path.to_owned(), line, problem }
}
