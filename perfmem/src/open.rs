//! Opening side-band events, and the words for why that failed.

use std::io;
use std::path::{Path, PathBuf};

use perf_event::events::Software;
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag};

use crate::errno::{
    EACCES, EBUSY, EINVAL, EMFILE, ENFILE, ENOENT, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM,
};
use crate::record::{Format, sample};
use crate::ring::PAGE;

/// Why there is no side-band.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Which CPUs there are cannot be read.
    #[error("read the list of CPUs {}", path.display())]
    Cpus {
        /// The list.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The list of CPUs is none, or empty.
    #[error("the list of CPUs {} is empty or no list", .0.display())]
    NoCpus(PathBuf),
    /// The event does not open.
    #[error("open a perf event on CPU {cpu}{}", meaning(source))]
    Event {
        /// The CPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its ring cannot be mapped.
    #[error("map a ring for CPU {cpu}{}", meaning(source))]
    Ring {
        /// The CPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It opens, and a thread that was just made is not told.
    #[error("side-band opens, and tells nothing")]
    Silent,
}

/// What an error of `perf_event_open` says of this host.
pub(crate) fn meaning(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(EACCES) => ": needs CAP_PERFMON, or kernel.perf_event_paranoid of 0 or less",
        Some(EPERM) => {
            ": a policy of this host forbids it (lockdown, seccomp, a security module), or no memory may be locked"
        }
        Some(ENOENT | ENOSYS) => ": this kernel has no such event",
        Some(EOPNOTSUPP) => ": this hardware cannot sample it",
        Some(EBUSY | ENOSPC) => ": somebody else has it",
        Some(EMFILE | ENFILE) => ": it takes more open files than are allowed",
        _ => "",
    }
}

/// The form of the records of [`event`].
pub(crate) const FORMAT: Format = Format::plain(sample::TID | sample::TIME, true);

/// An event of one CPU that tells nothing itself: its ring takes what other events tell.
pub(crate) fn silent(cpu: u32, watermark: usize) -> io::Result<Counter> {
    let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
    let mut builder = Builder::new(Software::DUMMY);
    builder
        .any_pid()
        .one_cpu(cpu)
        .clockid(Clock::MONOTONIC)
        .wakeup_watermark(watermark)
        .read_format(ReadFormat::empty())
        .build()
}

/// An event of one CPU that tells what all processes on it do to their address spaces, and nothing else. It wakes who
/// polls it once `watermark` bytes wait. Also whether it counts what it loses, which Linux does since 6.0.
pub(crate) fn event(cpu: u32, watermark: usize) -> io::Result<(Counter, bool)> {
    let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
    let mut builder = Builder::new(Software::DUMMY);
    builder
        .any_pid()
        .one_cpu(cpu)
        .sample(SampleFlag::TID | SampleFlag::TIME)
        .sample_id_all(true)
        .mmap(true)
        .mmap_data(true)
        .mmap2(true)
        .comm(true)
        .comm_exec(true)
        .task(true)
        .clockid(Clock::MONOTONIC)
        .wakeup_watermark(watermark)
        .enabled(true)
        .read_format(ReadFormat::LOST);
    match builder.build() {
        Err(error) if error.raw_os_error() == Some(EINVAL) => {
            builder.read_format(ReadFormat::empty());
            builder.build().map(|event| (event, false))
        }
        outcome => outcome.map(|event| (event, true)),
    }
}

/// CPUs that are online below `root` (kernel `Documentation/admin-guide/cputopology.rst`).
pub(crate) fn online(root: &Path) -> Result<Vec<u32>, OpenError> {
    let path = root.join("sys/devices/system/cpu/online");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(OpenError::Cpus { path, source }),
    };
    match list(text.trim()) {
        Some(cpus) if !cpus.is_empty() => Ok(cpus),
        _ => Err(OpenError::NoCpus(path)),
    }
}

/// Bytes of each of `rings` rings that have `room` bytes together: a power of two, and a page at least.
pub(crate) fn each(room: u32, rings: usize) -> usize {
    let each = usize::try_from(room).unwrap_or(PAGE) / rings.max(1);
    if each > PAGE { 1 << each.ilog2() } else { PAGE }
}

/// CPUs of one host at most (`NR_CPUS` of x86-64).
const CPUS: u32 = 8192;

/// A list such as `0-1,4`.
pub(crate) fn list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        cpus.extend((first..=last).take_while(|cpu| *cpu < CPUS));
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::{OpenError, list, online};

    #[test]
    fn lists_of_cpus_are_read_and_bounded() {
        assert_eq!(list("0-1,4"), Some(vec![0, 1, 4]));
        assert_eq!(list("0"), Some(vec![0]));
        assert_eq!(list(""), None);
        assert_eq!(list("0-x"), None);
        assert_eq!(list("8190-4294967295"), Some(vec![8190, 8191]));
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(online(root.path()), Err(OpenError::Cpus { .. })));
    }

    #[test]
    fn who_may_not_is_told_what_it_takes() {
        let told = |errno| {
            let source = std::io::Error::from_raw_os_error(errno);
            OpenError::Event { cpu: 3, source }.to_string()
        };
        assert!(
            told(13).starts_with("open a perf event on CPU 3: needs CAP_PERFMON"),
            "{}",
            told(13)
        );
        assert!(told(1).contains("policy") && told(2).contains("no such event"));
        assert_eq!(told(5), "open a perf event on CPU 3");
    }
}
