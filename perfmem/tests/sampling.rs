//! Samples of this kernel, of faults and breakpoints: by the same code as those of a PMU, which is not here. Needs CAP_PERFMON,
//! and CAP_SYS_ADMIN for frames; says so where they are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use memprov_ledger::evidence::{Access, Evidence, Gap, Population, Stream};
use memprov_ledger::identity::{Extent, Tgid};
use memprov_perfmem::nodes::Nodes;
use memprov_perfmem::{Period, Sampled, Sampler, Words, probe_faults};
use rustix::mm::{self, MapFlags, ProtFlags};

const PAGE: usize = 4096;

/// One test at a time: each counts what this process does.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own() -> Tgid {
    Tgid(std::process::id())
}

/// A sampler of these events of this process.
fn sampler(room: u32, events: impl Into<Arc<[Sampled]>>) -> Option<Sampler> {
    let watched = Sampler::open(Path::new("/"), room, 7).and_then(|mut sampler| {
        sampler.watch(own(), &events.into())?;
        Ok(sampler)
    });
    match watched {
        Ok(sampler) => Some(sampler),
        Err(error) if !rustix::process::geteuid().is_root() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Reads until everything up to now is told.
fn told(sampler: &mut Sampler) -> Vec<Evidence> {
    let mut out = Vec::new();
    std::thread::sleep(Duration::from_millis(10));
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(2));
        sampler.poll(Duration::ZERO, &mut out).expect("rings are read");
    }
    out
}

fn accesses(evidence: &[Evidence], within: Extent) -> Vec<&Access> {
    let holds = |at: u64| within.start <= at && at < within.end;
    let told = evidence.iter().filter_map(|e| match e {
        Evidence::Access(access) => Some(access.as_ref()),
        _ => None,
    });
    told.filter(|access| access.address.is_some_and(holds)).collect()
}

fn lost(evidence: &[Evidence]) -> u64 {
    let lost = |e: &Evidence| match e {
        Evidence::Gap(Gap { stream: Stream::Accesses, lost, .. }) => Some(*lost),
        _ => None,
    };
    evidence.iter().filter_map(lost).sum()
}

/// New memory in small pages.
fn map(pages: usize) -> Extent {
    let (null, prot) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: new memory at an address that the kernel chooses; nothing refers to it.
    let at =
        unsafe { mm::mmap_anonymous(null, pages * PAGE, prot, MapFlags::PRIVATE) }.expect("memory");
    // SAFETY: the mapping just made.
    unsafe { mm::madvise(at, pages * PAGE, mm::Advice::LinuxNoHugepage) }.expect("memory");
    Extent::new(at.addr() as u64, (pages * PAGE) as u64)
}

fn word(n: u64) -> usize {
    usize::try_from(n).expect("64 bits")
}

fn unmap(extent: Extent) {
    let at = std::ptr::with_exposed_provenance_mut(word(extent.start));
    // SAFETY: one of the mappings above; nothing refers to it.
    unsafe { mm::munmap(at, word(extent.len())) }.expect("it is mapped");
}

/// Writes to the page of this number.
#[inline(never)]
fn touch(extent: Extent, page: usize) {
    let at = word(extent.start) + page * PAGE;
    // SAFETY: within a mapping above, which nobody else uses.
    unsafe { std::ptr::with_exposed_provenance_mut::<u64>(at).write_volatile(1) };
}

/// The frame of each page, as pagemap shows it.
fn frames(extent: Extent) -> BTreeMap<u64, u64> {
    let file = std::fs::File::open("/proc/self/pagemap").expect("pagemap opens");
    let pages = extent.start / 4096..extent.end / 4096;
    let frame = |page| {
        let mut entry = [0; 8];
        file.read_exact_at(&mut entry, page * 8).expect("pagemap is read");
        (page, u64::from_ne_bytes(entry) & ((1 << 55) - 1))
    };
    pages.map(frame).collect()
}

