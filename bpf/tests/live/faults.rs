//! First touch: exactly the pages of the sample.

use memprov_bpf::{Hooks, Options};
use memprov_ledger::evidence::{Evidence, Fault, StackRef};
use memprov_ledger::identity::Tgid;

use crate::child::{Child, Results, call};
use crate::{Stacks, mechanisms, only, until_exit};

const PAGES: u64 = 512;

/// Writes to every page of a fresh mapping from user space, and to the second half of another from a system call.
fn touch(results: &Results) {
    let len = (PAGES * 4096).cast_signed();
    let map = || {
        let a = call(libc::SYS_mmap, [0, len, 3, 0x22, -1, 0]);
        // MADV_NOHUGEPAGE
        call(libc::SYS_madvise, [a, len, 15, 0, 0, 0]);
        a
    };
    let a = map();
    for page in 0..PAGES {
        // SAFETY: mapped above.
        unsafe { ((a as u64 + page * 4096) as *mut u8).write_volatile(1) };
    }
    let b = map();
    let zero = call(libc::SYS_open, [c"/dev/zero".as_ptr() as i64, 0, 0, 0, 0, 0]);
    call(libc::SYS_read, [zero, b, len, 0, 0, 0]);
    results.set(0, a);
    results.set(1, b);
}

fn faults_in(all: &[Evidence], start: u64) -> Vec<Fault> {
    let of = |e: &Evidence| match e {
        Evidence::Fault(f) if f.address >= start && f.address < start + PAGES * 4096 => {
            Some(f.clone())
        }
        _ => None,
    };
    all.iter().filter_map(of).collect()
}

#[test]
fn live_faults_are_those_of_the_sampled_pages() {
    let Some(mechanism) = mechanisms().first().copied() else { return };
    for probability in [1.0, 0.25, 0.0] {
        let child = Child::fork(touch);
        let options =
            Options { first_touch: Some(probability), seed: 7, ..only(mechanism, &[child.pid]) };
        let mut hooks = Hooks::load(&options).unwrap();
        child.begin();
        let all = until_exit(&mut hooks, child.pid, &mut Stacks::default());
        assert_eq!(child.reap(), 0);
        assert_eq!(hooks.losses().faults, 0, "within the burst of 2,000");
        for start in [child.result(0), child.result(1)] {
            let sampled = (0..PAGES)
                .map(|page| start + page * 4096)
                .filter(|address| hooks.in_sample(*address, probability));
            let seen = faults_in(&all, start);
            let addresses: Vec<_> = seen.iter().map(|f| f.address & !4095).collect();
            assert_eq!(addresses, sampled.collect::<Vec<_>>(), "p = {probability}");
            for fault in seen {
                assert_eq!(fault.tgid, Tgid(child.pid));
                assert!(fault.write && !fault.present);
                assert!(matches!(fault.stack, StackRef::Known(_)));
                assert!((fault.probability - probability).abs() < 1e-9);
            }
        }
    }
}

#[test]
fn live_one_process_may_have_a_probability_of_its_own() {
    let Some(mechanism) = mechanisms().first().copied() else { return };
    let (more, none) = (Child::fork(touch), Child::fork(touch));
    let options = Options { first_touch: Some(0.0), ..only(mechanism, &[more.pid, none.pid]) };
    let mut hooks = Hooks::load(&options).unwrap();
    hooks.set_touch_probability(Tgid(more.pid), 0.5).unwrap();
    more.begin();
    none.begin();
    let mut all = until_exit(&mut hooks, more.pid, &mut Stacks::default());
    assert_eq!((more.reap(), none.reap()), (0, 0));
    hooks.poll(std::time::Duration::ZERO, &mut Stacks::default(), &mut all).unwrap();
    let of = |tgid| {
        all.iter().filter(|e| matches!(e, Evidence::Fault(f) if f.tgid == Tgid(tgid))).count()
    };
    assert!(of(more.pid) > 300);
    assert_eq!(of(none.pid), 0);
}
