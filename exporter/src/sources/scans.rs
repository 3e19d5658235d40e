//! The scan thread: reads `/proc` for one process after the other, urgent jobs first, within its budget.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use memprov_ledger::evidence::Counters;
use memprov_ledger::identity::{StartTicks, Tgid};
use memprov_proc::budget::{Budget, Decision};
use memprov_proc::stat::Stat;
use memprov_proc::{Proc, ScanError, Scanner, clock};

use super::charging::Charging;
use super::placing::Placing;
use super::{Input, Outcome};
use crate::logging::chain;

/// What the scan thread is asked to do.
#[derive(Debug)]
pub enum Job {
    /// Scan a process.
    Scan {
        /// Which.
        tgid: Tgid,
        /// Read which pages are mapped exclusively.
        exclusive: bool,
        /// Its totals at the last scan, if nothing else moved since: equal totals need no scan.
        still: Option<Counters>,
        /// Somebody waits for it: before all others, whatever the budget says (it is owed afterwards).
        urgent: bool,
    },
    /// List live processes: the descendants of these, or all.
    List {
        /// Whose descendants; all when empty.
        roots: Vec<Tgid>,
        /// The one that is not listed: ourselves.
        except: Tgid,
    },
    /// Keep to another budget from now on, a fraction of one CPU.
    Budget(f64),
}

/// Scan time that may be saved up: the first scan of a host of a few hundred small processes.
const BURST: Duration = Duration::from_millis(500);

/// Starts the thread.
///
/// # Errors
/// When the thread cannot be made.
pub fn start(
    scanner: Scanner,
    budget: f64,
    jobs: Receiver<Job>,
    inbox: SyncSender<Input>,
) -> std::io::Result<JoinHandle<()>> {
    let proc = scanner.proc().clone();
    let budget = Budget::new(budget, BURST, clock::now());
    let (charging, placing) = (Charging::new(&proc), Placing::new(&proc));
    let queue = VecDeque::new();
    let thread = Thread { proc, scanner, charging, placing, budget, queue, inbox };
    std::thread::Builder::new().name("scans".to_owned()).spawn(move || thread.run(&jobs))
}

struct Thread {
    proc: Proc,
    scanner: Scanner,
    charging: Charging,
    placing: Placing,
    budget: Budget,
    queue: VecDeque<Job>,
    inbox: SyncSender<Input>,
}

impl Thread {
    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            if self.queue.is_empty() {
                match jobs.recv_timeout(Duration::from_secs(1)) {
                    Ok(job) => self.take(job),
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            while let Ok(job) = jobs.try_recv() {
                self.take(job);
            }
            let Some(job) = self.queue.pop_front() else { continue };
            let Some(input) = self.work(job) else { continue };
            if self.inbox.send(input).is_err() {
                return;
            }
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            // Behind those that are urgent, too: relatives are asked for oldest first.
            Job::Scan { urgent: true, .. } => {
                let urgent = |job: &&Job| matches!(job, Job::Scan { urgent: true, .. });
                let at = self.queue.iter().take_while(urgent).count();
                self.queue.insert(at, job);
            }
            Job::Scan { .. } | Job::List { .. } => self.queue.push_back(job),
            Job::Budget(fraction) => self.budget = Budget::new(fraction, BURST, clock::now()),
        }
    }

    fn work(&mut self, job: Job) -> Option<Input> {
        match job {
            Job::Scan { tgid, exclusive, still, urgent } => {
                let outcome = self.scan(tgid, exclusive, still, urgent);
                let placed = self.placing.of(tgid, &outcome, urgent, &mut self.budget);
                let charges = self.charging.of(tgid, urgent, &mut self.budget);
                Some(Input::Scanned { tgid, outcome, placed, charges, upto: clock::now() })
            }
            Job::List { roots, except } => {
                let at = clock::now();
                let mut pids = match roots.as_slice() {
                    [] => self.proc.pids().ok()?,
                    roots => roots.iter().flat_map(|root| self.proc.family(*root)).collect(),
                };
                pids.retain(|pid| *pid != except);
                let mut live: Vec<_> = pids
                    .into_iter()
                    .filter_map(|pid| self.proc.stat(pid).ok().map(|stat| (pid, stat)))
                    .filter(|(pid, stat)| !stat.kernel_thread() && self.lives(*pid, stat))
                    .map(|(pid, stat)| (pid, StartTicks(stat.start_ticks)))
                    .collect();
                live.sort_by_key(|(pid, start)| (*start, *pid));
                live.dedup();
                Some(Input::Listed { live, at })
            }
            // Taken over where it arrived.
            Job::Budget(_) => None,
        }
    }

    /// Whether a thread of the process lives; its leader may have exited.
    fn lives(&self, tgid: Tgid, leader: &Stat) -> bool {
        !leader.exited() || self.proc.tasks(tgid).is_ok_and(|tasks| tasks.len() > 1)
    }

    /// What came of a scan that failed. While threads exit, memory may be out of reach of a process that lives on.
    fn failed(&self, tgid: Tgid, error: ScanError) -> Outcome {
        let lives = || self.proc.stat(tgid).is_ok_and(|stat| self.lives(tgid, &stat));
        match error {
            ScanError::Vanished { .. } if !lives() => Outcome::Vanished,
            other => Outcome::Failed(chain(&other)),
        }
    }

    fn scan(
        &mut self,
        tgid: Tgid,
        exclusive: bool,
        still: Option<Counters>,
        urgent: bool,
    ) -> Outcome {
        let started = clock::thread_cpu();
        if !urgent {
            match self.scanner.totals(tgid) {
                Ok(total) if still == Some(total.counters) => return Outcome::Still(total),
                Ok(total) => {
                    let cost = self.scanner.predicted(tgid);
                    if let Decision::Later { .. } = self.budget.decide(clock::now(), cost) {
                        return Outcome::Later(total);
                    }
                }
                Err(error) => return self.failed(tgid, error),
            }
        }
        let outcome = match self.scanner.scan(tgid, exclusive) {
            Ok(seen) => Outcome::Seen(Box::new(seen)),
            Err(error) => self.failed(tgid, error),
        };
        self.budget.spent(clock::now(), clock::thread_cpu().saturating_sub(started));
        outcome
    }
}
