//! Samples of all CPUs: events of threads or of whole CPUs, one ring for each CPU, told in the order of time.
//!
//! Events of a thread go with threads and processes that it makes. What a child process does is told by its own events, if it
//! is watched: that of its parent's is left out. So is what a thread does that has events of its own, though another one made
//! it: nothing is told twice. The thread of a number that is another's within a second may be taken for that one.

mod cpu;
mod losses;
mod pace;
mod period;
mod sampled;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::evidence::Evidence;
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::{MonoTime, Span};

use self::cpu::{Common, Cpu, Open, State, Watched, Whose, gap_of};
use self::pace::Pace;
use self::period::{KEPT, Random};
use crate::clock::{SETTLED, nanos, now};
use crate::errno::{ENOENT, ESRCH};
use crate::evidence::Kind;
use crate::nodes::Nodes;
use crate::open::{self, OpenError, meaning};
use crate::ring::{self, Ring};
use crate::sideband::ReadError;

pub use self::cpu::Counts;
pub use self::period::Period;
pub use self::sampled::Sampled;
pub use self::turns::Ran;

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
    /// No CPU that has it is online.
    #[error("no CPU that has {event} is online")]
    Nowhere {
        /// Its name.
        event: String,
    },
    /// They open, and a page that was just touched is not told.
    #[error("faults are sampled, and none is told")]
    Silent,
    /// It would take too many events.
    #[error("process {}: events of {threads} threads on each CPU are more than {EVENTS} in all", tgid.0)]
    Many {
        /// The process.
        tgid: Tgid,
        /// Its threads.
        threads: usize,
    },
}

impl SampleError {
    /// The process is gone.
    fn vanished(&self) -> bool {
        let Self::Threads { source, .. } = self else { return false };
        matches!(source.raw_os_error(), Some(ENOENT | ESRCH))
    }
}

/// Samples of this host.
#[derive(Debug)]
pub struct Sampler {
    root: PathBuf,
    /// Bytes of one ring.
    size: usize,
    cpus: BTreeMap<u32, Cpu>,
    state: State,
    random: Random,
    /// Begin of the last reading.
    begun: MonoTime,
    look: MonoTime,
    /// When the list of CPUs was read last: one that is new came later.
    listed: MonoTime,
}

impl Sampler {
    /// Opens rings on every CPU that is online, to which nothing is written yet. `room`: bytes of all rings together.
    /// `root`: where `/proc` and `/sys` are found. `seed`: of what is drawn.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub fn open(root: &Path, room: u32, seed: u64) -> Result<Self, SampleError> {
        let listed = now();
        let online = open::online(root)?;
        let mut sampler = Self {
            root: root.to_owned(),
            size: open::each(room, online.len()),
            cpus: BTreeMap::new(),
            state: State::default(),
            random: Random::new(seed),
            begun: now(),
            look: now().after(LOOK),
            listed,
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
        self.state.nodes = nodes;
    }

    /// What was read so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// Events of all processes by name, and for how long each ran on all CPUs together, as of the last look.
    pub fn ran(&self) -> impl Iterator<Item = (&str, Ran)> {
        self.state.all.iter().map(|common| (common.event.name.as_str(), common.ran))
    }

