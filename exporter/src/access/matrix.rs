//! Where an owner's bytes lie against where its process runs, and what would have to move for less of it to be remote.
//!
//! All of it is inferred. It takes accesses to go to all bytes alike, threads to stay where they run, and a node to have
//! room for what moves to it: none of that is measured here.

use std::collections::BTreeMap;

use memprov_ledger::evidence::{Locality, Policy};

use super::locality::Topology;

/// Remote share below which nothing is advised.
const ENOUGH: f64 = 0.1;
/// Bytes below which a move is not worth a line.
const LEAST: u64 = 1 << 20;
/// Points of the remote share that a move has to win to be advised.
const WORTH: f64 = 0.05;

/// One owner. Nodes without an entry have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Bytes by node.
    pub bytes: BTreeMap<u32, u64>,
    /// Bytes of which no node is known.
    pub unplaced: u64,
    /// CPU time by node, in seconds.
    pub time: BTreeMap<u32, f64>,
}

/// What would help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// Bytes of other nodes belong on this one, next to where most of the time is spent.
    Move {
        /// The node.
        node: u32,
        /// Bytes that lie elsewhere.
        bytes: u64,
        /// The remote share then.
        remote: f64,
    },
    /// Time is spent on several nodes: no one of them would be nearer. Threads would have to move, or each node
    /// would need a copy of its own.
    Shared,
    /// Half of it or more lies in memory without CPUs: that is a matter of tiers, not of nodes.
    Tier,
}

impl Matrix {
    /// Time by how far the bytes are ([`Locality::id`]). `None` without bytes or time.
    #[must_use]
    pub fn spread(&self, topology: &Topology) -> Option<BTreeMap<&'static str, f64>> {
        let all = self.bytes.values().fold(self.unplaced, |sum, bytes| sum.saturating_add(*bytes));
        if all == 0 || self.time.values().sum::<f64>() <= 0.0 {
            return None;
        }
        let mut spread = BTreeMap::new();
        for (cpu, time) in &self.time {
            let placed = self.bytes.iter().map(|(page, bytes)| (Some(*page), *bytes));
            let cells = placed.chain([(None, self.unplaced)]).filter(|(_, bytes)| *bytes > 0);
            for (page, bytes) in cells {
                let far = topology.between(Some(*cpu), page).id();
                *spread.entry(far).or_insert(0.0) += time * float(bytes) / float(all);
            }
        }
        Some(spread)
    }

    /// Shares of all the time by how far the bytes are; what is unplaced stays [`Locality::Unknown`]. `None` without bytes
    /// or time.
    #[must_use]
    pub fn shares(&self, topology: &Topology) -> Option<BTreeMap<&'static str, f64>> {
        let mut spread = self.spread(topology)?;
        let all: f64 = spread.values().sum();
        spread.values_mut().for_each(|time| *time = (*time / all).min(1.0));
        Some(spread)
    }

    /// One of [`Self::shares`].
    fn share(&self, topology: &Topology, to: Locality) -> Option<f64> {
        Some(self.shares(topology)?.get(to.id()).copied().unwrap_or(0.0))
    }

    /// What would lower the remote share; `None`: nothing would by much, or it is low as far as it is known. What is
    /// unplaced cannot be moved.
    #[must_use]
    pub fn advice(&self, topology: &Topology) -> Option<Advice> {
        if self.share(topology, Locality::Tier)? >= 0.5 {
            return Some(Advice::Tier);
        }
        let remote = self.share(topology, Locality::Remote)?;
        if remote < ENOUGH {
            return None;
        }
        let placed = self.bytes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let on = |node: &u32| {
            let bytes = BTreeMap::from([(*node, placed)]);
            let there = Self { bytes, unplaced: self.unplaced, time: self.time.clone() };
            Some((*node, there.share(topology, Locality::Remote)?))
        };
        let best = self.time.keys().filter_map(on).min_by(|(_, a), (_, b)| a.total_cmp(b));
        let (node, then) = best?;
        if remote - then < WORTH {
            return Some(Advice::Shared);
        }
        let elsewhere = self.bytes.iter().filter(|(at, _)| **at != node).map(|(_, bytes)| *bytes);
        let bytes = elsewhere.fold(0, u64::saturating_add);
        (bytes >= LEAST).then_some(Advice::Move { node, bytes, remote: then })
    }
}

/// Whether a policy holds pages where they lie: what moves them has to change it first.
#[must_use]
pub fn holds(policy: Policy) -> bool {
    match policy {
        Policy::Bind | Policy::Interleave | Policy::WeightedInterleave => true,
        Policy::Default
        | Policy::Local
        | Policy::Preferred
        | Policy::PreferredMany
        | Policy::Unknown => false,
    }
}

