//! Calls that overlap in time: every order of entries, effects and returns of a few threads of one process.
//!
//! Records come in the order of the returns. Whatever the order was, no answer names a wrong owner, and after the next
//! list of mappings every page has an owner again.

use memprov_ledger::evidence::{Evidence, Residency};
use memprov_ledger::time::{MonoTime, Span};

use crate::call::{Call, Object};
use crate::kernel::Kernel;
use crate::watch::{Answer, World, truth, wrong};

/// What a thread does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Call(Call),
    /// A scanner of the process: its effect is the reading of the list of mappings and of the pages.
    Scan,
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    begin: u64,
    point: u64,
    end: u64,
}

/// Runs acts whose entries, effects and returns come in `order` (a thread's number three times).
/// Records are applied when calls return.
fn run(start: &World, acts: &[Act], order: &[usize]) -> World {
    let mut world = start.clone();
    let base = world.kernel.now + 100;
    let mut times = vec![Times::default(); acts.len()];
    let mut steps = vec![0; acts.len()];
    for (i, thread) in order.iter().enumerate() {
        let at = base + 10 * i as u64;
        let t = &mut times[*thread];
        match steps[*thread] {
            0 => t.begin = at,
            1 => t.point = at,
            _ => t.end = at,
        }
        steps[*thread] += 1;
    }
    let span = |t: &Times| Span { begin: MonoTime(t.begin), end: MonoTime(t.end) };
    let mut records: Vec<Option<Evidence>> = vec![None; acts.len()];
    let mut steps = vec![0; acts.len()];
    for (i, thread) in order.iter().enumerate() {
        world.kernel.now = base + 10 * i as u64;
        let when = span(&times[*thread]);
        match steps[*thread] {
            1 => {
                records[*thread] = match acts[*thread] {
                    Act::Call(call) => world.kernel.execute(1, call, when),
                    Act::Scan => scanned(&world.kernel, when),
                };
            }
            2 => {
                if let Some(evidence) = records[*thread].take() {
                    world.watch.apply(&evidence);
                }
            }
            _ => {}
        }
        steps[*thread] += 1;
    }
    world.kernel.now += 100;
    world
}

fn scanned(kernel: &Kernel, when: Span) -> Option<Evidence> {
    let mut seen: Residency = kernel.scan(1, when)?;
    // What it counted before it began is another number: it is no scan at rest.
    seen.before.minor_faults += 1;
    Some(Evidence::Residency(Box::new(seen)))
}

