//! From closed books to the report: owners get names, rows with one owner become one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::activity::Heat;
use memprov_ledger::book::{Closed, Kind, Row, Sharing};
use memprov_ledger::evidence::{Backing, Counters, EvidenceClass, StackRef};
use memprov_ledger::identity::{PAGE, SpaceId, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pieces::Traits;
use memprov_ledger::space::Space;
use memprov_ledger::time::MonoTime;
use memprov_ledger::touch::TouchTally;

use crate::access::locality::Topology;
use crate::charges;
use crate::histogram::Histogram;
use crate::owners::{Naming, Owner};
use crate::places::Places;
use crate::report::{
    Book, Control, FaultShare, Faults, FirstTouch, Monitored, OwnerRow, Process, Quantity, Report,
    SCHEMA, SharedRow, TouchRow,
};
use crate::stats::{fraction, scale, wilson, wilson_of};
use crate::support::SIDEBAND;
use crate::symbols::Stability;
use crate::tables::Tables;
use crate::trace::Header;
use crate::{places, usage, wall};

/// Sampled units that a division by first touch rests on at least; below it is withheld.
const UNITS: u64 = 20;
/// Growth over a shorter time says nothing of a minute.
const SHORTEST: Duration = Duration::from_secs(5);
/// Rows of a division by first touch at most; one more tells the sum of the others.
const TOUCH_ROWS: usize = 20;

/// Resident bytes by owner id at one time.
pub type Snapshot = (MonoTime, Arc<BTreeMap<String, u64>>);

/// Makes reports of one state of the ledger.
#[derive(Debug)]
pub struct Composer<'a> {
    /// What holds for the whole run.
    pub header: &'a Header,
    /// The ledger.
    pub ledger: &'a Ledger,
    /// Stacks and names.
    pub tables: &'a Tables,
    /// Who maps what.
    pub sharing: &'a Sharing<'a>,
}

/// One owner's rows added up.
struct Sum {
    owner: Owner,
    row: Row,
}

