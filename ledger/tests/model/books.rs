//! Conservation: books close, rows add up to them, and over all spaces nothing is counted twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use memprov_ledger::book::{ByKind, Closed, Kind, Sharing};
use memprov_ledger::evidence::{Evidence, EvidenceClass};
use memprov_ledger::identity::{ObjectKey, PAGE, Tgid};
use memprov_ledger::pages::PageState;
use memprov_ledger::space::Space;
use memprov_ledger::time::{MonoTime, Span};
use proptest::proptest;

use crate::call::{Call, extent};
use crate::kernel::{Present, Stuff};
use crate::long::{cases, history, next};
use crate::watch::World;

fn sum(closed: &[Closed], kind: Kind, of: impl Fn(&memprov_ledger::book::Book) -> u64) -> u64 {
    closed.iter().flat_map(|c| &c.books).filter(|b| b.kind == kind).map(of).sum()
}

/// What each book says by itself.
fn check_closed(closed: &Closed) {
    assert!(closed.at_rest && !closed.bug, "{closed:?}");
    for book in &closed.books {
        assert_eq!((book.lo, book.skew, book.drift), (book.hi, 0, 0), "{book:?}");
        assert_eq!(book.unattributed, 0, "every mapping is known: {book:?}");
        assert_eq!(book.owned + book.joint, book.lo, "{book:?}");
        let rows: u64 = closed.rows.values().map(|row| row.owned.get(book.kind)).sum();
        assert_eq!(rows, book.owned, "{book:?}");
    }
    for row in closed.rows.values() {
        assert!(row.lo <= row.owned.rss() && row.owned.rss() <= row.hi, "{row:?}");
        assert!(row.touch.by_stack.values().map(|t| t.0).sum::<u64>() <= row.touch.sampled);
        if row.pages == EvidenceClass::Exact {
            assert_eq!(row.lo, row.hi, "{row:?}");
        }
    }
}

/// Pages of objects that the books of the spaces and the list of shared objects must add up to: a page that one space
/// maps twice counts twice there, as in its Rss; what several spaces map counts once.
fn object_pages(world: &World) -> u64 {
    let mms: BTreeSet<usize> = world.kernel.live.values().map(|p| p.mm).collect();
    let mut mapped: BTreeMap<ObjectKey, BTreeSet<usize>> = BTreeMap::new();
    let mut present: BTreeMap<ObjectKey, Vec<u64>> = BTreeMap::new();
    for mm in mms {
        for cell in world.kernel.mms[mm].cells.values() {
            if let Stuff::Object { key, index, .. } = cell.stuff {
                mapped.entry(key).or_default().insert(mm);
                if cell.present == Present::Object {
                    present.entry(key).or_default().push(index);
                }
            }
        }
    }
    let pages = |(key, pages): (&ObjectKey, &Vec<u64>)| {
        if mapped[key].len() > 1 {
            pages.iter().collect::<BTreeSet<_>>().len() as u64
        } else {
            pages.len() as u64
        }
    };
    present.iter().map(pages).sum()
}

/// Scans everything and checks all books together.
fn check(world: &mut World) {
    world.scan_all();
    let ledger = &world.watch.ledger;
    let sharing: Sharing<'_> = ledger.sharing();
    let spaces: Vec<&Space> = ledger.spaces().collect();
    let closed: Vec<Closed> = spaces.iter().filter_map(|space| sharing.close(space)).collect();
    assert_eq!(closed.len(), spaces.len(), "every space was scanned");
    closed.iter().for_each(check_closed);

    let (frames, _) = world.kernel.distinct();
    let anonymous = sum(&closed, Kind::Anon, |b| b.owned);
    assert!(anonymous <= frames * PAGE, "{anonymous} of {frames} frames");
    let largest = spaces.iter().map(|space| ledger.family(space.family).count()).max();
    let rows = || closed.iter().flat_map(|c| c.rows.values());
    if rows().all(|row| row.pages == EvidenceClass::Exact) {
        assert_eq!(anonymous, frames * PAGE, "exact is exact");
    }
    if largest <= Some(2) {
        assert_eq!(anonymous, frames * PAGE, "a family of two is exact");
    }

    let own = sum(&closed, Kind::File, |b| b.owned) + sum(&closed, Kind::Shmem, |b| b.owned);
    let shared = sharing.shared(&spaces);
    assert!(shared.iter().all(|s| s.all_scanned && s.sharers > 1));
    let shared: u64 = shared.iter().filter_map(|s| s.resident).sum();
    assert_eq!(own + shared, object_pages(world) * PAGE);
}

