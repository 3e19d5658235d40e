//! What the agent costs, by its own account.
//!
//! | figure | source | limits |
//! |---|---|---|
//! | CPU by thread | `/proc/PID/task/TID/schedstat`, the process' CPU clock | what a thread ran after it was read last is `ended`: all, without the former; what threads ran between the two readings is missing there for a while |
//! | memory | VmRSS | a ring counts twice, as it is mapped twice |
//! | BPF programs | the kernel's run time statistics, for [`COUNT_FOR`] every [`COUNT_EVERY`] | a sample: counting all the time would add some 40 ns to each run |
//! | system calls | `getppid` timed before and after attaching | what is attached later by others is not in it |

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use memprov_bpf::RunTime;
use memprov_ledger::identity::Tgid;
use memprov_ledger::scan::Differences;
use memprov_ledger::time::MonoTime;
use memprov_proc::{Proc, clock};
use rustix::process::getppid;
use rustix::time::{ClockId, clock_gettime};

use crate::report;

/// How often BPF programs are counted.
pub const COUNT_EVERY: Duration = Duration::from_secs(20);
/// How long they are.
pub const COUNT_FOR: Duration = Duration::from_secs(1);

/// Batches of calls that are timed; the fastest counts, as others were disturbed.
const BATCHES: u32 = 32;
/// Calls of a batch.
const CALLS: u32 = 500;

/// What attaching cost every system call.
#[derive(Clone, Copy, Debug)]
pub struct Tax {
    /// Nanoseconds a call.
    pub nanos: f64,
    /// Calls of the host in a second when the mechanism was chosen, where that was counted.
    pub calls: Option<u64>,
}

/// Nanoseconds of a system call that does next to nothing, as the hooks let it be now.
#[must_use]
pub fn call_nanos() -> f64 {
    let batch = |_| {
        let begun = clock::thread_cpu();
        for _ in 0..CALLS {
            std::hint::black_box(getppid());
        }
        clock::thread_cpu().saturating_sub(begun)
    };
    let fastest = (0..BATCHES).map(batch).min().unwrap_or_default();
    fastest.as_secs_f64() * 1e9 / f64::from(CALLS)
}

/// Accounts for the agent.
#[derive(Debug)]
pub struct Cost {
    proc: Proc,
    /// Our own process.
    tgid: Tgid,
    tax: Option<Tax>,
    counted: Option<RunTime>,
    /// CPU at the ends of the last two intervals, the older one first.
    marks: [(MonoTime, Duration); 2],
    spent: RefCell<Spent>,
}

/// CPU seconds that threads were read with. They count on, and must not fall with a thread that ends.
#[derive(Debug, Default)]
struct Spent {
    /// By name, of threads that live and that have ended.
    named: BTreeMap<String, f64>,
    /// Of those that live, when they were read last.
    living: BTreeMap<u32, f64>,
    /// The most that was left for no name. It is a difference of readings.
    ended: f64,
}

impl Spent {
    /// Counts on by what living threads, each with its name, were read with now.
    fn read(&mut self, threads: impl Iterator<Item = (u32, String, f64)>) {
        let mut living = BTreeMap::new();
        for (tid, name, seconds) in threads {
            // A thread with less than it had is another one.
            let before = self.living.get(&tid).filter(|before| **before <= seconds);
            *self.named.entry(name).or_default() += seconds - before.unwrap_or(&0.0);
            living.insert(tid, seconds);
        }
        self.living = living;
    }

    /// Those of each name, and of none where the process has `total`.
    fn told(&mut self, total: f64) -> BTreeMap<String, f64> {
        self.ended = self.ended.max(total - self.named.values().sum::<f64>());
        let ended = ("ended".to_owned(), self.ended);
        self.named.clone().into_iter().chain([ended]).collect()
    }
}

impl Cost {
    /// An account of this process as `proc` shows it. `tax` is `None` where nothing is attached.
    #[must_use]
    pub fn new(proc: Proc, tax: Option<Tax>, now: MonoTime) -> Self {
        let mark = (now, process_cpu());
        let tgid = Tgid(std::process::id());
        Self { proc, tgid, tax, counted: None, marks: [mark; 2], spent: RefCell::default() }
    }

    /// An interval ends.
    pub fn mark(&mut self, now: MonoTime) {
        self.marks = [self.marks[1], (now, process_cpu())];
    }

    /// What BPF programs cost while they were counted.
    pub fn counted(&mut self, run_time: RunTime) {
        self.counted = Some(run_time);
    }

    /// Nothing is attached any more.
    pub fn detached(&mut self) {
        (self.tax, self.counted) = (None, None);
    }

