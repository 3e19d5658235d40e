//! Lives of processes: exec, exit, reused pids, shared spaces; and addresses used again and again.

use std::collections::BTreeSet;

use memprov_ledger::book::{Claim, Kind, Row};
use memprov_ledger::evidence::{
    Backing, Change, Evidence, EvidenceClass, Lifecycle, MapFlags, Mapping, StackRef, Total,
};
use memprov_ledger::identity::{StackId, StartTicks, Tgid};
use memprov_ledger::pieces::Traits;
use memprov_ledger::resolution::{Cause, Resolution};
use memprov_ledger::space::Space;
use memprov_ledger::time::{MonoTime, Span};

use crate::call::{Call, Object, address, extent};
use crate::kernel::KERNEL;
use crate::watch::{Answer, World};

fn apply(world: &mut World, n: u64, change: Change) {
    let when = Span { begin: MonoTime(2_000_000 + n), end: MonoTime(2_000_010 + n) };
    world.watch.ledger.apply(&Evidence::Lifecycle(Lifecycle { when, tgid: Tgid(1), change }));
}

#[test]
fn ten_thousand_rounds_at_one_address_are_as_many_generations_of_two_claims() {
    let mut world = World::new();
    let (mut ids, mut claims) = (BTreeSet::new(), BTreeSet::new());
    let extent = extent(0, 1);
    for round in 0..10_000 {
        let anonymous = round % 2 == 0;
        let flags = MapFlags { anonymous, ..MapFlags::default() };
        let stack = StackRef::Known(StackId(1 + u32::from(anonymous)));
        apply(&mut world, round * 100, Change::Map { extent, flags, stack });
        let space = world.watch.ledger.space(Tgid(1)).expect("it was scanned");
        let piece = space.pieces().find(|p| p.extent == extent).expect("it is mapped");
        assert!(ids.insert(piece.id), "a generation comes once");
        claims.insert((piece.stack, piece.traits));
        apply(&mut world, round * 100 + 50, Change::Unmap { extent });
    }
    assert_eq!((ids.len(), claims.len()), (10_000, 2));
    let ledger = &world.watch.ledger;
    let ask = |t: u64| ledger.owner_of(Tgid(1), address(0), Span::at(MonoTime(2_000_000 + t)));
    let nth = |n: usize| ids.iter().nth(n).copied().expect("there are 10,000");
    assert_eq!(ask(10_000 * 100), Resolution::Unowned);
    assert_eq!(ask(9_000 * 100 + 20), Resolution::Owned(nth(9_000)));
    assert_eq!(ask(20), Resolution::Unknown(Cause::Forgotten), "memory is bounded");
}

#[test]
fn an_address_belongs_to_the_image_of_its_time_or_to_nobody_known() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 1, of: None });
    let made = world.kernel.calls;
    let before = world.now();
    world.call(1, Call::Exec);
    assert_eq!(world.watch.ask(1, 0, world.now()), Answer::Unknown, "not read yet");
    world.scan(1);
    assert_eq!(world.watch.ask(1, 0, world.now()), Answer::Unowned);
    let after = world.now();
    let owned = Answer::Owned { made, proven: true };
    assert_eq!(world.watch.ask(1, 0, before), owned);
    let both = Span { begin: before.begin, end: after.end };
    assert_eq!(world.watch.ask(1, 0, both), Answer::Unknown, "either image");
}

#[test]
fn a_child_of_vfork_has_a_space_of_its_own_from_exec_on() {
    let mut world = World::new();
    world.kernel.now += 10_000;
    world.call(1, Call::Share { child: 2 });
    world.call(2, Call::Map { pages: 1, of: None });
    world.check_exact(1, false);
    world.check_exact(2, false);
    world.call(2, Call::Exec);
    // Mapped before anybody read its start time: that of the parent is another.
    world.call(2, Call::Map { pages: 2, of: None });
    world.scan(2);
    world.check_exact(2, false);
    world.check_exact(1, false);
    let spaces: Vec<&Space> = world.watch.ledger.spaces().collect();
    assert_eq!(spaces.len(), 2);
    assert!(spaces.iter().all(|space| space.tgids.len() == 1));
    assert!(!world.watch.ledger.has_relative(Tgid(2)), "nothing is common after exec");
}

