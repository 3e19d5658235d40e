//! Where a module's bytes can be read, and whether what is read there is still that module.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memprov_ledger::identity::{Extent, Tgid};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::elf::{Elf, ElfError, Image};
use super::mounts::{self, Device};
use super::segments::{Code, Segment, process_dir};

/// Places remembered for one module.
const MAX_PLACES: usize = 8;

/// A file as `statx` tells it from others: a path may name another one later, and an inode number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: Device,
    inode: u64,
    size: u64,
    modified: (i64, u32),
}

/// Where a file is, so that looking it up never waits for a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A link of `/proc/PID/map_files`: the mapped file itself, whatever its path says now.
    Link(PathBuf),
    /// `path` below `dir`, as far as the kernel has it in memory (a mapped file's path is). `dir` is a root.
    Below {
        /// A root directory.
        dir: PathBuf,
        /// A path in it.
        path: PathBuf,
    },
}

impl Place {
    /// The file of this absolute path in a root.
    pub(crate) fn below(dir: PathBuf, path: &Path) -> Self {
        Self::Below { dir, path: path.strip_prefix("/").unwrap_or(path).into() }
    }

    fn shown(&self) -> PathBuf {
        match self {
            Self::Link(path) => path.clone(),
            Self::Below { dir, path } => dir.join(path),
        }
    }

    /// Finds the file without opening it: opening a device, a pipe or a file of FUSE may act or block.
    fn find(&self) -> rustix::io::Result<File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = match self {
            Self::Link(path) => rustix::fs::open(path, flags, Mode::empty())?,
            Self::Below { dir, path } => {
                let root = rustix::fs::open(dir, flags | OFlags::DIRECTORY, Mode::empty())?;
                let flags = flags | OFlags::NOFOLLOW;
                let how = ResolveFlags::IN_ROOT | ResolveFlags::CACHED;
                match rustix::fs::openat2(&root, path, flags, Mode::empty(), how) {
                    // Before Linux 5.12 a look-up cannot be told not to wait.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        rustix::fs::openat(&root, path, flags, Mode::empty())?
                    }
                    found => found?,
                }
            }
        };
        Ok(found.into())
    }

    /// Whether something is there.
    pub(crate) fn exists(&self) -> bool {
        self.find().is_ok()
    }

    /// Opens a regular file that `accept` knows.
    pub(crate) fn open(
        &self,
        accept: impl FnOnce(&FileIdentity) -> bool,
    ) -> Result<(File, FileIdentity), OpenError> {
        let failed = |source| OpenError::Open { path: self.shown(), source };
        let file = self.find().map_err(|errno| failed(errno.into()))?;
        let (kind, identity) = look(&file).map_err(|errno| failed(errno.into()))?;
        if kind != FileType::RegularFile || !accept(&identity) {
            return Err(OpenError::Other { path: self.shown() });
        }
        let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(failed)?;
        Ok((file, identity))
    }
}

/// What a file is, as the kernel has it in memory: nobody is asked.
fn look(file: &File) -> rustix::io::Result<(FileType, FileIdentity)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, "", flags, StatxFlags::BASIC_STATS)?;
    let identity = FileIdentity {
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        size: found.stx_size,
        modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
    };
    Ok((FileType::from_raw_mode(found.stx_mode.into()), identity))
}

/// Where a module can be read.
#[derive(Clone, Debug)]
pub struct ModuleSource {
    /// File name without directory.
    pub name: String,
    /// Build id in hex.
    pub build_id: Option<String>,
    pub(crate) kind: SourceKind,
}

#[derive(Clone, Debug)]
pub(crate) enum SourceKind {
    /// A file: where processes have it, newest first, and its path on this host, which may outlive them.
    File { identity: FileIdentity, places: Vec<Place>, host: Place },
    /// The kernel's vdso, which every process has.
    Vdso,
    /// A perf map: text that names generated code.
    PerfMap { root: PathBuf, tgid: Tgid, place: Place },
    /// Nobody could open it.
    Unreadable,
}

impl ModuleSource {
    /// The ELF file.
    pub(crate) fn elf(&self) -> Result<Elf, OpenError> {
        match &self.kind {
            SourceKind::File { identity, places, host } => {
                let mut first = None;
                for place in places.iter().chain([host]) {
                    match place.open(|found| found == identity) {
                        Ok((file, _)) => return Ok(Elf::parse(Image::file(file)?)?),
                        Err(err) => first = first.or(Some(err)),
                    }
                }
                Err(first.unwrap_or(OpenError::NoPlace))
            }
            SourceKind::Vdso => Ok(Elf::parse(vdso()?)?),
            SourceKind::PerfMap { .. } | SourceKind::Unreadable => Err(OpenError::NoPlace),
        }
    }