proptest! {
    #![proptest_config(cases(400, 30_000))]

    #[test]
    fn after_any_history_a_scan_at_rest_closes_all_books_and_counts_nothing_twice(
        history in history(100),
    ) {
        let mut world = World::new();
        for (i, bytes) in history.into_iter().enumerate() {
            let step = next(&world.kernel, bytes);
            world.step(step);
            if i % 20 == 19 {
                check(&mut world);
            }
        }
        check(&mut world);
    }
}

#[test]
fn what_fork_left_in_common_belongs_to_the_older_one_until_either_writes() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 4, of: None });
    for at in 0..4 {
        world.call(1, Call::Write { at });
    }
    world.call(1, Call::Fork { child: 2 });
    world.call(2, Call::Write { at: 0 });
    world.call(1, Call::Write { at: 1 });
    world.scan_all();
    let sharing = world.watch.ledger.sharing();
    let anon = |tgid: u32| {
        let space = world.watch.ledger.space(memprov_ledger::identity::Tgid(tgid)).unwrap();
        let closed = sharing.close(space).unwrap();
        let book = closed.books.iter().find(|b| b.kind == Kind::Anon).copied().unwrap();
        (book.owned / PAGE, book.joint / PAGE)
    };
    assert_eq!(anon(1), (4, 0));
    assert_eq!(anon(2), (2, 2));
}

#[test]
fn a_child_that_moved_what_it_has_in_common_does_not_own_it_twice() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 2, of: None });
    world.call(1, Call::Write { at: 0 });
    world.call(1, Call::Write { at: 1 });
    world.call(1, Call::Fork { child: 2 });
    world.call(2, Call::Move { at: 0, old: 2, new: 2, keep: false });
    check(&mut world);
    // The parent moves too: it is still the same page.
    world.call(1, Call::Move { at: 0, old: 1, new: 1, keep: true });
    check(&mut world);
}

#[test]
fn bytes_of_kinds_are_apart() {
    assert_eq!(ByKind::default().rss(), 0);
    let mut world = World::new();
    world.call(1, Call::Map { pages: 2, of: None });
    world.call(1, Call::Write { at: 0 });
    world.call(1, Call::Write { at: 1 });
    world.call(1, Call::SwapOut { at: 1 });
    world.call(1, Call::Read { at: 40 });
    world.scan(1);
    let ledger = &world.watch.ledger;
    let space = ledger.spaces().next().unwrap();
    let closed = ledger.sharing().close(space).unwrap();
    let owned: Vec<(Kind, u64)> = closed.books.iter().map(|b| (b.kind, b.owned / PAGE)).collect();
    let expected = [(Kind::Anon, 1), (Kind::File, 1), (Kind::Shmem, 0), (Kind::Swap, 1)];
    assert_eq!(owned, expected);
}

/// Resident bytes, and how sure they are, of owners of so many pages of a process.
fn rows(world: &World, tgid: u32, pages: u64) -> Vec<(u64, EvidenceClass)> {
    let space = world.watch.ledger.space(Tgid(tgid)).expect("it lives");
    let closed = world.watch.ledger.sharing().close(space).expect("it was scanned");
    let rows = closed.rows.into_values().filter(|row| row.reserved == pages * PAGE);
    rows.map(|row| (row.owned.rss(), row.pages)).collect()
}

#[test]
fn a_younger_one_is_exact_where_no_older_one_has_it_mapped_and_only_there() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 4, of: None });
    (0..4).for_each(|at| world.call(1, Call::Write { at }));
    (2..5).for_each(|child| world.call(1, Call::Fork { child }));
    let mut other = world.clone();
    world.call(1, Call::Unmap { at: 0, pages: 4 });
    world.scan_all();
    assert_eq!(rows(&world, 2, 4), [(4 * PAGE, EvidenceClass::Exact)]);
    assert_eq!(rows(&world, 3, 4), [(0, EvidenceClass::Inferred)]);
    // The oldest one's scan does not know what lies where a segment may have been attached meanwhile.
    let now = other.kernel.now;
    let when = Span { begin: MonoTime(now), end: MonoTime(now + 300) };
    let seen = other.kernel.scan(1, when).expect("it lives");
    other.kernel.now += 100;
    other.call(1, Call::AttachOver { at: 0, segment: 5, pages: 1 });
    other.watch.apply(&Evidence::Residency(Box::new(seen)));
    other.kernel.now += 300;
    (2..5).for_each(|tgid| other.scan(tgid));
    assert_eq!(rows(&other, 2, 4), [(0, EvidenceClass::Inferred)]);
}

