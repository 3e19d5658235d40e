//! From a report to OTLP metrics: pure, so that a recording and the live agent encode to the same request, but for what
//! the agent costs.
//!
//! - **Resources.** One per container; a process outside any container is a resource of its own; objects that several
//!   address spaces map, and what is true of the agent, are on the host's. Within a resource equal owners are added up. An address space that
//!   several processes share is counted once, at the oldest of them.
//! - **Owners add up.** In each resource, over the kinds `anon`, `file` and `shmem`:
//!   `control ≤ Σ resident + joint + skew ≤ control + control_spread`, where Σ runs over all points of
//!   `memprov.memory.resident`: owners, the remainder `other`, and `unattributed`. Evidence is a partition: one point per
//!   owner and class.
//! - **Unknown is absent.** A quantity without a number makes no point. Nor does a sum that an OTLP integer (63 bits)
//!   cannot hold; such a sum exists only in a damaged recording. Integers are never sent as doubles.
//! - **Time.** Every point ends with the window and starts with the watch.
//!
//! Message format: opentelemetry-proto `metrics/v1/metrics.proto`; JSON: the OTLP specification, "JSON Protobuf Encoding".

use std::collections::{BTreeMap, BTreeSet};

use memprov_ledger::evidence::EvidenceClass;
use memprov_semconv::{self as semconv, Instrument, Key};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric::Data, number_data_point::Value,
};

use crate::report::{Agent, Book, OwnerRow, Process, Quantity, Report, SharedRow};

mod budget;
mod resource;
mod series;
#[cfg(test)]
mod tests;

pub use crate::report::Identity;
pub use series::{ended, split};

use resource::Place;

/// Characters of an owner's name that travel; its id tells longer names apart.
const NAME_CHARS: usize = 200;

/// The time a request speaks of, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Since when lifecycle events are seen: the start of every series.
    pub start: u64,
    /// The window's end: the time of every point.
    pub end: u64,
}

/// Encodes a report. Of each resource's owners the `owners` largest keep points of their own; the sum of the others is
/// one remainder (`memprov.owner.kind=other`, `otel.metric.overflow=true`) per quantity and evidence class.
#[must_use]
pub fn request(
    report: &Report,
    identity: &Identity,
    window: Window,
    owners: usize,
) -> ExportMetricsServiceRequest {
    let resource_metrics = groups(report)
        .into_iter()
        .map(|(place, group)| ResourceMetrics {
            resource: Some(identity.resource(place, group.first)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics: group.metrics(owners, window),
                ..Default::default()
            }],
            ..Default::default()
        })
        .collect();
    ExportMetricsServiceRequest { resource_metrics }
}

/// One line of OTLP/JSON.
#[must_use]
pub fn json(request: &ExportMetricsServiceRequest) -> String {
    serde_json::to_string(request).expect("OTLP messages have text keys only")
}

/// All that one resource says.
#[derive(Default)]
struct Group<'a> {
    /// The oldest process of it.
    first: Option<&'a Process>,
    owners: BTreeMap<Owner<'a>, Amounts>,
    unattributed: Amounts,
    totals: BTreeMap<&'a str, Totals>,
    /// The oldest `as_of` of its books, nanoseconds since the Unix epoch.
    as_of: Option<u64>,
    /// What streams lost; on the host only.
    lost: Option<&'a BTreeMap<String, u64>>,
    /// What the agent costs; on the host only.
    agent: Option<&'a Agent>,
}

/// What tells the points of one metric apart, but for the evidence.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Owner<'a> {
    id: &'a str,
    kind: &'a str,
    name: String,
}

/// Bytes by class. Sums of `u64` in `i128` cannot overflow.
type ByClass = BTreeMap<EvidenceClass, i128>;

#[derive(Clone, Default)]
struct Amounts {
    reserved: ByClass,
    resident: ByClass,
    swapped: ByClass,
}

#[derive(Default)]
struct Totals {
    control: i128,
    spread: i128,
    joint: i128,
    skew: i128,
    drift: i128,
}

fn groups(report: &Report) -> BTreeMap<Place<'_>, Group<'_>> {
    let mut groups: BTreeMap<Place<'_>, Group<'_>> = BTreeMap::new();
    let host = groups.entry(Place::Host).or_default();
    host.lost = Some(&report.lost);
    host.agent = report.agent.as_ref();
    for row in &report.shared {
        host.add_shared(row);
    }
    let mut oldest_first: Vec<&Process> = report.processes.iter().collect();
    oldest_first.sort_by_key(|p| (p.start_time, p.pid));
    let mut spaces = BTreeSet::new();
    for process in oldest_first {
        let seen = !spaces.insert(process.space.as_str());
        if seen && process.space_pids.len() > 1 {
            continue;
        }
        groups.entry(Place::of(process)).or_default().add_process(process);
    }
    groups
}

