//! First touch: estimates against all faults, and what becomes of records when pages move, go, or are copied.

use std::collections::BTreeMap;

use memprov_ledger::evidence::{Evidence, Fault, StackRef};
use memprov_ledger::identity::{Extent, PAGE, StackId, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pages::BLOCK;
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::{Sample, TouchTally, Touches};

use crate::call::Call;
use crate::watch::{ALL, World};

/// The sampled anonymous pages of process 1.
fn tally(ledger: &Ledger) -> TouchTally {
    let mut sum = TouchTally::default();
    let space = ledger.space(Tgid(1)).expect("process 1 lives");
    let closed = ledger.sharing().close(space).expect("it was scanned");
    closed.rows.values().for_each(|row| sum.merge(&row.touch));
    sum
}

/// The calls that first touched resident pages, after a scan: pages by call.
fn touched(world: &mut World) -> BTreeMap<u32, u64> {
    world.scan(1);
    let of = |stack: &StackRef| match stack {
        StackRef::Known(id) => id.0,
        StackRef::Lost | StackRef::None => 0,
    };
    tally(&world.watch.ledger).by_stack.iter().map(|(s, (n, _))| (of(s), *n)).collect()
}

/// Calls, and the number of the last one.
fn calls(world: &mut World, calls: &[Call]) -> u32 {
    calls.iter().for_each(|call| world.call(1, *call));
    world.kernel.calls
}

#[test]
fn a_moved_page_keeps_who_touched_it() {
    let mut world = World::new();
    let wrote = calls(&mut world, &[Call::Map { pages: 2, of: None }, Call::Write { at: 0 }]);
    for keep in [false, true] {
        let mut world = world.clone();
        calls(&mut world, &[Call::Move { at: 0, old: 2, new: 2, keep }]);
        assert_eq!(touched(&mut world), BTreeMap::from([(wrote, 1)]), "keep {keep}");
    }
}

#[test]
fn an_unmapped_page_forgets_who_touched_it() {
    let mut world = World::new();
    calls(&mut world, &[Call::Map { pages: 1, of: None }, Call::Write { at: 0 }]);
    calls(&mut world, &[Call::Unmap { at: 0, pages: 1 }, Call::Map { pages: 1, of: None }]);
    world.scan(1);
    assert_eq!(world.watch.ledger.space(Tgid(1)).map(|s| s.pieces().count()), Some(3));
    let wrote = calls(&mut world, &[Call::Write { at: 0 }]);
    assert_eq!(touched(&mut world), BTreeMap::from([(wrote, 1)]));
}

#[test]
fn a_dropped_page_belongs_to_who_touches_it_next() {
    let mut world = World::new();
    calls(&mut world, &[Call::Map { pages: 1, of: None }, Call::Write { at: 0 }]);
    calls(&mut world, &[Call::Drop { at: 0, pages: 1 }]);
    assert_eq!(touched(&mut world), BTreeMap::new(), "it is not resident");
    let wrote = calls(&mut world, &[Call::Write { at: 0 }]);
    assert_eq!(touched(&mut world), BTreeMap::from([(wrote, 1)]));
}

#[test]
fn the_write_makes_a_zero_page_resident_not_the_read_before() {
    let mut world = World::new();
    calls(&mut world, &[Call::Map { pages: 1, of: None }, Call::Read { at: 0 }]);
    assert_eq!(touched(&mut world), BTreeMap::new(), "the zero page is no Rss");
    let wrote = calls(&mut world, &[Call::Write { at: 0 }]);
    assert_eq!(touched(&mut world), BTreeMap::from([(wrote, 1)]));
}

#[test]
fn copy_on_write_leaves_the_page_to_its_first_writer() {
    let mut world = World::new();
    let wrote = calls(&mut world, &[Call::Map { pages: 1, of: None }, Call::Write { at: 0 }]);
    calls(&mut world, &[Call::Fork { child: 2 }, Call::Write { at: 0 }]);
    assert_eq!(touched(&mut world), BTreeMap::from([(wrote, 1)]));
}

#[test]
fn a_page_that_grew_behind_a_moved_mapping_is_in_the_sample_by_its_own_address() {
    // Of a mapping that moves and grows, everything is touched after the move: half of it is in the sample, and all of
    // that half is known.
    let sample = Sample { seed: 3, probability: 0.5 };
    let mut world = World::new();
    world.watch.ledger = Ledger::new(MonoTime(500_000), sample);
    world.scan(1);
    calls(&mut world, &[Call::Map { pages: 1, of: None }]);
    calls(&mut world, &[Call::Move { at: 0, old: 1, new: 24, keep: false }]);
    for at in 2..24 {
        calls(&mut world, &[Call::Write { at: 1 + at }]);
    }
    world.scan(1);
    let tally = tally(&world.watch.ledger);
    let known: u64 = tally.by_stack.values().map(|(n, _)| n).sum();
    assert!(tally.sampled > 2 && tally.sampled < 22, "{tally:?}");
    assert_eq!(known, tally.sampled);
}

fn fault(page: u64, stack: u32) -> Fault {
    Fault {
        when: Span::default(),
        tgid: Tgid(1),
        address: page * PAGE + 17,
        write: true,
        present: false,
        probability: 1.0,
        stack: StackRef::Known(StackId(stack)),
    }
}

#[test]
fn a_sample_of_pages_estimates_the_shares_of_all() {
    // Three stacks touch 20,000 pages in runs; 1 of 20 pages is kept, in ten draws.
    let stack = |page: u64| {
        if (page / 64).is_multiple_of(4) {
            1
        } else if (page / 64).is_multiple_of(2) {
            2
        } else {
            3
        }
    };
    let pages = 20_000;
    let truth = (0..pages).filter(|page| stack(*page) == 3).count() as f64 / pages as f64;
    let mut errors = Vec::new();
    for seed in 1..=10 {
        let sample = Sample { seed, probability: 0.05 };
        let mut touches = Touches::default();
        (0..pages).for_each(|page| touches.fault(&fault(page, stack(page)), sample));
        let scaled = touches.sample(sample);
        let kept: Vec<u64> = (0..pages).filter(|page| scaled.has_page(*page)).collect();
        assert!(kept.iter().all(|page| touches.page(*page).is_some()), "the sample is complete");
        let third = |page: &&u64| {
            touches.page(**page).is_some_and(|t| t.stack == StackRef::Known(StackId(3)))
        };
        errors.push(kept.iter().filter(third).count() as f64 / kept.len() as f64 - truth);
    }
    // Some 1000 pages a draw: a standard error of 0.016 in one, 0.005 in the mean.
    assert!(errors.iter().all(|e| e.abs() < 0.08), "{errors:?}");
    assert!((errors.iter().sum::<f64>() / 10.0).abs() < 0.02, "{errors:?}");
}

#[test]
fn a_space_keeps_a_bounded_number_of_touches_and_a_complete_smaller_sample() {
    let mut touches = Touches::default();
    for page in 0..60_000 {
        touches.fault(&fault(page, 1), ALL);
        assert!(touches.len() <= 8192);
    }
    touches.moved(Extent::new(0, 30_000 * PAGE), 1 << 40);
    for page in 60_000..200_000 {
        touches.fault(&fault(page, 1), ALL);
        assert!(touches.len() <= 8192);
    }
    let scaled = touches.sample(ALL);
    assert!(scaled.probability < 0.1, "{scaled:?}");
    for page in 0..200_000 {
        let now = if page < 30_000 { page + (1 << 40) / PAGE } else { page };
        let in_sample = scaled.has_page(page) || scaled.has_block(page * PAGE / BLOCK);
        assert_eq!(touches.page(now).is_some(), in_sample, "page {page}");
    }
}

#[test]
fn a_space_whose_faults_were_kept_by_a_lower_probability_has_a_sample_of_that() {
    let kept_by = |probability, page| Fault { probability, ..fault(page, 1) };
    let (half, tenth) =
        (Sample { seed: 2, probability: 0.5 }, Sample { seed: 2, probability: 0.1 });
    let mut touches = Touches::default();
    (0..1000).for_each(|page| touches.fault(&kept_by(0.5, page), half));
    assert_eq!(touches.sample(half), half);
    let first = (1000..2000).find(|page| tenth.has_page(*page)).unwrap();
    touches.fault(&kept_by(0.1, first), half);
    assert_eq!(touches.sample(half), tenth);
    // One that is higher again doesn't bring back what wasn't kept meanwhile.
    (1000..2000).for_each(|page| touches.fault(&kept_by(0.9, page), half));
    touches.fault(&kept_by(f64::NAN, first), half);
    touches.fault(&kept_by(0.0, first), half);
    assert_eq!(touches.sample(half), tenth);
    for page in 0..2000 {
        assert_eq!(touches.page(page).is_some(), tenth.has(page * PAGE), "page {page}");
    }
}

#[test]
fn faults_of_pages_outside_the_sample_are_not_kept() {
    let none = Sample { seed: 1, probability: 0.0 };
    let mut ledger = Ledger::new(MonoTime(0), none);
    ledger.apply(&Evidence::Fault(fault(5, 1)));
    let mut touches = Touches::default();
    touches.fault(&fault(5, 1), none);
    assert!(touches.is_empty());
}
