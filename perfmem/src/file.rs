//! Recordings of perf (`perf.data`), as files and as streams: what they tell of address spaces and accesses, as evidence in
//! the order of time.
//!
//! A broken record costs itself and is counted with its place. Where the next record begins is not known behind a record
//! of impossible size: there the recording ends, and what came before stays told. Format: `tools/perf/util/header.c`,
//! `tools/perf/Documentation/perf.data-file-format.txt`.

mod aux;
mod bytes;
mod features;
mod header;
mod losses;
mod open;
mod order;
mod stream;
mod told;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

use memprov_ledger::evidence::{Access, Evidence};
use memprov_ledger::time::MonoTime;

use crate::evidence::{Event, Kind, Objects, Start, Threads, access, event, found};
use crate::record::{self, Body, ParseError, Record, sample};
use aux::{Aux, Conversion};
use bytes::Bytes;
pub use features::{About, ClockData};
use header::Header;
pub use header::{Attribute, HeaderError};
use losses::Losses;
pub use open::FileError;
use order::Order;
pub use stream::StreamError;
use stream::{AUXTRACE, Stream};

// Kinds of records that perf itself writes (`tools/lib/perf/include/perf/event.h`).
const HEADER_ATTR: u32 = 64;
const FINISHED_ROUND: u32 = 68;
const AUXTRACE_INFO: u32 = 70;
const EVENT_UPDATE: u32 = 78;
const TIME_CONV: u32 = 79;
const HEADER_FEATURE: u32 = 80;

/// Bytes that a thing in order takes, about: with its path.
const SIZE: usize = 320;
/// Broken records whose places are told one by one.
const TOLD: usize = 16;

/// What was read so far, in counts of records unless said otherwise.
#[derive(Debug, Default)]
pub struct Tally {
    /// All of them.
    pub records: u64,
    /// Samples that became accesses, those of hardware traces among them.
    pub accesses: u64,
    /// Operations that hardware traces sampled; those that access memory became accesses.
    pub operations: u64,
    /// Samples of events that ask for no address and no source of data.
    pub other_samples: u64,
    /// Samples without a time: nobody knows whose the address was then.
    pub timeless: u64,
    /// Of an event that the recording does not describe.
    pub unidentified: u64,
    /// Of kinds that say nothing of address spaces and accesses.
    pub other: u64,
    /// That could not be parsed.
    pub broken: u64,
    /// The first of them, with their places in the file.
    pub places: Vec<(u64, ParseError)>,
    /// That the kernel had no room for when it recorded, or lost before that: each once, whether it or perf tells of them.
    pub lost: u64,
    /// Older than what was in order before: perf's rounds did not hold.
    pub late: u64,
    /// Times that an event was held back for firing too often.
    pub throttled: u64,
    /// Mappings that there was no room for.
    pub crowded: u64,
    /// Features that could not be read.
    pub features: u32,
    /// Bytes of hardware traces that were passed over.
    pub passed: u64,
    /// Why the recording was not read to its end.
    pub stopped: Option<StreamError>,
}

/// An event of a recording.
#[derive(Clone, Debug)]
struct Source {
    attribute: Attribute,
    ids: Vec<u64>,
    kind: Kind,
}

/// What waits for its turn.
#[derive(Debug)]
enum Held {
    Event(Event),
    Access(Box<Access>),
    /// Of a hardware trace, whose process is to be found.
    Operation(Box<Access>),
    /// A task goes on, on a CPU.
    Switch(u32, (u32, u32)),
    /// Records were lost since this time: so many samples at least, 0 where nobody counted; perhaps of mappings, too.
    Lost {
        since: MonoTime,
        samples: u64,
        mappings: bool,
    },
}

impl Held {
    /// So many accesses since then are not told.
    fn missed(since: MonoTime, samples: u64) -> Self {
        Self::Lost { since, samples, mappings: false }
    }
}

