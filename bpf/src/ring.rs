//! Reader of a BPF ring buffer.
//!
//! Layout and protocol: kernel `kernel/bpf/ringbuf.c` and `Documentation/bpf/ringbuf.rst`. A page with the consumer's
//! position, a page with the producer's, and the data, mapped twice in a row so that no record wraps. Own code and
//! not libbpf's, because a watermark needs the producer's position, and records are lent out in place.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memprov_ledger::identity::PAGE;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
const HEADER: usize = 8;

/// A mapped ring. One reader at a time: the consumer's position is ours.
pub(crate) struct Ring {
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    mask: u64,
}

/// Memory that is unmapped on drop.
struct Mapping {
    start: NonNull<u8>,
    len: NonZeroUsize,
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, offset: usize, len: usize, prot: ProtFlags) -> io::Result<Self> {
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is touched.
        let start = unsafe { mmap(ptr::null_mut(), len, prot, flags, fd, offset as u64) }?;
        let (start, len) = (NonNull::new(start.cast()), NonZeroUsize::new(len));
        let (Some(start), Some(len)) = (start, len) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every reference into it borrows from it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len.get()) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping: {unmapped:?}");
    }
}

// SAFETY: the mappings belong to the ring alone, and no thread-local state goes with them.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring buffer `fd` of `size` bytes, a power of two.
    pub(crate) fn new(fd: BorrowedFd<'_>, size: u32) -> io::Result<Self> {
        let page = usize::try_from(PAGE).unwrap_or(4096);
        let size = size as usize;
        let consumer = Mapping::new(fd, 0, page, ProtFlags::READ | ProtFlags::WRITE)?;
        let producer = Mapping::new(fd, page, page + 2 * size, ProtFlags::READ)?;
        Ok(Self { consumer, producer, page, mask: size as u64 - 1 })
    }

    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: the first word of a page that is mapped writable for as long as `self`, used as an atomic by both
        // sides.
        unsafe { AtomicU64::from_ptr(self.consumer.start.as_ptr().cast()) }
    }

    fn produced(&self) -> &AtomicU64 {
        // SAFETY: as above; mapped read-only, and only loaded from.
        unsafe { AtomicU64::from_ptr(self.producer.start.as_ptr().cast()) }
    }

    /// The length word of the record at `at`, and where its bytes begin.
    fn record(&self, at: u64) -> (&AtomicU32, *const u8) {
        let offset = self.page + usize::try_from(at & self.mask).unwrap_or(0);
        // SAFETY: the offset is below the ring's size and data follow for another ring's size. Positions are multiples
        // of 8, so the word is aligned. It is only loaded from.
        unsafe {
            let header = self.producer.start.as_ptr().add(offset);
            (AtomicU32::from_ptr(header.cast()), header.add(HEADER).cast_const())
        }
    }

    /// Hands everything that was reserved before the call to `each`, in order of reservation.
    ///
    /// Waits up to `patience` in total for records that are still being written. Returns whether it got through; else
    /// the rest is left for the next time.
    pub(crate) fn drain(&mut self, patience: Duration, mut each: impl FnMut(&[u8])) -> bool {
        let until = self.produced().load(Ordering::Acquire);
        let mut at = self.consumed().load(Ordering::Relaxed);
        let mut waiting: Option<Instant> = None;
        while at < until {
            let (word, bytes) = self.record(at);
            let len = word.load(Ordering::Acquire);
            if len & BUSY != 0 {
                if waiting.get_or_insert_with(Instant::now).elapsed() >= patience {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let size = (len & !DISCARD) as usize;
            if len & DISCARD == 0 && size <= self.producer.len.get() / 2 {
                // SAFETY: a record is no longer than the ring, and from any offset in it that many bytes are mapped
                // behind. The kernel does not write them until the position moves, below.
                each(unsafe { std::slice::from_raw_parts(bytes, size) });
            }
            at += (size + HEADER).next_multiple_of(8) as u64;
            self.consumed().store(at, Ordering::Release);
        }
        true
    }
}
