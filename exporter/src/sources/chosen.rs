//! Living processes that something which costs them may be done to.

use memprov_ledger::identity::Tgid;
use memprov_proc::cgroup::{container_id, memory_path};
use memprov_proc::{Proc, lossless};

use crate::config::Allow;
use crate::encode::unit_of;

/// Processes of one setting at most: each costs open files, or takes part of a monitor's regions.
const TARGETS: usize = 32;

/// Cuts those that a setting finds down to [`TARGETS`].
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// How many were left out.
    beyond: usize,
}

impl Cut {
    /// The oldest of `wanted`, which `setting` found; `lost` says what is missing of others, each time that they are more
    /// than before.
    pub(super) fn first(
        &mut self,
        mut wanted: Vec<Tgid>,
        setting: &'static str,
        lost: &'static str,
    ) -> Vec<Tgid> {
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
}

/// Those that a term finds, oldest first, but ourselves.
pub(super) fn chosen(proc: &Proc, allow: &Allow) -> Vec<Tgid> {
    if allow.0.is_empty() {
        return Vec::new();
    }
    let mut chosen: Vec<(u64, Tgid)> = proc
        .pids()
        .unwrap_or_default()
        .into_iter()
        .filter(|tgid| tgid.0 != std::process::id())
        .filter_map(|tgid| Some((tgid, proc.stat(tgid).ok()?)))
        .filter(|(_, stat)| !stat.kernel_thread() && !stat.exited())
        .filter(|(tgid, stat)| allowed(proc, allow, *tgid, &lossless(&stat.comm)))
        .map(|(tgid, stat)| (stat.start_ticks, tgid))
        .collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|(_, tgid)| tgid).collect()
}

/// Terms of a setting that find nobody now.
pub(crate) fn idle(proc: &Proc, allow: &Allow) -> Vec<String> {
    let alone = allow.0.iter().map(|term| Allow(vec![term.clone()]));
    alone.filter(|alone| chosen(proc, alone).is_empty()).map(String::from).collect()
}

fn allowed(proc: &Proc, allow: &Allow, tgid: Tgid, comm: &str) -> bool {
    let cgroup = proc.cgroups(tgid).ok().as_deref().and_then(memory_path).map(lossless);
    let (container, unit) =
        (cgroup.as_deref().and_then(container_id), cgroup.as_deref().and_then(unit_of));
    allow.0.iter().any(|term| term.holds(comm, container, unit))
}

#[cfg(test)]
mod tests {
    use memprov_ledger::identity::Tgid;

    use super::{Cut, TARGETS};

    #[test]
    fn the_oldest_are_kept_and_who_is_left_out_is_said_whenever_it_is_more() {
        let wanted: Vec<Tgid> = (1..).map(Tgid).take(TARGETS + 2).collect();
        assert_eq!(Cut::default().first(wanted.clone(), "a", "b"), wanted[..TARGETS]);
        let mut cut = Cut::default();
        let said = [0, TARGETS, TARGETS + 2, TARGETS + 1, TARGETS + 2, 0, TARGETS + 1]
            .map(|many| cut.beyond(many));
        assert_eq!(said, [None, None, Some(2), None, Some(2), None, Some(1)]);
    }
}