#[test]
fn every_page_that_is_touched_is_told_once_with_the_frame_that_pagemap_shows() {
    let _alone = alone();
    let Some(mut sampler) = sampler(4 << 20, Sampled::faults()) else { return };
    let cpus = (0..64).map(|cpu| (cpu, 3)).collect();
    sampler.set_nodes(Nodes::new(cpus, vec![(0, u64::MAX, 5)]));
    let memory = map(1000);
    (0..1000).for_each(|page| touch(memory, page));
    let evidence = told(&mut sampler);
    let edges = accesses(&evidence, memory);
    let told: BTreeMap<u64, u64> =
        edges.iter().map(|edge| (edge.address.unwrap() / 4096, edge.frame.unwrap())).collect();
    assert_eq!((edges.len(), told.len()), (1000, 1000));
    let expected = frames(memory);
    if expected.values().all(|frame| *frame == 0) {
        println!("skipped: frames are hidden from us");
    } else {
        assert_eq!(told, expected);
    }
    let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
    for edge in &edges {
        assert_eq!((edge.tgid, edge.tid), (Some(own()), Some(tid)));
        assert_eq!((edge.population, edge.period), (Population::Faults, Some(1)));
        assert_eq!((edge.cpu_node, edge.page_node), (Some(3), Some(5)));
        // Before Linux 5.11 it is not told.
        assert!(edge.page_size.is_none_or(|size| size == 4096), "{edge:?}");
        assert_eq!(edge.page_size, edges[0].page_size);
        assert!(edge.ip.is_some());
    }
    assert!(edges.is_sorted_by_key(|edge| edge.when.end));
    assert_eq!((lost(&evidence), sampler.counts().broken), (0, 0));
    unmap(memory);
}

#[test]
fn a_page_that_is_only_read_has_no_frame_of_its_own() {
    let _alone = alone();
    let Some(mut sampler) = sampler(1 << 20, Sampled::faults()) else { return };
    let memory = map(64);
    for page in 0..64 {
        let at = usize::try_from(memory.start).unwrap() + page * PAGE;
        // SAFETY: within the mapping above.
        black_box(unsafe { std::ptr::with_exposed_provenance::<u64>(at).read_volatile() });
    }
    let evidence = told(&mut sampler);
    let edges = accesses(&evidence, memory);
    assert_eq!(edges.len(), 64);
    assert!(edges.iter().all(|edge| edge.frame.is_none()), "the zero page is nobody's");
    unmap(memory);
}

#[test]
fn threads_from_before_and_after_are_told_once_and_a_child_process_is_not() {
    let _alone = alone();
    let memory = map(300);
    let (go, wait) = mpsc::channel::<()>();
    let before = std::thread::spawn(move || {
        wait.recv().unwrap();
        (0..100).for_each(|page| touch(memory, page));
    });
    let Some(mut sampler) = sampler(4 << 20, Sampled::faults()) else { return };
    go.send(()).unwrap();
    before.join().unwrap();
    std::thread::spawn(move || (100..200).for_each(|page| touch(memory, page))).join().unwrap();
    // Its memory is a copy, at the same addresses.
    // SAFETY: the child only touches memory and ends.
    match unsafe { libc_fork() } {
        0 => {
            (200..300).for_each(|page| touch(memory, page));
            // SAFETY: ends without a word.
            unsafe { _exit(0) };
        }
        child => {
            let child = rustix::process::Pid::from_raw(child);
            rustix::process::waitpid(child, rustix::process::WaitOptions::empty()).unwrap();
        }
    }
    let evidence = told(&mut sampler);
    let edges = accesses(&evidence, memory);
    let mut pages: Vec<u64> =
        edges.iter().map(|edge| (edge.address.unwrap() - memory.start) / 4096).collect();
    pages.sort_unstable();
    assert_eq!(pages, (0..200).collect::<Vec<u64>>());
    assert!(sampler.counts().others >= 100, "{:?}", sampler.counts());
    sampler.forget(own());
    assert_eq!(sampler.watched().count(), 0);
    touch(memory, 250);
    assert_eq!(accesses(&told(&mut sampler), memory).len(), 0);
    unmap(memory);
}

