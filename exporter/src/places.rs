//! Where bytes lie and threads ran, as a report tells it.

use std::collections::BTreeMap;

use memprov_ledger::book::Row;
use memprov_ledger::evidence::EvidenceClass;
use memprov_ledger::placement::{ByNode, Placement as Known};

use crate::report::{OnNode, Placement, Quantity, Ran};
use crate::stats::{fraction, scale, wilson};
use crate::trace::Clock;
use crate::wall;

/// Drawn pages that an estimate rests on at least.
const DRAWN: u64 = 20;

/// On which nodes the resident bytes of an owner lie, whose evidence is `class`; `None` where nobody looked.
#[must_use]
pub fn placement(
    row: &Row,
    known: &Known,
    class: EvidenceClass,
    clock: Clock,
) -> Option<Placement> {
    let (nodes, seen) = row.nodes.as_ref().zip(known.newest())?;
    let resident = row.owned.rss();
    let told = if nodes.drawn.is_empty() {
        counted(nodes, resident, class)
    } else {
        drawn(&nodes.drawn, resident)
    };
    Some(Placement {
        as_of: wall::rfc3339(clock, seen.when.begin),
        nodes: told,
        unplaced: nodes.unplaced,
        policies: nodes.policies.iter().map(|policy| policy.id().to_owned()).collect(),
    })
}

/// Counts of ranges: a number where the bounds leave one, exact where nothing moved meanwhile.
fn counted(nodes: &ByNode, resident: u64, class: EvidenceClass) -> Vec<OnNode> {
    let on = |(node, lo, hi)| {
        let one = lo == hi;
        let evidence = if one && nodes.still { class } else { class.max(EvidenceClass::Inferred) };
        let bounds = evidence != EvidenceClass::Exact;
        let resident = Quantity {
            bytes: one.then_some(lo),
            evidence,
            lo: bounds.then_some(lo),
            hi: bounds.then_some(hi),
        };
        OnNode { node, resident }
    };
    nodes.bounds(resident).map(on).collect()
}

/// A sample of its pages: ratio estimates with 95 % intervals, withheld when too few were drawn.
fn drawn(pages: &BTreeMap<u32, u64>, resident: u64) -> Vec<OnNode> {
    let all = pages.values().sum();
    let on = |(node, pages): (&u32, &u64)| {
        let (lo, hi) = wilson(*pages, all).unwrap_or((0.0, 1.0));
        let estimate = scale(resident, *pages, all);
        let resident = Quantity {
            bytes: (all >= DRAWN).then_some(estimate),
            evidence: EvidenceClass::Sampled,
            lo: Some(fraction(resident, lo).min(estimate)),
            hi: Some(fraction(resident, hi).max(estimate)),
        };
        OnNode { node: *node, resident }
    };
    pages.iter().map(on).collect()
}

/// Where the threads of a process ran; `None` before its second reading.
#[must_use]
pub fn ran(known: &Known) -> Option<Ran> {
    let (when, recent) = known.ran()?;
    let seconds = |times: &BTreeMap<u32, u64>| {
        #[expect(clippy::cast_precision_loss, reason = "seconds need no more than 53 bits")]
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        times.iter().map(|(node, nanos)| (*node, seconds(*nanos))).collect()
    };
    Some(Ran {
        seconds: when.end.since(when.begin).as_secs_f64(),
        recent: seconds(&recent),
        total: seconds(known.total()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use memprov_ledger::evidence::EvidenceClass;

    use super::drawn;

    #[test]
    fn an_estimate_lies_in_its_interval_and_few_pages_make_none() {
        let told = drawn(&BTreeMap::from([(0, 3000), (1, 1000)]), 1 << 30);
        let (near, far) = (&told[0].resident, &told[1].resident);
        assert_eq!((near.bytes, far.bytes), (Some(3 << 28), Some(1 << 28)));
        let within = |of: &crate::report::Quantity| of.lo < of.bytes && of.bytes < of.hi;
        assert!(within(near) && within(far) && far.evidence == EvidenceClass::Sampled);
        let few = drawn(&BTreeMap::from([(0, 19)]), 1 << 20);
        assert_eq!((few[0].resident.bytes, few[0].resident.hi), (None, Some(1 << 20)));
    }
}
