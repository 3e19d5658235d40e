//! The clocks that readings are stamped and compared with.

use std::time::Duration;

use memprov_ledger::identity::StartTicks;
use memprov_ledger::time::MonoTime;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of a tick of `/proc/PID/stat`: `USER_HZ` is 100 on every architecture memprov runs on.
pub const TICK_NANOS: u64 = 10_000_000;

/// Now, on `CLOCK_MONOTONIC`.
#[must_use]
pub fn now() -> MonoTime {
    MonoTime(nanos(clock_gettime(ClockId::Monotonic)))
}

/// CPU time that the calling thread has used.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// The start tick of a task whose `start_boottime` is `nanos` (kernel `nsec_to_clock_t`: rounded down).
#[must_use]
pub fn ticks_of_boottime(nanos: u64) -> StartTicks {
    StartTicks(nanos / TICK_NANOS)
}

/// How far `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`: the time that the machine was suspended.
#[must_use]
pub fn suspended() -> Duration {
    let monotonic = nanos(clock_gettime(ClockId::Monotonic));
    let boot = nanos(clock_gettime(ClockId::Boottime));
    Duration::from_nanos(boot.saturating_sub(monotonic))
}

/// The earliest instant at which a process with this start tick can have begun, `suspended` being [`suspended`]. It
/// began within [`TICK_NANOS`] of it, unless the machine was suspended since.
#[must_use]
pub fn began(start: StartTicks, suspended: Duration) -> MonoTime {
    let gap = u64::try_from(suspended.as_nanos()).unwrap_or(u64::MAX);
    MonoTime(start.0.saturating_mul(TICK_NANOS).saturating_sub(gap))
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memprov_ledger::identity::StartTicks;
    use memprov_ledger::time::MonoTime;

    use super::{began, ticks_of_boottime};

    #[test]
    fn ticks_are_rounded_down_as_the_kernel_does() {
        assert_eq!(ticks_of_boottime(19_999_999), StartTicks(1));
        assert_eq!(ticks_of_boottime(20_000_000), StartTicks(2));
    }

    #[test]
    fn a_start_lies_earlier_on_the_clock_that_stops_in_suspend() {
        assert_eq!(began(StartTicks(100), Duration::from_millis(400)), MonoTime(600_000_000));
        assert_eq!(began(StartTicks(1), Duration::from_secs(1)), MonoTime(0));
    }
}
