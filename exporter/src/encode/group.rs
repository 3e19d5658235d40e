//! The processes of one resource added up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use memprov_ledger::evidence::EvidenceClass;

use super::accesses::Accessed;
use super::charge::Charges;
use super::faults::{Added, Seen};
use super::place::Place;
use super::places::{self, Places};
use crate::access::locality::Topology;
use crate::config::{Detail, Grain};
use crate::report::{AccessRow, Book, OwnerRow, Process, Quantity, Report, SharedRow, Touched};
use crate::wall;

/// Characters of an owner's name that travel; its id tells longer names apart.
const NAME_CHARS: usize = 200;

/// Bytes by class, in the order of [`EvidenceClass`]. Sums of `u64` in `i128` cannot overflow.
pub(super) type ByClass = [Option<i128>; 3];

/// What one owner has in one resource.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amounts {
    pub(super) reserved: ByClass,
    pub(super) resident: ByClass,
    pub(super) swapped: ByClass,
    /// While a monitor covers some of it.
    pub(super) touched: Option<Use>,
}

/// What checks of a monitor prove of an owner, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    pub(super) lower: i128,
    pub(super) upper: i128,
    pub(super) covered: i128,
}

/// An owner in one resource.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) kind: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) amounts: Amounts,
    /// Accesses since the last pane, where they are sampled.
    pub(super) accessed: Option<Box<Accessed>>,
    /// Where it lies, on a host with several NUMA nodes.
    pub(super) places: Option<Box<Places>>,
}

/// Books of one kind of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) control: i128,
    pub(super) spread: i128,
    pub(super) joint: i128,
    pub(super) skew: i128,
    pub(super) drift: i128,
}

/// All that one resource says.
#[derive(Debug, Default)]
pub(super) struct Group<'a> {
    /// Its oldest process.
    pub(super) first: Option<&'a Process>,
    /// How many processes it adds up.
    pub(super) processes: usize,
    /// By id.
    pub(super) owners: HashMap<Arc<str>, Owner>,
    pub(super) unattributed: Amounts,
    pub(super) totals: BTreeMap<&'a str, Totals>,
    /// The oldest `as_of` of its books, nanoseconds since the Unix epoch.
    pub(super) as_of: Option<u64>,
    pub(super) faults: Added,
    pub(super) charges: Charges<'a>,
    /// A book of it is young enough to be told. When none is, its sums are a gap.
    pub(super) told: bool,
    /// It is told whole.
    pub(super) whole: bool,
    /// Resident and swapped bytes, also of books that are too old.
    pub(super) size: u128,
}

/// The processes of a report by resource, the agent's always among them. An address space that several processes share
/// is counted once, at the oldest of them. A book from before `oldest` (nanoseconds since the Unix epoch) is a gap.
/// `first`: nothing was told before. What is charged to a cgroup that is nobody's own, as one above those of containers, is the host's.
pub(super) fn groups<'a>(
    report: &'a Report,
    grain: Grain,
    detail: &Detail,
    oldest: u64,
    (seen, places, first): (&mut Seen, &mut places::Seen, bool),
) -> BTreeMap<Place, Group<'a>> {
    let mut groups: BTreeMap<Place, Group<'a>> = BTreeMap::new();
    let agent = groups.entry(Place::Agent).or_default();
    (agent.told, agent.whole) = (true, *detail == Detail::Owners);
    for row in &report.shared {
        agent.add_shared(row);
    }
    let mut oldest_first: Vec<&Process> = report.processes.iter().collect();
    oldest_first.sort_by_key(|p| (p.start_time, p.pid));
    let mut spaces = BTreeSet::new();
    let several = report.host.nodes.is_some_and(|nodes| nodes > 1);
    let topology = several.then(|| Arc::new(Topology::of(&report.host.numa)));
    seen.begin();
    for process in oldest_first {
        let again = !spaces.insert(process.space.as_str());
        if again && process.space_pids.len() > 1 {
            continue;
        }
        let place = Place::of(process, grain);
        let whole = place.whole(process, detail);
        let group = groups.entry(place).or_default();
        group.whole |= whole;
        let as_of = wall::parse(&process.as_of).filter(|at| *at >= oldest);
        let placed = places.added(process, topology.as_ref(), as_of.is_some());
        group.add_process(process, as_of, &placed);
        group.faults.merge(&seen.added(process));
    }
    seen.end();
    places.end();
    for cgroup in &report.cgroups {
        let own = Place::of_cgroup(cgroup.container.as_deref(), Some(&cgroup.cgroup));
        let own = Some(own).filter(|own| groups.contains_key(own) && grain == Grain::Container);
        let group = groups.entry(own.unwrap_or(Place::Host)).or_default();
        group.whole |= *detail == Detail::Owners;
        group.charges.add(cgroup, oldest);
    }
    for row in report.accesses.iter().flat_map(|accesses| &accesses.owners) {
        let place = Place::accessed(row, grain);
        // What the last process of a container did, or one of which no book is known, is the host's.
        let place = if groups.contains_key(&place) { place } else { Place::Host };
        groups.entry(place).or_default().add_access(row, &Accessed::added(row, first));
    }
    groups
}

