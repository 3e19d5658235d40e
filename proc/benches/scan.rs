//! A scan beside the bare ioctl, in one run: 64 GiB mapped, 3 GiB of it resident in pieces of 1 MiB.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use memprov_ledger::identity::Tgid;
use memprov_proc::{Proc, ScanOptions, Scanner};

const RESERVED: usize = 64 << 30;
const RESIDENT: usize = 3 << 30;
const PIECE: usize = 1 << 20;

fn arena() -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses; it stays for the life of the program.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), RESERVED, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let (at, pieces) = (at.cast::<u8>(), RESIDENT / PIECE);
    for piece in 0..pieces {
        for page in (0..PIECE).step_by(4096) {
            // SAFETY: inside the mapping: pieces are spread evenly over it.
            unsafe { at.add(piece * ((RESERVED / pieces) & !4095) + page).write_volatile(1) };
        }
    }
    at
}

/// `PAGEMAP_SCAN` over the arena, its answer thrown away; the number of pages.
fn bare(pagemap: i32, arena: *mut u8) -> u64 {
    let mut regions = vec![[0u64; 3]; 8192];
    let end = arena.addr() + RESERVED;
    let (mut at, mut pages) = (arena.addr(), 0);
    while at < end {
        let any: u64 = 1 << 3 | 1 << 4;
        let all: u64 = any | 1 << 2 | 1 << 5 | 1 << 6;
        let vec = regions.as_mut_ptr().expose_provenance();
        let mut call = [96, 0, at as u64, end as u64, 0, vec as u64, 8192, 40_000, 0, 0, any, all];
        // SAFETY: the argument of PAGEMAP_SCAN as 12 words; the kernel writes at most 8192 regions of three words.
        let found = unsafe { libc::ioctl(pagemap, 0xc060_6610, call.as_mut_ptr()) };
        let found = usize::try_from(found).unwrap_or_else(|_| {
            panic!("PAGEMAP_SCAN: {}", std::io::Error::last_os_error());
        });
        pages += regions[..found].iter().map(|[from, to, _]| (to - from) / 4096).sum::<u64>();
        at = usize::try_from(call[4]).unwrap_or(end);
    }
    pages
}

fn scan(c: &mut Criterion) {
    let arena = arena();
    // SAFETY: a valid path.
    let pagemap = unsafe { libc::open(c"/proc/self/pagemap".as_ptr(), libc::O_RDONLY) };
    let own = Tgid(std::process::id());
    let mut scanner = Scanner::new(Proc::at(Path::new("/")), ScanOptions::default());
    let mut entries = Scanner::new(
        Proc::at(Path::new("/")),
        ScanOptions { entries_only: true, ..ScanOptions::default() },
    );

    // Taken in turns, so that a busy machine slows both.
    let (mut bare_time, mut scan_time, mut exclusive_time) = (Vec::new(), Vec::new(), Vec::new());
    let timed = |times: &mut Vec<Duration>, work: &mut dyn FnMut()| {
        let began = Instant::now();
        work();
        times.push(began.elapsed());
    };
    for _ in 0..15 {
        timed(&mut bare_time, &mut || assert!(bare(pagemap, arena) >= (RESIDENT / 4096) as u64));
        timed(&mut scan_time, &mut || drop(black_box(scanner.scan(own, false))));
        timed(&mut exclusive_time, &mut || drop(black_box(scanner.scan(own, true))));
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (bare_time, scan_time) = (median(&mut bare_time), median(&mut scan_time));
    let exclusive_time = median(&mut exclusive_time);
    println!(
        "bare {bare_time:?}, scan {scan_time:?} = {:.2} times, with exclusive {exclusive_time:?} = {:.2} times; predicted {:?}",
        scan_time.as_secs_f64() / bare_time.as_secs_f64(),
        exclusive_time.as_secs_f64() / bare_time.as_secs_f64(),
        scanner.predicted(own),
    );
    match scanner.scan(own, false) {
        Ok(residency) => {
            println!("page set: {:?} bytes", residency.pages.map(|pages| pages.footprint()))
        }
        Err(error) => println!("{error}"),
    }

    let mut group = c.benchmark_group("64 GiB, 3 GiB resident");
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    group.bench_function("bare PAGEMAP_SCAN", |b| b.iter(|| bare(pagemap, arena)));
    group.bench_function("scan", |b| b.iter(|| scanner.scan(own, false)));
    group.bench_function("scan with exclusive", |b| b.iter(|| scanner.scan(own, true)));
    group.bench_function("scan without PAGEMAP_SCAN", |b| b.iter(|| entries.scan(own, false)));
    group.bench_function("totals", |b| b.iter(|| scanner.totals(own)));
    group.finish();
}

criterion_group!(benches, scan);
criterion_main!(benches);
