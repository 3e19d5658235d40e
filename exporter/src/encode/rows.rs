//! What a resource says at the end of a pane: metric, attributes, amount. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::evidence::EvidenceClass;
use memprov_semconv::{
    self as semconv, Key, Metric, book, evidence, owner_kind,
    system_paging_fault_type as fault_type,
};

use super::accesses::{Accessed, CLASSES, LOCALITIES, METHODS, OUTCOMES};
use super::admission::Admission;
use super::faults::KINDS;
use super::group::{Amounts, Group, Owner, Totals, Use, sum};
use super::places;
use super::series::Sum;
use super::words::{Attributes, Value, flag, word};
use crate::histogram::Histogram;

/// One of a book's totals.
type Part = fn(&Totals) -> i128;
/// Attributes of an owner, with more.
pub(super) type Keyed<'a> = &'a dyn Fn(&[(Key, Value)]) -> Attributes;

/// What a book says beside the kernel's total and owners.
const PARTS: [(&Metric, Part); 4] = [
    (&semconv::MEMORY_CONTROL_SPREAD, |totals| totals.spread),
    (&semconv::MEMORY_JOINT, |totals| totals.joint),
    (&semconv::MEMORY_SKEW, |totals| totals.skew),
    (&semconv::MEMORY_DRIFT, |totals| totals.drift),
];

/// A number; integers stay integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

/// What is said of one series at the end of a pane.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Amount {
    /// The value now. Not said: there is none.
    Level(Number),
    /// Counted since the watch began. Not said: it is counted elsewhere from now on.
    Total(Number),
    /// Counted in this pane. Not said: nothing.
    Added(Sum),
    /// Observed since the watch began.
    Observed(Arc<Histogram>),
}

/// The points of one metric.
pub(super) type Points = Vec<(Attributes, Amount)>;

/// What one resource says, by name of the metric.
#[derive(Debug, Default)]
pub(super) struct Rows(pub(super) BTreeMap<&'static str, (&'static Metric, Points)>);

impl Rows {
    /// Adds points of a metric. No two points of one metric have equal attributes.
    pub(super) fn say(
        &mut self,
        metric: &'static Metric,
        points: impl IntoIterator<Item = (Attributes, Amount)>,
    ) {
        let mut points = points.into_iter().peekable();
        if points.peek().is_some() {
            self.0.entry(metric.name).or_insert_with(|| (metric, Vec::new())).1.extend(points);
        }
    }

    /// Adds a point.
    pub(super) fn one(
        &mut self,
        metric: &'static Metric,
        attributes: &[(Key, Value)],
        amount: Option<Amount>,
    ) {
        self.say(metric, amount.map(|amount| (attributes.into(), amount)));
    }
}

/// A count of this pane.
pub(super) fn added(n: u64) -> Amount {
    Amount::Added(Sum::Number(Number::Int(i64::try_from(n).unwrap_or(i64::MAX))))
}

/// A level of whole bytes; none that an OTLP integer (63 bits) cannot hold. Such a sum exists only in a damaged
/// recording.
pub(super) fn level(value: i128) -> Option<Amount> {
    i64::try_from(value).ok().map(|value| Amount::Level(Number::Int(value)))
}

/// A level that is no integer.
pub(super) fn measured(value: f64) -> Amount {
    Amount::Level(Number::Float(value))
}

/// Says of a group what the default level of detail has: totals by kind, and the owners in `named` of resident memory.
pub(super) fn kinds(group: &Group<'_>, named: &Admission<Arc<str>>, rows: &mut Rows) {
    faults(group, rows);
    accesses(group, None, rows);
    if !group.told {
        return;
    }
    places::say(group, None, rows);
    let (own, rest) = split(group, named);
    let resident = own.into_iter().filter_map(|(id, owner)| {
        let amount = level(sum(&owner.amounts.resident)?)?;
        Some((attributes(id, owner, &[]), amount))
    });
    rows.say(&semconv::MEMORY_RESIDENT, resident);
    let rest = rest.unwrap_or_default();
    let remainder = sum(&rest.resident).unwrap_or(0);
    rows.one(&semconv::MEMORY_RESIDENT, &remainder_kind(), level(remainder));
    let exact = |amounts: &Amounts| amounts.resident.first().copied().flatten().unwrap_or(0);
    let owned: i128 = group.owners.values().map(|owner| exact(&owner.amounts)).sum();
    rows.one(&semconv::MEMORY_RESIDENT_EXACT, &[], level(owned + exact(&group.unattributed)));
    if group.processes == 0 {
        return;
    }
    let unattributed = sum(&group.unattributed.resident).unwrap_or(0);
    rows.one(&semconv::MEMORY_RESIDENT, &[unattributed_kind()], level(unattributed));
    let book = process_book();
    for (kind, totals) in &group.totals {
        let key = [book.clone(), kind_of(kind)];
        rows.one(&semconv::MEMORY_CONTROL, &key, level(totals.control));
    }
    for (metric, part) in PARTS {
        rows.one(metric, std::slice::from_ref(&book), level(group.rss(part)));
    }
}

