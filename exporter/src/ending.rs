//! Ends the reading of a recording at Ctrl-C, so that what was read until then is told.
//!
//! A read of a pipe that says nothing cannot be called off. So a thread copies what comes through a pipe to another one,
//! which takes the place of standard input and ends when that is asked for. Whoever writes may have had the same signal, as
//! everybody in a pipeline of a shell: its last words are waited for.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::import::Until;

/// How long the other end of a pipe may go on after the signal.
const LAST: Duration = Duration::from_secs(2);
/// Bytes that are copied at once: as many as a pipe holds.
const BUFFER: usize = 1 << 16;

/// Standard input.
const STDIN: &str = "-";

/// A recording that a signal ends.
#[derive(Debug)]
pub(crate) struct Ending {
    /// What to read.
    pub(crate) path: PathBuf,
    /// How far.
    pub(crate) until: Until,
}

impl Ending {
    /// SIGINT and SIGTERM end the reading of `path` from now on, and those that come second this process. What is no file is
    /// standard input from now on.
    ///
    /// # Errors
    /// When signals cannot be handled, or there is no pipe or thread left.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let (path, until) = (path.to_owned(), Until::default());
        // One that does not open is told of by whoever reads it.
        let Ok(from) = opened(&path) else { return Ok(Self { path, until }) };
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        if from.metadata().is_ok_and(|about| about.is_file() || about.is_dir()) {
            let until = Until { stop: Arc::clone(&asked), cut: asked, ..until };
            return Ok(Self { path, until });
        }
        let (read, write) = io::pipe()?;
        let (woken, wake) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        rustix::stdio::dup2_stdin(&read)?;
        let (cut, failed) = (Arc::clone(&until.cut), Arc::clone(&until.failed));
        let copy = move || {
            let done = copy(from, &write, (&woken, LAST), &cut);
            // Known before the other end sees that nothing more comes.
            drop(done.map_err(|error| failed.set(error)));
            drop(write);
        };
        std::thread::Builder::new().name("stdin".to_owned()).spawn(copy)?;
        Ok(Self { path: STDIN.into(), until })
    }
}

fn opened(path: &Path) -> io::Result<File> {
    match path.to_str() {
        Some(STDIN) => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        _ => File::open(path),
    }
}

/// Copies until the end, or for `last` after `woken` was; sets `cut` in the latter case. An error is one of `from`: nobody to
/// write to has read enough.
fn copy(
    mut from: File,
    mut to: &PipeWriter,
    (woken, last): (&UnixStream, Duration),
    cut: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut until: Option<Instant> = None;
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            cut.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&from, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        // Once woken it stays so.
        let watched = if until.is_some() { 1 } else { fds.len() };
        match poll(&mut fds[..watched], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [more, asked] = fds.map(|fd| !fd.revents().is_empty());
        if asked {
            until = Some(Instant::now() + last);
        }
        if more {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() => {
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::copy;

    /// What comes out where `first` is written before the signal and `last` behind it, and whether it was cut.
    fn told(first: &[u8], end: Option<&[u8]>) -> (Vec<u8>, bool) {
        let (from, mut writer) = std::io::pipe().unwrap();
        let (mut out, to) = std::io::pipe().unwrap();
        let (woken, mut wake) = UnixStream::pair().unwrap();
        let cut = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cut);
        let from = File::from(OwnedFd::from(from));
        // With an end there is time for it, without one there is none.
        let last = if end.is_some() { Duration::from_secs(600) } else { Duration::ZERO };
        let copier = std::thread::spawn(move || copy(from, &to, (&woken, last), &flag));
        let mut all = vec![0; first.len()];
        writer.write_all(first).unwrap();
        out.read_exact(&mut all).unwrap();
        wake.write_all(b"x").unwrap();
        writer.write_all(end.unwrap_or_default()).unwrap();
        let open = end.is_none().then_some(writer);
        out.read_to_end(&mut all).unwrap();
        copier.join().unwrap().unwrap();
        drop(open);
        (all, cut.load(Ordering::Relaxed))
    }

    #[test]
    fn what_is_written_after_the_signal_is_waited_for_and_silence_is_not() {
        assert_eq!(told(b"begin", Some(b" and end")), (b"begin and end".to_vec(), false));
        assert_eq!(told(b"begin", None), (b"begin".to_vec(), true));
        assert_eq!(told(b"", Some(b"")), (Vec::new(), false));
    }
}
