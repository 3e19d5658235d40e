//! What it costs to read a snapshot of 1,000 regions from directories as the kernel's sysfs has them.
//!
//! They lie in memory (`/dev/shm`): opens and reads are the kernel's, its making of the text is not.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use memprov_damon::tried;

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

fn snapshot(criterion: &mut Criterion) {
    let at = regions();
    let found = tried(at.path()).expect("it is whole");
    assert_eq!(found.len() as u64, REGIONS);
    criterion.bench_function("a snapshot of 1,000 regions by tried_regions", |bencher| {
        bencher.iter(|| tried(black_box(at.path())));
    });
}

criterion_group!(benches, snapshot);
criterion_main!(benches);
