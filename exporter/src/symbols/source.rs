//! Where a module's bytes can be read, and whether what is read there is still that module.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memprov_ledger::identity::{Extent, Tgid};
use rustix::fs::{Mode, OFlags};

use super::elf::{Elf, ElfError, Image};
use super::segments::{Code, Segment, process_dir};

/// Places remembered for one module.
const MAX_PLACES: usize = 8;

/// A file as `stat` tells it from others: a path may name another one later, and an inode number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Where a module can be read: its path on this host first (it outlives the processes), then where processes have it,
/// newest first.
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
    /// A file, under any of these paths.
    File { identity: FileIdentity, places: Vec<PathBuf> },
    /// The kernel's vdso, which every process has.
    Vdso,
    /// A perf map: text that names generated code.
    PerfMap { path: PathBuf },
    /// Nobody could open it.
    Unreadable,
}

impl ModuleSource {
    /// The ELF file.
    pub(crate) fn elf(&self) -> Result<Elf, OpenError> {
        match &self.kind {
            SourceKind::File { identity, places } => {
                let opened =
                    places.iter().map(|p| open(p, OFlags::empty(), |found| *found == *identity));
                let (file, _, _) = first_ok(opened)?;
                Ok(Elf::parse(Image::file(file)?)?)
            }
            SourceKind::Vdso => Ok(Elf::parse(vdso()?)?),
            SourceKind::PerfMap { .. } | SourceKind::Unreadable => Err(OpenError::NoPlace),
        }
    }

    /// Remembers another place. When there are too many, those of processes that are gone are forgotten, else the
    /// oldest.
    pub(crate) fn seen_at(&mut self, place: PathBuf) {
        if let SourceKind::File { places, .. } = &mut self.kind
            && !places.contains(&place)
        {
            if places.len() >= MAX_PLACES {
                places.retain(|p| std::fs::symlink_metadata(p).is_ok());
            }
            places.insert(1.min(places.len()), place);
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
    /// What the path names is not the file that was mapped, or not a regular file.
    #[error("{path} is not the mapped file")]
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

fn first_ok<T>(tries: impl Iterator<Item = Result<T, OpenError>>) -> Result<T, OpenError> {
    let mut first = None;
    for result in tries {
        match result {
            Ok(found) => return Ok(found),
            Err(err) => first = first.or(Some(err)),
        }
    }
    Err(first.unwrap_or(OpenError::NoPlace))
}

/// Opens a regular file that `accept` knows. What is at the path is looked at before it is opened: opening a device or
/// a pipe may act or block.
fn open(
    path: &Path,
    look: OFlags,
    accept: impl Fn(&FileIdentity) -> bool,
) -> Result<(File, FileIdentity, PathBuf), OpenError> {
    let failed = |source: io::Error| OpenError::Open { path: path.into(), source };
    let handle = File::from(
        rustix::fs::open(path, look | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| failed(errno.into()))?,
    );
    let found = handle.metadata().map_err(failed)?;
    let identity = FileIdentity {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
    };
    if !found.is_file() || !accept(&identity) {
        return Err(OpenError::Other { path: path.into() });
    }
    let file = File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())).map_err(failed)?;
    Ok((file, identity, path.into()))
}

/// Opens a regular file that is no symbolic link.
pub(crate) fn open_plain(path: &Path) -> Result<File, OpenError> {
    open(path, OFlags::NOFOLLOW, |_| true).map(|(file, _, _)| file)
}

/// Opens the file of a segment: through `map_files`, which is the mapped file whatever its path says now, else by
/// path in the process' root, accepted when the inode number is that of `maps` (the device differs on btrfs and
/// overlayfs).
pub(crate) fn open_segment(
    root: &Path,
    tgid: Tgid,
    segment: &Segment,
) -> Result<(File, FileIdentity, PathBuf), OpenError> {
    let Code::File { inode, path, blocking: false, .. } = &segment.code else {
        return Err(OpenError::NoPlace);
    };
    let dir = process_dir(root, tgid);
    let Extent { start, end } = segment.extent;
    open(&dir.join(format!("map_files/{start:x}-{end:x}")), OFlags::empty(), |_| true).or_else(
        |first| {
            let below = Path::new(std::ffi::OsStr::from_bytes(path));
            let path = dir.join("root").join(below.strip_prefix("/").unwrap_or(below));
            open(&path, OFlags::empty(), |found| found.inode == inode.number).map_err(|_| first)
        },
    )
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
