//! On which NUMA nodes the pages of a process lie and on whose CPUs its threads ran, put together as evidence.
//!
//! `numa_maps` tells how many pages of a whole mapping lie on each node. Mappings that lie next to each other and are alike
//! are one to the kernel, so that one line may be of several owners: where such a line has pages on several nodes, each
//! page is asked for, as far as the mapping is not too large.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::evidence::{NodeRange, Placed, Policy, Ran};
use memprov_ledger::identity::{Extent, PAGE, StartTicks, Tgid};
use memprov_ledger::pages::{PageSet, PageState};
use memprov_ledger::time::{MonoTime, Span};

use crate::clock::{now, thread_cpu};
use crate::cost::Costs;
use crate::maps;
use crate::move_pages::query;
use crate::numa_maps::{self, Line};
use crate::procfs::{Proc, parse_error};
use crate::read::ReadError;

/// Present pages of a process whose `numa_maps` is read, at most: the kernel holds the lock of the target while it walks a
/// mapping. 25,000 take 1.8 ms at 72 ns a page.
const PAGES: u64 = 25_000;
/// Pages that are asked for one by one in one reading, at most: 0.7 ms.
const ASKED: u64 = 4096;
/// Pages of a larger process that are drawn, at most: 0.7 ms, and 2.3 points to either side of a share of a half.
const DRAWN: u64 = 4096;
/// Threads of a process whose CPU time is read, at most: 20 µs each.
const THREADS: usize = 256;
/// Threads of all processes that are remembered at most; beyond, all are forgotten.
const MOST: usize = 65_536;
/// Nanoseconds of a tick.
const TICK: u64 = 10_000_000;
/// One part of this many of a process' CPU time may have gone with threads that ended: beyond, where the others ran is not
/// where the process did.
const GONE: u64 = 20;

/// What there is to read of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Its mappings and its threads.
    Whole,
    /// It has more pages than may be walked at a time: some of them, and its threads.
    Sample,
}

/// A thread, by number and start: numbers are given again.
type Thread = (u32, u64);

/// CPU time at the last reading of a process.
#[derive(Debug)]
struct Before {
    start: StartTicks,
    read: MonoTime,
    /// Of all its threads, with those that have ended.
    all: u64,
    ticks: HashMap<Thread, u64>,
}

/// Reads where pages lie, one process at a time, in the thread that calls.
#[derive(Debug)]
pub struct Placer {
    proc: Proc,
    /// Node of each CPU.
    cpus: HashMap<u32, u32>,
    costs: Costs,
    before: HashMap<Tgid, Before>,
    text: Vec<u8>,
    mappings: Vec<u8>,
}

impl Placer {
    /// A reader of processes below a root; `None` where fewer than two nodes hold memory, or the kernel knows no nodes:
    /// there nothing is to be told.
    ///
    /// # Errors
    /// The nodes are there and cannot be read.
    pub fn new(proc: &Proc) -> Result<Option<Self>, ReadError> {
        let nodes = match proc.nodes() {
            Err(error) if error.vanished() => return Ok(None),
            nodes => nodes?,
        };
        if nodes.iter().filter(|node| node.has_memory()).count() < 2 {
            return Ok(None);
        }
        let cpus = nodes.iter().flat_map(|node| node.cpus.iter().map(|cpu| (*cpu, node.id)));
        Ok(Some(Self {
            proc: proc.clone(),
            cpus: cpus.collect(),
            costs: Costs::default(),
            before: HashMap::new(),
            text: Vec::new(),
            mappings: Vec::new(),
        }))
    }

    /// The CPU time that a reading will take, and what there is to read. A process whose size is not told may be large.
    ///
    /// # Errors
    /// The process has vanished.
    pub fn predicted(&self, tgid: Tgid) -> Result<(Duration, Placing), ReadError> {
        let status = self.proc.status_in(&self.proc.memory(tgid)?)?;
        let small = status.amounts.vm_rss.map(|rss| rss / PAGE).filter(|pages| *pages <= PAGES);
        let placing = if small.is_some() { Placing::Whole } else { Placing::Sample };
        Ok((self.costs.predict(tgid, small.unwrap_or(PAGES)), placing))
    }

