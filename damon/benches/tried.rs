//! What it costs to read a snapshot of 1,000 regions, in CPU time: nothing in it waits.
//!
//! `TRIED_REGIONS` names the directory of a monitor that one has set up and told to fill it, however many regions that has.
//! Without it directories as the kernel's sysfs has them are made in memory (`/dev/shm`).

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use memprov_damon::tried;
use rustix::time::{ClockId, clock_gettime};

const REGIONS: u64 = 1000;

/// A directory of 1,000 regions of a page each.
fn regions() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let at = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    let at = at.expect("a directory can be made");
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

fn snapshot(criterion: &mut Criterion) {
    let made = regions();
    let at = std::env::var_os("TRIED_REGIONS").map_or(made.path().to_owned(), PathBuf::from);
    let found = tried(&at).expect("it is whole").len();
    criterion.bench_function(&format!("a snapshot of {found} regions, CPU time"), |bencher| {
        bencher.iter_custom(|times| {
            let before = cpu();
            for _ in 0..times {
                black_box(tried(black_box(&at)).expect("it is whole"));
            }
            cpu() - before
        });
    });
}

criterion_group!(benches, snapshot);
criterion_main!(benches);