    /// The account as reports have it. `skipped`: readings that were not made, by reason.
    #[must_use]
    pub fn told(
        &self,
        skipped: &BTreeMap<&'static str, u64>,
        differences: Differences,
        now: MonoTime,
    ) -> report::Agent {
        let total = process_cpu();
        let mut spent = self.spent.borrow_mut();
        spent.read(self.threads());
        let cpu_seconds = spent.told(total.as_secs_f64());
        let (since, before) = self.marks[0];
        report::Agent {
            cpu_seconds,
            cpu_fraction: per_second(total.saturating_sub(before).as_secs_f64(), now.since(since)),
            rss_bytes: self.resident(),
            bpf: self.counted.and_then(bpf),
            syscall_tax: self.tax.map(|tax| self.syscalls(tax)),
            scans: report::Scans {
                skipped: skipped.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect(),
            },
            differences: report::Differences {
                adopted: differences.adopted,
                vanished: differences.vanished,
                replaced: differences.replaced,
            },
            configuration: None,
        }
    }

    /// Living threads: id, name, CPU seconds.
    fn threads(&self) -> impl Iterator<Item = (u32, String, f64)> {
        self.proc.tasks(self.tgid).unwrap_or_default().into_iter().filter_map(|tid| {
            let file = |name: &str| {
                fs::read_to_string(self.proc.path(format!("{}/task/{tid}/{name}", self.tgid.0)))
                    .ok()
            };
            // The first thread bears the name of the program.
            let name = if tid == self.tgid.0 { "fuser".to_owned() } else { file("comm")? };
            // The first field is nanoseconds on a CPU (kernel Documentation/scheduler/sched-stats.rst).
            let nanos = file("schedstat")?.split(' ').next()?.parse().ok()?;
            Some((tid, name.trim().to_owned(), Duration::from_nanos(nanos).as_secs_f64()))
        })
    }

    fn resident(&self) -> Option<u64> {
        self.proc.status(self.tgid).ok()?.amounts.vm_rss
    }

    fn syscalls(&self, tax: Tax) -> report::SyscallTax {
        let counted = self.counted.and_then(|c| per_second(count(c.calls?), c.span));
        let calls = counted.or(tax.calls.map(count));
        report::SyscallTax {
            nanoseconds_per_call: tax.nanos,
            calls_per_second: calls,
            cpu_fraction: calls.map(|calls| calls * tax.nanos / 1e9),
        }
    }
}

fn bpf(counted: RunTime) -> Option<report::BpfCost> {
    Some(report::BpfCost {
        cpu_fraction: per_second(counted.time.as_secs_f64(), counted.span)?,
        runs_per_second: per_second(count(counted.runs), counted.span)?,
        counted_seconds: counted.span.as_secs_f64(),
    })
}