impl Composer<'_> {
    /// The report about `spaces`.
    #[must_use]
    pub fn report(
        &self,
        spaces: &[&Space],
        history: &BTreeMap<SpaceId, VecDeque<Snapshot>>,
        source: &str,
        at: MonoTime,
    ) -> Report {
        let mut processes: Vec<Process> = spaces
            .iter()
            .flat_map(|space| self.processes(space, history.get(&space.id), at))
            .collect();
        processes.sort_by_key(|p| (p.start_time, p.pid));
        let clock = self.header.clock;
        Report {
            schema: SCHEMA.to_owned(),
            source: source.to_owned(),
            generated_at: wall::rfc3339(clock, at),
            watching_since: wall::rfc3339(clock, self.header.watching_since),
            no_wall_time: !clock.known(),
            mechanism: self.mechanism(),
            host: self.header.host.clone(),
            processes,
            shared: self.shared(spaces),
            cgroups: charges::books(self.ledger, self.sharing, spaces, clock),
            regions: self.regions(spaces, at),
            lost: self.ledger.lost().map(|(stream, n)| (stream.id().to_owned(), n)).collect(),
            agent: None,
            accesses: None,
            scan_seconds: Histogram::default(),
            about: None,
        }
    }

    fn mechanism(&self) -> Option<String> {
        let row = self.header.support.iter().find(|row| row.id == "mapping.lifecycle")?;
        row.mechanism.clone()
    }

    /// Resident bytes by owner id.
    #[must_use]
    pub fn resident(&self, space: &Space) -> BTreeMap<String, u64> {
        let closed = self.sharing.close(space).filter(|closed| closed.pages_known);
        let Some(closed) = closed else { return BTreeMap::new() };
        self.sums(&closed).into_values().map(|s| (s.owner.id(), s.row.owned.rss())).collect()
    }

    fn naming<'b>(&'b self, images: &'b BTreeSet<Arc<str>>) -> Naming<'b> {
        Naming { tables: self.tables, images }
    }

    fn sums(&self, closed: &Closed) -> BTreeMap<String, Sum> {
        let images: BTreeSet<Arc<str>> = closed
            .rows
            .keys()
            .filter(|claim| claim.traits.has(Traits::EXEC))
            .filter_map(|claim| {
                claim.origin.as_ref().filter(|o| matches!(o.backing, Backing::File(_)))
            })
            .filter_map(|origin| origin.path.clone())
            .collect();
        let naming = self.naming(&images);
        let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
        for (claim, row) in &closed.rows {
            let owner = naming.owner(claim);
            match sums.get_mut(&owner.key) {
                Some(sum) => {
                    sum.row.merge(row);
                    sum.owner.class = sum.owner.class.max(owner.class);
                    sum.owner.stack = sum.owner.stack.or(owner.stack);
                }
                None => {
                    sums.insert(owner.key.clone(), Sum { owner, row: row.clone() });
                }
            }
        }
        sums
    }

    /// The processes of a space: the same books and owners in each.
    fn processes(
        &self,
        space: &Space,
        history: Option<&VecDeque<Snapshot>>,
        at: MonoTime,
    ) -> Vec<Process> {
        let (Some(closed), Some(scan)) = (self.sharing.close(space), space.scan.as_ref()) else {
            return Vec::new();
        };
        let sums = self.sums(&closed);
        let topology = Topology::of(&self.header.host.numa);
        let (known, clock) = (space.placement(), self.header.clock);
        let places = Places { known, topology: &topology, clock };
        let heat = Some(space.heat().told()).filter(|heat| usage::fresh(heat, at));
        let mut owners: Vec<OwnerRow> =
            sums.values().map(|sum| self.row(sum, &closed, (places, heat), history)).collect();
        owners.sort_by(|a, b| {
            (b.resident.bytes, b.reserved.bytes, &a.id).cmp(&(
                a.resident.bytes,
                a.reserved.bytes,
                &b.id,
            ))
        });
        let predates = sums.values().map(|s| s.row.predates).sum();
        let books =
            closed.books.iter().map(|b| (kind_name(b.kind).to_owned(), book(b, closed.at_rest)));
        let mut touched = TouchTally::default();
        sums.values().for_each(|s| touched.merge(&s.row.touch));
        let anon = sums.values().map(|s| s.row.owned.get(Kind::Anon)).sum();
        let one = Process {
            pid: 0,
            start_time: None,
            comm: scan.comm.to_string(),
            space: format!("{:x}", space.id.0),
            space_pids: space.tgids.iter().map(|t| t.0).collect(),
            cgroup: scan.cgroup.as_deref().map(str::to_owned),
            container: scan
                .cgroup
                .as_deref()
                .and_then(memprov_proc::cgroup::container_id)
                .map(str::to_owned),
            as_of: wall::rfc3339(self.header.clock, closed.as_of),
            lossless: space.lossless(),
            predates,
            pages_unread: !closed.pages_known,
            books: books.collect(),
            owners,
            faults: faults(space, &scan.after),
            first_touch: self.first_touch(space, &touched, anon),
            ran: places::ran(space.placement()),
        };
        let start = |tgid: &Tgid| space.starts.get(tgid).map(|start| start.0);
        let of = |tgid: &Tgid| Process { pid: tgid.0, start_time: start(tgid), ..one.clone() };
        space.tgids.iter().map(of).collect()
    }

    /// What monitors found that still speak: of the processes of `spaces`, and of physical memory.
    fn regions(&self, spaces: &[&Space], at: MonoTime) -> Vec<Monitored> {
        let fresh = |heat: &Heat| usage::fresh(heat, at);
        let physical = self.ledger.physical().filter_map(|(monitor, heat)| {
            let laid = self.ledger.laid(monitor).filter(|laid| fresh(laid.heat));
            let whole = || usage::monitored(None, heat).filter(|_| fresh(heat));
            laid.and_then(|laid| usage::laid(&laid)).or_else(whole)
        });
        let processes = spaces.iter().filter(|space| fresh(space.heat()));
        let told = processes
            .filter_map(|s| usage::monitored(s.tgids.first().map(|tgid| tgid.0), s.heat()));
        physical.chain(told).collect()
    }

    fn row(
        &self,
        sum: &Sum,
        closed: &Closed,
        (places, heat): (Places<'_>, Option<&Heat>),
        history: Option<&VecDeque<Snapshot>>,
    ) -> OwnerRow {
        let Sum { owner, row } = sum;
        let id = owner.id();
        let resident = closed.pages_known.then(|| row.owned.rss());
        // Side-band tells of no munmap: what no scan proves may be gone.
        let told = closed.pages_known || self.mechanism().as_deref() != Some(SIDEBAND);
        let proof = if told { EvidenceClass::Exact } else { EvidenceClass::Inferred };
        let extents = owner.class.max(row.extents).max(proof);
        let class = extents.max(row.pages);
        let bounds =
            (resident.is_some() && class != EvidenceClass::Exact).then_some((row.lo, row.hi));
        let swapped = row.owned.get(Kind::Swap);
        OwnerRow {
            kind: owner.kind.to_owned(),
            name: owner.name.clone(),
            caller: owner.caller.clone(),
            stability: stability(owner.stability).to_owned(),
            stack: owner.stack.map(|id| self.tables.view(id)).unwrap_or_default(),
            truncated: owner.truncated,
            reserved: Quantity { bytes: Some(row.reserved), evidence: extents, lo: None, hi: None },
            resident: Quantity {
                bytes: resident,
                evidence: class,
                lo: bounds.map(|(lo, _)| lo),
                hi: bounds.map(|(_, hi)| hi),
            },
            swapped: (swapped > 0).then_some(Quantity {
                bytes: Some(swapped),
                evidence: class,
                lo: None,
                hi: None,
            }),
            placement: resident.and_then(|_| places.placement(row, class)),
            touched: row
                .used
                .as_ref()
                .zip(heat)
                .and_then(|(used, heat)| usage::touched(used, heat)),
            growth_per_minute: history
                .zip(resident)
                .and_then(|(h, resident)| growth(h, &id, resident, closed.as_of)),
            intervals: row.intervals,
            first_touch: self.touch_rows(&row.touch, row.owned.get(Kind::Anon)),
            id,
        }
    }

    fn first_touch(&self, space: &Space, tally: &TouchTally, anon: u64) -> Option<FirstTouch> {
        let sample = space.sample(self.ledger.sample());
        if sample.probability <= 0.0 {
            return None;
        }
        let seen = tally.by_stack.iter().filter(|(stack, _)| **stack != StackRef::Lost);
        let (pages, bytes) =
            seen.fold((0, 0), |(p, b), (_, (units, bytes))| (p + units, b + bytes));
        let unknown = (tally.sampled >= UNITS).then(|| 1.0 - ratio(bytes, tally.sampled_bytes));
        Some(FirstTouch {
            probability: sample.probability,
            pages,
            unknown_share: unknown,
            rows: self.touch_rows(tally, anon),
        })
    }

    /// Divides `anon` bytes by who touched them first: ratio estimates with Wilson intervals, whose upper ends hold
    /// what nobody saw, too.
    fn touch_rows(&self, tally: &TouchTally, anon: u64) -> Vec<TouchRow> {
        if tally.sampled < UNITS {
            return Vec::new();
        }
        let none = BTreeSet::new();
        let naming = self.naming(&none);
        let mut by_owner: BTreeMap<String, (Owner, u64, u64)> = BTreeMap::new();
        let mut known = 0;
        for (stack, (units, bytes)) in &tally.by_stack {
            if *stack == StackRef::Lost {
                continue;
            }
            known += bytes;
            let owner = naming.toucher(*stack);
            let entry = by_owner.entry(owner.key.clone()).or_insert((owner, 0, 0));
            entry.1 += units;
            entry.2 += bytes;
        }
        let unknown = 1.0 - ratio(known, tally.sampled_bytes);
        let pages = tally.sampled_bytes / PAGE;
        let worth = ratio(pages.saturating_mul(pages), tally.sampled_squares).max(1.0);
        let row = |(owner, units, bytes): (Owner, u64, u64)| {
            let share = ratio(bytes, tally.sampled_bytes);
            let (lo, hi) = wilson_of(share, worth);
            let estimate = fraction(anon, share);
            TouchRow {
                id: owner.id(),
                name: owner.name.clone(),
                caller: owner.caller.clone(),
                resident: Quantity {
                    bytes: Some(estimate),
                    evidence: EvidenceClass::Sampled,
                    lo: Some(fraction(anon, lo).min(estimate)),
                    hi: Some(fraction(anon, (hi + unknown).min(1.0)).max(estimate)),
                },
                pages: units,
                stack: owner.stack.map(|id| self.tables.view(id)).unwrap_or_default(),
            }
        };
        largest(by_owner.into_values().collect(), TOUCH_ROWS).into_iter().map(row).collect()
    }

    fn shared(&self, spaces: &[&Space]) -> Vec<SharedRow> {
        let none = BTreeSet::new();
        let naming = self.naming(&none);
        let mut rows: Vec<SharedRow> = self
            .sharing
            .shared(spaces)
            .into_iter()
            .map(|object| {
                let owner = naming.owner(&object.claim);
                let class = object.class.max(owner.class);
                SharedRow {
                    id: owner.id(),
                    kind: owner.kind.to_owned(),
                    name: owner.name.clone(),
                    as_of: wall::rfc3339(self.header.clock, object.as_of.begin),
                    stack: match object.claim.stack {
                        StackRef::Known(id) => self.tables.view(id),
                        StackRef::Lost | StackRef::None => Vec::new(),
                    },
                    reserved: Quantity {
                        bytes: Some(object.reserved),
                        evidence: class,
                        lo: None,
                        hi: None,
                    },
                    resident: Quantity {
                        bytes: object.resident,
                        evidence: class,
                        lo: None,
                        hi: None,
                    },
                    sharers: object.sharers,
                    sharers_complete: self.header.scope.all && object.all_scanned,
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            (b.resident.bytes, &a.id, &a.name).cmp(&(a.resident.bytes, &b.id, &b.name))
        });
        rows
    }
}

/// The `limit` largest by bytes, and one that stands for all others: what is seen but not told one by one is not to be
/// taken for what nobody saw. Of each: units and bytes.
fn largest(mut touchers: Vec<(Owner, u64, u64)>, limit: usize) -> Vec<(Owner, u64, u64)> {
    touchers.sort_by(|a, b| (b.2, &a.0.key).cmp(&(a.2, &b.0.key)));
    let rest = touchers.split_off(touchers.len().min(limit));
    if !rest.is_empty() {
        let sum = rest.iter().fold((0, 0), |(u, b), (_, units, bytes)| (u + units, b + bytes));
        touchers.push((Owner::others(rest.len()), sum.0, sum.1));
    }
    touchers
}

/// A share; 0 of nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let ratio = part as f64 / whole.max(1) as f64;
    ratio
}

