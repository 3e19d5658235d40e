//! Whose physical memory is: frames of chosen processes' pages are read before and after what our monitor finds, and what
//! stayed where it was is told, for the findings to be laid under. Costs as much again as scans may.

use std::time::Duration;

use memprov_ledger::activity::POOLED;
use memprov_ledger::evidence::{Evidence, Frames};
use memprov_ledger::identity::{Extent, Tgid};
use memprov_ledger::time::{MonoTime, Span};
use memprov_proc::budget::{Budget, Decision};
use memprov_proc::{FrameReader, Lying, Most, Proc, clock};

use super::own::large;
use crate::logging::chain;

/// Aggregations between two readings: no more than a claim needs, for pages are the likelier to move the longer they last.
const ROUND: usize = POOLED;
/// Rounds begin this often at most: what they find is told for a minute.
const EVERY: Duration = Duration::from_secs(10);
/// Entries that one reading of all processes may take: 1 GiB of pages, some 15 ms.
const PAGES: u64 = 1 << 18;
/// Runs that it may tell: 800 KiB of memory, twice that in a trace.
const RUNS: usize = 1 << 15;
/// CPU time that may be saved up.
const BURST: Duration = Duration::from_millis(200);

/// The readings.
pub(super) struct Laying {
    proc: Proc,
    reader: FrameReader,
    budget: Budget,
    /// CPU time of the last reading.
    cost: Duration,
    /// When the next round may begin.
    next: MonoTime,
    round: Option<Round>,
    refused: bool,
}

/// A round that was begun.
struct Round {
    monitor: u32,
    /// End of the first reading.
    begin: MonoTime,
    before: Vec<(Tgid, Vec<Extent>, Lying)>,
    /// Aggregations since.
    found: usize,
}

impl Laying {
    /// For processes of `proc`, within `budget` (a fraction of one CPU).
    pub(super) fn new(proc: &Proc, budget: f64) -> Self {
        Self {
            proc: proc.clone(),
            reader: FrameReader::new(proc),
            budget: Budget::new(budget, BURST, clock::now()),
            cost: Duration::ZERO,
            next: MonoTime(0),
            round: None,
            refused: false,
        }
    }

    /// No monitor of ours runs.
    pub(super) fn stop(&mut self) {
        self.round = None;
    }

    /// Takes in what `monitor` found, begins a round where one may begin, and adds what stayed where one is over.
    pub(super) fn turn(&mut self, monitor: u32, chosen: &[Tgid], found: &mut Vec<Evidence>) {
        match self.round.take().filter(|round| round.monitor == monitor) {
            None => self.begin(monitor, chosen),
            Some(mut round) => {
                let inside = |evidence: &&Evidence| match evidence {
                    Evidence::Activity(seen) => {
                        seen.monitor == monitor && seen.when.begin >= round.begin
                    }
                    _ => false,
                };
                round.found += found.iter().filter(inside).count();
                if round.found < ROUND {
                    self.round = Some(round);
                } else {
                    found.extend(self.end(&round));
                }
            }
        }
    }

    fn begin(&mut self, monitor: u32, chosen: &[Tgid]) {
        let now = clock::now();
        if now < self.next || self.budget.decide(now, 2 * self.cost) != Decision::Go {
            return;
        }
        self.next = now.after(EVERY);
        let proc = self.proc.clone();
        let before = self.read(chosen.iter().map(|tgid| (*tgid, large(&proc, *tgid))));
        let (begin, found) = (clock::now(), 0);
        self.round = (!before.is_empty()).then_some(Round { monitor, begin, before, found });
    }

    fn end(&mut self, round: &Round) -> Vec<Evidence> {
        let when = Span { begin: round.begin, end: clock::now() };
        let extents = round.before.iter().map(|(tgid, extents, _)| (*tgid, extents.clone()));
        let after = self.read(extents);
        let of = |tgid: &Tgid| after.iter().find(|(other, ..)| other == tgid);
        let both = round.before.iter().filter_map(|(tgid, _, lay)| Some((tgid, lay, of(tgid)?)));
        let frames = both.map(|(tgid, before, (.., after))| {
            let (runs, moved) = before.stayed(after);
            Frames { when, tgid: *tgid, monitor: round.monitor, runs: runs.into(), moved }
        });
        frames.map(|frames| Evidence::Frames(Box::new(frames))).collect()
    }

    /// Where pages of these processes lie; who cannot be read is left out.
    fn read(
        &mut self,
        of: impl ExactSizeIterator<Item = (Tgid, Vec<Extent>)>,
    ) -> Vec<(Tgid, Vec<Extent>, Lying)> {
        let started = clock::thread_cpu();
        let number = of.len().max(1);
        let most = Most { pages: PAGES / number as u64, runs: RUNS / number };
        let mut lying = Vec::new();
        for (tgid, extents) in of {
            match self.reader.read(&self.proc, tgid, &extents, most) {
                Ok(found) => lying.push((tgid, extents, found)),
                Err(error) if error.refused() && !self.refused => {
                    self.refused = true;
                    let error = chain(&error);
                    tracing::warn!(
                        pid = tgid.0,
                        error,
                        "whose physical memory is used is not told"
                    );
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::debug!(pid = tgid.0, error, "it cannot be read where pages lie");
                }
            }
        }
        self.cost = clock::thread_cpu().saturating_sub(started);
        self.budget.spent(clock::now(), self.cost);
        lying
    }
}
