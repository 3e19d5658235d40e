//! Reading a file whole, within bounds, and the errors of reading.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// A file could not be read or understood.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kernel refused.
    #[error("read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a FIFO, socket, device or directory, which might block.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// It is longer than anything that the kernel prints there.
    #[error("{} is longer than {limit} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: usize,
    },
    /// It holds something that the kernel does not print.
    #[error("parse {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What, and where.
        source: ParseError,
    },
}

/// What is wrong with a text, and in which line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl ReadError {
    pub(crate) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }

    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => Errno::from_io_error(source),
            Self::NotRegular { .. } | Self::TooLong { .. } | Self::Parse { .. } => None,
        }
    }

    /// The process (or the file) is not there any more.
    #[must_use]
    pub fn vanished(&self) -> bool {
        matches!(self.errno(), Some(Errno::NOENT | Errno::SRCH))
    }

    /// We may not look.
    #[must_use]
    pub fn refused(&self) -> bool {
        matches!(self.errno(), Some(Errno::ACCESS | Errno::PERM))
    }
}

/// Opens a regular file to read.
pub(crate) fn open(path: &Path) -> Result<File, ReadError> {
    // Without NONBLOCK the open of a FIFO waits for a writer.
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| ReadError::io(path, source))?;
    let regular = file.metadata().map_err(|source| ReadError::io(path, source))?.is_file();
    if regular { Ok(file) } else { Err(ReadError::NotRegular { path: path.to_owned() }) }
}

/// Reads a regular file whole into `buffer`, which is emptied first.
pub(crate) fn read(path: &Path, buffer: &mut Vec<u8>, limit: usize) -> Result<(), ReadError> {
    buffer.clear();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    open(path)?.take(bound).read_to_end(buffer).map_err(|source| ReadError::io(path, source))?;
    if buffer.len() > limit {
        return Err(ReadError::TooLong { path: path.to_owned(), limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{ParseError, ReadError, read};

    #[test]
    fn a_fifo_is_refused_by_name_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("smaps");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = read(&path, &mut Vec::new(), 100).unwrap_err();
        assert!(matches!(error, ReadError::NotRegular { .. }), "{error:?}");
        assert!(error.to_string().contains("smaps"));
    }

    #[test]
    fn a_file_beyond_its_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("maps");
        std::fs::write(&path, [b'x'; 101]).unwrap();
        assert!(matches!(
            read(&path, &mut Vec::new(), 100),
            Err(ReadError::TooLong { limit: 100, .. })
        ));
        assert!(read(&path, &mut Vec::new(), 101).is_ok());
    }

    #[test]
    fn what_is_not_there_has_vanished() {
        let error = read(Path::new("/nowhere/at/all"), &mut Vec::new(), 1).unwrap_err();
        assert!(error.vanished() && !error.refused());
        assert!(error.source().is_some());
    }

    #[test]
    fn a_parse_error_names_its_line() {
        assert_eq!(ParseError { line: 3, what: "no inode" }.to_string(), "line 3: no inode");
    }
}
