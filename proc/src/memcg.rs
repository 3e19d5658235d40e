//! Memory of cgroups: what cgroup v1 and v2 tell of what a cgroup is charged for.
//!
//! | file (kernel `mm/memcontrol.c`, `mm/memcontrol-v1.c`) | becomes |
//! |---|---|
//! | `memory.current`; v1 `memory.usage_in_bytes` | [`Figures::current`] |
//! | `memory.stat`; v1 its `total_` lines, and `memory.kmem.usage_in_bytes` as `kernel` | [`Figures::stat`] |
//! | all others | [`Charge::facts`] |
//!
//! `memory.current` counts pages of `anon`, `file` (with `shmem`), swap cache, `kernel` (from 5.18; kernel stacks, page
//! tables, per-CPU memory, vmalloc, slab, zswap and more without a line), `sock`, and `hugetlb` where it is accounted.
//! A CPU takes up to 64 pages in advance and hands them out without touching the counter. Lines are summed when enough
//! changed: up to 64 pages a CPU are with the CPU, as many again wait for a sum that is made every 2 s at the latest.
//! Both bounds are 64 pages times the CPUs, the second twice; kernels before 6.1 batch 32.
//!
//! Figures of a cgroup hold all that lies below it. Those of its children are read after it, to be taken away.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memprov_ledger::charge::{Charge, Figures};
use memprov_ledger::identity::{PAGE, Tgid};
use memprov_ledger::time::Span;

use crate::bytes::{cut, decimal, decimal_u32, lines, words};
use crate::clock::now;
use crate::memcg_files;
use crate::procfs::Proc;
use crate::read::{ReadError, read};
use crate::text::lossless;

/// Pages that a CPU takes in advance, and that a line may be behind on it (`MEMCG_CHARGE_BATCH`).
const BATCH: u64 = 64;
/// Longest file.
const LONGEST: usize = 1 << 20;
/// Children of one cgroup that are read at most: beyond, what is its own cannot be told.
const CHILDREN: usize = 4096;
/// From here on a limit of v1 is none: `PAGE_COUNTER_MAX` in bytes is just below 2^63.
const UNLIMITED: u64 = 1 << 62;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The hierarchy that charges memory.
#[derive(Clone, Debug)]
pub struct Memcg {
    proc: Proc,
    dir: PathBuf,
    version: Version,
    cpus: u64,
}

/// A file beside `current` and `stat`, and what it is called here.
type Fact = (&'static str, &'static str);

const FACTS_V2: [Fact; 14] = [
    ("memory.peak", "peak"),
    ("memory.min", "min"),
    ("memory.low", "low"),
    ("memory.high", "high"),
    ("memory.max", "max"),
    ("memory.oom.group", "oom.group"),
    ("memory.events", "events"),
    ("memory.events.local", "events.local"),
    ("memory.swap.current", "swap.current"),
    ("memory.swap.max", "swap.max"),
    ("memory.swap.peak", "swap.peak"),
    ("memory.swap.events", "swap.events"),
    ("memory.zswap.current", "zswap.current"),
    ("memory.pressure", "pressure"),
];

const FACTS_V1: [Fact; 9] = [
    ("memory.max_usage_in_bytes", "peak"),
    ("memory.limit_in_bytes", "max"),
    ("memory.soft_limit_in_bytes", "soft_limit"),
    ("memory.failcnt", "failcnt"),
    ("memory.memsw.usage_in_bytes", "memsw.current"),
    ("memory.memsw.limit_in_bytes", "memsw.max"),
    ("memory.memsw.failcnt", "memsw.failcnt"),
    ("memory.kmem.tcp.usage_in_bytes", "kmem.tcp.current"),
    ("memory.oom_control", "oom_control"),
];

/// Lines of v1 by the names that v2 has for them.
const RENAMED: [(&str, &str); 6] = [
    ("cache", "file"),
    ("rss", "anon"),
    ("mapped_file", "file_mapped"),
    ("rss_huge", "anon_thp"),
    ("dirty", "file_dirty"),
    ("writeback", "file_writeback"),
];