    /// Whose events are open. Who could not be watched anew when a CPU came is not among them.
    pub fn watched(&self) -> impl Iterator<Item = Tgid> + '_ {
        self.state.watched.keys().copied()
    }

    /// Samples an event of all processes, on the CPUs that have it.
    ///
    /// # Errors
    /// When it does not open on every one of them, or none is online; then it is open on none.
    pub fn sample(&mut self, event: Sampled) -> Result<(), SampleError> {
        if !self.cpus.keys().any(|cpu| event.is_on(*cpu)) {
            return Err(SampleError::Nowhere { event: event.name });
        }
        let number = self.state.all.len();
        let rate = if let Period::Paced(rate) = event.period { rate } else { 1 };
        let (pace, samples, ran) = (Pace::new(rate, now()), 0, Ran::default());
        self.state.all.push(Common { event: event.clone(), pace, samples, ran });
        let cpus: Vec<u32> = self.cpus.keys().copied().collect();
        for cpu in cpus {
            if let Err(source) = self.begin(cpu, &event, Whose::All(number)) {
                self.state.all.truncate(number);
                self.keep(|open| open.whose != Whose::All(number));
                return Err(SampleError::Event { event: event.name, cpu, source });
            }
        }
        Ok(())
    }

    /// Samples events of all threads of a process, and of those that they make. Does nothing where it is watched already.
    ///
    /// # Errors
    /// When one of them does not open; then none is open.
    pub fn watch(&mut self, tgid: Tgid, events: &Arc<[Sampled]>) -> Result<(), SampleError> {
        if self.state.watched.contains_key(&tgid) {
            return Ok(());
        }
        match self.watch_threads(tgid, events) {
            Ok(late) => {
                self.state.watched.insert(tgid, Watched { events: Arc::clone(events), late });
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
                    match self.begin(cpu, event, Whose::Thread(tgid, *thread)) {
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
        self.state.watched.remove(&tgid);
        self.keep(|open| open.whose.process() != Some(tgid));
    }

    fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.cpus.values().flat_map(|cpu| cpu.events.keys().copied())
    }

    fn keep(&mut self, which: impl Fn(&Open) -> bool) {
        self.cpus.values_mut().for_each(|cpu| cpu.events.retain(|_, open| which(open)));
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

    /// Opens an event on a CPU whose ring is open; does nothing on one that does not have it.
    fn begin(&mut self, number: u32, sampled: &Sampled, whose: Whose) -> io::Result<()> {
        let Some(cpu) = self.cpus.get_mut(&number).filter(|_| sampled.is_on(number)) else {
            return Ok(());
        };
        let (paced, thread) = match whose {
            Whose::All(nth) => {
                (self.state.all.get(nth).map_or(1, |common| common.pace.mean()), None)
            }
            Whose::Thread(_, thread) => (1, Some(thread)),
        };
        let events = sampled.period.draw(paced, sampled.grain, self.random.next());
        let mut event = sampled.open(number, thread, events)?;
        event.write_to(&cpu.ring)?;
        event.enable()?;
        let kind = Kind { period: Some(events), ..sampled.kind };
        let Sampled { period, grain, .. } = *sampled;
        let ran = Ran::default();
        let open = Open { event, whose, kind, period, grain, sampled: 0, lost: 0, ran };
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
        self.cpus.values_mut().for_each(|cpu| cpu.read(begun, &mut self.state, out));
        self.redraw(begun);
        // Whoever went offline was read to its end.
        gone.iter().for_each(|cpu| drop(self.cpus.remove(cpu)));
        if begun >= self.look {
            self.time(out);
            self.look_around(begun, out);
        }
        self.begun = begun;
        self.state.held.sort_by_key(|access| access.when.end);
        let released = self.state.held.partition_point(|access| access.when.end <= settled);
        out.extend(
            self.state.held.drain(..released).map(|access| Evidence::Access(Box::new(access))),
        );
        Ok(settled)
    }

    /// Draws new periods: for a new pace at once, else when enough was sampled by the old one.
    fn redraw(&mut self, begun: MonoTime) {
        let turn = |common: &mut Common| {
            let changed = common.pace.turn(std::mem::take(&mut common.samples), begun);
            (common.pace.mean(), changed.is_some())
        };
        let paces: Vec<(u64, bool)> = self.state.all.iter_mut().map(turn).collect();
        for open in self.cpus.values_mut().flat_map(|cpu| cpu.events.values_mut()) {
            let (paced, changed) = match open.whose {
                Whose::All(nth) => paces.get(nth).copied().unwrap_or((1, false)),
                Whose::Thread(..) => (1, false),
            };
            let changed = changed && matches!(open.period, Period::Paced(_));
            if open.period.varies() && (changed || open.sampled >= KEPT) {
                let events = open.period.draw(paced, open.grain, self.random.next());
                // One that ended samples nothing any more.
                if open.event.every(events).is_ok() {
                    (open.kind.period, open.sampled) = (Some(events), 0);
                }
            }
        }
    }

    /// Where an event of all processes took turns, what it did not sample since the last look is a gap that nobody counted.
    fn time(&mut self, out: &mut Vec<Evidence>) {
        let all = &mut self.state.all;
        let turns = self.cpus.values_mut().fold(false, |turns, cpu| cpu.time(all) | turns);
        if turns {
            let before = MonoTime(self.look.0.saturating_sub(nanos(LOOK)));
            out.push(gap_of(Span { begin: before, end: now() }, 0, None));
        }
    }

    /// Forgets threads that ended, begins on CPUs that came and ends on those that went. What ran on a new one until now
    /// nobody saw.
    fn look_around(&mut self, begun: MonoTime, out: &mut Vec<Evidence>) {
        self.look = begun.after(LOOK);
        let processes: Vec<Tgid> = self.state.watched.keys().copied().collect();
        for tgid in processes {
            match (self.threads(tgid), self.state.watched.get_mut(&tgid)) {
                // Events of a thread that ended go on in those that it made.
                (Ok(live), Some(watched)) => watched.late.retain(|thread| live.contains(thread)),
                (Err(error), _) if error.vanished() => self.forget(tgid),
                // What cannot be read now is looked at again.
                _ => {}
            }
        }
        // What cannot be read now is looked at again.
        let Ok(online) = open::online(&self.root) else { return };
        let before = std::mem::replace(&mut self.listed, begun);
        if self.cpus.keys().eq(&online) {
            return;
        }
        let had: Vec<u32> = self.cpus.keys().copied().collect();
        self.cpus.retain(|cpu, _| online.contains(cpu));
        for cpu in online {
            // One that does not open as a whole is tried at the next look, and the gap goes on until then.
            if !self.cpus.contains_key(&cpu) && self.join(cpu).is_err() {
                self.cpus.remove(&cpu);
            }
        }
        if !self.cpus.keys().eq(&had) {
            for (tgid, Watched { events, .. }) in std::mem::take(&mut self.state.watched) {
                self.forget(tgid);
                drop(self.watch(tgid, &events));
            }
        }
        out.push(gap_of(Span { begin: before, end: now() }, 0, None));
    }

    /// Opens the ring of a CPU that came, and the events of all processes there.
    fn join(&mut self, cpu: u32) -> Result<(), SampleError> {
        self.add(cpu)?;
        let all: Vec<Sampled> = self.state.all.iter().map(|common| common.event.clone()).collect();
        for (nth, event) in all.into_iter().enumerate() {
            self.begin(cpu, &event, Whose::All(nth)).map_err(|source| SampleError::Event {
                event: event.name,
                cpu,
                source,
            })?;
        }
        Ok(())
    }
}

/// Whether faults can be sampled here, by trying: this thread touches memory, and that must be told.
///
/// # Errors
/// Why not.
pub fn probe(root: &Path) -> Result<(), SampleError> {
    let mut sampler = Sampler::open(root, 0, 1)?;
    let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0);
    let [minor, _] = Sampled::faults();
    let cpus: Vec<u32> = sampler.cpus.keys().copied().collect();
    for cpu in cpus {
        sampler
            .begin(cpu, &minor, Whose::Thread(Tgid(std::process::id()), thread))
            .map_err(|source| SampleError::Event { event: minor.name.clone(), cpu, source })?;
    }
    // Large enough to be new memory.
    drop(std::hint::black_box(vec![1u8; 1 << 20]));
    let mut evidence = Vec::new();
    for _ in 0..20 {
        std::thread::sleep(SETTLED);
        // What cannot be read tells nothing, either.
        drop(sampler.poll(Duration::ZERO, &mut evidence));
        if evidence.iter().any(|evidence| matches!(evidence, Evidence::Access(_))) {
            return Ok(());
        }
    }
    Err(SampleError::Silent)
}

#[cfg(test)]
mod tests;
