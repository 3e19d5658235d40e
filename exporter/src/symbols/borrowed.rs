//! Processes that live in the memory of another one (vfork, `CLONE_VM`), until they run a program of their own or end.
//!
//! Stacks are unwound after the records of their batch were told, so that a child of `posix_spawn` has its program already
//! when the stacks from before come: those are its parent's code.

use std::collections::HashMap;

use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;

/// Children remembered at most.
const MOST: usize = 1024;

/// Whose memory a process uses.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    by_child: HashMap<Tgid, Loan>,
}

#[derive(Debug)]
struct Loan {
    lender: Tgid,
    /// When it began to be on its own, or ended; the end of time until then.
    until: MonoTime,
}

impl Borrowed {
    /// The process whose list of mappings held for `tgid` at `when`.
    pub(crate) fn lender(&self, tgid: Tgid, when: MonoTime) -> Tgid {
        self.by_child.get(&tgid).filter(|loan| when < loan.until).map_or(tgid, |loan| loan.lender)
    }

    /// A child was made at `when`; `shares`: in its parent's memory.
    pub(crate) fn fork(&mut self, parent: Tgid, child: Tgid, shares: bool, when: MonoTime) {
        let lender = self.lender(parent, when);
        self.by_child.remove(&child);
        if !shares {
            return;
        }
        if self.by_child.len() >= MOST {
            self.by_child.retain(|_, loan| loan.until == MonoTime(u64::MAX));
        }
        // Who finds no room is read by its own number.
        if self.by_child.len() < MOST {
            self.by_child.insert(child, Loan { lender, until: MonoTime(u64::MAX) });
        }
    }

    /// A process is on its own since `when`, or has ended then: what it lent out is read by the borrowers' own numbers.
    pub(crate) fn leave(&mut self, tgid: Tgid, when: MonoTime) {
        self.by_child.retain(|_, loan| loan.lender != tgid);
        if let Some(loan) = self.by_child.get_mut(&tgid) {
            loan.until = loan.until.min(when);
        }
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::identity::Tgid;
    use memprov_ledger::time::MonoTime;

    use super::{Borrowed, MOST};

    const T: fn(u64) -> MonoTime = MonoTime;

    #[test]
    fn a_child_of_vfork_has_its_parents_code_until_it_is_on_its_own() {
        let mut borrowed = Borrowed::default();
        borrowed.fork(Tgid(1), Tgid(2), true, T(10));
        borrowed.fork(Tgid(2), Tgid(3), true, T(20));
        borrowed.leave(Tgid(2), T(30));
        assert_eq!(borrowed.lender(Tgid(2), T(29)), Tgid(1));
        assert_eq!(borrowed.lender(Tgid(2), T(30)), Tgid(2));
        assert_eq!(borrowed.lender(Tgid(3), T(40)), Tgid(1), "a chain has one lender");
        borrowed.leave(Tgid(1), T(50));
        assert_eq!(borrowed.lender(Tgid(3), T(60)), Tgid(3), "the lender is gone");
        borrowed.fork(Tgid(1), Tgid(2), false, T(70));
        assert_eq!(borrowed.lender(Tgid(2), T(5)), Tgid(2), "another process of that number");
    }

    #[test]
    fn children_without_end_take_bounded_memory() {
        let mut borrowed = Borrowed::default();
        for child in 2..10_000 {
            borrowed.fork(Tgid(1), Tgid(child), true, T(1));
            if child % 2 == 0 {
                borrowed.leave(Tgid(child), T(2));
            }
        }
        assert!(borrowed.by_child.len() <= MOST);
    }
}
