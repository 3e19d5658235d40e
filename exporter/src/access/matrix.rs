//! Where an owner's bytes lie against where its accesses come from, and what would have to move for fewer to be remote.
//!
//! The advice is inferred. It assumes that accesses go to all bytes of an owner alike, that threads stay where they run,
//! and that there is room on the node that gets the bytes: none of it is measured here.

use std::collections::BTreeMap;

use memprov_ledger::evidence::Locality;

use super::locality::Topology;

/// Share of all bytes by which each node's may differ from an equal part where pages are interleaved.
const EVEN: f64 = 0.1;
/// Remote share below which nothing is advised.
const ENOUGH: f64 = 0.1;
/// Points of the remote share that a move has to win to be advised.
const WORTH: f64 = 0.05;

/// One owner: bytes by the node they lie on, and access time by the node it comes from. Nodes without an entry have
/// none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Bytes.
    pub bytes: BTreeMap<u32, u64>,
    /// Time, by node of the CPU.
    pub time: BTreeMap<u32, f64>,
}

/// How an owner's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Alike on several nodes: interleaved, or touched first by threads of all nodes.
    Interleaved,
    /// On one node: bound, or touched first by one thread.
    OnOne(u32),
    /// In a tier, at least half of it.
    InTier,
    /// Otherwise.
    Mixed,
}

/// What would help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// Bytes of other nodes belong on this one, where most of the time comes from.
    MoveTo {
        /// The node.
        node: u32,
        /// Bytes that lie elsewhere.
        bytes: u64,
        /// The remote share then.
        remote: f64,
    },
    /// Time comes from several nodes alike: no place is near to all of them. The threads would have to move, or each node
    /// would need its own copy.
    Shared,
    /// What is far lies in a tier: that is a matter of the tier's size, not of nodes.
    Tier,
}

/// What the pieces say together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// How the bytes lie.
    pub lies: Lies,
    /// Share of the time that goes to a remote node, if accesses go to all bytes alike.
    pub remote: f64,
    /// What would lower it; `None`: nothing would by much, or it is low.
    pub advice: Option<Advice>,
}

impl Matrix {
    /// Share of the time that goes as far as `to`, if accesses go to all bytes alike. `None` without bytes or time.
    #[must_use]
    pub fn share(&self, topology: &Topology, to: Locality) -> Option<f64> {
        let (bytes, time) = (self.all_bytes(), self.time.values().sum::<f64>());
        let cells = self.bytes.iter().flat_map(|(page, bytes)| {
            self.time.iter().map(move |(cpu, time)| (*cpu, *page, float(*bytes) * time))
        });
        let far = cells.filter(|(cpu, page, _)| topology.between(Some(*cpu), Some(*page)) == to);
        (bytes > 0.0 && time > 0.0).then(|| far.map(|(_, _, w)| w).sum::<f64>() / bytes / time)
    }

    /// What the pieces say. `None` without bytes or time.
    #[must_use]
    pub fn placement(&self, topology: &Topology) -> Option<Placement> {
        let remote = self.share(topology, Locality::Remote)?;
        let tier = self.share(topology, Locality::Tier)?;
        let lies = self.lies(tier);
        let advice = match (lies, self.best(topology)) {
            (Lies::InTier, _) => Some(Advice::Tier),
            _ if remote < ENOUGH => None,
            (_, Some(Advice::MoveTo { remote: then, .. })) if remote - then < WORTH => {
                Some(Advice::Shared)
            }
            (_, best) => best,
        };
        Some(Placement { lies, remote, advice })
    }

    /// The node with CPUs on which all bytes would be nearest.
    fn best(&self, topology: &Topology) -> Option<Advice> {
        let on = |node: u32| Self { bytes: BTreeMap::from([(node, 1)]), time: self.time.clone() };
        let remote = |node: &u32| Some((*node, on(*node).share(topology, Locality::Remote)?));
        let (node, remote) =
            self.time.keys().filter_map(remote).min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let bytes = self.bytes.iter().filter(|(at, _)| **at != node).map(|(_, bytes)| bytes);
        Some(Advice::MoveTo { node, bytes: bytes.fold(0, |a, b| a.saturating_add(*b)), remote })
    }

