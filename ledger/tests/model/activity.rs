//! Regions of a monitor laid over what owners have: whose they are, and when they say nothing.

use std::collections::BTreeMap;

use memprov_ledger::activity::{POOLED, Use};
use memprov_ledger::evidence::{Activity, Evidence, Frames, Region, Run, StackRef};
use memprov_ledger::identity::{Extent, PAGE, Tgid};
use memprov_ledger::time::{MonoTime, Span};

use crate::call::Call;
use crate::watch::World;

/// Use by the call that made the mapping.
fn used(world: &World) -> BTreeMap<u32, Use> {
    let space = world.watch.ledger.space(Tgid(1)).expect("process 1 lives");
    let closed = world.watch.ledger.sharing().close(space).expect("it was scanned");
    let of = |stack: StackRef| match stack {
        StackRef::Known(id) => id.0,
        StackRef::Lost | StackRef::None => 0,
    };
    closed.rows.into_iter().filter_map(|(claim, row)| Some((of(claim.stack), row.used?))).collect()
}

/// After all that happened.
pub(crate) const LATER: MonoTime = MonoTime(1 << 40);

/// As many aggregations as a claim needs, from `from` on: 20 checks of each region.
fn watch(world: &mut World, tgid: Option<u32>, from: MonoTime, regions: &[(Extent, u32)]) {
    for n in 0..POOLED as u64 {
        let begin = MonoTime(from.0 + n * 100);
        let region = |&(extent, hits): &(Extent, u32)| Region { extent, hits, age: 0 };
        let seen = Activity {
            when: Span { begin, end: MonoTime(begin.0 + 100) },
            monitor: 77,
            tgid: tgid.map(Tgid),
            checks: 20,
            regions: regions.iter().map(region).collect(),
        };
        world.watch.ledger.apply(&Evidence::Activity(Box::new(seen)));
    }
}

/// A world with two mappings of two pages each, side by side, both written; and the extents of the lower and the upper.
pub(crate) fn two() -> (World, [Extent; 2]) {
    let mut world = World::new();
    for _ in 0..2 {
        world.call(1, Call::Map { pages: 2, of: None });
    }
    (0..4).for_each(|at| world.call(1, Call::Write { at }));
    world.scan(1);
    let space = world.watch.ledger.space(Tgid(1)).expect("process 1 lives");
    let mut extents: Vec<Extent> =
        space.pieces().map(|p| p.extent).filter(|e| e.len() == 2 * PAGE).collect();
    extents.sort();
    let [.., a, b] = extents[..] else { panic!("{extents:?}") };
    (world, [a, b])
}

#[test]
fn a_region_over_two_owners_says_how_much_is_each_ones() {
    let (mut world, [a, b]) = two();
    let whole = Extent { start: a.start, end: b.end };
    watch(&mut world, Some(1), LATER, &[(whole, 7)]);
    let told: Vec<Use> = used(&world).into_values().filter(|used| !used.cells.is_empty()).collect();
    assert_eq!(told.len(), 2);
    for used in told {
        let [cell] = used.cells[..] else { panic!("{used:?}") };
        assert_eq!((cell.hits, cell.checks), (35, 100));
        assert_eq!((cell.len, cell.present, cell.own), (4 * PAGE, 4 * PAGE, 2 * PAGE));
        assert_eq!(used.present, 2 * PAGE);
    }
}

#[test]
fn a_mapping_that_is_younger_than_the_checks_is_not_told_of() {
    let told = |between: bool| {
        let (mut world, [a, b]) = two();
        let space = world.watch.ledger.space(Tgid(1)).expect("process 1 lives");
        let mut born: Vec<Span> =
            space.pieces().filter(|p| [a, b].contains(&p.extent)).map(|p| p.born).collect();
        born.sort_by_key(|span| span.begin);
        assert!(born[0].end < born[1].begin);
        let from = if between { born[0].end } else { LATER };
        watch(&mut world, Some(1), from, &[(a, 20), (b, 20)]);
        used(&world).values().map(|used| used.cells.len()).sum::<usize>()
    };
    assert_eq!((told(false), told(true)), (2, 1));
}

