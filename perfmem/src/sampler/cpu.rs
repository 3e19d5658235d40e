//! One CPU: its ring, the events that write to it, and what they say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use memprov_ledger::evidence::{Access, Evidence, Gap, Stream};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::{MonoTime, Span};

use super::losses::Losses;
use super::pace::Pace;
use super::period::Period;
use super::sampled::{BASE, Event, Sampled};
use super::turns::Ran;
use crate::clock::now;
use crate::evidence::{Kind, access};
use crate::nodes::Nodes;
use crate::record::{Body, Format, SAMPLE, event_id, kind, parse, split};
use crate::ring::Ring;

/// Room for the largest record.
const LARGEST: usize = 256;
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

/// What an event samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// All processes: this one of [`State::all`].
    All(usize),
    /// A thread of a process, and those that it makes.
    Thread(Tgid, u32),
}

impl Whose {
    pub(super) fn process(self) -> Option<Tgid> {
        match self {
            Self::All(_) => None,
            Self::Thread(tgid, _) => Some(tgid),
        }
    }
}

/// An event on one CPU.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) event: Event,
    pub(super) whose: Whose,
    pub(super) kind: Kind,
    pub(super) period: Period,
    pub(super) grain: u64,
    /// Samples since the period was drawn.
    pub(super) sampled: u32,
    /// Its count of losses at the last reading.
    pub(super) lost: u64,
    /// How long it had run at the last reading.
    pub(super) ran: Ran,
}

#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) ring: Ring,
    /// By id.
    pub(super) events: HashMap<u64, Open>,
    /// When all counts of losses were right: what is lost is later.
    pub(super) checked: MonoTime,
}

/// A process whose events are open.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) events: Arc<[Sampled]>,
    /// Threads that were made while events were opened, and have their own: they may have those of their maker, too.
    pub(super) late: BTreeSet<u32>,
}

/// An event of all processes.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) event: Sampled,
    pub(super) pace: Pace,
    /// Samples of this reading.
    pub(super) samples: u64,
    /// Since it was opened, on all CPUs.
    pub(super) ran: Ran,
}

/// What readings of all CPUs have in common.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) watched: BTreeMap<Tgid, Watched>,
    /// Sampled of all processes.
    pub(super) all: Vec<Common>,
    pub(super) nodes: Nodes,
    pub(super) counts: Counts,
    /// Read, and held back.
    pub(super) held: Vec<Access>,
    bytes: Vec<u8>,
}

impl Cpu {
    /// Reads what its events wrote. Appends what was lost, and to `state` what was sampled.
    pub(super) fn read(&mut self, begun: MonoTime, state: &mut State, out: &mut Vec<Evidence>) {
        state.bytes.clear();
        let count = self.ring.drain(&mut state.bytes);
        // A full ring has no room for the record that says so.
        let mut suspect = count + LARGEST > self.ring.size();
        let mut losses = Losses::default();
        let counted = self.events.values().any(|open| open.event.counts);
        let common = Format::plain(BASE, true);
        for record in split(&state.bytes) {
            state.counts.read += 1;
            let id = record.as_ref().ok().and_then(|record| event_id(record, common));
            let mut open = id.and_then(|id| self.events.get_mut(&id));
            // Records other than samples end alike, of whatever event.
            let format = open.as_ref().map_or(common, |open| open.event.format);
            let parsed = match record {
                Ok(record) if open.is_none() && kind(record) == SAMPLE => {
                    state.counts.others += 1;
                    continue;
                }
                record => record.and_then(|record| parse(record, format)),
            };
            let whose = open.as_ref().and_then(|open| open.whose.process());
            if let Ok(record) = &parsed {
                losses.hear(&record.body, whose, counted);
            }
            match parsed.map(|record| record.body) {
                Ok(Body::Sample(sample)) => {
                    let Some(open) = &mut open else { continue };
                    open.sampled = open.sampled.saturating_add(1);
                    if let Whose::All(nth) = open.whose
                        && let Some(common) = state.all.get_mut(nth)
                    {
                        common.samples += 1;
                    }
                    if !told(open, sample.task, &state.watched) {
                        state.counts.others += 1;
                        continue;
                    }
                    state.counts.told += 1;
                    state.held.extend(access(&sample, open.kind, &state.nodes));
                }
                Ok(Body::Lost(_) | Body::LostSamples(_)) => {
                    state.counts.lost_records += 1;
                    suspect = true;
                }
                Ok(Body::Throttle) => state.counts.throttled += 1,
                Ok(_) => {}
                Err(_) => {
                    state.counts.broken += 1;
                    losses.add(None, 0);
                }
            }
        }
        for open in self.events.values_mut().filter(|open| suspect && open.event.counts) {
            let total = open.event.lost().unwrap_or(open.lost);
            let lost = total.saturating_sub(open.lost);
            open.lost = open.lost.max(total);
            if lost > 0 {
                losses.add(open.whose.process(), lost);
            }
        }
        for (whose, lost) in losses.told() {
            state.counts.lost = state.counts.lost.saturating_add(lost);
            out.push(gap_of(Span { begin: self.checked, end: now() }, lost, whose));
        }
        self.checked = begun;
    }

    /// Reads for how long events of all processes ran, and adds it up in `all`. Whether one of them took turns since the last
    /// reading.
    pub(super) fn time(&mut self, all: &mut [Common]) -> bool {
        let mut turns = false;
        for open in self.events.values_mut() {
            let Whose::All(nth) = open.whose else { continue };
            let Some((ran, common)) = open.event.ran().zip(all.get_mut(nth)) else { continue };
            let since = ran.since(open.ran);
            open.ran = ran;
            common.ran.add(since);
            turns |= since.took_turns();
        }
        turns
    }
}

/// Whether a sample is told of by this event and no other.
fn told(open: &Open, task: Option<(u32, u32)>, watched: &BTreeMap<Tgid, Watched>) -> bool {
    let (Whose::Thread(of, thread), Some((pid, tid))) = (open.whose, task) else { return true };
    let own = |tid| watched.get(&of).is_some_and(|watched| watched.late.contains(&tid));
    pid == of.0 && (tid == thread || !own(tid))
}

pub(super) fn gap_of(when: Span, lost: u64, whose: Option<Tgid>) -> Evidence {
    Evidence::Gap(Gap { when, stream: Stream::Accesses, lost, whose })
}