    /// Remembers another place. When there are too many, those of processes that are gone are forgotten, else the
    /// oldest.
    pub(crate) fn seen_at(&mut self, place: Place) {
        if let SourceKind::File { places, .. } = &mut self.kind
            && !places.contains(&place)
        {
            if places.len() >= MAX_PLACES {
                places.retain(Place::exists);
            }
            places.insert(0, place);
            places.truncate(MAX_PLACES);
        }
    }
}

/// Why a module's file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A path could not be opened.
    #[error("open {path}")]
    Open {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What the path names is not the file that was mapped, not a regular file, or may keep a reader waiting for ever.
    #[error("{path} is not the mapped file, or not safe to read")]
    Other {
        /// The path.
        path: PathBuf,
    },
    /// There is no place to read it from.
    #[error("no place to read the module from")]
    NoPlace,
    /// The file is there and broken.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// Opens the file of a segment: through `map_files`, or where that is not permitted by path in the process' root,
/// accepted when the inode number is that of `maps` (the device differs on btrfs and overlayfs). Where that root may not be
/// entered (no CAP_SYS_PTRACE), by path on this host, accepted when the device is that of `maps`, too.
pub(crate) fn open_segment(
    root: &Path,
    tgid: Tgid,
    segment: &Segment,
) -> Result<(File, FileIdentity, Place), OpenError> {
    let Code::File { inode, path, blocking: false, .. } = &segment.code else {
        return Err(OpenError::NoPlace);
    };
    let dir = process_dir(root, tgid);
    // The mapping may be another one by now.
    let safe = |found: &FileIdentity| {
        let known = found.device == (inode.major, inode.minor);
        known || mounts::blocking(root, &dir, vec![found.device]).is_empty()
    };
    let Extent { start, end } = segment.extent;
    let place = Place::Link(dir.join(format!("map_files/{start:x}-{end:x}")));
    match place.open(safe) {
        Ok((file, identity)) => Ok((file, identity, place)),
        Err(OpenError::Open { source, .. })
            if matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
            ) =>
        {
            let place = Place::below(dir.join("root"), Path::new(OsStr::from_bytes(path)));
            let same = |found: &FileIdentity| found.inode == inode.number && safe(found);
            match place.open(same) {
                Err(OpenError::Open { source, .. })
                    if source.kind() == io::ErrorKind::PermissionDenied =>
                {
                    let device = (inode.major, inode.minor);
                    let sure = |found: &FileIdentity| same(found) && found.device == device;
                    let place = Place::below(root.into(), Path::new(OsStr::from_bytes(path)));
                    place.open(sure).map(|(file, identity)| (file, identity, place))
                }
                opened => opened.map(|(file, identity)| (file, identity, place)),
            }
        }
        Err(err) => Err(err),
    }
}

/// Opens a perf map, which its process may change or replace while it is read.
pub(crate) fn open_perf_map(root: &Path, tgid: Tgid, place: &Place) -> Result<File, OpenError> {
    let dir = process_dir(root, tgid);
    let safe = |found: &FileIdentity| mounts::blocking(root, &dir, vec![found.device]).is_empty();
    place.open(safe).map(|(file, _)| file)
}

/// Opens a file of this host by a path that only its administrator can change.
pub(crate) fn open_of_host(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Open { path: path.into(), source };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty());
    file.map(File::from).map_err(|errno| failed(errno.into()))
}

/// The vdso, read from our own memory: all processes of a host have the same.
pub(crate) fn vdso() -> Result<Image, OpenError> {
    let root = Path::new("/");
    let own = Tgid(std::process::id());
    let failed = |source| OpenError::Open { path: "/proc/self/maps".into(), source };
    let segments = super::segments::read(root, own).map_err(failed)?;
    let vdso = segments.iter().find(|s| s.code == Code::Vdso).ok_or(OpenError::NoPlace)?;
    let failed = |source| OpenError::Open { path: "/proc/self/mem".into(), source };
    let memory = File::open("/proc/self/mem").map_err(failed)?;
    Ok(Image::part(memory, vdso.extent.start, vdso.extent.len()))
}
