//! Opening a recording by its name: a file, or what comes through a pipe.
//!
//! A stream (`perf record -o -`) is read as it comes, however long it goes on. Whatever has the header of a file is read
//! out of order, so from a pipe it goes to a temporary file without a name first.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::header::{Header, PIPE, read_up_to};
use super::{HeaderError, Recording};

/// Bytes that are read at once.
const BUFFER: usize = 1 << 18;
/// Bytes of a temporary file at most.
const SPOOLED: u64 = 8 << 30;

/// A recording cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It does not open.
    #[error("open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its header is wrong.
    #[error("recording {}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// How.
        #[source]
        source: HeaderError,
    },
    /// It comes through a pipe, and cannot be kept in a temporary file.
    #[error("copy {} to a temporary file", path.display())]
    Spool {
        /// The pipe.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It comes through a pipe, and is larger than a temporary file may be.
    #[error("{}: more than {limit} bytes through a pipe; name the file", path.display())]
    Large {
        /// The pipe.
        path: PathBuf,
        /// How large it may be.
        limit: u64,
    },
}

impl Recording {
    /// Opens a recording and reads what it says of itself. `-` is standard input.
    ///
    /// # Errors
    /// When it does not open, is no recording, or describes no event.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::within(path, SPOOLED)
    }

    /// With so many bytes for a temporary file.
    fn within(path: &Path, limit: u64) -> Result<Self, FileError> {
        let name = || path.to_owned();
        let failed = |source| FileError::Open { path: name(), source };
        let header = |source| FileError::Header { path: name(), source };
        let mut file = match path.to_str() {
            Some("-") => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            _ => File::open(path),
        }
        .map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if about.is_file() {
            return Self::read(buffered(file), about.len()).map_err(header);
        }
        let mut first = [0; PIPE];
        let read = read_up_to(&mut file, &mut first).map_err(HeaderError::Read).map_err(header)?;
        let first = first.get(..read).unwrap_or_default();
        if let Some(stream) = Header::stream(first).map_err(header)? {
            return Self::over(buffered(file), stream).map_err(header);
        }
        let spooled = spool(first, file, limit);
        match spooled.map_err(|source| FileError::Spool { path: name(), source })? {
            Some((file, length)) => Self::read(buffered(file), length).map_err(header),
            None => Err(FileError::Large { path: name(), limit }),
        }
    }
}

fn buffered(file: File) -> BufReader<File> {
    BufReader::with_capacity(BUFFER, file)
}

/// A temporary file with `first` and all of `rest`, and its length; none where that is more than `limit`.
fn spool(first: &[u8], rest: File, limit: u64) -> io::Result<Option<(File, u64)>> {
    let mut file = tempfile::tempfile()?;
    file.write_all(first)?;
    let room = limit.saturating_sub(first.len() as u64);
    let copied = io::copy(&mut rest.take(room.saturating_add(1)), &mut file)?;
    file.rewind()?;
    Ok((copied <= room).then_some((file, first.len() as u64 + copied)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::path::{Path, PathBuf};

    use super::{FileError, Recording};

    /// What is written to the other end of a pipe by somebody else, under a name.
    fn piped(bytes: Vec<u8>) -> (OwnedFd, PathBuf) {
        let (read, write) = std::io::pipe().unwrap();
        // Whoever has read enough goes away.
        std::thread::spawn(move || drop(File::from(OwnedFd::from(write)).write_all(&bytes)));
        let read = OwnedFd::from(read);
        let name = format!("/dev/fd/{}", read.as_raw_fd());
        (read, name.into())
    }

    /// Everything that a recording tells, and how many records it has.
    fn told(mut recording: Recording) -> (String, u64) {
        let mut all = Vec::new();
        while recording.next(&mut all) {}
        (format!("{all:?}"), recording.tally().records)
    }

    #[test]
    fn through_a_pipe_a_recording_tells_what_it_tells_as_a_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/perfdata");
        for name in
            ["quipper/perf.data.piped.header_features_aligned-6.12", "akshay-numatop/perf.data"]
        {
            let path = folder.join(name);
            let Ok(bytes) = std::fs::read(&path) else {
                println!("skipped: no {}", path.display());
                return;
            };
            let (read, pipe) = piped(bytes);
            let through = told(Recording::open(&pipe).unwrap());
            drop(read);
            let whole = told(Recording::open(&path).unwrap());
            assert!(whole.1 > 10 && through == whole, "{name}: {} {}", through.1, whole.1);
        }
    }

    #[test]
    fn what_is_too_large_for_a_temporary_file_is_refused_with_the_limit() {
        let bytes = [b"PERFILE2".as_slice(), &104u64.to_le_bytes(), &[0; 2000]].concat();
        let (_read, pipe) = piped(bytes.clone());
        let large = Recording::within(&pipe, 2015);
        assert!(matches!(large, Err(FileError::Large { limit: 2015, .. })));
        let (_read, pipe) = piped(bytes);
        assert!(matches!(Recording::within(&pipe, 2016), Err(FileError::Header { .. })));
        let (_read, pipe) = piped(b"PERF".to_vec());
        assert!(matches!(Recording::open(&pipe), Err(FileError::Header { .. })));
    }
}
