//! A host that is said to have two NUMA nodes: this one, below a root whose list of nodes a test has written. Where pages lie,
//! on which CPUs threads run and for how long is what the kernel says: all memory is the first node's, the last CPU the
//! second's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use memprov_tests::host;
use tempfile::TempDir;

/// Half of the time, so that two CPUs are enough for it and all others.
const BUSY: &str = "
import os, time
os.nice(10)
while True:
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    time.sleep(0.02)
";

/// The root; it exists as long as this does.
pub(crate) struct Nodes {
    root: TempDir,
    cpu: String,
}

/// A folder with the entries of another one but for `except`, which is made a folder of its own.
fn shadow(real: &Path, copy: &Path, except: &str) -> (PathBuf, PathBuf) {
    for entry in fs::read_dir(real).expect("sysfs lists").flatten() {
        if entry.file_name() != except {
            symlink(entry.path(), copy.join(entry.file_name())).expect("a link");
        }
    }
    let (real, copy) = (real.join(except), copy.join(except));
    fs::create_dir(&copy).expect("a folder");
    (real, copy)
}

/// CPUs that this process may run on.
fn cpus() -> Vec<String> {
    let status = fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let parts = list.expect("a list of CPUs").trim().split(',');
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().expect("a CPU");
        number(first)..=number(last)
    };
    parts.flat_map(range).map(|cpu| cpu.to_string()).collect()
}

impl Nodes {
    /// Describes them.
    ///
    /// # Errors
    /// Why this host can't be said to have two.
    pub(crate) fn describe() -> Result<Self, String> {
        let cpus = cpus();
        let (Some((cpu, others)), true) = (cpus.split_last(), cpus.len() > 1) else {
            return Err(
                "there is one CPU: nothing can be on another node than its memory".to_owned()
            );
        };
        let meminfo = fs::read_to_string("/sys/devices/system/node/node0/meminfo")
            .map_err(|e| format!("this kernel has no NUMA nodes: {e}"))?;
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        for folder in ["proc", "etc", "usr"] {
            symlink(Path::new("/").join(folder), root.path().join(folder)).expect("a link");
        }
        let mut at = (PathBuf::from("/sys"), root.path().join("sys"));
        fs::create_dir(&at.1).expect("a folder");
        for except in ["devices", "system", "node"] {
            at = shadow(&at.0, &at.1, except);
        }
        let write = |name: &str, text: &str| fs::write(at.1.join(name), text).expect("a file");
        ["online", "possible", "has_memory"].iter().for_each(|list| write(list, "0-1\n"));
        let of_second = meminfo.replace("Node 0 ", "Node 1 ");
        for (node, cpus, distance, meminfo) in [
            ("node0", others.join(","), "10 21\n", meminfo),
            ("node1", cpu.clone(), "21 10\n", of_second),
        ] {
            fs::create_dir(at.1.join(node)).expect("a folder");
            write(&format!("{node}/cpulist"), &format!("{cpus}\n"));
            write(&format!("{node}/distance"), distance);
            write(&format!("{node}/meminfo"), &meminfo);
        }
        Ok(Self { cpu: cpu.clone(), root })
    }

    /// The setting that makes an agent look there.
    pub(crate) fn setting(&self) -> String {
        format!("root={}", self.root.path().display())
    }

    /// A process that works on the second node, and whose memory lies on the first.
    pub(crate) fn busy(&self) -> Busy {
        let child = Command::new("taskset")
            .args(["-c", &self.cpu, "python3", "-c", BUSY])
            .stdin(Stdio::null())
            .spawn();
        Busy(child.expect("taskset starts"))
    }
}

/// A process that works until this is dropped.
pub(crate) struct Busy(Child);

impl Busy {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        drop(killed);
    }
}

/// CPU seconds that a process has taken so far, of `/proc/PID/schedstat` of its threads.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let of_thread = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    crate::scene::exact(tasks.filter_map(of_thread).sum()) / 1e9
}

/// Says why the panels of places aren't asked; `None` then.
pub(crate) fn described(test: &str) -> Option<Nodes> {
    Nodes::describe().inspect_err(|why| host::skip(test, why)).ok()
}
