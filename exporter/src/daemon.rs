//! The daemon: starts the sources, folds what they say, answers reports, exports, records.

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use memprov_bpf::{Inject, Mechanism, Options, Scope};
use memprov_ledger::identity::{ModuleId, StackId, StartTicks, Tgid};
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;
use memprov_proc::{Proc, ScanOptions, Scanner, clock};

use crate::asks::Ask;
use crate::checkpoint::{self, Checkpoint, Life};
use crate::config;
use crate::cost::{Cost, Tax, call_nanos};
use crate::exporting::Exporting;
use crate::folding::{Folding, Watch};
use crate::fuse::Fuser;
use crate::logging::chain;
use crate::manager::Manager;
use crate::plan::Plan;
use crate::privileges::{self, Privileges};
use crate::recorder::Recorder;
use crate::reload::Reload;
use crate::setup::{DaemonError, INBOX, Setup};
use crate::socket::{Handler, Refusal, Server};
use crate::sources::{Input, accesses, hooks, names, regions, scans, sideband};
use crate::statedir::StateDir;
use crate::support::{HookProbe, HookState, Matrix, PagesProbe};
use crate::symbols::ModuleSource;
use crate::trace::Header;
use crate::window::{Source, Window};
use crate::{check, host, probing, wall};

/// What is known is kept for the first time after this long: once the first scans are in.
const KEEP_AFTER: Duration = Duration::from_secs(60);

/// Runs until SIGTERM, SIGINT or the time limit. SIGHUP has a daemon read its configuration again;
/// one with a screen and a recording end by it.
///
/// # Errors
/// When it cannot start, or the recording cannot be written.
pub fn run(setup: Setup<'_>) -> Result<(), DaemonError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(DaemonError::Signals)?;
    }
    let reload = Reload::new(&setup.config, setup.sources.clone());
    if setup.screen.is_none() && setup.record.is_none() {
        reload.listen().map_err(DaemonError::Signals)?;
    }
    let proc = Proc::at(&setup.config.root);
    for pid in &setup.pids {
        proc.stat(*pid).map_err(|_| DaemonError::NoProcess(*pid))?;
    }
    let directory = StateDir::hold(&setup.config.state_dir)?;
    if let Some(path) = &setup.record {
        // Before anything is attached: a trace that cannot be written is a failed start.
        std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| DaemonError::Output { path: path.clone(), source })?;
    }
    match privileges::drop_unused(setup.config.damon.mode == config::DamonMode::Active) {
        Ok(Privileges { kept, dropped }) => tracing::info!(?kept, ?dropped, "capabilities"),
        Err(error) => tracing::warn!(%error, "no capability is dropped"),
    }
    regions::clean(&setup.config.root, directory.path());
    let (inbox, inputs) = sync_channel(INBOX);
    let (module_sources, modules) = channel();
    let (jobs, job_queue) = channel();
    let (wanted, want_queue) = channel();
    let thread = |name| move |source| DaemonError::Thread { name, source };
    let root = setup.config.root.clone();
    names::start(root.clone(), want_queue, modules, inbox.clone()).map_err(thread("names"))?;
    // Before other threads work: what the kernel's figures are worth is found out on ourselves.
    let scanner = Scanner::new(Proc::at(&root), ScanOptions::default());
    let pages = probing::pages(&root, &scanner);
    scans::start(scanner, setup.config.scan.budget, job_queue, inbox.clone())
        .map_err(thread("scans"))?;
    let detach = Arc::new(AtomicBool::new(directory.disabled()));
    let known = recalled(&setup, &proc, &directory);
    let started = Started::attach(&setup, &inbox, module_sources, known.taken, &detach);
    let header = started.header(&setup, pages);
    let recorder = match &setup.record {
        Some(path) => Some(Recorder::create(path, &header, setup.redact)?),
        None => None,
    };
    let exporting = Exporting::start(&setup.config, &header)?;
    let server = Server::start(&directory, Arc::new(Door(inbox.clone())))?;
    let now = clock::now();
    let mut window = Window::default();
    if started.watch != Watch::Nobody {
        // Nothing is released before the hooks spoke for the first time.
        window.passed(Source::Hooks, started.since);
    }
    let mut folding = Folding {
        fuser: Fuser::new(header, "daemon", setup.config.export.interval),
        plan: Plan::new(setup.config.export.interval, setup.config.scan.max_age, now),
        cost: Cost::new(proc, started.tax, now),
        window,
        pending: Vec::new(),
        forgetting: VecDeque::new(),
        recorder,
        exporting,
        reload,
        manager: Manager::of_this_process(),
        watch: started.watch,
        look: now,
        keep: now.after(KEEP_AFTER),
        detach,
        jobs,
        wanted,
        setup,
    };
    if started.watch != Watch::Calls {
        folding.unwatched(started.since);
    }
    folding.recall(known)?;
    folding.list(now);
    folding.manager.ready();
    let outcome = folding.run(&inputs, &stop, &directory);
    folding.manager.stopping();
    drop(server);
    folding.detach.store(true, Ordering::Relaxed);
    // The thread may wait for room in the inbox.
    drop(inputs);
    for thread in [started.thread, started.regions, started.accesses].into_iter().flatten() {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        if thread.join().is_err() {
            tracing::error!(name, "a thread panicked");
        }
    }
    folding.exporting.finish(clock::now());
    outcome
}