    /// Reads a process. `pages`: what a scan just found in it; a sample is drawn from them.
    ///
    /// # Errors
    /// It has vanished, we may not look, or a text is not the kernel's. A line of `numa_maps` that cannot be understood is
    /// left out.
    pub fn read(
        &mut self,
        tgid: Tgid,
        placing: Placing,
        pages: Option<&PageSet>,
    ) -> Result<Placed, ReadError> {
        let (began, begin) = (thread_cpu(), now());
        let mut ranges = None;
        let sample = pages.filter(|_| placing == Placing::Sample && self.proc.is_live());
        let drawn = sample.and_then(|pages| drawn(tgid, pages));
        if placing == Placing::Whole {
            let memory = self.proc.memory(tgid)?;
            let (mut text, mut mappings) =
                (std::mem::take(&mut self.text), std::mem::take(&mut self.mappings));
            let read = self.ranges(tgid, &memory, &mut text, &mut mappings);
            (self.text, self.mappings) = (text, mappings);
            ranges = Some(read?);
        }
        let ran = self.ran(tgid)?;
        let (when, ranges) = (Span { begin, end: now() }, ranges.map(Into::into));
        let placed = Placed { when, tgid, ranges, drawn, ran };
        let told = placed.ranges.as_deref().unwrap_or_default();
        let bytes = told.iter().fold(0u64, |sum, range| sum.saturating_add(range.bytes()));
        self.costs.note(tgid, bytes / PAGE, told.len(), thread_cpu().saturating_sub(began));
        Ok(placed)
    }

    /// Forgets a process that has ended.
    pub fn forget(&mut self, tgid: Tgid) {
        self.costs.forget(tgid);
        self.before.remove(&tgid);
    }

    /// What the lines of `numa_maps` say, where a mapping begins there. One that came or went between the two lists is left
    /// out.
    fn ranges(
        &self,
        tgid: Tgid,
        memory: &Path,
        text: &mut Vec<u8>,
        mappings: &mut Vec<u8>,
    ) -> Result<Vec<NodeRange>, ReadError> {
        self.proc.map_text(tgid, mappings)?;
        self.proc.numa_text(memory, text)?;
        let listed: Result<Vec<Extent>, _> = maps::lines(mappings)
            .map(|line| line.map(|line| Extent { start: line.start, end: line.end }))
            .collect();
        let listed = listed.map_err(|error| parse_error(&memory.join("maps"), error))?;
        let mut ends = listed.into_iter().peekable();
        let (mut ranges, mut left) = (Vec::new(), ASKED);
        for line in numa_maps::lines(text).flatten() {
            while ends.next_if(|extent| extent.start < line.start).is_some() {}
            let Some(extent) = ends.next_if(|extent| extent.start == line.start) else { continue };
            let Some(mut nodes) = line.bytes().filter(|nodes| !nodes.is_empty()) else { continue };
            nodes.sort_unstable();
            let policy = line.policy;
            let pages = extent.len() / PAGE;
            if nodes.len() > 1 && divisible(&line) && pages <= left && self.proc.is_live() {
                left -= pages;
                if let Some(each) = page_by_page(tgid, extent, policy) {
                    ranges.extend(each);
                    continue;
                }
            }
            ranges.push(NodeRange { extent, policy, nodes });
        }
        Ok(ranges)
    }

    /// CPU time since the last reading, by the node of the CPU that each thread ran on last; `None` at the first one, where
    /// there are too many threads, and where those that ended meanwhile had too much of it.
    fn ran(&mut self, tgid: Tgid) -> Result<Option<Ran>, ReadError> {
        let stat = self.proc.stat(tgid)?;
        let (start, all) = (StartTicks(stat.start_ticks), stat.cpu_ticks);
        let tasks = self.proc.tasks(tgid)?;
        let read = now();
        if tasks.len() > THREADS {
            self.before.remove(&tgid);
            return Ok(None);
        }
        let before = self.before.remove(&tgid).filter(|before| before.start == start);
        let mut ticks = HashMap::with_capacity(tasks.len());
        let (mut by_node, mut known): (Vec<(u32, u64)>, u64) = (Vec::new(), 0);
        for task in tasks {
            // One that ended meanwhile takes what it ran since with it.
            let Ok(stat) = self.proc.task_stat(tgid, task) else { continue };
            let thread = (task, stat.start_ticks);
            ticks.insert(thread, stat.cpu_ticks);
            let Some(before) = &before else { continue };
            let since = before.ticks.get(&thread).copied().unwrap_or(0);
            let ran = stat.cpu_ticks.saturating_sub(since);
            let node = stat.processor.and_then(|cpu| self.cpus.get(&cpu));
            let Some(node) = node.filter(|_| ran > 0) else { continue };
            known = known.saturating_add(ran);
            let time = ran.saturating_mul(TICK);
            match by_node.iter_mut().find(|(id, _)| id == node) {
                Some((_, sum)) => *sum = sum.saturating_add(time),
                None => by_node.push((*node, time)),
            }
        }
        by_node.sort_unstable();
        let remembered: usize = self.before.values().map(|before| before.ticks.len()).sum();
        if remembered + ticks.len() > MOST {
            self.before.clear();
        }
        // Times are whole ticks: what is cut off at one reading comes with the next. So one tick is allowed for, however many
        // threads there are: those that did not run would explain any that ended.
        let most = |before: &Before| {
            let since = all.saturating_sub(before.all);
            since.saturating_sub(known) <= since.div_ceil(GONE)
        };
        let told = before.filter(most).map(|before| before.read);
        self.before.insert(tgid, Before { start, read, all, ticks });
        Ok(told.map(|since| Ran { since, by_node: by_node.into() }))
    }
}

