//! What a snapshot of 1,000 regions costs, in CPU time (nothing in it waits): put together from events of the tracepoint and
//! made evidence, and read from the directories of `tried_regions`.
//!
//! `TRIED_REGIONS` names the directory of a monitor that one has set up and told to fill it, however many regions that has:
//! it is read by turns with a copy of it in memory, and how many times as long it took is printed. Without it directories as
//! the kernel's sysfs has them are made in memory (`/dev/shm`).

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use memprov_damon::{Assembler, Event, Monitor, Operations, Region, activity, tried};
use memprov_ledger::time::MonoTime;
use rustix::time::{ClockId, clock_gettime};

const REGIONS: u64 = 1000;
/// Pairs of readings.
const PAIRS: usize = 100;

/// An empty directory in memory, if there is any such place.
fn memory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let at = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    at.expect("a directory can be made")
}

/// A directory of 1,000 regions of a page each.
fn regions() -> tempfile::TempDir {
    let at = memory();
    let put = |path: &Path, value: u64| {
        fs::write(path, format!("{value}\n")).expect("a file can be written");
    };
    for region in 0..REGIONS {
        let directory = at.path().join(region.to_string());
        fs::create_dir(&directory).expect("a directory can be made");
        let start = 0x7f00_0000_0000 + region * 4096;
        let fields = [("start", start), ("end", start + 4096), ("nr_accesses", 7), ("age", 3)];
        for (field, value) in fields {
            put(&directory.join(field), value);
        }
        put(&directory.join("sz_filter_passed"), 0);
    }
    put(&at.path().join("total_bytes"), REGIONS * 4096);
    at
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// `times` runs of `what`.
fn cpu_of(times: u64, mut what: impl FnMut()) -> Duration {
    let before = cpu();
    (0..times).for_each(|_| what());
    cpu() - before
}

fn heard(criterion: &mut Criterion) {
    let monitor = Monitor {
        index: 0,
        thread: 71,
        operations: Operations::Paddr,
        sample: Duration::from_millis(5),
        aggregation: Duration::from_millis(100),
        tuned: false,
        unit: 1,
        targets: vec![None],
    };
    let event = |number: u64| Event {
        when: MonoTime(1_000_000_000 + number),
        thread: 71,
        target: 0,
        regions: 1000,
        region: Region { start: number << 12, end: (number + 1) << 12, accesses: 7, age: 3 },
    };
    let events: Vec<Event> = (0..REGIONS).map(event).collect();
    criterion.bench_function("1000 regions from events, CPU time", |bencher| {
        let mut assembler = Assembler::default();
        bencher.iter_custom(|times| {
            cpu_of(times, || {
                let whole = events.iter().find_map(|event| assembler.take(black_box(event)));
                let said = activity(&whole.expect("it is whole"), &monitor);
                black_box(said.expect("it fits the monitor"));
            })
        });
    });
}

/// A copy of a directory and all below it.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("it is a directory").map(|e| e.expect("it is there")) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&to).expect("a directory can be made");
            copy(&entry.path(), &to);
        } else {
            fs::write(to, fs::read(entry.path()).expect("it can be read"))
                .expect("it can be written");
        }
    }
}

/// Reads the directory of a monitor and a copy of it in memory by turns.
fn paired(at: &Path) {
    let copied = memory();
    copy(at, copied.path());
    let read =
        |at: &Path| cpu_of(1, || drop(black_box(tried(black_box(at)).expect("it is whole"))));
    let mut pairs: Vec<(Duration, Duration)> =
        (0..PAIRS).map(|_| (read(at), read(copied.path()))).collect();
    pairs.sort_by_key(|(there, here)| there.as_nanos() * 1_000_000 / here.as_nanos().max(1));
    for (name, pair) in [("5 %", PAIRS / 20), ("50 %", PAIRS / 2), ("95 %", PAIRS * 19 / 20)] {
        let (there, here) = pairs[pair];
        let times = there.as_secs_f64() / here.as_secs_f64();
        println!(
            "{name} of {PAIRS} pairs: {times:.2} times, {there:.1?} there, {here:.1?} in memory"
        );
    }
}

fn asked(criterion: &mut Criterion) {
    let made = regions();
    let at = std::env::var_os("TRIED_REGIONS").map_or(made.path().to_owned(), PathBuf::from);
    let found = tried(&at).expect("it is whole").len();
    if std::env::var_os("TRIED_REGIONS").is_some() {
        return paired(&at);
    }
    criterion.bench_function(&format!("{found} regions from directories, CPU time"), |bencher| {
        bencher.iter_custom(|times| {
            cpu_of(times, || drop(black_box(tried(black_box(&at)).expect("it is whole"))))
        });
    });
}

criterion_group!(benches, heard, asked);
criterion_main!(benches);
