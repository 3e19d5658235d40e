//! Reads on which NUMA nodes pages lie, behind the scan of a process. On a host with one node it reads nothing.

use std::collections::HashMap;
use std::time::Duration;

use memprov_ledger::evidence::Placed;
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;
use memprov_proc::budget::{Budget, Decision};
use memprov_proc::{Placer, Proc, clock};

use super::Outcome;

/// How old a reading of a process may be that stands still: pages can be moved without its counters.
const STILL: Duration = Duration::from_secs(300);
/// Processes whose last reading is remembered at most; beyond, all are forgotten.
const MOST: usize = 65_536;

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
    /// the budget that scans have.
    pub fn of(
        &mut self,
        tgid: Tgid,
        outcome: &Outcome,
        urgent: bool,
        budget: &mut Budget,
    ) -> Option<Placed> {
        let placer = self.placer.as_mut()?;
        let due = |read: &MonoTime| clock::now().since(*read) >= STILL;
        let pages = match outcome {
            Outcome::Seen(seen) => seen.pages.as_deref(),
            Outcome::Still(_) if self.read.get(&tgid).is_none_or(due) => None,
            Outcome::Still(_) | Outcome::Later(_) | Outcome::Failed(_) => return None,
            Outcome::Vanished => {
                placer.forget(tgid);
                self.read.remove(&tgid);
                return None;
            }
        };
        let started = clock::thread_cpu();
        let (cost, placing) = placer.predicted(tgid).ok()?;
        if !urgent && budget.decide(clock::now(), cost) != Decision::Go {
            return None;
        }
        let placed = placer.read(tgid, placing, pages).inspect_err(|error| {
            let error = crate::logging::chain(error);
            tracing::debug!(pid = tgid.0, error, "it cannot be read where pages lie");
        });
        let now = clock::now();
        budget.spent(now, clock::thread_cpu().saturating_sub(started));
        if self.read.len() >= MOST {
            self.read.clear();
        }
        self.read.insert(tgid, now);
        placed.ok()
    }
}
