//! The trace `memprov.trace/1`: evidence as text, so that a run can be repeated elsewhere. `docs/TRACE.md` describes it
//! with an example of every kind.
//!
//! A trace is JSON lines, plain or as zstd: a header, then table lines (modules, stacks, names) and evidence in the order
//! in which the recorder learned them, then `end`. Evidence names stacks by id and stacks name modules by id, so that
//! replay opens no other file.

mod line;
mod read;
mod redact;
mod write;

use std::io;
use std::path::PathBuf;

pub use line::{Clock, Header, Line, Scope, Support};
pub use read::{MAX_LINE, Reader};
pub use redact::Redactor;
pub use write::{Form, Writer};

/// The schema this build writes and reads.
pub const SCHEMA: &str = "memprov.trace/1";

/// What went wrong with a trace, and where.
#[derive(Debug, thiserror::Error)]
#[error("trace {}, line {line}", path.display())]
pub struct TraceError {
    /// The trace.
    pub path: PathBuf,
    /// The line, from 1; 0 before the first.
    pub line: u64,
    /// What it is.
    #[source]
    pub problem: Problem,
}

/// What can be wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file could not be opened.
    #[error("open")]
    Open(#[source] io::Error),
    /// The bytes could not be read or decompressed. Nothing follows.
    #[error("read")]
    Read(#[source] io::Error),
    /// The bytes could not be compressed or written.
    #[error("write")]
    Write(#[source] io::Error),
    /// The first line is no header. Nothing follows.
    #[error("no header: this is not a trace")]
    NoHeader(#[source] serde_json::Error),
    /// A header of a schema that this build does not read. Nothing follows.
    #[error("schema {0:?} instead of {SCHEMA:?}")]
    Schema(String),
    /// The line is broken. What follows is whole.
    #[error("no line of a trace")]
    Json(#[source] serde_json::Error),
    /// The line says what cannot be. What follows is whole.
    #[error("the line contradicts itself: {0}")]
    Unsound(&'static str),
    /// The line is longer than [`MAX_LINE`]. What follows is whole.
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// The trace stops without its `end` line: its recorder was killed, or the file was cut. What came before is whole.
    #[error("cut before its end")]
    Truncated,
    /// Something follows the `end` line. It is not read.
    #[error("goes on behind its end")]
    BehindEnd,
}
