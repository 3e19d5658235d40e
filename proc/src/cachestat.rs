//! The `cachestat` system call (Linux 6.5; kernel `include/uapi/linux/mman.h`, `mm/filemap.c`).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

/// Its number: equal on all architectures that begin with 5.1's common table.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`. A length of 0 goes to the end of the file.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat`: pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cache: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Pages of the whole file that the page cache has.
///
/// Errors: `ENOSYS` before 6.5, `EPERM` without the right to write (6.13), `EOPNOTSUPP` for hugetlbfs.
pub(crate) fn cached_pages(file: &OwnedFd) -> Result<u64, Errno> {
    let range = Range { offset: 0, length: 0 };
    let mut told = Cachestat::default();
    // SAFETY: the kernel reads a `struct cachestat_range` and writes a `struct cachestat`; `Range` and `Cachestat` have
    // their layouts and live until the call ends. The descriptor is open for as long as `file`.
    let result =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut told, 0) };
    if result == 0 {
        Ok(told.cache)
    } else {
        let error = std::io::Error::last_os_error();
        Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}