/// What an earlier run knew of the processes that are watched now. It is read before anything is attached: what the
/// hooks see is newer.
fn recalled(setup: &Setup<'_>, proc: &Proc, directory: &StateDir) -> Checkpoint {
    let chosen: BTreeSet<Tgid> = setup.pids.iter().flat_map(|pid| proc.family(*pid)).collect();
    let watched = |tgid: Tgid| setup.pids.is_empty() || chosen.contains(&tgid);
    let lives = |tgid| {
        let stat = watched(tgid).then(|| proc.stat(tgid).ok()).flatten()?;
        Some(Life { start: StartTicks(stat.start_ticks), layout: stat.layout() })
    };
    let boot = host::boot_id(&setup.config.root);
    match checkpoint::read(directory.path(), boot.as_deref(), lives, Span::at(clock::now())) {
        Ok(None) => Checkpoint::default(),
        Ok(Some(known)) => {
            tracing::info!(spaces = known.recalls.len(), "an earlier run knew of these");
            known
        }
        Err(error) => {
            tracing::warn!(error = chain(&error), "the checkpoint of an earlier run is not used");
            Checkpoint::default()
        }
    }
}

/// What came of attaching.
struct Started {
    since: MonoTime,
    watch: Watch,
    thread: Option<std::thread::JoinHandle<()>>,
    regions: Option<std::thread::JoinHandle<()>>,
    accesses: Option<std::thread::JoinHandle<()>>,
    probes: Vec<HookProbe>,
    tax: Option<Tax>,
    seed: u32,
}

type Modules = Sender<(ModuleId, ModuleSource)>;

impl Started {
    /// Hooks are tried first, then side-band; without either only snapshots are told.
    fn attach(
        setup: &Setup<'_>,
        inbox: &SyncSender<Input>,
        sources: Modules,
        taken: (StackId, ModuleId),
        detach: &Arc<AtomicBool>,
    ) -> Self {
        let mut started = Self {
            since: clock::now(),
            watch: Watch::Nobody,
            thread: None,
            regions: None,
            accesses: None,
            probes: Vec::new(),
            tax: None,
            seed: host::random_seed(),
        };
        if detach.load(Ordering::Relaxed) {
            tracing::warn!("the kill switch is on: nothing is attached, only snapshots are told");
        } else if setup.config.hooks.mechanism == config::Mechanism::Sideband {
            let why = "hooks.mechanism is sideband";
            started.probes.extend(probing::without_hooks(HookState::Unsupported, why));
            started.sideband(setup, inbox, detach);
        } else if !started.hooks(setup, inbox, sources, taken, detach) {
            started.sideband(setup, inbox, detach);
        }
        started.regions(setup, inbox, detach);
        started.accesses(setup, inbox, detach);
        started
    }

    /// Whether there are hooks.
    fn hooks(
        &mut self,
        setup: &Setup<'_>,
        inbox: &SyncSender<Input>,
        sources: Modules,
        taken: (StackId, ModuleId),
        detach: &Arc<AtomicBool>,
    ) -> bool {
        let config = &setup.config;
        let options = Options {
            scope: if setup.pids.is_empty() {
                Scope::All { except: Tgid(std::process::id()) }
            } else {
                Scope::Only(setup.pids.clone())
            },
            mechanism: match config.hooks.mechanism {
                config::Mechanism::Auto | config::Mechanism::Sideband => None,
                config::Mechanism::Fentry => Some(Mechanism::Fentry),
                config::Mechanism::TpBtf => Some(Mechanism::TpBtf),
                config::Mechanism::Tp => Some(Mechanism::Tp),
            },
            lifecycle_ring: config.rings.lifecycle,
            stack_ring: config.rings.stacks,
            first_touch: config.first_touch.enabled.then_some(config.first_touch.probability),
            seed: self.seed,
            inject: Inject {
                lifecycle: config.inject.lifecycle,
                stacks: config.inject.stacks,
                faults: config.inject.faults,
            },
        };
        let root = config.root.clone();
        let before = call_nanos();
        let stop = Arc::clone(detach);
        match hooks::start(options, root, taken, config.inject.queue, inbox.clone(), sources, stop)
        {
            Ok((attached, thread)) => {
                for status in &attached.status {
                    tracing::info!(
                        capability = status.capability.id(),
                        mechanism = status.mechanism.id(),
                        state = ?status.state,
                        reason = status.reason,
                        "hooks"
                    );
                }
                let nanos = (call_nanos() - before).max(0.0);
                self.since = attached.since;
                (self.watch, self.thread) = (Watch::Calls, Some(thread));
                self.probes = probing::hooks(&attached.status);
                self.tax = Some(Tax { nanos, calls: attached.calls });
                true
            }
            Err(error) => {
                let why = chain(&error);
                tracing::error!(
                    error = why,
                    "no hooks: call sites are unknown, and what is unmapped is found by scans; \
                     `memprov check` says more"
                );
                self.probes.extend(probing::without_hooks(HookState::Refused, &why));
                false
            }
        }
    }

