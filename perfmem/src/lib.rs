//! `perf_event_open(2)`: side-band records of what address spaces become, and whether memory accesses can be sampled.
//!
//! | file | is |
//! |---|---|
//! | `open` | events: one dummy event for each CPU, all processes |
//! | `ring` | the buffer that the kernel writes records into, mapped. The only unsafe code of the crate |
//! | `record` | records as the kernel lays them out, parsed from bytes |
//! | `sideband` | rings of all CPUs, read in one order, and what they lost |
//! | `data_src` | what answered an access, bit by bit |
//! | `file` | recordings of perf, read record by record: header, features, order of time |
//! | `ibs` | raw samples of AMD's IBS |
//! | `spe` | sample records of Arm's SPE |
//! | `nodes` | which NUMA node a CPU and a frame belong to |
//! | `evidence` | from records to evidence |
//! | `pmu` | which event of the PMU would sample memory accesses, and what a trial open says |
//! | `words` | an event as numbers, and how a PMU describes them in sysfs |
//! | `sampler` | samples of threads or of all processes, live, by the same rings and records |
//! | `clock` | the clock of all of it |
//! | `errno` | error numbers that mean something here |
//!
//! Side-band needs CAP_PERFMON alone (or `kernel.perf_event_paranoid` of 0 or less) and no BPF. It tells that mappings
//! came to be, grew or changed, and that processes forked, ran another program and ended. It says nothing of munmap, of
//! mremap, of a heap that shrinks, of failed calls, and of who asked.
#![deny(unsafe_code)]

mod clock;
pub mod data_src;
mod errno;
mod evidence;
pub mod file;
pub mod ibs;
pub mod nodes;
mod open;
mod pmu;
pub mod record;
#[allow(unsafe_code, reason = "the kernel writes the ring while we read it")]
mod ring;
mod sampler;
mod sideband;
pub mod spe;
mod words;

pub use evidence::Kind;
pub use open::OpenError;
pub use pmu::{MemEvent, Probe, Verdict, judge, probe};
pub use sampler::{
    Counts as SampleCounts, Period, Ran, SampleError, Sampled, Sampler, probe as probe_faults,
};
pub use sideband::{Counts, ReadError, Sideband, probe as probe_sideband};
pub use words::{DescriptionError, Words};