unsafe extern "C" {
    #[link_name = "fork"]
    fn libc_fork() -> i32;
    fn _exit(status: i32) -> !;
}

static WORD: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn store(times: u64) {
    for _ in 0..times {
        WORD.fetch_add(1, Ordering::Relaxed);
    }
}

/// The mapping of an address of ours.
fn mapping(address: u64) -> Extent {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let extents = maps.lines().map(|line| {
        let range = line.split_once(' ').expect("a range").0;
        let bound = |text| u64::from_str_radix(text, 16).expect("a number");
        let (start, end) = range.split_once('-').expect("a range");
        Extent { start: bound(start), end: bound(end) }
    });
    extents.into_iter().find(|of| of.start <= address && address < of.end).expect("code is mapped")
}

#[test]
fn a_breakpoint_tells_each_access_with_address_instruction_and_thread() {
    let _alone = alone();
    let word = WORD.as_ptr().addr() as u64;
    let event = Words::breakpoint(word, 8);
    let event = Sampled::new("breakpoint", event, Period::Fixed(1), Population::Accesses);
    let Some(mut sampler) = sampler(1 << 20, [event]) else { return };
    store(500);
    let evidence = told(&mut sampler);
    let seen = accesses(&evidence, Extent::new(word, 8));
    assert_eq!(seen.len(), 500);
    let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
    let code = (store as fn(u64)) as usize as u64;
    for access in &seen {
        assert_eq!((access.address, access.tid), (Some(word), Some(tid)));
        assert_eq!((access.population, access.period), (Population::Accesses, Some(1)));
    }
    // Without optimisation the addition is a function of its own.
    let program = mapping(code);
    let inside = |ip: u64| program.start <= ip && ip < program.end;
    assert!(seen.iter().all(|access| access.ip == seen[0].ip));
    assert!(seen[0].ip.is_some_and(inside), "{:x?} in {program:x?}", seen[0].ip);
}

/// Rounds in which pages of two mappings are touched in turn, with the samples of each mapping.
fn alternate(period: Period) -> Option<Vec<[usize; 2]>> {
    let event = Sampled::new("faults", Words::software(5), period, Population::Faults);
    let mut sampler = sampler(4 << 20, [event])?;
    let round = |_| {
        let both = [map(1000), map(1000)];
        (0..1000).for_each(|page| both.iter().for_each(|memory| touch(*memory, page)));
        let evidence = told(&mut sampler);
        let seen = both.map(|memory| accesses(&evidence, memory).len());
        both.into_iter().for_each(unmap);
        seen
    };
    Some((0..60).map(round).collect())
}

#[test]
fn a_fixed_period_goes_along_with_a_pattern_and_a_random_one_does_not() {
    let _alone = alone();
    let Some(fixed) = alternate(Period::Fixed(64)) else { return };
    let Some(random) = alternate(Period::Random(64)) else { return };
    let blind = |rounds: &[[usize; 2]]| rounds.iter().filter(|seen| seen.contains(&0)).count();
    let sum = |rounds: &[[usize; 2]], of: usize| rounds.iter().map(|seen| seen[of]).sum::<usize>();
    let (of, all) = (sum(&random, 0), sum(&random, 0) + sum(&random, 1));
    println!("rounds of 60 that saw one of two halves: {}, {}", blind(&fixed), blind(&random));
    println!("random period: {of} of {all} samples");
    assert!(blind(&fixed) > 40 && blind(&random) < 5);
    assert!(all > 1000 && (42..=58).contains(&(100 * of / all)), "{of} of {all}");
}

