//! The law: of a stopped process the pages that a scan saw add up to the kernel's totals, byte for byte.

use std::path::Path;

use memprov_ledger::evidence::{Backing, Mapping, Residency};
use memprov_ledger::pages::{PageSet, PageState};
use memprov_proc::{Proc, RssAccuracy, ScanError, ScanOptions, Scanner, smaps};

use crate::child::{Stopped, scanner};

/// Bytes by what the kernel counts them as.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    anon: u64,
    file: u64,
    shmem: u64,
    hugetlb: u64,
    swap: u64,
}

fn maps(residency: &Residency) -> &[Mapping] {
    residency.maps.as_deref().expect("root may read maps")
}

fn pages(residency: &Residency) -> &PageSet {
    residency.pages.as_deref().expect("root may read pages")
}

fn sums(residency: &Residency) -> Sums {
    let mut sums = Sums::default();
    for map in maps(residency) {
        for (extent, state) in pages(residency).runs(map.extent) {
            let sum = match map.backing {
                Backing::Hugetlb(_) => &mut sums.hugetlb,
                _ if state.has(PageState::SWAPPED) => &mut sums.swap,
                _ if state.anon() => &mut sums.anon,
                Backing::Shmem(_) if state.object() => &mut sums.shmem,
                _ if state.object() => &mut sums.file,
                _ => continue,
            };
            *sum += extent.len();
        }
    }
    sums
}

/// A scanner that takes the kernel for an older one.
fn approximate(pages_per_call: u64) -> Scanner {
    let accuracy = Some(RssAccuracy::PerThread);
    let options = ScanOptions { accuracy, pages_per_call, ..ScanOptions::default() };
    Scanner::new(Proc::at("/".as_ref()), options)
}

/// The scan is what status and smaps_rollup say, whichever way it is made.
fn assert_exact(child: &Stopped, what: &str) -> Residency {
    let proc = Proc::at("/".as_ref());
    let mut last = None;
    for (entries_only, exclusive) in [(true, false), (false, true), (false, false)] {
        // The process stands still, but khugepaged may fill a huge page of it meanwhile: that moves Rss without a fault.
        let undisturbed = (0..20).find_map(|_| {
            let residency = scanner(entries_only).scan(child.tgid(), exclusive).unwrap();
            let rollup = proc.rollup(child.tgid()).unwrap();
            let walked = approximate(25_000).scan(child.tgid(), exclusive).unwrap();
            let later = scanner(entries_only).totals(child.tgid()).unwrap().counters;
            let still = residency.before == residency.after && residency.after == later;
            still.then_some((residency, rollup, walked))
        });
        let (residency, rollup, walked) =
            undisturbed.unwrap_or_else(|| panic!("{what} never stands still"));
        let kernel = Sums {
            anon: residency.after.anon.unwrap(),
            file: residency.after.file.unwrap(),
            shmem: residency.after.shmem.unwrap(),
            hugetlb: residency.after.hugetlb.unwrap_or(0),
            swap: residency.after.swap.unwrap(),
        };
        let seen = sums(&residency);
        assert_eq!(seen, kernel, "{what}, entries {entries_only}, exclusive {exclusive}");
        assert_eq!(Some(seen.anon), rollup.anonymous, "{what}");
        assert_eq!(Some(seen.anon + seen.file + seen.shmem), rollup.rss, "{what}");
        // Where status is approximate, smaps tells the same as it does here.
        assert_eq!((walked.before, walked.after), (residency.before, residency.after), "{what}");
        assert_eq!(walked.slack, 0, "{what}");
        assert!(maps(&residency).windows(2).all(|w| w[0].extent.end <= w[1].extent.start));
        last = Some(residency);
    }
    last.unwrap()
}

#[test]
fn every_shape_of_memory_is_counted_as_the_kernel_counts_it() {
    for shape in [
        "anonymous",
        "zero page",
        "huge",
        "shared anonymous",
        "memfd",
        "segment",
        "posix shared memory",
        "file",
        "zero device",
        "guard",
        "threads",
    ] {
        if let Some(child) = Stopped::shape(shape) {
            assert_exact(&child, shape);
        }
    }
}

#[test]
fn programs_as_they_are_add_up() {
    for (name, args) in [
        ("sleep", &["1000"][..]),
        (
            "python3",
            &[
                "-c",
                "import json,decimal,time; x=[str(i) for i in range(200000)]; time.sleep(1000)",
            ],
        ),
        ("redis-server", &["--port", "0", "--unixsocket", "memprov-test.sock", "--save", ""]),
    ] {
        if let Some(child) = Stopped::program(name, args) {
            let residency = assert_exact(&child, name);
            assert!(residency.cgroup.is_some_and(|path| path.starts_with('/')));
            assert!(residency.layout.is_some());
        }
    }
}

