//! Unwinds copied user stacks at once, while the process still has its maps.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use memprov_ledger::evidence::{Change, Lifecycle};
use memprov_ledger::identity::{ModuleId, StackId, Tgid};
use memprov_ledger::stack::{Frame, Module, Stack, StackEnd};
use memprov_ledger::time::MonoTime;

use super::borrowed::Borrowed;
use super::cfi::{Registers, Rule, StackBytes, follow};
use super::modules::Modules;
use super::processes::Processes;
use super::segments::Binding;
use super::source::ModuleSource;

/// Frames of a stack; what lies behind them is cut.
const MAX_FRAMES: usize = 128;

/// A user stack as the kernel copied it.
#[derive(Clone, Copy, Debug)]
pub struct RawUserStack<'a> {
    /// The process.
    pub tgid: Tgid,
    /// When it was copied.
    pub when: MonoTime,
    /// `rip`.
    pub ip: u64,
    /// `rsp`: the address of the first byte of `bytes`.
    pub sp: u64,
    /// `rbp`.
    pub bp: u64,
    /// The stack from `sp` upward.
    pub bytes: &'a [u8],
    /// They reach the end of the stack.
    pub complete: bool,
}

/// An entry of the tables that evidence refers to. Each is told once, before its first use.
#[derive(Clone, Debug, PartialEq)]
pub enum Table {
    /// A module.
    Module(ModuleId, Module),
    /// A stack, after its modules.
    Stack(StackId, Arc<Stack>),
}

/// An unwound stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Unwound {
    /// Which stack it is.
    pub id: StackId,
    /// What must be told before the id is used.
    pub new: Vec<Table>,
}

/// Why there is no stack.
#[derive(Debug, thiserror::Error)]
pub enum UnwindError {
    /// The process has exited, or runs another program than when the stack was copied.
    #[error("process {} is gone or runs another program", .0.0)]
    Gone(Tgid),
    /// Its mappings cannot be read.
    #[error("read the mappings of process {}", .tgid.0)]
    Maps {
        /// The process.
        tgid: Tgid,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The table of stacks is full.
    #[error("the table of stacks is full")]
    Full,
}

/// Bounds of what an [`Unwinder`] keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Stacks.
    pub stacks: usize,
    /// Frames of all stacks together, 32 bytes each.
    pub frames: usize,
    /// Modules.
    pub modules: usize,
    /// Bytes of unwind information; what was used longest ago is dropped and read again when needed.
    pub unwind_bytes: usize,
    /// Executable segments of all processes together, about 100 bytes each; those of the process seen longest ago are
    /// dropped and read again when needed.
    pub segments: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stacks: 65_536,
            frames: 1 << 19,
            modules: 16_384,
            unwind_bytes: 24 << 20,
            segments: 32_768,
        }
    }
}

/// Turns raw stacks into interned ones.
#[derive(Debug)]
pub struct Unwinder {
    limits: Limits,
    modules: Modules,
    processes: Processes,
    borrowed: Borrowed,
    stacks: HashMap<Arc<Stack>, StackId>,
    frames: usize,
    next: u32,
    buffer: Vec<Frame>,
}

impl Unwinder {
    /// An unwinder of the host whose `/proc` is at `root`. `taken`: the newest ids that others gave away before.
    #[must_use]
    pub fn new(root: PathBuf, limits: Limits, taken: (StackId, ModuleId)) -> Self {
        let first = taken.1.0.saturating_add(1);
        Self {
            limits,
            modules: Modules::new(root.clone(), limits.modules, limits.unwind_bytes, first),
            processes: Processes::new(root, limits.segments),
            borrowed: Borrowed::default(),
            stacks: HashMap::new(),
            frames: 0,
            next: taken.0.0.saturating_add(1),
            buffer: Vec::with_capacity(MAX_FRAMES),
        }
    }

    /// Unwinds a stack. Lifecycle events that happened before it should have been told.
    ///
    /// # Errors
    /// When the process is gone, its mappings cannot be read, or the table of stacks is full.
    pub fn unwind(&mut self, raw: &RawUserStack<'_>) -> Result<Unwound, UnwindError> {
        let raw = &RawUserStack { tgid: self.borrowed.lender(raw.tgid, raw.when), ..*raw };
        self.processes.prepare(raw.tgid, raw.when)?;
        let mut frames = std::mem::take(&mut self.buffer);
        frames.clear();
        let end = self.walk(raw, &mut frames);
        let stack = Stack { frames, end };
        let found = self.stacks.get(&stack).copied();
        let result = match found {
            Some(id) => Ok(Unwound { id, new: Vec::new() }),
            None => self.intern(&stack),
        };
        self.buffer = stack.frames;
        result
    }

