//! Where raw stacks go.

use memprov_ledger::evidence::{Lifecycle, StackRef};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;

/// User registers that unwinding starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, if the program keeps one.
    pub bp: u64,
}

/// A copy of the top of a user stack. It borrows the ring: unwind it or copy it.
#[derive(Clone, Copy, Debug)]
pub struct RawStack<'a> {
    /// When the call was entered, or the fault taken: what the stack's code addresses mean is as of then.
    pub when: MonoTime,
    /// The process.
    pub tgid: Tgid,
    /// The thread.
    pub tid: u32,
    /// The thread's user registers.
    pub regs: Registers,
    /// The thread was in 32-bit code.
    pub compat: bool,
    /// Memory from `regs.sp` upward, at most 8 KiB; empty when none could be read.
    pub bytes: &'a [u8],
    /// The copy ends where the stack does (or where memory could not be read), not at the limit of 8 KiB.
    pub complete: bool,
}

/// Turns stacks into ids while a batch is drained.
pub trait StackSink {
    /// A lifecycle event, before the stacks of its batch. Its own stack is [`StackRef::None`] or [`StackRef::Lost`]
    /// here: this tells the sink which mappings exist when it unwinds.
    fn lifecycle(&mut self, e: &Lifecycle);
    /// Interns a stack.
    fn stack(&mut self, raw: &RawStack<'_>) -> StackRef;
}