/// A recording that is being read.
pub struct Recording<R = BufReader<File>> {
    stream: Stream<R>,
    about: About,
    events: Vec<Source>,
    /// Which event an id is of.
    ids: HashMap<u64, usize>,
    order: Order<Held>,
    /// What there was before, until it is told.
    start: Option<Start>,
    objects: Objects,
    threads: Threads,
    /// Hardware traces, and their clock.
    aux: Option<Aux>,
    conversion: Option<Conversion>,
    losses: Losses,
    tally: Tally,
    record: Vec<u8>,
    /// Place of `record` where it was read and not taken in.
    pending: Option<u64>,
    /// The newest record of each CPU: what it lost is younger.
    cpus: HashMap<u32, MonoTime>,
    /// Newest time that was told.
    told: MonoTime,
}

impl<R: BufRead + Seek> Recording<R> {
    /// Reads what a recording of `length` bytes says of itself.
    ///
    /// # Errors
    /// When it is no recording, or describes no event.
    pub fn read(mut file: R, length: u64) -> Result<Self, HeaderError> {
        let header = Header::read(&mut file, length)?;
        file.seek(SeekFrom::Start(header.data)).map_err(HeaderError::Read)?;
        Self::over(file, header)
    }
}

impl<R: BufRead> Recording<R> {
    /// Reads on where `reader` stands, behind the header: records that say what the recording is.
    fn over(reader: R, header: Header) -> Result<Self, HeaderError> {
        let mut recording = Self {
            stream: Stream::new(reader, header.data, header.end),
            about: About::default(),
            events: Vec::new(),
            ids: HashMap::new(),
            order: Order::default(),
            start: Some(Start::default()),
            objects: Objects::default(),
            threads: Threads::default(),
            aux: None,
            conversion: None,
            losses: Losses::default(),
            tally: Tally { features: header.broken, ..Tally::default() },
            record: Vec::new(),
            pending: None,
            cpus: HashMap::new(),
            told: MonoTime(0),
        };
        for (attribute, ids) in header.events {
            recording.add(attribute, ids);
        }
        for (number, bytes) in &header.features {
            recording.learn(*number, bytes);
        }
        // A stream tells the same in its first records.
        while let Some(offset) = recording.advance() {
            let kind = record::kind(&recording.record);
            if kind < HEADER_ATTR || matches!(kind, FINISHED_ROUND | AUXTRACE) {
                recording.pending = Some(offset);
                break;
            }
            recording.meta(kind, offset);
        }
        if recording.events.is_empty() { Err(HeaderError::NoEvents) } else { Ok(recording) }
    }

    /// The machine that it was made on.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Its events: what they were opened with, what their samples are, and what perf called them.
    pub fn events(&self) -> impl Iterator<Item = (&Attribute, Kind, Option<&str>)> {
        let name = |event: &Source| self.about.name(&event.ids);
        self.events.iter().map(move |event| (&event.attribute, event.kind, name(event)))
    }

    /// What was read so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Reads on until something is in order, and appends it. `false`: that was the last.
    pub fn next(&mut self, out: &mut Vec<Evidence>) -> bool {
        let before = out.len();
        while out.len() == before {
            let Some(offset) = self.advance() else {
                let rest = self.order.finish();
                self.tell(rest, out);
                self.begin(self.told, out);
                if self.tally.stopped.is_some() {
                    let rest = Held::Lost { since: self.told, samples: 0, mappings: true };
                    self.tell(vec![(self.told, rest)], out);
                }
                self.tally.late = self.order.late();
                self.tally.passed = self.stream.passed();
                return false;
            };
            let released = match record::kind(&self.record) {
                FINISHED_ROUND => self.order.round(),
                AUXTRACE => self.trace(offset),
                kind if kind >= HEADER_ATTR => {
                    self.meta(kind, offset);
                    Vec::new()
                }
                _ => self.take(offset),
            };
            self.tell(released, out);
        }
        true
    }