#[test]
fn the_oldest_of_many_is_exact_and_who_was_not_scanned_may_own_what_is_common() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 3, of: None });
    (0..3).for_each(|at| world.call(1, Call::Write { at }));
    (2..5).for_each(|child| world.call(1, Call::Fork { child }));
    // The oldest one's only list is from before it had relatives.
    world.scan(3);
    assert_eq!(rows(&world, 3, 3), [(0, EvidenceClass::Inferred)]);
    world.scan_all();
    assert_eq!(rows(&world, 1, 3), [(3 * PAGE, EvidenceClass::Exact)]);
    assert_eq!(rows(&world, 4, 3), [(0, EvidenceClass::Inferred)]);
}

#[test]
fn what_a_relative_did_makes_an_unmoved_scan_doubtful() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 4, of: None });
    (0..4).for_each(|at| world.call(1, Call::Write { at }));
    world.call(1, Call::Fork { child: 2 });
    world.scan_all();
    (0..2).for_each(|at| world.call(2, Call::Write { at }));
    world.call(2, Call::Fork { child: 3 });
    world.scan_all();
    // What was common with the one that ends is its parent's alone: none of the parent's totals moves.
    world.call(3, Call::Exit);
    world.kernel.now += 10;
    world.total(2);
    let space = world.watch.ledger.space(Tgid(2)).expect("it lives");
    assert_eq!(space.confirmed, None);
    assert_eq!(rows(&world, 2, 4), [(0, EvidenceClass::Inferred)]);
    world.scan(2);
    assert_eq!(rows(&world, 2, 4), [(2 * PAGE, EvidenceClass::Exact)]);
    world.total(2);
    let space = world.watch.ledger.space(Tgid(2)).expect("it lives");
    assert!(space.confirmed.is_some(), "now all stands still");
}

#[test]
fn a_page_in_one_huge_entry_is_not_told_by_what_holds_for_the_first() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 4, of: None });
    (0..4).for_each(|at| world.call(1, Call::Write { at }));
    world.call(1, Call::Fork { child: 2 });
    let read = |world: &mut World, tgid, first: u8, rest: u8| {
        let mut seen = world.kernel.scan(tgid, world.now()).expect("it lives");
        let states = [(extent(0, 1), PageState(first)), (extent(1, 3), PageState(rest))];
        let others = seen.pages.iter().flat_map(|pages| pages.all());
        let others = others.filter(|(at, _)| !extent(0, 4).overlaps(*at));
        seen.pages = Some(Arc::new(states.into_iter().chain(others).collect()));
        world.watch.apply(&Evidence::Residency(Box::new(seen)));
        world.kernel.now += 10;
    };
    const ONE: u8 = PageState::PRESENT | PageState::HUGE | PageState::EXCLUSIVE;
    const OWN: u8 = PageState::PRESENT | PageState::EXCLUSIVE;
    // One of them wrote the first page, and has small entries since: the other one's huge entry tells of all what is true of
    // the first.
    read(&mut world, 1, ONE, ONE);
    read(&mut world, 2, OWN, PageState::PRESENT);
    assert_eq!(rows(&world, 2, 4), [(PAGE, EvidenceClass::Exact)]);
    read(&mut world, 1, OWN, PageState::PRESENT);
    read(&mut world, 2, ONE, ONE);
    assert_eq!(rows(&world, 1, 4), [(4 * PAGE, EvidenceClass::Exact)]);
    assert_eq!(rows(&world, 2, 4), [(PAGE, EvidenceClass::Exact)]);
    // Where it is not known what the older one has, a page that is called exclusive is no less its own than before.
    let mut seen = world.kernel.scan(1, world.now()).expect("it lives");
    (seen.pages, seen.exclusive_known) = (None, false);
    world.watch.apply(&Evidence::Residency(Box::new(seen)));
    world.kernel.now += 10;
    read(&mut world, 2, ONE, ONE);
    assert_eq!(rows(&world, 2, 4), [(4 * PAGE, EvidenceClass::Inferred)]);
}
