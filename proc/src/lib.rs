//! Everything that memprov reads from `/proc`, cgroupfs and node sysfs, below one root.
//!
//! Parsers take bytes and never panic on them; readers take a [`Proc`], which knows the root; [`Scanner`] puts the
//! readings of one process together as evidence. Costs are of Linux 6.18 on a 2 GHz machine.
//!
//! | file | reader | cost |
//! |---|---|---|
//! | `/proc` | [`Proc::pids`] | 1 µs a process |
//! | `PID/status` | [`Proc::status`] | 20 µs |
//! | `PID/stat` | [`Proc::stat`] | 20 µs |
//! | `PID/task`, `PID/task/TID/children` | [`Proc::tasks`], [`Proc::children`] | 1 µs a thread |
//! | `PID/maps` | [`Proc::map_text`] and [`maps::lines`] | 0.25 µs a mapping |
//! | `PID/mountinfo` | [`Proc::mounts`] | 0.1 ms, once in 30 s a mount namespace |
//! | `PID/cgroup` | [`Proc::cgroups`] | 10 µs |
//! | `PID/pagemap`, `PAGEMAP_SCAN` | [`Scanner::scan`] | 20–50 ns a present page; what is not mapped is free |
//! | `PID/pagemap`, read | [`Scanner::scan`] before Linux 6.7, or for bit 56 | 40 ns a page, present or not |
//! | `PID/pagemap` of present pages | [`FrameReader::read`] | 60 ns a present page |
//! | `PID/smaps_rollup` | [`Proc::rollup`] | 46 ns a present page |
//! | `PID/smaps` | [`Proc::smaps_text`] and [`smaps::entries`]; [`Scanner::scan`] where `status` is approximate | 46 ns a present page, 4 µs a mapping |
//! | `PID/numa_maps` | [`numa_maps::lines`]; [`Placer::read`] on hosts with several nodes | 72 ns a present page, 4 µs a mapping |
//! | `move_pages` without a place to move to | [`Placer::read`] | 0.17 µs a page |
//! | `PID/task/TID/stat` | [`Placer::read`] | 20 µs a thread |
//! | `memory.stat` and other files of a cgroup | [`memcg::Memcg::charge`] | 0.2 ms, and a sum over CPUs where it is due |
//! | `meminfo`, `node/nodeN` | [`Proc::meminfo`], [`Proc::nodes`] | 30 µs a file |
//! | `iomem` | [`Proc::system_ram`] | 30 µs |
//! | names below `node/nodeN` | [`Proc::node_frames`] | 1 µs a block of memory |
//!
//! Reads happen in the thread that asks. Files of procfs do not block; what is not a regular file (a FIFO below another
//! root) is refused before it is read. A file of a FUSE file system below another root can hold the thread up: there is
//! no deadline inside the kernel's `read`.
#![deny(unsafe_code)]

mod accuracy;
mod backing;
pub mod budget;
mod bytes;
#[allow(unsafe_code, reason = "a system call that no library has")]
mod cachestat;
pub mod cgroup;
pub mod clock;
mod cost;
mod evidence;
mod frames;
mod iomem;
pub mod maps;
pub mod memcg;
mod memcg_files;
pub mod meminfo;
pub mod mountinfo;
#[allow(unsafe_code, reason = "a system call that reads and writes through pointers")]
mod move_pages;
mod node;
pub mod numa_maps;
mod pagemap;
#[allow(unsafe_code, reason = "an ioctl that the kernel writes through a pointer for")]
mod pagemap_scan;
mod pages;
mod placed;
mod procfs;
mod read;
mod scan;
pub mod smaps;
pub mod stat;
pub mod status;
mod sums;
mod text;

pub use accuracy::RssAccuracy;
pub use frames::{FrameReader, Lying, Most};
pub use node::{Node, id_list};
pub use pagemap::Entry;
pub use placed::{Placer, Placing};
pub use procfs::Proc;
pub use read::{ParseError, ReadError};
pub use scan::{ScanError, ScanOptions, Scanner};
pub use text::lossless;
