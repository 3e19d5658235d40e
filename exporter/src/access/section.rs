//! From the tally to the report: slots get names, and those with one owner become one row.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use memprov_ledger::evidence::{EvidenceClass, Locality, Population, Stream};
use memprov_ledger::identity::SpaceId;
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pieces::Traits;
use memprov_ledger::space::Space;
use memprov_ledger::time::MonoTime;

use super::populated::Populated;
use super::slot::{Outcome, Part, Slot};
use super::sums::{Measure, Method, Sums, share_of};
use super::tally::{Key, Resident, Tally, Whose};
use crate::owners::{Naming, Owner};
use crate::report::{
    AccessRow, AccessSums, Accesses, Host, Located, Measured, PopulatedRow, ShareRow,
};
use crate::tables::Tables;
use crate::trace::Clock;
use crate::wall;

/// Slots added up.
#[derive(Default)]
struct Sum {
    before: Part,
    pane: Part,
    slices: BTreeMap<u64, Sums>,
    /// How sure it is what page faults made present.
    populated: EvidenceClass,
}

impl Sum {
    fn add(&mut self, (slot, populated): (&Slot, EvidenceClass), tally: &Tally, at: MonoTime) {
        self.populated = self.populated.max(populated);
        self.before.merge(&slot.before);
        self.pane.merge(&slot.pane);
        for (number, sums) in slot.slices.within(tally.grid(), at) {
            self.slices.entry(number).or_default().merge(sums);
        }
    }

    /// All of it, and what the pane that is open added. `placed`: of its population places are known by the nodes of page
    /// and CPU.
    fn told(self, placed: bool, clock: Clock) -> (AccessSums, AccessSums) {
        let slices: Vec<Sums> = self.slices.into_values().collect();
        let mut all = self.before;
        all.merge(&self.pane);
        let how = (self.populated, placed);
        (told(all, &slices, how, clock), told(self.pane, &[], how, clock))
    }
}

/// Whether a place is known of some of these by the nodes of page and CPU.
fn placed(part: &Part) -> bool {
    let counts = Locality::ALL.iter().zip(part.sums.of(Measure::Count, Method::Placement));
    counts.filter(|(at, _)| **at != Locality::Unknown).any(|(_, weight)| weight.sum > 0.0)
}

/// With shares over `slices`. `sure`: how sure it is what page faults made present.
fn told(
    part: Part,
    slices: &[Sums],
    (sure, placed): (EvidenceClass, bool),
    clock: Clock,
) -> AccessSums {
    let outcomes = Outcome::ALL.into_iter().zip(part.outcomes).filter(|(_, n)| *n > 0);
    let told = Method::ALL.into_iter().filter(|method| *method == Method::Served || placed);
    let methods = told.map(|method| {
        let located = |measure| located(&part.sums, slices, measure, method);
        let time = (part.timed > 0).then(|| located(Measure::Time));
        (method.id().to_owned(), Measured { time, count: located(Measure::Count) })
    });
    let methods = methods.collect();
    let mut latency = part.latency;
    let clock = |at| wall::unix_nanos(clock, MonoTime(at));
    latency.exemplars = latency.exemplars.by(clock);
    AccessSums {
        samples: outcomes.map(|(outcome, n)| (outcome.id().to_owned(), n)).collect(),
        timed: part.timed,
        conflicts: part.conflicts,
        methods,
        latency: (part.timed > 0).then_some(latency),
        populated: populated(&part.populated, sure),
    }
}

fn populated(of: &Populated, evidence: EvidenceClass) -> Option<PopulatedRow> {
    let node = |id: &Option<u32>| id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
    let nodes = of.nodes.iter().map(|(id, filled)| (node(id), *filled));
    (!of.nodes.is_empty()).then(|| PopulatedRow { evidence, nodes: nodes.collect() })
}

