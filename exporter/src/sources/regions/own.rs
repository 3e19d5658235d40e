//! Our own monitor: whom it watches, and its life. Only where `damon.mode = active`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use memprov_damon::{
    Findings, Goal, Operations, Plan, Session, SessionError, Snapshot, Target, Undone, undo,
};
use memprov_ledger::identity::{Extent, Tgid};
use memprov_ledger::time::MonoTime;
use memprov_proc::{Proc, clock, maps};

use crate::config::{Config, Damon, DamonMode, Watched};
use crate::logging::chain;
use crate::sources::chosen::chosen;

/// How often it is asked who is to be watched.
const LOOK: Duration = Duration::from_secs(5);
/// Ranges of a process are read anew this often at most: a new monitor begins to learn from nothing.
const RENEW: Duration = Duration::from_secs(60);
/// Processes watched at most: they share the regions.
const TARGETS: usize = 32;
/// Ranges of one process at most, the largest.
const RANGES: usize = 64;
/// A mapping that is worth a range.
const LARGE: u64 = 2 << 20;
/// Sampling intervals may be stretched this far where the kernel tunes them.
const STRETCH: u32 = 20;
/// Hits that tuning aims at, in 1/10,000 of all checks, and over how many aggregations: the kernel's own advice (kernel
/// `Documentation/mm/damon/design.rst`, "Monitoring Intervals Auto-tuning").
const HITS: (u32, u32) = (400, 3);

/// Aggregations that are waited for, where findings are asked for, are no longer: nothing else can be done meanwhile, not
/// even an end be made.
const WAITED: Duration = Duration::from_secs(10);

/// The file of the state directory that says what of a monitor is ours.
pub const MARK: &str = "damon";

/// Our own monitor.
pub(super) struct Own {
    proc: Proc,
    root: PathBuf,
    mark: PathBuf,
    config: Damon,
    findings: Findings,
    session: Option<Session>,
    targets: Vec<Target>,
    /// When it is looked who is to be watched.
    look: MonoTime,
    /// When ranges are read anew.
    renew: MonoTime,
    /// Why there is none, or none that tells, as it was said.
    said: String,
}

impl Own {
    /// One that the configuration wants.
    pub(super) fn of(config: &Config) -> Option<Self> {
        (config.damon.mode == DamonMode::Active).then(|| Self {
            proc: Proc::at(&config.root),
            root: config.root.clone(),
            mark: config.state_dir.join(MARK),
            config: config.damon.clone(),
            findings: Findings::Tracepoint,
            session: None,
            targets: Vec::new(),
            look: MonoTime(0),
            renew: MonoTime(0),
            said: String::new(),
        })
    }

    /// From now on it is asked what it finds.
    pub(super) fn is_asked(&mut self) {
        self.findings = Findings::TriedRegions;
    }

    /// What it finds by the end of the aggregation that runs; `None` while it does not run, as when all that it watches
    /// has ended.
    pub(super) fn findings(&mut self) -> Option<Result<Vec<Snapshot>, SessionError>> {
        let session = self.session.as_ref()?;
        let found = session.findings(clock::now);
        if let Err(error) = &found {
            if !session.runs() {
                return None;
            }
            self.say(chain(error), "our monitor does not tell what it found");
        }
        Some(found)
    }

    /// Says why nothing is told, once.
    fn say(&mut self, why: String, what: &str) {
        if why != self.said {
            tracing::warn!(why, "{what}");
            self.said = why;
        }
    }

