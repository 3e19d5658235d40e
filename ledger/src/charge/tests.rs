use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::{CachedFile, Charge, ChargeBook, Charged, Figures, Mapped, close};
use crate::identity::ObjectKey;

const MIB: u64 = 1 << 20;

fn figures(current: u64, lines: &[(&str, u64)]) -> Figures {
    let stat = lines.iter().map(|(key, value)| (Arc::from(*key), *value)).collect();
    Figures { current, stat }
}

fn charge(current: u64, lines: &[(&str, u64)]) -> Charge {
    Charge { before: current, whole: figures(current, lines), ..Charge::default() }
}

fn key(inode: u64) -> ObjectKey {
    ObjectKey { major: 8, minor: 1, inode }
}

fn sum(book: &ChargeBook, charged: Charged) -> u64 {
    book.rows.iter().filter(|r| r.charged == charged).map(|r| r.bytes.bytes).sum()
}

fn balances(book: &ChargeBook) -> bool {
    let told: i128 = book.rows.iter().map(|r| i128::from(r.bytes.bytes)).sum();
    told + i128::from(book.unattributed) + i128::from(book.skew) == i128::from(book.current)
}

#[test]
fn cache_is_what_nobody_maps() {
    let lines = [("file", 64 * MIB), ("file_mapped", MIB), ("shmem", 0), ("anon", 2 * MIB)];
    let charge = charge(70 * MIB, &lines);
    let mapped = Mapped {
        anon_lo: 2 * MIB,
        anon_hi: 2 * MIB,
        files: [(key(1), 3 * MIB)].into(),
        ..Mapped::default()
    };
    let book = close(&charge, &mapped);
    assert_eq!(sum(&book, Charged::Cache), 63 * MIB);
    assert_eq!(sum(&book, Charged::Mapped), 3 * MIB);
    assert_eq!(sum(&book, Charged::Elsewhere), 0);
    assert_eq!(book.unattributed, 4 * MIB);
    assert_eq!(book.charged_elsewhere.0, 2 * MIB, "2 of 3 MiB of the file are charged to others");
    let cache = book.rows.iter().find(|r| r.charged == Charged::Cache).unwrap();
    assert_eq!((cache.bytes.lo, cache.bytes.hi), (63 * MIB, 63 * MIB), "nobody doubts it");
}

#[test]
fn processes_that_grew_since_their_scan_may_have_what_is_charged() {
    let charge = charge(50 * MIB, &[("anon", 50 * MIB)]);
    let mut mapped = Mapped { anon_lo: 10 * MIB, anon_hi: 10 * MIB, ..Mapped::default() };
    let most = |mapped: &Mapped| close(&charge, mapped).rows[0].bytes;
    assert_eq!((most(&mapped).bytes, most(&mapped).hi), (10 * MIB, 10 * MIB));
    mapped.moved = 30 * MIB;
    assert_eq!((most(&mapped).bytes, most(&mapped).hi), (10 * MIB, 40 * MIB));
}

#[test]
fn tmpfs_that_others_map_is_not_told_as_their_files() {
    let lines = [("file", 64 * MIB), ("file_mapped", 16 * MIB), ("shmem", 64 * MIB)];
    let book = close(&charge(64 * MIB, &lines), &Mapped::default());
    assert_eq!(sum(&book, Charged::Tmpfs), 48 * MIB);
    assert_eq!(sum(&book, Charged::Elsewhere), 16 * MIB);
}

#[test]
fn sums_of_the_kernel_are_not_added_to_their_parts() {
    let lines = [
        ("kernel", 10 * MIB),
        ("slab", 6 * MIB),
        ("slab_reclaimable", 4 * MIB),
        ("slab_unreclaimable", 2 * MIB),
        ("pagetables", MIB),
        ("sock", MIB),
    ];
    let book = close(&charge(11 * MIB, &lines), &Mapped::default());
    assert_eq!(sum(&book, Charged::Kernel), 11 * MIB);
    assert_eq!(book.unattributed, 0);
    let other = book.rows.iter().find(|r| r.part == "other").unwrap();
    assert_eq!(other.bytes.bytes, 3 * MIB);
}

#[test]
fn what_a_kernel_does_not_tell_is_unattributed_and_not_zero_rows() {
    let book = close(&charge(8 * MIB, &[("anon", MIB)]), &Mapped::default());
    assert_eq!(book.unattributed, 7 * MIB);
    assert!(book.rows.iter().all(|r| r.charged != Charged::Kernel));
    assert_eq!(book.swap_cache, None);
}

#[test]
fn children_have_books_of_their_own() {
    let mut charge = charge(100 * MIB, &[("anon", 60 * MIB), ("file", 40 * MIB)]);
    charge.below = figures(90 * MIB, &[("anon", 60 * MIB), ("file", 30 * MIB)]);
    charge.children = 2;
    let book = close(&charge, &Mapped::default());
    assert_eq!((book.current, book.lo, book.hi), (10 * MIB, 10 * MIB, 10 * MIB));
    assert_eq!(sum(&book, Charged::Cache), 10 * MIB);
    assert_eq!(sum(&book, Charged::Elsewhere), 0);
}

#[test]
fn lines_that_are_behind_are_skew_and_beyond_their_lag_a_bug() {
    let mut charge = charge(MIB, &[("anon", MIB + 4096)]);
    assert!(close(&charge, &Mapped::default()).bug);
    charge.lag = 4096;
    let book = close(&charge, &Mapped::default());
    assert_eq!((book.skew, book.bug), (-4096, false));
    assert!(balances(&book));
}

