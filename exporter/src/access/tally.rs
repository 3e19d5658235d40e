//! What every owner's samples add up to, in bounded memory.
//!
//! Every sample is in exactly one slot: samples of the kernel's addresses, of those whose owner is not known, and of owners
//! that found no room have slots, too. So slots add up to all samples.
//!
//! Who gets a slot where all are taken: whoever is sampled. The slot with the lowest rank makes room, and what it holds
//! goes to the rest. A rank is the number of samples since then, plus the rank of who had to go ("Space-Saving": Metwally,
//! Agrawal, El Abbadi 2005, ICDT, doi 10.1007/978-3-540-30570-5_27): of `n` samples, whoever has more than `n / SLOTS` has
//! a slot, whenever they come, and lacks at most as many of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use memprov_ledger::book::Claim;
use memprov_ledger::evidence::{Access, Population, StackRef};
use memprov_ledger::identity::{SpaceId, StackId, StartTicks, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pieces::{Origin, Piece, Traits};
use memprov_ledger::resolution::Resolution;
use memprov_ledger::time::MonoTime;

use super::locality::{Topology, contradict};
use super::slices::Grid;
use super::slot::{Outcome, Slot};
use crate::exemplar::Exemplar;
use crate::histogram::CYCLES;

/// Slots of owners in spaces at most; each holds up to 12 KiB.
pub const SLOTS: usize = 1024;
/// Ways from a piece to its slot that are remembered at most.
const SHORTCUTS: usize = 1 << 14;
/// The rank of a slot that makes room for nobody.
const STAYS: u64 = u64::MAX;
/// Cycles that an access takes at most (a third of a millisecond at 3 GHz): what a fault or an interrupt held up is done
/// anew, so that a longer time is a mistake of whoever wrote it down.
pub const LONGEST: u64 = 1 << 20;

/// Whose samples a slot holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// Those of what a claim has.
    Owner(Claim),
    /// Those at addresses of the kernel.
    Kernel,
    /// Those whose owner is not known.
    Unattributed,
    /// Those of owners that found no room, had to make some, or were of processes that have ended.
    Others,
}

/// Whose samples, in which space, of which population: samples of two populations do not add up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// `None`: of any space, or of one that is not known.
    pub space: Option<SpaceId>,
    /// What was sampled.
    pub population: Population,
    /// Whose.
    pub whose: Whose,
}

/// What a claim is made of, its origin by the place where it is kept: as long as the shortcut holds it, nothing else is
/// there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shortcut {
    space: SpaceId,
    stack: StackRef,
    traits: Traits,
    origin: Option<usize>,
    population: Population,
}

/// Who lives in a space, also after its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Its oldest process.
    pub tgid: Tgid,
    /// Its start; `None`: unknown.
    pub start: Option<StartTicks>,
    /// Its cgroup, once read.
    pub cgroup: Option<Arc<str>>,
}

/// All samples.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    topology: Topology,
    grid: Grid,
    places: HashMap<Key, usize>,
    slots: Vec<(Key, Slot)>,
    /// Of each slot.
    ranks: Vec<u64>,
    /// Begun anew with every pane, and where a slot had to make room.
    shortcuts: HashMap<Shortcut, (Option<Arc<Origin>>, usize)>,
    residents: BTreeMap<SpaceId, Resident>,
}

impl Tally {
    /// Of a host with these nodes.
    #[must_use]
    pub fn of(topology: Topology) -> Self {
        Self { topology, ..Self::default() }
    }