fn float(n: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let float = n as f64;
    float
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::Locality;

    use super::super::locality::Topology;
    use super::{Advice, Matrix};
    use crate::report::NumaNode;

    fn matrix(bytes: &[u64], time: &[f64]) -> Matrix {
        let bytes = (0..).zip(bytes.iter().map(|mib| mib << 20)).collect();
        let time = (0..).zip(time.iter().copied()).filter(|(_, time)| *time > 0.0).collect();
        Matrix { bytes, unplaced: 0, time }
    }

    fn told(bytes: &[u64], time: &[f64]) -> (Option<f64>, Option<Advice>) {
        let (matrix, none) = (matrix(bytes, time), Topology::default());
        (matrix.share(&none, Locality::Remote), matrix.advice(&none))
    }

    #[test]
    fn without_bytes_or_time_nothing_is_said() {
        assert_eq!(told(&[], &[1.0]), (None, None));
        assert_eq!(told(&[5], &[0.0]), (None, None));
        let nowhere = Matrix { unplaced: 7, ..matrix(&[], &[1.0]) };
        assert_eq!(nowhere.share(&Topology::default(), Locality::Unknown), Some(1.0));
        assert_eq!(nowhere.advice(&Topology::default()), None);
    }

    #[test]
    fn time_is_spread_whole_and_what_is_unplaced_is_unknown() {
        let some = Matrix { unplaced: 50 << 20, ..matrix(&[25, 25], &[3.0, 1.0]) };
        let spread = some.spread(&Topology::default()).unwrap();
        let at = |to: Locality| spread.get(to.id()).copied().unwrap_or(0.0);
        assert_eq!((at(Locality::Local), at(Locality::Remote)), (1.0, 1.0));
        assert_eq!(at(Locality::Unknown), 2.0);
        assert_eq!(some.share(&Topology::default(), Locality::Remote), Some(0.25));
    }

    #[test]
    fn a_known_sliver_gives_no_advice_on_the_rest() {
        let sliver = Matrix { unplaced: 990 << 20, ..matrix(&[10, 0], &[0.0, 1.0]) };
        let none = Topology::default();
        assert_eq!(sliver.share(&none, Locality::Remote), Some(0.01));
        assert_eq!(sliver.advice(&none), None);
        let half = Matrix { unplaced: 500 << 20, ..matrix(&[500, 0], &[0.0, 1.0]) };
        let advice = Advice::Move { node: 1, bytes: 500 << 20, remote: 0.0 };
        assert_eq!(half.advice(&none), Some(advice));
        let tier = Matrix { unplaced: 900 << 20, ..matrix(&[0, 100], &[1.0]) };
        let nodes =
            [(0, 1), (1, 0)].map(|(node, cpus)| NumaNode { node, cpus, distances: Vec::new() });
        assert_eq!(tier.advice(&Topology::of(&nodes)), None);
    }

    #[test]
    fn bytes_on_the_wrong_node_are_to_be_moved_to_the_threads() {
        let (remote, advice) = told(&[1000, 0], &[0.0, 1.0]);
        assert_eq!(remote, Some(1.0));
        assert_eq!(advice, Some(Advice::Move { node: 1, bytes: 1000 << 20, remote: 0.0 }));
        assert_eq!(told(&[0, 1000], &[0.0, 1.0]), (Some(0.0), None));
    }

    #[test]
    fn spread_bytes_that_one_node_uses_are_to_be_moved_and_those_all_use_are_not() {
        let (remote, advice) = told(&[100, 102, 98, 100], &[1.0]);
        assert_eq!(remote, Some(0.75));
        assert_eq!(advice, Some(Advice::Move { node: 0, bytes: 300 << 20, remote: 0.0 }));
        assert_eq!(told(&[100; 4], &[1.0; 4]), (Some(0.75), Some(Advice::Shared)));
    }

    #[test]
    fn what_is_near_or_in_a_tier_is_no_matter_of_nodes() {
        let node = |node, cpus, distances: [u32; 3]| {
            let distances = (0..).zip(distances).collect();
            NumaNode { node, cpus, distances }
        };
        let nodes = [node(0, 8, [10, 12, 40]), node(1, 8, [12, 10, 40]), node(2, 0, [40, 40, 10])];
        let topology = Topology::of(&nodes);
        let near = matrix(&[0, 1000], &[1.0]);
        assert_eq!(near.share(&topology, Locality::Near), Some(1.0));
        assert_eq!(near.advice(&topology), None);
        let tier = matrix(&[100, 0, 900], &[1.0]);
        assert_eq!(tier.share(&topology, Locality::Remote), Some(0.0));
        assert_eq!(tier.advice(&topology), Some(Advice::Tier));
    }
}