impl Memcg {
    /// The hierarchy below `root/sys/fs/cgroup`: v1 and hybrid with `memory`, v2 alone, or v2 in `unified`. `None`
    /// where none charges memory.
    #[must_use]
    pub fn find(proc: &Proc) -> Option<Self> {
        let top = proc.sys("fs/cgroup");
        let charges = |dir: &Path| {
            let mut text = Vec::new();
            read(&dir.join("cgroup.controllers"), &mut text, LONGEST).is_ok()
                && words(text.trim_ascii()).any(|word| word == b"memory")
        };
        let v2 = |dir: PathBuf| charges(&dir).then_some((dir, Version::V2));
        let v1 = top.join("memory");
        let (dir, version) = if v1.join("memory.stat").exists() {
            (v1, Version::V1)
        } else {
            v2(top.clone()).or_else(|| v2(top.join("unified")))?
        };
        let cpus = proc.online_cpus().map_or(1, |cpus| cpus.len().max(1) as u64);
        Some(Self { proc: proc.clone(), dir, version, cpus })
    }

    /// Reads the cgroup `path`, as [`crate::cgroup::memory_path`] tells it, in lossless text.
    ///
    /// `Ok(None)`: nothing counts what it is charged for. That is so at the root of v2; the root of v1 shows a sum of
    /// lines, which no book can be closed by; and a path that leads out of our cgroup namespace (`/../…`) has no files.
    ///
    /// # Errors
    /// It has vanished, we may not look, or it has too many children. A name that is not UTF-8 counts as vanished.
    pub fn charge(&self, path: &str) -> Result<Option<Charge>, ReadError> {
        let sound = path.starts_with('/') && path.split('/').all(|part| part != "..");
        if !sound || path == "/" && self.version == Version::V1 {
            return Ok(None);
        }
        let dir = self.dir_of(path);
        let begin = now();
        let before = match self.current(&dir) {
            Err(error) if error.vanished() && path == "/" => return Ok(None),
            before => before?,
        };
        let alone = self.alone(&dir);
        let whole = self.figures(&dir, alone)?;
        let mut below = Figures::default();
        let mut children = 0;
        for child in if alone { Vec::new() } else { children_of(&dir)? } {
            match self.figures(&child, false) {
                Ok(figures) => {
                    below.add(&figures);
                    children += 1;
                }
                // What it was charged for is its parent's now.
                Err(error) if error.vanished() => {}
                Err(error) => return Err(error),
            }
        }
        let facts = self.facts(&dir);
        let end = now();
        let pids = pids(&dir).ok();
        let files = pids.as_ref().map(|pids| memcg_files::cached(&self.proc, pids));
        let batches = self.cpus * BATCH * PAGE;
        Ok(Some(Charge {
            when: Span { begin, end },
            cgroup: Arc::from(path),
            before,
            whole,
            below,
            children,
            processes: pids.map(|pids| pids.len() as u64),
            stock: batches,
            lag: 2 * batches,
            facts,
            files: files.unwrap_or_default(),
        }))
    }

    /// The total of the cgroup `path` alone, with all that lies below: a cheap look at whether anything moved. Bytes.
    ///
    /// # Errors
    /// It has none, it has vanished, or we may not look.
    pub fn total(&self, path: &str) -> Result<u64, ReadError> {
        self.current(&self.dir_of(path))
    }

    fn dir_of(&self, path: &str) -> PathBuf {
        self.dir.join(path.trim_start_matches('/'))
    }

    fn current(&self, dir: &Path) -> Result<u64, ReadError> {
        let name = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        amount(&dir.join(name))
    }

    /// Whether its figures leave out what lies below it: `use_hierarchy` of v1 was off before 5.11 by default.
    fn alone(&self, dir: &Path) -> bool {
        self.version == Version::V1 && matches!(amount(&dir.join("memory.use_hierarchy")), Ok(0))
    }

