//! Calls that change an address space.

use memprov_bpf::{Hooks, Mechanism};
use memprov_ledger::evidence::{Change, MapFlags, StackRef};
use memprov_ledger::identity::{Extent, StackId};

use crate::child::{Child, Results, call, call_i386};
use crate::{Stacks, changes, mechanisms, only, until_exit};

const RW: i64 = 3;
const ANON: i64 = 0x22;
const FIXED: i64 = 0x32;
const P: u64 = 4096;
const I: i64 = 4096;
/// A word on the stack of the call that maps first.
const SENTINEL: u64 = 0x5eed_0fa1_1ca7_0001;

fn map(addr: i64, len: i64, prot: i64, flags: i64) -> i64 {
    call(libc::SYS_mmap, [addr, len, prot, flags, -1, 0])
}

/// The known list of calls. Results that the list of records depends on go to words 0 and up.
fn work(results: &Results) {
    let sentinel = std::hint::black_box([SENTINEL; 4]);
    // 0: an ordinary mapping of 4 pages and a bit.
    let a = map(0, 4 * I + 1, RW, ANON);
    std::hint::black_box(&sentinel);
    results.set(0, a);
    // Fails, changes nothing: no record.
    map(0, 0, RW, ANON);
    map(a, I, RW, ANON | 0x10_0000);
    // Over one page of it.
    map(a + I, I, 0, FIXED | 0x4000);
    // Fails with MAP_FIXED: length wraps.
    results.set(1, map(a, i64::MAX & !0xfff, RW, FIXED));
    // Shrinks, grows in place or not, moves with MREMAP_FIXED.
    let b = map(0, 8 * I, RW, ANON);
    call(libc::SYS_mremap, [b, 8 * I, 2 * I, 0, 0, 0]);
    let c = call(libc::SYS_mremap, [b, 2 * I, 64 * I, 1, 0, 0]);
    let hole = map(0, 64 * I, 0, ANON);
    let d = call(libc::SYS_mremap, [c, 64 * I, 64 * I, 3, hole, 0]);
    results.set(2, b);
    results.set(3, c);
    results.set(4, hole);
    results.set(5, d);
    // Fails: the old range is not mapped. And with MREMAP_FIXED, where both are in doubt.
    call(libc::SYS_mremap, [I, I, 2 * I, 0, 0, 0]);
    call(libc::SYS_mremap, [I, I, 2 * I, 3, hole, 0]);
    // A second mapping of a shared object (old size 0).
    let s = map(0, 2 * I, RW, 0x21);
    let t = call(libc::SYS_mremap, [s, 0, 2 * I, 1, 0, 0]);
    results.set(6, s);
    results.set(7, t);
    // Fails: not at a page.
    call(libc::SYS_munmap, [a + 1, I, 0, 0, 0, 0]);
    call(libc::SYS_munmap, [a, 5 * I - 1, 0, 0, 0, 0]);
    // brk: asked, up by a bit, up, down, and to where it is.
    let old = call(libc::SYS_brk, [0; 6]);
    call(libc::SYS_brk, [old + 10, 0, 0, 0, 0, 0]);
    call(libc::SYS_brk, [old + 3 * I, 0, 0, 0, 0, 0]);
    call(libc::SYS_brk, [old + 3 * I, 0, 0, 0, 0, 0]);
    call(libc::SYS_brk, [old, 0, 0, 0, 0, 0]);
    results.set(8, old);
    // SysV memory.
    let id = call(libc::SYS_shmget, [0, 4 * I, 0o1600, 0, 0, 0]);
    let at = call(libc::SYS_shmat, [id, 0, 0, 0, 0, 0]);
    call(libc::SYS_shmat, [id, at, libc::SHM_REMAP.into(), 0, 0, 0]);
    call(libc::SYS_shmctl, [id, 0, 0, 0, 0, 0]);
    call(libc::SYS_shmdt, [at, 0, 0, 0, 0, 0]);
    call(libc::SYS_shmdt, [at, 0, 0, 0, 0, 0]);
    call(libc::SYS_shmat, [-1, 0, 0, 0, 0, 0]);
    results.set(9, at);
    // Names, where the kernel has them: short, too long for a record, none; and another prctl.
    let long = c"a name that is longer than what fits in one record of the ring";
    let name = |name: *const libc::c_char| {
        call(libc::SYS_prctl, [0x5356_4d41, 0, hole, 3 * I - 1, name as i64, 0])
    };
    results.set(10, name(c"arena one".as_ptr()));
    name(long.as_ptr());
    name(std::ptr::null());
    call(libc::SYS_prctl, [libc::PR_GET_NAME.into(), 0, 0, 0, 0, 0]);
}

