//! All series of the agent: takes in each pane, and ships what the other side does not have yet.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memprov_semconv::Metric;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::admission::Admission;
use super::agent::{self, Panes};
use super::faults::Seen;
use super::group::{Group, groups, older};
use super::place::Place;
use super::places;
use super::proto::{Packer, Point};
use super::records::{self, Mirrored};
use super::rows::{self, Points, Rows};
use super::series::{Pane, Phase, Series};
use super::view::{Style, ship};
use super::words::order;
use crate::config::{Detail, Grain};
use crate::otlp::{Fate, Feed, Request, Shipment};
use crate::report::Report;
use crate::support::code;
use crate::wall;

/// Encoded bytes of one part: below the 4 MiB that a gRPC server takes unless told otherwise.
const PART: usize = 3 << 20;

/// Series that are over and wait for their end to be told, at most. Where nobody takes shipments, they are all that grows.
const ENDING: usize = 10_000;

/// What is told, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How much of each resource.
    pub detail: Detail,
    /// What is a resource of its own.
    pub grain: Grain,
    /// Owners of a resource that get series of their own at [`Detail::Owners`].
    pub owners: usize,
    /// Resources at most beside those of agent and host; the host's tells the sum of the others.
    pub resources: usize,
    /// Whether exemplars become log records, too.
    pub exemplar_logs: bool,
    /// Age beyond which the books of a process are a gap.
    pub max_age: Duration,
    /// How the other side wants to be told.
    pub style: Style,
}

/// The time that a report speaks of, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Since when lifecycle events are seen: the begin of the first pane.
    pub start: u64,
    /// The end of the pane: the time of every point.
    pub end: u64,
}

impl Window {
    /// The time that a report says it speaks of.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let nanos = |text: &str| wall::parse(text).unwrap_or(0);
        Self { start: nanos(&report.watching_since), end: nanos(&report.generated_at) }
    }
}

/// All series, by resource.
#[derive(Debug)]
pub struct Accumulator {
    options: Options,
    faults: Seen,
    placed: places::Seen,
    places: Admission<Place>,
    members: BTreeMap<Place, Member>,
    pane: Option<Pane>,
    /// The code of what the host can tell, for exemplars.
    support: String,
    /// When all series end, once what was taken in is shipped.
    close: Option<u64>,
    /// Number of the last shipment.
    number: u64,
    /// It has no fate yet.
    under_way: bool,
    /// A pane was taken in since the last shipment that arrived.
    fresh: bool,
    /// Counts in the shipment under way; deltas are told once.
    at_stake: u64,
    /// Counts, and ends of series, that nobody is told.
    lost: u64,
    panes: Panes,
    /// Where exemplars are log records: what became of those.
    records: Option<Mirrored>,
}

/// One resource.
#[derive(Debug)]
struct Member {
    resource: Resource,
    named: Admission<Arc<str>>,
    whole: bool,
    streams: BTreeMap<&'static str, Stream>,
}

/// The series of one metric, in the order of their attributes.
#[derive(Debug)]
struct Stream {
    metric: &'static Metric,
    series: Vec<(super::words::Attributes, Series)>,
}

