//! The clock of all events: `CLOCK_MONOTONIC`.

use std::time::Duration;

use memprov_ledger::time::MonoTime;
use rustix::time::{ClockId, clock_gettime};

/// How long after its time a record is in its ring at the latest, unless the CPU itself was stopped.
pub(crate) const SETTLED: Duration = Duration::from_millis(5);

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn read(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

pub(crate) fn now() -> MonoTime {
    MonoTime(nanos(read(ClockId::Monotonic)))
}

/// How long the host was suspended since boot.
pub(crate) fn suspended() -> Duration {
    let awake = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(awake)
}
