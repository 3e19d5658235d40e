//! How a command ends that does not do what it was asked for.

use std::error::Error;
use std::io;

use crate::logging::chain;

/// Exit statuses other than 0 (`sysexits.h` where it has a name for it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 1: the start failed, or the work.
    Failed,
    /// 64: usage or configuration.
    Usage,
    /// 69: no daemon, or it has nothing to say.
    NoDaemon,
}

impl Exit {
    /// The status.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 64,
            Self::NoDaemon => 69,
        }
    }
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status.
    pub exit: Exit,
    /// For people: a line each; none for a reader that went away.
    pub lines: Vec<String>,
}

impl Failure {
    /// One line.
    #[must_use]
    pub fn new(exit: Exit, line: impl Into<String>) -> Self {
        Self { exit, lines: vec![line.into()] }
    }

    /// An error and what caused it, in one line.
    #[must_use]
    pub fn of(exit: Exit, error: &dyn Error) -> Self {
        Self::new(exit, chain(error))
    }

    /// An error of standard output. Whoever reads us may stop when they have seen enough: that is no failure to report.
    pub(super) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Failed, lines: Vec::new() };
        }
        Self::new(Exit::Failed, format!("write standard output: {error}"))
    }
}