#[test]
fn a_space_outlives_its_leader() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 1, of: None });
    world.call(1, Call::Share { child: 2 });
    world.call(1, Call::Exit);
    world.check_exact(2, false);
    world.call(2, Call::Exit);
    assert_eq!(world.watch.ledger.spaces().count(), 0);
}

#[test]
fn a_reused_pid_is_another_process_even_when_exit_and_fork_were_lost() {
    let mut world = World::new();
    world.call(1, Call::Fork { child: 2 });
    world.scan(2);
    world.call(2, Call::Map { pages: 2, of: None });
    let before = world.now();
    let made = world.kernel.calls;
    world.run(2, Call::Exit);
    world.run(1, Call::Fork { child: 2 });
    world.call(2, Call::Unmap { at: 1, pages: 1 });
    world.scan(2);
    let answer = world.watch.ask(2, 0, world.now());
    assert_eq!(answer, Answer::Unowned, "the parent never had page 0");
    assert_eq!(world.watch.ask(2, 0, before), Answer::Unknown, "which of both is not known");
    assert_ne!(made, 0);
    assert_eq!(world.watch.ledger.spaces().count(), 2);

    // A reading of totals alone tells it too.
    let mut world = World::new();
    let old = world.watch.ledger.space(Tgid(1)).expect("it was scanned").id;
    let counters = world.kernel.counters(1);
    let total = Total { when: world.now(), tgid: Tgid(1), start: StartTicks(900), counters };
    world.watch.apply(&Evidence::Total(total));
    let new = world.watch.ledger.space(Tgid(1)).expect("it was read");
    assert_ne!(new.id, old);
    assert!(new.questions());
}

#[test]
fn a_fork_that_is_told_twice_is_one() {
    let mut world = World::new();
    let fork = world.run(1, Call::Fork { child: 2 }).expect("it forks");
    world.watch.apply(&fork);
    world.call(2, Call::Map { pages: 1, of: None });
    world.watch.apply(&fork);
    world.check_exact(2, false);
    let change = Change::Fork { child: Tgid(1), child_start: StartTicks(3), shares: false };
    let of_itself = Lifecycle { when: world.now(), tgid: Tgid(1), change };
    world.watch.apply(&Evidence::Lifecycle(of_itself));
    assert_eq!(world.watch.ledger.spaces().count(), 2);
}

#[test]
fn a_change_of_the_parent_that_ran_while_fork_did_leaves_the_copy_open() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 2, of: None });
    let made = world.kernel.calls;
    let span = |begin: u64, end: u64| Span { begin: MonoTime(begin), end: MonoTime(end) };
    let now = world.kernel.now;
    // munmap is entered before fork and returns after it; its effect is older than the copy.
    world.kernel.now = now + 20;
    let unmap = world.kernel.execute(1, Call::Unmap { at: 0, pages: 1 }, span(now + 10, now + 60));
    world.kernel.now = now + 30;
    let fork = world.kernel.execute(1, Call::Fork { child: 2 }, span(now + 30, now + 40));
    world.kernel.now = now + 100;
    world.watch.apply(&fork.expect("it forks"));
    world.watch.apply(&unmap.expect("it unmaps"));
    assert_eq!(world.watch.ask(2, 0, world.now()), Answer::Unknown);
    assert_eq!(world.watch.ask(2, 1, world.now()), Answer::Owned { made, proven: true });
    world.scan_all();
    world.check_exact(1, false);
    world.check_exact(2, false);
}

#[test]
fn shared_anonymous_memory_is_one_object_for_who_saw_its_making_and_who_did_not() {
    let mut world = World::new();
    let memory = Some(Object { inode: 6, index: 0, private: false });
    world.call(1, Call::Map { pages: 2, of: memory });
    // The record of this fork is lost.
    world.run(1, Call::Fork { child: 2 });
    for tgid in [1, 2] {
        world.call(tgid, Call::Write { at: 0 });
    }
    world.scan_all();
    let ledger = &world.watch.ledger;
    let spaces: Vec<&Space> = ledger.spaces().collect();
    let shared = ledger.sharing().shared(&spaces);
    let memory = shared.iter().find(|s| s.key.inode == 6).expect("two map it");
    assert_eq!((memory.reserved, memory.resident, memory.sharers), (2 * 4096, Some(4096), 2));
}

