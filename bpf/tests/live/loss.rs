//! What is lost is counted, and told of the process that it was of.

use memprov_bpf::{Hooks, Inject, Options};
use memprov_ledger::evidence::{Change, Evidence, StackRef, Stream};
use memprov_ledger::identity::Tgid;

use crate::child::{Child, call};
use crate::{Stacks, changes, gaps, mechanisms, only, until_exit};

const ROUNDS: u64 = 10_000;

fn rounds(results: &crate::child::Results) {
    for _ in 0..ROUNDS {
        let page = call(libc::SYS_mmap, [0, 4096, 3, 0x22, -1, 0]);
        call(libc::SYS_munmap, [page, 4096, 0, 0, 0, 0]);
    }
    results.set(0, 1);
}

/// Records of the rounds and the exit.
const MADE: u64 = 2 * ROUNDS + 1;

/// What was seen of a child that does the rounds, polled all the while or not before it is done.
fn watch(
    options: impl Fn(u32) -> Options,
    late: bool,
) -> (u32, Vec<Evidence>, memprov_bpf::Losses) {
    let child = Child::fork(rounds);
    let quiet = Child::fork(|_| {
        call(libc::SYS_mmap, [0, 4096, 3, 0x22, -1, 0]);
    });
    let mut hooks = Hooks::load(&options(child.pid)).expect("load");
    child.begin();
    while late && child.result(0) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut stacks = Stacks::default();
    let mut all = until_exit(&mut hooks, child.pid, &mut stacks);
    assert_eq!(child.reap(), 0);
    hooks.select(Tgid(quiet.pid)).expect("select");
    quiet.begin();
    all.extend(until_exit(&mut hooks, quiet.pid, &mut stacks));
    quiet.reap();
    let losses = hooks.losses();
    (child.pid, all, losses)
}

fn balances(pid: u32, all: &[Evidence], losses: &memprov_bpf::Losses) {
    let quiet: u64 = 2;
    let seen = all.iter().filter(|e| matches!(e, Evidence::Lifecycle(_))).count() as u64;
    assert_eq!(seen + losses.lifecycle, MADE + quiet, "made = seen + lost");
    if losses.lifecycle_misses > 0 {
        eprintln!("the kernel skipped programs: {losses:?} {:?}", gaps(all));
    }
    let told: u64 = gaps(all).iter().map(|gap| gap.lost).sum();
    assert_eq!(told, losses.lifecycle, "lost = told");
    for gap in gaps(all) {
        assert_eq!(gap.stream, Stream::Lifecycle);
        assert!(gap.whose.is_some(), "{gap:?} names nobody");
        if gap.whose != Some(Tgid(pid)) {
            // Injection may hit the quiet process too, and then for its own records only.
            assert!(gap.lost <= quiet, "{gap:?}");
        }
    }
}

#[test]
fn live_every_record_of_a_tight_loop_is_seen_or_counted() {
    for mechanism in mechanisms() {
        let (pid, all, losses) = watch(|pid| only(mechanism, &[pid]), false);
        balances(pid, &all, &losses);
        assert_eq!(losses.lifecycle, 0, "{mechanism:?}: the ring of 4 MiB holds them all");
    }
}

#[test]
fn live_a_full_ring_costs_counted_records_of_that_process_alone() {
    for mechanism in mechanisms() {
        let small = |pid| Options { lifecycle_ring: 65_536, ..only(mechanism, &[pid]) };
        let (pid, all, losses) = watch(small, true);
        balances(pid, &all, &losses);
        assert!(losses.lifecycle > MADE / 2, "{losses:?}");
        assert!(gaps(&all).iter().all(|gap| gap.whose == Some(Tgid(pid))));
    }
}

#[test]
fn live_a_lost_stack_costs_no_extent() {
    for mechanism in mechanisms() {
        let small = |pid| Options { stack_ring: 65_536, ..only(mechanism, &[pid]) };
        let (pid, all, losses) = watch(small, true);
        balances(pid, &all, &losses);
        assert_eq!(losses.lifecycle, 0);
        let lost = changes(&all, pid)
            .iter()
            .filter(|l| matches!(l.change, Change::Map { stack: StackRef::Lost, .. }))
            .count() as u64;
        assert!(lost > 0);
        assert_eq!(lost, losses.stacks);
    }
}

#[test]
fn live_injected_loss_is_counted_exactly() {
    for mechanism in mechanisms() {
        for probability in [0.01, 0.1, 0.9] {
            let inject = Inject { lifecycle: probability, ..Inject::default() };
            // The exit of the child may be lost too: it is then not waited for by its record.
            let child = Child::fork(rounds);
            let options = Options { inject, ..only(mechanism, &[child.pid]) };
            let mut hooks = Hooks::load(&options).unwrap();
            child.begin();
            assert_eq!(child.reap(), 0);
            let mut all = Vec::new();
            let wait = std::time::Duration::ZERO;
            hooks.poll(wait, &mut Stacks::default(), &mut all).unwrap();
            let losses = hooks.losses();
            let seen = changes(&all, child.pid).len() as u64;
            assert_eq!(seen + losses.lifecycle, MADE);
            let told: u64 = gaps(&all).iter().map(|gap| gap.lost).sum();
            assert_eq!(told, losses.lifecycle);
            assert!(gaps(&all).iter().all(|gap| gap.whose == Some(Tgid(child.pid))));
            let share = losses.lifecycle as f64 / MADE as f64;
            assert!((share - probability).abs() < 0.02, "{share} of {probability}");
        }
    }
}

#[test]
fn live_no_process_writes_more_than_its_budget() {
    const BUSY: u64 = 70_000;
    let Some(mechanism) = mechanisms().first().copied() else { return };
    let child = Child::fork(|_| {
        for _ in 0..BUSY {
            let page = call(libc::SYS_mmap, [0, 4096, 3, 0x22, -1, 0]);
            call(libc::SYS_munmap, [page, 4096, 0, 0, 0, 0]);
        }
    });
    let options = Options { lifecycle_ring: 16 << 20, ..only(mechanism, &[child.pid]) };
    let mut hooks = Hooks::load(&options).unwrap();
    child.begin();
    assert_eq!(child.reap(), 0);
    let mut all = Vec::new();
    hooks.poll(std::time::Duration::ZERO, &mut Stacks::default(), &mut all).unwrap();
    let seen = changes(&all, child.pid);
    let losses = hooks.losses();
    assert_eq!(seen.len() as u64 + losses.lifecycle, 2 * BUSY + 1);
    assert!(gaps(&all).iter().all(|gap| gap.whose == Some(Tgid(child.pid))));
    let took = seen.last().unwrap().when.end.since(seen[0].when.begin).as_secs_f64();
    let most = 100_064.0 + 50_000.0 * took;
    assert!(seen.len() as f64 <= most, "{} in {took} s", seen.len());
    eprintln!("{} of {} seen in {took:.2} s", seen.len(), 2 * BUSY + 1);
}

#[test]
fn live_a_filling_ring_ends_the_wait() {
    let Some(mechanism) = mechanisms().first().copied() else { return };
    let child = Child::fork(rounds);
    let options = Options { lifecycle_ring: 65_536, ..only(mechanism, &[child.pid]) };
    let mut hooks = Hooks::load(&options).unwrap();
    child.begin();
    let (mut all, wait) = (Vec::new(), std::time::Duration::from_secs(60));
    let begun = std::time::Instant::now();
    hooks.poll(wait, &mut Stacks::default(), &mut all).unwrap();
    assert!(begun.elapsed() < wait);
    assert!(!all.is_empty());
    assert_eq!(child.reap(), 0);
}
