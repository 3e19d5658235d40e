//! Least privilege: of the capabilities that we were given those stay that something can use.
//!
//! Capabilities belong to threads and are inherited by threads that are made later: they are dropped before the first one.

use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// What something uses, and what for.
///
/// All of them are used after the start, too: before Linux 5.19 reading a BPF table takes `BPF`, on 6.18 `PERFMON` allows
/// reading lists of mappings, `SYS_ADMIN` shows frame numbers and has the kernel count what BPF programs cost, and the others
/// let pages and mapped files of other users' processes be opened.
const USED: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    // Before Linux 5.11 maps count as locked memory, whose limit libbpf raises.
    .union(CapabilitySet::SYS_RESOURCE);

/// Capabilities by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// Those that this thread, and threads that it makes, have.
    pub kept: Vec<&'static str>,
    /// Those that it had.
    pub dropped: Vec<&'static str>,
}

/// Drops what nothing uses, for this thread and those that it makes. `monitors`: a monitor of memory of our own is set up,
/// whose files are root's alone.
///
/// # Errors
/// The kernel refuses, which a seccomp filter can make it do: everything is kept.
pub fn drop_unused(monitors: bool) -> std::io::Result<Privileges> {
    let mut sets = capabilities(None)?;
    let files = if monitors && !geteuid().is_root() {
        CapabilitySet::DAC_OVERRIDE
    } else {
        CapabilitySet::empty()
    };
    let (kept, dropped) = divide(sets.permitted, USED | files);
    if !dropped.is_empty() {
        sets.effective &= kept;
        sets.permitted = kept;
        sets.inheritable &= kept;
        set_capabilities(None, sets)?;
    }
    Ok(Privileges { kept: names(kept), dropped: names(dropped) })
}

/// What is used of `held`, and what is not.
fn divide(held: CapabilitySet, used: CapabilitySet) -> (CapabilitySet, CapabilitySet) {
    (held & used, held - used)
}

fn names(set: CapabilitySet) -> Vec<&'static str> {
    set.iter_names().map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities};

    use super::{USED, divide, drop_unused, names};

    #[test]
    fn what_nothing_uses_goes_and_the_rest_stays() {
        let held = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::KILL;
        let (kept, dropped) = divide(held, USED);
        assert_eq!(names(kept), ["BPF"]);
        assert_eq!(names(dropped), ["KILL", "NET_ADMIN"]);
        assert_eq!(divide(CapabilitySet::empty(), USED), (kept & dropped, kept & dropped));
    }

    #[test]
    fn threads_made_later_have_no_more_than_what_is_kept() {
        let (told, held) = std::thread::spawn(|| {
            let told = drop_unused(true).unwrap();
            (told, std::thread::spawn(|| capabilities(None).unwrap()).join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(names(held.permitted), told.kept);
        assert!(held.permitted.contains(held.effective));
        assert_eq!(names(divide(held.permitted, USED).1), [""; 0]);
    }
}
