//! The accesses thread: samples memory accesses of all processes by the PMU, and page faults of chosen ones, each on request.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use memprov_ledger::evidence::Evidence;
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;
use memprov_perfmem::nodes::Nodes;
use memprov_perfmem::{DescriptionError, Ran, ReadError, SampleError, Sampled, Sampler};
use memprov_proc::{Proc, clock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Input;
use super::chosen::{Cut, chosen};
use crate::config::Access;
use crate::logging::chain;

/// How long samples may wait to be read when few come.
const POLL: Duration = Duration::from_millis(50);
/// How often it is asked whose faults are to be told.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is read which frames belong to which node.
const RENEW: Duration = Duration::from_secs(60);
/// Evidence of one message to the fuser: it bounds what waits there.
const BATCH: usize = 512;

/// What is sampled, and with how much room.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where `/proc` and `/sys` are found.
    pub root: PathBuf,
    /// Bytes of all rings together.
    pub room: u32,
    /// What is asked for.
    pub access: Access,
    /// Only these processes and their descendants; all without any.
    pub pids: Vec<Tgid>,
    /// Of random periods.
    pub seed: u32,
}

/// Why nothing is sampled.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An event does not open.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// An event of the PMU is not described.
    #[error("find the event of the PMU")]
    Description(#[from] DescriptionError),
    /// There is no event that could be opened.
    #[error("{0}")]
    NoEvent(String),
    /// The thread cannot be made, or ended at once.
    #[error("start the accesses thread")]
    Thread(#[source] std::io::Error),
}

/// What came of it.
#[derive(Debug)]
pub struct Started {
    /// Events of the PMU that are sampled, if they were asked for.
    pub pmu: Option<Result<Vec<String>, StartError>>,
    /// The thread; none where there is nothing to be sampled.
    pub thread: Option<JoinHandle<()>>,
}

/// Starts the thread and waits until it samples.
///
/// # Errors
/// When no ring can be opened.
pub fn start(
    options: Options,
    inbox: SyncSender<Input>,
    stop: Arc<AtomicBool>,
) -> Result<Started, StartError> {
    let (ready, opened) = sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("accesses".to_owned())
        .spawn(move || {
            let mut source = match Source::open(options) {
                Ok(source) => source,
                // The receiver waits for exactly this.
                Err(error) => return drop(ready.send(Err(error))),
            };
            let pmu = source.sample_pmu();
            let idle = source.options.access.faults.0.is_empty() && !matches!(pmu, Some(Ok(_)));
            if ready.send(Ok((pmu, idle))).is_err() || idle {
                return;
            }
            if let Err(error) = source.pump(&inbox, &stop) {
                tracing::error!(error = chain(&error), "accesses are not sampled any more");
            }
        })
        .map_err(StartError::Thread)?;
    let ended = |_| StartError::Thread(std::io::ErrorKind::BrokenPipe.into());
    let (pmu, idle) = opened.recv().map_err(ended)??;
    Ok(Started { pmu, thread: (!idle).then_some(thread) })
}

struct Source {
    options: Options,
    proc: Proc,
    sampler: Sampler,
    faults: Arc<[Sampled]>,
    /// Who may be told of, with their starts; `None`: all but ourselves.
    scope: Option<BTreeMap<Tgid, u64>>,
    /// Whose faults cannot be sampled.
    refused: BTreeSet<Tgid>,
    /// Who is left out because there are too many.
    cut: Cut,
    /// When it is looked who is to be watched.
    look: MonoTime,
    /// When nodes are read anew.
    renew: MonoTime,
    /// For how long each event of the PMU had run then, and whether it took turns with others.
    ran: BTreeMap<String, (Ran, bool)>,
}

impl Source {
    fn open(options: Options) -> Result<Self, SampleError> {
        raise_open_files();
        let sampler = Sampler::open(&options.root, options.room, u64::from(options.seed))?;
        let mut source = Self {
            proc: Proc::at(&options.root),
            sampler,
            faults: Sampled::faults().into(),
            scope: None,
            refused: BTreeSet::new(),
            cut: Cut::default(),
            look: MonoTime(0),
            renew: MonoTime(0),
            ran: BTreeMap::new(),
            options,
        };
        source.turn(clock::now());
        Ok(source)
    }

    /// Events of the PMU that open; the error of the first where none does.
    fn sample_pmu(&mut self) -> Option<Result<Vec<String>, StartError>> {
        self.options.access.pmu.then(|| self.open_pmu())
    }

    fn open_pmu(&mut self) -> Result<Vec<String>, StartError> {
        let probe = memprov_perfmem::probe(&self.options.root);
        let verdict = memprov_perfmem::judge(&probe);
        let events = probe.events.unwrap_or_default();
        let read = events.iter().filter(|event| event.is_read()).count().max(1);
        let rate = self.options.access.rate / u32::try_from(read).unwrap_or(1);
        let (mut names, mut failed) = (Vec::new(), None);
        for event in events.iter().filter(|event| event.is_read()) {
            let sampled = Sampled::memory(&self.options.root, event, rate);
            let opened = sampled.map_err(StartError::from).and_then(|sampled| {
                self.sampler.sample(sampled)?;
                Ok(())
            });
            match opened {
                Ok(()) => names.push(event.to_string()),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if names.is_empty() {
            return Err(failed.unwrap_or_else(|| StartError::NoEvent(verdict.to_string())));
        }
        Ok(names)
    }

    fn pump(mut self, inbox: &SyncSender<Input>, stop: &AtomicBool) -> Result<(), ReadError> {
        let own = Tgid(std::process::id());
        let mut evidence = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            self.turn(clock::now());
            self.sampler.poll(POLL, &mut evidence)?;
            evidence.retain(|evidence| match (evidence, &self.scope) {
                (Evidence::Access(access), None) => access.tgid != Some(own),
                (Evidence::Access(access), Some(scope)) => {
                    access.tgid.is_some_and(|tgid| scope.contains_key(&tgid))
                }
                _ => true,
            });
            while !evidence.is_empty() {
                let batch = evidence.drain(..evidence.len().min(BATCH)).collect();
                if inbox.send(Input::Sampled(batch)).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Looks who is to be watched, and which frames belong to which node, now and then.
    fn turn(&mut self, now: MonoTime) {
        if now >= self.renew {
            self.renew = now.after(RENEW);
            self.sampler.set_nodes(nodes(&self.proc));
            self.tell_turns();
        }
        if now < self.look {
            return;
        }
        self.look = now.after(LOOK);
        self.scope = (!self.options.pids.is_empty()).then(|| self.family());
        let watched =
            |tgid: &Tgid| self.scope.as_ref().is_none_or(|scope| scope.contains_key(tgid));
        let mut found = chosen(&self.proc, &self.options.access.faults);
        found.living.retain(watched);
        self.refused.retain(|tgid| found.living.contains(tgid));
        found.living.retain(|tgid| !self.refused.contains(tgid));
        let lost = "page faults of the youngest processes are not told";
        let wanted = self.cut.first(found, "access.faults", lost);
        let gone: Vec<Tgid> =
            self.sampler.watched().filter(|tgid| !wanted.contains(tgid)).collect();
        gone.into_iter().for_each(|tgid| self.sampler.forget(tgid));
        for tgid in wanted {
            if let Err(error) = self.sampler.watch(tgid, &self.faults) {
                let error = chain(&error);
                tracing::warn!(pid = tgid.0, error, "its page faults are not told");
                self.refused.insert(tgid);
            }
        }
    }
}

impl Source {
    /// Tells which events of the PMU count for a part of the time only, when that begins.
    fn tell_turns(&mut self) {
        for (name, ran) in self.sampler.ran() {
            let (before, told) = self.ran.get(name).copied().unwrap_or_default();
            let since = ran.since(before);
            let turns = since.took_turns();
            if let Some(idle) = since.idle().filter(|_| turns && !told) {
                tracing::warn!(
                    event = name,
                    idle,
                    "it counts for a part of the time only, as others use the counters, too: totals of its samples are too small"
                );
            }
            self.ran.insert(name.to_owned(), (ran, turns));
        }
    }

    /// Those that were named and their descendants, with the starts of all. Who belongs to them once stays when its parent ends.
    fn family(&self) -> BTreeMap<Tgid, u64> {
        let start = |tgid: Tgid| self.proc.stat(tgid).ok().map(|stat| stat.start_ticks);
        let known = self.scope.iter().flatten();
        let known = known.filter(|(tgid, begun)| start(**tgid) == Some(**begun));
        let known = known.map(|(tgid, _)| *tgid);
        let named = self.options.pids.iter().copied().filter(|_| self.scope.is_none());
        let own = Tgid(std::process::id());
        let mut family = BTreeMap::new();
        for root in named.chain(known) {
            if family.contains_key(&root) {
                continue;
            }
            let members = self.proc.family(root).into_iter().filter(|tgid| *tgid != own);
            family.extend(members.filter_map(|tgid| Some((tgid, start(tgid)?))));
        }
        family
    }
}

/// Which CPUs and frames belong to which node, as far as sysfs tells.
fn nodes(proc: &Proc) -> Nodes {
    let nodes = proc.nodes().unwrap_or_default();
    let cpus: BTreeMap<u32, u32> =
        nodes.iter().flat_map(|node| node.cpus.iter().map(|cpu| (*cpu, node.id))).collect();
    Nodes::new(cpus, proc.node_frames().unwrap_or_default())
}

/// Each event of each thread on each CPU is an open file: as many as we may have.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}
