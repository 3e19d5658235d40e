//! Where bytes lie and threads ran, as a report tells it.

use std::collections::{BTreeMap, BTreeSet};

use memprov_ledger::book::Row;
use memprov_ledger::evidence::EvidenceClass;
use memprov_ledger::placement::{ByNode, Placement as Known};

use crate::access::locality::Topology;
use crate::access::matrix::{self, Matrix};
use crate::report::{Advice, OnNode, Placement, Quantity, Ran};
use crate::stats::{divide, fraction, wilson};
use crate::trace::Clock;
use crate::wall;

/// Drawn pages that an estimate rests on at least.
const DRAWN: u64 = 20;

/// CPU seconds that shares rest on at least: ticks of 10 ms are all that the kernel counts.
const RAN: f64 = 0.5;

/// What is known of one space, and of the host's nodes.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Of the space.
    pub known: &'a Known,
    /// Of the host.
    pub topology: &'a Topology,
    /// Of the run.
    pub clock: Clock,
}

impl Places<'_> {
    /// On which nodes the resident bytes of an owner lie, whose evidence is `class`; `None` where nobody looked.
    #[must_use]
    pub fn placement(&self, row: &Row, class: EvidenceClass) -> Option<Placement> {
        let (nodes, seen) = row.nodes.as_ref().zip(self.known.newest())?;
        let resident = row.owned.rss();
        let pages: u64 = nodes.drawn.values().sum();
        let told = match pages {
            0 => counted(nodes, resident, class),
            _ => drawn(&nodes.drawn, resident, self.topology),
        };
        let time = self.known.ran().map(|(_, recent)| seconds(&recent)).unwrap_or_default();
        let enough = time.values().sum::<f64>() >= RAN;
        let matrix = matrix(&told, resident, if enough { time } else { BTreeMap::new() });
        let held = nodes.policies.iter().any(|policy| matrix::holds(*policy));
        Some(Placement {
            as_of: wall::rfc3339(self.clock, seen.when.begin),
            nodes: told,
            unplaced: nodes.unplaced,
            policies: nodes.policies.iter().map(|policy| policy.id().to_owned()).collect(),
            shares: shares(&matrix, self.topology),
            advice: matrix
                .advice(self.topology)
                .filter(|_| pages == 0 || pages >= DRAWN)
                .map(|advice| advised(advice, held)),
        })
    }
}

/// Bytes that are known to lie on a node, those of which it is not, and where its process ran.
#[must_use]
pub fn matrix(nodes: &[OnNode], resident: u64, time: BTreeMap<u32, f64>) -> Matrix {
    let least = |of: &Quantity| of.bytes.or(of.lo.filter(|lo| *lo > 0));
    let known = |on: &OnNode| Some((on.node, least(&on.resident)?));
    let bytes: BTreeMap<u32, u64> = nodes.iter().filter_map(known).collect();
    let placed = bytes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    Matrix { bytes, unplaced: resident.saturating_sub(placed), time }
}

fn shares(matrix: &Matrix, topology: &Topology) -> BTreeMap<String, f64> {
    let shares = matrix.shares(topology).unwrap_or_default();
    shares.into_iter().map(|(at, share)| (at.to_owned(), share)).collect()
}

