//! Side-band of all CPUs: one ring each, read in the order of time.
//!
//! A record bears the time of the call, and is in its ring a moment later. So what is read is held back until that moment
//! has passed and every ring was read once more: nothing that comes later is older than that.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memprov_ledger::evidence::{Evidence, Gap, Stream};
use memprov_ledger::time::{MonoTime, Span};

use crate::clock::{SETTLED, nanos, now, suspended};
use crate::evidence::{Event, Threads, event};
use crate::open::{self, OpenError};
use crate::record::{Body, parse, split};
use crate::ring::{self, Ring};

/// How often CPUs that came are looked for, and the count of losses is read: reading it interrupts the CPU.
const LOOK: Duration = Duration::from_secs(1);
/// Room for the largest record: a path, its fields and trailer.
const LARGEST: usize = 4096 + 128;

/// What was read since the start. Counts of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read.
    pub read: u64,
    /// Lost for want of room.
    pub lost: u64,
    /// Of a kind that says nothing of address spaces here.
    pub unknown: u64,
    /// That could not be parsed; what followed in the same reading of a ring is lost with them.
    pub broken: u64,
    /// Times that an event was held back.
    pub throttled: u64,
}

/// Reading failed for good.
#[derive(Debug, thiserror::Error)]
#[error("wait for records of perf")]
pub struct ReadError(#[source] pub(crate) io::Error);

/// The ring of one CPU.
#[derive(Debug)]
struct Cpu {
    ring: Ring,
    /// The event counts its losses.
    counts: bool,
    /// Its count at the last reading.
    lost: u64,
    /// When the count was right: what is lost is later.
    checked: MonoTime,
}

/// Side-band of all processes of the host.
#[derive(Debug)]
pub struct Sideband {
    root: PathBuf,
    /// Bytes of one ring.
    size: usize,
    cpus: BTreeMap<u32, Cpu>,
    threads: Threads,
    /// Read, and held back.
    held: Vec<Event>,
    /// Begin of the last reading.
    begun: MonoTime,
    look: MonoTime,
    counts: Counts,
    bytes: Vec<u8>,
}

impl Sideband {
    /// Opens it on every CPU that is online. `room`: bytes of all rings together, divided evenly; a ring has a page at
    /// least. `root`: where `/sys` is found.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub fn open(root: &Path, room: u32) -> Result<Self, OpenError> {
        let online = open::online(root)?;
        let size = open::each(room, online.len());
        let mut sideband = Self {
            root: root.to_owned(),
            size,
            cpus: BTreeMap::new(),
            threads: Threads::default(),
            held: Vec::new(),
            begun: now(),
            look: now().after(LOOK),
            counts: Counts::default(),
            bytes: Vec::new(),
        };
        for cpu in online {
            sideband.add(cpu)?;
        }
        sideband.begun = now();
        Ok(sideband)
    }

    fn add(&mut self, cpu: u32) -> Result<(), OpenError> {
        let (event, counts) =
            open::event(cpu, self.size / 4).map_err(|source| OpenError::Event { cpu, source })?;
        let ring = Ring::map(event, self.size).map_err(|source| OpenError::Ring { cpu, source })?;
        self.cpus.insert(cpu, Cpu { ring, counts, lost: 0, checked: now() });
        Ok(())
    }

    /// Everything later than this was told or counted when the last reading ended.
    #[must_use]
    pub fn since(&self) -> MonoTime {
        self.begun
    }

    /// What was read so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Waits for records, at most for `wait`; appends what they say in the order of time, and what was lost. Returns the
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
        self.held.sort_by_key(|event| event.when);
        let released = self.held.partition_point(|event| event.when <= settled);
        let suspended = suspended();
        for event in self.held.drain(..released) {
            out.extend(self.threads.lifecycle(event, suspended).map(Evidence::Lifecycle));
        }
        Ok(settled)
    }

    fn read(&mut self, number: u32, begun: MonoTime, out: &mut Vec<Evidence>) {
        let Some(cpu) = self.cpus.get_mut(&number) else { return };
        self.bytes.clear();
        let count = cpu.ring.drain(&mut self.bytes);
        let mut lost = 0u64;
        let mut broken = false;
        for record in split(&self.bytes) {
            self.counts.read += 1;
            match record.and_then(|record| parse(record, open::FORMAT)) {
                Ok(record) => {
                    match record.body {
                        Body::Lost(n) | Body::LostSamples(n) => lost = lost.saturating_add(n),
                        Body::Throttle => self.counts.throttled += 1,
                        Body::Other(_) => self.counts.unknown += 1,
                        _ => {}
                    }
                    self.held.extend(event(&record));
                }
                Err(_) => {
                    self.counts.broken += 1;
                    broken = true;
                }
            }
        }
        // A full ring has no room for the record that says so.
        let suspect = lost > 0 || count + LARGEST > cpu.ring.size() || begun >= self.look;
        if cpu.counts && suspect {
            let total = cpu.ring.lost().unwrap_or(cpu.lost);
            lost = total.saturating_sub(cpu.lost);
            cpu.lost = total;
        }
        if lost > 0 || broken {
            self.counts.lost = self.counts.lost.saturating_add(lost);
            // Nobody knows how many a broken one takes along.
            let gap = if broken { 0 } else { lost };
            let when = Span { begin: cpu.checked, end: now() };
            out.push(gap_of(when, gap));
            self.threads.lose(when.end);
        }
        if suspect || !cpu.counts {
            cpu.checked = begun;
        }
    }

    /// Opens CPUs that came, and closes those that went. What ran on a new one until now nobody saw.
    fn look_around(&mut self, begun: MonoTime, out: &mut Vec<Evidence>) {
        let before = MonoTime(self.look.0.saturating_sub(nanos(LOOK)));
        self.look = begun.after(LOOK);
        // What cannot be read now is looked at again.
        let Ok(online) = open::online(&self.root) else { return };
        self.cpus.retain(|cpu, _| online.contains(cpu));
        for cpu in online {
            if !self.cpus.contains_key(&cpu) && self.add(cpu).is_ok() {
                let when = Span { begin: before, end: now() };
                out.push(gap_of(when, 0));
                self.threads.lose(when.end);
            }
        }
    }
}

fn gap_of(when: Span, lost: u64) -> Evidence {
    Evidence::Gap(Gap { when, stream: Stream::Sideband, lost, whose: None })
}

/// Whether side-band works here, by trying: it is opened, a thread is made, and its record must come.
///
/// # Errors
/// Why it does not.
pub fn probe(root: &Path) -> Result<(), OpenError> {
    let mut sideband = Sideband::open(root, 0)?;
    // A thread that does nothing, and whose end is waited for, does not panic.
    drop(std::thread::spawn(|| ()).join());
    let own = std::process::id();
    let heard = sideband.cpus.values_mut().any(|cpu| {
        sideband.bytes.clear();
        cpu.ring.drain(&mut sideband.bytes);
        let records = split(&sideband.bytes).flatten();
        records.flat_map(|record| parse(record, open::FORMAT)).any(
            |record| matches!(record.body, Body::Fork(task) if task.pid == own && task.parent_pid == own),
        )
    });
    if heard { Ok(()) } else { Err(OpenError::Silent) }
}
