//! What DAMON found, as its tracepoint tells it to whoever listens.
//!
//! The tracepoint `damon:damon_aggregated` (kernel `include/trace/events/damon.h`) fires once for each region at the end
//! of each aggregation, in the thread of the monitor. Listening changes nothing of the monitor, and ends with us: a
//! BPF link needs no tracefs, and dies with its descriptor.

use std::fmt;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use memprov_ledger::time::MonoTime;

use crate::error::{HookError, LoadError};
use crate::hooks::{now, wait_for, waiter};
use crate::load::{Kernel, failed, keep_log};
use crate::record::{self, region_record, regions_bss};
use crate::ring::Ring;
use crate::skeleton::regions::{RegionsSkel, RegionsSkelBuilder};

/// How long a drain waits for records that are being written.
const PATIENCE: Duration = Duration::from_millis(5);
/// The ring's size in bytes, as the program has it.
const RING: u32 = 1 << 20;
/// The tracepoint's parameters with BPF's own, since Linux 6.3.
const PARAMETERS: usize = 4;

/// One region of one aggregation, as the kernel told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// When it was told.
    pub when: MonoTime,
    /// Thread of the monitor, as the initial pid namespace has it.
    pub thread: u32,
    /// Which of the monitor's targets: their order in its configuration.
    pub target: u32,
    /// How many regions that target has.
    pub regions: u32,
    /// First address, in the monitor's units.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Checks of this aggregation that found it accessed.
    pub accesses: u32,
    /// Aggregations since it last changed.
    pub age: u32,
}

/// An attached listener. Dropping it detaches it.
pub struct Regions {
    ring: Ring,
    wait: OwnedFd,
    /// Dropped in this order: detached, unloaded, and then the memory that the skeleton borrows.
    _link: Link,
    skel: RegionsSkel<'static>,
    _object: Box<MaybeUninit<OpenObject>>,
}

impl fmt::Debug for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regions").finish_non_exhaustive()
    }
}

impl Regions {
    /// Loads and attaches the listener.
    ///
    /// # Errors
    /// The kernel has no DAMON, one of a form that is not known, or refuses.
    pub fn listen() -> Result<Self, LoadError> {
        keep_log();
        let has = match Kernel::read()?.parameters("damon_aggregated") {
            Some(PARAMETERS) => Ok(()),
            Some(_) => Err("this kernel's is of a form from before Linux 6.3"),
            None => Err("this kernel has none"),
        };
        has.map_err(|problem| LoadError::Option { name: "damon_aggregated", problem })?;
        let step = |doing: &str| format!("{doing} the BPF program that listens to DAMON");
        let mut object = Box::new(MaybeUninit::uninit());
        // SAFETY: the box keeps its address when moved, is never touched again except through the skeleton, and is
        // dropped after it (fields drop in order of declaration).
        let storage: &'static mut MaybeUninit<OpenObject> =
            unsafe { mem::transmute::<&mut MaybeUninit<OpenObject>, _>(&mut *object) };
        let open =
            RegionsSkelBuilder::default().open(storage).map_err(|e| failed(step("open"), e))?;
        let skel = open.load().map_err(|e| failed(step("load"), e))?;
        let map = &skel.maps.regions;
        let ring = Ring::new(map.as_fd(), RING)
            .map_err(|source| LoadError::Ring { step: "map a BPF ring", source })?;
        let wait = waiter(&[map])
            .map_err(|source| LoadError::Ring { step: "wait for BPF rings", source })?;
        let link = skel.progs.on_aggregated.attach().map_err(|e| failed(step("attach"), e))?;
        Ok(Self { ring, wait, _link: link, skel, _object: object })
    }

    /// Waits for `timeout`, then hands everything that was told to `each`, in order. Returns the instant up to which it
    /// was: `None` while a record is still being written.
    ///
    /// # Errors
    /// The wait failed.
    pub fn poll(
        &mut self,
        timeout: Duration,
        mut each: impl FnMut(Region),
    ) -> Result<Option<MonoTime>, HookError> {
        wait_for(&self.wait, timeout)?;
        let begun = now();
        let drained = self.ring.drain(PATIENCE, |bytes| {
            if let Some(record) = record::read::<region_record>(bytes) {
                each(region(&record));
            }
        });
        Ok(drained.then_some(begun))
    }

    /// Events that found no room since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let value = self.skel.maps.bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let counters = value.ok().flatten().and_then(|bytes| record::read::<regions_bss>(&bytes));
        counters.map_or(0, |counters| counters.lost)
    }
}

fn region(record: &region_record) -> Region {
    Region {
        when: MonoTime(record.when),
        thread: record.tid,
        target: record.target,
        regions: record.regions,
        start: record.start,
        end: record.end,
        accesses: record.accesses,
        age: record.age,
    }
}