#[test]
fn nobody_is_told_of_what_was_watched_in_another_process_or_in_no_process() {
    let (mut world, [a, _]) = two();
    watch(&mut world, Some(9), LATER, &[(a, 20)]);
    watch(&mut world, None, LATER, &[(a, 20)]);
    assert!(used(&world).is_empty());
    assert_eq!(world.watch.ledger.physical().count(), 1);
    assert!(world.watch.ledger.space(Tgid(9)).is_none(), "nobody is made up");
}

/// The physical address of a page.
fn at(frame: u64) -> u64 {
    frame * PAGE
}

/// Pages of process 1 stayed in frames from `from` on, as long as `watch` watches from `LATER` on.
fn stayed(world: &mut World, from: MonoTime, runs: &[Run]) {
    let when = Span { begin: from, end: MonoTime(LATER.0 + POOLED as u64 * 100) };
    let frames = Frames { when, tgid: Tgid(1), monitor: 77, runs: runs.into(), moved: PAGE };
    world.watch.ledger.apply(&Evidence::Frames(Box::new(frames)));
}

#[test]
fn what_was_found_of_frames_is_told_of_the_pages_that_stayed_in_them() {
    let (mut world, [a, b]) = two();
    // The lower mapping lies in frames 10 and 31, the upper in 11 and 30; the monitor found 8 frames used, and 8 not.
    let page = |extent: Extent, n: u64| Extent::new(extent.start + n * PAGE, PAGE);
    let places = [(page(a, 0), 10), (page(a, 1), 31), (page(b, 0), 11), (page(b, 1), 30)];
    let runs = places.map(|(extent, frame)| Run { extent, at: at(frame) });
    let regions = [(Extent::new(at(8), 8 * PAGE), 20), (Extent::new(at(28), 8 * PAGE), 0)];
    watch(&mut world, None, LATER, &regions);
    assert!(used(&world).is_empty(), "nobody knows whose they are");
    stayed(&mut world, LATER, &runs);
    let told: Vec<Use> = used(&world).into_values().filter(|used| !used.cells.is_empty()).collect();
    assert_eq!(told.len(), 2);
    for used in &told {
        let cells: Vec<_> = used.cells.iter().map(|c| (c.hits, c.own, c.present, c.len)).collect();
        let whole = 8 * PAGE;
        assert_eq!(cells, [(100, PAGE, whole, whole), (0, PAGE, whole, whole)], "others may be it");
    }
    let laid = world.watch.ledger.laid(77).expect("frames are known");
    let of: Vec<_> = laid.segments().map(|(s, owned)| (s.extent, s.hits, owned)).collect();
    assert_eq!(of, [(regions[0].0, 100, 2 * PAGE), (regions[1].0, 0, 2 * PAGE)]);
    assert_eq!((laid.moved, world.watch.ledger.laid(78).is_none()), (PAGE, true));
}

#[test]
fn what_was_not_found_while_pages_stayed_is_told_of_nobody() {
    let (_, [a, _]) = two();
    let run = |at| [Run { extent: a, at }];
    let region = [(Extent::new(at(8), 8 * PAGE), 20)];
    let told = |from: MonoTime, monitored: bool, runs: &[Run]| {
        let (mut world, _) = two();
        watch(&mut world, if monitored { None } else { Some(9) }, LATER, &region);
        stayed(&mut world, from, runs);
        used(&world).values().map(|used| used.cells.len()).sum::<usize>()
    };
    assert_eq!(told(LATER, true, &run(at(9))), 1);
    assert_eq!(told(MonoTime(LATER.0 + 1), true, &run(at(9))), 0, "one aggregation is too few");
    assert_eq!(told(LATER, false, &run(at(9))), 0, "nobody watched physical memory");
    assert_eq!(told(LATER, true, &run(at(40))), 0, "nor those frames");
    assert_eq!(told(LATER, true, &run(u64::MAX)), 0, "there are no such frames");
}

