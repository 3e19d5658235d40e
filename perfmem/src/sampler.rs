//! Samples of all CPUs: events of threads or of whole CPUs, one ring for each CPU, told in the order of time.
//!
//! Events of a thread go with threads and processes that it makes. What a child process does is told by its own events, if it
//! is watched: that of its parent's is left out. So is what a thread does that has events of its own, though another one made
//! it: nothing is told twice. The thread of a number that is another's within a second may be taken for that one.

mod period;
mod sampled;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::evidence::{Access, Evidence, Gap, Stream};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::{MonoTime, Span};

use self::period::{KEPT, Random};
use self::sampled::{BASE, Event};
use crate::clock::{SETTLED, nanos, now};
use crate::evidence::{Kind, access};
use crate::nodes::Nodes;
use crate::open::{self, OpenError, meaning};
use crate::record::{Body, Format, event_id, parse, split};
use crate::ring::{self, Ring};
use crate::sideband::ReadError;

pub use self::period::Period;
pub use self::sampled::Sampled;

/// Room for the largest record.
const LARGEST: usize = 256;
/// How often CPUs and threads that went are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Events at most: each is an open file.
const EVENTS: usize = 1 << 13;
/// Rounds in which the threads of a process are listed: one that is made between two is made by one that has events.
const ROUNDS: usize = 4;

/// Why nothing is sampled.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The rings.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An event does not open.
    #[error("open {event} on CPU {cpu}{}", meaning(source))]
    Event {
        /// Its name.
        event: String,
        /// The CPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The threads of a process cannot be listed.
    #[error("list {}", path.display())]
    Threads {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It would take too many events.
    #[error("process {}: events of {threads} threads on each CPU are more than {EVENTS} in all", tgid.0)]
    Many {
        /// The process.
        tgid: Tgid,
        /// Its threads.
        threads: usize,
    },
}

/// What was read since the start. Counts of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read.
    pub read: u64,
    /// Samples that became evidence.
    pub told: u64,
    /// Samples left out: of a child of a process that is watched, told by the events of another thread, or of an event that
    /// was closed meanwhile.
    pub others: u64,
    /// Lost for want of room.
    pub lost: u64,
    /// Records that say that some were lost.
    pub lost_records: u64,
    /// That could not be parsed; what followed in the same reading of a ring is lost with them.
    pub broken: u64,
    /// Times that an event was held back.
    pub throttled: u64,
}

/// An event on one CPU.
#[derive(Debug)]
struct Open {
    event: Event,
    /// Whose it is; `None`: of all processes.
    thread: Option<(Tgid, u32)>,
    kind: Kind,
    period: Period,
    grain: u64,
    /// Samples since the period was drawn.
    sampled: u32,
    /// Its count of losses at the last reading.
    lost: u64,
}

#[derive(Debug)]
struct Cpu {
    ring: Ring,
    /// By id.
    events: HashMap<u64, Open>,
    /// When all counts of losses were right: what is lost is later.
    checked: MonoTime,
}

/// A process whose events are open.
#[derive(Debug)]
struct Watched {
    events: Arc<[Sampled]>,
    /// Threads that were made while events were opened, and have their own: they may have those of their maker, too.
    late: BTreeSet<u32>,
}

/// Samples of this host.
#[derive(Debug)]
pub struct Sampler {
    root: PathBuf,
    /// Bytes of one ring.
    size: usize,
    cpus: BTreeMap<u32, Cpu>,
    /// Sampled of all processes.
    all: Vec<Sampled>,
    watched: BTreeMap<Tgid, Watched>,
    nodes: Nodes,
    random: Random,
    /// Read, and held back.
    held: Vec<Access>,
    /// Begin of the last reading.
    begun: MonoTime,
    look: MonoTime,
    counts: Counts,
    bytes: Vec<u8>,
}

