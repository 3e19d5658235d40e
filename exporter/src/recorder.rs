//! A recording under way: the trace, and what redacts it.

use std::fs::File;
use std::path::Path;

use memprov_ledger::time::MonoTime;

use crate::setup::DaemonError;
use crate::symbols::known_name;
use crate::trace::{Header, Line, Redactor, TraceError, Writer};

/// Writes what the fuser applies.
pub(crate) struct Recorder {
    writer: Writer<File>,
    redactor: Option<Redactor>,
}

impl Recorder {
    /// Begins a trace with a header.
    ///
    /// # Errors
    /// When the file cannot be written, or no key be drawn to redact it.
    pub(crate) fn create(path: &Path, header: &Header, redact: bool) -> Result<Self, DaemonError> {
        let redactor = redact.then(|| Redactor::new(known_name)).transpose();
        let redactor = redactor.map_err(DaemonError::Redact)?;
        let header = match &redactor {
            Some(redactor) => &redactor.header(header.clone()),
            None => header,
        };
        Ok(Self { writer: Writer::create(path, header)?, redactor })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&mut self, line: &Line) -> Result<(), TraceError> {
        match &mut self.redactor {
            Some(redactor) => self.writer.write(&redactor.line(line.clone())),
            None => self.writer.write(line),
        }
    }

    /// Brings all lines to the file.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn flush(&mut self) -> Result<(), TraceError> {
        self.writer.flush()
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub(crate) fn finish(mut self, when: MonoTime) -> Result<(), DaemonError> {
        self.writer.write(&Line::End { when })?;
        self.writer.finish()?;
        Ok(())
    }
}
