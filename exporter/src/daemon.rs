//! The daemon: starts the sources, folds what they say, answers reports, exports, records.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use memprov_bpf::{Inject, Mechanism, Options, Scope};
use memprov_ledger::evidence::{Change, Evidence, Gap, Lifecycle, Stream};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;
use memprov_proc::{Proc, clock};
use rustix::time::{ClockId, clock_gettime};

use crate::asks::{Ask, Pending};
use crate::config::{self, Config};
use crate::exporting::Exporting;
use crate::fuse::Fuser;
use crate::host;
use crate::plan::Plan;
use crate::screen::Screen;
use crate::socket::{Handler, Refusal, Server, ServerError};
use crate::sources::scans::{Job, chain};
use crate::sources::{Input, Outcome, hooks, names, scans};
use crate::statedir::{StateDir, StateDirError};
use crate::symbols::ModuleSource;
use crate::tables::Function;
use crate::trace::{Clock, Header, Line, TraceError, Writer};
use crate::window::{Source, Window};

/// Batches between the sources and the fuser.
const INBOX: usize = 256;
/// How often the fuser looks around when nothing comes in.
const TICK: Duration = Duration::from_millis(50);
/// Evidence older than this many nanoseconds is no longer resolved.
const MEMORY_NANOS: u64 = 30_000_000_000;
/// Evidence that waits for a watermark at most; beyond it a stalled source is passed over.
const WAITING: usize = 1 << 18;
/// How long names may delay a report.
const NAMES: Duration = Duration::from_secs(3);

/// What to run.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Configuration.
    pub config: Config,
    /// These processes and their descendants; all without any.
    pub pids: Vec<Tgid>,
    /// Record to this file.
    pub record: Option<PathBuf>,
    /// End by itself after this long.
    pub limit: Option<Duration>,
    /// Where every pane's report is shown.
    pub screen: Option<&'a Screen>,
}

