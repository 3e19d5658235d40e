//! Reads what cgroups are charged for, when a process of theirs is read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::charge::Charge;
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;
use memprov_proc::budget::{Budget, Decision};
use memprov_proc::cgroup::memory_path;
use memprov_proc::memcg::{Memcg, upwards};
use memprov_proc::{Proc, clock, lossless};

/// How old a reading may be when nobody waits for it: the kernel sums over all CPUs for one, and those above read it again.
const ROUTINE: Duration = Duration::from_secs(20);
/// How old it may be when somebody does: one reading serves all processes that a report is about.
const URGENT: Duration = Duration::from_millis(200);
/// How old it may be while the total stands still: what is charged may become something else.
const STILL: Duration = Duration::from_secs(60);
/// Cgroups whose last reading is remembered at most.
const MOST: usize = 4096;

/// Reads cgroups, and remembers when it did.
#[derive(Debug)]
pub struct Charging {
    proc: Proc,
    memcg: Option<Memcg>,
    known: HashMap<Arc<str>, Known>,
}

/// The last reading of a cgroup.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// When it was read, and what its total was; `None`: it has no book.
    read: MonoTime,
    current: Option<u64>,
    /// When its total was looked at.
    looked: MonoTime,
    /// CPU time that the reading took.
    cost: Duration,
}

impl Charging {
    /// For the hierarchy of this host, if it has one.
    #[must_use]
    pub fn new(proc: &Proc) -> Self {
        Self { proc: proc.clone(), memcg: Memcg::find(proc), known: HashMap::new() }
    }

    /// Readings of the cgroup that a process is in and of those that it lies in, as far as they are due. What nobody
    /// waits for (`urgent`) is read within the budget, and while its total stands still it is not.
    pub fn of(&mut self, tgid: Tgid, urgent: bool, budget: &mut Budget) -> Vec<Charge> {
        let Some(memcg) = self.memcg.clone() else { return Vec::new() };
        let Ok(text) = self.proc.cgroups(tgid) else { return Vec::new() };
        let Some(path) = memory_path(&text).map(lossless) else { return Vec::new() };
        let due: Vec<&str> =
            upwards(&path).filter(|cgroup| self.due(&memcg, cgroup, urgent, budget)).collect();
        due.into_iter().filter_map(|cgroup| self.read(&memcg, cgroup, budget)).collect()
    }

    /// Whether a cgroup is to be read now.
    fn due(&mut self, memcg: &Memcg, cgroup: &str, urgent: bool, budget: &mut Budget) -> bool {
        let now = clock::now();
        let Some(known) = self.known.get_mut(cgroup) else { return true };
        if urgent {
            return now.since(known.read) >= URGENT;
        }
        if now.since(known.looked) < ROUTINE {
            return false;
        }
        known.looked = now;
        let still = |current| memcg.total(cgroup).is_ok_and(|total| total == current);
        let moved = now.since(known.read) >= STILL || known.current.is_some_and(|n| !still(n));
        moved && budget.decide(now, known.cost) == Decision::Go
    }

    fn read(&mut self, memcg: &Memcg, cgroup: &str, budget: &mut Budget) -> Option<Charge> {
        let started = clock::thread_cpu();
        let charge = memcg.charge(cgroup).unwrap_or_else(|error| {
            let error = crate::logging::chain(&error);
            tracing::debug!(cgroup, error, "a cgroup cannot be read");
            None
        });
        let cost = clock::thread_cpu().saturating_sub(started);
        let now = clock::now();
        budget.spent(now, cost);
        if self.known.len() >= MOST {
            self.known.retain(|_, known| now.since(known.looked) < STILL);
        }
        let current = charge.as_ref().map(|charge| charge.whole.current);
        self.known.insert(Arc::from(cgroup), Known { read: now, current, looked: now, cost });
        charge
    }
}
