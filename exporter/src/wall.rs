//! Wall time, which exists only at export: RFC 3339 instants of monotonic ones.

use memprov_ledger::time::MonoTime;
use memprov_proc::clock;
use rustix::time::{ClockId, clock_gettime};

use crate::trace::Clock;

/// Wall time at the zero of `CLOCK_MONOTONIC`: read once, so that all times of a run agree.
#[must_use]
pub fn clock_of_run() -> Clock {
    let before = clock::now().0;
    let wall = clock_gettime(ClockId::Realtime);
    let after = clock::now().0;
    let wall = i128::from(wall.tv_sec) * 1_000_000_000 + i128::from(wall.tv_nsec);
    let zero = wall - i128::from(before.midpoint(after));
    Clock { wall_at_zero: i64::try_from(zero).unwrap_or(0) }
}

/// Nanoseconds since 1970 of an instant.
#[must_use]
pub fn unix_nanos(clock: Clock, at: MonoTime) -> u64 {
    let nanos = i128::from(clock.wall_at_zero) + i128::from(at.0);
    u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
}

/// An instant as RFC 3339 in UTC with suffix `Z`.
#[must_use]
pub fn rfc3339(clock: Clock, at: MonoTime) -> String {
    let nanos = i128::from(unix_nanos(clock, at));
    // What a u64 of nanoseconds holds ends in the year 2554.
    jiff::Timestamp::from_nanosecond(nanos).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// Nanoseconds since 1970 of an RFC 3339 instant; `None` for another text or an instant before 1970.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::rfc3339;
    use crate::trace::Clock;
    use memprov_ledger::time::MonoTime;

    #[test]
    fn instants_are_those_of_the_calendar() {
        let at = |unix: i64| rfc3339(Clock { wall_at_zero: unix * 1_000_000_000 }, MonoTime(5));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000005Z");
        assert_eq!(at(1_795_980_891), "2026-11-29T19:34:51.000000005Z");
        assert_eq!(super::rfc3339(Clock { wall_at_zero: 0 }, MonoTime(0)), "1970-01-01T00:00:00Z");
    }
}
