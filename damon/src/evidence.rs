//! From a snapshot to evidence.

use std::sync::Arc;

use memprov_ledger::evidence::{self, Activity};
use memprov_ledger::identity::Extent;
use memprov_ledger::time::{MonoTime, Span};

use crate::aggregate::Snapshot;
use crate::monitor::Monitor;

/// Why a snapshot is no evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The monitor has no such target by now: its configuration changed.
    #[error("the monitor has no target {0}")]
    Target(u32),
    /// It contradicts itself, or what the monitor's files say.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// What `snapshot`, by the thread of `monitor`, says.
///
/// # Errors
/// It fits the monitor's configuration no more.
pub fn activity(snapshot: &Snapshot, monitor: &Monitor) -> Result<Activity, Unusable> {
    let index = usize::try_from(snapshot.target).unwrap_or(usize::MAX);
    let target = monitor.targets.get(index).ok_or(Unusable::Target(snapshot.target))?;
    let aggregation = u64::try_from(monitor.aggregation.as_nanos()).unwrap_or(u64::MAX);
    // Tuned intervals are not in the files: the time between two tellings is one.
    let begin = match snapshot.since.filter(|_| monitor.tuned) {
        Some(since) => since.min(snapshot.when.begin),
        None => MonoTime(snapshot.when.begin.0.saturating_sub(aggregation)),
    };
    let scaled = |address: u64| address.checked_mul(monitor.unit);
    let regions: Option<Arc<[evidence::Region]>> = snapshot
        .regions
        .iter()
        .map(|region| {
            let extent = Extent { start: scaled(region.start)?, end: scaled(region.end)? };
            Some(evidence::Region { extent, hits: region.accesses, age: region.age })
        })
        .collect();
    let activity = Activity {
        when: Span { begin, end: snapshot.when.end },
        monitor: monitor.thread,
        tgid: *target,
        checks: monitor.checks(),
        regions: regions.ok_or(Unusable::Contradiction("an address beyond 64 bits"))?,
    };
    activity.fault().map_or(Ok(activity), |fault| Err(Unusable::Contradiction(fault)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memprov_ledger::identity::{Extent, Tgid};
    use memprov_ledger::time::{MonoTime, Span};

    use super::{Unusable, activity};
    use crate::aggregate::{Region, Snapshot};
    use crate::monitor::{Monitor, Operations};

    fn monitor(unit: u64) -> Monitor {
        Monitor {
            index: 0,
            thread: 71,
            operations: Operations::Paddr,
            sample: Duration::from_millis(5),
            aggregation: Duration::from_millis(100),
            tuned: false,
            unit,
            targets: vec![None],
        }
    }

    fn snapshot(target: u32, end: u64, accesses: u32) -> Snapshot {
        let when = Span { begin: MonoTime(200_000_000), end: MonoTime(201_000_000) };
        let regions = vec![Region { start: 16, end, accesses, age: 4 }];
        Snapshot { thread: 71, target, when, since: Some(MonoTime(7)), regions }
    }

    #[test]
    fn addresses_are_bytes_and_the_span_is_that_of_the_checks() {
        let said = activity(&snapshot(0, 32, 20), &monitor(4096)).unwrap();
        assert_eq!(said.when, Span { begin: MonoTime(100_000_000), end: MonoTime(201_000_000) });
        assert_eq!(said.regions[0].extent, Extent { start: 16 * 4096, end: 32 * 4096 });
        assert_eq!((said.checks, said.regions[0].hits, said.monitor), (20, 20, 71));
        assert_eq!(said.tgid, None);
        let tuned = Monitor { tuned: true, ..monitor(1) };
        assert_eq!(activity(&snapshot(0, 32, 20), &tuned).unwrap().when.begin, MonoTime(7));
        let mut process = monitor(1);
        process.targets = vec![None, Some(Tgid(7))];
        assert_eq!(activity(&snapshot(1, 32, 0), &process).unwrap().tgid, Some(Tgid(7)));
    }

    #[test]
    fn what_does_not_fit_the_configuration_claims_nothing() {
        assert_eq!(activity(&snapshot(1, 32, 0), &monitor(1)), Err(Unusable::Target(1)));
        let more = activity(&snapshot(0, 32, 21), &monitor(1));
        assert_eq!(more, Err(Unusable::Contradiction("more hits than checks")));
        let beyond = activity(&snapshot(0, u64::MAX, 1), &monitor(4096));
        assert_eq!(beyond, Err(Unusable::Contradiction("an address beyond 64 bits")));
    }
}
