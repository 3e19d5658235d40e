//! The ring of one event: memory that the kernel writes records into and we read from (kernel
//! `include/uapi/linux/perf_event.h`, `struct perf_event_mmap_page`). The only unsafe code of the crate.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{IntegerSetter, Setter, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::errno::EPERM;

/// Offsets of `data_head`, `data_tail`, `data_offset`, `data_size` in the first page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;
const DATA_SIZE: usize = 1048;
/// Bytes of the first page, and the smallest ring behind it.
pub(crate) const PAGE: usize = 4096;

/// An open event with its ring.
#[derive(Debug)]
pub(crate) struct Ring {
    event: OwnedFd,
    map: NonNull<u8>,
    /// Bytes of the map: the first page and the data.
    mapped: usize,
    /// Bytes of data: a power of two.
    size: usize,
}

impl Ring {
    /// Maps a ring of `size` bytes of data, a power of two of whole pages; of half the size, and so on, while more memory
    /// than may be locked would be needed.
    ///
    /// Errors: those of `mmap` for the smallest that was tried.
    pub(crate) fn map(event: impl IntoRawFd, size: usize) -> io::Result<Self> {
        // SAFETY: `into_raw_fd` gives the descriptor away: nobody else closes it.
        let mut event = unsafe { OwnedFd::from_raw_fd(event.into_raw_fd()) };
        let mut size = size;
        loop {
            match Self::of(event, size) {
                Ok(ring) => return Ok(ring),
                Err((back, error)) => {
                    let locked = error.raw_os_error() == Some(EPERM);
                    if !locked || size <= PAGE {
                        return Err(error);
                    }
                    (event, size) = (back, size / 2);
                }
            }
        }
    }

    fn of(event: OwnedFd, size: usize) -> Result<Self, (OwnedFd, io::Error)> {
        let mapped = PAGE + size;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let map = unsafe {
            mmap(std::ptr::null_mut(), mapped, access, MapFlags::SHARED, event.as_fd(), 0)
        };
        match map.map(|map| NonNull::new(map.cast::<u8>())) {
            Ok(Some(map)) => {
                let ring = Self { event, map, mapped, size };
                // Kernels before 4.1 leave both 0 and have the data behind the first page.
                let (at, of) = (ring.field(DATA_OFFSET), ring.field(DATA_SIZE));
                let told = (at.load(Ordering::Relaxed), of.load(Ordering::Relaxed));
                debug_assert!(told == (PAGE as u64, size as u64) || told == (0, 0), "{told:?}");
                Ok(ring)
            }
            Ok(None) => Err((event, io::ErrorKind::AddrNotAvailable.into())),
            Err(error) => Err((event, error.into())),
        }
    }

    /// A field of the first page, which both sides read and write.
    fn field(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is one of the constants above: a multiple of 8 within the first page, which lives as long as
        // `self`. All accesses on this side are atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_ptr().add(offset).cast()) }
    }

    /// Appends what was written since the last time, and gives its room back. Returns how many bytes that were.
    pub(crate) fn drain(&mut self, into: &mut Vec<u8>) -> usize {
        // Pairs with the kernel's barrier between its data and `data_head` (kernel/events/ring_buffer.c).
        let head = self.field(HEAD).load(Ordering::Acquire);
        let tail = self.field(TAIL).load(Ordering::Relaxed);
        let count = usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX).min(self.size);
        into.reserve(count);
        for span in spans(tail, count, self.size) {
            // SAFETY: `spans` stays within the `size` bytes behind the first page. What lies between `data_tail` and
            // `data_head` the kernel does not write until `data_tail` has moved on.
            let written = unsafe {
                std::slice::from_raw_parts(self.map.as_ptr().add(PAGE + span.start), span.len())
            };
            into.extend_from_slice(written);
        }
        // After the last byte was copied.
        self.field(TAIL).store(head, Ordering::Release);
        count
    }

    /// Bytes of data that it has room for.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Records that the event had no room for, where it was opened with `PERF_FORMAT_LOST` alone (value, lost).
    pub(crate) fn lost(&self) -> Option<u64> {
        let mut bytes = [0u8; 16];
        let count = rustix::io::read(&self.event, &mut bytes).ok()?;
        let lost = bytes.get(8..count)?.first_chunk()?;
        Some(u64::from_ne_bytes(*lost))
    }

    /// Has another event of the same CPU write here (`PERF_EVENT_IOC_SET_OUTPUT`).
    pub(crate) fn take_from(&self, event: &impl AsRawFd) -> io::Result<()> {
        let here = usize::try_from(self.event.as_raw_fd()).map_err(io::Error::other)?;
        // SAFETY: the descriptor is open for as long as what it is borrowed from. The kernel takes a descriptor as a
        // number and writes no memory of ours.
        unsafe {
            let event = BorrowedFd::borrow_raw(event.as_raw_fd());
            ioctl(event, IntegerSetter::<{ opcode::none(b'$', 5) }>::new_usize(here))
        }?;
        Ok(())
    }
}

/// Sets how many events each sample stands for from now on (`PERF_EVENT_IOC_PERIOD`).
pub(crate) fn set_period(event: &impl AsRawFd, period: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as what it is borrowed from. The kernel reads 8 bytes, which live as
    // long as the call.
    unsafe {
        let event = BorrowedFd::borrow_raw(event.as_raw_fd());
        ioctl(event, Setter::<{ opcode::write::<u64>(b'$', 4) }, u64>::new(period))
    }?;
    Ok(())
}

/// Waits until some ring has enough. Whose CPUs went offline: their events tell nothing any more.
///
/// Errors: those of `poll`, but for an interruption.
pub(crate) fn wait<'a>(
    rings: impl Iterator<Item = (u32, &'a Ring)>,
    wait: Duration,
) -> io::Result<Vec<u32>> {
    let (cpus, mut fds): (Vec<u32>, Vec<PollFd<'_>>) = rings
        .map(|(cpu, ring)| (cpu, PollFd::from_borrowed_fd(ring.as_fd(), PollFlags::IN)))
        .unzip();
    let timeout = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let over = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    let gone = cpus.into_iter().zip(&fds).filter(|(_, fd)| fd.revents().intersects(over));
    Ok(gone.map(|(cpu, _)| cpu).collect())
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the map that `of` made, and nothing borrowed from it outlives `self`.
        let gone = unsafe { munmap(self.map.as_ptr().cast(), self.mapped) };
        debug_assert!(gone.is_ok(), "{gone:?}");
    }
}

/// Where `count` bytes from position `tail` on lie in a ring of `size` bytes: up to its end, and from its begin on.
fn spans(tail: u64, count: usize, size: usize) -> [Range<usize>; 2] {
    let start = usize::try_from(tail % size.max(1) as u64).unwrap_or(0);
    let first = count.min(size - start);
    [start..start + first, 0..count - first]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::spans;

    proptest! {
        #[test]
        fn what_wraps_around_the_end_of_a_ring_is_read_in_one_piece(
            tail in any::<u64>(),
            order in 3u32..10,
            written in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let size = 1usize << order;
            let written = &written[..written.len().min(size)];
            let mut ring = vec![0u8; size];
            for (n, byte) in written.iter().enumerate() {
                let at = tail.wrapping_add(n as u64) % size as u64;
                ring[usize::try_from(at).unwrap()] = *byte;
            }
            let read: Vec<u8> =
                spans(tail, written.len(), size).into_iter().flat_map(|span| ring[span].to_vec()).collect();
            prop_assert_eq!(read, written);
        }
    }
}