    /// The next record, in `record`, and its place.
    fn advance(&mut self) -> Option<u64> {
        if let Some(offset) = self.pending.take() {
            return Some(offset);
        }
        if self.tally.stopped.is_some() {
            return None;
        }
        match self.stream.next(&mut self.record) {
            Ok(offset) => {
                self.tally.records += u64::from(offset.is_some());
                offset
            }
            Err(error) => {
                self.tally.stopped = Some(error);
                None
            }
        }
    }

    fn add(&mut self, attribute: Attribute, ids: Vec<u64>) {
        let index = self.events.len();
        self.ids.extend(ids.iter().map(|id| (*id, index)));
        let kind = self.about.kind(&attribute);
        self.events.push(Source { attribute, ids, kind });
    }

    fn learn(&mut self, feature: u32, bytes: &[u8]) {
        let whole = self.about.learn(feature, bytes);
        self.tally.features += u32::from(!whole);
        for event in &mut self.events {
            event.kind = self.about.kind(&event.attribute);
        }
    }

    /// A record of perf itself.
    fn meta(&mut self, kind: u32, offset: u64) {
        let record = std::mem::take(&mut self.record);
        let body = record.get(stream::HEAD..).unwrap_or_default();
        let mut fields = Bytes(body);
        let read = match kind {
            HEADER_ATTR => Attribute::read(&mut fields).map(|attribute| {
                let ids = fields.0.chunks_exact(8).filter_map(|id| id.first_chunk().copied());
                self.add(attribute, ids.map(u64::from_le_bytes).collect());
            }),
            HEADER_FEATURE => fields.u64().map(|feature| {
                self.learn(u32::try_from(feature).unwrap_or(u32::MAX), fields.0);
            }),
            EVENT_UPDATE => self.about.update(body),
            AUXTRACE_INFO => Aux::read(&mut fields).map(|aux| {
                self.aux = aux;
                if self.aux.is_some() {
                    self.stream.keep_traces();
                    self.order.wait();
                }
            }),
            TIME_CONV => {
                Conversion::read(&mut fields).map(|conversion| self.conversion = Some(conversion))
            }
            _ => {
                self.tally.other += 1;
                Some(())
            }
        };
        if read.is_none() {
            let (size, left) = (record.len(), body.len());
            self.broken(offset, ParseError::Size { offset: 0, size, left });
        }
        self.record = record;
    }

    fn broken(&mut self, offset: u64, error: ParseError) {
        self.tally.broken += 1;
        if self.tally.places.len() < TOLD {
            self.tally.places.push((offset, error));
        }
    }

    /// Which event the record is of. Records that perf made up have id 0, and the form of the first.
    fn source(&self) -> Option<usize> {
        let first = self.events.first()?.attribute.format;
        if self.events.len() == 1 {
            return Some(0);
        }
        let Some(id) = record::event_id(&self.record, first) else {
            let alike = self.events.iter().all(|event| event.attribute.format == first);
            return alike.then_some(0);
        };
        let sampled = record::kind(&self.record) == record::SAMPLE;
        self.ids.get(&id).copied().or((id == 0 || !sampled).then_some(0))
    }

    /// A record of the kernel. Returns what is in order now.
    fn take(&mut self, offset: u64) -> Vec<(MonoTime, Held)> {
        let Some(event) = self.source().and_then(|index| self.events.get(index)) else {
            self.tally.unidentified += 1;
            let (since, lost) = self.unread();
            return self.order.push(since, SIZE, lost);
        };
        let (attribute, kind) = (event.attribute, event.kind);
        let unread = self.unread();
        let record = std::mem::take(&mut self.record);
        let held = match record::parse(&record, attribute.format) {
            Ok(parsed) => self.read_record(parsed, kind, attribute),
            Err(error) => {
                self.broken(offset, error);
                Some(unread)
            }
        };
        self.record = record;
        held.map_or_else(Vec::new, |(time, held)| self.order.push(time, SIZE, held))
    }