/// The same by `int 0x80`.
fn work_i386(results: &Results) {
    let low = map(0, I, RW, ANON | 0x40);
    let a = call_i386(192, [0, 2 * I + 1, RW, ANON, -1, 0]);
    results.set(0, low);
    results.set(1, a);
    // Old mmap reads its arguments from memory below 4 GiB, as ipc writes its result there.
    let words = low as *mut [u32; 6];
    // SAFETY: the page is mapped and writable.
    unsafe { *words = [0, 4096, 3, 0x22, u32::MAX, 0] };
    let b = call_i386(90, [low, 0, 0, 0, 0, 0]);
    results.set(2, b);
    let c = call_i386(163, [a, 3 * I, 5 * I, 1, 0, 0]);
    results.set(3, c);
    call_i386(91, [b, I, 0, 0, 0, 0]);
    let id = call(libc::SYS_shmget, [0, I, 0o1600, 0, 0, 0]);
    call_i386(117, [21, id, 0, low, 0, 0]);
    // SAFETY: as above.
    let at = unsafe { (*words)[0] };
    call_i386(117, [21, id, libc::SHM_REMAP.into(), low, at.into(), 0]);
    call(libc::SYS_shmctl, [id, 0, 0, 0, 0, 0]);
    call_i386(117, [22, 0, 0, 0, at.into(), 0]);
    results.set(4, at.into());
}

const KNOWN: StackRef = StackRef::Known(StackId(0));

/// Changes with all known stacks made equal.
fn equalised(changes: Vec<memprov_ledger::evidence::Lifecycle>) -> Vec<Change> {
    let equal = |stack: &mut StackRef| {
        if matches!(stack, StackRef::Known(_)) {
            *stack = KNOWN;
        }
    };
    changes
        .into_iter()
        .map(|mut l| {
            match &mut l.change {
                Change::Map { stack, .. }
                | Change::Remap { stack, .. }
                | Change::Brk { stack, .. }
                | Change::Attach { stack, .. } => equal(stack),
                _ => {}
            }
            assert!(l.when.begin <= l.when.end);
            l.change
        })
        .collect()
}

fn pages(start: u64, pages: u64) -> Extent {
    Extent::new(start, pages * P)
}

fn anon() -> MapFlags {
    MapFlags { anonymous: true, ..MapFlags::default() }
}

fn mapped(start: u64, n: u64, flags: MapFlags) -> Change {
    Change::Map { extent: pages(start, n), flags, stack: KNOWN }
}