#[test]
fn the_first_reading_says_which_mappings_are_older_than_the_watch() {
    let world = World::new();
    let space = world.watch.ledger.space(Tgid(1)).expect("it was scanned");
    assert!(space.pieces().all(|p| p.traits.has(Traits::UNSEEN | Traits::PREDATES)));
    let early = Span::at(MonoTime(400_000));
    assert_eq!(world.watch.ask(1, 40, early), Answer::Unknown, "nobody watched");
}

#[test]
fn what_grew_down_without_a_call_belongs_to_whom_it_grew_from() {
    let mut world = World::new();
    let before = world.now();
    world.kernel.now += 100;
    let flags = MapFlags { anonymous: true, grows_down: true, ..MapFlags::default() };
    let stack = StackRef::Known(StackId(7));
    let map = |at, pages, flags, when| {
        let change = Change::Map { extent: extent(at, pages), flags, stack };
        Evidence::Lifecycle(Lifecycle { when, tgid: Tgid(1), change })
    };
    world.watch.apply(&map(20, 2, flags, world.now()));
    world.watch.apply(&map(30, 2, MapFlags { grows_down: false, ..flags }, world.now()));
    world.kernel.now += 10;
    let mut seen = world.kernel.scan(1, world.now()).expect("it lives");
    let mut maps: Vec<Mapping> = seen.maps.unwrap_or_default().to_vec();
    let longer = |at| Mapping {
        extent: extent(at, 5),
        backing: Backing::Anonymous,
        offset: 0,
        shared: false,
        exec: false,
        write: true,
        path: None,
    };
    maps.extend([longer(17), longer(27)]);
    maps.sort_by_key(|mapping| mapping.extent.start);
    seen.maps = Some(maps.into());
    world.watch.apply(&Evidence::Residency(Box::new(seen)));
    let owned = |proven| Answer::Owned { made: 7, proven };
    for (page, told) in
        [(16, Answer::Unowned), (17, owned(true)), (20, owned(true)), (31, owned(true))]
    {
        assert_eq!(world.watch.ask(1, page, world.now()), told, "page {page}");
    }
    assert_eq!(world.watch.ask(1, 17, before), world.watch.ask(1, 20, before), "nothing was there");
    let other = world.watch.ask(1, 27, world.now());
    assert!(
        matches!(other, Answer::Owned { made: KERNEL, .. }),
        "nobody saw what made it: {other:?}"
    );
}

#[test]
fn what_lay_beyond_an_attachment_that_is_gone_keeps_its_owner() {
    for end in [Call::Detach { at: 1 }, Call::Unmap { at: 1, pages: 1 }] {
        let mut world = World::new();
        world.call(1, Call::Map { pages: 6, of: None });
        world.call(1, Call::AttachOver { at: 1, segment: 5, pages: 1 });
        world.call(1, end);
        world.check_no_wrong_answer(1, world.now());
        world.scan(1);
        world.check_exact(1, false);
    }
}

#[test]
fn segments_attached_one_below_the_other_are_each_their_callers() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 3, of: None });
    world.call(1, Call::Attach { segment: 5, pages: 3 });
    world.call(1, Call::Unmap { at: 0, pages: 3 });
    world.call(1, Call::Attach { segment: 6, pages: 2 });
    world.check_no_wrong_answer(1, world.now());
    world.scan(1);
    world.check_exact(1, false);
}

#[test]
fn a_segment_that_stays_is_known_whatever_came_and_went_before() {
    let mut world = World::new();
    for _ in 0..2000 {
        world.call(1, Call::Attach { segment: 5, pages: 1 });
        world.call(1, Call::Detach { at: 0 });
    }
    world.call(1, Call::Attach { segment: 6, pages: 2 });
    world.scan(1);
    world.check_exact(1, false);
}