    /// The lines, then the total.
    fn figures(&self, dir: &Path, alone: bool) -> Result<Figures, ReadError> {
        let mut text = Vec::new();
        read(&dir.join("memory.stat"), &mut text, LONGEST)?;
        let mut stat = match self.version {
            Version::V2 => keyed(&text),
            Version::V1 => translated(keyed(&text), alone),
        };
        if self.version == Version::V1 {
            let kernel = amount(&dir.join("memory.kmem.usage_in_bytes")).ok();
            stat.extend(kernel.map(|bytes| (Arc::from("kernel"), bytes)));
        }
        Ok(Figures { current: self.current(dir)?, stat })
    }

    /// What else there is; a file that is not there or cannot be read has no entries.
    fn facts(&self, dir: &Path) -> BTreeMap<Arc<str>, u64> {
        let files: &[Fact] = match self.version {
            Version::V1 => &FACTS_V1,
            Version::V2 => &FACTS_V2,
        };
        let mut facts = BTreeMap::new();
        let mut text = Vec::new();
        for (file, name) in files {
            if read(&dir.join(file), &mut text, LONGEST).is_ok() {
                facts.extend(told(name, &text));
            }
        }
        if self.version == Version::V1 {
            facts.retain(|key, value| {
                !key.ends_with("max") && !key.ends_with("limit") || *value < UNLIMITED
            });
        }
        facts
    }
}

/// A cgroup and those that it lies in, the innermost first; the root only if it is asked for.
pub fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(parent, _)| parent))
        .take_while(|path| !path.is_empty())
}

/// `key value` in each line. A line that is not so is left out.
fn keyed(text: &[u8]) -> BTreeMap<Arc<str>, u64> {
    let pair = |line: &[u8]| {
        let (key, value) = cut(line, b' ')?;
        Some((Arc::from(lossless(key)), decimal(value)?))
    };
    lines(text).filter_map(|(_, line)| pair(line)).collect()
}

/// The lines of v1 under v2's names: with all that lies below (`total_…`), or those of the cgroup `alone`.
fn translated(lines: BTreeMap<Arc<str>, u64>, alone: bool) -> BTreeMap<Arc<str>, u64> {
    let whole = |key: &str| key.starts_with("total_");
    let chosen = lines.into_iter().filter(|(key, _)| alone != whole(key));
    chosen
        .map(|(key, value)| {
            let key = key.strip_prefix("total_").unwrap_or(&key);
            let new = RENAMED.iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| *new);
            (Arc::from(new), value)
        })
        .collect()
}

/// What a small file tells: one number, `key value`, or pressure (`some avg10=… total=123`). `max` is no number.
fn told(name: &str, text: &[u8]) -> Vec<(Arc<str>, u64)> {
    let fact = |line: &[u8]| {
        let (first, last) = (words(line).next()?, words(line).last()?);
        let key = std::str::from_utf8(first).ok()?;
        if words(line).count() == 1 {
            return Some((Arc::from(name), decimal(first)?));
        }
        match last.strip_prefix(b"total=") {
            Some(total) => Some((Arc::from(format!("{name}.{key}.total")), decimal(total)?)),
            None => Some((Arc::from(format!("{name}.{key}")), decimal(last)?)),
        }
    };
    lines(text).filter_map(|(_, line)| fact(line)).collect()
}

fn amount(path: &Path) -> Result<u64, ReadError> {
    let mut text = Vec::new();
    read(path, &mut text, LONGEST)?;
    let error = crate::read::ParseError { line: 1, what: "not a number" };
    decimal(text.trim_ascii()).ok_or_else(|| crate::procfs::parse_error(path, error))
}

fn children_of(dir: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let error = |source| ReadError::io(dir, source);
    let mut children = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(error)? {
        let entry = entry.map_err(error)?;
        if entry.file_type().map_err(error)?.is_dir() {
            children.push(entry.path());
        }
        if children.len() > CHILDREN {
            return Err(ReadError::TooLong { path: dir.to_owned(), limit: CHILDREN });
        }
    }
    Ok(children)
}

fn pids(dir: &Path) -> Result<Vec<Tgid>, ReadError> {
    let mut text = Vec::new();
    read(&dir.join("cgroup.procs"), &mut text, LONGEST)?;
    // 0 is a process outside of our pid namespace.
    Ok(lines(&text).filter_map(|(_, line)| decimal_u32(line)).map(Tgid).collect())
}

#[cfg(test)]
mod tests;