impl Accumulator {
    /// Without any series.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let places = Admission::new(options.resources);
        Self {
            options,
            places,
            faults: Seen::default(),
            placed: places::Seen::default(),
            members: BTreeMap::new(),
            pane: None,
            support: String::new(),
            close: None,
            number: 0,
            under_way: false,
            fresh: false,
            at_stake: 0,
            lost: 0,
            panes: Panes::default(),
            records: None,
        }
    }

    /// Tells as much as `options` say from the next pane on. Series that are told no more end, others begin with it.
    pub fn change(&mut self, options: Options) {
        self.places.resize(options.resources);
        if options.detail != self.options.detail {
            self.members.values_mut().for_each(|member| member.whole = false);
        }
        self.options = options;
    }

    /// Takes in the report of a pane that ended at `window.end`. One that did not end later than the pane before is left
    /// out: time does not go back. Returns the log records that were asked for.
    pub fn pane(&mut self, report: &Report, window: Window) -> Request {
        let mut told = ExportLogsServiceRequest::default();
        let begin = self.pane.map_or(window.start, |pane| pane.end);
        let pane = Pane { begin, end: window.end };
        if self.pane.is_some() && pane.end <= pane.begin {
            return told.into();
        }
        self.panes.replaced += u64::from(self.fresh);
        let Options { detail, grain, max_age, .. } = &self.options;
        let max_age = u64::try_from(max_age.as_nanos()).unwrap_or(u64::MAX);
        let oldest = pane.end.saturating_sub(max_age);
        let seen = (&mut self.faults, &mut self.placed, self.pane.is_none());
        let groups = groups(report, *grain, detail, oldest, seen);
        let groups = self.within_cap(groups, pane.end);
        let about = report.about.clone().unwrap_or_default();
        self.support = code::encode(&about.support);
        let as_of = groups.values().fold(None, |as_of, group| older(as_of, group.as_of));
        let mut ending = ENDING.saturating_sub(self.ending());
        for (place, member) in &mut self.members {
            if !groups.contains_key(place) {
                self.lost += member.fold(Rows::default(), pane, &mut ending);
            }
        }
        for (place, group) in groups {
            let member = self.members.entry(place.clone()).or_insert_with(|| Member {
                resource: about.identity.resource(&place, group.first),
                named: Admission::new(0),
                whole: false,
                streams: BTreeMap::new(),
            });
            let mut rows = member.say(&group, &self.options, pane);
            if place == Place::Agent {
                if !member.whole {
                    rows::age(rows::process_book(), as_of, pane.end, &mut rows);
                }
                let export = (self.lost, self.panes, self.records);
                agent::say(report, &about.support, export, &mut rows);
            }
            if self.options.exemplar_logs {
                let records = records::of_pane(&member.resource, &rows, pane, &self.support);
                told.resource_logs.extend(records);
            }
            self.lost += member.fold(rows, pane, &mut ending);
        }
        self.members.retain(|_, member| !member.streams.is_empty());
        (self.pane, self.fresh) = (Some(pane), true);
        told.into()
    }

    /// What became of log records until now; `None` where there are none.
    pub fn mirrored(&mut self, told: Option<Mirrored>) {
        self.records = told;
    }

    /// The groups that get a resource of their own; that of the host takes the others in.
    fn within_cap<'a>(
        &mut self,
        groups: BTreeMap<Place, Group<'a>>,
        now: u64,
    ) -> BTreeMap<Place, Group<'a>> {
        let selected = matches!(self.options.detail, Detail::All(_));
        let size = |group: &Group<'_>| match group.whole && selected {
            true => u128::MAX,
            false => group.size,
        };
        let own = |place: &Place| matches!(place, Place::Agent | Place::Host);
        let others = groups.iter().filter(|(place, _)| !own(place));
        self.places.choose(others.map(|(place, group)| (place, size(group))), now);
        let (mut kept, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            groups.into_iter().partition(|(place, _)| own(place) || self.places.has(place));
        if !rest.is_empty() {
            let host: &mut Group<'a> = kept.entry(Place::Host).or_default();
            rest.into_values().for_each(|group| host.absorb(group));
            host.whole = self.options.detail == Detail::Owners;
        }
        kept
    }

    /// How many series are there, those that end included.
    #[must_use]
    pub fn series(&self) -> usize {
        self.all().count()
    }

    fn ending(&self) -> usize {
        self.all().filter(|series| series.phase != Phase::Live).count()
    }

    fn all(&self) -> impl Iterator<Item = &Series> {
        let streams = self.members.values().flat_map(|member| member.streams.values());
        streams.flat_map(|stream| stream.series.iter().map(|(_, series)| series))
    }

    /// Counts, and ends of series, that nobody is told.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What became of panes.
    #[must_use]
    pub fn panes(&self) -> Panes {
        self.panes
    }

    /// Whether there was a pane.
    pub(super) fn begun(&self) -> bool {
        self.pane.is_some()
    }

    /// Whether something waits for its fate.
    pub(super) fn pending(&self) -> bool {
        self.fresh || self.under_way || self.close.is_some()
    }

    /// The agent ends at `end` (nanoseconds since the Unix epoch): the shipment after the next one ends every series, as
    /// another run of the agent may not have all of them.
    pub fn close(&mut self, end: u64) {
        self.close = Some(end);
    }

    /// Ends every series if it is time.
    fn closing(&mut self) {
        if self.fresh || self.under_way {
            return;
        }
        let Some((pane, end)) = self.pane.zip(self.close.take()) else { return };
        let pane = Pane { begin: pane.end, end };
        if pane.end <= pane.begin {
            return;
        }
        let mut ending = usize::MAX;
        for member in self.members.values_mut() {
            self.lost += member.fold(Rows::default(), pane, &mut ending);
        }
        (self.pane, self.fresh) = (Some(pane), true);
    }

    /// Ships with parts of at most `limit` bytes each.
    fn ship(&mut self, limit: usize) -> Option<Shipment> {
        self.closing();
        let style = self.options.style;
        let replaceable = !style.deltas();
        let now = self.pane?.end;
        if !self.fresh || self.under_way && !replaceable {
            return None;
        }
        self.panes.replaced += u64::from(self.under_way);
        (self.fresh, self.under_way, self.at_stake) = (false, true, 0);
        self.number += 1;
        let mut packer = Packer::new(limit, style, &self.support);
        for (number, member) in self.members.values_mut().enumerate() {
            for stream in member.streams.values_mut() {
                for (attributes, series) in &mut stream.series {
                    let (start, value) = ship(series, style, now);
                    self.at_stake += u64::from(series.counts() && value.is_some());
                    let point = Point { attributes, start, time: now, value };
                    packer.push((number, &member.resource), stream.metric, &point);
                }
            }
        }
        Some(Shipment { number: self.number, parts: packer.finish(), replaceable })
    }
}

