//! Side-band of this kernel: what it tells of calls that are made here, and what it counts when it loses. Needs
//! CAP_PERFMON; says so where it is missing.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memprov_ledger::evidence::{Change, Evidence, Gap, Lifecycle, MapFlags, Stream};
use memprov_ledger::identity::{Extent, ObjectKey, Tgid};
use memprov_perfmem::{OpenError, Sideband, probe_sideband};
use rustix::mm::{self, ProtFlags};

const PAGE: usize = 4096;

/// One test at a time: they share an address space, and mappings of one would merge with those of another.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(room: u32) -> Option<Sideband> {
    match Sideband::open(Path::new("/"), room) {
        Ok(sideband) => Some(sideband),
        Err(error @ (OpenError::Event { .. } | OpenError::Ring { .. }))
            if !rustix::process::geteuid().is_root() =>
        {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn own() -> Tgid {
    Tgid(std::process::id())
}

/// Reads until everything up to now is told.
fn told(sideband: &mut Sideband) -> Vec<Evidence> {
    let mut out = Vec::new();
    let before = sideband.poll(Duration::ZERO, &mut out).expect("rings are read");
    std::thread::sleep(Duration::from_millis(10));
    for _ in 0..3 {
        sideband.poll(Duration::from_millis(5), &mut out).expect("rings are read");
    }
    assert!(sideband.since() > before);
    out
}

fn events(evidence: &[Evidence]) -> impl Iterator<Item = &Lifecycle> {
    evidence.iter().filter_map(|e| match e {
        Evidence::Lifecycle(event) => Some(event),
        _ => None,
    })
}

/// Mappings of a process in the order in which they were told.
fn mappings(evidence: &[Evidence], of: Tgid) -> Vec<(Extent, Option<ObjectKey>, MapFlags)> {
    events(evidence)
        .filter(|event| event.tgid == of)
        .filter_map(|event| match event.change {
            Change::Vma { extent, object, flags, .. } => Some((extent, object, flags)),
            _ => None,
        })
        .collect()
}

fn map_anonymous(length: usize, prot: ProtFlags) -> Extent {
    let flags = mm::MapFlags::PRIVATE;
    // SAFETY: new memory at an address that the kernel chooses; nothing refers to it.
    let at =
        unsafe { mm::mmap_anonymous(std::ptr::null_mut(), length, prot, flags) }.expect("memory");
    Extent::new(at.addr() as u64, length as u64)
}

fn word(n: u64) -> usize {
    usize::try_from(n).expect("64 bits")
}

fn unmap(extent: Extent) {
    let at = std::ptr::with_exposed_provenance_mut(word(extent.start));
    // SAFETY: one of the mappings above; nothing refers to it.
    unsafe { mm::munmap(at, word(extent.len())) }.expect("it is mapped");
}

#[test]
fn ten_mappings_are_told_with_address_length_kind_and_order() {
    let _alone = alone();
    let Some(mut sideband) = open(1 << 20) else { return };
    // Neighbours of different protection do not merge, and an inaccessible page keeps strangers away.
    let prots = [ProtFlags::READ, ProtFlags::READ | ProtFlags::WRITE];
    let made: Vec<Extent> = (0..10)
        .map(|n| {
            map_anonymous(PAGE, ProtFlags::empty());
            map_anonymous((n + 1) * PAGE, prots[n % 2])
        })
        .collect();
    let evidence = told(&mut sideband);
    let mut told = mappings(&evidence, own()).into_iter();
    for extent in &made {
        let (_, object, flags) = told.find(|(told, ..)| told == extent).expect("told, in order");
        assert_eq!((object, flags), (None, MapFlags { anonymous: true, ..MapFlags::default() }));
    }
    let times: Vec<_> = events(&evidence).map(|event| event.when.begin).collect();
    assert!(times.is_sorted(), "{times:?}");
    made.into_iter().for_each(unmap);
    assert_eq!(sideband.counts().broken, 0);
}

#[test]
fn a_mapping_that_merges_with_its_neighbour_is_told_as_the_whole_and_its_end_is_not_told() {
    let _alone = alone();
    let Some(mut sideband) = open(1 << 20) else { return };
    let whole = map_anonymous(8 * PAGE, ProtFlags::READ);
    let upper = Extent { start: whole.start + 4 * PAGE as u64, ..whole };
    unmap(upper);
    told(&mut sideband);
    let at = std::ptr::with_exposed_provenance_mut(word(upper.start));
    let flags = mm::MapFlags::PRIVATE | mm::MapFlags::FIXED_NOREPLACE;
    // SAFETY: nothing is mapped there since the call above.
    unsafe { mm::mmap_anonymous(at, 4 * PAGE, ProtFlags::READ, flags) }.unwrap();
    let merged = mappings(&told(&mut sideband), own());
    assert!(
        merged.iter().any(|(told, ..)| told.start <= whole.start && told.end >= whole.end),
        "{merged:x?} of {whole}"
    );
    unmap(whole);
    let after = mappings(&told(&mut sideband), own());
    assert!(!after.iter().any(|(told, ..)| told.overlaps(whole)), "{after:x?}");
}

#[test]
fn a_file_is_told_by_its_device_and_inode() {
    let _alone = alone();
    let Some(mut sideband) = open(1 << 20) else { return };
    let file = tempfile::tempfile().unwrap();
    file.set_len(4 * PAGE as u64).unwrap();
    let (null, length, offset) = (std::ptr::null_mut(), 2 * PAGE, PAGE as u64);
    let (prot, flags) = (ProtFlags::READ, mm::MapFlags::SHARED);
    // SAFETY: new memory at an address that the kernel chooses; nothing refers to it.
    let at = unsafe { mm::mmap(null, length, prot, flags, &file, offset) }.unwrap();
    let extent = Extent::new(at.addr() as u64, length as u64);
    let evidence = told(&mut sideband);
    let told = mappings(&evidence, own());
    let (_, object, flags) = told.iter().find(|(told, ..)| *told == extent).expect("told");
    let meta = file.metadata().unwrap();
    assert_eq!(object.map(|o| o.inode), Some(meta.ino()));
    assert_eq!(*flags, MapFlags { shared: true, offset, ..MapFlags::default() });
    unmap(extent);
}

#[test]
fn a_process_is_told_from_its_fork_by_its_program_to_its_end() {
    let _alone = alone();
    let Some(mut sideband) = open(1 << 20) else { return };
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let pid = Tgid(child.id());
    assert!(child.wait().unwrap().success());
    let evidence = told(&mut sideband);
    let about = |event: &&Lifecycle| {
        event.tgid == pid || matches!(event.change, Change::Fork { child, .. } if child == pid)
    };
    let told: Vec<&Lifecycle> = events(&evidence).filter(about).collect();
    let Change::Fork { child_start, .. } = told[0].change else { panic!("{told:?}") };
    assert!(child_start.0 > 0 && told[0].tgid == own());
    let exec = told.iter().position(|event| event.change == Change::Exec).expect("exec");
    assert_eq!(told.last().unwrap().change, Change::Exit);
    // The kernel maps the program and its loader, the loader the libraries: all after exec.
    let images: Vec<bool> = told[exec..]
        .iter()
        .filter_map(|event| match &event.change {
            Change::Vma { object, flags, .. } => Some(object.is_some() && flags.exec),
            _ => None,
        })
        .collect();
    assert!(images.iter().filter(|image| **image).count() >= 3, "{told:?}");
}

#[test]
fn what_a_ring_of_one_page_has_no_room_for_is_counted() {
    let _alone = alone();
    let Some(mut sideband) = open(0) else { return };
    let rounds = 20_000;
    for _ in 0..rounds {
        unmap(map_anonymous(PAGE, ProtFlags::READ));
    }
    let evidence = told(&mut sideband);
    let gap = |e: &Evidence| match e {
        Evidence::Gap(Gap { stream: Stream::Sideband, lost, whose: None, when }) => {
            Some((*lost, *when))
        }
        _ => None,
    };
    let gaps: Vec<_> = evidence.iter().filter_map(gap).collect();
    let (lost, seen) = (gaps.iter().map(|(n, _)| n).sum::<u64>(), mappings(&evidence, own()).len());
    println!("{rounds} mappings: {seen} told, {lost} counted as lost");
    assert!(gaps.iter().all(|(n, when)| *n > 0 && when.begin <= when.end), "{gaps:?}");
    assert!(lost + seen as u64 >= rounds, "{lost} lost and {seen} told of {rounds}");
    assert_eq!(sideband.counts().lost, lost);
}

#[test]
fn the_probe_hears_a_thread_that_it_made_or_says_what_it_takes() {
    let privileged = rustix::process::geteuid().is_root();
    match probe_sideband(Path::new("/")) {
        Ok(()) => {}
        Err(error) => assert!(!privileged, "{error}"),
    }
}
