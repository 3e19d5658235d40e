//! Folding: one thread takes in what the sources say, in order, answers reports, asks for scans, records and exports.

mod keeping;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, sync_channel};
use std::time::Duration;

use memprov_ledger::evidence::{Change, Evidence, Gap, Lifecycle, Stream};
use memprov_ledger::identity::{StartTicks, Tgid};
use memprov_ledger::scan::Scan;
use memprov_ledger::time::{MonoTime, Span};
use memprov_proc::clock;

use crate::asks::{Ask, PATIENCE, Pending};
use crate::cost::Cost;
use crate::exporting::Exporting;
use crate::fuse::{self, Fuser};
use crate::manager::Manager;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::reload::Reload;
use crate::report::Report;
use crate::setup::{DaemonError, INBOX, Setup};
use crate::socket::Refusal;
use crate::sources::scans::Job;
use crate::sources::{Input, Outcome, Places};
use crate::statedir::StateDir;
use crate::tables::Function;
use crate::trace::Line;
use crate::window::{Source, Window};

/// How often the fuser looks around when nothing comes in.
const TICK: Duration = Duration::from_millis(50);
/// How often all spaces are looked through for questions and for what is to be forgotten.
const LOOK: Duration = Duration::from_millis(250);
/// Evidence older than this many nanoseconds is no longer resolved.
const MEMORY_NANOS: u64 = 5_000_000_000;
/// Evidence that waits for a watermark at most; beyond it a stalled source is passed over.
const WAITING: usize = 1 << 18;
/// How long names may delay a report.
const NAMES: Duration = Duration::from_secs(3);

/// Who tells of what happens to address spaces, beside the scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Hooks: every call.
    Calls,
    /// Side-band: what came to be, not what ended.
    Sideband,
    /// Nobody.
    Nobody,
}

/// The fuser's thread: everything that the daemon knows and has under way.
pub(crate) struct Folding<'a> {
    pub(crate) fuser: Fuser,
    pub(crate) plan: Plan,
    pub(crate) cost: Cost,
    pub(crate) window: Window,
    pub(crate) pending: Vec<Pending>,
    /// What may be forgotten once all is applied that happened until then.
    pub(crate) forgetting: VecDeque<(MonoTime, Line)>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) exporting: Exporting,
    pub(crate) reload: Reload,
    pub(crate) manager: Manager,
    pub(crate) watch: Watch,
    pub(crate) detach: Arc<AtomicBool>,
    pub(crate) jobs: Sender<Job>,
    pub(crate) wanted: Sender<Vec<Function>>,
    pub(crate) setup: Setup<'a>,
    /// When all spaces are looked through next.
    pub(crate) look: MonoTime,
    /// When what is known is kept next.
    pub(crate) keep: MonoTime,
}

