//! The hooks thread: loads the hooks, drains their rings, unwinds stacks at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use memprov_bpf::{
    HookError, HookStatus, Hooks, LoadError, Options, RawStack, RunTime, Scope, StackSink,
};
use memprov_ledger::evidence::{Evidence, Gap, Lifecycle, StackRef, Stream};
use memprov_ledger::identity::{ModuleId, StackId, Tgid};
use memprov_ledger::stack::Module;
use memprov_ledger::time::MonoTime;
use memprov_proc::{Proc, clock};

use super::Input;
use crate::cost::{COUNT_EVERY, COUNT_FOR};
use crate::symbols::{Limits, ModuleSource, RawUserStack, Table, UnwindError, Unwinder, Unwound};
use crate::trace::Line;

/// The tables of stacks and modules are begun anew when they are full, but not more often than this: a program can make
/// any number of stacks.
const RENEW_AFTER: Duration = Duration::from_secs(60);
/// How long the rings may wait to be drained when nothing fills them.
const POLL: Duration = Duration::from_millis(50);

/// What the hooks thread says once it is attached.
#[derive(Debug)]
pub struct Attached {
    /// Everything later is seen.
    pub since: MonoTime,
    /// System calls of the host in a second before, where they were counted.
    pub calls: Option<u64>,
    /// Per capability, what was attached.
    pub status: Vec<HookStatus>,
    /// Processes that are watched and were there before, parents first. Empty when all are watched.
    pub selected: Vec<Tgid>,
}

