//! How snapshots come: every monitor tells them at a tracepoint, or ours is asked for them.

use std::time::Duration;

use memprov_bpf::{HookError, Regions};
use memprov_damon::{Assembler, Event, Region, Snapshot};
use memprov_ledger::time::MonoTime;
use memprov_proc::clock;

use super::own::Own;

/// How long regions may wait to be read: the ring holds a dozen snapshots of the kernel's default size.
const POLL: Duration = Duration::from_millis(200);
/// Of the CPU time that asking took, so many times pass until the next time: a hundredth of one CPU goes to it.
const REST: u32 = 100;
/// Who did not tell is asked again after this.
const AGAIN: Duration = Duration::from_secs(5);

/// Where snapshots come from.
pub(super) enum Told {
    /// A BPF program hears what all monitors say.
    Heard {
        /// The program.
        regions: Box<Regions>,
        /// Snapshots under way.
        assembler: Assembler,
    },
    /// Only our own is asked: it would be to write to another's.
    Asked {
        /// Not before.
        next: MonoTime,
        /// Answers that were not whole.
        lost: u64,
    },
}

impl Told {
    /// Those of all monitors.
    pub(super) fn heard(regions: Regions) -> Self {
        Self::Heard { regions: Box::new(regions), assembler: Assembler::default() }
    }

    /// Those of ours.
    pub(super) fn asked() -> Self {
        Self::Asked { next: MonoTime(0), lost: 0 }
    }

    /// Snapshots that became whole. Waits some tenths of a second for them, or for an aggregation.
    pub(super) fn snapshots(&mut self, own: Option<&mut Own>) -> Result<Vec<Snapshot>, HookError> {
        let mut whole = Vec::new();
        match self {
            Self::Heard { regions, assembler } => {
                regions.poll(POLL, |region| whole.extend(assembler.take(&event(&region))))?;
            }
            Self::Asked { next, lost } => {
                let before = clock::thread_cpu();
                let told = own.filter(|_| clock::now() >= *next).and_then(Own::findings);
                match told {
                    None => std::thread::sleep(POLL),
                    Some(Ok(snapshots)) => whole = snapshots,
                    Some(Err(_)) => {
                        *lost += 1;
                        *next = clock::now().after(AGAIN);
                    }
                }
                let spent = clock::thread_cpu().saturating_sub(before);
                *next = (*next).max(clock::now().after(spent.saturating_mul(REST)));
            }
        }
        Ok(whole)
    }

    /// Snapshots that never became whole, since the start.
    pub(super) fn lost(&self) -> u64 {
        match self {
            Self::Heard { assembler, .. } => assembler.truncated(),
            Self::Asked { lost, .. } => *lost,
        }
    }
}

fn event(region: &memprov_bpf::Region) -> Event {
    let memprov_bpf::Region { when, thread, target, regions, start, end, accesses, age } = *region;
    Event { when, thread, target, regions, region: Region { start, end, accesses, age } }
}