impl<'a> Group<'a> {
    /// `as_of`: of its book; `None`: that is too old.
    fn add_process(&mut self, process: &'a Process, as_of: Option<u64>, placed: &places::Added) {
        self.first.get_or_insert(process);
        self.processes += 1;
        let bytes = |quantity: &Quantity| u128::from(quantity.bytes.unwrap_or(0));
        for row in &process.owners {
            self.size += bytes(&row.resident) + row.swapped.as_ref().map_or(0, bytes);
        }
        if as_of.is_none() {
            return;
        }
        self.told = true;
        for row in &process.owners {
            self.add_owner(row, placed.of(row));
        }
        for (kind, book) in &process.books {
            self.add_book(kind, book);
        }
        self.as_of = older(self.as_of, as_of);
    }

    fn add_owner(&mut self, row: &OwnerRow, placed: Option<Places>) {
        self.owner(&row.id, &row.kind, &row.name, |owner| {
            let sums = &mut owner.amounts;
            add(&mut sums.reserved, &row.reserved);
            add(&mut sums.resident, &row.resident);
            if let Some(swapped) = &row.swapped {
                add(&mut sums.swapped, swapped);
            }
            if let Some(Touched { lower, upper, covered, .. }) = row.touched {
                let [lower, upper, covered] = [lower, upper, covered].map(i128::from);
                sums.touched.get_or_insert_default().add(&Use { lower, upper, covered });
            }
            if let Some(placed) = placed {
                owner.places.get_or_insert_default().merge(&placed);
            }
        });
    }

    fn add_shared(&mut self, row: &SharedRow) {
        self.owner(&row.id, &row.kind, &row.name, |owner| {
            let sums = &mut owner.amounts;
            add(&mut sums.reserved, &row.reserved);
            add(&mut sums.resident, &row.resident);
        });
    }

    fn add_access(&mut self, row: &AccessRow, added: &Accessed) {
        self.owner(&row.id, &row.kind, &row.name, |owner| {
            owner.accessed.get_or_insert_default().merge(added);
        });
    }

    /// Adds to what an owner has. The id is a hash of kind and name, too.
    fn owner(&mut self, id: &str, kind: &str, name: &str, add: impl FnOnce(&mut Owner)) {
        // Most are there already, and a key costs an allocation.
        if let Some(owner) = self.owners.get_mut(id) {
            add(owner);
            return;
        }
        let mut owner = Owner {
            kind: kind.into(),
            name: shortened(name).into(),
            amounts: Amounts::default(),
            accessed: None,
            places: None,
        };
        add(&mut owner);
        self.owners.insert(id.into(), owner);
    }

    /// What decides whether an owner is named: its bytes, and where `accesses` are told by owner, as much of the group's
    /// as its part of the access time.
    pub(super) fn sizes(&self, accesses: bool) -> impl Iterator<Item = (&Arc<str>, u128)> {
        let time = move |owner: &Owner| {
            let accessed = owner.accessed.as_ref().filter(|_| accesses);
            accessed.map_or(0, |accessed| u128::from(accessed.time()))
        };
        let times: u128 = self.owners.values().map(time).sum();
        let bytes: u128 = self.owners.values().map(|owner| owner.amounts.size()).sum();
        // Bytes and times are below 2^64 each but for sums of a damaged recording.
        let worth = move |time: u128| bytes.max(1 << 20).saturating_mul(time) / times.max(1);
        self.owners
            .iter()
            .map(move |(id, owner)| (id, owner.amounts.size().saturating_add(worth(time(owner)))))
    }