/// Why there are no hooks.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// They cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A process cannot be selected.
    #[error("select a process")]
    Select(#[from] HookError),
    /// The thread cannot be made, or ended at once.
    #[error("start the hooks thread")]
    Thread(#[source] std::io::Error),
}

/// Starts the thread and waits until the hooks are attached. `taken`: the newest ids of stacks and modules that an
/// earlier run gave away.
///
/// # Errors
/// When they cannot be loaded.
pub fn start(
    options: Options,
    root: PathBuf,
    taken: (StackId, ModuleId),
    drop_batches: f64,
    inbox: SyncSender<Input>,
    sources: Sender<(ModuleId, ModuleSource)>,
    stop: Arc<AtomicBool>,
) -> Result<(Attached, JoinHandle<()>), StartError> {
    let (ready, attached) = sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("hooks".to_owned())
        .spawn(move || {
            let hooks = match attach(&options, &root) {
                Ok((hooks, said)) => {
                    if ready.send(Ok(said)).is_err() {
                        return;
                    }
                    hooks
                }
                Err(error) => {
                    // The receiver waits for exactly this.
                    drop(ready.send(Err(error)));
                    return;
                }
            };
            let sink = Sink::new(root, taken, sources);
            if let Err(error) = pump(hooks, sink, drop_batches, &inbox, &stop) {
                drop(inbox.send(Input::HooksEnded(error.to_string())));
            }
        })
        .map_err(StartError::Thread)?;
    wait(&attached).map(|said| (said, thread))
}

fn wait(attached: &Receiver<Result<Attached, StartError>>) -> Result<Attached, StartError> {
    let ended = |_| StartError::Thread(std::io::ErrorKind::BrokenPipe.into());
    attached.recv().map_err(ended)?
}

fn attach(options: &Options, root: &Path) -> Result<(Hooks, Attached), StartError> {
    let hooks = Hooks::load(options)?;
    let mut selected = Vec::new();
    if let Scope::Only(roots) = &options.scope {
        let proc = Proc::at(root);
        // A child that is forked by a selected process is selected with it, so this ends.
        loop {
            let found: Vec<Tgid> = roots.iter().flat_map(|root| proc.family(*root)).collect();
            let own = Tgid(std::process::id());
            let new = |pid: &Tgid| *pid != own && !selected.contains(pid);
            let new: Vec<Tgid> = found.into_iter().filter(new).collect();
            if new.is_empty() {
                break;
            }
            for pid in &new {
                hooks.select(*pid)?;
            }
            selected.extend(new);
        }
    }
    let status = hooks.status().to_vec();
    let said = Attached { since: clock::now(), calls: hooks.calls_per_second(), status, selected };
    Ok((hooks, said))
}

fn pump(
    mut hooks: Hooks,
    mut sink: Sink,
    drop_batches: f64,
    inbox: &SyncSender<Input>,
    stop: &AtomicBool,
) -> Result<(), HookError> {
    let mut evidence = Vec::new();
    let mut dice = 0x9e37_79b9_7f4a_7c15u64;
    let mut counting = Counting { on: false, next: clock::now().after(COUNT_FOR) };
    while !stop.load(Ordering::Relaxed) {
        let upto = hooks.poll(POLL, &mut sink, &mut evidence)?;
        for evidence in &evidence {
            if let Evidence::Gap(Gap { stream: Stream::Lifecycle, whose, .. }) = evidence {
                sink.unwinder.gap(*whose);
            }
        }
        if drop_batches > 0.0 {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            #[expect(clippy::cast_precision_loss, reason = "a test's probability")]
            let roll = (dice >> 11) as f64 / (1u64 << 53) as f64;
            if roll < drop_batches {
                evidence = lose(&evidence);
            }
        }
        let mut lines = std::mem::take(&mut sink.lines);
        lines.extend(evidence.drain(..).map(Line::Evidence));
        if inbox.send(Input::Hooks { lines, upto }).is_err() {
            break;
        }
        if let Some(run_time) = counting.turn(&mut hooks, clock::now())
            && inbox.send(Input::Counted(run_time)).is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Has the cost of the programs counted for a moment now and then.
struct Counting {
    on: bool,
    /// When it is to begin or end.
    next: MonoTime,
}

impl Counting {
    fn turn(&mut self, hooks: &mut Hooks, now: MonoTime) -> Option<RunTime> {
        if now < self.next {
            return None;
        }
        let counted = hooks.counted();
        self.on = !self.on && hooks.count();
        self.next = now.after(if self.on { COUNT_FOR } else { COUNT_EVERY });
        counted
    }
}

/// What stands for a batch that was dropped on purpose: a gap for each process in it.
fn lose(batch: &[Evidence]) -> Vec<Evidence> {
    let mut gaps: Vec<Gap> = Vec::new();
    let mut kept = Vec::new();
    for evidence in batch {
        let Evidence::Lifecycle(event) = evidence else {
            kept.push(evidence.clone());
            continue;
        };
        match gaps.iter_mut().find(|g| g.whose == Some(event.tgid)) {
            Some(gap) => {
                gap.lost += 1;
                gap.when.end = gap.when.end.max(event.when.end);
            }
            None => gaps.push(Gap {
                when: event.when,
                stream: Stream::Queue,
                lost: 1,
                whose: Some(event.tgid),
            }),
        }
    }
    kept.extend(gaps.into_iter().map(Evidence::Gap));
    kept
}

/// Unwinds stacks while the rings are drained.
struct Sink {
    unwinder: Unwinder,
    sources: Sender<(ModuleId, ModuleSource)>,
    lines: Vec<Line>,
    /// When the tables were begun.
    renewed: MonoTime,
}

impl Sink {
    fn new(
        root: PathBuf,
        taken: (StackId, ModuleId),
        sources: Sender<(ModuleId, ModuleSource)>,
    ) -> Self {
        let unwinder = Unwinder::new(root, Limits::default(), taken);
        Self { unwinder, sources, lines: Vec::new(), renewed: clock::now() }
    }

    fn unwind(&mut self, raw: &RawUserStack<'_>) -> Result<Unwound, UnwindError> {
        let unwound = self.unwinder.unwind(raw);
        let now = clock::now();
        if !matches!(unwound, Err(UnwindError::Full)) || now.since(self.renewed) < RENEW_AFTER {
            return unwound;
        }
        self.renewed = now;
        let (stacks, modules) = self.unwinder.forget_tables();
        self.lines.push(Line::Forget { stacks, modules });
        self.unwinder.unwind(raw)
    }

    fn tell(&mut self, table: Table) {
        match table {
            Table::Module(id, module) => self.module(id, module),
            Table::Stack(id, stack) => self.lines.push(Line::Stack { id, stack }),
        }
    }

    fn module(&mut self, id: ModuleId, module: Module) {
        if let Some(source) = self.unwinder.source(id) {
            // Without the names thread there are no names, and the program ends.
            drop(self.sources.send((id, source)));
        }
        self.lines.push(Line::Module { id, module });
    }
}

impl StackSink for Sink {
    fn lifecycle(&mut self, event: &Lifecycle) {
        self.unwinder.lifecycle(event);
    }

    fn stack(&mut self, raw: &RawStack<'_>) -> StackRef {
        if raw.compat || raw.bytes.is_empty() {
            return StackRef::Lost;
        }
        let raw = RawUserStack {
            tgid: raw.tgid,
            when: raw.when,
            ip: raw.regs.ip,
            sp: raw.regs.sp,
            bp: raw.regs.bp,
            bytes: raw.bytes,
            complete: raw.complete,
        };
        match self.unwind(&raw) {
            Ok(unwound) => {
                for table in unwound.new {
                    self.tell(table);
                }
                StackRef::Known(unwound.id)
            }
            Err(error) => {
                tracing::debug!(%error, "a stack is lost");
                StackRef::Lost
            }
        }
    }
}
