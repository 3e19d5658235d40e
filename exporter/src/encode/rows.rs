//! What a resource says at the end of a pane: metric, attributes, amount. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memprov_semconv::{
    self as semconv, Key, Metric, book, evidence, owner_kind,
    system_paging_fault_type as fault_type,
};

use super::admission::Admission;
use super::faults::KINDS;
use super::group::{Amounts, Group, Owner, Totals, sum};
use super::words::{Attributes, Value, flag, word};
use crate::histogram::Histogram;

/// Values of `memprov.evidence`, in the order of `EvidenceClass`.
const CLASSES: [&str; 3] = [evidence::EXACT, evidence::INFERRED, evidence::SAMPLED];

/// One of a book's totals.
type Part = fn(&Totals) -> i128;
/// Attributes of an owner with that of its evidence.
type Keyed<'a> = &'a dyn Fn(&[(Key, Value)]) -> Attributes;

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
    Added(u64),
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
    if !group.told {
        return;
    }
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
    let by_kind = KINDS.iter().zip(group.faults.by_kind);
    let by_kind = by_kind.map(|(kind, n)| ([kind_of(kind)].as_slice().into(), Amount::Added(n)));
    if group.processes > 0 {
        rows.say(&semconv::MEMORY_FAULTS_BY_KIND, by_kind.collect::<Points>());
    }
    if !group.told {
        return;
    }
    let (own, rest) = split(group, named);
    let mut points = [Vec::new(), Vec::new(), Vec::new()];
    let mut classes = |amounts: &Amounts, key: Keyed<'_>| {
        let parts = [&amounts.reserved, &amounts.resident, &amounts.swapped];
        for (class, name) in CLASSES.into_iter().enumerate() {
            // One set for all metrics of the owner.
            let mut shared = None;
            for (bytes, points) in parts.iter().zip(&mut points) {
                let bytes = bytes.get(class).copied().flatten();
                let Some(amount) = bytes.and_then(level) else { continue };
                let key = shared.get_or_insert_with(|| key(&[word(semconv::EVIDENCE, name)]));
                points.push((Arc::clone(key), amount));
            }
        }
    };
    for (id, owner) in own {
        classes(&owner.amounts, &|evidence| attributes(id, owner, evidence));
    }
    let with = |more: &[(Key, Value)], evidence: &[(Key, Value)]| [more, evidence].concat().into();
    if let Some(rest) = rest {
        classes(&rest, &|evidence| with(&remainder_kind(), evidence));
    }
    classes(&group.unattributed, &|evidence| with(&[unattributed_kind()], evidence));
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
        rows.one(&semconv::MEMORY_FAULTS, &key, Some(Amount::Added(n)));
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

fn attributes(id: &Arc<str>, owner: &Owner, more: &[(Key, Value)]) -> Attributes {
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

fn remainder_kind() -> [(Key, Value); 2] {
    [word(semconv::OWNER_KIND, owner_kind::REMAINDER), flag(semconv::OVERFLOW)]
}
