//! What the page cache has of the files that processes hold open: `cachestat` (Linux 6.5, `mm/filemap.c`).
//!
//! A descriptor is borrowed with `pidfd_getfd` (Linux 5.6): nothing is opened, so no FIFO blocks, no lease breaks, no
//! access time moves, and no fanotify listener is asked. `statx` is told not to ask a server. `cachestat` walks the page
//! cache of the one file and reads nothing in; from 6.13 it wants a descriptor, owner or mode that may write.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use memprov_ledger::charge::CachedFile;
use memprov_ledger::identity::{ObjectKey, PAGE, Tgid};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::backing;
use crate::cachestat::cached_pages;
use crate::procfs::Proc;
use crate::text::lossless;

/// Processes that are looked into at most, the first of the list.
const PROCESSES: usize = 64;
/// Descriptors of one process that are looked at, at most.
const DESCRIPTORS: usize = 512;
/// Files of one cgroup that are asked for, at most.
const FILES: usize = 512;
/// Files with less in the page cache are left to the unknown ones.
const SMALLEST: u64 = 16 * PAGE;

/// The files that `pids` hold open and their bytes in the page cache, by identity; without those of tmpfs and hugetlbfs,
/// which are told apart from page cache. Empty on another root than the
/// machine's own, and where the kernel or our rights do not allow it.
pub(crate) fn cached(proc: &Proc, pids: &[Tgid]) -> Vec<CachedFile> {
    if !proc.is_live() {
        return Vec::new();
    }
    let (mut namespaces, mut in_memory) = (BTreeSet::new(), BTreeSet::new());
    let mut asked = BTreeSet::new();
    let mut found = BTreeMap::new();
    for pid in pids.iter().take(PROCESSES) {
        if proc.mount_namespace(*pid).is_some_and(|namespace| namespaces.insert(namespace)) {
            let mounts = proc.mounts(*pid).unwrap_or_default();
            in_memory.extend(backing::in_memory(&mounts));
        }
        let Some(process) = Process::open(proc, *pid) else { continue };
        for descriptor in process.descriptors() {
            if asked.len() >= FILES {
                return found.into_values().collect();
            }
            let Some((key, path)) = process.regular(descriptor) else { continue };
            if in_memory.contains(&(key.major, key.minor)) || !asked.insert(key) {
                continue;
            }
            let pages = process.borrow(descriptor, key).and_then(|fd| cached_pages(&fd).ok());
            let cached = pages.unwrap_or(0).saturating_mul(PAGE);
            if cached >= SMALLEST {
                found.insert(key, CachedFile { key, path, cached });
            }
        }
    }
    found.into_values().collect()
}

struct Process<'a> {
    proc: &'a Proc,
    tgid: Tgid,
    pidfd: OwnedFd,
}

impl<'a> Process<'a> {
    fn open(proc: &'a Proc, tgid: Tgid) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(tgid.0).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Self { proc, tgid, pidfd })
    }

    fn descriptors(&self) -> impl Iterator<Item = i32> + use<> {
        let list = std::fs::read_dir(self.proc.process(self.tgid).join("fd"));
        let names = list.into_iter().flatten().take(DESCRIPTORS).flatten();
        names.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// Identity and path of a descriptor of a regular file that is no shmem without a name.
    fn regular(&self, descriptor: i32) -> Option<(ObjectKey, Arc<str>)> {
        let link = self.proc.process(self.tgid).join(format!("fd/{descriptor}"));
        let path = std::fs::read_link(&link).ok()?;
        let path = path.as_os_str().as_bytes();
        if !path.starts_with(b"/") || path.starts_with(b"/memfd:") || path.starts_with(b"/proc/") {
            return None;
        }
        let key = identity(CWD, &link)?;
        Some((key, Arc::from(lossless(path))))
    }

    /// The descriptor, if it still is that file.
    fn borrow(&self, descriptor: i32, key: ObjectKey) -> Option<OwnedFd> {
        let fd = pidfd_getfd(&self.pidfd, descriptor, PidfdGetfdFlags::empty()).ok()?;
        (identity(&fd, "") == Some(key)).then_some(fd)
    }
}

/// The identity of a regular file, by what the kernel knows without asking a server.
fn identity(at: impl AsFd, path: impl rustix::path::Arg) -> Option<ObjectKey> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = statx(at, path, flags, StatxFlags::TYPE | StatxFlags::INO).ok()?;
    let regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    let key =
        ObjectKey { major: stat.stx_dev_major, minor: stat.stx_dev_minor, inode: stat.stx_ino };
    regular.then_some(key)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use memprov_ledger::identity::Tgid;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

    use super::cached;
    use crate::procfs::Proc;

    #[test]
    fn an_open_file_is_told_with_its_pages_and_a_fifo_is_left_alone() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("data");
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(&vec![1; 4 << 20]).unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _reader = open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let found = cached(&Proc::at(Path::new("/")), &[Tgid(std::process::id())]);
        if found.is_empty() {
            println!("skipped: this kernel or these rights have no cachestat");
            return;
        }
        let inode = file.metadata().unwrap().ino();
        let data =
            found.iter().find(|f| f.key.inode == inode && f.path.ends_with("/data")).unwrap();
        assert_eq!(data.cached, 4 << 20);
        assert!(found.iter().all(|f| !f.path.ends_with("/fifo")));
    }

    #[test]
    fn an_open_file_of_tmpfs_is_no_page_cache() {
        let mut file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        // TMPFS_MAGIC (kernel include/uapi/linux/magic.h).
        if rustix::fs::fstatfs(&file).unwrap().f_type != 0x0102_1994 {
            println!("skipped: /dev/shm is no tmpfs");
            return;
        }
        let inode = file.as_file().metadata().unwrap().ino();
        let found = cached(&Proc::at(Path::new("/")), &[Tgid(std::process::id())]);
        assert!(found.iter().all(|found| found.key.inode != inode), "{found:?}");
    }

    #[test]
    fn nothing_is_borrowed_on_another_root() {
        assert!(cached(&Proc::at(Path::new("/proc/..")), &[Tgid(std::process::id())]).is_empty());
    }
}
