//! Regions of a monitor laid over what owners have: whose they are, and when they say nothing.

use std::collections::BTreeMap;

use memprov_ledger::activity::{POOLED, Use};
use memprov_ledger::evidence::{Activity, Evidence, Region, StackRef};
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
const LATER: MonoTime = MonoTime(1 << 40);

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
fn two() -> (World, [Extent; 2]) {
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