#[test]
fn the_zero_page_is_present_and_not_resident() {
    let Some(child) = Stopped::shape("zero page") else { return };
    let residency = assert_exact(&child, "zero page");
    let zero: u64 = pages(&residency)
        .all()
        .filter(|(_, state)| state.has(PageState::ZERO))
        .map(|(extent, _)| extent.len())
        .sum();
    assert!(zero >= 45 * 4096, "{zero}");
}

#[test]
fn names_with_newlines_and_wild_bytes_are_lossless() {
    let Some(child) = Stopped::shape("memfd") else { return };
    let residency = assert_exact(&child, "memfd");
    let name = "/memfd:a\nb\\xff (deleted)";
    let named: Vec<_> =
        maps(&residency).iter().filter(|m| m.path.as_deref() == Some(name)).collect();
    assert_eq!(named.len(), 2);
    assert!(named.iter().all(|m| matches!(m.backing, Backing::Shmem(_))));
}

#[test]
fn hugetlb_is_kept_apart_and_whole() {
    let Some(_pool) = Pool::of(16) else { return };
    let Some(child) = Stopped::shape("hugetlb") else { return };
    let residency = assert_exact(&child, "hugetlb");
    assert_eq!(sums(&residency).hugetlb, 5 * (2 << 20));
    let smaps = smaps_of(&child);
    for entry in smaps::entries(&smaps).unwrap() {
        let map = maps(&residency).iter().find(|m| m.extent.start == entry.map.start).unwrap();
        let huge = matches!(map.backing, Backing::Hugetlb(_));
        assert_eq!(huge, entry.has_flag(b"ht"), "{map:?}");
    }
}

#[test]
fn every_mapping_of_a_program_agrees_with_smaps() {
    let Some(child) = Stopped::program("python3", &["-c", "import time; time.sleep(1000)"]) else {
        return;
    };
    let residency = assert_exact(&child, "python3");
    let smaps = smaps_of(&child);
    let entries = smaps::entries(&smaps).unwrap();
    assert_eq!(entries.len(), maps(&residency).len());
    for (entry, map) in entries.iter().zip(maps(&residency).iter()) {
        let runs = || pages(&residency).runs(map.extent);
        let rss: u64 = runs().filter(|(_, s)| s.anon() || s.object()).map(|(e, _)| e.len()).sum();
        let anon: u64 = runs().filter(|(_, s)| s.anon()).map(|(e, _)| e.len()).sum();
        assert_eq!(
            (Some(rss), Some(anon)),
            (entry.amounts.rss, entry.amounts.anonymous),
            "{map:?}"
        );
    }
}

#[test]
fn pages_common_after_a_fork_are_told_from_exclusive_ones() {
    let Some(child) = Stopped::shape("forked") else { return };
    let proc = Proc::at("/".as_ref());
    let young = proc.children(child.tgid()).unwrap();
    assert_eq!(young.len(), 1);
    let residency = scanner(false).scan(child.tgid(), true).unwrap();
    assert!(residency.exclusive_known);
    let common: u64 = pages(&residency)
        .all()
        .filter(|(_, s)| s.anon() && !s.has(PageState::EXCLUSIVE))
        .map(|(e, _)| e.len())
        .sum();
    let anon = residency.after.anon.unwrap();
    // The huge page and 70 of 100 pages are common; the 30 that the child wrote became each one's own.
    assert!(common >= (2 << 20) + 70 * 4096 && common <= anon - 30 * 4096, "{common} of {anon}");
    // Without being asked it claims nothing.
    let unasked = scanner(false).scan(child.tgid(), false).unwrap();
    assert!(!unasked.exclusive_known);
    assert!(pages(&unasked).all().all(|(_, s)| !s.has(PageState::EXCLUSIVE)));
    // Same randomised layout, same parent: a family.
    let young = young[0];
    let other = scanner(false).scan(young, false).unwrap();
    assert_eq!(other.layout, residency.layout);
    assert_eq!(other.parent, child.tgid());
    // SAFETY: the grandchild is not reaped by anybody yet: its parent is stopped.
    unsafe { libc::kill(i32::try_from(young.0).unwrap(), libc::SIGKILL) };
}

