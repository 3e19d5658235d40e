//! The hooks against this kernel: known calls of a child, and exactly the evidence of them.
//!
//! Every test prints why it does not run where BPF cannot be loaded.

mod calls;
mod child;
mod faults;
mod loss;
mod process;
mod regions;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use memprov_bpf::{HookState, HookStatus, Hooks, Mechanism, Options, RawStack, Scope, StackSink};
use memprov_ledger::evidence::{Change, Evidence, Gap, Lifecycle, StackRef, Stream};
use memprov_ledger::identity::{StackId, Tgid};
use memprov_ledger::time::MonoTime;

/// Keeps copies of all stacks.
#[derive(Default)]
struct Stacks(Vec<Copied>);

struct Copied {
    tid: u32,
    sp: u64,
    bytes: Vec<u8>,
    complete: bool,
    compat: bool,
}

impl StackSink for Stacks {
    fn lifecycle(&mut self, _: &Lifecycle) {}

    fn stack(&mut self, raw: &RawStack<'_>) -> StackRef {
        self.0.push(Copied {
            tid: raw.tid,
            sp: raw.regs.sp,
            bytes: raw.bytes.to_vec(),
            complete: raw.complete,
            compat: raw.compat,
        });
        StackRef::Known(StackId(u32::try_from(self.0.len()).expect("few stacks")))
    }
}

/// The mechanisms that load here, or a printed reason for none.
fn mechanisms() -> Vec<Mechanism> {
    static PROBED: OnceLock<Vec<HookStatus>> = OnceLock::new();
    let good: Vec<_> = PROBED
        .get_or_init(memprov_bpf::probe)
        .iter()
        .filter(|s| s.capability == memprov_bpf::Capability::Mapping)
        .inspect(|s| {
            if s.state != HookState::Attached {
                eprintln!("skipping {:?}: {}", s.mechanism, s.reason);
            }
        })
        .filter(|s| s.state == HookState::Attached)
        .map(|s| s.mechanism)
        .collect();
    if good.is_empty() {
        eprintln!("skipped: no mechanism loads here (root and BTF are needed)");
    }
    good
}

/// Options that watch only `tgids` by `mechanism`.
fn only(mechanism: Mechanism, tgids: &[u32]) -> Options {
    let scope = Scope::Only(tgids.iter().copied().map(Tgid).collect());
    Options { mechanism: Some(mechanism), ..Options::new(scope) }
}

/// Polls until evidence of the exit of `tgid` came, or for ten seconds; asserts the laws of every poll.
fn until_exit(hooks: &mut Hooks, tgid: u32, stacks: &mut Stacks) -> Vec<Evidence> {
    let (mut all, mut watermark) = (Vec::new(), MonoTime(0));
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut out = Vec::new();
        let new = hooks.poll(Duration::from_millis(20), stacks, &mut out).expect("poll");
        assert!(new >= watermark, "the watermark went back");
        let ends: Vec<_> = out.iter().map(end).collect();
        assert!(ends.is_sorted(), "not in order of their ends");
        assert!(ends.iter().all(|end| *end >= watermark), "something ended before the watermark");
        watermark = new;
        all.extend(out);
        let exited = changes(&all, tgid).iter().any(|l| l.change == Change::Exit);
        if exited || Instant::now() > deadline {
            return all;
        }
    }
}

fn end(evidence: &Evidence) -> MonoTime {
    match evidence {
        Evidence::Lifecycle(l) => l.when.end,
        Evidence::Fault(f) => f.when.end,
        Evidence::Gap(g) => g.when.end,
        other => panic!("the hooks make no {other:?}"),
    }
}

fn changes(all: &[Evidence], tgid: u32) -> Vec<Lifecycle> {
    let of = |e: &Evidence| match e {
        Evidence::Lifecycle(l) if l.tgid == Tgid(tgid) => Some(l.clone()),
        _ => None,
    };
    all.iter().filter_map(of).collect()
}

/// Gaps of lifecycle events.
fn gaps(all: &[Evidence]) -> Vec<Gap> {
    let of = |e: &Evidence| match e {
        Evidence::Gap(g) if g.stream == Stream::Lifecycle => Some(g.clone()),
        _ => None,
    };
    all.iter().filter_map(of).collect()
}