impl Feed for Accumulator {
    fn next(&mut self) -> Option<Shipment> {
        self.ship(PART)
    }

    fn settle(&mut self, number: u64, fate: Fate) {
        // The fate of one that a newer one replaced says nothing of what the newer one holds.
        if number != self.number || !self.under_way {
            return;
        }
        self.under_way = false;
        let arrived = fate == Fate::Delivered;
        // What is cumulative is in the next shipment, too.
        let lost = !arrived && self.options.style.deltas();
        self.lost += if lost { self.at_stake } else { 0 };
        match fate {
            Fate::Delivered => self.panes.delivered += 1,
            Fate::Refused => self.panes.refused += 1,
            // Without a newer one it waits itself.
            Fate::Replaced => self.panes.replaced += u64::from(self.fresh),
        }
        self.fresh |= fate == Fate::Replaced;
        for member in self.members.values_mut() {
            for stream in member.streams.values_mut() {
                stream.series.retain_mut(|(_, series)| series.settled(arrived, lost));
            }
            member.streams.retain(|_, stream| !stream.series.is_empty());
        }
        self.members.retain(|_, member| !member.streams.is_empty());
    }
}

impl Member {
    /// What the resource says at the end of a pane.
    fn say(&mut self, group: &Group<'_>, options: &Options, pane: Pane) -> Rows {
        self.whole |= group.whole;
        self.named.resize(match &options.detail {
            Detail::All(_) if self.whole => usize::MAX,
            Detail::Owners => options.owners,
            Detail::Kinds | Detail::All(_) => super::NAMED,
        });
        self.named.choose(group.sizes(self.whole), pane.end);
        let mut rows = Rows::default();
        if self.whole {
            rows::owners(group, &self.named, pane.end, &mut rows);
        } else {
            rows::kinds(group, &self.named, &mut rows);
        }
        rows
    }

    /// Carries all series on to the end of a pane. `ending`: room for series that end. Returns how many were lost for
    /// want of it.
    fn fold(&mut self, rows: Rows, pane: Pane, ending: &mut usize) -> u64 {
        for (name, (metric, _)) in &rows.0 {
            self.streams.entry(*name).or_insert_with(|| Stream { metric, series: Vec::new() });
        }
        let mut rows = rows.0;
        let mut lost = 0;
        for (name, stream) in &mut self.streams {
            let said = rows.remove(name).map(|(_, points)| points).unwrap_or_default();
            lost += stream.fold(said, pane, ending);
        }
        self.streams.retain(|_, stream| !stream.series.is_empty());
        lost
    }
}

impl Stream {
    /// Both lists are in the order of attributes, so one walk joins them.
    fn fold(&mut self, mut said: Points, pane: Pane, ending: &mut usize) -> u64 {
        if !said.is_sorted_by(|(a, _), (b, _)| order(a, b).is_lt()) {
            said.sort_by(|(a, _), (b, _)| order(a, b));
            said.dedup_by(|(a, _), (b, _)| order(a, b).is_eq());
        }
        let mut lost = 0;
        let mut said = said.into_iter().peekable();
        let before = std::mem::take(&mut self.series);
        self.series.reserve(before.len().max(said.len()));
        for (attributes, mut series) in before {
            let mut next = Ordering::Less;
            while let Some((key, amount)) = said.next_if(|(key, _)| {
                next = order(key, &attributes);
                next.is_lt()
            }) {
                self.series.push((key, Series::begin(amount, pane)));
            }
            match said.next_if(|_| next.is_eq()) {
                Some((_, amount)) => series.again(amount, pane),
                None => {
                    let before = series.phase;
                    if !series.silent() {
                        continue;
                    }
                    if before == Phase::Live && series.phase != Phase::Live {
                        if *ending == 0 {
                            lost += 1;
                            continue;
                        }
                        *ending -= 1;
                    }
                }
            }
            self.series.push((attributes, series));
        }
        self.series.extend(said.map(|(key, amount)| (key, Series::begin(amount, pane))));
        lost
    }
}