impl Folding<'_> {
    /// Folds inputs until SIGTERM or the limit, and keeps what is known for the next run.
    ///
    /// # Errors
    /// When a recording cannot be written.
    pub(crate) fn run(
        &mut self,
        inputs: &Receiver<Input>,
        stop: &AtomicBool,
        directory: &StateDir,
    ) -> Result<(), DaemonError> {
        let outcome = self.fold(inputs, stop, directory);
        self.keep(directory, clock::now());
        outcome
    }

    fn fold(
        &mut self,
        inputs: &Receiver<Input>,
        stop: &AtomicBool,
        directory: &StateDir,
    ) -> Result<(), DaemonError> {
        let begun = clock::now();
        let mut ended = None;
        loop {
            match inputs.recv_timeout(TICK) {
                Ok(input) => self.take(input)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            for input in inputs.try_iter().take(INBOX) {
                self.take(input)?;
            }
            let now = clock::now();
            self.manager.alive(now);
            if self.reload.asked() {
                self.reload(now);
            }
            self.release()?;
            self.answer(now);
            if directory.disabled() && self.watch != Watch::Nobody {
                self.disable(now)?;
            }
            let over = stop.load(Ordering::Relaxed)
                || self.setup.limit.is_some_and(|limit| now.since(begun) >= limit);
            match ended {
                None if over && self.recorder.is_some() => ended = Some(self.last_scans(now)),
                None if over => return Ok(()),
                Some(since) if self.pending.is_empty() || now.since(since) > PATIENCE => {
                    return self.finish(now);
                }
                _ => self.tick(now)?,
            }
            if now >= self.keep {
                self.keep(directory, now);
            }
        }
    }

    fn take(&mut self, input: Input) -> Result<(), DaemonError> {
        match input {
            Input::Hooks { lines, upto } => {
                for line in lines {
                    match line {
                        Line::Evidence(evidence) => self.window.push(evidence),
                        // What came before it may name what it forgets.
                        Line::Forget { .. } => self.forgetting.push_back((clock::now(), line)),
                        table => self.apply(table)?,
                    }
                }
                if self.watch != Watch::Nobody {
                    self.window.passed(Source::Hooks, upto);
                }
            }
            Input::Regions(found) | Input::Sampled(found) => {
                found.into_iter().for_each(|found| self.window.push(found))
            }
            Input::Counted(run_time) => self.cost.counted(run_time),
            Input::HooksEnded(why) => {
                tracing::error!(
                    why,
                    "the hooks ended: what changes from now on is found by scans only"
                );
                self.unhook(clock::now());
            }
            Input::Scanned { tgid, outcome, placed, charges, upto } => {
                match placed {
                    Places::Read(placed) => {
                        self.pending.iter_mut().for_each(|p| p.reads(tgid, placed.when.end));
                        self.window.push(Evidence::Placed(placed));
                    }
                    Places::Later => self.plan.skip("placement"),
                    Places::Untold => {}
                }
                let charges = charges.into_iter().map(|charge| Evidence::Charge(Box::new(charge)));
                charges.for_each(|charge| self.window.push(charge));
                self.scanned(tgid, outcome, upto);
            }
            Input::Listed { live, at } => self.listed(&live, at),
            Input::Names(lines) => {
                for line in lines {
                    self.apply(line)?;
                }
            }
            Input::Ask(ask) => self.ask(ask),
        }
        Ok(())
    }

    fn scanned(&mut self, tgid: Tgid, outcome: Outcome, upto: MonoTime) {
        self.plan.done(tgid);
        match outcome {
            Outcome::Seen(seen) => {
                if self.watch != Watch::Calls {
                    // Nobody saw all that happened before.
                    self.unseen(seen.when.begin, tgid);
                }
                self.window.push(Evidence::Residency(seen));
            }
            Outcome::Still(total) => {
                self.plan.skip("still");
                self.window.push(Evidence::Total(total));
            }
            Outcome::Later(total) => {
                self.plan.skip("budget");
                self.window.push(Evidence::Total(total));
            }
            Outcome::Vanished => {
                self.plan.skip("vanished");
                // Its exit event is under way, or was lost: the ledger takes the first of both. Reports wait for it.
                let when = Span::at(upto);
                let change = Change::Exit;
                self.window.push(Evidence::Lifecycle(Lifecycle { when, tgid, change }));
            }
            Outcome::Failed(why) => {
                self.plan.skip("refused");
                tracing::debug!(pid = tgid.0, why, "a process cannot be read");
                self.pending.iter_mut().for_each(|p| p.failed(tgid, Some(&why)));
            }
        }
        if self.plan.idle() {
            self.window.idle(Source::Scans);
        } else {
            self.window.passed(Source::Scans, upto);
        }
    }

    fn listed(&mut self, live: &[(Tgid, StartTicks)], at: MonoTime) {
        let gone: Vec<Tgid> = self
            .fuser
            .ledger()
            .spaces()
            .filter(|s| s.born < at)
            .flat_map(|s| s.tgids.iter().copied())
            .filter(|tgid| !live.iter().any(|(pid, _)| pid == tgid))
            .collect();
        // Daemonised descendants are not found by walking from the root: only a list of all says who is gone.
        if self.setup.pids.is_empty() {
            for tgid in gone {
                let (when, change) = (Span::at(at), Change::Exit);
                self.window.push(Evidence::Lifecycle(Lifecycle { when, tgid, change }));
            }
        }
        let jobs = self.plan.discover(self.fuser.ledger(), live, at);
        self.send(jobs, at);
    }

    fn ask(&mut self, ask: Ask) {
        let now = clock::now();
        let mut tgids: Vec<Tgid> =
            self.fuser.subjects(ask.pid).iter().filter_map(|s| s.tgids.first().copied()).collect();
        match ask.pid {
            // A report about all tells what is known; nobody waits for the whole host.
            None => tgids.clear(),
            // Perhaps its fork is under way, or its first scan: known once the hooks spoke again.
            Some(pid) if tgids.is_empty() && self.in_scope(pid) => tgids.push(pid),
            Some(_) => {}
        }
        let jobs: Vec<Job> =
            tgids.iter().map(|tgid| self.plan.urgent(self.fuser.ledger(), *tgid, now)).collect();
        self.pending.push(Pending::new(ask, now, tgids));
        self.send(jobs, now);
    }

    /// Whether a process is watched by its own name, not as somebody's descendant.
    fn in_scope(&self, pid: Tgid) -> bool {
        self.setup.pids.is_empty() || self.setup.pids.contains(&pid)
    }

    fn send(&mut self, jobs: Vec<Job>, now: MonoTime) {
        if jobs.is_empty() {
            return;
        }
        // No scan of these begins before now.
        self.window.passed(Source::Scans, now);
        for job in jobs {
            if self.jobs.send(job).is_err() {
                tracing::error!("the scan thread ended");
            }
        }
    }

    /// Applies what no source can precede any more.
    fn release(&mut self) -> Result<(), DaemonError> {
        if self.window.len() > WAITING {
            tracing::warn!(
                waiting = self.window.len(),
                "a source stalls: its evidence may come too late"
            );
            self.window.idle(Source::Scans);
        }
        while let Some(evidence) = self.window.pop() {
            let seen = match &evidence {
                Evidence::Residency(seen) => Some((seen.tgid, seen.when.begin)),
                Evidence::Lifecycle(Lifecycle { tgid, change: Change::Exit, .. }) => {
                    let tgid = *tgid;
                    self.pending.iter_mut().for_each(|p| p.failed(tgid, None));
                    None
                }
                _ => None,
            };
            self.apply(Line::Evidence(evidence))?;
            let Some((tgid, begin)) = seen else { continue };
            let at_rest = self
                .fuser
                .ledger()
                .space(tgid)
                .and_then(|s| s.scan.as_ref())
                .is_some_and(|scan| scan.at_rest);
            let mut again = false;
            for pending in &mut self.pending {
                again |= pending.seen(tgid, begin, at_rest);
            }
            if again {
                let now = clock::now();
                let job = self.plan.urgent(self.fuser.ledger(), tgid, now);
                self.send(vec![job], now);
            }
        }
        while self.forgetting.front().is_some_and(|(since, _)| *since <= self.window.watermark()) {
            let Some((_, line)) = self.forgetting.pop_front() else { break };
            self.apply(line)?;
        }
        Ok(())
    }

    fn apply(&mut self, line: Line) -> Result<(), DaemonError> {
        if self.fuser.pane_ends_with(&line) {
            self.pane(clock::now());
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.write(&line)?;
        }
        let wanted = self.fuser.apply(line);
        if !wanted.is_empty() && self.wanted.send(wanted).is_err() {
            tracing::error!("the names thread ended");
        }
        Ok(())
    }

    fn answer(&mut self, now: MonoTime) {
        self.latecomers(now);
        let names = self.fuser.names_waiting() > 0;
        let told = self.window.watermark();
        let ready = |p: &Pending| {
            let events = told >= p.upto || p.overdue(now);
            p.done(now) && events && (!names || now.since(p.since) > NAMES)
        };
        let (ready, waiting): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut self.pending).into_iter().partition(ready);
        self.pending = waiting;
        for pending in ready {
            let report = self.report(pending.ask.pid, now);
            let answer = if report.processes.is_empty() && pending.ask.pid.is_some() {
                let pid = pending.ask.pid.map_or(0, |p| p.0);
                let unobserved = || format!("process {pid} is not observed");
                let why = pending.failures.first().cloned().unwrap_or_else(unobserved);
                Err(Refusal::NothingToSay(why))
            } else {
                Ok(report)
            };
            // Who asked may have gone.
            drop(pending.ask.reply.try_send(answer));
        }
    }

    /// A report, and what it costs to have it.
    fn report(&self, pid: Option<Tgid>, now: MonoTime) -> Report {
        let mut report = self.fuser.report(pid, now);
        let differences = self.fuser.ledger().differences();
        let mut agent = self.cost.told(&self.plan.skipped, differences, now);
        agent.configuration = Some(self.reload.told());
        report.agent = Some(agent);
        report
    }

    /// Processes that were forked just before a report was asked for are known once its first scans are in.
    fn latecomers(&mut self, now: MonoTime) {
        let mut jobs = Vec::new();
        let mut pending = std::mem::take(&mut self.pending);
        let told = self.window.watermark();
        let about_one = |p: &&mut Pending| {
            p.ask.pid.is_some() && p.done(now) && !p.overdue(now) && told >= p.since
        };
        for p in pending.iter_mut().filter(about_one) {
            for space in self.fuser.subjects(p.ask.pid) {
                let Some(tgid) = space.tgids.first().copied() else { continue };
                // A scan from before a fork was known did not read what is common with the child.
                let related = self.fuser.ledger().has_relative(tgid);
                let unread = |s: &Scan| s.pages_known && !s.exclusive_known;
                let blind = related && space.scan.as_deref().is_some_and(unread);
                let stale = self.fuser.ledger().doubts(space);
                if p.add(tgid) || (blind || stale) && p.again(tgid) {
                    jobs.push(self.plan.urgent(self.fuser.ledger(), tgid, now));
                }
            }
        }
        self.pending = pending;
        self.send(jobs, now);
    }

    fn tick(&mut self, now: MonoTime) -> Result<(), DaemonError> {
        if now >= self.look {
            self.look = now.after(LOOK);
            self.look_around(now)?;
        }
        let told = now.min(self.window.watermark());
        if self.fuser.pane_ends_by(told) {
            self.apply(Line::Watermark { when: told })?;
        }
        Ok(())
    }

    fn look_around(&mut self, now: MonoTime) -> Result<(), DaemonError> {
        if self.plan.interval_ends(now) {
            self.cost.mark(now);
            if let Some(recorder) = &mut self.recorder {
                recorder.flush()?;
            }
            self.list(now);
            let processes = self.fuser.ledger().spaces().count();
            self.manager.status(&format!("{processes} processes are watched"));
        }
        let jobs = self.plan.due(self.fuser.ledger(), now);
        self.send(jobs, now);
        self.fuser.forget_before(MonoTime(now.0.saturating_sub(MEMORY_NANOS)));
        Ok(())
    }

    /// A pane ends, and nothing behind its end has been applied: its report is sent and shown.
    fn pane(&mut self, now: MonoTime) {
        if !self.exporting.wanted() && self.setup.screen.is_none() {
            return;
        }
        let report = self.report(None, now);
        self.exporting.offer(&report, self.fuser.pane_end());
        if let Some(screen) = self.setup.screen
            && let Err(error) = screen.show(&report)
        {
            tracing::debug!(%error, "the table cannot be shown");
        }
    }

    /// Asks which processes live.
    pub(crate) fn list(&mut self, now: MonoTime) {
        let roots = self.setup.pids.clone();
        let job = Job::List { roots, except: Tgid(std::process::id()) };
        self.send(vec![job], now);
        if self.plan.idle() {
            self.window.idle(Source::Scans);
        }
    }

    /// The kill switch: detaches everything, stays up, tells what it knows.
    fn disable(&mut self, now: MonoTime) -> Result<(), DaemonError> {
        tracing::warn!("the kill switch is on: hooks are detached");
        self.detach.store(true, Ordering::Relaxed);
        self.unhook(now);
        self.release()
    }

    fn unhook(&mut self, now: MonoTime) {
        self.watch = Watch::Nobody;
        self.window.idle(Source::Hooks);
        self.cost.detached();
        self.unwatched(now);
    }

    /// Nobody counts from now on what the hooks would see.
    pub(crate) fn unwatched(&mut self, now: MonoTime) {
        let gaps = fuse::unwatched(now).map(Evidence::Gap);
        gaps.into_iter().for_each(|gap| self.window.push(gap));
    }

    /// Without hooks anything may have changed since anybody looked.
    fn unseen(&mut self, now: MonoTime, whose: Tgid) {
        let when = Span::at(now);
        let gap = Gap { when, stream: Stream::Lifecycle, lost: 0, whose: Some(whose) };
        self.window.push(Evidence::Gap(gap));
    }

    /// Before a recording ends every process is scanned once more.
    fn last_scans(&mut self, now: MonoTime) -> MonoTime {
        let tgids: Vec<Tgid> =
            self.fuser.ledger().spaces().filter_map(|s| s.tgids.first().copied()).collect();
        let (reply, _) = sync_channel(1);
        let jobs: Vec<Job> =
            tgids.iter().map(|tgid| self.plan.urgent(self.fuser.ledger(), *tgid, now)).collect();
        self.pending.push(Pending::new(Ask { pid: None, reply }, now, tgids));
        self.send(jobs, now);
        now
    }

    fn finish(&mut self, now: MonoTime) -> Result<(), DaemonError> {
        self.recorder.take().map_or(Ok(()), |recorder| recorder.finish(now))
    }
}