impl<'a> Group<'a> {
    fn add_process(&mut self, process: &'a Process) {
        self.first.get_or_insert(process);
        for row in &process.owners {
            self.add_owner(row);
        }
        for (kind, book) in &process.books {
            self.add_book(kind, book);
        }
        if let Some(as_of) = resource::unix_nanos(&process.as_of) {
            self.as_of = Some(self.as_of.map_or(as_of, |oldest| oldest.min(as_of)));
        }
    }

    fn add_owner(&mut self, row: &'a OwnerRow) {
        let sums = self.owner(&row.id, &row.kind, &row.name);
        add(&mut sums.reserved, &row.reserved);
        add(&mut sums.resident, &row.resident);
        if let Some(swapped) = &row.swapped {
            add(&mut sums.swapped, swapped);
        }
    }

    fn add_shared(&mut self, row: &'a SharedRow) {
        let sums = self.owner(&row.id, &row.kind, &row.name);
        add(&mut sums.reserved, &row.reserved);
        add(&mut sums.resident, &row.resident);
    }

    fn owner(&mut self, id: &'a str, kind: &'a str, name: &str) -> &mut Amounts {
        self.owners.entry(Owner { id, kind, name: shortened(name) }).or_default()
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
            *rest.entry(class).or_default() += i128::from(book.unattributed);
        }
        let totals = self.totals.entry(kind).or_default();
        totals.control += i128::from(book.control.lo);
        totals.spread += i128::from(book.control.hi) - i128::from(book.control.lo);
        totals.joint += i128::from(book.joint);
        totals.skew += i128::from(book.skew);
        totals.drift += i128::from(book.drift);
    }

    /// The owners with points of their own, and the sum of all others when there are any.
    fn admit(&self, limit: usize) -> (Vec<(&Owner<'a>, &Amounts)>, Option<Amounts>) {
        let mut ranked: Vec<_> = self.owners.iter().collect();
        let size = |sums: &ByClass| sums.values().sum::<i128>();
        ranked.sort_by_key(|(_, sums)| {
            std::cmp::Reverse((size(&sums.resident), size(&sums.reserved), size(&sums.swapped)))
        });
        let folded = ranked.split_off(limit.min(ranked.len()));
        ranked.sort_by_key(|(owner, _)| *owner);
        let rest = folded.into_iter().map(|(_, sums)| sums).fold(None, |rest, sums| {
            let mut rest: Amounts = rest.unwrap_or_default();
            merge(&mut rest.reserved, &sums.reserved);
            merge(&mut rest.resident, &sums.resident);
            merge(&mut rest.swapped, &sums.swapped);
            Some(rest)
        });
        (ranked, rest)
    }

    fn metrics(&self, limit: usize, window: Window) -> Vec<Metric> {
        let (owners, rest) = self.admit(limit);
        let by_owner = |sums: fn(&Amounts) -> &ByClass| {
            let mut points = Vec::new();
            for (owner, amounts) in &owners {
                let attributes = [
                    text(semconv::OWNER_ID, owner.id),
                    text(semconv::OWNER_KIND, owner.kind),
                    text(semconv::OWNER_NAME, &owner.name),
                ];
                points.extend(by_class(sums(amounts), &attributes, window));
            }
            let unattributed = text(semconv::OWNER_KIND, semconv::owner_kind::UNATTRIBUTED);
            points.extend(by_class(sums(&self.unattributed), &[unattributed], window));
            if let Some(rest) = &rest {
                let other = [text(semconv::OWNER_KIND, semconv::owner_kind::OTHER), overflow()];
                points.extend(by_class(sums(rest), &other, window));
            }
            points
        };
        let by_kind = |value: fn(&Totals) -> i128| {
            self.totals
                .iter()
                .filter_map(|(kind, totals)| {
                    let book = text(semconv::BOOK, semconv::book::PROCESS);
                    integer(value(totals), vec![book, text(semconv::KIND, kind)], window)
                })
                .collect()
        };
        [
            stream(&semconv::MEMORY_RESERVED, by_owner(|sums| &sums.reserved)),
            stream(&semconv::MEMORY_RESIDENT, by_owner(|sums| &sums.resident)),
            stream(&semconv::MEMORY_SWAPPED, by_owner(|sums| &sums.swapped)),
            stream(&semconv::MEMORY_CONTROL, by_kind(|totals| totals.control)),
            stream(&semconv::MEMORY_CONTROL_SPREAD, by_kind(|totals| totals.spread)),
            stream(&semconv::MEMORY_JOINT, by_kind(|totals| totals.joint)),
            stream(&semconv::MEMORY_SKEW, by_kind(|totals| totals.skew)),
            stream(&semconv::MEMORY_DRIFT, by_kind(|totals| totals.drift)),
            stream(&semconv::MEMORY_BOOK_AGE, self.age(window).into_iter().collect()),
            stream(&semconv::SOURCE_LOST, self.lost(window)),
        ]
        .into_iter()
        .chain(self.agent.into_iter().flat_map(|agent| budget::metrics(agent, window)))
        .chain([stream(&semconv::BUILD_INFO, self.build(window).into_iter().collect())])
        .flatten()
        .collect()
    }

    fn age(&self, window: Window) -> Option<NumberDataPoint> {
        let age = std::time::Duration::from_nanos(window.end.saturating_sub(self.as_of?));
        let book = text(semconv::BOOK, semconv::book::PROCESS);
        Some(point(Value::AsDouble(age.as_secs_f64()), vec![book], window))
    }

    fn lost(&self, window: Window) -> Vec<NumberDataPoint> {
        self.lost
            .into_iter()
            .flatten()
            .filter_map(|(stream, lost)| {
                integer(i128::from(*lost), vec![text(semconv::SOURCE_NAME, stream)], window)
            })
            .collect()
    }

    fn build(&self, window: Window) -> Option<NumberDataPoint> {
        self.lost?;
        let version = text(semconv::BUILD_VERSION, env!("CARGO_PKG_VERSION"));
        Some(point(Value::AsInt(1), vec![version], window))
    }
}