/// Every order of the entries, effects and returns of `threads` threads.
fn orders(threads: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..3 * threads {
        all = all
            .iter()
            .flat_map(|order: &Vec<usize>| {
                (0..threads)
                    .filter(|t| order.iter().filter(|o| *o == t).count() < 3)
                    .map(|t| order.iter().copied().chain([t]).collect())
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    all
}

/// Answers about any instant, and about all of the time, of processes 1 and 2. What is surely owned now is mapped.
fn check(world: &World, since: u64) -> Result<u64, String> {
    let mut owned = 0;
    for (tgid, process) in &world.kernel.live {
        for page in 0..6 {
            let instants = (since..=world.kernel.now).step_by(5).map(|t| Span::at(MonoTime(t)));
            let whole = Span { begin: MonoTime(since), end: MonoTime(world.kernel.now) };
            for when in instants.chain([whole]) {
                let answer = world.watch.ask(*tgid, page, when);
                owned += u64::from(matches!(answer, Answer::Owned { made, .. } if made != 0));
                if let Some(wrong) = wrong(&world.kernel, process.mm, page, when, &answer) {
                    return Err(format!("process {tgid}: {wrong}"));
                }
            }
            let answer = world.watch.ask(*tgid, page, world.now());
            let mapped = world.kernel.mms[process.mm].cells.contains_key(&page);
            if matches!(answer, Answer::Owned { .. }) && !mapped {
                return Err(format!("process {tgid}: page {page}: {answer:?}, not mapped"));
            }
        }
    }
    Ok(owned)
}

/// After a list of mappings every mapped page has an owner, if not always a call, and no other page has.
fn check_after_maps(mut world: World) -> Result<(), String> {
    world.scan_all();
    let now = world.now();
    for (tgid, process) in world.kernel.live.clone() {
        for page in 0..6 {
            let answer = world.watch.ask(tgid, page, now);
            let truth = truth(&world.kernel, process.mm, page, now);
            let mapped = truth.iter().any(Option::is_some);
            let fine = if mapped {
                matches!(answer, Answer::Owned { .. })
            } else {
                answer == Answer::Unowned
            };
            if !fine || wrong(&world.kernel, process.mm, page, now, &answer).is_some() {
                return Err(format!("after maps, {tgid}: page {page}: {answer:?}, {truth:?}"));
            }
        }
    }
    Ok(())
}

/// All orders of all acts; how many answers named an owner.
fn explore(start: &World, acts: &[Act]) -> u64 {
    let orders = orders(acts.len());
    let since = start.kernel.now;
    let mut owned = 0;
    for order in &orders {
        let world = run(start, acts, order);
        let checked = check(&world, since).and_then(|n| check_after_maps(world).map(|()| n));
        owned += checked.unwrap_or_else(|e| panic!("{e}\nacts {acts:?}\norder {order:?}"));
    }
    owned
}

/// A mapping of two pages that one thread unmaps, moves or replaces while others do the same.
fn start() -> World {
    let mut world = World::new();
    world.call(1, Call::Map { pages: 2, of: None });
    world
}

fn acts() -> Vec<Act> {
    let file = Some(Object { inode: 3, index: 0, private: false });
    [
        Call::Unmap { at: 0, pages: 1 },
        Call::Unmap { at: 0, pages: 2 },
        Call::Map { pages: 1, of: None },
        Call::Map { pages: 2, of: file },
        Call::MapFixed { at: 0, pages: 1, of: None },
        Call::MoveFixed { at: 0, old: 1, new: 1, to: 3, keep: false },
        Call::Move { at: 0, old: 2, new: 2, keep: true },
        Call::Resize { at: 0, old: 2, new: 1 },
        Call::Resize { at: 0, old: 2, new: 3 },
        Call::FailUnmap { at: 0, pages: 2, removed: 1 },
        Call::Fork { child: 2 },
    ]
    .into_iter()
    .map(Act::Call)
    .chain([Act::Scan])
    .collect()
}

#[test]
fn two_calls_in_any_order_never_give_a_wrong_owner() {
    let acts = acts();
    for (i, a) in acts.iter().enumerate() {
        for b in &acts[i..] {
            explore(&start(), &[*a, *b]);
        }
    }
}

#[test]
fn three_calls_in_any_order_never_give_a_wrong_owner() {
    let acts = acts();
    // In debug a few choices of three; all in release.
    let step = if cfg!(debug_assertions) { 61 } else { 1 };
    let mut choices = Vec::new();
    for (i, a) in acts.iter().enumerate() {
        for (j, b) in acts.iter().enumerate().skip(i) {
            choices.extend(acts.iter().skip(j).map(|c| [*a, *b, *c]));
        }
    }
    let owned: u64 = choices.iter().step_by(step).map(|three| explore(&start(), three)).sum();
    assert!(owned > 0);
}

#[test]
fn orders_that_hide_the_call_in_the_middle_give_no_wrong_owner() {
    let file = Some(Object { inode: 3, index: 0, private: false });
    let call = Act::Call;
    let unmap = |pages| call(Call::Unmap { at: 0, pages });
    let fixed = call(Call::MapFixed { at: 0, pages: 1, of: None });
    let fails = call(Call::FailUnmap { at: 0, pages: 2, removed: 1 });
    let grows = call(Call::Resize { at: 0, old: 2, new: 3 });
    let moves = call(Call::MoveFixed { at: 0, old: 1, new: 1, to: 3, keep: false });
    let leaves = call(Call::Move { at: 0, old: 2, new: 2, keep: true });
    let cases = [
        // The mapping that grew, or moved, is told after it did.
        ([unmap(2), call(Call::Map { pages: 2, of: file }), grows], [0, 0, 1, 1, 2, 2, 2, 0, 1]),
        ([unmap(1), fixed, leaves], [2, 0, 0, 1, 1, 2, 2, 0, 1]),
        ([call(Call::Map { pages: 1, of: None }), moves, fails], [0, 1, 2, 2, 0, 1, 2, 1, 0]),
        ([call(Call::Map { pages: 2, of: file }), fixed, moves], [2, 0, 0, 1, 1, 2, 2, 0, 1]),
        // Of two that took the same place only one was ended.
        ([unmap(2), fixed, fixed], [0, 1, 1, 1, 2, 2, 0, 0, 2]),
        // A list of mappings shows a mapping that is not told yet, where one is in doubt.
        ([fixed, fails, Act::Scan], [1, 1, 1, 0, 0, 2, 2, 2, 0]),
    ];
    for (acts, order) in cases {
        let since = start().kernel.now;
        let world = run(&start(), &acts, &order);
        let checked = check(&world, since).and_then(|_| check_after_maps(world));
        assert_eq!(checked, Ok(()), "{acts:?}");
    }
}

#[test]
fn a_range_that_is_returned_while_its_unmapping_runs_is_surely_the_new_mapping_s() {
    // Entry of munmap, the whole of mmap in between, return of munmap.
    let unmap = Act::Call(Call::Unmap { at: 0, pages: 2 });
    let map = Act::Call(Call::Map { pages: 2, of: None });
    let world = run(&start(), &[unmap, map], &[0, 0, 1, 1, 1, 0]);
    let made = world.kernel.calls;
    let answer = world.watch.ask(1, 0, world.now());
    assert_eq!(answer, Answer::Owned { made, proven: true });
    assert!(!world.asks(1));
}

#[test]
fn of_two_unmappings_that_overlap_a_mapping_one_may_have_taken_it() {
    let unmap = Act::Call(Call::Unmap { at: 0, pages: 2 });
    let map = Act::Call(Call::Map { pages: 2, of: None });
    let world = run(&start(), &[unmap, map, unmap], &[0, 2, 0, 1, 1, 1, 0, 2, 2]);
    assert_eq!(world.watch.ask(1, 0, world.now()), Answer::Unknown);
    assert!(world.asks(1));
}