    fn lies(&self, tier: f64) -> Lies {
        let all = self.all_bytes();
        let parts = self.bytes.iter().map(|(node, bytes)| (*node, float(*bytes) / all));
        let parts: Vec<(u32, f64)> = parts.filter(|(_, part)| *part > 0.0).collect();
        let equal = 1.0 / float(u64::try_from(parts.len()).unwrap_or(u64::MAX));
        match parts.as_slice() {
            _ if tier >= 0.5 => Lies::InTier,
            several
                if several.len() > 1
                    && several.iter().all(|(_, p)| (p - equal).abs() < EVEN * equal) =>
            {
                Lies::Interleaved
            }
            _ => match parts.iter().find(|(_, part)| *part >= 1.0 - EVEN) {
                Some((node, _)) => Lies::OnOne(*node),
                None => Lies::Mixed,
            },
        }
    }

    fn all_bytes(&self) -> f64 {
        self.bytes.values().map(|bytes| float(*bytes)).sum()
    }
}

fn float(n: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let float = n as f64;
    float
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::locality::{Node, Topology};
    use super::{Advice, Lies, Matrix};

    fn matrix(bytes: &[u64], time: &[f64]) -> Matrix {
        Matrix {
            bytes: (0..).zip(bytes.iter().copied()).collect(),
            time: (0..).zip(time.iter().copied()).collect(),
        }
    }

    fn told(bytes: &[u64], time: &[f64]) -> (Lies, f64, Option<Advice>) {
        let told = matrix(bytes, time).placement(&Topology::default()).unwrap();
        (told.lies, told.remote, told.advice)
    }

    #[test]
    fn without_bytes_or_time_nothing_is_said() {
        assert_eq!(matrix(&[], &[1.0]).placement(&Topology::default()), None);
        assert_eq!(matrix(&[5], &[0.0]).placement(&Topology::default()), None);
    }

    #[test]
    fn bytes_on_the_wrong_node_are_to_be_moved_to_the_threads() {
        let (lies, remote, advice) = told(&[1000, 0], &[0.0, 1.0]);
        assert_eq!((lies, remote), (Lies::OnOne(0), 1.0));
        assert_eq!(advice, Some(Advice::MoveTo { node: 1, bytes: 1000, remote: 0.0 }));
    }

    #[test]
    fn interleaved_bytes_that_one_node_uses_are_to_be_moved_and_those_all_use_are_not() {
        let (lies, remote, advice) = told(&[100, 102, 98, 100], &[1.0, 0.0, 0.0, 0.0]);
        assert_eq!((lies, remote), (Lies::Interleaved, 0.75));
        assert_eq!(advice, Some(Advice::MoveTo { node: 0, bytes: 300, remote: 0.0 }));
        let (lies, remote, advice) = told(&[100; 4], &[1.0; 4]);
        assert_eq!((lies, remote, advice), (Lies::Interleaved, 0.75, Some(Advice::Shared)));
    }

    #[test]
    fn what_is_near_or_in_a_tier_is_no_matter_of_nodes() {
        assert_eq!(told(&[1000, 10], &[1.0, 0.0]).2, None);
        let node = |package, memory_only| Node { package, memory_only };
        let clusters = BTreeMap::from([(0, node(Some(0), false)), (1, node(Some(0), false))]);
        let near = matrix(&[0, 1000], &[1.0, 0.0]).placement(&Topology(clusters)).unwrap();
        assert_eq!((near.remote, near.advice), (0.0, None));
        let tiers = BTreeMap::from([(0, node(Some(0), false)), (1, node(None, true))]);
        let tier = matrix(&[100, 900], &[1.0]).placement(&Topology(tiers)).unwrap();
        assert_eq!((tier.lies, tier.remote), (Lies::InTier, 0.0));
        assert_eq!(tier.advice, Some(Advice::Tier));
    }

    #[test]
    fn what_lies_on_one_node_and_is_used_from_all_is_shared() {
        let (lies, remote, advice) = told(&[97, 1, 1, 1], &[0.3, 0.25, 0.25, 0.2]);
        assert_eq!(lies, Lies::OnOne(0));
        assert!((0.69..0.71).contains(&remote), "{remote}");
        assert_eq!(advice, Some(Advice::Shared));
    }
}