    fn intern(&mut self, stack: &Stack) -> Result<Unwound, UnwindError> {
        let id = StackId(self.next);
        let frames = self.frames + stack.frames.len();
        let Some(next) = self.next.checked_add(1) else { return Err(UnwindError::Full) };
        if self.stacks.len() >= self.limits.stacks || frames > self.limits.frames {
            return Err(UnwindError::Full);
        }
        (self.next, self.frames) = (next, frames);
        let stack = Arc::new(stack.clone());
        self.stacks.insert(stack.clone(), id);
        let mut new = Vec::new();
        for module in stack.frames.iter().filter_map(|f| f.module) {
            new.extend(self.modules.tell(module).map(|m| Table::Module(module, m)));
        }
        new.push(Table::Stack(id, stack));
        Ok(Unwound { id, new })
    }

    fn walk(&mut self, raw: &RawUserStack<'_>, frames: &mut Vec<Frame>) -> StackEnd {
        let stack = StackBytes { start: raw.sp, bytes: raw.bytes, complete: raw.complete };
        let mut at = Registers { ip: raw.ip, sp: raw.sp, bp: raw.bp };
        // The leaf was interrupted at its address; its callers are at their calls, before the return addresses.
        let mut exact = true;
        while frames.len() < MAX_FRAMES {
            if at.ip == 0 {
                return StackEnd::Root;
            }
            let address = if exact { at.ip } else { at.ip - 1 };
            let located = self.processes.locate(raw.tgid, raw.when, address, &mut self.modules);
            let Some(binding) = located else { return StackEnd::Lost };
            let step = match binding {
                Binding::Module { index, bias } => {
                    let module = Some(self.modules.id(index));
                    let address = address.wrapping_sub(bias);
                    let (function, rule) = self.modules.rule(index, address);
                    frames.push(Frame { module, function, address });
                    self.modules.step(index, address, rule, at, &stack)
                }
                // Where no module is, an address says nothing outside its process.
                Binding::Unbound | Binding::Nothing => {
                    frames.push(Frame { module: None, function: None, address: 0 });
                    follow(Rule::FramePointer, at, &stack).map(|next| (next, false))
                }
            };
            match step {
                Ok((next, interrupted)) => (at, exact) = (next, interrupted),
                Err(end) => return end,
            }
        }
        StackEnd::Cut
    }

    /// Learns from a change of an address space which mappings it knows no longer.
    pub fn lifecycle(&mut self, event: &Lifecycle) {
        let when = event.when;
        let tgid = self.borrowed.lender(event.tgid, when.begin);
        match &event.change {
            Change::Exec => {
                self.borrowed.leave(event.tgid, when.begin);
                self.processes.begin(event.tgid, when.begin);
            }
            Change::Exit => {
                self.borrowed.leave(event.tgid, when.begin);
                self.processes.end(event.tgid);
            }
            Change::Fork { child, shares, .. } => {
                self.borrowed.fork(event.tgid, *child, *shares, when.begin);
                self.processes.fork(tgid, *child, when.begin);
            }
            Change::Map { extent, flags, .. } => {
                let code = flags.exec || !flags.anonymous;
                if code || flags.fixed {
                    self.processes.changed(tgid, *extent, when.end, code);
                }
            }
            Change::Unmap { extent } => self.processes.changed(tgid, *extent, when.end, false),
            Change::Vma { extent, .. } | Change::Doubt { extent } => {
                self.processes.changed(tgid, *extent, when.end, true)
            }
            Change::Remap { from, to, .. } => {
                self.processes.changed(tgid, *from, when.end, true);
                self.processes.changed(tgid, *to, when.end, true);
            }
            Change::Brk { .. }
            | Change::Attach { .. }
            | Change::Detach { .. }
            | Change::Name { .. } => {}
        }
    }

    /// Lifecycle events were lost, of one process or of nobody knows whom: mappings are read again.
    pub fn gap(&mut self, whose: Option<Tgid>) {
        self.processes.forget(whose);
    }

    /// Where a module can be read, for names.
    #[must_use]
    pub fn source(&self, module: ModuleId) -> Option<ModuleSource> {
        self.modules.source(module).cloned()
    }

    /// Empties the tables: ids go on, and all is told anew. Returns the first ids of what follows; none below them is
    /// used again.
    pub fn forget_tables(&mut self) -> (StackId, ModuleId) {
        self.processes.forget(None);
        self.modules.forget();
        self.stacks.clear();
        self.frames = 0;
        (StackId(self.next), self.modules.id(0))
    }
}
