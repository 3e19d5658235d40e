//! Reads on which NUMA nodes pages lie, behind the scan of a process. On a host with one node it reads nothing.

use std::collections::HashMap;
use std::time::Duration;

use memprov_ledger::evidence::Placed;
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;
use memprov_proc::budget::{Budget, Decision};
use memprov_proc::{Placer, Placing as Amount, Proc, clock};

use super::Outcome;

/// How old a reading of a process may be that stands still: pages can be moved without its counters.
const STILL: Duration = Duration::from_secs(300);
/// Processes whose last reading is remembered at most; beyond, all are forgotten.
const MOST: usize = 65_536;

/// What came of looking where pages lie.
#[derive(Debug)]
pub enum Places {
    /// They were read.
    Read(Box<Placed>),
    /// The budget does not allow it now.
    Later,
    /// Nothing was due, or it cannot be read.
    Untold,
}

/// Reads places, and remembers when it did.
#[derive(Debug)]
pub struct Placing {
    placer: Option<Placer>,
    read: HashMap<Tgid, MonoTime>,
}

impl Placing {
    /// For the nodes of this host. Where they cannot be read that is told once, and nothing else.
    #[must_use]
    pub fn new(proc: &Proc) -> Self {
        let placer = Placer::new(proc).unwrap_or_else(|error| {
            let error = crate::logging::chain(&error);
            tracing::warn!(error, "the NUMA nodes cannot be read: nothing tells where bytes lie");
            None
        });
        Self { placer, read: HashMap::new() }
    }

    /// What there is to say of a process after its scan came to `outcome`. What nobody waits for (`urgent`) is read within
    /// the budget that scans have; a sample is drawn from what the scan found, and is small beside it: it is taken at once,
    /// as the next scan may be long in coming.
    pub fn of(
        &mut self,
        tgid: Tgid,
        outcome: &Outcome,
        urgent: bool,
        budget: &mut Budget,
    ) -> Places {
        let Some(placer) = &mut self.placer else { return Places::Untold };
        let due = |read: &MonoTime| clock::now().since(*read) >= STILL;
        let pages = match outcome {
            Outcome::Seen(seen) => seen.pages.as_deref(),
            Outcome::Still(_) if self.read.get(&tgid).is_none_or(due) => None,
            Outcome::Still(_) | Outcome::Later(_) | Outcome::Failed(_) => return Places::Untold,
            Outcome::Vanished => {
                placer.forget(tgid);
                self.read.remove(&tgid);
                return Places::Untold;
            }
        };
        let started = clock::thread_cpu();
        let Ok((cost, amount)) = placer.predicted(tgid) else { return Places::Untold };
        let drawn = amount == Amount::Sample && pages.is_some();
        if !urgent && !drawn && budget.decide(clock::now(), cost) != Decision::Go {
            return Places::Later;
        }
        let placed = placer.read(tgid, amount, pages).inspect_err(|error| {
            let error = crate::logging::chain(error);
            tracing::debug!(pid = tgid.0, error, "it cannot be read where pages lie");
        });
        let now = clock::now();
        budget.spent(now, clock::thread_cpu().saturating_sub(started));
        if self.read.len() >= MOST {
            self.read.clear();
        }
        self.read.insert(tgid, now);
        placed.map_or(Places::Untold, |placed| Places::Read(Box::new(placed)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use memprov_ledger::evidence::{Counters, Residency, Total};
    use memprov_ledger::identity::{StartTicks, Tgid};
    use memprov_ledger::pages::PageSet;
    use memprov_ledger::time::Span;
    use memprov_proc::budget::Budget;
    use memprov_proc::{Proc, clock};

    use super::{Outcome, Places, Placing};

    /// A host with two nodes and a process of so many KiB.
    fn host(root: &Path, kib: u64) {
        let write = |path: String, text: String| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/devices/system/node/online".to_owned(), "0-1\n".to_owned());
        for node in 0..2 {
            let of = |file: &str| format!("sys/devices/system/node/node{node}/{file}");
            write(of("cpulist"), format!("{node}\n"));
            write(of("distance"), "10 20\n".to_owned());
            write(of("meminfo"), format!("Node {node} MemTotal:  1024 kB\n"));
        }
        let stat = "7 (a) S 1 7 7 0 -1 4194304 150 0 3 0 1 1 0 0 20 0 1 0 4242 1 1 1 94000 2 140000 0 0 \
                    0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";
        write("proc/7/stat".to_owned(), stat.to_owned());
        write("proc/7/task/7/stat".to_owned(), stat.to_owned());
        write("proc/7/maps".to_owned(), String::new());
        write("proc/7/numa_maps".to_owned(), String::new());
        write(
            "proc/7/status".to_owned(),
            format!("Name:\ta\nTgid:\t7\nPid:\t7\nPPid:\t1\nVmRSS:\t{kib} kB\nThreads:\t1\n"),
        );
    }

    #[test]
    fn what_the_budget_does_not_allow_is_said_and_a_sample_is_taken_with_its_scan() {
        let root = tempfile::tempdir().unwrap();
        let (when, counters) = (Span::at(clock::now()), Counters::default());
        let scanned = || {
            Outcome::Seen(Box::new(Residency {
                when,
                tgid: Tgid(7),
                start: None,
                comm: "a".into(),
                parent: Tgid(1),
                layout: None,
                cgroup: None,
                before: counters,
                maps: None,
                pages: Some(Arc::new(PageSet::default())),
                exclusive_known: false,
                after: counters,
                slack: 0,
                object_slack: 0,
            }))
        };
        let still =
            Outcome::Still(Total { when, tgid: Tgid(7), start: StartTicks(4242), counters });
        for (kib, spent, outcome, expected) in [
            (16, false, scanned(), "read"),
            (16, true, scanned(), "later"),
            (200_000, true, scanned(), "read"),
            (200_000, true, still, "later"),
        ] {
            host(root.path(), kib);
            let mut budget = Budget::new(0.0, Duration::from_millis(1), clock::now());
            if spent {
                budget.spent(clock::now(), Duration::from_secs(1));
            }
            let mut placing = Placing::new(&Proc::at(root.path()));
            let told = match placing.of(Tgid(7), &outcome, false, &mut budget) {
                Places::Read(_) => "read",
                Places::Later => "later",
                Places::Untold => "untold",
            };
            assert_eq!(told, expected, "{kib} KiB, {outcome:?}");
        }
    }
}