fn add(sums: &mut ByClass, quantity: &Quantity) {
    if let Some(bytes) = quantity.bytes {
        *sums.entry(quantity.evidence).or_default() += i128::from(bytes);
    }
}

fn merge(into: &mut ByClass, from: &ByClass) {
    for (class, bytes) in from {
        *into.entry(*class).or_default() += bytes;
    }
}

fn by_class(sums: &ByClass, owner: &[KeyValue], window: Window) -> Vec<NumberDataPoint> {
    sums.iter()
        .filter_map(|(class, bytes)| {
            let mut attributes = vec![text(semconv::EVIDENCE, class_name(*class))];
            attributes.extend_from_slice(owner);
            integer(*bytes, attributes, window)
        })
        .collect()
}

fn class_name(class: EvidenceClass) -> &'static str {
    match class {
        EvidenceClass::Exact => "exact",
        EvidenceClass::Inferred => "inferred",
        EvidenceClass::Sampled => "sampled",
    }
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name.to_owned(),
    }
}

fn integer(value: i128, attributes: Vec<KeyValue>, window: Window) -> Option<NumberDataPoint> {
    let value = i64::try_from(value).ok()?;
    Some(point(Value::AsInt(value), attributes, window))
}

fn point(value: Value, attributes: Vec<KeyValue>, window: Window) -> NumberDataPoint {
    NumberDataPoint {
        attributes,
        start_time_unix_nano: window.start,
        time_unix_nano: window.end,
        value: Some(value),
        ..Default::default()
    }
}

fn stream(metric: &semconv::Metric, data_points: Vec<NumberDataPoint>) -> Option<Metric> {
    if data_points.is_empty() {
        return None;
    }
    let sum = |data_points, is_monotonic| {
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic })
    };
    Some(Metric {
        name: metric.name.to_owned(),
        description: metric.brief.to_owned(),
        unit: metric.unit.to_owned(),
        data: Some(match metric.instrument {
            Instrument::Counter => sum(data_points, true),
            Instrument::UpDownCounter => sum(data_points, false),
            Instrument::Gauge => Data::Gauge(Gauge { data_points }),
        }),
        ..Default::default()
    })
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "memprov".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    }
}

fn text(key: Key, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

fn overflow() -> KeyValue {
    attribute(semconv::OVERFLOW, any_value::Value::BoolValue(true))
}

fn attribute(key: Key, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.as_str().to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }
}
