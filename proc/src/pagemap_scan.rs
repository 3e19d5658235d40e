//! The `PAGEMAP_SCAN` ioctl of `/proc/PID/pagemap` (Linux 6.7; kernel `include/uapi/linux/fs.h`): runs of pages by
//! category, holes skipped.

use std::ffi::c_void;
use std::fs::File;

use memprov_ledger::identity::Extent;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

/// Page categories (`PAGE_IS_*`).
pub(crate) mod category {
    /// `PAGE_IS_FILE`: not anonymous.
    pub(crate) const FILE: u64 = 1 << 2;
    /// `PAGE_IS_PRESENT`.
    pub(crate) const PRESENT: u64 = 1 << 3;
    /// `PAGE_IS_SWAPPED`: also migration entries, guard regions and userfaultfd markers.
    pub(crate) const SWAPPED: u64 = 1 << 4;
    /// `PAGE_IS_PFNZERO`: the zero page, huge or not.
    pub(crate) const ZERO: u64 = 1 << 5;
    /// `PAGE_IS_HUGE`: mapped by a huge entry.
    pub(crate) const HUGE: u64 = 1 << 6;
    /// `PAGE_IS_GUARD` (Linux 6.15).
    pub(crate) const GUARD: u64 = 1 << 8;
}

/// `struct page_region`: a run of pages of the same categories.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const _: () =
    assert!(size_of::<Argument>() == 96 && size_of::<Region>() == 24, "the kernel's sizes");

struct Call<'a> {
    argument: Argument,
    /// Keeps the memory that `argument.vec` points to borrowed for as long as the kernel may write there.
    _regions: &'a mut [Region],
}

// SAFETY: the opcode is that of PAGEMAP_SCAN, whose argument is a `struct pm_scan_arg` that the kernel reads and writes;
// `Argument` has its layout. The kernel writes at most `vec_len` regions at `vec`, which are borrowed mutably by
// `_regions`, have the layout of `struct page_region`, and accept any bits.
unsafe impl Ioctl for Call<'_> {
    /// Regions written, and the address where the walk stopped.
    type Output = (usize, u64);
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<Argument>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.argument).cast()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        argument: *mut c_void,
    ) -> rustix::io::Result<Self::Output> {
        // SAFETY: it is the pointer that `as_ptr` gave, to an `Argument` that lives until the call ends.
        let argument = unsafe { &*argument.cast::<Argument>() };
        Ok((usize::try_from(out).map_err(|_| Errno::OVERFLOW)?, argument.walk_end))
    }
}

/// Writes the present and swapped runs of `extent` to `regions`, at most `max_pages` pages of them, with the categories
/// of `wanted`. Gives the number of regions and the address up to which it looked.
///
/// Errors: `ENOTTY` before Linux 6.7 and for what is no pagemap; `EINVAL` for a category that the kernel does not know.
pub(crate) fn scan(
    pagemap: &File,
    extent: Extent,
    wanted: u64,
    max_pages: u64,
    regions: &mut [Region],
) -> Result<(usize, u64), Errno> {
    let argument = Argument {
        size: size_of::<Argument>() as u64,
        start: extent.start,
        end: extent.end,
        vec: regions.as_mut_ptr().expose_provenance() as u64,
        vec_len: regions.len() as u64,
        max_pages,
        category_anyof_mask: category::PRESENT | category::SWAPPED,
        return_mask: wanted,
        ..Argument::default()
    };
    let call = Call { argument, _regions: regions };
    // SAFETY: `Call` describes the ioctl truly, see its `unsafe impl`; the descriptor is open for as long as `pagemap`.
    unsafe { rustix::ioctl::ioctl(pagemap, call) }
}