impl Sampler {
    /// Opens rings on every CPU that is online, to which nothing is written yet. `room`: bytes of all rings together.
    /// `root`: where `/proc` and `/sys` are found. `seed`: of what is drawn.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub fn open(root: &Path, room: u32, seed: u64) -> Result<Self, SampleError> {
        let online = open::online(root)?;
        let mut sampler = Self {
            root: root.to_owned(),
            size: open::each(room, online.len()),
            cpus: BTreeMap::new(),
            all: Vec::new(),
            watched: BTreeMap::new(),
            nodes: Nodes::default(),
            random: Random::new(seed),
            held: Vec::new(),
            begun: now(),
            look: now().after(LOOK),
            counts: Counts::default(),
            bytes: Vec::new(),
        };
        for cpu in online {
            sampler.add(cpu)?;
        }
        Ok(sampler)
    }

    fn add(&mut self, cpu: u32) -> Result<(), OpenError> {
        let event =
            open::silent(cpu, self.size / 4).map_err(|source| OpenError::Event { cpu, source })?;
        let ring = Ring::map(event, self.size).map_err(|source| OpenError::Ring { cpu, source })?;
        self.cpus.insert(cpu, Cpu { ring, events: HashMap::new(), checked: now() });
        Ok(())
    }

    /// Which node CPUs and frames belong to, from now on.
    pub fn set_nodes(&mut self, nodes: Nodes) {
        self.nodes = nodes;
    }

    /// What was read so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whose events are open.
    pub fn watched(&self) -> impl Iterator<Item = Tgid> + '_ {
        self.watched.keys().copied()
    }

    /// Samples an event of all processes.
    ///
    /// # Errors
    /// When it does not open on every CPU; then it is open on none.
    pub fn sample(&mut self, event: Sampled) -> Result<(), SampleError> {
        let before: BTreeSet<u64> = self.ids().collect();
        let cpus: Vec<u32> = self.cpus.keys().copied().collect();
        for cpu in cpus {
            if let Err(source) = self.begin(cpu, &event, None) {
                self.keep(|id, _| before.contains(&id));
                return Err(SampleError::Event { event: event.name, cpu, source });
            }
        }
        self.all.push(event);
        Ok(())
    }

    /// Samples events of all threads of a process, and of those that they make. Does nothing where it is watched already.
    ///
    /// # Errors
    /// When one of them does not open; then none is open.
    pub fn watch(&mut self, tgid: Tgid, events: &Arc<[Sampled]>) -> Result<(), SampleError> {
        if self.watched.contains_key(&tgid) {
            return Ok(());
        }
        match self.watch_threads(tgid, events) {
            Ok(late) => {
                self.watched.insert(tgid, Watched { events: Arc::clone(events), late });
                Ok(())
            }
            Err(error) => {
                self.forget(tgid);
                Err(error)
            }
        }
    }

    /// Opens the events of all threads; tells those that were made meanwhile.
    fn watch_threads(
        &mut self,
        tgid: Tgid,
        events: &[Sampled],
    ) -> Result<BTreeSet<u32>, SampleError> {
        let cpus: Vec<u32> = self.cpus.keys().copied().collect();
        let (mut first, mut late) = (BTreeSet::new(), BTreeSet::new());
        for round in 0..ROUNDS {
            let listed = self.threads(tgid)?;
            let new = |thread: &u32| !first.contains(thread) && !late.contains(thread);
            let new: BTreeSet<u32> = listed.iter().copied().filter(new).collect();
            if self.ids().count() + new.len() * cpus.len() * events.len() > EVENTS {
                return Err(SampleError::Many { tgid, threads: listed.len() });
            }
            for thread in &new {
                for (cpu, event) in cpus.iter().flat_map(|cpu| events.iter().map(|e| (*cpu, e))) {
                    match self.begin(cpu, event, Some((tgid, *thread))) {
                        Ok(()) => {}
                        // It ended meanwhile.
                        Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                        Err(source) => {
                            let event = event.name.clone();
                            return Err(SampleError::Event { event, cpu, source });
                        }
                    }
                }
            }
            match round {
                0 => first = new,
                _ if new.is_empty() => break,
                _ => late.extend(new),
            }
        }
        Ok(late)
    }

    /// Ends the events of a process.
    pub fn forget(&mut self, tgid: Tgid) {
        self.watched.remove(&tgid);
        self.keep(|_, open| open.thread.is_none_or(|(of, _)| of != tgid));
    }

    fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.cpus.values().flat_map(|cpu| cpu.events.keys().copied())
    }

    fn keep(&mut self, which: impl Fn(u64, &Open) -> bool) {
        for cpu in self.cpus.values_mut() {
            cpu.events.retain(|id, open| which(*id, open));
        }
    }

    fn threads(&self, tgid: Tgid) -> Result<BTreeSet<u32>, SampleError> {
        let path = self.root.join(format!("proc/{}/task", tgid.0));
        let failed = |source| SampleError::Threads { path: path.clone(), source };
        let mut threads = BTreeSet::new();
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            threads.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        Ok(threads)
    }

    /// Opens an event on a CPU whose ring is open.
    fn begin(
        &mut self,
        number: u32,
        sampled: &Sampled,
        thread: Option<(Tgid, u32)>,
    ) -> io::Result<()> {
        let Some(cpu) = self.cpus.get_mut(&number) else { return Ok(()) };
        let Sampled { period, grain, .. } = *sampled;
        let events = period.draw(self.random.next() / grain).saturating_mul(grain);
        let mut event = sampled.open(number, thread.map(|(_, thread)| thread), events)?;
        event.write_to(&cpu.ring)?;
        event.enable()?;
        let kind = Kind { period: Some(events), ..sampled.kind };
        let open = Open { event, thread, kind, period, grain, sampled: 0, lost: 0 };
        cpu.events.insert(open.event.id(), open);
        Ok(())
    }

    /// Waits for samples, at most for `wait`; appends what they say in the order of time, and what was lost. Returns the
    /// watermark: nothing that comes later is older.
    ///
    /// # Errors
    /// When the rings cannot be waited for.
    pub fn poll(&mut self, wait: Duration, out: &mut Vec<Evidence>) -> Result<MonoTime, ReadError> {
        let rings = self.cpus.iter().map(|(cpu, of)| (*cpu, &of.ring));
        let gone = ring::wait(rings, wait).map_err(ReadError)?;
        let begun = now();
        let settled = self.begun.min(MonoTime(begun.0.saturating_sub(nanos(SETTLED))));
        let cpus: Vec<u32> = self.cpus.keys().copied().collect();
        for cpu in cpus {
            self.read(cpu, begun, out);
        }
        // Whoever went offline was read to its end.
        gone.iter().for_each(|cpu| drop(self.cpus.remove(cpu)));
        if begun >= self.look {
            self.look_around(begun, out);
        }
        self.begun = begun;
        self.held.sort_by_key(|access| access.when.end);
        let released = self.held.partition_point(|access| access.when.end <= settled);
        out.extend(self.held.drain(..released).map(|access| Evidence::Access(Box::new(access))));
        Ok(settled)
    }

    fn read(&mut self, number: u32, begun: MonoTime, out: &mut Vec<Evidence>) {
        let Some(cpu) = self.cpus.get_mut(&number) else { return };
        self.bytes.clear();
        let count = cpu.ring.drain(&mut self.bytes);
        // A full ring has no room for the record that says so.
        let mut suspect = count + LARGEST > cpu.ring.size();
        let mut losses: BTreeMap<Option<Tgid>, u64> = BTreeMap::new();
        let common = Format::plain(BASE, true);
        for record in split(&self.bytes) {
            self.counts.read += 1;
            let id = record.as_ref().ok().and_then(|record| event_id(record, common));
            let mut open = id.and_then(|id| cpu.events.get_mut(&id));
            // Records other than samples end alike, of whatever event.
            let format = open.as_ref().map_or(common, |open| open.event.format);
            let parsed = match record {
                Ok(record)
                    if open.is_none() && crate::record::kind(record) == crate::record::SAMPLE =>
                {
                    self.counts.others += 1;
                    continue;
                }
                record => record.and_then(|record| parse(record, format)),
            };
            let whose = open.as_ref().and_then(|open| open.thread).map(|(tgid, _)| tgid);
            match parsed.map(|record| record.body) {
                Ok(Body::Sample(sample)) => {
                    let Some(open) = &mut open else { continue };
                    open.sampled = open.sampled.saturating_add(1);
                    if !told(open, sample.task, &self.watched) {
                        self.counts.others += 1;
                        continue;
                    }
                    self.counts.told += 1;
                    self.held.extend(access(&sample, open.kind, &self.nodes));
                }
                Ok(Body::Lost(n) | Body::LostSamples(n)) => {
                    self.counts.lost_records += 1;
                    suspect = true;
                    if open.as_ref().is_none_or(|open| !open.event.counts) {
                        *losses.entry(whose).or_default() += n;
                    }
                }
                Ok(Body::Throttle) => {
                    self.counts.throttled += 1;
                    losses.entry(whose).or_default();
                }
                Ok(_) => {}
                Err(_) => {
                    self.counts.broken += 1;
                    losses.entry(None).or_default();
                }
            }
        }
        for open in cpu.events.values_mut() {
            if suspect && open.event.counts {
                let total = open.event.lost().unwrap_or(open.lost);
                let lost = total.saturating_sub(open.lost);
                open.lost = open.lost.max(total);
                if lost > 0 {
                    *losses.entry(open.thread.map(|(tgid, _)| tgid)).or_default() += lost;
                }
            }
            if matches!(open.period, Period::Random(_)) && open.sampled >= KEPT {
                let random = self.random.next() / open.grain;
                let events = open.period.draw(random).saturating_mul(open.grain);
                // One that ended samples nothing any more.
                if open.event.every(events).is_ok() {
                    (open.kind.period, open.sampled) = (Some(events), 0);
                }
            }
        }
        for (whose, lost) in losses {
            self.counts.lost = self.counts.lost.saturating_add(lost);
            out.push(gap_of(Span { begin: cpu.checked, end: now() }, lost, whose));
        }
        cpu.checked = begun;
    }

    /// Forgets threads that ended, begins on CPUs that came and ends on those that went. What ran on a new one until now
    /// nobody saw.
    fn look_around(&mut self, begun: MonoTime, out: &mut Vec<Evidence>) {
        let before = MonoTime(self.look.0.saturating_sub(nanos(LOOK)));
        self.look = begun.after(LOOK);
        let processes: Vec<Tgid> = self.watched.keys().copied().collect();
        for tgid in processes {
            let Ok(live) = self.threads(tgid) else {
                self.forget(tgid);
                continue;
            };
            // Events of a thread that ended go on in those that it made.
            if let Some(watched) = self.watched.get_mut(&tgid) {
                watched.late.retain(|thread| live.contains(thread));
            }
        }
        // What cannot be read now is looked at again.
        let Ok(online) = open::online(&self.root) else { return };
        if self.cpus.keys().eq(&online) {
            return;
        }
        self.cpus.retain(|cpu, _| online.contains(cpu));
        for cpu in online {
            if !self.cpus.contains_key(&cpu) && self.add(cpu).is_ok() {
                for event in self.all.clone() {
                    // It says what it lacks by the gap.
                    drop(self.begin(cpu, &event, None));
                }
            }
        }
        for (tgid, Watched { events, .. }) in std::mem::take(&mut self.watched) {
            self.forget(tgid);
            drop(self.watch(tgid, &events));
        }
        out.push(gap_of(Span { begin: before, end: now() }, 0, None));
    }
}

/// No such thread.
const ESRCH: i32 = 3;

/// Whether a sample is told of by this event and no other.
fn told(open: &Open, task: Option<(u32, u32)>, watched: &BTreeMap<Tgid, Watched>) -> bool {
    let (Some((of, thread)), Some((pid, tid))) = (open.thread, task) else { return true };
    let own = |tid| watched.get(&of).is_some_and(|watched| watched.late.contains(&tid));
    pid == of.0 && (tid == thread || !own(tid))
}

fn gap_of(when: Span, lost: u64, whose: Option<Tgid>) -> Evidence {
    Evidence::Gap(Gap { when, stream: Stream::Accesses, lost, whose })
}