#[test]
fn a_process_whose_leader_exited_is_read_through_another_thread() {
    let Some(child) = Stopped::shape("leaderless") else { return };
    let proc = Proc::at("/".as_ref());
    for _ in 0..1000 {
        if proc.stat(child.tgid()).unwrap().exited() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(proc.stat(child.tgid()).unwrap().exited());
    std::thread::sleep(std::time::Duration::from_millis(50));
    let residency = assert_exact(&child, "leaderless");
    assert!(residency.after.anon > Some(64 * 4096 - 1));
    assert!(residency.layout.is_some());
    assert!(residency.after.minor_faults > 64);
}

#[test]
fn swapped_pages_are_what_the_kernel_says_is_swapped() {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap();
    if swaps.lines().count() < 2 {
        eprintln!("skipped: no swap area is on");
        return;
    }
    let Some(child) = Stopped::shape("swap") else { return };
    let residency = assert_exact(&child, "swap");
    assert!(residency.after.swap > Some(0), "nothing was swapped out");
}

#[test]
fn a_kernel_thread_and_a_process_that_has_gone_are_told_apart() {
    let mut scanner = scanner(false);
    let proc = Proc::at("/".as_ref());
    let kernel = proc
        .pids()
        .unwrap()
        .into_iter()
        .find(|tgid| proc.stat(*tgid).is_ok_and(|stat| stat.kernel_thread()));
    match kernel {
        None => eprintln!("skipped: no kernel thread is visible in this pid namespace"),
        Some(tgid) => {
            assert!(matches!(scanner.scan(tgid, false), Err(ScanError::KernelThread { .. })))
        }
    }
    let Some(child) = Stopped::shape("plain") else { return };
    let tgid = child.tgid();
    assert!(scanner.scan(tgid, false).is_ok());
    let known = scanner.predicted(tgid);
    drop(child);
    assert!(matches!(scanner.scan(tgid, false), Err(ScanError::Vanished { .. })));
    assert!(matches!(scanner.totals(tgid), Err(ScanError::Vanished { .. })));
    assert_ne!(scanner.predicted(tgid), known, "its cost is forgotten");
}

#[test]
fn totals_are_those_of_a_scan() {
    let Some(child) = Stopped::shape("plain") else { return };
    let mut scanner = scanner(false);
    let total = scanner.totals(child.tgid()).unwrap();
    let residency = scanner.scan(child.tgid(), false).unwrap();
    assert_eq!(total.counters, residency.before);
    assert_eq!(Some(total.start), residency.start);
    assert!(total.when.end <= residency.when.begin);
    assert_eq!(residency.parent.0, std::process::id());
}

#[test]
fn totals_of_a_large_process_keep_their_bounds_where_the_kernel_batches_them() {
    let Some(child) = Stopped::shape("plain") else { return };
    assert_eq!(approximate(25_000).scan(child.tgid(), false).unwrap().slack, 0);
    let told = |pages| approximate(pages).totals(child.tgid()).unwrap().counters.anon;
    assert_eq!((told(25_000), told(64).is_some()), (None, true), "only a scan knows better");
    let residency = approximate(64).scan(child.tgid(), false).unwrap();
    assert!(residency.slack >= 64 * 4096, "{} bytes", residency.slack);
}

#[test]
fn a_scanner_finds_out_by_itself_how_exact_rss_is() {
    let scanner = Scanner::new(Proc::at(Path::new("/")), ScanOptions::default());
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    eprintln!("{}: {:?}", release.trim(), scanner.accuracy());
    let Some(child) = Stopped::shape("threads") else { return };
    let residency = { scanner }.scan(child.tgid(), false).unwrap();
    let rollup = Proc::at("/".as_ref()).rollup(child.tgid()).unwrap();
    let off = residency.after.anon.unwrap().abs_diff(rollup.anonymous.unwrap());
    assert!(off <= residency.slack, "{off} bytes off, {} stated", residency.slack);
}

fn smaps_of(child: &Stopped) -> Vec<u8> {
    let mut smaps = Vec::new();
    Proc::at("/".as_ref()).smaps_text(child.tgid(), &mut smaps).unwrap();
    smaps
}

/// Huge pages set aside, given back when dropped.
struct Pool {
    before: String,
}

impl Pool {
    const PATH: &str = "/proc/sys/vm/nr_hugepages";

    fn of(pages: u64) -> Option<Self> {
        let before = std::fs::read_to_string(Self::PATH).unwrap_or_default();
        let had: u64 = before.trim().parse().unwrap_or(0);
        if std::fs::write(Self::PATH, (had + pages).to_string()).is_err() {
            eprintln!("skipped: huge pages cannot be set aside (needs root)");
            return None;
        }
        Some(Self { before })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        std::fs::write(Self::PATH, self.before.trim()).unwrap();
    }
}
