//! Loss: records of one process are dropped, and a gap says so.

use std::collections::{BTreeMap, BTreeSet};

use memprov_ledger::evidence::{Evidence, Gap, Lifecycle, Stream};
use memprov_ledger::identity::Tgid;
use memprov_ledger::ledger::Ledger;
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;
use proptest::prelude::any;
use proptest::proptest;

use crate::call::{Call, Object};
use crate::kernel::Kernel;
use crate::long::{Next, cases, history, next};
use crate::watch::{Answer, Watch, World, wrong};

fn gap(begin: u64, end: u64, whose: Option<u32>) -> Evidence {
    Evidence::Gap(Gap {
        when: Span { begin: MonoTime(begin), end: MonoTime(end) },
        stream: Stream::Lifecycle,
        lost: 1,
        whose: whose.map(Tgid),
    })
}

/// Answers about all pages of a process.
fn answers(watch: &Watch, kernel: &Kernel, tgid: u32, when: Span) -> Vec<Answer> {
    let live = kernel.live.contains_key(&tgid);
    (0..64).filter(|_| live).map(|page| watch.ask(tgid, page, when)).collect()
}

fn check(world: &World, watch: &Watch, tgid: u32) {
    let Some(process) = world.kernel.live.get(&tgid) else { return };
    let now = world.now();
    for page in 0..64 {
        let answer = watch.ask(tgid, page, now);
        assert_eq!(wrong(&world.kernel, process.mm, page, now, &answer), None, "process {tgid}");
    }
}