fn advised(advice: matrix::Advice, held: bool) -> Advice {
    match advice {
        matrix::Advice::Move { node, bytes, remote } => Advice {
            what: "move".to_owned(),
            node: Some(node),
            bytes: Some(bytes),
            remote: Some(remote.clamp(0.0, 1.0)),
            against_policy: held,
        },
        matrix::Advice::Shared => {
            Advice { what: "shared".to_owned(), against_policy: held, ..Advice::default() }
        }
        matrix::Advice::Tier => {
            Advice { what: "tier".to_owned(), against_policy: held, ..Advice::default() }
        }
    }
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

/// A sample of its pages: ratio estimates with 95 % intervals that add up to `resident`, withheld when too few were drawn.
/// That none was drawn of a node is no proof that none lies there: of it there is an upper bound only.
fn drawn(pages: &BTreeMap<u32, u64>, resident: u64, topology: &Topology) -> Vec<OnNode> {
    let nodes: BTreeSet<u32> = topology.nodes().chain(pages.keys().copied()).collect();
    let counts: Vec<u64> = nodes.iter().map(|node| pages.get(node).copied().unwrap_or(0)).collect();
    let all = counts.iter().sum();
    let mut estimates = counts.clone();
    divide(resident, &mut estimates);
    let on = |((node, count), estimate): ((u32, u64), u64)| {
        let (lo, hi) = wilson(count, all).unwrap_or((0.0, 1.0));
        let resident = Quantity {
            bytes: (all >= DRAWN && count > 0).then_some(estimate),
            evidence: EvidenceClass::Sampled,
            lo: Some(fraction(resident, lo).min(estimate)),
            hi: Some(fraction(resident, hi).max(estimate)),
        };
        OnNode { node, resident }
    };
    nodes.into_iter().zip(counts).zip(estimates).map(on).collect()
}

/// Where the threads of a process ran; `None` before its second reading.
#[must_use]
pub fn ran(known: &Known) -> Option<Ran> {
    let (when, recent) = known.ran()?;
    Some(Ran {
        seconds: when.end.since(when.begin).as_secs_f64(),
        recent: seconds(&recent),
        total: seconds(known.total()),
    })
}

fn seconds(times: &BTreeMap<u32, u64>) -> BTreeMap<u32, f64> {
    #[expect(clippy::cast_precision_loss, reason = "seconds need no more than 53 bits")]
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    times.iter().map(|(node, nanos)| (*node, seconds(*nanos))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use memprov_ledger::evidence::EvidenceClass;

    use super::{drawn, matrix};
    use crate::access::locality::Topology;
    use crate::report::NumaNode;

    #[test]
    fn an_estimate_lies_in_its_interval_and_few_pages_make_none() {
        let none = Topology::default();
        let told = drawn(&BTreeMap::from([(0, 3000), (1, 1000)]), 1 << 30, &none);
        let (near, far) = (&told[0].resident, &told[1].resident);
        assert_eq!((near.bytes, far.bytes), (Some(3 << 28), Some(1 << 28)));
        let within = |of: &crate::report::Quantity| of.lo < of.bytes && of.bytes < of.hi;
        assert!(within(near) && within(far) && far.evidence == EvidenceClass::Sampled);
        let few = drawn(&BTreeMap::from([(0, 19)]), 1 << 20, &none);
        assert_eq!((few[0].resident.bytes, few[0].resident.hi), (None, Some(1 << 20)));
    }

    #[test]
    fn a_node_of_which_no_page_was_drawn_has_an_upper_bound_and_no_number() {
        let node = |node| NumaNode { node, cpus: 1, distances: Vec::new() };
        let topology = Topology::of(&[node(0), node(1), node(2)]);
        let told = drawn(&BTreeMap::from([(0, 100), (2, 50)]), 1 << 30, &topology);
        assert_eq!(told.iter().map(|on| on.node).collect::<Vec<_>>(), [0, 1, 2]);
        let none = &told[1].resident;
        assert_eq!((none.bytes, none.lo), (None, Some(0)));
        assert!(none.hi.is_some_and(|hi| hi > 0 && hi < 1 << 26), "{none:?}");
        assert!(!matrix(&told, 1 << 30, BTreeMap::new()).bytes.contains_key(&1));
    }

    #[test]
    fn estimates_add_up_to_what_is_resident() {
        for resident in [1, 4096, 5000, 1 << 30] {
            let pages = BTreeMap::from([(0, 10), (1, 10), (2, 10)]);
            let told = drawn(&pages, resident, &Topology::default());
            let sum: u64 = told.iter().filter_map(|on| on.resident.bytes).sum();
            assert_eq!(sum, resident);
        }
    }
}
