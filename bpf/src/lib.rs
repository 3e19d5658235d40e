//! Lifecycle, stack and first-touch hooks in the kernel: BPF programs and their loader.
//!
//! The programs (`src/bpf/`) watch the system calls that change an address space, fork, exec and exit, and, if asked,
//! page faults of a sample of pages. They write records into two rings: small lifecycle records into one, stacks and
//! faults into the other, so that a burst of stacks never costs an extent. [`Hooks::poll`] drains both, joins them
//! and returns evidence. x86-64 only.
//!
//! [`Regions`] is apart: it listens to what DAMON finds, whoever runs it, and hands on what the kernel said.

mod error;
mod evidence;
mod hooks;
mod load;
mod loss;
mod options;
mod record;
mod regions;
mod ring;
mod sink;
mod skeleton;
mod status;

pub use error::{HookError, LoadError};
pub use hooks::{Hooks, probe};
pub use options::{Inject, Mechanism, Options, Scope};
pub use regions::{Region, Regions};
pub use sink::{RawStack, Registers, StackSink};
pub use status::{Capability, HookState, HookStatus, Losses, RunTime};
