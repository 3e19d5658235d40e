//! Counts by node laid over what owners have: which scan they stand beside.

use memprov_ledger::evidence::{Evidence, NodeRange, Placed, Policy};
use memprov_ledger::identity::{Extent, PAGE, Tgid};

use proptest::proptest;

use crate::call::{Call, address, extent};
use crate::garbage::{assert_placed_within, placed};
use crate::long::cases;
use crate::watch::World;

/// Reads where pages of process 1 lie: on node 1, all of this range.
fn place(world: &mut World, extent: Extent) {
    let range = NodeRange { extent, policy: Policy::Default, nodes: vec![(1, extent.len())] };
    let (when, tgid) = (world.now(), Tgid(1));
    let seen = Placed { when, tgid, ranges: Some([range].into()), ..Placed::default() };
    world.watch.ledger.apply(&Evidence::Placed(Box::new(seen)));
    world.kernel.now += 10;
}

/// Nodes with bounds of bytes, and whether they are as sure as their scan.
type Told = (Vec<(u32, u64, u64)>, bool);

/// What is told of each owner that has pages of process 1.
fn told(world: &World) -> Vec<Told> {
    let space = world.watch.ledger.space(Tgid(1)).expect("process 1 lives");
    let closed = world.watch.ledger.sharing().close(space).expect("it was scanned");
    let rows = closed.rows.values().filter_map(|row| Some((row.owned.rss(), row.nodes.as_ref()?)));
    rows.map(|(resident, nodes)| (nodes.bounds(resident).collect(), nodes.still)).collect()
}

/// Maps the lowest two pages and writes both.
fn two(world: &mut World) -> Extent {
    world.call(1, Call::Map { pages: 2, of: None });
    (0..2).for_each(|at| world.call(1, Call::Write { at }));
    extent(0, 2)
}

#[test]
fn a_count_is_exact_beside_the_scan_that_it_followed_and_no_other() {
    let mut world = World::new();
    let at = two(&mut world);
    world.scan(1);
    place(&mut world, at);
    let both = |still| vec![(vec![(1, 2 * PAGE, 2 * PAGE)], still)];
    assert_eq!(told(&world), both(true));
    // As much memory at the same place, and other pages.
    world.call(1, Call::Unmap { at: 0, pages: 2 });
    two(&mut world);
    world.scan(1);
    assert_eq!(told(&world), both(false));
    place(&mut world, at);
    assert_eq!(told(&world), both(true));
}

proptest! {
    #![proptest_config(cases(2000, 100_000))]

    #[test]
    fn whatever_is_counted_no_owner_has_more_on_nodes_than_it_has(seen in placed(address(0))) {
        let mut world = World::new();
        for (at, pages) in [(0, 2), (2, 1), (3, 3)] {
            world.call(1, Call::Map { pages, of: None });
            (at..at + pages).for_each(|at| world.call(1, Call::Write { at }));
        }
        world.call(1, Call::Unmap { at: 4, pages: 1 });
        world.scan(1);
        let (when, tgid) = (world.now(), Tgid(1));
        world.watch.ledger.apply(&Evidence::Placed(Box::new(Placed { when, tgid, ..seen })));
        let space = world.watch.ledger.space(Tgid(1)).expect("process 1 lives");
        assert_placed_within(&world.watch.ledger.sharing().close(space).expect("it was scanned"));
    }
}
