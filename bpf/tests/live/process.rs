//! Fork, exec, exit.

use std::ptr;

use memprov_bpf::{Hooks, Options, Scope};
use memprov_ledger::evidence::{Change, Evidence, Lifecycle};
use memprov_ledger::identity::{StartTicks, Tgid};

use crate::child::{Child, Results, call};
use crate::{Stacks, changes, mechanisms, only, until_exit};

fn map_page() -> i64 {
    call(libc::SYS_mmap, [0, 4096, 3, 0x22, -1, 0])
}

/// When a process began, from field 22 of its `stat`.
fn start_ticks(pid: u32) -> StartTicks {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat of a zombie");
    let (_, rest) = stat.rsplit_once(')').expect("comm ends");
    StartTicks(rest.split_whitespace().nth(19).expect("field 22").parse().expect("a number"))
}

fn forks(results: &Results) {
    // SAFETY: plain system calls in a child that has no other threads.
    unsafe {
        let forked = libc::fork();
        if forked == 0 {
            map_page();
            libc::_exit(0);
        }
        results.set(0, forked.into());
        libc::waitpid(forked, ptr::null_mut(), 0);
        let args = [c"/bin/true".as_ptr().cast_mut(), ptr::null_mut()];
        let (mut spawned, none) = (0, ptr::null());
        libc::posix_spawn(
            &raw mut spawned,
            args[0],
            none,
            none.cast(),
            args.as_ptr(),
            args.as_ptr().add(1),
        );
        results.set(1, spawned.into());
        libc::waitpid(spawned, ptr::null_mut(), 0);
    }
}

#[test]
fn live_children_are_followed_from_before_they_run() {
    for mechanism in mechanisms() {
        let child = Child::fork(forks);
        let mut hooks = Hooks::load(&only(mechanism, &[child.pid])).unwrap();
        child.begin();
        let all = until_exit(&mut hooks, child.pid, &mut Stacks::default());
        let pid = |at| u32::try_from(child.result(at)).unwrap();
        let (forked, spawned) = (pid(0), pid(1));
        // posix_spawn maps a stack for the time until exec.
        let kinds: Vec<_> = changes(&all, child.pid)
            .into_iter()
            .map(|l| l.change)
            .filter(|change| !matches!(change, Change::Map { .. } | Change::Unmap { .. }))
            .collect();
        let start = |change: &Change| match change {
            Change::Fork { child_start, .. } => *child_start,
            other => panic!("{other:?} is no fork"),
        };
        let fork = |at: usize, child, shares| Change::Fork {
            child: Tgid(child),
            child_start: start(&kinds[at]),
            shares,
        };
        let expected = vec![fork(0, forked, false), fork(1, spawned, true), Change::Exit];
        assert_eq!(kinds, expected, "{mechanism:?}");
        // The child of ours is a zombie still, and was forked before both.
        assert!(start(&kinds[0]) >= start_ticks(child.pid));
        assert!(start(&kinds[1]).0 - start_ticks(child.pid).0 < 1000);
        let fork = |l: &&Lifecycle| matches!(l.change, Change::Fork { .. });
        for made in changes(&all, child.pid).iter().filter(fork) {
            let took = made.when.end.since(made.when.begin);
            assert!(took.as_micros() > 5, "born when clone began: {took:?}");
        }
        assert_eq!(child.reap(), 0);

        let of_forked: Vec<_> = changes(&all, forked).into_iter().map(|l| l.change).collect();
        assert!(matches!(of_forked[..], [Change::Map { .. }, Change::Exit]), "{of_forked:?}");
        let of_spawned = changes(&all, spawned);
        assert_eq!(of_spawned.first().map(|l| &l.change), Some(&Change::Exec));
        assert_eq!(of_spawned.last().map(|l| &l.change), Some(&Change::Exit));
        // A static program may only move its brk.
        let grows = |l: &Lifecycle| matches!(l.change, Change::Map { .. } | Change::Brk { .. });
        assert!(of_spawned.iter().any(grows));
    }
}

extern "C" fn survivor(_: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: a plain system call.
    unsafe { libc::usleep(50_000) };
    map_page();
    ptr::null_mut()
}

fn leader_goes_first(_: &Results) {
    // SAFETY: the child has no other threads yet; the thread outlives nothing that it uses.
    unsafe {
        let mut thread = 0;
        libc::pthread_create(&raw mut thread, ptr::null(), survivor, ptr::null_mut());
    }
    call(libc::SYS_exit, [0; 6]);
}