/// Says of a group all that is known of the owners in `named`, by evidence, and every total by kind.
pub(super) fn owners(group: &Group<'_>, named: &Admission<Arc<str>>, end: u64, rows: &mut Rows) {
    faults(group, rows);
    group.charges.say(end, rows);
    accesses(group, Some(named), rows);
    let by_kind = KINDS.iter().zip(group.faults.by_kind);
    let by_kind = by_kind.map(|(kind, n)| ([kind_of(kind)].as_slice().into(), added(n)));
    if group.processes > 0 {
        rows.say(&semconv::MEMORY_FAULTS_BY_KIND, by_kind.collect::<Points>());
    }
    if !group.told {
        return;
    }
    places::say(group, Some(named), rows);
    let (own, rest) = split(group, named);
    let mut points = [Vec::new(), Vec::new(), Vec::new()];
    let mut classes = |amounts: &Amounts, key: Keyed<'_>| {
        let parts = [&amounts.reserved, &amounts.resident, &amounts.swapped];
        for (class, of) in CLASSES.into_iter().enumerate() {
            // One set for all metrics of the owner.
            let mut shared = None;
            for (bytes, points) in parts.iter().zip(&mut points) {
                let bytes = bytes.get(class).copied().flatten();
                let Some(amount) = bytes.and_then(level) else { continue };
                let key =
                    shared.get_or_insert_with(|| key(&[word(semconv::EVIDENCE, evidence_of(of))]));
                points.push((Arc::clone(key), amount));
            }
        }
    };
    for (id, owner) in &own {
        classes(&owner.amounts, &|evidence| attributes(id, owner, evidence));
    }
    let with = |more: &[(Key, Value)], evidence: &[(Key, Value)]| [more, evidence].concat().into();
    if let Some(rest) = &rest {
        classes(rest, &|evidence| with(&remainder_kind(), evidence));
    }
    classes(&group.unattributed, &|evidence| with(&[unattributed_kind()], evidence));
    for (id, owner) in own {
        touched(owner.amounts.touched.as_ref(), &attributes(id, owner, &[]), rows);
    }
    let folded = rest.and_then(|rest| rest.touched);
    touched(folded.as_ref(), &remainder_kind().as_slice().into(), rows);
    let [reserved, resident, swapped] = points;
    rows.say(&semconv::MEMORY_RESERVED, reserved);
    rows.say(&semconv::MEMORY_RESIDENT, resident);
    rows.say(&semconv::MEMORY_SWAPPED, swapped);
    for (kind, totals) in &group.totals {
        let key: Attributes = [process_book(), kind_of(kind)].as_slice().into();
        let control: (_, Part) = (&semconv::MEMORY_CONTROL, |totals| totals.control);
        for (metric, part) in PARTS.into_iter().chain([control]) {
            rows.say(metric, level(part(totals)).map(|amount| (Arc::clone(&key), amount)));
        }
    }
    age(process_book(), group.as_of, end, rows);
}

/// What checks of a monitor prove of an owner.
fn touched(proven: Option<&Use>, key: &Attributes, rows: &mut Rows) {
    let Some(Use { lower, upper, covered }) = proven else { return };
    for (metric, bytes) in [
        (&semconv::MEMORY_TOUCHED_LOWER, lower),
        (&semconv::MEMORY_TOUCHED_UPPER, upper),
        (&semconv::MEMORY_TOUCHED_COVERED, covered),
    ] {
        rows.say(metric, level(*bytes).map(|amount| (Arc::clone(key), amount)));
    }
}

/// The book of address spaces.
pub(super) fn process_book() -> (Key, Value) {
    word(semconv::BOOK, book::PROCESS)
}

/// How old the oldest reading of a book is.
pub(super) fn age(book: (Key, Value), as_of: Option<u64>, end: u64, rows: &mut Rows) {
    let age = as_of.map(|as_of| Duration::from_nanos(end.saturating_sub(as_of)).as_secs_f64());
    rows.one(&semconv::MEMORY_BOOK_AGE, &[book], age.map(measured));
}

fn faults(group: &Group<'_>, rows: &mut Rows) {
    if group.processes == 0 {
        return;
    }
    for (kind, n) in
        [(fault_type::MAJOR, group.faults.major), (fault_type::MINOR, group.faults.minor)]
    {
        let key = [word(semconv::SYSTEM_PAGING_FAULT_TYPE, kind)];
        rows.one(&semconv::MEMORY_FAULTS, &key, Some(added(n)));
    }
}

/// Whose accesses are told together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whose<'a> {
    All,
    One(&'a Arc<str>),
    Remainder,
    /// What has no owner is no part of the remainder of owners.
    Nobody,
}