proptest! {
    #![proptest_config(cases(400, 100_000))]

    /// A prelude makes a few processes; then calls happen of which the victim's are lost at random, then the gap is
    /// told, then the victim is scanned, then more calls happen.
    #[test]
    fn loss_in_one_process_is_its_own_and_ends_with_the_next_scan(
        prelude in history(16),
        during in history(16),
        lost in any::<u16>(),
        after in history(8),
        victim in any::<u8>(),
    ) {
        let mut world = World::new();
        for bytes in prelude {
            let step = next(&world.kernel, bytes);
            world.step(step);
        }
        world.scan_all();
        let live: Vec<u32> = world.kernel.live.keys().copied().collect();
        let victim = live[usize::from(victim) % live.len()];
        let mm = world.kernel.live[&victim].mm;
        // Whoever shares the space shares the loss, and so does who is forked from it meanwhile.
        let mut concerned: BTreeSet<u32> =
            live.into_iter().filter(|tgid| world.kernel.live[tgid].mm == mm).collect();

        let mut lossy = world.watch.clone();
        let begin = world.kernel.now;
        let mut dropped = 0;
        for (i, bytes) in during.into_iter().enumerate() {
            let Next::Call(tgid, call) = next(&world.kernel, bytes) else { continue };
            // That two processes share a space is told by the record of `clone` alone. The pid stays the victim's.
            let of_victim = matches!(call, Call::Fork { child } if child == victim);
            if of_victim || matches!(call, Call::Share { .. }) {
                continue;
            }
            let Some(evidence) = world.run(tgid, call) else { continue };
            if let Call::Fork { child } = call {
                if concerned.contains(&tgid) { concerned.insert(child) } else { concerned.remove(&child) };
            }
            world.watch.apply(&evidence);
            let lifecycle = matches!(&evidence, Evidence::Lifecycle(_));
            if lifecycle && tgid == victim && lost >> i & 1 == 1 {
                dropped += 1;
            } else {
                lossy.apply(&evidence);
            }
            for other in world.kernel.live.keys().filter(|tgid| !concerned.contains(tgid)) {
                assert_eq!(
                    answers(&lossy, &world.kernel, *other, world.now()),
                    answers(&world.watch, &world.kernel, *other, world.now()),
                    "{other} is not concerned by the loss of {victim}"
                );
            }
        }
        if dropped == 0 {
            return Ok(());
        }
        world.kernel.now += 10;
        lossy.apply(&gap(begin, world.kernel.now, Some(victim)));
        for tgid in &concerned {
            check(&world, &lossy, *tgid);
        }
        if world.kernel.live.contains_key(&victim) {
            let unknown = |answer: &Answer| *answer == Answer::Unknown;
            assert!(answers(&lossy, &world.kernel, victim, world.now()).iter().all(unknown));
        }

        let mut lossy = World { kernel: world.kernel, watch: lossy };
        lossy.kernel.now += 10;
        lossy.scan_all();
        for bytes in after {
            for tgid in lossy.kernel.live.clone().into_keys() {
                lossy.check_no_wrong_answer(tgid, lossy.now());
            }
            let step = next(&lossy.kernel, bytes);
            lossy.step(step);
        }
        lossy.scan_all();
        let sharing = lossy.watch.ledger.sharing();
        for tgid in lossy.kernel.live.keys() {
            assert!(!lossy.asks(*tgid));
            lossy.check_no_wrong_answer(*tgid, lossy.now());
            let space = lossy.watch.ledger.space(Tgid(*tgid)).expect("it was scanned");
            let closed = sharing.close(space).expect("it was scanned");
            assert!(!closed.bug && closed.books.iter().all(|b| b.skew == 0 && b.unattributed == 0));
        }
        // What is mapped now is exact.
        lossy.call(*lossy.kernel.live.keys().next().expect("one lives"), Call::Map { pages: 1, of: None });
        let (tgid, made) = (*lossy.kernel.live.keys().next().expect("one lives"), lossy.kernel.calls);
        let owned = answers(&lossy.watch, &lossy.kernel, tgid, lossy.now());
        let exact = Answer::Owned { made, proven: true };
        let mapped = lossy.kernel.mm(tgid).cells.values().any(|cell| cell.made == made);
        assert_eq!(owned.contains(&exact), mapped);
    }

    #[test]
    fn a_gap_never_strengthens_an_answer(
        history in history(40),
        at in any::<u8>(),
        reach in any::<u8>(),
        whose in any::<Option<u8>>(),
        back in any::<u16>(),
    ) {
        let mut world = World::new();
        let mut with_gap = world.watch.clone();
        let at = usize::from(at) % history.len();
        for (i, bytes) in history.into_iter().enumerate() {
            let evidence = match next(&world.kernel, bytes) {
                Next::Call(tgid, call) => world.run(tgid, call),
                Next::Scan(tgid) => {
                    world.kernel.now += 10;
                    let seen = world.kernel.scan(tgid, world.now());
                    seen.map(|seen| Evidence::Residency(Box::new(seen)))
                }
            };
            if let Some(evidence) = evidence {
                world.watch.apply(&evidence);
                with_gap.apply(&evidence);
            }
            if i == at {
                let live: Vec<u32> = world.kernel.live.keys().copied().collect();
                let whose = whose.map(|n| live[usize::from(n) % live.len()]);
                let now = world.kernel.now;
                with_gap.apply(&gap(now - u64::from(reach), now, whose));
            }
            let begin = MonoTime(world.kernel.now - u64::from(back % 500));
            for tgid in world.kernel.live.keys() {
                for when in [world.now(), Span::at(begin)] {
                    let with = answers(&with_gap, &world.kernel, *tgid, when);
                    let without = answers(&world.watch, &world.kernel, *tgid, when);
                    for (with, without) in with.iter().zip(&without) {
                        assert!(!with.stronger_than(without), "{with:?}, without a gap {without:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_scan_that_began_before_the_loss_ended_does_not_end_it() {
    let mut world = World::new();
    let seen = world.kernel.scan(1, Span { begin: MonoTime(1_000_100), end: MonoTime(1_000_300) });
    // Lost: a mapping that was made after the list was read.
    world.kernel.now = 1_000_200;
    world.run(1, Call::Map { pages: 1, of: None });
    world.watch.apply(&gap(1_000_150, 1_000_250, Some(1)));
    world.watch.apply(&Evidence::Residency(Box::new(seen.expect("process 1 lives"))));
    assert_eq!(world.watch.ask(1, 0, world.now()), Answer::Unknown);
    assert!(world.asks(1));
    world.kernel.now = 1_000_400;
    world.scan(1);
    world.check_exact(1, true);
}

#[test]
fn another_part_of_an_object_that_came_unseen_is_another_mapping() {
    let mut world = World::new();
    world.call(1, Call::Attach { segment: 6, pages: 2 });
    world.scan(1);
    let begin = world.kernel.now;
    // Lost: the second page goes, and the first is mapped there once more.
    world.run(1, Call::Unmap { at: 1, pages: 1 });
    world.run(1, Call::Move { at: 0, old: 0, new: 1, keep: false });
    world.watch.apply(&gap(begin, world.kernel.now, Some(1)));
    world.kernel.now += 10;
    world.scan(1);
    // Ends the mappings that are where the segment would have its pages: the first alone.
    world.call(1, Call::Detach { at: 0 });
    world.check_no_wrong_answer(1, world.now());
    assert_eq!(world.watch.ask(1, 0, world.now()), Answer::Unowned);
    assert_ne!(world.watch.ask(1, 1, world.now()), Answer::Unowned);
}

#[test]
fn what_came_unseen_to_the_place_of_a_segment_is_not_the_segment() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 1, of: None });
    let begin = world.kernel.now;
    world.call(1, Call::Attach { segment: 6, pages: 3 });
    // Lost.
    let of = Some(Object { inode: 5, index: 0, private: true });
    world.run(1, Call::MapFixed { at: 1, pages: 1, of });
    world.watch.apply(&gap(begin, world.kernel.now, Some(1)));
    world.kernel.now += 10;
    world.scan(1);
    world.call(1, Call::Detach { at: 1 });
    world.check_no_wrong_answer(1, world.now());
}

#[test]
fn a_gap_that_is_told_late_reaches_what_was_forked_and_what_was_left_meanwhile() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 1, of: None });
    let begin = world.kernel.now;
    // Lost.
    world.run(1, Call::Unmap { at: 0, pages: 1 });
    world.call(1, Call::Fork { child: 2 });
    world.scan(1);
    world.watch.apply(&gap(begin, world.kernel.now, Some(1)));
    assert_eq!(world.watch.ask(2, 0, world.now()), Answer::Unknown, "the copy had it wrong too");

    let mut world = World::new();
    world.call(1, Call::Map { pages: 1, of: None });
    let begin = world.kernel.now;
    world.run(1, Call::Unmap { at: 0, pages: 1 });
    let before_exec = world.now();
    world.call(1, Call::Exec);
    world.watch.apply(&gap(begin, world.kernel.now, Some(1)));
    assert_eq!(world.watch.ask(1, 0, before_exec), Answer::Unknown, "so had the life before exec");
}

