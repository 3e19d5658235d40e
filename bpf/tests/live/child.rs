//! A forked child that waits for the hooks, makes calls, and leaves their results in shared memory.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// A child that has not begun.
pub(crate) struct Child {
    pub(crate) pid: u32,
    shared: &'static [AtomicU64; WORDS],
}

/// Where the child leaves results; word 0 is the signal to begin.
pub(crate) struct Results(&'static [AtomicU64; WORDS]);

impl Results {
    pub(crate) fn set(&self, at: usize, value: i64) {
        self.0[at + 1].store(value.cast_unsigned(), Ordering::Release);
    }
}

impl Child {
    /// Forks. The child runs `work` when told to, and may only make system calls in it: other threads of the
    /// parent are gone in it, with whatever locks they held.
    pub(crate) fn fork(work: impl FnOnce(&Results)) -> Self {
        // SAFETY: a fresh shared page, kept for the life of the process.
        let shared: &'static [AtomicU64; WORDS] = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let page = libc::mmap(ptr::null_mut(), PAGE, 3, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            &*page.cast()
        };
        // SAFETY: the child makes system calls and nothing else.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            while shared[0].load(Ordering::Acquire) == 0 {
                // SAFETY: a plain system call.
                unsafe { libc::usleep(1000) };
            }
            work(&Results(shared));
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(0) };
        }
        Self { pid: pid.cast_unsigned(), shared }
    }

    pub(crate) fn begin(&self) {
        self.shared[0].store(1, Ordering::Release);
    }

    /// A result; 0 when the child left none.
    pub(crate) fn result(&self, at: usize) -> u64 {
        self.shared[at + 1].load(Ordering::Acquire)
    }

    /// Waits for its end and returns its wait status.
    pub(crate) fn reap(&self) -> i32 {
        let mut status = 0;
        // SAFETY: a child of ours, reaped once.
        unsafe { libc::waitpid(self.pid.cast_signed(), &raw mut status, 0) };
        status
    }
}

/// A system call by the native ABI.
pub(crate) fn call(nr: libc::c_long, args: [i64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    let mut ret = nr;
    // SAFETY: a system call; the callers name only memory of their own.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") ret, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    ret
}

/// A system call by the i386 ABI (`int 0x80`), which a 64-bit program may use too.
pub(crate) fn call_i386(nr: i64, args: [i64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    let mut ret = nr;
    // SAFETY: as above; rbx and rbp, which the compiler keeps, are restored.
    unsafe {
        std::arch::asm!("push rbp", "push rbx", "mov rbx, r8", "mov rbp, r9", "int 0x80", "pop rbx", "pop rbp",
            inlateout("rax") ret, inlateout("r8") a => _, in("rcx") b, in("rdx") c, in("rsi") d, in("rdi") e,
            inlateout("r9") f => _, lateout("r10") _, lateout("r11") _);
    }
    ret
}
