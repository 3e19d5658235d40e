//! Living processes that something which costs them may be done to.

use memprov_ledger::identity::Tgid;
use memprov_proc::cgroup::{container_id, memory_path};
use memprov_proc::{Proc, lossless};

use crate::config::Allow;
use crate::encode::unit_of;

/// Processes of one setting at most: each costs open files, or takes part of a monitor's regions.
const TARGETS: usize = 32;

/// Whom a setting finds.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// Oldest first, but ourselves.
    pub(super) living: Vec<Tgid>,
    /// Its terms that find nobody.
    idle: Vec<String>,
}

/// Cuts those that a setting finds down to [`TARGETS`], and says whom it does not find.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// How many were left out.
    beyond: usize,
    /// Terms that found nobody.
    idle: Vec<String>,
}

impl Cut {
    /// The oldest that `setting` found; `lost` says what is missing of others, each time that they are more than before. That
    /// a term finds nobody is said when that begins.
    pub(super) fn first(
        &mut self,
        found: Chosen,
        setting: &'static str,
        lost: &'static str,
    ) -> Vec<Tgid> {
        let Chosen { living: mut wanted, idle } = found;
        for term in self.idle(idle) {
            tracing::warn!("{setting}: {term} finds no process now");
        }
        if let Some(processes) = self.beyond(wanted.len()) {
            tracing::warn!(processes, most = TARGETS, "{setting} finds too many: {lost}");
        }
        wanted.truncate(TARGETS);
        wanted
    }

    /// How many are left out of so many, if they are more than before.
    fn beyond(&mut self, wanted: usize) -> Option<usize> {
        let beyond = wanted.saturating_sub(TARGETS);
        let before = std::mem::replace(&mut self.beyond, beyond);
        (beyond > before).then_some(beyond)
    }

    /// Those of the terms that are not known to find nobody.
    fn idle(&mut self, idle: Vec<String>) -> Vec<String> {
        let before = std::mem::replace(&mut self.idle, idle);
        self.idle.iter().filter(|term| !before.contains(term)).cloned().collect()
    }
}

/// Living processes that a term finds. What cannot be listed is nobody, and no term's fault.
pub(super) fn chosen(proc: &Proc, allow: &Allow) -> Chosen {
    if allow.0.is_empty() {
        return Chosen::default();
    }
    let Ok(pids) = proc.pids() else { return Chosen::default() };
    let mut finds = vec![false; allow.0.len()];
    let mut living: Vec<(u64, Tgid)> = pids
        .into_iter()
        .filter(|tgid| tgid.0 != std::process::id())
        .filter_map(|tgid| Some((tgid, proc.stat(tgid).ok()?)))
        .filter(|(_, stat)| !stat.kernel_thread() && !stat.exited())
        .filter(|(tgid, stat)| {
            let holds = holds(proc, allow, *tgid, &lossless(&stat.comm));
            finds.iter_mut().zip(&holds).for_each(|(finds, holds)| *finds |= holds);
            holds.contains(&true)
        })
        .map(|(tgid, stat)| (stat.start_ticks, tgid))
        .collect();
    living.sort_unstable();
    let idle = allow.0.iter().zip(finds).filter(|(_, finds)| !finds);
    Chosen {
        living: living.into_iter().map(|(_, tgid)| tgid).collect(),
        idle: idle.map(|(term, _)| String::from(Allow(vec![term.clone()]))).collect(),
    }
}

/// Terms of a setting that find nobody now.
pub(crate) fn idle(proc: &Proc, allow: &Allow) -> Vec<String> {
    chosen(proc, allow).idle
}

/// Which terms find it.
fn holds(proc: &Proc, allow: &Allow, tgid: Tgid, comm: &str) -> Vec<bool> {
    let cgroup = proc.cgroups(tgid).ok().as_deref().and_then(memory_path).map(lossless);
    let (container, unit) =
        (cgroup.as_deref().and_then(container_id), cgroup.as_deref().and_then(unit_of));
    allow.0.iter().map(|term| term.holds(comm, container, unit)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use memprov_ledger::identity::Tgid;
    use memprov_proc::Proc;

    use super::{Chosen, Cut, TARGETS, chosen};
    use crate::config::Allow;

    #[test]
    fn the_oldest_are_kept_and_who_is_left_out_is_said_whenever_it_is_more() {
        let wanted: Vec<Tgid> = (1..).map(Tgid).take(TARGETS + 2).collect();
        let found = Chosen { living: wanted.clone(), ..Chosen::default() };
        assert_eq!(Cut::default().first(found, "a", "b"), wanted[..TARGETS]);
        let mut cut = Cut::default();
        let said = [0, TARGETS, TARGETS + 2, TARGETS + 1, TARGETS + 2, 0, TARGETS + 1]
            .map(|many| cut.beyond(many));
        assert_eq!(said, [None, None, Some(2), None, Some(2), None, Some(1)]);
    }

    #[test]
    fn a_term_that_finds_nobody_is_said_when_that_begins_and_when_it_begins_again() {
        let mut cut = Cut::default();
        let said = ["", "a", "a b", "b", "b", "a b", ""]
            .map(|idle| cut.idle(idle.split_whitespace().map(str::to_owned).collect()).join(" "));
        assert_eq!(said, ["", "a", "b", "", "", "a", ""]);
    }

    #[test]
    fn terms_that_find_nobody_are_told_beside_those_that_others_find() {
        let allow = Allow::try_from("comm=nobody is this,*,unit=x.nobody".to_owned()).unwrap();
        let found = chosen(&Proc::at(Path::new("/")), &allow);
        assert_eq!(found.idle, ["comm=nobody is this", "unit=x.nobody"]);
        assert!(!found.living.is_empty() && !found.living.contains(&Tgid(std::process::id())));
        let empty = tempfile::tempdir().unwrap();
        let unread = chosen(&Proc::at(empty.path()), &allow);
        assert!(unread.living.is_empty() && unread.idle.is_empty(), "nobody was looked at");
    }
}
