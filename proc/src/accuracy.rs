//! How exact the Rss figures of `/proc/PID/status` are: found out by trying, as distributions carry fixes backwards.

use std::sync::Barrier;
use std::thread;

use memprov_ledger::identity::{PAGE, Tgid};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::procfs::Proc;

/// How the kernel sums Rss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RssAccuracy {
    /// Exactly (recent kernels; 6.18).
    Exact,
    /// From per-CPU counters whose remainders are left out (from 6.2; `lib/percpu_counter.c`).
    PerCpu {
        /// Possible remainders: online CPUs.
        cpus: u32,
    },
    /// Without what each thread has not handed in yet (to 6.1; `SPLIT_RSS_COUNTING` in `mm/memory.c`).
    PerThread,
}

/// Faults that a thread may have counted and not handed in (`TASK_RSS_EVENTS_THRESH` and `check_sync_rss_stat` to 6.1).
const EVENTS: u64 = 66;
/// Pages of an object that one fault maps around it, all of them counted by that one event (`fault_around_bytes`).
const AROUND: u64 = 16;
/// Readings at most until one is undisturbed.
const TRIES: u32 = 100;
/// Pages that each thread of the trial touches: below every batch.
const TOUCHED: usize = 7;

impl RssAccuracy {
    /// Tries it on ourselves: threads on different CPUs touch a few pages each; then `status` and `smaps_rollup`, which
    /// walks the pages, are compared. Other threads of ours may move memory meanwhile: a reading that is unequal counts
    /// only when `status` is the same before and after it.
    ///
    /// For files of another machine its version decides, never for exact.
    #[must_use]
    pub fn probe(proc: &Proc) -> Self {
        if proc.is_live() && tried_exact(proc) {
            return Self::Exact;
        }
        let release = std::fs::read(proc.path("sys/kernel/osrelease")).unwrap_or_default();
        match version(&release) {
            Some(version) if version >= (6, 2) => {
                let cpus = proc.online_cpus().map(|cpus| cpus.len());
                Self::PerCpu { cpus: cpus.ok().and_then(|n| u32::try_from(n).ok()).unwrap_or(1) }
            }
            _ => Self::PerThread,
        }
    }

    /// How far figures of a process with `threads` threads may be off, in bytes: of anonymous memory and swap, and of
    /// files and shmem.
    #[must_use]
    pub fn slack(self, threads: u32) -> (u64, u64) {
        match self {
            Self::Exact => (0, 0),
            // `percpu_counter_batch`: 32, or twice the CPUs; a remainder is smaller.
            Self::PerCpu { cpus } => {
                let cpus = u64::from(cpus);
                let slack = cpus.saturating_mul((2 * cpus).max(32)).saturating_mul(PAGE);
                (slack, slack)
            }
            Self::PerThread => {
                let slack = u64::from(threads).saturating_mul(EVENTS * PAGE);
                (slack, slack.saturating_mul(AROUND))
            }
        }
    }
}

fn tried_exact(proc: &Proc) -> bool {
    let cpus = proc.online_cpus().unwrap_or_default();
    let threads = cpus.len().clamp(2, 8);
    let own = Tgid(std::process::id());
    let (touched, done) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    thread::scope(|scope| {
        for index in 0..threads {
            let (touched, done) = (&touched, &done);
            let cpu = cpus.get(index).and_then(|cpu| usize::try_from(*cpu).ok());
            let began = thread::Builder::new().spawn_scoped(scope, move || {
                if let Some(cpu) = cpu.filter(|cpu| *cpu < CpuSet::MAX_CPU) {
                    let mut set = CpuSet::new();
                    set.set(cpu);
                    // A CPU that we may not use leaves the thread where it is: a weaker trial, still a right one.
                    sched_setaffinity(None, &set).unwrap_or_default();
                }
                let pages = vec![1u8; TOUCHED * 4096];
                touched.wait();
                done.wait();
                drop(pages);
            });
            if began.is_err() {
                // A thread that cannot be made would leave the others waiting: stand in for it.
                scope.spawn(move || {
                    touched.wait();
                    done.wait();
                });
            }
        }
        touched.wait();
        let mut equal = false;
        for _ in 0..TRIES {
            let before = proc.status(own).ok().map(|status| status.amounts);
            let rollup = proc.rollup(own).ok();
            let after = proc.status(own).ok().map(|status| status.amounts);
            let Some(((before, after), rollup)) = before.zip(after).zip(rollup) else { break };
            let disturbed = (before.rss_anon, before.vm_rss) != (after.rss_anon, after.vm_rss);
            equal = before.rss_anon.is_some()
                && (before.rss_anon, before.vm_rss) == (rollup.anonymous, rollup.rss);
            if equal || !disturbed {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(2));
        }
        done.wait();
        equal
    })
}

/// Major and minor version of `6.1.0-50-amd64`.
fn version(release: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(release).ok()?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    numbers.next()?.ok().zip(numbers.next()?.ok())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{RssAccuracy, version};
    use crate::procfs::Proc;

    #[test]
    fn slack_grows_with_what_is_left_out() {
        assert_eq!(RssAccuracy::Exact.slack(1000), (0, 0));
        let pages = |n: u64| n * 4096;
        assert_eq!(RssAccuracy::PerThread.slack(9), (pages(9 * 66), pages(9 * 66 * 16)));
        assert_eq!(RssAccuracy::PerCpu { cpus: 2 }.slack(9), (pages(2 * 32), pages(2 * 32)));
        assert_eq!(RssAccuracy::PerCpu { cpus: 64 }.slack(9), (pages(64 * 128), pages(64 * 128)));
    }

    #[test]
    fn versions_are_read_from_any_release() {
        assert_eq!(version(b"6.18.44-fc-v509\n"), Some((6, 18)));
        assert_eq!(version(b"5.10.0-32-amd64"), Some((5, 10)));
        assert_eq!(version(b""), None);
        assert_eq!(version(b"\xff"), None);
    }

    #[test]
    fn files_of_another_machine_are_never_called_exact() {
        let dir = tempfile::tempdir().unwrap();
        let release = dir.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&release).unwrap();
        assert_eq!(RssAccuracy::probe(&Proc::at(dir.path())), RssAccuracy::PerThread);
        std::fs::write(release.join("osrelease"), "6.18.1\n").unwrap();
        assert_eq!(RssAccuracy::probe(&Proc::at(dir.path())), RssAccuracy::PerCpu { cpus: 1 });
    }

    #[test]
    fn this_kernel_is_judged_by_trial() {
        let release = std::fs::read("/proc/sys/kernel/osrelease").unwrap();
        let tried = RssAccuracy::probe(&Proc::at(Path::new("/")));
        if version(&release) < Some((6, 18)) {
            eprintln!(
                "skipped: {} is not known to sum exactly: {tried:?}",
                String::from_utf8_lossy(&release)
            );
            return;
        }
        assert_eq!(tried, RssAccuracy::Exact);
    }
}
