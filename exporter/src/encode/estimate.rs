//! How many series a host makes at most. What is told only where a monitor or a sampler of accesses covers an owner is
//! counted apart.

use std::collections::BTreeSet;

use serde::Serialize;

use super::accesses::CLASSES;
use super::accumulator::Options;
use super::place::Place;
use super::{ACCESSES, NAMED, NODES, OUTCOMES, PER_RESOURCE, PLACES, TOUCHED};
use crate::config::{Detail, Grain};

/// Kinds of memory that have a total.
const TOTALS: usize = 5;
/// Named owners, the others, what nobody owns; what of it is exact; totals; spread, joint, skew, drift; faults.
const KINDS: usize = NAMED + 2 + 1 + TOTALS + 4 + 2;
const _: () = assert!(KINDS <= PER_RESOURCE);
/// Charge book: 8 rows of user memory, 10 of the kernel's, unattributed; total, spread, skew, age.
const CHARGES: usize = 8 + 10 + 1 + 4;
/// What is said of the agent: losses, costs, support, coverage. Threads and capabilities decide.
const AGENT: usize = 80;

/// Series of one host, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Containers, units or processes that have a resource of their own.
    pub resources: usize,
    /// Series of each of them.
    pub each: usize,
    /// Series of the host's processes that have none, of what is shared, and of the agent.
    pub host: usize,
    /// Further series of each resource, the host's among them, where a monitor covers all its owners.
    pub touched: usize,
    /// Further series of each resource, the host's among them, where accesses of all its owners are sampled.
    pub accesses: usize,
    /// Further series of each resource, the host's among them, on a host with several NUMA nodes.
    pub places: usize,
}

impl Estimate {
    /// All series where neither monitor nor sampler tells anything.
    #[must_use]
    pub fn total(&self) -> usize {
        self.resources * self.each + self.host
    }

    /// All series where both cover every owner, on a host with several NUMA nodes.
    #[must_use]
    pub fn most(&self) -> usize {
        self.total() + (self.resources + 1) * (self.touched + self.accesses + self.places)
    }
}

/// The series of a host with these live processes, each with container id and cgroup path. `None` where every owner of
/// something is told: their number is not known beforehand.
pub fn estimate<'a>(
    options: &Options,
    processes: impl IntoIterator<Item = (Option<&'a str>, Option<&'a str>)>,
) -> Option<Estimate> {
    let place = |(container, cgroup)| Place::of_cgroup(container, cgroup);
    let found = match options.grain {
        Grain::Process => processes.into_iter().count(),
        Grain::Container => {
            let places: BTreeSet<Place> = processes.into_iter().map(place).collect();
            places.iter().filter(|place| **place != Place::Host).count()
        }
    };
    let each = match options.detail {
        Detail::Kinds => KINDS,
        // Reserved, resident and swapped of each owner, exact and inferred; totals; age; faults; charges.
        Detail::Owners => (options.owners + 2) * 6 + TOTALS * 5 + 1 + 6 + CHARGES,
        Detail::All(_) => return None,
    };
    let shared = match options.detail {
        Detail::Kinds => NAMED + 2,
        Detail::Owners | Detail::All(_) => (options.owners + 1) * 4,
    };
    let (touched, accesses) = match options.detail {
        Detail::Kinds | Detail::All(_) => (0, ACCESSES),
        // Those who are no owners of their own are one more; of accesses, what has no owner, too. What page faults made
        // present is told by node and evidence.
        Detail::Owners => (
            TOUCHED * (options.owners + 1),
            (ACCESSES - OUTCOMES + NODES * CLASSES.len()) * (options.owners + 2) + OUTCOMES,
        ),
    };
    let places = match options.detail {
        Detail::Kinds | Detail::All(_) => PLACES,
        Detail::Owners => PLACES * (options.owners + 1),
    };
    let resources = found.min(options.resources);
    Some(Estimate { resources, each, host: each + shared + 1 + AGENT, touched, accesses, places })
}