    /// Takes in a sample.
    pub fn add(&mut self, access: &Access, ledger: &Ledger) {
        let (slot, outcome) = self.whose(access, ledger);
        let possible = access.latency.filter(|cycles| *cycles <= LONGEST);
        let outcome = match outcome {
            Outcome::Attributed if possible != access.latency => Outcome::Implausible,
            outcome => outcome,
        };
        let went = self.topology.went(access, ledger);
        // One of a fixed period, of which nothing is said, stands for itself.
        let events = access.period.unwrap_or(1);
        let period = float(events);
        let cycles = possible.map(float);
        let at = access.when.end;
        let recent = self.grid.enter(at);
        self.ranks[slot] = self.ranks[slot].saturating_add(1);
        let slot = &mut self.slots[slot].1;
        let pane = &mut slot.pane;
        pane.outcomes[outcome as usize] += 1;
        pane.timed += u64::from(cycles.is_some());
        pane.conflicts += u64::from(contradict(access.served, went[1]));
        pane.sums.add(period, cycles, went);
        if access.population == Population::Faults {
            pane.populated.add(access);
        }
        if let Some(cycles) = cycles {
            pane.latency.record(cycles, period);
            let ambiguity = (outcome != Outcome::Attributed).then(|| outcome.id());
            let seed = at.0 ^ access.address.unwrap_or(0).rotate_left(32);
            let one = Exemplar::new(at.0, cycles, events, ambiguity);
            pane.latency.exemplars.offer(&CYCLES, period, seed, one);
        }
        if recent {
            slot.slices.at(&self.grid, at).add(period, cycles, went);
        }
    }

    fn whose(&mut self, access: &Access, ledger: &Ledger) -> (usize, Outcome) {
        let population = access.population;
        let Some(address) = access.address else {
            return (self.nobody(access, ledger, Whose::Unattributed), Outcome::NoAddress);
        };
        if access.in_kernel() {
            return (self.nobody(access, ledger, Whose::Kernel), Outcome::Kernel);
        }
        let answer = access.tgid.map(|tgid| (tgid, ledger.owner_of(tgid, address, access.when)));
        let (slot, outcome) = match answer {
            Some((tgid, Resolution::Owned(id))) => match ledger.piece_of(tgid, address, id) {
                Some((space, piece)) => {
                    let slot = self.owner(space, piece, population, (tgid, ledger));
                    (Some(slot), Outcome::Attributed)
                }
                None => (None, Outcome::Unknown),
            },
            Some((_, Resolution::Ambiguous { .. })) => (None, Outcome::Ambiguous),
            Some((_, Resolution::Unowned)) => (None, Outcome::Unowned),
            Some((_, Resolution::Unknown(_))) | None => (None, Outcome::Unknown),
        };
        let slot = slot.unwrap_or_else(|| self.nobody(access, ledger, Whose::Unattributed));
        (slot, outcome)
    }

    /// The slot of whoever has `piece`: what tells it from others is compared as a whole only once.
    fn owner(
        &mut self,
        space: SpaceId,
        piece: &Piece,
        population: Population,
        (tgid, ledger): (Tgid, &Ledger),
    ) -> usize {
        let origin = piece.origin.as_ref().map(|origin| Arc::as_ptr(origin).addr());
        let (stack, traits) = (piece.stack, piece.traits);
        let key = Shortcut { space, stack, traits, origin, population };
        if let Some((_, slot)) = self.shortcuts.get(&key) {
            return *slot;
        }
        let slot = self.slot(Some(space), Whose::Owner(Claim::of(piece)), population);
        self.reside(space, tgid, ledger);
        if self.shortcuts.len() >= SHORTCUTS {
            self.shortcuts.clear();
        }
        self.shortcuts.insert(key, (piece.origin.clone(), slot));
        slot
    }

    /// The slot of what has no owner in the space of whoever accessed it.
    fn nobody(&mut self, access: &Access, ledger: &Ledger, whose: Whose) -> usize {
        let space = access.tgid.and_then(|tgid| Some((tgid, ledger.space(tgid)?.id)));
        if let Some((tgid, space)) = space {
            self.reside(space, tgid, ledger);
        }
        self.slot(space.map(|(_, space)| space), whose, access.population)
    }

    fn slot(&mut self, space: Option<SpaceId>, whose: Whose, population: Population) -> usize {
        let key = Key { space, population, whose };
        if let Some(slot) = self.places.get(&key) {
            return *slot;
        }
        // Those of no space stay, and are few: three of each population.
        if key.space.is_some()
            && self.slots.len() >= SLOTS
            && let Some((lowest, _)) = self.ranks.iter().enumerate().min_by_key(|(_, rank)| **rank)
        {
            return self.instead(lowest, key);
        }
        self.places.insert(key.clone(), self.slots.len());
        self.ranks.push(if key.space.is_some() { 0 } else { STAYS });
        self.slots.push((key, Slot::default()));
        self.slots.len() - 1
    }