fn expected(child: &Child) -> Vec<Change> {
    let r = |at| child.result(at);
    let (a, b, c, hole, d, s, t) = (r(0), r(2), r(3), r(4), r(5), r(6), r(7));
    let (brk, shm) = (r(8), r(9));
    let remap = |from, to, fixed, stack| Change::Remap { from, to, keep: false, fixed, stack };
    let doubt = |extent| Change::Doubt { extent };
    let none = MapFlags { inaccessible: true, ..anon() };
    let mut list = vec![
        mapped(a, 5, anon()),
        mapped(a + P, 1, MapFlags { fixed: true, noreserve: true, ..none }),
        doubt(Extent { start: a, end: a + (i64::MAX as u64 & !0xfff) }),
        mapped(b, 8, anon()),
        remap(pages(b, 8), pages(b, 2), false, StackRef::None),
        remap(pages(b, 2), pages(c, 64), false, KNOWN),
        mapped(hole, 64, none),
        remap(pages(c, 64), pages(d, 64), true, KNOWN),
        doubt(pages(P, 1)),
        doubt(pages(P, 1)),
        doubt(pages(hole, 2)),
        mapped(s, 2, MapFlags { shared: true, ..anon() }),
        remap(Extent { start: s, end: s }, pages(t, 2), false, KNOWN),
        doubt(Extent { start: a, end: a + 2 * P }),
        Change::Unmap { extent: pages(a, 5) },
        Change::Brk { old: brk, new: brk + 10, stack: KNOWN },
        Change::Brk { old: brk + 10, new: brk + 3 * P, stack: KNOWN },
        Change::Brk { old: brk + 3 * P, new: brk, stack: StackRef::None },
        Change::Attach { at: shm, replaces: false, stack: KNOWN },
        Change::Attach { at: shm, replaces: true, stack: KNOWN },
        Change::Detach { at: shm },
    ];
    if r(10) == 0 {
        let extent = pages(hole, 3);
        list.push(Change::Name { extent, name: Some("arena one".into()) });
        list.push(doubt(extent));
        list.push(Change::Name { extent, name: None });
    } else {
        eprintln!("no named anonymous memory in this kernel: names are not checked");
    }
    list.push(Change::Exit);
    list
}

#[test]
fn live_known_calls_become_exactly_their_records() {
    for mechanism in mechanisms() {
        let child = Child::fork(work);
        let mut hooks = Hooks::load(&only(mechanism, &[child.pid])).unwrap();
        child.begin();
        let mut stacks = Stacks::default();
        let all = until_exit(&mut hooks, child.pid, &mut stacks);
        assert_eq!(child.reap(), 0);
        let seen = equalised(changes(&all, child.pid));
        assert_eq!(seen, expected(&child), "{mechanism:?}");
        assert_eq!(hooks.losses(), memprov_bpf::Losses::default());

        let first = &stacks.0[0];
        assert_eq!(first.tid, child.pid);
        assert!(!first.compat);
        let words = first.bytes.as_chunks::<8>().0;
        let word = SENTINEL.to_ne_bytes();
        assert!(words.contains(&word), "{mechanism:?}: the caller's frame is not in its stack");
        assert_eq!(first.sp % 8, 0);
        assert!(first.complete || first.bytes.len() == 8192);
    }
}

#[test]
fn live_calls_by_the_i386_abi_are_decoded_by_it() {
    for mechanism in mechanisms().into_iter().filter(|m| *m != Mechanism::Tp) {
        let child = Child::fork(work_i386);
        let mut hooks = Hooks::load(&only(mechanism, &[child.pid])).unwrap();
        child.begin();
        let all = until_exit(&mut hooks, child.pid, &mut Stacks::default());
        let status = child.reap();
        let r = |at| child.result(at);
        if status != 0 || r(1).cast_signed() < 0 {
            eprintln!("skipped: no int 0x80 in this kernel (status {status:x}, {:x})", r(1));
            continue;
        }
        let expected = vec![
            mapped(r(0), 1, anon()),
            mapped(r(1), 3, anon()),
            mapped(r(2), 1, anon()),
            Change::Remap {
                from: pages(r(1), 3),
                to: pages(r(3), 5),
                keep: false,
                fixed: false,
                stack: KNOWN,
            },
            Change::Unmap { extent: pages(r(2), 1) },
            Change::Attach { at: r(4), replaces: false, stack: KNOWN },
            Change::Attach { at: r(4), replaces: true, stack: KNOWN },
            Change::Detach { at: r(4) },
            Change::Exit,
        ];
        assert_eq!(equalised(changes(&all, child.pid)), expected, "{mechanism:?}");
    }
}
