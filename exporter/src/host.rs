//! Facts about the host that hold for the whole run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use memprov_perfmem::{judge, probe};
use memprov_proc::{Proc, clock};

use crate::config::Config;
use crate::encode::Identity;
use crate::report::{Host, NumaNode};
use crate::trace::{Header, Scope};
use crate::wall;

/// What holds of a reading of now that nothing was watched before: of these processes, or of all.
#[must_use]
pub fn header(config: &Config, pids: &[u32]) -> Header {
    Header {
        host: describe(&config.root),
        scope: Scope { all: pids.is_empty(), pids: pids.to_vec() },
        identity: identity(&config.root).named(&config.export),
        boot_id: boot_id(&config.root),
        ..Header::new(wall::clock_of_run(), clock::now())
    }
}

/// Kernel, nodes and PMU.
#[must_use]
pub fn describe(root: &Path) -> Host {
    let line = |path: &str| fs::read_to_string(root.join(path)).map(|s| s.trim().to_owned()).ok();
    let kernel = line("proc/sys/kernel/osrelease");
    let found = Proc::at(root).nodes().ok();
    let nodes = found.as_ref().map(|nodes| nodes.iter().filter(|node| node.has_memory()).count());
    let nodes = nodes.and_then(|nodes| u32::try_from(nodes).ok());
    let numa = found.filter(|nodes| nodes.len() > 1).unwrap_or_default();
    let numa = numa.into_iter().map(|node| NumaNode {
        node: node.id,
        cpus: u32::try_from(node.cpus.len()).unwrap_or(u32::MAX),
        distances: node.distances,
    });
    let verdict = judge(&probe(root));
    let no_pmu = match verdict {
        memprov_perfmem::Verdict::Available(_) | memprov_perfmem::Verdict::Untried(_) => None,
        other => Some(other.to_string()),
    };
    Host { kernel, nodes, no_pmu, numa: numa.collect() }
}

/// Who the host is, for the resources of what is exported.
#[must_use]
pub fn identity(root: &Path) -> Identity {
    let line = |path: &str| fs::read_to_string(root.join(path)).map(|s| s.trim().to_owned()).ok();
    let boot = fs::read_to_string(root.join("proc/stat")).ok().and_then(|stat| {
        let line = stat.lines().find_map(|l| l.strip_prefix("btime "))?;
        line.trim().parse::<u64>().ok()?.checked_mul(1_000_000_000)
    });
    Identity {
        host_id: line("etc/machine-id").unwrap_or_default(),
        host_name: line("proc/sys/kernel/hostname").unwrap_or_default(),
        boot,
        attributes: BTreeMap::new(),
    }
}

/// The kernel's id of this boot.
#[must_use]
pub fn boot_id(root: &Path) -> Option<String> {
    let id = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// A seed that no workload can know.
#[must_use]
pub fn random_seed() -> u32 {
    let mut bytes = [0u8; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(4) => u32::from_ne_bytes(bytes),
        // Before the kernel's pool is ready: the clock is as good as anything.
        _ => u32::try_from(memprov_proc::clock::now().0 & 0xffff_ffff).unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn nodes_are_those_with_memory_and_the_list_has_those_without_too() {
        let root = tempfile::tempdir().unwrap();
        let nodes = root.path().join("sys/devices/system/node");
        for (node, kib) in [(0, 1024), (1, 0), (2, 2048)] {
            let dir = nodes.join(format!("node{node}"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("cpulist"), format!("{node}\n")).unwrap();
            std::fs::write(dir.join("distance"), "10 20 20\n").unwrap();
            let meminfo = format!("Node {node} MemTotal:  {kib} kB\n");
            std::fs::write(dir.join("meminfo"), meminfo).unwrap();
        }
        std::fs::write(nodes.join("online"), "0-2\n").unwrap();
        let host = describe(root.path());
        assert_eq!((host.nodes, host.numa.len()), (Some(2), 3));
        std::fs::write(nodes.join("node1/meminfo"), "").unwrap();
        assert_eq!(describe(root.path()).nodes, Some(3), "nothing says that it has none");
    }
}