#[test]
fn a_frame_at_two_addresses_counts_once() {
    let (_, [a, b]) = two();
    let page = |extent: Extent, n: u64| Extent::new(extent.start + n * PAGE, PAGE);
    let own = |places: [(Extent, u64); 2]| {
        let (mut world, _) = two();
        watch(&mut world, None, LATER, &[(Extent::new(at(8), 8 * PAGE), 20)]);
        stayed(&mut world, LATER, &places.map(|(extent, frame)| Run { extent, at: at(frame) }));
        used(&world).into_values().flat_map(|used| used.cells).map(|cell| cell.own).sum::<u64>()
    };
    assert_eq!(own([(page(a, 0), 9), (page(a, 1), 10)]), 2 * PAGE);
    assert_eq!(own([(page(a, 0), 9), (page(a, 1), 9)]), PAGE, "one call mapped it twice");
    assert_eq!(own([(page(a, 0), 9), (page(b, 0), 9)]), PAGE, "two calls mapped it");
    assert_eq!(own([(a, 9), (b, 10)]), 3 * PAGE, "some of it");
}

#[test]
fn findings_of_addresses_are_told_while_they_are_fresh_and_those_of_frames_else() {
    let (_, [a, _]) = two();
    let pooled = POOLED as u64 * 100;
    let addresses_at = |from: u64, frames_first: bool| {
        let (mut world, _) = two();
        for frames in [frames_first, !frames_first] {
            if frames {
                watch(&mut world, None, LATER, &[(Extent::new(at(8), 8 * PAGE), 20)]);
                stayed(&mut world, LATER, &[Run { extent: a, at: at(8) }]);
            } else {
                watch(&mut world, Some(1), MonoTime(from), &[(a, 3)]);
            }
        }
        let used = used(&world);
        used.values().flat_map(|used| &used.cells).map(|cell| cell.hits).collect::<Vec<_>>()
    };
    for frames_first in [false, true] {
        let hits = |from: u64| addresses_at(from, frames_first);
        assert_eq!(hits(LATER.0), [15], "at the same time");
        assert_eq!(hits(LATER.0 + 9 * pooled), [15], "later");
        assert_eq!(hits(LATER.0 - 2 * pooled), [15], "still fresh");
        assert_eq!(hits(LATER.0 - 2 * pooled - 1), [100], "too old");
    }
}

#[test]
fn frames_are_told_of_until_enough_was_found_of_addresses() {
    let (mut world, [a, _]) = two();
    watch(&mut world, None, LATER, &[(Extent::new(at(8), 8 * PAGE), 20)]);
    stayed(&mut world, LATER, &[Run { extent: a, at: at(8) }]);
    let one = Activity {
        when: Span { begin: LATER, end: MonoTime(LATER.0 + POOLED as u64 * 100) },
        monitor: 78,
        tgid: Some(Tgid(1)),
        checks: 20,
        regions: [Region { extent: a, hits: 3, age: 0 }].into(),
    };
    let mut told = Vec::new();
    for _ in 0..POOLED {
        world.watch.ledger.apply(&Evidence::Activity(Box::new(one.clone())));
        told.extend(used(&world).values().flat_map(|used| &used.cells).map(|cell| cell.hits));
        assert!(world.watch.ledger.laid(77).is_some(), "frames stay known");
    }
    assert_eq!(told, [100, 100, 100, 100, 15]);
}

#[test]
fn findings_of_addresses_and_of_frames_are_not_added_up() {
    let (mut world, [a, _]) = two();
    watch(&mut world, None, LATER, &[(Extent::new(at(8), 8 * PAGE), 20)]);
    stayed(&mut world, LATER, &[Run { extent: a, at: at(8) }]);
    watch(&mut world, Some(1), MonoTime(LATER.0 * 2), &[(a, 3)]);
    let cells: Vec<_> = used(&world).into_values().flat_map(|used| used.cells).collect();
    assert_eq!(cells.iter().map(|cell| cell.hits).collect::<Vec<_>>(), [15]);
}