#[test]
fn what_an_attachment_did_not_reach_keeps_its_owner() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 6, of: None });
    world.call(1, Call::AttachOver { at: 1, segment: 5, pages: 2 });
    world.call(1, Call::AttachOver { at: 4, segment: 6, pages: 1 });
    world.check_no_wrong_answer(1, world.now());
    assert_eq!(world.watch.ask(1, 3, world.now()), Answer::Unknown, "the first may reach as far");
    // Another mapping came where the second might be.
    world.call(1, Call::MapFixed { at: 5, pages: 1, of: None });
    world.scan(1);
    world.check_exact(1, true);
}

#[test]
fn a_detachment_leaves_what_is_left_of_an_older_attachment_at_that_place() {
    let mut world = World::new();
    world.call(1, Call::Attach { segment: 5, pages: 5 });
    world.scan(1);
    world.call(1, Call::Unmap { at: 0, pages: 3 });
    // Another segment, and no list of mappings says so yet.
    world.call(1, Call::Attach { segment: 6, pages: 1 });
    world.call(1, Call::Detach { at: 0 });
    world.check_no_wrong_answer(1, world.now());
    world.scan(1);
    world.check_exact(1, false);
}

#[test]
fn pages_that_may_not_be_read_leave_owners_their_extents_and_books_unattributed() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 3, of: None });
    world.call(1, Call::Write { at: 0 });
    let mut seen =
        world.kernel.scan(1, Span::at(MonoTime(world.kernel.now + 1))).expect("it lives");
    (seen.pages, seen.exclusive_known) = (None, false);
    let total = seen.after.anon.expect("the model counts");
    for list in [seen.maps.clone(), None] {
        let mut seen = seen.clone();
        seen.maps = list;
        world.watch.ledger.apply(&Evidence::Residency(Box::new(seen)));
        let ledger = &world.watch.ledger;
        let space = ledger.space(Tgid(1)).expect("it was scanned");
        let closed = ledger.sharing().close(space).expect("it has a book");
        assert!(!closed.pages_known && !closed.bug);
        let made = |(claim, _): &(&Claim, &Row)| matches!(claim.stack, StackRef::Known(_));
        let reserved: u64 = closed.rows.iter().filter(made).map(|(_, row)| row.reserved).sum();
        assert_eq!(reserved, 3 * 4096);
        let anon = closed.books.iter().find(|b| b.kind == Kind::Anon).expect("it has a total");
        assert!(total > 0, "a page was written");
        assert_eq!((anon.owned, anon.joint, anon.unattributed, anon.skew), (0, 0, total, 0));
    }
}

#[test]
fn what_is_counted_and_not_shown_leaves_no_row_exact() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 3, of: None });
    world.call(1, Call::Write { at: 0 });
    let mut seen =
        world.kernel.scan(1, Span::at(MonoTime(world.kernel.now + 1))).expect("it lives");
    for counters in [&mut seen.before, &mut seen.after] {
        counters.anon = counters.anon.map(|bytes| bytes + 8192);
    }
    world.watch.ledger.apply(&Evidence::Residency(Box::new(seen)));
    let ledger = &world.watch.ledger;
    let space = ledger.space(Tgid(1)).expect("it was scanned");
    let closed = ledger.sharing().close(space).expect("it has a book");
    assert!(closed.at_rest && !closed.bug);
    let anon = closed.books.iter().find(|b| b.kind == Kind::Anon).expect("it has a total");
    assert_eq!((anon.unattributed, anon.skew), (8192, 0));
    assert!(closed.rows.values().all(|row| row.pages == EvidenceClass::Inferred));
    let made = |(claim, _): &(&Claim, &Row)| matches!(claim.stack, StackRef::Known(_));
    let (_, row) = closed.rows.iter().find(made).expect("it was mapped");
    assert_eq!((row.lo, row.owned.rss(), row.hi), (4096, 4096, 12288), "it may have all of it");
}

#[test]
fn a_stack_that_the_next_book_names_is_kept_when_its_mapping_is_gone_and_forgotten() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 2, of: None });
    let stack = StackId(world.kernel.calls);
    world.scan(1);
    world.call(1, Call::Unmap { at: 0, pages: 2 });
    let ledger = &mut world.watch.ledger;
    ledger.forget_before(MonoTime(world.kernel.now + 1));
    assert!(ledger.stacks().contains(&stack), "the book is closed over the scan");
    world.scan(1);
    assert!(!world.watch.ledger.stacks().contains(&stack));
}