/// Why the daemon did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The state directory.
    #[error("state directory")]
    StateDir(#[from] StateDirError),
    /// The socket.
    #[error("socket")]
    Socket(#[from] ServerError),
    /// A process to watch is not there.
    #[error("no process {}", .0.0)]
    NoProcess(Tgid),
    /// The trace.
    #[error("record")]
    Trace(#[from] TraceError),
    /// A thread.
    #[error("start the thread {name}")]
    Thread {
        /// Which.
        name: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Signals.
    #[error("handle signals")]
    Signals(#[source] std::io::Error),
    /// The exporter.
    #[error("export")]
    Export(#[from] crate::otlp::StartError),
}

/// Runs until SIGTERM, SIGINT or the time limit.
///
/// # Errors
/// When it cannot start, or the recording cannot be written.
pub fn run(setup: Setup<'_>) -> Result<(), DaemonError> {
    let proc = Proc::at(&setup.config.root);
    for pid in &setup.pids {
        proc.stat(*pid).map_err(|_| DaemonError::NoProcess(*pid))?;
    }
    let directory = StateDir::hold(&setup.config.state_dir)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(DaemonError::Signals)?;
    }
    let (inbox, inputs) = sync_channel(INBOX);
    let (module_sources, modules) = channel();
    let (jobs, job_queue) = channel();
    let (wanted, want_queue) = channel();
    let thread = |name| move |source| DaemonError::Thread { name, source };
    let root = setup.config.root.clone();
    names::start(root.clone(), want_queue, modules, inbox.clone()).map_err(thread("names"))?;
    scans::start(root, setup.config.scan.budget, job_queue, inbox.clone()).map_err(thread("scans"))?;
    let detach = Arc::new(AtomicBool::new(directory.disabled()));
    let started = Started::attach(&setup, &inbox, module_sources, &detach);
    let header = started.header(&setup);
    let recorder = match &setup.record {
        Some(path) => Some(Writer::create(path, &header)?),
        None => None,
    };
    let exporting = Exporting::start(&setup.config, &header)?;
    let server = Server::start(&directory, Arc::new(Door(inbox.clone())))?;
    let now = clock::now();
    let mut daemon = Daemon {
        fuser: Fuser::new(header, "daemon", setup.config.export.interval),
        plan: Plan::new(setup.config.export.interval, setup.config.scan.max_age, now),
        window: Window::default(),
        pending: Vec::new(),
        recorder,
        exporting,
        hooked: started.hooks.is_some(),
        unhooked: false,
        detach,
        jobs,
        wanted,
        setup,
    };
    daemon.list(now);
    let outcome = daemon.fold(&inputs, &stop, &directory);
    drop(server);
    daemon.detach.store(true, Ordering::Relaxed);
    // The hooks thread may wait for room in the inbox.
    drop(inputs);
    if let Some(hooks) = started.hooks
        && hooks.join().is_err()
    {
        tracing::error!("the hooks thread panicked");
    }
    outcome
}

/// What came of attaching.
struct Started {
    since: MonoTime,
    hooks: Option<std::thread::JoinHandle<()>>,
    seed: u32,
}

impl Started {
    fn attach(
        setup: &Setup<'_>,
        inbox: &SyncSender<Input>,
        sources: Sender<(memprov_ledger::identity::ModuleId, ModuleSource)>,
        detach: &Arc<AtomicBool>,
    ) -> Self {
        let config = &setup.config;
        let seed = host::random_seed();
        let options = Options {
            scope: if setup.pids.is_empty() {
                Scope::All { except: Tgid(std::process::id()) }
            } else {
                Scope::Only(setup.pids.clone())
            },
            mechanism: match config.hooks.mechanism {
                config::Mechanism::Auto => None,
                config::Mechanism::Fentry => Some(Mechanism::Fentry),
                config::Mechanism::TpBtf => Some(Mechanism::TpBtf),
                config::Mechanism::Tp => Some(Mechanism::Tp),
            },
            lifecycle_ring: config.rings.lifecycle,
            stack_ring: config.rings.stacks,
            first_touch: config.first_touch.enabled.then_some(config.first_touch.probability),
            seed,
            inject: Inject {
                lifecycle: config.inject.lifecycle,
                stacks: config.inject.stacks,
                faults: config.inject.faults,
            },
        };
        if detach.load(Ordering::Relaxed) {
            tracing::warn!("the kill switch is on: nothing is attached, only snapshots are told");
            return Self { since: clock::now(), hooks: None, seed };
        }
        let root = config.root.clone();
        match hooks::start(options, root, config.inject.queue, inbox.clone(), sources, Arc::clone(detach)) {
            Ok((attached, thread)) => {
                for status in &attached.status {
                    tracing::info!(
                        capability = status.capability.id(),
                        mechanism = ?status.mechanism,
                        state = ?status.state,
                        reason = status.reason,
                        "hooks"
                    );
                }
                Self { since: attached.since, hooks: Some(thread), seed }
            }
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    "no hooks: every mapping is told as preexisting; `memprov check` says more"
                );
                Self { since: clock::now(), hooks: None, seed }
            }
        }
    }

    fn header(&self, setup: &Setup<'_>) -> Header {
        let touch = &setup.config.first_touch;
        let on = touch.enabled && self.hooks.is_some();
        Header {
            schema: crate::trace::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clock: clock_of_run(),
            watching_since: self.since,
            host: host::describe(&setup.config.root),
            scope: crate::trace::Scope {
                all: setup.pids.is_empty(),
                pids: setup.pids.iter().map(|p| p.0).collect(),
            },
            sample: Sample { seed: self.seed, probability: if on { touch.probability } else { 0.0 } },
            identity: host::identity(&setup.config.root),
            support: Vec::new(),
            redacted: false,
        }
    }
}

/// Wall time at the zero of `CLOCK_MONOTONIC`: read once, so that all times of a run agree.
#[must_use]
pub fn clock_of_run() -> Clock {
    let before = clock::now().0;
    let wall = clock_gettime(ClockId::Realtime);
    let after = clock::now().0;
    let wall = i128::from(wall.tv_sec) * 1_000_000_000 + i128::from(wall.tv_nsec);
    let zero = wall - i128::from(before.midpoint(after));
    Clock { wall_at_zero: i64::try_from(zero).unwrap_or(0) }
}

/// What the socket's threads use to ask.
struct Door(SyncSender<Input>);

impl Handler for Door {
    fn report(&self, pid: Option<u32>) -> Result<Vec<u8>, Refusal> {
        let (reply, answer) = sync_channel(1);
        let ending = || Refusal::NotReady("the daemon is ending".to_owned());
        let ask = Ask { pid: pid.map(Tgid), reply };
        self.0.send(Input::Ask(ask)).map_err(|_| ending())?;
        let report = answer.recv().map_err(|_| ending())??;
        serde_json::to_vec(&report).map_err(|e| Refusal::NotReady(e.to_string()))
    }
}

struct Daemon<'a> {
    fuser: Fuser,
    plan: Plan,
    window: Window,
    pending: Vec<Pending>,
    recorder: Option<Writer<std::fs::File>>,
    exporting: Exporting,
    hooked: bool,
    detach: Arc<AtomicBool>,
    jobs: Sender<Job>,
    wanted: Sender<Vec<Function>>,
    setup: Setup<'a>,
    unhooked: bool,
}

impl Daemon<'_> {
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
            self.release()?;
            self.answer(now);
            if directory.disabled() && self.hooked {
                self.disable(now)?;
            }
            let over = stop.load(Ordering::Relaxed)
                || self.setup.limit.is_some_and(|limit| now.since(begun) >= limit);
            match ended {
                None if over && self.recorder.is_some() => ended = Some(self.last_scans(now)),
                None if over => return Ok(()),
                Some(since) if self.pending.is_empty() || now.since(since) > crate::asks::PATIENCE => {
                    return self.finish(now);
                }
                _ => self.tick(now),
            }
        }
    }

    fn take(&mut self, input: Input) -> Result<(), DaemonError> {
        match input {
            Input::Hooks { lines, upto } => {
                for line in lines {
                    match line {
                        Line::Evidence(evidence) => self.window.push(evidence),
                        table => self.apply(table)?,
                    }
                }
                if self.hooked {
                    self.window.passed(Source::Hooks, upto);
                }
            }
            Input::HooksEnded(why) => {
                tracing::error!(why, "the hooks ended: what changes from now on is found by scans only");
                self.unhook(clock::now());
            }
            Input::Scanned { tgid, outcome, upto } => self.scanned(tgid, outcome, upto),
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
            Outcome::Seen(seen) => self.window.push(Evidence::Residency(seen)),
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
                // Its exit event is under way, or was lost: the ledger takes the first of both.
                let when = Span::at(upto);
                if self.fuser.ledger().space(tgid).is_some() {
                    self.window.push(Evidence::Lifecycle(Lifecycle { when, tgid, change: Change::Exit }));
                }
                self.pending.iter_mut().for_each(|p| p.failed(tgid, None));
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

    fn listed(&mut self, live: &[(Tgid, memprov_ledger::identity::StartTicks)], at: MonoTime) {
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
                let when = Span::at(at);
                self.window.push(Evidence::Lifecycle(Lifecycle { when, tgid, change: Change::Exit }));
            }
        }
        let jobs = self.plan.discover(self.fuser.ledger(), live, at);
        self.send(jobs, at);
    }

    fn ask(&mut self, ask: Ask) {
        let now = clock::now();
        let mut tgids: Vec<Tgid> = self
            .fuser
            .subjects(ask.pid)
            .iter()
            .filter_map(|s| s.tgids.first().copied())
            .collect();
        match ask.pid {
            // A report about all tells what is known; nobody waits for the whole host.
            None => tgids.clear(),
            Some(pid) if tgids.is_empty() && self.setup.pids.is_empty() => tgids.push(pid),
            Some(_) => {}
        }
        let jobs: Vec<Job> =
            tgids.iter().map(|tgid| self.plan.urgent(self.fuser.ledger(), *tgid, now)).collect();
        self.pending.push(Pending::new(ask, now, tgids));
        self.send(jobs, now);
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
            tracing::warn!(waiting = self.window.len(), "a source stalls: its evidence may come too late");
            self.window.idle(Source::Scans);
        }
        while let Some(evidence) = self.window.pop() {
            let seen = match &evidence {
                Evidence::Residency(seen) => Some((seen.tgid, seen.when.begin)),
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
        Ok(())
    }

    fn apply(&mut self, line: Line) -> Result<(), DaemonError> {
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
        let (ready, waiting): (Vec<Pending>, Vec<Pending>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|p| p.done(now) && (!names || now.since(p.since) > NAMES));
        self.pending = waiting;
        for pending in ready {
            let report = self.fuser.report(pending.ask.pid, now);
            let answer = if report.processes.is_empty() && pending.ask.pid.is_some() {
                let why = pending.failures.first().map_or("it is not observed", String::as_str);
                let pid = pending.ask.pid.map_or(0, |p| p.0);
                Err(Refusal::NothingToSay(format!("nothing is known of process {pid}: {why}")))
            } else {
                Ok(report)
            };
            // Who asked may have gone.
            drop(pending.ask.reply.try_send(answer));
        }
    }

    /// Processes that were forked just before a report was asked for are known once its first scans are in.
    fn latecomers(&mut self, now: MonoTime) {
        let mut jobs = Vec::new();
        let mut pending = std::mem::take(&mut self.pending);
        for p in pending.iter_mut().filter(|p| p.done(now) && !p.overdue(now) && p.ask.pid.is_some()) {
            for space in self.fuser.subjects(p.ask.pid) {
                let Some(tgid) = space.tgids.first().copied() else { continue };
                if p.add(tgid) {
                    jobs.push(self.plan.urgent(self.fuser.ledger(), tgid, now));
                }
            }
        }
        self.pending = pending;
        self.send(jobs, now);
    }

    fn tick(&mut self, now: MonoTime) {
        if self.plan.interval_ends(now) {
            if self.unhooked {
                self.unseen(now);
            }
            self.list(now);
        }
        let jobs = self.plan.due(self.fuser.ledger(), now);
        self.send(jobs, now);
        self.fuser.forget_before(MonoTime(now.0.saturating_sub(MEMORY_NANOS)));
        if self.fuser.advance(now.min(self.window.watermark())) {
            if self.exporting.wanted() || self.setup.screen.is_some() {
                let report = self.fuser.report(None, now);
                self.exporting.offer(&report, self.fuser.now());
                if let Some(screen) = self.setup.screen
                    && let Err(error) = screen.show(&report)
                {
                    tracing::debug!(%error, "the table cannot be shown");
                }
            }
        }
    }

    fn list(&mut self, now: MonoTime) {
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
        (self.hooked, self.unhooked) = (false, true);
        self.window.idle(Source::Hooks);
        self.unseen(now);
    }

    /// Without hooks that were there before, everything may have changed since anybody looked.
    fn unseen(&mut self, now: MonoTime) {
        let when = Span::at(now);
        let gap = Gap { when, stream: Stream::Lifecycle, lost: 0, whose: None };
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
        if let Some(mut recorder) = self.recorder.take() {
            recorder.write(&Line::End { when: now })?;
            recorder.finish()?;
        }
        Ok(())
    }
}