/// How sure it is what faults populated. Exact is private anonymous memory in pages of 4 KiB, each fault told. With more than
/// one node faults are taken to move pages (NUMA balancing), and after a fork to make a page one's own that was there before:
/// then some of what they mapped was present already.
fn certainty(slot: &Slot, whose: &Whose, lonely: bool, whole: bool) -> EvidenceClass {
    let parts = [&slot.before.populated, &slot.pane.populated];
    let own = match whose {
        Whose::Owner(claim) => claim.traits.private_anonymous(claim.origin.as_deref()),
        Whose::Kernel | Whose::Unattributed | Whose::Others => false,
    };
    if parts.iter().all(|part| part.nodes.is_empty()) {
        return EvidenceClass::default();
    }
    match parts {
        _ if parts.iter().any(|part| part.sampled) => EvidenceClass::Sampled,
        _ if own && lonely && whole && !parts.iter().any(|part| part.large) => EvidenceClass::Exact,
        _ => EvidenceClass::Inferred,
    }
}

fn located(sums: &Sums, slices: &[Sums], measure: Measure, method: Method) -> Located {
    let by_locality = Locality::ALL.iter().zip(sums.of(measure, method));
    let told: Vec<_> = by_locality.filter(|(_, weight)| weight.sum > 0.0).collect();
    let name = |at: &Locality| at.id().to_owned();
    let (mut known, mut all) = (super::share::Weight::default(), 0.0);
    for slice in slices {
        for (at, weight) in Locality::ALL.iter().zip(slice.of(measure, method)) {
            all += weight.sum;
            if *at != Locality::Unknown {
                known.merge(weight);
            }
        }
    }
    let mut row = Located {
        weights: told.iter().map(|(at, weight)| (name(at), whole(weight.sum))).collect(),
        squares: told.iter().map(|(at, weight)| (name(at), weight.squares)).collect(),
        effective: known.effective(),
        unknown_share: (all > 0.0).then(|| 1.0 - known.sum / all),
        ..Located::default()
    };
    for to in Locality::ALL.iter().filter(|to| **to != Locality::Unknown) {
        match share_of(slices, measure, method, *to) {
            Ok(share) if share.share > 0.0 || *to == Locality::Remote => {
                let (share, lo, hi) = (share.share, share.lo, share.hi);
                row.shares.insert(name(to), ShareRow { share, lo, hi });
            }
            Ok(_) => {}
            Err(why) => row.withheld = Some(why.id().to_owned()),
        }
    }
    row
}

/// Whether the kernel never makes entries fault again to move pages: it counts nodes online, those without memory too
/// (kernel `mm/mempolicy.c`, `check_numabalancing_enable`).
fn single(host: &Host) -> bool {
    host.nodes == Some(1) && host.numa.len() < 2
}