#[test]
fn files_share_the_cache_and_the_rest_is_of_unknown_files() {
    let mut charge = charge(64 * MIB, &[("file", 64 * MIB)]);
    let file = |inode, cached| CachedFile { key: key(inode), path: "/a".into(), cached };
    charge.files = vec![file(1, 48 * MIB), file(2, MIB), file(2, MIB)];
    let mapped = Mapped { files: [(key(2), MIB)].into(), ..Mapped::default() };
    let book = close(&charge, &mapped);
    assert_eq!(book.files.len(), 1, "all of the second file is mapped");
    assert_eq!(book.files[0].bytes.bytes, 48 * MIB);
    charge.files = vec![file(1, 96 * MIB), file(2, 33 * MIB)];
    let book = close(&charge, &mapped);
    let told: Vec<u64> = book.files.iter().map(|f| f.bytes.bytes).collect();
    assert_eq!(told, [48 * MIB, 16 * MIB], "others are charged for half of it");
    assert_eq!(book.files[0].bytes.hi, 64 * MIB);
}

const KEYS: [&str; 12] = [
    "anon",
    "file",
    "shmem",
    "file_mapped",
    "kernel",
    "kernel_stack",
    "pagetables",
    "slab_reclaimable",
    "sock",
    "hugetlb",
    "swapcached",
    "unheard_of",
];

/// Charged here, mapped here, mapped by others, and 0 anon, 1 file or 2 shmem.
type Page = (bool, bool, bool, u8);

proptest! {
    #[test]
    fn every_book_adds_up_to_the_total_whatever_the_kernel_says(
        current in any::<u64>(), before in any::<u64>(), below in any::<u64>(),
        whole in proptest::collection::vec((0..KEYS.len(), any::<u32>()), 0..16),
        children in proptest::collection::vec((0..KEYS.len(), any::<u32>()), 0..16),
        anon_lo in any::<u32>(), more in any::<u32>(), files in any::<u32>(), shmem in any::<u32>(),
        cached in any::<u64>(), lag in 0u64..1 << 40,
    ) {
        let lines = |lines: Vec<(usize, u32)>| -> BTreeMap<Arc<str>, u64> {
            lines.into_iter().map(|(k, v)| (Arc::from(KEYS[k]), u64::from(v))).collect()
        };
        let charge = Charge {
            before,
            whole: Figures { current: current >> 2, stat: lines(whole) },
            below: Figures { current: below >> 2, stat: lines(children) },
            lag,
            stock: lag,
            files: vec![CachedFile { key: key(1), path: "/a".into(), cached }],
            ..Charge::default()
        };
        let anon_lo = u64::from(anon_lo);
        let mapped = Mapped {
            anon_lo,
            anon_hi: anon_lo + u64::from(more),
            files: [(key(1), u64::from(files))].into(),
            shmem: u64::from(shmem),
            ..Mapped::default()
        };
        let book = close(&charge, &mapped);
        prop_assert!(balances(&book), "{book:?}");
        for row in &book.rows {
            prop_assert!(row.bytes.lo <= row.bytes.bytes && row.bytes.bytes <= row.bytes.hi);
        }
        let shares: u64 = book.files.iter().map(|f| f.bytes.bytes).sum();
        prop_assert!(shares <= sum(&book, Charged::Cache));
        prop_assert!(book.charged_elsewhere.0 <= book.charged_elsewhere.1);
    }

    /// A small world in which every page has a known fate: the truth lies within the bounds of its row.
    #[test]
    fn the_truth_lies_within_the_bounds(
        pages in proptest::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 0u8..3), 0..40),
    ) {
        let count = |f: &dyn Fn(&Page) -> bool| -> u64 {
            pages.iter().filter(|p| f(p)).count() as u64
        };
        let live = |p: &Page| p.0 && (p.3 > 0 || p.1 || p.2);
        let current = count(&live);
        let lines = [
            ("anon", count(&|p| live(p) && p.3 == 0)),
            ("file", count(&|p| live(p) && p.3 > 0)),
            ("shmem", count(&|p| live(p) && p.3 == 2)),
            ("file_mapped", count(&|p| live(p) && p.3 > 0 && (p.1 || p.2))),
        ];
        let mapped = Mapped {
            anon_lo: count(&|p| p.1 && p.3 == 0),
            anon_hi: count(&|p| p.1 && p.3 == 0),
            files: [(key(1), count(&|p| p.1 && p.3 == 1))].into(),
            shmem: count(&|p| p.1 && p.3 == 2),
            ..Mapped::default()
        };
        let book = close(&charge(current, &lines), &mapped);
        prop_assert_eq!(book.unattributed, 0);
        prop_assert!(!book.bug);
        let row = |charged, part: &str| {
            book.rows.iter().find(|r| r.charged == charged && r.part == part).unwrap().bytes
        };
        let within = |charged, part: &str, truth: u64| {
            let b = row(charged, part);
            b.lo <= truth && truth <= b.hi
        };
        for (part, kind) in [("anon", 0), ("file", 1), ("shmem", 2)] {
            let truth = count(&|p| live(p) && p.3 == kind && p.1);
            prop_assert!(within(Charged::Mapped, part, truth), "{part}");
        }
        let others = count(&|p| live(p) && p.3 > 0 && !p.1 && p.2);
        prop_assert!(within(Charged::Elsewhere, "file", others));
        prop_assert!(within(Charged::Elsewhere, "anon", count(&|p| live(p) && p.3 == 0 && !p.1)));
        prop_assert!(within(Charged::Cache, "file", count(&|p| live(p) && p.3 == 1 && !p.1 && !p.2)));
        prop_assert!(within(Charged::Tmpfs, "shmem", count(&|p| live(p) && p.3 == 2 && !p.1 && !p.2)));
        let (least, most) = book.charged_elsewhere;
        let truth = count(&|p| !p.0 && p.1);
        prop_assert!(least <= truth && truth <= most);
    }
}