/// Whether a line can be of several owners: neighbours that are alike are one mapping where no object tells them apart.
fn divisible(line: &Line<'_>) -> bool {
    line.file.is_none() && !line.huge
}

/// Nodes of pages that are drawn from those in memory: one from each of equal parts, anywhere in it, so that no pattern of
/// addresses is met at its own step. `None` where the kernel does not answer.
fn drawn(tgid: Tgid, pages: &PageSet) -> Option<Arc<[(u64, u32)]>> {
    let resident = |state: PageState| state.anon() || state.object();
    let runs = || pages.all().filter(|(_, state)| resident(*state)).map(|(extent, _)| extent);
    let all: u64 = runs().map(|run| run.len() / PAGE).sum();
    let step = all.div_ceil(DRAWN).max(1);
    let mut seed = [0; 8];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).ok()?;
    let asked = choose(runs(), step, u64::from_ne_bytes(seed));
    let nodes = query(tgid, &asked).ok()?;
    let told = asked.into_iter().zip(nodes);
    Some(told.filter_map(|(address, node)| Some((address / PAGE, node?))).collect())
}

/// One page of each `step` pages of `runs`.
fn choose(runs: impl Iterator<Item = Extent>, step: u64, seed: u64) -> Vec<u64> {
    let mut state = seed;
    // SplitMix64.
    let mut draw = |part: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        part + (mixed ^ (mixed >> 31)) % step
    };
    let (mut chosen, mut before, mut part) = (Vec::new(), 0, 0);
    let mut next = draw(part);
    for run in runs {
        let end = before + run.len() / PAGE;
        while next < end {
            chosen.push(run.start + (next - before) * PAGE);
            part += step;
            next = draw(part);
        }
        before = end;
    }
    chosen
}

