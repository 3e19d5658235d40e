//! Long random histories of several processes: no answer is ever wrong, and a list of mappings makes all exact.

use memprov_ledger::evidence::Evidence;
use memprov_ledger::space::Space;
use memprov_ledger::time::{MonoTime, Span};
use proptest::prelude::{ProptestConfig, any, prop, proptest};

use crate::call::{Call, Object};
use crate::kernel::Kernel;
use crate::watch::{Answer, World, plausible};

/// What happens next: a call of some process, or a scan of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Call(u32, Call),
    Scan(u32),
}

/// A random next step out of five bytes.
pub(crate) fn next(kernel: &Kernel, bytes: [u8; 5]) -> Next {
    let [who, what, a, b, c] = bytes.map(u64::from);
    let live: Vec<u32> = kernel.live.keys().copied().collect();
    let tgid = live[usize::from(bytes[0]) % live.len()];
    let (at, pages) = (a % 12, 1 + b % 5);
    let of = match c % 5 {
        0 | 1 => None,
        n => Some(Object { inode: 3 + n, index: a % 3, private: b % 2 == 0 }),
    };
    let child = 1 + u32::from(bytes[2]) % 6;
    let last = live.len() == 1;
    let call = match what % 32 {
        0..=3 => Call::Map { pages, of },
        4 | 5 => Call::MapFixed { at, pages, of },
        6..=8 => Call::Unmap { at, pages },
        9 => Call::Resize { at, old: 1 + b % 4, new: 1 + c % 5 },
        10 => Call::Move { at, old: 1 + b % 3, new: 1 + c % 4, keep: false },
        11 => Call::Move { at, old: 1 + b % 2, new: 1 + b % 2, keep: true },
        12 => Call::Move { at, old: 0, new: 1 + b % 2, keep: false },
        13 => Call::MoveFixed { at, old: 1 + b % 3, new: 1 + c % 3, to: (a + b) % 12, keep: false },
        14 => Call::Brk { pages: a % 8 },
        // Whoever attaches a segment attaches all of it.
        15 if who > 128 => Call::AttachOver { at, segment: 4 + 2 * pages + c % 2, pages },
        15 => Call::Attach { segment: 4 + 2 * pages + c % 2, pages },
        16 => Call::Detach { at },
        17 => Call::FailMapFixed { at, pages, removed: c % 3 },
        18 => Call::FailUnmap { at, pages, removed: c % 3 },
        19 => Call::Fork { child },
        20 if who > 128 => Call::Share { child },
        21 if !last && who > 64 => Call::Exit,
        22 if who > 128 => Call::Exec,
        23 => Call::Drop { at, pages },
        24 => Call::SwapOut { at },
        25 | 26 => return Next::Scan(tgid),
        27 => Call::Read { at },
        _ => Call::Write { at: if c % 4 == 0 { 48 + b % 8 } else { at } },
    };
    Next::Call(tgid, call)
}

impl World {
    pub(crate) fn step(&mut self, next: Next) {
        match next {
            Next::Call(tgid, call) => self.call(tgid, call),
            Next::Scan(tgid) => self.scan(tgid),
        }
    }
}

pub(crate) fn cases(debug: u32, release: u32) -> ProptestConfig {
    let cases = if cfg!(debug_assertions) { debug } else { release };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A history, as bytes that `next` reads.
pub(crate) fn history(longest: usize) -> impl proptest::strategy::Strategy<Value = Vec<[u8; 5]>> {
    prop::collection::vec(any::<[u8; 5]>(), 1..longest)
}

proptest! {
    #![proptest_config(cases(400, 30_000))]

    #[test]
    fn no_answer_is_wrong_at_any_time(history in history(80), back in any::<[u16; 80]>()) {
        let mut world = World::new();
        for (bytes, back) in history.into_iter().zip(back) {
            world.step(next(&world.kernel, bytes));
            let now = world.kernel.now;
            let begin = MonoTime(now.saturating_sub(u64::from(back % 400)));
            let past = Span { begin, end: MonoTime(begin.0 + u64::from(back % 60)) };
            for tgid in world.kernel.live.clone().into_keys() {
                world.check_no_wrong_answer(tgid, world.now());
                // What a process was before exec or fork is another space's past.
                if world.kernel.live[&tgid].since < begin.0 && past.end.0 <= now {
                    world.check_no_wrong_answer(tgid, past);
                }
            }
        }
        world.scan_all();
        for tgid in world.kernel.live.clone().into_keys() {
            assert!(!world.asks(tgid));
            world.check_exact(tgid, true);
        }
    }

    #[test]
    fn without_failures_and_attachments_every_step_is_exact_and_names_no_dead(
        history in history(80),
        back in any::<[u16; 80]>(),
    ) {
        let mut world = World::new();
        for (bytes, back) in history.into_iter().zip(back) {
            let next = next(&world.kernel, bytes);
            let unclear = matches!(next, Next::Call(
                _,
                Call::FailMapFixed { .. }
                    | Call::FailUnmap { .. }
                    | Call::Attach { .. }
                    | Call::AttachOver { .. }
                    | Call::Exec,
            ));
            if unclear {
                continue;
            }
            world.step(next);
            for tgid in world.kernel.live.keys() {
                assert!(!world.asks(*tgid));
                world.check_exact(*tgid, false);
                let begin = MonoTime(world.kernel.now.saturating_sub(u64::from(back % 400)));
                let past = Span { begin, end: MonoTime(begin.0 + u64::from(back % 60)) };
                let process = world.kernel.live[tgid];
                if process.since >= begin.0 {
                    continue;
                }
                for page in 0..12 {
                    let Answer::Ambiguous(named) = world.watch.ask(*tgid, page, past) else { continue };
                    let lived = |made: &u32| plausible(&world.kernel, process.mm, page, *made, past);
                    assert!(named.iter().all(lived), "{named:?} of {page} in {past:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_evidence_gives_the_same_state_and_answers(history in history(60)) {
        let mut world = World::new();
        let mut seen: Vec<Evidence> = Vec::new();
        for bytes in history {
            match next(&world.kernel, bytes) {
                Next::Call(tgid, call) => seen.extend(world.run(tgid, call)),
                Next::Scan(tgid) => {
                    let scan = world.kernel.scan(tgid, world.now());
                    seen.extend(scan.map(|scan| Evidence::Residency(Box::new(scan))));
                }
            }
        }
        let state = || {
            let mut watch = crate::watch::Watch::new();
            seen.iter().for_each(|evidence| watch.apply(evidence));
            let ledger = &watch.ledger;
            let sharing = ledger.sharing();
            let spaces: Vec<&Space> = ledger.spaces().collect();
            let books: Vec<_> = spaces.iter().map(|space| sharing.close(space)).collect();
            format!("{spaces:?}{books:?}{:?}", sharing.shared(&spaces))
        };
        assert_eq!(state(), state());
    }
}

#[test]
fn what_mremap_added_to_a_segment_before_a_list_is_not_older_than_that_call() {
    let mut world = World::new();
    world.call(1, Call::MapFixed { at: 3, pages: 1, of: None });
    world.call(1, Call::Attach { segment: 6, pages: 3 });
    world.call(1, Call::Unmap { at: 3, pages: 1 });
    let begin = world.kernel.now;
    world.call(1, Call::Resize { at: 1, old: 2, new: 3 });
    world.scan(1);
    assert_eq!(world.kernel.mm(1).cells.get(&3).map(|cell| cell.made), Some(2), "it grew");
    for at in begin..=world.kernel.now {
        world.check_no_wrong_answer(1, Span::at(MonoTime(at)));
    }
}