/// Says what was sampled, of the owners in `named` and of all others, or without telling owners apart.
fn accesses(group: &Group<'_>, named: Option<&Admission<Arc<str>>>, rows: &mut Rows) {
    let accessed = group.owners.iter().filter_map(|(id, o)| Some((id, o, o.accessed.as_deref()?)));
    let mut accessed: Vec<_> = accessed.collect();
    // Sums of floats are those of one order.
    accessed.sort_unstable_by_key(|(id, ..)| *id);
    let mut sums: BTreeMap<Whose<'_>, (&Owner, Accessed)> = BTreeMap::new();
    let mut whole = Accessed::default();
    for (id, owner, accessed) in accessed {
        let whose = match named {
            None => Whose::All,
            Some(named) if named.has(id) => Whose::One(id),
            Some(_) if &*owner.kind == owner_kind::UNATTRIBUTED => Whose::Nobody,
            Some(_) => Whose::Remainder,
        };
        sums.entry(whose).or_insert_with(|| (owner, Accessed::default())).1.merge(accessed);
        whole.merge(accessed);
    }
    let (mut times, mut squares, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
    let mut populated = Vec::new();
    for (whose, (owner, accessed)) in sums {
        let key = |place: &[(Key, Value)]| -> Attributes {
            match whose {
                Whose::All => place.into(),
                Whose::One(id) => attributes(id, owner, place),
                Whose::Remainder => [remainder_kind().as_slice(), place].concat().into(),
                Whose::Nobody => [[unattributed_kind()].as_slice(), place].concat().into(),
            }
        };
        for (method, places) in METHODS.iter().zip(&accessed.places) {
            for (at, placed) in LOCALITIES.iter().zip(places) {
                let Some(placed) = placed else { continue };
                let place =
                    [word(semconv::NUMA_LOCALITY, *at), word(semconv::ACCESS_METHOD, *method)];
                let key = key(&place);
                let square = Sum::Number(Number::Float(placed.squares));
                squares.push((Arc::clone(&key), Amount::Added(square)));
                times.push((key, added(placed.time)));
            }
        }
        // Without owners it would be one more series for each node.
        let filled = accessed.populated.into_iter().filter(|_| whose != Whose::All);
        populated.extend(filled.map(|((node, class), bytes)| {
            let evidence = word(semconv::EVIDENCE, evidence_of(class));
            (key(&[word(semconv::NUMA_NODE, node), evidence]), added(bytes))
        }));
        if let Some(latency) = accessed.latency {
            let latency = Sum::Histogram(Arc::new(latency));
            latencies.push((key(&[]), Amount::Added(latency)));
        }
    }
    rows.say(&semconv::ACCESS_TIME, times);
    rows.say(&semconv::ACCESS_TIME_SQUARED, squares);
    rows.say(&semconv::ACCESS_LATENCY, latencies);
    rows.say(&semconv::MEMORY_POPULATED, populated);
    let outcomes = OUTCOMES.iter().zip(whole.samples).filter_map(|(what, n)| {
        Some(([word(semconv::ACCESS_OUTCOME, *what)].as_slice().into(), added(n?)))
    });
    rows.say(&semconv::ACCESS_SAMPLES, outcomes.collect::<Points>());
}

fn evidence_of(class: EvidenceClass) -> &'static str {
    match class {
        EvidenceClass::Exact => evidence::EXACT,
        EvidenceClass::Inferred => evidence::INFERRED,
        EvidenceClass::Sampled => evidence::SAMPLED,
    }
}

/// Owners with points of their own by id, and the sum of all others when there are any.
fn split<'g>(
    group: &'g Group<'_>,
    named: &Admission<Arc<str>>,
) -> (Vec<(&'g Arc<str>, &'g Owner)>, Option<Amounts>) {
    let (mut own, folded): (Vec<_>, Vec<_>) =
        group.owners.iter().partition(|(id, _)| named.has(id));
    own.sort_unstable_by_key(|(id, _)| *id);
    let rest = folded.into_iter().fold(None, |rest, (_, owner)| {
        let mut rest: Amounts = rest.unwrap_or_default();
        rest.merge(&owner.amounts);
        Some(rest)
    });
    (own, rest)
}

pub(super) fn attributes(id: &Arc<str>, owner: &Owner, more: &[(Key, Value)]) -> Attributes {
    let own = [
        word(semconv::OWNER_ID, Arc::clone(id)),
        word(semconv::OWNER_KIND, Arc::clone(&owner.kind)),
        word(semconv::OWNER_NAME, Arc::clone(&owner.name)),
    ];
    own.into_iter().chain(more.iter().cloned()).collect()
}

fn kind_of(kind: &str) -> (Key, Value) {
    word(semconv::KIND, Arc::<str>::from(kind))
}

fn unattributed_kind() -> (Key, Value) {
    word(semconv::OWNER_KIND, owner_kind::UNATTRIBUTED)
}

pub(super) fn remainder_kind() -> [(Key, Value); 2] {
    [word(semconv::OWNER_KIND, owner_kind::REMAINDER), flag(semconv::OVERFLOW)]
}