/// Each run of pages on one node; `None` where the kernel does not answer.
fn page_by_page(tgid: Tgid, extent: Extent, policy: Policy) -> Option<Vec<NodeRange>> {
    let pages: Vec<u64> = (extent.start..extent.end).step_by(4096).collect();
    let mut ranges: Vec<NodeRange> = Vec::new();
    for (address, node) in pages.iter().zip(query(tgid, &pages).ok()?) {
        let Some(node) = node else { continue };
        let page = Extent::new(*address, PAGE);
        match ranges.last_mut() {
            Some(NodeRange { extent, nodes, .. })
                if extent.end == page.start && nodes.first().is_some_and(|(id, _)| *id == node) =>
            {
                extent.end = page.end;
                *nodes = vec![(node, extent.len())];
            }
            _ => ranges.push(NodeRange { extent: page, policy, nodes: vec![(node, PAGE)] }),
        }
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use memprov_ledger::identity::{Extent, PAGE, Tgid};

    use super::{Placer, Placing, choose};
    use crate::procfs::Proc;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A host with memory on nodes 0 and 1, whose CPUs have the same numbers.
    fn two_nodes() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/devices/system/node/online", "0-1\n");
        for node in 0..2 {
            let file = |name: &str| format!("sys/devices/system/node/node{node}/{name}");
            write(root.path(), &file("cpulist"), &format!("{node}\n"));
            write(root.path(), &file("meminfo"), &format!("Node {node} MemTotal:  1024 kB\n"));
        }
        root
    }

    /// A line of `stat`: the thread `id`, its state, ticks of CPU time and last CPU.
    fn stat(id: u32, state: char, ticks: u64, cpu: u32) -> String {
        let (unused, code) = ("0 ".repeat(6), "0 ".repeat(16));
        format!("{id} (a) {state} 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 {unused}42 {code}{cpu} 0 0\n")
    }

    #[test]
    fn nodes_that_cannot_be_read_are_not_taken_for_one() {
        let root = two_nodes();
        let proc = Proc::at(root.path());
        assert!(Placer::new(&proc).unwrap().is_some());
        write(root.path(), "sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  0 kB\n");
        assert!(Placer::new(&proc).unwrap().is_none(), "one has no memory");
        write(root.path(), "sys/devices/system/node/online", "some\n");
        let error = Placer::new(&proc).unwrap_err();
        assert!(error.to_string().contains("node/online"), "{error}");
        std::fs::remove_dir_all(root.path().join("sys")).unwrap();
        assert!(Placer::new(&proc).unwrap().is_none(), "the kernel knows no nodes");
    }

    #[test]
    fn a_process_is_walked_only_where_it_is_known_to_be_small() {
        let root = two_nodes();
        let placer = Placer::new(&Proc::at(root.path())).unwrap().unwrap();
        let status = |rss: &str| format!("Tgid:\t7\nPid:\t7\nPPid:\t1\n{rss}");
        let placing = || placer.predicted(Tgid(7)).unwrap().1;
        write(root.path(), "proc/7/stat", &stat(7, 'S', 0, 0));
        for (rss, wanted) in [
            ("VmRSS:\t100000 kB\n", Placing::Whole),
            ("VmRSS:\t100004 kB\n", Placing::Sample),
            ("", Placing::Sample),
        ] {
            write(root.path(), "proc/7/status", &status(rss));
            assert_eq!(placing(), wanted, "{rss}");
        }
        // The first thread has ended, and tells nothing of the memory that the other one has.
        write(root.path(), "proc/7/stat", &stat(7, 'Z', 0, 0));
        write(root.path(), "proc/7/task/8/stat", &stat(8, 'S', 0, 0));
        write(root.path(), "proc/7/task/8/status", &status("VmRSS:\t4 kB\n"));
        assert_eq!(placing(), Placing::Whole);
    }

    #[test]
    fn where_a_process_ran_is_told_only_where_few_of_its_time_went_with_threads_that_ended() {
        let root = two_nodes();
        let mut placer = Placer::new(&Proc::at(root.path())).unwrap().unwrap();
        let mut ran = |all: u64, threads: &[(u32, u64, u32)]| {
            write(root.path(), "proc/7/stat", &stat(7, 'S', all, 0));
            drop(std::fs::remove_dir_all(root.path().join("proc/7/task")));
            for (id, ticks, cpu) in threads {
                let line = stat(*id, 'S', *ticks, *cpu);
                write(root.path(), &format!("proc/7/task/{id}/stat"), &line);
            }
            let placed = placer.read(Tgid(7), Placing::Sample, None).unwrap();
            Some(
                placed.ran?.by_node.iter().map(|(node, time)| (*node, time / 10_000_000)).collect(),
            )
        };
        let told = |by_node: &[(u32, u64)]| Some(by_node.to_vec());
        assert_eq!(ran(1000, &[(7, 500, 0), (8, 400, 1)]), None, "nothing is before");
        assert_eq!(ran(2000, &[(7, 900, 0), (8, 1000, 1)]), told(&[(0, 400), (1, 600)]));
        assert_eq!(ran(3000, &[(7, 1850, 0), (8, 1000, 1)]), told(&[(0, 950)]));
        assert_eq!(ran(4000, &[(7, 2799, 0), (8, 1000, 1)]), None, "51 ticks are of nobody");
        assert_eq!(ran(5000, &[(7, 3799, 0)]), told(&[(0, 1000)]), "the other one had not run");
        assert_eq!(ran(6000, &[(7, 4799, 9)]), None, "no node has CPU 9");
        // Threads that do nothing explain nothing.
        let pool = |ticks| -> Vec<(u32, u64, u32)> {
            (8..207).map(|id| (id, 0, 1)).chain([(7, ticks, 0)]).collect()
        };
        ran(7000, &pool(5000));
        assert_eq!(ran(7450, &pool(5060)), None, "390 ticks went with threads that ended");
        assert_eq!(ran(7510, &pool(5117)), told(&[(0, 57)]));
        assert_eq!(ran(7511, &pool(5117)), told(&[]), "a tick may have been cut");
    }

    #[test]
    fn each_page_is_drawn_as_often_as_any_other_and_no_page_twice() {
        let runs = [(10u64, 7u64), (100, 1), (200, 25)];
        let runs = runs.map(|(first, pages)| Extent::new(first * PAGE, pages * PAGE));
        let mut times = std::collections::BTreeMap::new();
        for seed in 0..6000 {
            let chosen = choose(runs.into_iter(), 4, seed);
            assert!(chosen.is_sorted_by(|a, b| a < b));
            assert!((8..=9).contains(&chosen.len()), "{chosen:?}");
            chosen.into_iter().for_each(|page| *times.entry(page).or_insert(0) += 1);
        }
        assert_eq!(times.len(), 33);
        // 1,500 each; the standard deviation is 34.
        assert!(times.values().all(|n| (1330..1670).contains(n)), "{times:?}");
        assert_eq!(choose(runs.into_iter(), 1, 7).len(), 33);
        assert_eq!(choose(std::iter::empty(), 1, 7), []);
    }
}