/// Change of one owner's resident bytes a minute since the oldest snapshot of the window.
fn growth(history: &VecDeque<Snapshot>, id: &str, now: u64, at: MonoTime) -> Option<i64> {
    let (then, owners) = history.front()?;
    let elapsed = at.since(*then);
    if elapsed < SHORTEST {
        return None;
    }
    let elapsed = elapsed.as_secs_f64();
    let before = owners.get(id).copied().unwrap_or(0);
    let change = i128::from(now) - i128::from(before);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a rate of bytes, rounded; float to int saturates"
    )]
    let rate = (change as f64 * 60.0 / elapsed).round() as i64;
    Some(rate)
}

/// The kernel's count of faults, divided by kind of memory as the sample tells; `None` where nobody counted.
fn faults(space: &Space, counters: &Counters) -> Option<Faults> {
    // A process that never faulted runs nowhere: nobody counted, as where a recording of perf tells of it.
    if counters.minor_faults == 0 && counters.major_faults == 0 {
        return None;
    }
    let sampled = space.sampled_faults();
    let watched = space.faults_counted();
    let share = |samples: u64| {
        let (lo, hi) = wilson(samples, sampled.total())?;
        let of = watched?;
        let faults = scale(of, samples, sampled.total());
        let (lo, hi) = (fraction(of, lo).min(faults), fraction(of, hi).max(faults));
        Some(FaultShare { faults, lo, hi, samples })
    };
    let by_kind = [
        ("anon", sampled.anon),
        ("file", sampled.file),
        ("shmem", sampled.shmem),
        ("unknown", sampled.unknown),
    ];
    let enough = sampled.total() >= UNITS;
    Some(Faults {
        minor: counters.minor_faults,
        major: counters.major_faults,
        watched,
        by_kind: by_kind
            .into_iter()
            .filter(|_| enough)
            .filter_map(|(kind, samples)| Some((kind.to_owned(), share(samples)?)))
            .collect(),
    })
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Anon => "anon",
        Kind::File => "file",
        Kind::Shmem => "shmem",
        Kind::Hugetlb => "hugetlb",
        Kind::Swap => "swap",
    }
}

fn stability(stability: Stability) -> &'static str {
    match stability {
        Stability::Content => "content",
        Stability::Build => "build",
    }
}

fn book(book: &memprov_ledger::book::Book, at_rest: bool) -> Book {
    Book {
        control: Control { lo: book.lo, hi: book.hi },
        owned: book.owned,
        joint: book.joint,
        unattributed: book.unattributed,
        skew: book.skew,
        drift: book.drift,
        at_rest,
    }
}

#[cfg(test)]
mod tests {
    use super::{Owner, largest};

    #[test]
    fn what_is_not_told_one_by_one_is_told_in_sum() {
        let owner = |n: u64| (Owner { key: n.to_string(), ..Owner::others(1) }, n, 4096 * n);
        let told = largest((1..=25).map(owner).collect(), 20);
        assert_eq!(told.len(), 21);
        assert_eq!(told.iter().map(|t| t.1).sum::<u64>(), 325);
        assert_eq!(told.iter().map(|t| t.2).sum::<u64>(), 325 * 4096);
        assert_eq!((told[0].1, told[20].1), (25, 1 + 2 + 3 + 4 + 5));
        assert_eq!(largest((1..=20).map(owner).collect(), 20).len(), 20);
    }
}
