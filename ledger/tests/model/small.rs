//! Exhaustive small worlds: every history of a few calls over a few pages.

use crate::call::{Call, Object};
use crate::watch::World;

fn file(index: u64) -> Option<Object> {
    Some(Object { inode: 3, index, private: false })
}

/// Calls over three pages, each next to the others.
fn calls() -> Vec<Call> {
    let private = Some(Object { inode: 5, index: 1, private: true });
    vec![
        Call::Map { pages: 1, of: None },
        Call::Map { pages: 2, of: file(1) },
        Call::MapFixed { at: 0, pages: 1, of: private },
        Call::MapFixed { at: 1, pages: 2, of: None },
        Call::Unmap { at: 0, pages: 1 },
        Call::Unmap { at: 1, pages: 1 },
        Call::Unmap { at: 0, pages: 3 },
        Call::Resize { at: 0, old: 2, new: 1 },
        Call::Resize { at: 0, old: 1, new: 2 },
        Call::Resize { at: 1, old: 1, new: 3 },
        Call::Move { at: 0, old: 1, new: 2, keep: false },
        Call::Move { at: 1, old: 1, new: 1, keep: true },
        Call::Move { at: 0, old: 0, new: 1, keep: false },
        Call::MoveFixed { at: 0, old: 1, new: 1, to: 2, keep: false },
        Call::MoveFixed { at: 0, old: 2, new: 1, to: 2, keep: false },
        Call::Brk { pages: 2 },
        Call::Brk { pages: 0 },
        Call::Attach { segment: 4, pages: 2 },
        Call::AttachOver { at: 2, segment: 5, pages: 1 },
        Call::Detach { at: 0 },
        Call::Detach { at: 1 },
        Call::FailMapFixed { at: 0, pages: 2, removed: 1 },
        Call::FailUnmap { at: 0, pages: 3, removed: 0 },
    ]
}

/// All histories of `left` further calls of processes `1..=processes`; the number of worlds seen.
fn explore(world: &World, calls: &[Call], processes: u32, left: u32) -> u64 {
    if left == 0 {
        return 0;
    }
    let mut seen = 0;
    for tgid in 1..=processes {
        for call in calls {
            let mut next = world.clone();
            if !next.kernel.live.contains_key(&tgid) {
                continue;
            }
            next.call(tgid, *call);
            if next.kernel.calls == world.kernel.calls {
                continue;
            }
            let live: Vec<u32> = next.kernel.live.keys().copied().collect();
            for tgid in live {
                if next.asks(tgid) {
                    next.check_no_wrong_answer(tgid, next.now());
                    next.scan(tgid);
                }
                next.check_exact(tgid, false);
            }
            seen += 1 + explore(&next, calls, processes, left - 1);
        }
    }
    seen
}

#[test]
fn every_short_history_of_one_process_gives_the_pieces_of_the_kernel() {
    let depth = if cfg!(debug_assertions) { 3 } else { 4 };
    let seen = explore(&World::new(), &calls(), 1, depth);
    assert!(seen >= 22 + 22 * 22 + 22 * 22 * 22, "{seen} worlds");
}

#[test]
fn every_longer_history_of_half_of_the_calls_gives_the_pieces_of_the_kernel() {
    let calls: Vec<Call> = calls().into_iter().skip(1).step_by(2).collect();
    let depth = if cfg!(debug_assertions) { 4 } else { 5 };
    let seen = explore(&World::new(), &calls, 1, depth);
    assert!(seen >= 11 * 11 * 11 * 11, "{seen} worlds");
}

#[test]
fn every_short_history_of_a_family_gives_the_pieces_of_the_kernel() {
    let mut calls: Vec<Call> = calls().into_iter().step_by(2).collect();
    calls.extend([Call::Fork { child: 2 }, Call::Share { child: 2 }, Call::Exec, Call::Exit]);
    let mut world = World::new();
    world.call(1, Call::Map { pages: 3, of: None });
    let seen = explore(&world, &calls, 2, 3);
    assert!(seen > 3000, "{seen} worlds");
}
