//! What the kernel itself says of living processes, for comparison: Rss, and distinct page frames.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// A file of a process, through whichever thread still has the memory: a leader may be a zombie.
fn of_any_thread<T>(pid: u32, name: &str, read: impl Fn(&PathBuf) -> Option<T>) -> Option<T> {
    let mut tasks: Vec<_> =
        fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().map(|d| d.path()).collect();
    tasks.sort();
    tasks.iter().find_map(|task| read(&task.join(name)))
}

/// One field of smaps_rollup, such as `Rss` or `Anonymous`, in bytes.
pub fn rollup(pid: u32, field: &str) -> Option<u64> {
    of_any_thread(pid, "smaps_rollup", |path| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.split(':').next() == Some(field))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
    })
}

/// Rss by process, in bytes: least and most of what was read.
pub type Rss = BTreeMap<u32, (u64, u64)>;

/// What smaps_rollup calls the Rss of these processes; one that can't be read is left out.
pub fn rss(pids: impl IntoIterator<Item = u32>) -> Rss {
    let read = |pid| rollup(pid, "Rss").map(|rss| (pid, (rss, rss)));
    pids.into_iter().filter_map(read).collect()
}

/// The same before and after something else was asked. The kernel takes a page of a file now and then from a process
/// that stands still.
pub fn around(before: &Rss, mut after: Rss) -> Rss {
    for (pid, (least, most)) in &mut after {
        if let Some((low, high)) = before.get(pid) {
            (*least, *most) = ((*least).min(*low), (*most).max(*high));
        }
    }
    after
}

/// Bytes of distinct page frames that these processes have mapped, each counted once, the zero page too.
///
/// `None` where page frame numbers are hidden (no CAP_SYS_ADMIN) or a process has gone.
pub fn distinct(pids: &[u32]) -> Option<u64> {
    let mut frames = HashSet::new();
    for pid in pids {
        let maps = of_any_thread(*pid, "maps", |path| fs::read_to_string(path).ok())?;
        let pagemap = of_any_thread(*pid, "pagemap", |path| File::open(path).ok())?;
        // The kernel's own pages in every process are nobody's memory.
        for line in maps.lines().filter(|l| !l.contains("[vsyscall]") && !l.contains("[vvar")) {
            let (from, to) = line.split_whitespace().next()?.split_once('-')?;
            let (from, to) =
                (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
            collect(&pagemap, from / PAGE, to / PAGE, &mut frames)?;
        }
    }
    (!frames.contains(&0) && !frames.is_empty())
        .then(|| u64::try_from(frames.len()).ok().map(|n| n * PAGE))?
}

fn collect(pagemap: &File, mut page: u64, end: u64, frames: &mut HashSet<u64>) -> Option<()> {
    let mut words = vec![0; 8 * 4096];
    while page < end {
        let ask = usize::try_from((end - page).min(4096)).ok()? * 8;
        let got = pagemap.read_at(words.get_mut(..ask)?, page * 8).ok()?;
        if got == 0 {
            return None;
        }
        for word in words.get(..got)?.chunks_exact(8) {
            let word = u64::from_ne_bytes(word.try_into().ok()?);
            if word & PRESENT != 0 {
                frames.insert(word & FRAME);
            }
        }
        page += u64::try_from(got / 8).ok()?;
    }
    Some(())
}

/// `pid` and all its living descendants, itself first.
pub fn family(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, parent(pid)?)))
        .collect();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(&of) = family.get(next) {
        family.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(child, _)| *child));
        next += 1;
    }
    family
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.split_whitespace().nth(1)?.parse().ok()
}