/// A rate; `None` over no time.
fn per_second(amount: f64, span: Duration) -> Option<f64> {
    (!span.is_zero()).then(|| amount / span.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
fn count(n: u64) -> f64 {
    n as f64
}

/// CPU time of all threads, ended ones too.
fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        BTreeMap, Cost, Differences, Duration, Proc, RunTime, Tax, call_nanos, clock, process_cpu,
    };

    fn cost(tax: Option<Tax>) -> Cost {
        Cost::new(Proc::at(Path::new("/")), tax, clock::now())
    }

    fn told(cost: &Cost) -> crate::report::Agent {
        cost.told(&BTreeMap::from([("still", 3)]), Differences::default(), clock::now())
    }

    fn spin() {
        let begun = clock::thread_cpu();
        while clock::thread_cpu() - begun < Duration::from_millis(30) {}
    }

    #[test]
    fn the_seconds_of_all_threads_are_those_of_the_process_whether_they_live_or_not() {
        let cost = cost(None);
        assert!(
            std::thread::Builder::new().name("gone".into()).spawn(spin).unwrap().join().is_ok()
        );
        let before = process_cpu().as_secs_f64();
        let agent = told(&cost);
        let sum: f64 = agent.cpu_seconds.values().sum();
        assert!(
            sum >= before - 0.01 && sum <= process_cpu().as_secs_f64() + 0.01,
            "{sum} {before}"
        );
        assert!(agent.cpu_seconds["ended"] >= 0.025, "{agent:?}");
        assert!(agent.cpu_fraction.is_some_and(|f| f > 0.0));
        assert!(agent.rss_bytes.is_some_and(|bytes| bytes > 100_000));
        assert_eq!(agent.scans.skipped, BTreeMap::from([("still".to_owned(), 3)]));
    }

    #[test]
    fn seconds_of_a_name_stay_when_a_thread_of_it_ends() {
        let cost = cost(None);
        let twin = || {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let (ready, spun) = std::sync::mpsc::channel();
            let work = move || {
                spin();
                ready.send(()).unwrap();
                assert!(ended.recv().is_err());
            };
            let thread = std::thread::Builder::new().name("twin".into()).spawn(work).unwrap();
            spun.recv().unwrap();
            (end, thread)
        };
        let [(end, thread), (other, second)] = [twin(), twin()];
        let before = told(&cost).cpu_seconds;
        assert!(before["twin"] >= 0.055, "{before:?}");
        drop(end);
        thread.join().unwrap();
        let one = told(&cost).cpu_seconds;
        drop(other);
        second.join().unwrap();
        let none = told(&cost).cpu_seconds;
        assert!(before["twin"] <= one["twin"] && one["twin"] <= none["twin"], "{one:?} {none:?}");
        let sum: f64 = none.values().sum();
        assert!(sum <= process_cpu().as_secs_f64() + 0.01, "{none:?}: nothing counts twice");
    }

    #[test]
    fn seconds_count_on_under_the_name_that_a_thread_has_and_its_id_may_become_anothers() {
        let mut spent = super::Spent::default();
        let read = |spent: &mut super::Spent, threads: &[(u32, &str, f64)], total| {
            spent.read(threads.iter().map(|(tid, name, s)| (*tid, (*name).to_owned(), *s)));
            spent.told(total)
        };
        let told = |of: [(&str, f64); 3]| BTreeMap::from(of.map(|(name, s)| (name.to_owned(), s)));
        read(&mut spent, &[(1, "new", 1.0), (2, "otlp", 8.0)], 9.0);
        let renamed = read(&mut spent, &[(1, "scans", 3.0), (2, "otlp", 8.0)], 12.0);
        assert_eq!(renamed["new"] + renamed["scans"], 3.0);
        read(&mut spent, &[], 12.0);
        let another = read(&mut spent, &[(2, "scans", 0.5)], 12.0);
        assert_eq!((another["scans"], another["otlp"], another["ended"]), (2.5, 8.0, 1.0));
        let mut spent = super::Spent::default();
        read(&mut spent, &[(1, "a", 4.0), (2, "b", 1.0)], 5.0);
        let reused = read(&mut spent, &[(1, "b", 2.0)], 7.0);
        assert_eq!(reused, told([("a", 4.0), ("b", 3.0), ("ended", 0.0)]));
    }

    #[test]
    fn seconds_of_ended_threads_never_fall() {
        let cost = cost(None);
        let told: Vec<f64> = (0..200).map(|_| told(&cost).cpu_seconds["ended"]).collect();
        assert!(told.is_sorted(), "{told:?}");
    }

    #[test]
    fn what_was_not_counted_is_absent_and_what_was_is_a_rate() {
        let mut cost = cost(Some(Tax { nanos: 100.0, calls: None }));
        let tax = told(&cost).syscall_tax.unwrap();
        assert_eq!((told(&cost).bpf, tax.calls_per_second, tax.cpu_fraction), (None, None, None));
        let span = Duration::from_secs(2);
        let time = Duration::from_millis(20);
        cost.counted(RunTime { span, time, runs: 400_000, calls: Some(200_000) });
        let agent = told(&cost);
        assert_eq!(agent.bpf.map(|bpf| (bpf.cpu_fraction, bpf.runs_per_second)), Some((0.01, 2e5)));
        let tax = agent.syscall_tax.unwrap();
        assert_eq!((tax.calls_per_second, tax.cpu_fraction), (Some(1e5), Some(0.01)));
        cost.detached();
        assert_eq!((told(&cost).bpf, told(&cost).syscall_tax), (None, None));
    }

    #[test]
    fn a_count_over_no_time_is_no_rate() {
        let mut cost = cost(None);
        cost.counted(RunTime::default());
        assert_eq!(told(&cost).bpf, None);
    }

    #[test]
    fn a_fraction_is_of_the_last_interval_or_two() {
        let mut cost = cost(None);
        let begun = cost.marks[0].0;
        cost.mark(begun.after(Duration::from_secs(60)));
        assert_eq!(cost.marks[0].0, begun);
        cost.mark(begun.after(Duration::from_secs(120)));
        assert_eq!(cost.marks[0].0, begun.after(Duration::from_secs(60)));
    }

    #[test]
    fn a_system_call_takes_some_time() {
        assert!(call_nanos() > 1.0);
    }
}