#[test]
fn lost_stacks_and_scans_leave_answers_as_they_are() {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 1, of: None });
    for stream in [Stream::Stacks, Stream::Faults, Stream::Scans] {
        world.watch.apply(&Evidence::Gap(Gap { when: world.now(), stream, lost: 3, whose: None }));
    }
    world.check_exact(1, false);
    assert_eq!(world.watch.ledger.lost().map(|(_, lost)| lost).sum::<u64>(), 9);
}

/// The record of a call that never happened in the kernel: what replay may bring.
#[test]
fn a_process_that_lost_everything_is_unknown_until_it_is_read() {
    let mut world = World::new();
    world.run(1, Call::Fork { child: 2 });
    assert_eq!(world.watch.ask(2, 40, world.now()), Answer::Unknown);
    let mapped = world.run(2, Call::Map { pages: 1, of: None });
    assert!(matches!(mapped, Some(Evidence::Lifecycle(Lifecycle { tgid: Tgid(2), .. }))));
    mapped.iter().for_each(|evidence| world.watch.apply(evidence));
    assert_eq!(world.watch.ask(2, 0, world.now()), Answer::Unknown, "and stays so after one call");
    world.scan(2);
    world.check_exact(2, false);
}

#[test]
fn a_stream_without_loss_says_0_and_one_with_an_uncounted_loss_says_nothing() {
    let mut ledger = Ledger::new(MonoTime(0), Sample::default());
    assert_eq!(ledger.lost().collect::<Vec<_>>(), Stream::ALL.map(|s| (s, 0)));
    let gap = |stream, lost| {
        Evidence::Gap(Gap { when: Span::at(MonoTime(1)), stream, lost, whose: None })
    };
    ledger.apply(&gap(Stream::Stacks, 7));
    ledger.apply(&gap(Stream::Lifecycle, 3));
    ledger.apply(&gap(Stream::Lifecycle, 0));
    let told: BTreeMap<Stream, u64> = ledger.lost().collect();
    assert_eq!(told.get(&Stream::Stacks), Some(&7));
    assert_eq!(told.get(&Stream::Lifecycle), None);
    assert_eq!(told.get(&Stream::Faults), Some(&0));
}
