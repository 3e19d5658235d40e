//! From raw stacks to functions, names and sites.
//!
//! The journey of a stack:
//! 1. [`Unwinder`] gets registers and copied bytes, looks up in which file each address lies (`processes`, read lazily
//!    from `/proc/PID/maps`), finds the function and the rule to its caller in that file's `.eh_frame` or `.gopclntab`
//!    (`modules`, `cfi`, `gopclntab`), and interns what results. Bytes of the stack go no further; a [`Stack`]
//!    holds modules and addresses within them.
//! 2. [`Namer`], on a thread of its own, names the functions of a module (`names`, `demangle`, `perfmap`), from the
//!    files that [`Unwinder::source`] hands over.
//! 3. [`attribute`] decides whose doing it was: a call site, an allocator's arena, a thread stack, the dynamic linker
//!    (`site`, with the lists of `known`).
//! 4. [`lines()`] finds source lines, for the client only.
//!
//! All files read here belong to whoever runs the programs. Sizes are bounded before memory is taken, loops before they
//! run, and an error costs the names or frames of that file only.
//!
//! [`Stack`]: memprov_ledger::stack::Stack

mod borrowed;
mod cfi;
mod demangle;
mod elf;
mod gopclntab;
mod known;
mod lines;
mod modules;
mod mounts;
mod names;
mod perfmap;
mod processes;
mod segments;
mod site;
mod source;
mod text;
mod unwind;

pub use elf::ElfError;
pub use known::known_name;
pub use lines::{Line, lines};
pub use names::Namer;
pub use site::{Attribution, Call, GENERATED, Name, Site, Stability, attribute, needs, place};
pub use source::{FileIdentity, ModuleSource, OpenError};
pub use unwind::{Limits, RawUserStack, Table, UnwindError, Unwinder, Unwound};

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod live;
#[cfg(test)]
mod testbed;