    /// Hugetlb is no part of Rss, and its owners' rows are no part of `resident`; so is its unattributed rest.
    fn add_book(&mut self, kind: &'a str, book: &Book) {
        let class = if book.at_rest { EvidenceClass::Exact } else { EvidenceClass::Inferred };
        let rest = match kind {
            "anon" | "file" | "shmem" => Some(&mut self.unattributed.resident),
            "swap" => Some(&mut self.unattributed.swapped),
            _ => None,
        };
        if let Some(rest) = rest {
            *of_class(rest, class).get_or_insert(0) += i128::from(book.unattributed);
        }
        let totals = self.totals.entry(kind).or_default();
        totals.control += i128::from(book.control.lo);
        totals.spread += i128::from(book.control.hi) - i128::from(book.control.lo);
        totals.joint += i128::from(book.joint);
        totals.skew += i128::from(book.skew);
        totals.drift += i128::from(book.drift);
    }

    /// Takes all in that another resource would say.
    pub(super) fn absorb(&mut self, other: Self) {
        for (id, owner) in other.owners {
            match self.owners.get_mut(&id) {
                Some(own) => {
                    own.amounts.merge(&owner.amounts);
                    if let Some(accessed) = &owner.accessed {
                        own.accessed.get_or_insert_default().merge(accessed);
                    }
                    if let Some(places) = &owner.places {
                        own.places.get_or_insert_default().merge(places);
                    }
                }
                None => drop(self.owners.insert(id, owner)),
            }
        }
        self.unattributed.merge(&other.unattributed);
        for (kind, totals) in other.totals {
            let sums = self.totals.entry(kind).or_default();
            sums.control += totals.control;
            sums.spread += totals.spread;
            sums.joint += totals.joint;
            sums.skew += totals.skew;
            sums.drift += totals.drift;
        }
        self.as_of = older(self.as_of, other.as_of);
        self.faults.merge(&other.faults);
        self.charges.merge(other.charges);
        self.processes += other.processes;
        self.told |= other.told;
        self.size += other.size;
    }

    /// Totals of the kinds that make up Rss.
    pub(super) fn rss(&self, part: fn(&Totals) -> i128) -> i128 {
        let of = |kind: &str| self.totals.get(kind).map_or(0, part);
        of("anon") + of("file") + of("shmem")
    }
}

impl Amounts {
    pub(super) fn merge(&mut self, other: &Self) {
        let parts = [
            (&mut self.reserved, &other.reserved),
            (&mut self.resident, &other.resident),
            (&mut self.swapped, &other.swapped),
        ];
        for (into, from) in parts {
            for (sum, bytes) in into.iter_mut().zip(from) {
                if let Some(bytes) = bytes {
                    *sum.get_or_insert(0) += bytes;
                }
            }
        }
        if let Some(touched) = &other.touched {
            self.touched.get_or_insert_default().add(touched);
        }
    }

    /// What decides whether an owner is named.
    pub(super) fn size(&self) -> u128 {
        let sum = sum(&self.resident).unwrap_or(0) + sum(&self.swapped).unwrap_or(0);
        u128::try_from(sum).unwrap_or(0)
    }
}

impl Use {
    fn add(&mut self, other: &Self) {
        self.lower += other.lower;
        self.upper += other.upper;
        self.covered += other.covered;
    }
}

/// Over all classes; `None` where none is known.
pub(super) fn sum(bytes: &ByClass) -> Option<i128> {
    bytes.iter().flatten().copied().reduce(|a, b| a + b)
}

fn of_class(sums: &mut ByClass, class: EvidenceClass) -> &mut Option<i128> {
    let [exact, inferred, sampled] = sums;
    match class {
        EvidenceClass::Exact => exact,
        EvidenceClass::Inferred => inferred,
        EvidenceClass::Sampled => sampled,
    }
}

fn add(sums: &mut ByClass, quantity: &Quantity) {
    if let Some(bytes) = quantity.bytes {
        *of_class(sums, quantity.evidence).get_or_insert(0) += i128::from(bytes);
    }
}

pub(super) fn older(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name.to_owned(),
    }
}