#[test]
fn a_share_of_random_samples_is_that_of_the_faults() {
    let _alone = alone();
    let event = Sampled::new("faults", Words::software(5), Period::Random(16), Population::Faults);
    let Some(mut sampler) = sampler(8 << 20, [event]) else { return };
    let (hot, cold) = (map(30_000), map(10_000));
    for page in 0..10_000 {
        (0..3).for_each(|n| touch(hot, 3 * page + n));
        touch(cold, page);
    }
    let evidence = told(&mut sampler);
    let (hot_seen, cold_seen) = (accesses(&evidence, hot).len(), accesses(&evidence, cold).len());
    let all = hot_seen + cold_seen;
    println!("{hot_seen} of {all} samples");
    assert!(all > 1500, "{all}");
    assert!((70..=80).contains(&(100 * hot_seen / all)), "{hot_seen} of {all}");
    unmap(hot);
    unmap(cold);
}

#[test]
fn what_a_ring_has_no_room_for_is_counted_once_by_record_and_by_event() {
    let _alone = alone();
    let Some(mut sampler) = sampler(0, Sampled::faults()) else { return };
    let mut seen = 0;
    let (mut evidence, mut whose) = (Vec::new(), BTreeSet::new());
    let rounds = 3;
    for _ in 0..rounds {
        let memory = map(5_000);
        (0..5_000).for_each(|page| touch(memory, page));
        let told = told(&mut sampler);
        seen += accesses(&told, memory).len();
        evidence.extend(told);
        unmap(memory);
    }
    let (lost, counts) = (lost(&evidence), sampler.counts());
    println!("{} faults: {seen} told, {lost} counted as lost; {counts:?}", rounds * 5_000);
    assert!(lost > 0 && counts.lost_records > 0 && counts.lost == lost);
    let all = u64::try_from(seen).unwrap() + lost;
    // Faults of our own elsewhere are lost, too.
    assert!((15_000..15_200).contains(&all), "{seen} told and {lost} lost");
    for gap in &evidence {
        if let Evidence::Gap(gap) = gap {
            whose.insert(gap.whose);
            assert!(gap.when.begin <= gap.when.end);
        }
    }
    // Where events count nothing (Linux 5.x without its later patches) a ring has one count, of all that write to it.
    assert!(whose == [Some(own())].into() || whose == [None].into(), "{whose:?}");
}

#[test]
fn the_probe_is_told_a_fault_that_it_took_or_says_what_it_takes() {
    let _alone = alone();
    if let Err(error) = probe_faults(Path::new("/")) {
        assert!(!rustix::process::geteuid().is_root(), "{error}");
    }
}

#[test]
fn an_event_of_all_processes_follows_a_rate() {
    let _alone = alone();
    let word = WORD.as_ptr().addr() as u64;
    let opened = Sampler::open(Path::new("/"), 1 << 20, 7).and_then(|mut sampler| {
        let event = Words::breakpoint(word, 8);
        sampler.sample(Sampled::new("stores", event, Period::Paced(20), Population::Accesses))?;
        Ok(sampler)
    });
    let mut sampler = match opened {
        Ok(sampler) => sampler,
        Err(error) if !rustix::process::geteuid().is_root() => {
            println!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    // Too few for the period that it begins with: it comes down second by second, until some are sampled.
    let memory = Extent::new(word, 8);
    let mut evidence = Vec::new();
    for _ in 0..200 {
        store(4_000);
        std::thread::sleep(Duration::from_millis(40));
        evidence.extend(told(&mut sampler));
        if !accesses(&evidence, memory).is_empty() {
            break;
        }
    }
    let seen = accesses(&evidence, memory);
    let periods: Vec<u64> = seen.iter().filter_map(|access| access.period).collect();
    println!("periods of samples: {periods:?}");
    // None that is drawn from the mean it begins with is as short.
    assert!(!periods.is_empty() && periods.iter().all(|n| *n < 1 << 19), "{periods:?}");
}
