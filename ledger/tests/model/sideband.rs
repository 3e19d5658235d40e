//! What a record that shows a whole mapping does to the pieces of its space, and what a start time says of their age.

use std::sync::Arc;

use memprov_ledger::evidence::{
    Backing, Change, Counters, Evidence, Lifecycle, MapFlags, Mapping, Residency, StackRef,
};
use memprov_ledger::identity::{Extent, ObjectKey, StartTicks, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pages::PageSet;
use memprov_ledger::pieces::{Piece, Traits};
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;

const SINCE: u64 = 1_000_000;
const ANONYMOUS: MapFlags = MapFlags { anonymous: true, ..flags() };

const fn flags() -> MapFlags {
    MapFlags {
        fixed: false,
        anonymous: false,
        shared: false,
        stack: false,
        grows_down: false,
        noreserve: false,
        hugetlb: false,
        exec: false,
        inaccessible: false,
        offset: 0,
    }
}

fn pages(first: u64, count: u64) -> Extent {
    Extent::new(first * 4096, count * 4096)
}

fn object(inode: u64) -> ObjectKey {
    ObjectKey { major: 8, minor: 1, inode }
}

fn line(extent: Extent, backing: Backing, offset: u64) -> Mapping {
    let (shared, exec, write, path) = (false, false, true, None);
    Mapping { extent, backing, offset, shared, exec, write, path }
}

/// A list of mappings of a process, from `begin` on.
fn scan(ledger: &mut Ledger, tgid: u32, begin: u64, start: u64, maps: Vec<Mapping>) {
    scan_child(ledger, (tgid, 0), begin, start, Some(maps));
}

fn scan_child(
    ledger: &mut Ledger,
    (tgid, parent): (u32, u32),
    begin: u64,
    start: u64,
    maps: Option<Vec<Mapping>>,
) {
    let when = Span { begin: MonoTime(begin), end: MonoTime(begin + 10) };
    ledger.apply(&Evidence::Residency(Box::new(Residency {
        when,
        tgid: Tgid(tgid),
        start: Some(StartTicks(start)),
        comm: "x".into(),
        parent: Tgid(parent),
        layout: Some((1, 2)),
        cgroup: None,
        before: Counters::default(),
        maps: maps.map(Into::into),
        pages: Some(Arc::<PageSet>::default()),
        exclusive_known: false,
        after: Counters::default(),
        slack: 0,
        object_slack: 0,
    })));
}

fn vma(ledger: &mut Ledger, at: u64, extent: Extent, object: Option<ObjectKey>, flags: MapFlags) {
    let (when, change) =
        (Span::at(MonoTime(at)), Change::Vma { extent, object, flags, path: None });
    ledger.apply(&Evidence::Lifecycle(Lifecycle { when, tgid: Tgid(1), change }));
}

fn watched() -> Ledger {
    Ledger::new(MonoTime(SINCE), Sample::default())
}

fn piece(ledger: &Ledger, page: u64) -> Option<&Piece> {
    ledger.space(Tgid(1))?.pieces().find(|p| p.extent.contains(page * 4096))
}

#[test]
fn what_a_mapping_grew_by_is_new_and_what_it_grew_from_keeps_its_interval_and_age() {
    let mut ledger = watched();
    scan(&mut ledger, 1, SINCE + 10, 5, vec![line(pages(10, 4), Backing::Anonymous, 0)]);
    let old = piece(&ledger, 10).expect("listed").clone();
    vma(&mut ledger, SINCE + 100, pages(10, 6), None, ANONYMOUS);
    let (kept, new) = (piece(&ledger, 10).expect("kept"), piece(&ledger, 14).expect("new"));
    assert_eq!((kept.id, kept.traits.0), (old.id, old.traits.0 | Traits::INFERRED));
    assert_eq!((new.extent, new.stack), (pages(14, 2), StackRef::Lost));
    assert!(!new.traits.has(Traits::UNSEEN) && !new.traits.has(Traits::PREDATES));
    let space = ledger.space(Tgid(1)).expect("known");
    assert!(!space.proven(kept) && !space.proven(new), "an end that nobody tells may lie between");
}

#[test]
fn what_the_loader_maps_over_a_part_of_a_library_makes_that_part_code() {
    let mut ledger = watched();
    vma(&mut ledger, SINCE + 100, pages(10, 6), Some(object(7)), flags());
    let text = MapFlags { offset: 2 * 4096, exec: true, ..flags() };
    vma(&mut ledger, SINCE + 200, pages(12, 2), Some(object(7)), text);
    let code = |page| piece(&ledger, page).map(|p| p.traits.has(Traits::EXEC));
    assert_eq!([code(11), code(12), code(14)], [Some(false), Some(true), Some(false)]);
}

#[test]
fn another_object_another_place_of_it_or_another_kind_is_another_mapping() {
    let of = |inode, offset| line(pages(20, 2), Backing::File(object(inode)), offset);
    let cases = [
        (Some(object(7)), MapFlags { offset: 4096, ..flags() }, true),
        (Some(object(8)), MapFlags { offset: 4096, ..flags() }, false),
        (Some(object(7)), MapFlags { offset: 8192, ..flags() }, false),
        (Some(object(7)), MapFlags { offset: 4096, shared: true, ..flags() }, false),
        (None, ANONYMOUS, false),
        // A build id stands in the place of the inode: whose it is, is not told.
        (None, MapFlags { offset: 4096, ..flags() }, true),
    ];
    for (object, flags, same) in cases {
        let mut ledger = watched();
        scan(&mut ledger, 1, SINCE + 10, 5, vec![of(7, 4096)]);
        let old = piece(&ledger, 20).expect("listed").id;
        vma(&mut ledger, SINCE + 100, pages(20, 2), object, flags);
        let now = piece(&ledger, 20).expect("mapped");
        assert_eq!(now.id == old, same, "{object:?} {flags:?}");
    }
}

#[test]
fn a_mapping_that_ended_in_silence_ends_with_the_next_list_and_one_that_moved_in_silence_is_found()
{
    let mut ledger = watched();
    scan(&mut ledger, 1, SINCE + 10, 5, Vec::new());
    vma(&mut ledger, SINCE + 100, pages(10, 4), None, ANONYMOUS);
    scan(&mut ledger, 1, SINCE + 200, 5, vec![line(pages(30, 4), Backing::Anonymous, 0)]);
    assert_eq!(piece(&ledger, 10), None);
    let moved = piece(&ledger, 30).expect("listed");
    assert!(moved.traits.has(Traits::UNSEEN) && !moved.traits.has(Traits::PREDATES));
}

#[test]
fn where_lists_cannot_be_read_what_was_told_without_its_end_is_not_claimed() {
    let mut ledger = watched();
    vma(&mut ledger, SINCE + 100, pages(10, 4), None, ANONYMOUS);
    scan_child(&mut ledger, (1, 0), SINCE + 200, 5, None);
    assert_eq!(piece(&ledger, 10), None);
}

#[test]
fn a_mapping_that_is_told_while_a_list_is_read_is_not_ended_by_it() {
    let mut ledger = watched();
    scan(&mut ledger, 1, SINCE + 10, 5, Vec::new());
    vma(&mut ledger, SINCE + 205, pages(10, 4), None, ANONYMOUS);
    scan(&mut ledger, 1, SINCE + 200, 5, Vec::new());
    assert!(piece(&ledger, 10).is_some());
}

#[test]
fn a_process_that_began_after_the_watch_did_has_nothing_from_before_although_nobody_told_of_it() {
    for (start, predates) in [(99, true), (100, true), (101, false)] {
        let mut ledger = watched().with_start(Some(StartTicks(100)));
        scan(&mut ledger, 1, SINCE + 10, start, vec![line(pages(10, 4), Backing::Anonymous, 0)]);
        let traits = piece(&ledger, 10).expect("listed").traits;
        assert_eq!(traits.has(Traits::PREDATES), predates, "start {start}");
        assert!(traits.has(Traits::UNSEEN));
        let sharing = ledger.sharing();
        let closed = ledger.space(Tgid(1)).and_then(|space| sharing.close(space));
        let claims: Vec<_> = closed.iter().flat_map(|closed| closed.rows.keys()).collect();
        assert!(claims.len() == 1 && claims[0].traits.has(Traits::PREDATES) == predates);
    }
}

#[test]
fn what_a_young_process_has_from_an_old_parent_is_as_old() {
    let mut ledger = watched().with_start(Some(StartTicks(100)));
    let maps = || vec![line(pages(10, 4), Backing::Anonymous, 0)];
    scan(&mut ledger, 7, SINCE + 10, 5, maps());
    let mut both = maps();
    both.push(line(pages(20, 4), Backing::Anonymous, 0));
    scan_child(&mut ledger, (1, 7), SINCE + 100, 200, Some(both));
    let age = |page| piece(&ledger, page).map(|p| p.traits.has(Traits::PREDATES));
    assert_eq!((age(10), age(20)), (Some(true), Some(false)));
}