    /// Looks who is to be watched, now and then, and begins anew when it is somebody else.
    pub(super) fn turn(&mut self, now: MonoTime) {
        if now < self.look {
            return;
        }
        self.look = now.after(LOOK);
        let chosen = self.chosen();
        let runs = self.session.as_ref().is_some_and(Session::runs);
        let watched: Vec<Tgid> = self.targets.iter().filter_map(|target| target.tgid).collect();
        if runs && watched == chosen && now < self.renew {
            return;
        }
        let waits = self.findings == Findings::TriedRegions && self.config.aggregation > WAITED;
        let mut failed = waits.then(|| {
            format!("no BPF program listens, and {WAITED:?} is the longest aggregation to wait for")
        });
        let operations = if waits { &[] } else { self.operations() };
        for operations in operations.iter().copied() {
            let targets = self.targets_of(operations, &chosen);
            if runs && targets == self.targets {
                self.renew = now.after(RENEW);
                return;
            }
            self.end();
            if targets.is_empty() {
                break;
            }
            match Session::begin(&self.root, &self.mark, &self.plan(operations, targets.clone())) {
                Ok(session) => {
                    let (thread, number) = (session.thread(), targets.len());
                    tracing::info!(
                        thread,
                        operations = operations.id(),
                        number,
                        "our monitor runs"
                    );
                    self.said.clear();
                    (self.session, self.targets, self.renew) =
                        (Some(session), targets, now.after(RENEW));
                    return;
                }
                Err(error) => failed = Some(chain(&error)),
            }
        }
        let why = failed.unwrap_or_else(|| "damon.allow names nobody that lives".to_owned());
        self.say(why, "no monitor of ours runs");
    }

    /// Ends it and leaves nothing behind.
    pub(super) fn end(&mut self) {
        self.targets.clear();
        let Some(session) = self.session.take() else { return };
        match session.end() {
            Ok(undone) => tracing::info!(?undone, "our monitor has ended"),
            Err(error) => tracing::error!(error = chain(&error), "our monitor cannot be ended"),
        }
    }

    /// What is tried, in this order.
    fn operations(&self) -> &'static [Operations] {
        match self.config.watch {
            Watched::Auto => &[Operations::Fvaddr, Operations::Vaddr],
            Watched::Fvaddr => &[Operations::Fvaddr],
            Watched::Vaddr => &[Operations::Vaddr],
        }
    }

    fn plan(&self, operations: Operations, targets: Vec<Target>) -> Plan {
        let Damon { sample, aggregation, regions, .. } = self.config;
        let longest = sample.saturating_mul(STRETCH);
        let goal = Goal { access_bp: HITS.0, aggregations: HITS.1, longest };
        let findings = self.findings;
        Plan { operations, sample, aggregation, regions, goal: Some(goal), findings, targets }
    }

    /// Living processes that may be watched, oldest first.
    fn chosen(&self) -> Vec<Tgid> {
        let mut chosen = chosen(&self.proc, &self.config.allow);
        chosen.truncate(TARGETS);
        chosen
    }

    fn targets_of(&self, operations: Operations, chosen: &[Tgid]) -> Vec<Target> {
        let ranges = |tgid: Tgid| match operations {
            Operations::Fvaddr => self.ranges(tgid),
            Operations::Vaddr | Operations::Paddr => Vec::new(),
        };
        let targets = chosen.iter().map(|tgid| Target { tgid: Some(*tgid), ranges: ranges(*tgid) });
        let empty = |target: &Target| operations == Operations::Fvaddr && target.ranges.is_empty();
        targets.filter(|target| !empty(target)).collect()
    }

    /// The large mappings of a process, those side by side as one.
    fn ranges(&self, tgid: Tgid) -> Vec<Extent> {
        let mut text = Vec::new();
        if self.proc.map_text(tgid, &mut text).is_err() {
            return Vec::new();
        }
        let mut ranges: Vec<Extent> = Vec::new();
        let large = |line: &maps::MapLine<'_>| {
            line.end - line.start >= LARGE && (line.read || line.write) && line.start >> 63 == 0
        };
        for line in maps::lines(&text).flatten().filter(large) {
            match ranges.last_mut() {
                Some(last) if last.end == line.start => last.end = line.end,
                _ => ranges.push(Extent { start: line.start, end: line.end }),
            }
        }
        ranges.sort_by_key(|range| std::cmp::Reverse(range.len()));
        ranges.truncate(RANGES);
        ranges.sort();
        ranges
    }
}

/// Ends a monitor that an earlier run of ours left behind.
pub fn clean(root: &Path, state_dir: &Path) {
    match undo(root, &state_dir.join(MARK)) {
        Ok(Undone::Nothing) => {}
        Ok(undone) => tracing::warn!(?undone, "an earlier run left a monitor behind"),
        Err(error) => {
            tracing::error!(error = chain(&error), "a monitor of an earlier run cannot be ended");
        }
    }
}