    /// A slot makes room for `key`, which goes on at its rank.
    fn instead(&mut self, lightest: usize, key: Key) -> usize {
        let gone = std::mem::replace(&mut self.slots[lightest], (key.clone(), Slot::default()));
        self.places.remove(&gone.0);
        self.places.insert(key, lightest);
        self.shortcuts.retain(|_, (_, slot)| *slot != lightest);
        let space = gone.0.space;
        self.fold(gone);
        let told = |space: SpaceId| self.slots.iter().any(|(key, _)| key.space == Some(space));
        if let Some(gone) = space.filter(|space| !told(*space)) {
            self.residents.remove(&gone);
        }
        lightest
    }

    /// Adds what is in no slot of its own any more to the rest: sums do not fall.
    fn fold(&mut self, (Key { population, whose, .. }, slot): (Key, Slot)) {
        let rest = match whose {
            Whose::Owner(_) | Whose::Others => Whose::Others,
            whose @ (Whose::Kernel | Whose::Unattributed) => whose,
        };
        let rest = self.slot(None, rest, population);
        self.slots[rest].1.absorb(&slot, &self.grid);
    }

    fn reside(&mut self, space: SpaceId, tgid: Tgid, ledger: &Ledger) {
        self.residents.entry(space).or_insert_with(|| match ledger.space(tgid) {
            Some(live) if live.id == space => resident(live),
            Some(_) | None => Resident { tgid, ..Resident::default() },
        });
    }

    /// A pane ended at `at`: of whom nothing was sampled within the window, and who does not live any more, goes to the rest.
    pub fn close(&mut self, ledger: &Ledger, at: MonoTime) {
        self.shortcuts.clear();
        self.slots.iter_mut().for_each(|(_, slot)| slot.close());
        let live: HashMap<SpaceId, _> = ledger.spaces().map(|space| (space.id, space)).collect();
        for (space, known) in &mut self.residents {
            if let Some(space) = live.get(space) {
                *known = resident(space);
            }
        }
        let grid = self.grid;
        let ended = |key: &Key| key.space.is_some_and(|space| !live.contains_key(&space));
        // Rows of one space stay together.
        let recent: HashSet<SpaceId> = self
            .slots
            .iter()
            .filter(|(key, slot)| ended(key) && slot.slices.within(&grid, at).next().is_some())
            .filter_map(|(key, _)| key.space)
            .collect();
        let stays = |key: &Key| !ended(key) || key.space.is_some_and(|s| recent.contains(&s));
        let (slots, ranks) = (std::mem::take(&mut self.slots), std::mem::take(&mut self.ranks));
        let (kept, gone): (Vec<_>, Vec<_>) =
            slots.into_iter().zip(ranks).partition(|((key, _), _)| stays(key));
        (self.slots, self.ranks) = kept.into_iter().unzip();
        let keys = self.slots.iter().map(|(key, _)| key.clone());
        self.places = keys.zip(0..).collect();
        gone.into_iter().for_each(|(slot, _)| self.fold(slot));
        let told: HashSet<SpaceId> = self.slots.iter().filter_map(|(key, _)| key.space).collect();
        self.residents.retain(|space, _| told.contains(space));
    }

    /// Stacks that the owners are named by.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> + '_ {
        self.slots.iter().filter_map(|(key, _)| match &key.whose {
            Whose::Owner(Claim { stack: StackRef::Known(id), .. }) => Some(*id),
            Whose::Owner(_) | Whose::Kernel | Whose::Unattributed | Whose::Others => None,
        })
    }

    /// All slots.
    #[must_use]
    pub fn slots(&self) -> &[(Key, Slot)] {
        &self.slots
    }

    /// The grid of all slices.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Who lives, or lived, in a space.
    #[must_use]
    pub fn resident(&self, space: SpaceId) -> Option<&Resident> {
        self.residents.get(&space)
    }
}

fn resident(space: &memprov_ledger::space::Space) -> Resident {
    let tgid = space.tgids.iter().next().copied().unwrap_or_default();
    let start = space.starts.get(&tgid).copied();
    let cgroup = space.scan.as_ref().and_then(|scan| scan.cgroup.clone());
    Resident { tgid, start, cgroup }
}

fn float(n: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate needs no more than 53 bits")]
    let float = n as f64;
    float
}
