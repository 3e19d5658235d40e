//! Call stacks after unwinding: functions of modules, no addresses of a process.

use crate::identity::ModuleId;

/// An ELF file (or the kernel, or generated code) that functions lie in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Module {
    /// File name without its directory, as mapped: `libc.so.6`. Lossless text: bytes that are not UTF-8 as `\xNN`.
    pub name: String,
    /// The GNU build id (or Go's) in hex; `None` when the file has none or could not be read.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub build_id: Option<String>,
    /// What the module is to attribution.
    pub role: ModuleRole,
}

/// What a module is to attribution. Decided from its name and its exported symbols when it is first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum ModuleRole {
    /// A program or library of the user: its functions may be a site.
    Code,
    /// The C library or dynamic linker.
    Libc,
    /// A runtime library that is never a site by itself (libstdc++, libgcc, …).
    Runtime,
    /// An allocator of its own: jemalloc.
    Jemalloc,
    /// An allocator of its own: tcmalloc.
    Tcmalloc,
    /// An allocator of its own: mimalloc.
    Mimalloc,
    /// A Go program.
    Go,
}

/// One frame: a place in a function of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Frame {
    /// The module; `None` where no mapped file holds the address (generated code, unreadable maps).
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub module: Option<ModuleId>,
    /// Start of the function that holds the address, as an ELF virtual address of the module: that of its FDE in
    /// `.eh_frame`, or of its entry in `.gopclntab`. `None` when neither covers the address.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::identity::hex", default, skip_serializing_if = "Option::is_none")
    )]
    pub function: Option<u64>,
    /// The address itself as an ELF virtual address of the module (of the call, not the return).
    #[cfg_attr(feature = "serde", serde(with = "crate::identity::hex"))]
    pub address: u64,
}

/// Why the unwinder stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum StackEnd {
    /// It reached the outermost frame.
    Root,
    /// The copied bytes of stack ended before the outermost frame.
    Cut,
    /// No unwind information for a frame, or wrong information.
    Lost,
    /// It ended at a known stack switch (Go's `systemstack`): complete as far as that goes.
    Switch,
}

/// A call stack, leaf first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stack {
    /// Frames, leaf first.
    pub frames: Vec<Frame>,
    /// Why it has no more frames.
    pub end: StackEnd,
}