    fn sideband(&mut self, setup: &Setup<'_>, inbox: &SyncSender<Input>, detach: &Arc<AtomicBool>) {
        let options = sideband::Options {
            root: setup.config.root.clone(),
            room: setup.config.rings.lifecycle,
            pids: setup.pids.clone(),
        };
        match sideband::start(options, inbox.clone(), Arc::clone(detach)) {
            Ok((since, thread)) => {
                tracing::info!("perf side-band tells of new mappings, fork, exec and exit");
                self.since = since;
                (self.watch, self.thread) = (Watch::Sideband, Some(thread));
                self.probes.extend(probing::sideband(&Ok::<_, sideband::StartError>(())));
            }
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    "no side-band either: all mappings are found by scans"
                );
                self.since = clock::now();
                self.probes.extend(probing::sideband(&Err(error)));
            }
        }
    }

    fn regions(&mut self, setup: &Setup<'_>, inbox: &SyncSender<Input>, detach: &Arc<AtomicBool>) {
        if setup.config.damon.mode == config::DamonMode::Off || detach.load(Ordering::Relaxed) {
            return;
        }
        match regions::start(&setup.config, inbox.clone(), Arc::clone(detach)) {
            Ok(regions::Started { thread, deaf }) => {
                self.probes.push(probing::regions(deaf.as_ref()));
                self.regions = Some(thread);
                if let Some(error) = deaf {
                    tracing::info!(
                        error = chain(&error),
                        "nobody listens to DAMON: only a monitor of our own tells what memory is used"
                    );
                }
            }
            Err(error) => {
                self.probes.push(probing::regions(Some(&error)));
                tracing::info!(
                    error = chain(&error),
                    "nobody listens to DAMON: what memory is used is not told"
                );
            }
        }
    }

    fn accesses(&mut self, setup: &Setup<'_>, inbox: &SyncSender<Input>, detach: &Arc<AtomicBool>) {
        let config = &setup.config;
        let asked = config.access.pmu || !config.access.faults.0.is_empty();
        if !asked || detach.load(Ordering::Relaxed) {
            self.probes.extend(probing::unsampled(&config.access));
            return;
        }
        let options = accesses::Options {
            root: config.root.clone(),
            room: config.rings.accesses,
            access: config.access.clone(),
            pids: setup.pids.clone(),
            seed: self.seed,
        };
        let started = accesses::start(options, inbox.clone(), Arc::clone(detach));
        self.probes.extend(probing::sampled(&config.access, &started));
        match started {
            Ok(accesses::Started { pmu, thread }) => {
                match pmu {
                    Some(Ok(events)) => tracing::info!(?events, "memory accesses are sampled"),
                    Some(Err(error)) => {
                        tracing::error!(error = chain(&error), "no memory access is sampled");
                    }
                    None => {}
                }
                self.accesses = thread;
            }
            Err(error) => tracing::error!(
                error = chain(&error),
                "no memory access and no page fault is sampled"
            ),
        }
    }

    fn header(&self, setup: &Setup<'_>, pages: PagesProbe) -> Header {
        let touch = &setup.config.first_touch;
        let on = touch.enabled && self.watch == Watch::Calls;
        let root = &setup.config.root;
        let probes = check::probe(&setup.config, self.probes.clone(), pages);
        let suspended = clock::suspended().as_nanos();
        let boot = u128::from(self.since.0).saturating_add(suspended);
        Header {
            schema: crate::trace::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clock: wall::clock_of_run(),
            watching_since: self.since,
            watching_ticks: u64::try_from(boot).ok().map(clock::ticks_of_boottime),
            host: host::describe(&setup.config.root),
            scope: crate::trace::Scope {
                all: setup.pids.is_empty(),
                pids: setup.pids.iter().map(|p| p.0).collect(),
            },
            sample: Sample {
                seed: self.seed,
                probability: if on { touch.probability } else { 0.0 },
            },
            identity: host::identity(root).named(&setup.config.export),
            boot_id: host::boot_id(root),
            support: probing::support(&Matrix::of(&probes)),
            redacted: false,
        }
    }
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
