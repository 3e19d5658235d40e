//! The files below one root, by name.

use std::path::{Path, PathBuf};

use memprov_ledger::identity::{Extent, Tgid};

use crate::bytes::{decimal_u32, words};
use crate::iomem;
use crate::meminfo::{self, Meminfo};
use crate::node::{Node, frames, frames_of_block, id_list};
use crate::read::{ParseError, ReadError, read};
use crate::smaps::Amounts;
use crate::stat::{self, Stat};
use crate::status::{self, Status};

/// Longest of the short files; `cgroup` and `status` stay far below.
const SHORT: usize = 4 << 20;
/// Longest list of mappings: 1 GiB of `smaps` is two million mappings.
const LONG: usize = 1 << 30;

/// `/proc` and `/sys` below a root.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Proc {
    /// Reads `root/proc/…` and `root/sys/…`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Whether this is the machine that we run on, and not files of another.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The path of a file of `/proc`.
    #[must_use]
    pub fn path(&self, below_proc: impl AsRef<Path>) -> PathBuf {
        self.root.join("proc").join(below_proc)
    }

    pub(crate) fn sys(&self, below_sys: impl AsRef<Path>) -> PathBuf {
        self.root.join("sys").join(below_sys)
    }

    /// All processes, kernel threads among them, in ascending order.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn pids(&self) -> Result<Vec<Tgid>, ReadError> {
        Ok(numbers(&self.path(""))?.into_iter().map(Tgid).collect())
    }

    /// The live threads of a process, its leader even when that has exited.
    ///
    /// # Errors
    /// It has vanished.
    pub fn tasks(&self, tgid: Tgid) -> Result<Vec<u32>, ReadError> {
        numbers(&self.process(tgid).join("task"))
    }

    /// A process and its descendants, parents before their children; itself alone where nothing can be listed.
    #[must_use]
    pub fn family(&self, tgid: Tgid) -> Vec<Tgid> {
        let pids = self.pids().unwrap_or_default();
        let parent = |pid: &Tgid| self.stat(*pid).ok().map(|stat| (*pid, Tgid(stat.ppid)));
        let parents: Vec<(Tgid, Tgid)> = pids.iter().filter_map(parent).collect();
        let mut family = vec![tgid];
        let mut next = 0;
        while let Some(member) = family.get(next).copied() {
            next += 1;
            let children = parents.iter().filter(|(pid, parent)| *parent == member && *pid != tgid);
            family.extend(children.map(|(pid, _)| *pid));
        }
        family
    }

    /// The processes that threads of this one have made, and those that it was given as their reaper.
    ///
    /// # Errors
    /// It has vanished, or the kernel has no such file (`CONFIG_PROC_CHILDREN`).
    pub fn children(&self, tgid: Tgid) -> Result<Vec<Tgid>, ReadError> {
        let mut children = Vec::new();
        for task in self.tasks(tgid)? {
            let path = self.process(tgid).join(format!("task/{task}/children"));
            let text = match self.text(&path) {
                Err(error) if error.vanished() && path.parent().is_some_and(|p| !p.exists()) => {
                    continue;
                }
                text => text?,
            };
            let pids: Option<Vec<u32>> = words(text.trim_ascii()).map(decimal_u32).collect();
            let pids = pids.ok_or(ParseError { line: 1, what: "not a list of pids" });
            children.extend(pids.map_err(|e| parse_error(&path, e))?.into_iter().map(Tgid));
        }
        children.sort_unstable();
        Ok(children)
    }

    /// `PID/status`.
    ///
    /// # Errors
    /// It has vanished, or the text is not the kernel's.
    pub fn status(&self, tgid: Tgid) -> Result<Status, ReadError> {
        self.status_in(&self.process(tgid))
    }

    /// `PID/stat`.
    ///
    /// # Errors
    /// It has vanished, or the text is not the kernel's.
    pub fn stat(&self, tgid: Tgid) -> Result<Stat, ReadError> {
        self.stat_in(&self.process(tgid))
    }

    /// `PID/cgroup`, whole; see [`crate::cgroup`].
    ///
    /// # Errors
    /// It has vanished.
    pub fn cgroups(&self, tgid: Tgid) -> Result<Vec<u8>, ReadError> {
        self.text(&self.process(tgid).join("cgroup"))
    }

    /// `PID/mountinfo`, whole; see [`crate::mountinfo`].
    ///
    /// # Errors
    /// It has vanished.
    pub fn mounts(&self, tgid: Tgid) -> Result<Vec<u8>, ReadError> {
        self.text(&self.process(tgid).join("mountinfo"))
    }

    /// The mount namespace: an inode number of nsfs. `None` where it may not be read.
    #[must_use]
    pub fn mount_namespace(&self, tgid: Tgid) -> Option<u64> {
        let link = std::fs::read_link(self.process(tgid).join("ns/mnt")).ok()?;
        let digits = link.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?;
        digits.parse().ok()
    }

    /// `PID/maps`, whole, into `buffer`; see [`crate::maps`]. Empty for a kernel thread.
    ///
    /// # Errors
    /// It has vanished, or we may not look.
    pub fn map_text(&self, tgid: Tgid, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        read(&self.memory(tgid)?.join("maps"), buffer, LONG)
    }

    /// `PID/smaps`, whole, into `buffer`; see [`crate::smaps`].
    ///
    /// # Errors
    /// It has vanished, or we may not look.
    pub fn smaps_text(&self, tgid: Tgid, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        read(&self.memory(tgid)?.join("smaps"), buffer, LONG)
    }

    /// `numa_maps` of the directory that shows a process' memory, whole, into `buffer`; see [`crate::numa_maps`].
    pub(crate) fn numa_text(&self, memory: &Path, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        read(&memory.join("numa_maps"), buffer, LONG)
    }

    /// `PID/task/TID/stat`.
    pub(crate) fn task_stat(&self, tgid: Tgid, task: u32) -> Result<Stat, ReadError> {
        self.stat_in(&self.process(tgid).join(format!("task/{task}")))
    }

    /// `PID/smaps_rollup`.
    ///
    /// # Errors
    /// It has vanished, we may not look, or the text is not the kernel's.
    pub fn rollup(&self, tgid: Tgid) -> Result<Amounts, ReadError> {
        let path = self.memory(tgid)?.join("smaps_rollup");
        let text = self.text(&path)?;
        crate::smaps::rollup(&text).map_err(|e| parse_error(&path, e))
    }

    /// `/proc/meminfo`.
    ///
    /// # Errors
    /// It is not there, or the text is not the kernel's.
    pub fn meminfo(&self) -> Result<Meminfo, ReadError> {
        self.meminfo_in(&self.path("meminfo"))
    }

    /// Physical addresses of memory, in whole pages and in order.
    ///
    /// # Errors
    /// `/proc/iomem` cannot be read, or hides addresses from us (no `CAP_SYS_ADMIN`).
    pub fn system_ram(&self) -> Result<Vec<Extent>, ReadError> {
        let path = self.path("iomem");
        iomem::system_ram(&self.text(&path)?).map_err(|e| parse_error(&path, e))
    }

    /// The online NUMA nodes, in the order of their ids. One that goes while it is read is left out.
    ///
    /// # Errors
    /// There is no list of nodes (a kernel without `CONFIG_NUMA`), or a text is not the kernel's.
    pub fn nodes(&self) -> Result<Vec<Node>, ReadError> {
        let online = self.ids(&self.sys("devices/system/node/online"))?;
        let mut nodes = Vec::with_capacity(online.len());
        for id in &online {
            match self.node(*id, &online) {
                Err(error) if error.vanished() => {}
                node => nodes.push(node?),
            }
        }
        Ok(nodes)
    }

    /// Frames of 4 KiB by node: the first, the one behind the last, the node; in order within a node. A block of memory
    /// that two nodes have part of is told of both.
    ///
    /// # Errors
    /// There is no list of nodes, or a node or the size of a block is not readable (a kernel without memory hotplug).
    pub fn node_frames(&self) -> Result<Vec<(u64, u64, u32)>, ReadError> {
        let size = self.sys("devices/system/memory/block_size_bytes");
        let error = ParseError { line: 1, what: "not a size in hexadecimal digits" };
        let size = frames_of_block(&self.text(&size)?).ok_or_else(|| parse_error(&size, error))?;
        let mut ranges = Vec::new();
        for id in self.ids(&self.sys("devices/system/node/online"))? {
            let blocks =
                match numbered(&self.sys(format!("devices/system/node/node{id}")), b"memory") {
                    Err(error) if error.vanished() => continue,
                    blocks => blocks?,
                };
            ranges.extend(frames(&blocks, size).map(|(first, end)| (first, end, id)));
        }
        Ok(ranges)
    }

    /// The ids of the online CPUs.
    ///
    /// # Errors
    /// There is no list, or the text is not the kernel's.
    pub fn online_cpus(&self) -> Result<Vec<u32>, ReadError> {
        self.ids(&self.sys("devices/system/cpu/online"))
    }

    fn node(&self, id: u32, online: &[u32]) -> Result<Node, ReadError> {
        let dir = self.sys(format!("devices/system/node/node{id}"));
        let cpus = self.ids(&dir.join("cpulist"))?;
        // Column k is the k-th online node.
        let distances: Option<Vec<u32>> = match self.text(&dir.join("distance")) {
            Ok(text) => words(text.trim_ascii()).map(decimal_u32).collect(),
            Err(_) => None,
        };
        let distances = distances.filter(|d| d.len() == online.len()).unwrap_or_default();
        let distances = online.iter().copied().zip(distances).collect();
        Ok(Node { id, cpus, distances, meminfo: self.meminfo_in(&dir.join("meminfo"))? })
    }

    fn ids(&self, path: &Path) -> Result<Vec<u32>, ReadError> {
        let error = ParseError { line: 1, what: "not a list of ids" };
        id_list(&self.text(path)?).ok_or_else(|| parse_error(path, error))
    }

    fn meminfo_in(&self, path: &Path) -> Result<Meminfo, ReadError> {
        meminfo::parse(&self.text(path)?).map_err(|e| parse_error(path, e))
    }

    pub(crate) fn status_in(&self, dir: &Path) -> Result<Status, ReadError> {
        let path = dir.join("status");
        status::parse(&self.text(&path)?).map_err(|e| parse_error(&path, e))
    }

    pub(crate) fn stat_in(&self, dir: &Path) -> Result<Stat, ReadError> {
        let path = dir.join("stat");
        stat::parse(&self.text(&path)?).map_err(|e| parse_error(&path, e))
    }

    fn text(&self, path: &Path) -> Result<Vec<u8>, ReadError> {
        let mut text = Vec::new();
        read(path, &mut text, SHORT)?;
        Ok(text)
    }

    pub(crate) fn process(&self, tgid: Tgid) -> PathBuf {
        self.path(tgid.0.to_string())
    }

    /// The directory whose `maps`, `pagemap` and `status` show the memory of a process.
    ///
    /// That of a thread where the leader has exited: its own files are empty then, while other threads live on.
    pub(crate) fn memory(&self, tgid: Tgid) -> Result<PathBuf, ReadError> {
        let dir = self.process(tgid);
        if self.stat_in(&dir)?.exited() {
            for task in self.tasks(tgid)?.into_iter().filter(|task| *task != tgid.0) {
                let thread = dir.join(format!("task/{task}"));
                if self.stat_in(&thread).is_ok_and(|stat| !stat.exited()) {
                    return Ok(thread);
                }
            }
        }
        Ok(dir)
    }
}

pub(crate) fn parse_error(path: &Path, source: ParseError) -> ReadError {
    ReadError::Parse { path: path.to_owned(), source }
}

/// The entries of a directory that are numbers, in ascending order.
fn numbers(path: &Path) -> Result<Vec<u32>, ReadError> {
    numbered(path, b"")
}

/// The numbers of entries whose name is `prefix` and a number, in ascending order.
fn numbered(path: &Path, prefix: &[u8]) -> Result<Vec<u32>, ReadError> {
    let error = |source| ReadError::io(path, source);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(path).map_err(error)? {
        let name = entry.map_err(error)?.file_name();
        numbers.extend(name.as_encoded_bytes().strip_prefix(prefix).and_then(decimal_u32));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
