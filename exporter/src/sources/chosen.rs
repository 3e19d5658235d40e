//! Living processes that something which costs them may be done to.

use memprov_ledger::identity::Tgid;
use memprov_proc::cgroup::{container_id, memory_path};
use memprov_proc::{Proc, lossless};

use crate::config::Allow;
use crate::encode::unit_of;

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
