//! The state directory: one daemon at a time, and the kill switch.
//!
//! The lock is `flock(2)` on the directory itself, so that it leaves no file behind and ends with its process.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, flock, statat};
use rustix::io::Errno;

/// The kill switch: a file of this name has everything detached from the kernel, and nothing attached at a start.
pub const DISABLE: &str = "disable";

/// A state directory that this process holds.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    directory: File,
}

/// Why a state directory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// It is not there and cannot be made.
    #[error("create state directory {}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be opened.
    #[error("open state directory {}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else could put a socket of his own in it.
    #[error(
        "others may write state directory {} (mode {mode:o}, owner {owner}) and answer in memprov's name: \
         chown and chmod go-w it, or name another one with --state-dir",
        path.display()
    )]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner's user id.
        owner: u32,
    },
    /// Another process holds it.
    #[error(
        "another memprov{} has the state directory {}: end it, or name another one with --state-dir",
        show_pid(*pid), path.display()
    )]
    Busy {
        /// The directory.
        path: PathBuf,
        /// Who, when it answers on its socket.
        pid: Option<u32>,
    },
    /// The lock cannot be taken for another reason.
    #[error("lock state directory {}", path.display())]
    Lock {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn show_pid(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl StateDir {
    /// Makes the directory if need be (mode 0700) and locks it for the life of the value.
    ///
    /// # Errors
    /// When it cannot be made, is open to others, or is held by another process.
    pub fn hold(path: &Path) -> Result<Self, StateDirError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| StateDirError::Create { path: path.to_owned(), source })?;
        let open = |source| StateDirError::Open { path: path.to_owned(), source };
        let directory = File::open(path).map_err(open)?;
        let metadata = directory.metadata().map_err(open)?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw() || metadata.uid() == 0;
        if metadata.mode() & 0o022 != 0 || !own {
            return Err(StateDirError::Exposed {
                path: path.to_owned(),
                mode: metadata.mode() & 0o7777,
                owner: metadata.uid(),
            });
        }
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), directory }),
            Err(Errno::WOULDBLOCK) => Err(StateDirError::Busy {
                path: path.to_owned(),
                pid: crate::socket::listener_pid(path),
            }),
            Err(errno) => Err(StateDirError::Lock { path: path.to_owned(), source: errno.into() }),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the kill switch is on. One `fstatat(2)`: cheap enough to ask several times a second.
    #[must_use]
    pub fn disabled(&self) -> bool {
        statat(&self.directory, DISABLE, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{DISABLE, StateDir, StateDirError};

    #[test]
    fn a_new_directory_is_for_its_owner_only_and_stays_empty() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let held = StateDir::hold(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        assert_eq!(std::fs::read_dir(held.path()).unwrap().count(), 0);
        drop(held);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_is_held_by_one_and_free_again_when_that_one_ends() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateDir::hold(dir.path()).unwrap();
        assert!(matches!(StateDir::hold(dir.path()), Err(StateDirError::Busy { pid: None, .. })));
        drop(held);
        assert!(StateDir::hold(dir.path()).is_ok());
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = StateDir::hold(dir.path()).unwrap_err();
        assert!(matches!(error, StateDirError::Exposed { mode: 0o777, .. }), "{error}");
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = StateDir::hold(file.path()).unwrap_err();
        assert!(error.to_string().contains(&file.path().display().to_string()));
    }

    #[test]
    fn the_kill_switch_is_a_file_that_comes_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateDir::hold(dir.path()).unwrap();
        assert!(!held.disabled());
        std::fs::write(dir.path().join(DISABLE), "").unwrap();
        assert!(held.disabled());
        std::fs::remove_file(dir.path().join(DISABLE)).unwrap();
        assert!(!held.disabled());
    }
}