    /// The record that is being taken says nothing: it was a sample, or of anything.
    fn unread(&self) -> (MonoTime, Held) {
        let mappings = record::kind(&self.record) != record::SAMPLE;
        let here = self.order.here();
        (here.end, Held::Lost { since: here.begin, samples: u64::from(!mappings), mappings })
    }

    fn read_record(
        &mut self,
        mut record: Record<'_>,
        kind: Kind,
        attribute: Attribute,
    ) -> Option<(MonoTime, Held)> {
        let cpu = record.trailer.cpu;
        let (time, cpu) = match &record.body {
            Body::Sample(sample) => (sample.time, sample.cpu),
            Body::Fork(task) | Body::Exit(task) => (record.trailer.time.or(Some(task.time)), cpu),
            _ => (record.trailer.time, cpu),
        };
        let time = time.filter(|time| *time != 0).map(MonoTime);
        if let Some(aux) = &mut self.aux {
            aux.learn(&record.body);
        }
        let here = self.order.here();
        let held = match &record.body {
            Body::Sample(sample) => self.sampled(sample, kind, attribute.format.sample_type),
            Body::LostSamples(count) if time.is_none() => {
                let (samples, mappings) = self.losses.count(*count, attribute.sideband);
                self.tally.lost = self.tally.lost.saturating_add(samples);
                // At any time: it is of all that was recorded.
                let since = MonoTime::default();
                (samples > 0).then_some(Held::Lost { since, samples, mappings })
            }
            Body::Lost(count) | Body::LostSamples(count) => {
                // What was lost before the ring is in no count of what found no room there.
                let ring = matches!(record.body, Body::Lost(_));
                self.losses.hear(if ring { *count } else { 0 });
                self.tally.lost = self.tally.lost.saturating_add(*count);
                let since = cpu.and_then(|cpu| self.cpus.get(&cpu).copied()).unwrap_or_default();
                Some(Held::Lost { since, samples: *count, mappings: ring })
            }
            Body::Throttle | Body::Unthrottle => {
                self.tally.throttled += u64::from(record.body == Body::Throttle);
                None
            }
            Body::Switch { .. } if self.aux.is_some() => {
                Aux::switch(&record).map(|(cpu, task)| Held::Switch(cpu, task))
            }
            Body::Aux { truncated, partial, collided }
                if self.aux.is_some() && (*truncated || *partial || *collided) =>
            {
                let since = cpu.and_then(|cpu| self.cpus.get(&cpu).copied()).unwrap_or_default();
                Some(Held::missed(since, 0))
            }
            Body::Other(_) | Body::Switch { .. } | Body::Aux { .. } => {
                self.tally.other += 1;
                None
            }
            body if time.is_none() && self.start.is_some() => {
                if let Some(start) = &mut self.start {
                    found(body, start, &mut self.objects);
                    self.tally.crowded = start.crowded;
                }
                None
            }
            _ => {
                // Without a time it holds from where the file has it on, as perf takes it.
                record.trailer.time = Some(time.unwrap_or(here.begin).0);
                event(&record).map(|mut event| {
                    event.number(&mut self.objects);
                    Held::Event(event)
                })
            }
        };
        if let (Some(cpu), Some(time)) = (cpu, time) {
            let newest = self.cpus.entry(cpu).or_default();
            *newest = time.max(*newest);
        }
        held.map(|held| {
            let lost = matches!(held, Held::Lost { .. });
            (time.unwrap_or(if lost { here.end } else { here.begin }), held)
        })
    }

    fn sampled(
        &mut self,
        sampled: &sample::Sample<'_>,
        kind: Kind,
        sample_type: u64,
    ) -> Option<Held> {
        if !kind.tells_accesses(sample_type) {
            self.tally.other_samples += 1;
            return None;
        }
        let Some(access) = access(sampled, kind, &self.about.nodes) else {
            self.tally.timeless += 1;
            return Some(Held::missed(self.order.here().begin, 1));
        };
        self.tally.accesses += 1;
        Some(Held::Access(Box::new(access)))
    }
}

#[cfg(test)]
mod tests;