/// The section; none without samples. `spaces`: of which it tells; `None`: of all.
#[must_use]
pub fn section(
    tally: &Tally,
    ledger: &Ledger,
    tables: &Tables,
    spaces: Option<&HashSet<SpaceId>>,
    (host, at, clock): (&Host, MonoTime, Clock),
) -> Option<Accesses> {
    let lossless = ledger.lost().any(|lost| lost == (Stream::Accesses, 0));
    let whole = lossless && single(host);
    let (none, images) = (BTreeSet::new(), images(tally, ledger));
    let mut rows: BTreeMap<(Option<SpaceId>, Population, String), (Owner, Sum)> = BTreeMap::new();
    let mut totals: BTreeMap<Population, Sum> = BTreeMap::new();
    // Where places are known of some, all rows have them, so that these add up.
    let mut placements = BTreeSet::new();
    for (Key { space, population, whose }, slot) in tally.slots() {
        if spaces.is_some_and(|told| space.is_none_or(|space| !told.contains(&space))) {
            continue;
        }
        let images = space.and_then(|space| images.get(&space)).unwrap_or(&none);
        let naming = Naming { tables, images };
        let owner = match whose {
            Whose::Owner(claim) => naming.owner(claim),
            Whose::Kernel => Owner::nobody("kernel", "addresses of the kernel".to_owned()),
            Whose::Unattributed => Owner::nobody("unattributed", "owner not known".to_owned()),
            Whose::Others => {
                Owner::nobody("other", "owners beyond the limit, or of the past".to_owned())
            }
        };
        if placed(&slot.before) || placed(&slot.pane) {
            placements.insert(*population);
        }
        let resident = space.and_then(|space| tally.resident(space));
        let lonely = resident.is_some_and(|resident| !ledger.has_relative(resident.tgid));
        let slot = (slot, certainty(slot, whose, lonely, whole));
        totals.entry(*population).or_default().add(slot, tally, at);
        let key = (*space, *population, owner.key.clone());
        let (_, sum) = rows.entry(key).or_insert_with(|| (owner, Sum::default()));
        sum.add(slot, tally, at);
    }
    let row = |((space, population, _), (owner, sum)): ((Option<SpaceId>, _, _), (Owner, Sum))| {
        let Resident { tgid, start, cgroup } =
            space.and_then(|space| tally.resident(space)).cloned().unwrap_or_default();
        let (sums, added) = sum.told(placements.contains(&population), clock);
        AccessRow {
            space: space.map(|space| format!("{:x}", space.0)),
            pid: space.map(|_| tgid.0),
            start_time: start.map(|start| start.0),
            container: cgroup
                .as_deref()
                .and_then(memprov_proc::cgroup::container_id)
                .map(str::to_owned),
            cgroup: cgroup.as_deref().map(str::to_owned),
            id: owner.id(),
            kind: owner.kind.to_owned(),
            name: owner.name,
            caller: owner.caller,
            population: word(population),
            sums,
            added: Some(Box::new(added)),
        }
    };
    let mut owners: Vec<AccessRow> = rows.into_iter().map(row).collect();
    owners.sort_by_cached_key(|row| {
        let most = Reverse((row.sums.time(), row.sums.samples.values().sum::<u64>()));
        (most, row.pid, row.id.clone())
    });
    let total =
        |(of, sum): (Population, Sum)| (word(of), sum.told(placements.contains(&of), clock).0);
    (!owners.is_empty())
        .then(|| Accesses { totals: totals.into_iter().map(total).collect(), owners })
}

/// Programs and libraries by space: what it maps executable somewhere.
fn images(tally: &Tally, ledger: &Ledger) -> BTreeMap<SpaceId, BTreeSet<Arc<str>>> {
    let told: HashSet<SpaceId> = tally.slots().iter().filter_map(|(key, _)| key.space).collect();
    let spaces = ledger.spaces().filter(|space| told.contains(&space.id));
    let of = |space: &Space| {
        let code = space.pieces().filter(|piece| piece.traits.has(Traits::EXEC));
        code.filter_map(|piece| piece.origin.as_ref()?.path.clone()).collect()
    };
    spaces.map(|space| (space.id, of(space))).collect()
}

/// The name of a population, as traces have it.
fn word(population: Population) -> String {
    match population {
        Population::Unknown => "unknown",
        Population::Loads => "loads",
        Population::Stores => "stores",
        Population::Accesses => "accesses",
        Population::Operations => "operations",
        Population::Faults => "faults",
    }
    .to_owned()
}

fn whole(weight: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, rounded and not negative; float to int saturates"
    )]
    let whole = weight.round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::{Host, single};
    use crate::report::NumaNode;

    #[test]
    fn a_second_node_without_memory_is_one_between_which_the_kernel_may_move_pages() {
        let node = |node| NumaNode { node, cpus: 1, distances: Vec::new() };
        let host = |nodes, online| Host {
            nodes,
            numa: (0..online).map(node).collect(),
            ..Host::default()
        };
        assert!(single(&host(Some(1), 0)));
        assert!(!single(&host(Some(1), 2)));
        assert!(!single(&host(Some(2), 2)));
        assert!(!single(&host(None, 0)), "unknown");
    }
}
