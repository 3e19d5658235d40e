//! `/proc/PID/pagemap`: one 64-bit entry per page (kernel `Documentation/admin-guide/mm/pagemap.rst`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memprov_ledger::identity::{Extent, PAGE};

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// Bit 63.
    #[must_use]
    pub fn present(self) -> bool {
        self.0 >> 63 & 1 == 1
    }

    /// Bit 62: swapped out, or another entry that is not present (migration, guard, userfaultfd marker).
    #[must_use]
    pub fn swapped(self) -> bool {
        self.0 >> 62 & 1 == 1
    }

    /// Bit 61: a page of an object, not anonymous; also the huge zero page.
    #[must_use]
    pub fn object(self) -> bool {
        self.0 >> 61 & 1 == 1
    }

    /// Bit 58: a guard region (Linux 6.15).
    #[must_use]
    pub fn guard(self) -> bool {
        self.0 >> 58 & 1 == 1
    }

    /// Bit 56: mapped here alone (Linux 4.2).
    #[must_use]
    pub fn exclusive(self) -> bool {
        self.0 >> 56 & 1 == 1
    }

    /// Bits 0–54, the frame number of a present page. `None`: hidden from us (no `CAP_SYS_ADMIN` when it was opened).
    #[must_use]
    pub fn frame(self) -> Option<u64> {
        Some(self.0 & ((1 << 55) - 1)).filter(|frame| self.present() && *frame != 0)
    }

    /// Bits 0–4, the swap area, of a page that is swapped out. `None`: hidden from us.
    ///
    /// The highest types are no swap areas: `MAX_SWAPFILES` is 23 where all special entries are configured, and those
    /// lie above it (`include/linux/swap.h`).
    #[must_use]
    pub fn swap_type(self) -> Option<u64> {
        Some(self.0 & 0x1f).filter(|_| self.swapped() && self.0 & ((1 << 55) - 1) != 0)
    }
}

/// Entries read at a time: 128 MiB of addresses. The kernel takes the mmap lock anew every 2 MiB.
const BATCH: usize = 32_768;

/// Reads all entries of an extent in whole pages, in order.
///
/// Ends early where the file does: above the highest address, or when the process is gone.
pub(crate) fn entries(
    file: &File,
    extent: Extent,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(u64, Entry),
) -> io::Result<()> {
    let mut at = extent.start;
    buffer.resize(BATCH * 8, 0);
    while at < extent.end {
        let left = usize::try_from((extent.end - at) / PAGE).unwrap_or(BATCH).clamp(1, BATCH);
        let part = buffer.get_mut(..left * 8).unwrap_or_default();
        let read = file.read_at(part, at / PAGE * 8)?;
        if read < 8 {
            return Ok(());
        }
        for bytes in part.get(..read).unwrap_or_default().as_chunks::<8>().0 {
            each(at, Entry(u64::from_ne_bytes(*bytes)));
            at += PAGE;
        }
    }
    Ok(())
}

/// The frame of the zero page: learned from a reading of untouched memory of our own. `None` where frames are hidden.
///
/// One frame on x86-64 and arm64; on architectures with several, none is learned.
pub(crate) fn zero_frame(own_pagemap: &File) -> Option<u64> {
    // Above the largest threshold of malloc this is a mapping of its own, and reading it maps the zero page. Both ends
    // are looked at: one of them is no whole huge page.
    const LEN: usize = (33 << 20) + (900 << 10);
    const LOOK: usize = 64 << 10;
    let memory = vec![0u8; LEN];
    let mut frames = Vec::new();
    for part in [memory.get(..LOOK)?, memory.get(LEN - LOOK..)?] {
        for page in part.chunks(4096) {
            std::hint::black_box(std::hint::black_box(page).first().copied());
        }
        let start = u64::try_from(part.as_ptr().addr()).ok()?.next_multiple_of(PAGE);
        let extent = Extent::new(start, u64::try_from(LOOK).ok()? - 2 * PAGE);
        entries(own_pagemap, extent, &mut Vec::new(), |_, entry| {
            // The huge zero page looks like an object's; in old kernels like 512 pages of their own.
            if entry.present() && !entry.object() && !entry.exclusive() {
                frames.extend(entry.frame());
            }
        })
        .ok()?;
    }
    // The one frame that lies at several addresses.
    let times = |frame: &u64| frames.iter().filter(|other| *other == frame).count();
    frames.iter().copied().find(|frame| times(frame) > 8)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use memprov_ledger::identity::{Extent, PAGE};

    use super::{Entry, entries, zero_frame};

    #[test]
    fn bits_are_those_of_the_kernel() {
        // Printed by Linux 6.18: an anonymous page, a shared object's page, a guard region.
        let anon = Entry(0x8100_0000_0011_20cc);
        assert!(anon.present() && anon.exclusive() && !anon.object() && !anon.swapped());
        assert_eq!(anon.frame(), Some(0x11_20cc));
        let object = Entry(0xa000_0000_0010_3b75);
        assert!(object.object() && !object.exclusive());
        let guard = Entry(0x4400_0000_0000_009f);
        assert!(guard.swapped() && guard.guard() && !guard.present());
        assert_eq!((guard.frame(), guard.swap_type()), (None, Some(31)));
    }

    #[test]
    fn a_file_that_ends_early_ends_the_reading() {
        let mut file = tempfile::tempfile().unwrap();
        let entry = Entry(1 << 63 | 5);
        for _ in 0..3 {
            file.write_all(&entry.0.to_ne_bytes()).unwrap();
        }
        file.write_all(b"odd").unwrap();
        let mut seen = Vec::new();
        let extent = Extent::new(PAGE, 10 * PAGE);
        entries(&file, extent, &mut Vec::new(), |at, e| seen.push((at, e))).unwrap();
        assert_eq!(seen, [(PAGE, entry), (2 * PAGE, entry)]);
    }

    #[test]
    fn the_zero_page_is_one_frame_wherever_it_is_looked_for() {
        let Ok(file) = std::fs::File::open("/proc/self/pagemap") else {
            eprintln!("skipped: /proc/self/pagemap cannot be read");
            return;
        };
        let mut own = 0;
        let here = Extent::pages(u64::try_from((&raw const own).addr()).unwrap(), 1);
        entries(&file, here, &mut Vec::new(), |_, entry| own = entry.frame().unwrap_or(0)).unwrap();
        if own == 0 {
            eprintln!("skipped: frame numbers are hidden (needs CAP_SYS_ADMIN)");
            return;
        }
        let frame = zero_frame(&file);
        assert!(frame.is_some_and(|frame| frame != own));
        assert_eq!(frame, zero_frame(&file));
    }
}
