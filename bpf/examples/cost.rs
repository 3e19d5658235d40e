//! What the hooks add to a pair of mmap and munmap, and to a call that is not watched: `cost [--fentry|--tp] [ROUNDS]`.
//!
//! Every round forks a fresh child for each way, so that budgets are full and drift hits all ways alike; medians and the
//! differences to no hooks are printed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use memprov_bpf::{Hooks, Inject, Mechanism, Options, RawStack, Scope, StackSink};
use memprov_ledger::evidence::{Lifecycle, StackRef};
use memprov_ledger::identity::Tgid;

const PAIRS: u32 = 20_000;

struct Drop;

impl StackSink for Drop {
    fn lifecycle(&mut self, _: &Lifecycle) {}

    fn stack(&mut self, _: &RawStack<'_>) -> StackRef {
        StackRef::Lost
    }
}

#[derive(Clone, Copy)]
enum Way {
    NoHooks,
    NotSelected,
    WithoutStack,
    WithStack,
}

/// Of this thread, so that other work on the machine costs caches only.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn per_call(calls: u32, call: impl Fn()) -> f64 {
    let begin = cpu_time();
    for _ in 0..calls {
        call();
    }
    (cpu_time() - begin).as_nanos() as f64 / f64::from(calls)
}

fn pair() {
    // SAFETY: a fresh mapping that is gone again at once.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, 3, flags, -1, 0);
        libc::munmap(page, 4096);
    }
}

fn getppid() {
    // SAFETY: takes nothing, changes nothing.
    unsafe { libc::getppid() };
}

/// Nanoseconds of a pair and of a getppid, as a child has them, and what it lost.
fn measure(way: Way, mechanism: Mechanism) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    // SAFETY: the process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut go = [0];
        theirs.read_exact(&mut go)?;
        // A stack of some depth, as a real program has it.
        let deep = std::hint::black_box([1u8; 6000]);
        let times = [per_call(PAIRS, pair), per_call(PAIRS * 4, getppid)];
        std::hint::black_box(deep);
        theirs.write_all(&times[0].to_ne_bytes())?;
        theirs.write_all(&times[1].to_ne_bytes())?;
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let child = Tgid(pid.cast_unsigned());
    let selected = if matches!(way, Way::NotSelected) { vec![] } else { vec![child] };
    let stacks = if matches!(way, Way::WithoutStack) { 1.0 } else { 0.0 };
    let options = Options {
        mechanism: Some(mechanism),
        lifecycle_ring: 8 << 20,
        stack_ring: 256 << 20,
        inject: Inject { stacks, ..Inject::default() },
        ..Options::new(Scope::Only(selected))
    };
    let hooks = if matches!(way, Way::NoHooks) { None } else { Some(Hooks::load(&options)?) };
    ours.write_all(&[1])?;
    let mut times = [[0; 8]; 2];
    ours.read_exact(&mut times[0])?;
    ours.read_exact(&mut times[1])?;
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    if let Some(mut hooks) = hooks {
        let mut out = Vec::new();
        hooks.poll(Duration::ZERO, &mut Drop, &mut out)?;
        let losses = hooks.losses();
        if losses.lifecycle > 0 || matches!(way, Way::WithStack) && losses.stacks > 0 {
            println!("lost: {losses:?}");
        }
    }
    Ok((f64::from_ne_bytes(times[0]), f64::from_ne_bytes(times[1])))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut mechanism, mut rounds) = (Mechanism::TpBtf, 15);
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--fentry" => mechanism = Mechanism::Fentry,
            "--tp" => mechanism = Mechanism::Tp,
            _ => rounds = arg.parse()?,
        }
    }
    let ways = [
        ("no hooks", Way::NoHooks),
        ("not selected", Way::NotSelected),
        ("without stack", Way::WithoutStack),
        ("with stack", Way::WithStack),
    ];
    let mut seen = vec![(Vec::new(), Vec::new()); ways.len()];
    for _ in 0..rounds {
        for ((_, way), (pairs, others)) in ways.iter().zip(&mut seen) {
            let (pair, other) = measure(*way, mechanism)?;
            pairs.push(pair);
            others.push(other);
        }
    }
    let mut base = None;
    for ((name, _), (pairs, others)) in ways.iter().zip(seen) {
        let (pair, other) = (median(pairs), median(others));
        let (first_pair, first_other) = *base.get_or_insert((pair, other));
        println!(
            "{name:14} pair {pair:6.0} ns ({:+5.0})   getppid {other:4.0} ns ({:+4.0})",
            pair - first_pair,
            other - first_other
        );
    }
    Ok(())
}