#[test]
fn live_a_group_exits_once_and_with_its_last_thread() {
    for mechanism in mechanisms() {
        let child = Child::fork(leader_goes_first);
        let mut hooks = Hooks::load(&only(mechanism, &[child.pid])).unwrap();
        child.begin();
        let mut all = until_exit(&mut hooks, child.pid, &mut Stacks::default());
        assert_eq!(child.reap(), 0);
        hooks.poll(std::time::Duration::ZERO, &mut Stacks::default(), &mut all).unwrap();
        let seen = changes(&all, child.pid);
        let exits = seen.iter().filter(|l| l.change == Change::Exit).count();
        assert_eq!(exits, 1, "{mechanism:?}");
        assert_eq!(seen.last().map(|l| &l.change), Some(&Change::Exit));
        // The thread's stack, and 50 ms later its page.
        let maps: Vec<_> = seen.iter().filter(|l| matches!(l.change, Change::Map { .. })).collect();
        let (first, last) = (maps.first().unwrap(), maps.last().unwrap());
        assert!(last.when.begin.since(first.when.end).as_millis() >= 50);
        assert!(!all.iter().any(|e| matches!(e, Evidence::Gap(_))));
    }
}

#[test]
fn live_a_process_is_watched_from_its_selection_to_its_deselection() {
    let Some(mechanism) = mechanisms().first().copied() else { return };
    let child = Child::fork(|results| {
        for at in 0..3 {
            map_page();
            results.set(at, 1);
            // SAFETY: a plain system call.
            unsafe { libc::usleep(400_000) };
        }
    });
    let mut hooks = Hooks::load(&only(mechanism, &[])).unwrap();
    let wait = |at| {
        while child.result(at) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    child.begin();
    wait(0);
    hooks.select(Tgid(child.pid)).unwrap();
    wait(1);
    std::thread::sleep(std::time::Duration::from_millis(50));
    hooks.deselect(Tgid(child.pid)).unwrap();
    hooks.deselect(Tgid(child.pid)).unwrap();
    assert_eq!(child.reap(), 0);
    let mut all = Vec::new();
    hooks.poll(std::time::Duration::ZERO, &mut Stacks::default(), &mut all).unwrap();
    assert_eq!(changes(&all, child.pid).len(), 1, "one page while selected: {all:?}");
}

#[test]
fn live_all_processes_but_one_are_watched() {
    for mechanism in mechanisms() {
        let child = Child::fork(|_| {
            map_page();
        });
        let scope = Scope::All { except: Tgid(std::process::id()) };
        let options = Options { mechanism: Some(mechanism), ..Options::new(scope) };
        let mut hooks = Hooks::load(&options).unwrap();
        map_page();
        child.begin();
        let all = until_exit(&mut hooks, child.pid, &mut Stacks::default());
        assert_eq!(child.reap(), 0);
        let seen: Vec<_> = changes(&all, child.pid).into_iter().map(|l| l.change).collect();
        assert!(matches!(seen[..], [Change::Map { .. }, Change::Exit]), "{seen:?}");
        assert!(changes(&all, std::process::id()).is_empty());
    }
}

extern "C" fn execs(_: *mut libc::c_void) -> *mut libc::c_void {
    map_page();
    let args = [c"/bin/true".as_ptr(), ptr::null()];
    call(libc::SYS_execve, [args[0] as i64, args.as_ptr() as i64, 0, 0, 0, 0]);
    ptr::null_mut()
}

#[test]
fn live_an_exec_by_another_thread_is_one_of_the_process() {
    for mechanism in mechanisms() {
        let child = Child::fork(|_| {
            // SAFETY: as in `leader_goes_first`; the exec ends both threads.
            unsafe {
                let mut thread = 0;
                libc::pthread_create(&raw mut thread, ptr::null(), execs, ptr::null_mut());
                libc::pause();
            }
        });
        let mut hooks = Hooks::load(&only(mechanism, &[child.pid])).unwrap();
        child.begin();
        let all = until_exit(&mut hooks, child.pid, &mut Stacks::default());
        assert_eq!(child.reap(), 0);
        let seen = changes(&all, child.pid);
        let count = |change: &Change| seen.iter().filter(|l| l.change == *change).count();
        assert_eq!((count(&Change::Exec), count(&Change::Exit)), (1, 1), "{mechanism:?}");
        assert_eq!(hooks.losses().lifecycle, 0);
    }
}
