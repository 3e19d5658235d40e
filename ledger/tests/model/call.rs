//! The calls that the naive kernel executes, and the names of what they are about.

use memprov_ledger::evidence::Backing;
use memprov_ledger::identity::{Extent, ObjectKey, PAGE};

/// A system call or an event of a process. Pages by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `mmap` without an address: the kernel takes the lowest free range.
    Map {
        pages: u64,
        of: Option<Object>,
    },
    /// `mmap` with `MAP_FIXED`.
    MapFixed {
        at: u64,
        pages: u64,
        of: Option<Object>,
    },
    Unmap {
        at: u64,
        pages: u64,
    },
    /// `mremap` that may not move: shrinks, or grows where there is room.
    Resize {
        at: u64,
        old: u64,
        new: u64,
    },
    /// `mremap` to the lowest free range.
    Move {
        at: u64,
        old: u64,
        new: u64,
        keep: bool,
    },
    /// `mremap` with `MREMAP_FIXED`.
    MoveFixed {
        at: u64,
        old: u64,
        new: u64,
        to: u64,
        keep: bool,
    },
    Brk {
        pages: u64,
    },
    Attach {
        segment: u64,
        pages: u64,
    },
    /// `shmat` with `SHM_REMAP`: over what is there.
    AttachOver {
        at: u64,
        segment: u64,
        pages: u64,
    },
    Detach {
        at: u64,
    },
    /// `mmap` with `MAP_FIXED` that fails after it removed the first pages of what was there.
    FailMapFixed {
        at: u64,
        pages: u64,
        removed: u64,
    },
    /// `munmap` that fails after it removed the first pages.
    FailUnmap {
        at: u64,
        pages: u64,
        removed: u64,
    },
    Read {
        at: u64,
    },
    Write {
        at: u64,
    },
    Drop {
        at: u64,
        pages: u64,
    },
    SwapOut {
        at: u64,
    },
    Fork {
        child: u32,
    },
    /// `vfork` or `clone` with `CLONE_VM`.
    Share {
        child: u32,
    },
    Exec,
    Exit,
}

/// A file or memfd, mapped from its page `index` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) inode: u64,
    pub(crate) index: u64,
    pub(crate) private: bool,
}

/// Files have odd inodes, shmem has even ones.
pub(crate) fn backing(key: ObjectKey) -> Backing {
    if key.inode % 2 == 1 { Backing::File(key) } else { Backing::Shmem(key) }
}

pub(crate) fn key(inode: u64) -> ObjectKey {
    ObjectKey { major: 8, minor: 1, inode }
}

/// The addresses of pages.
pub(crate) fn extent(at: u64, pages: u64) -> Extent {
    Extent::new(address(at), pages * PAGE)
}

pub(crate) fn address(page: u64) -> u64 {
    0x1000_0000 + page * PAGE
}
