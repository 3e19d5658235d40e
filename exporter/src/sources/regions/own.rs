//! Our own monitor: whom it watches, and its life. Only where `damon.mode = active`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use memprov_damon::{
    Findings, Goal, Operations, Plan, Session, SessionError, Snapshot, Target, Undone, undo,
};
use memprov_ledger::evidence::Evidence;
use memprov_ledger::identity::{Extent, Tgid};
use memprov_ledger::time::MonoTime;
use memprov_proc::{Proc, ReadError, clock, maps};

use super::laying::Laying;
use crate::config::{Config, Damon, DamonMode, Watched};
use crate::logging::chain;
use crate::sources::chosen::{Cut, chosen};

/// How often it is asked who is to be watched.
const LOOK: Duration = Duration::from_secs(5);
/// Ranges of a process are read anew this often at most: a new monitor begins to learn from nothing.
const RENEW: Duration = Duration::from_secs(60);
/// Ranges of one target at most, the largest.
const RANGES: usize = 64;
/// A mapping, or a part of physical memory, that is worth a range.
const LARGE: u64 = 2 << 20;
/// Sampling intervals may be stretched this far where the kernel tunes them.
const STRETCH: u32 = 20;
/// Hits that tuning aims at, in 1/10,000 of all checks, and over how many aggregations: the kernel's own advice (kernel
/// `Documentation/mm/damon/design.rst`, "Monitoring Intervals Auto-tuning").
const HITS: (u32, u32) = (400, 3);

/// Aggregations that are waited for, where findings are asked for, are no longer: nothing else can be done meanwhile, not
/// even an end be made.
const WAITED: Duration = Duration::from_secs(10);

/// Why there is nothing to watch: nobody has it, or those that live have nothing large.
const NOBODY: &str = "damon.allow names nobody that lives";
const NOTHING: &str = "nothing of 2 MiB or more is mapped by whom damon.allow names";

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
    /// Who may be watched.
    chosen: Vec<Tgid>,
    /// Who is left out because there are too many.
    cut: Cut,
    laying: Laying,
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
            chosen: Vec::new(),
            cut: Cut::default(),
            laying: Laying::new(&Proc::at(&config.root), config.scan.budget),
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

    /// Of physical memory: adds to what was found in which frames pages stayed meanwhile.
    pub(super) fn lay(&mut self, found: &mut Vec<Evidence>) {
        let physical = self.targets.iter().any(|target| target.tgid.is_none());
        match self.session.as_ref().filter(|_| physical) {
            Some(session) => self.laying.turn(session.thread(), &self.chosen, found),
            None => self.laying.stop(),
        }
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
        let same = chosen == self.chosen;
        self.chosen.clone_from(&chosen);
        if runs && same && now < self.renew {
            return;
        }
        let waits = self.findings == Findings::TriedRegions && self.config.aggregation > WAITED;
        let mut failed = waits.then(|| {
            format!("no BPF program listens, and {WAITED:?} is the longest aggregation to wait for")
        });
        let operations = if waits { &[] } else { self.operations() };
        for operations in operations.iter().copied() {
            let targets = match self.targets_of(operations, &chosen) {
                Ok(targets) => targets,
                Err(error) => {
                    failed = Some(chain(&error));
                    Vec::new()
                }
            };
            if targets.is_empty() {
                continue;
            }
            if runs && targets == self.targets {
                self.renew = now.after(RENEW);
                return;
            }
            self.end();
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
        self.end();
        let none = if chosen.is_empty() { NOBODY } else { NOTHING };
        let why = failed.unwrap_or_else(|| none.to_owned());
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
            Watched::Paddr => &[Operations::Paddr],
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
    fn chosen(&mut self) -> Vec<Tgid> {
        let lost = "our monitor does not watch the youngest processes";
        self.cut.first(chosen(&self.proc, &self.config.allow), "damon.allow", lost)
    }

    /// Physical memory is one target, for whomever it is watched.
    fn targets_of(
        &self,
        operations: Operations,
        chosen: &[Tgid],
    ) -> Result<Vec<Target>, ReadError> {
        let ranges = |tgid: &Tgid| match operations {
            Operations::Fvaddr => large(&self.proc, *tgid),
            Operations::Vaddr | Operations::Paddr => Vec::new(),
        };
        let target = |tgid: &Tgid| Target { tgid: Some(*tgid), ranges: ranges(tgid) };
        let mut targets: Vec<Target> = match operations {
            Operations::Paddr if chosen.is_empty() => Vec::new(),
            Operations::Paddr => {
                let ram = self.proc.system_ram()?.into_iter();
                let ranges = largest(ram.filter(|range| range.len() >= LARGE).collect());
                vec![Target { tgid: None, ranges }]
            }
            Operations::Fvaddr | Operations::Vaddr => chosen.iter().map(target).collect(),
        };
        targets.retain(|target| operations == Operations::Vaddr || !target.ranges.is_empty());
        Ok(targets)
    }
}

/// The large mappings of a process, those side by side as one.
pub(super) fn large(proc: &Proc, tgid: Tgid) -> Vec<Extent> {
    let mut text = Vec::new();
    if proc.map_text(tgid, &mut text).is_err() {
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
    largest(ranges)
}

/// As many as a target may have, in order.
fn largest(mut ranges: Vec<Extent>) -> Vec<Extent> {
    ranges.sort_by_key(|range| std::cmp::Reverse(range.len()));
    ranges.truncate(RANGES);
    ranges.sort();
    ranges
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

#[cfg(test)]
mod tests {
    use memprov_ledger::time::MonoTime;

    use super::{NOBODY, NOTHING, Own};
    use crate::config::{Allow, Config, DamonMode, Watched};

    /// Why no monitor runs on a kernel without DAMON, where `small` with one page of memory lives.
    fn said(allow: &str, watch: Watched) -> String {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        let stat = format!("7 (small) S 1 7 7 0 -1 0 {}0 0 0\n", "0 ".repeat(40));
        std::fs::write(process.join("stat"), stat).unwrap();
        std::fs::write(process.join("maps"), "1000-2000 rw-p 00000000 00:00 0 \n").unwrap();
        let mut config = Config { root: root.path().to_owned(), ..Config::default() };
        config.damon.mode = DamonMode::Active;
        config.damon.watch = watch;
        config.damon.allow = Allow::try_from(allow.to_owned()).unwrap();
        let mut own = Own::of(&config).unwrap();
        own.turn(MonoTime(1));
        own.said
    }

    #[test]
    fn a_process_with_nothing_large_is_no_process_that_does_not_live_and_auto_tries_what_needs_none()
     {
        assert_eq!(said("comm=other", Watched::Fvaddr), NOBODY);
        assert_eq!(said("comm=other", Watched::Auto), NOBODY);
        assert_eq!(said("comm=small", Watched::Fvaddr), NOTHING);
        let tried = said("comm=small", Watched::Auto);
        assert!(![NOBODY, NOTHING].contains(&tried.as_str()), "{tried}");
    }
}
