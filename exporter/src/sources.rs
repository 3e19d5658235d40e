//! The sources: one blocking thread each, all writing to the fuser's inbox.
//!
//! ```text
//!  hooks thread: rings -> unwind ─────┐   or, where no hooks load:
//!  sideband thread: rings of perf ────┤
//!  regions thread: DAMON's findings ──┤
//!  accesses thread: rings of perf ────┤
//!  scan thread: jobs -> /proc ────────┤ bounded inbox ─▶ fuser thread
//!  names thread: functions -> names ──┘
//! ```
//! A full inbox makes the hooks thread wait: the rings then fill, and the kernel side counts the loss by process,
//! which is narrower than any loss here would be.

pub mod accesses;
pub mod charging;
pub(crate) mod chosen;
pub mod hooks;
pub mod names;
pub mod placing;
pub mod regions;
pub mod scans;
pub mod sideband;

use memprov_bpf::RunTime;
use memprov_ledger::charge::Charge;
use memprov_ledger::evidence::{Evidence, Residency, Total};
use memprov_ledger::identity::{StartTicks, Tgid};
use memprov_ledger::time::MonoTime;

pub use placing::Places;

use crate::asks::Ask;
use crate::trace::Line;

/// What reaches the fuser.
#[derive(Debug)]
pub enum Input {
    /// From the hooks, or from side-band in their place: tables before evidence. Nothing later ends before `upto`.
    Hooks {
        /// Tables and evidence.
        lines: Vec<Line>,
        /// The watermark.
        upto: MonoTime,
    },
    /// What monitors of memory found. Nobody waits for it: it may come after what happened later.
    Regions(Vec<Evidence>),
    /// What perf sampled: accesses, faults, and what was lost of them. Nobody waits for it, either.
    Sampled(Vec<Evidence>),
    /// What the hooks' programs cost while they were counted.
    Counted(RunTime),
    /// The hooks, or what stands in their place, ended; with the reason.
    HooksEnded(String),
    /// A job of the scan thread is done. Nothing later begins before `upto`.
    Scanned {
        /// Whose.
        tgid: Tgid,
        /// What came of it.
        outcome: Outcome,
        /// On which nodes its pages lie.
        placed: Places,
        /// What its cgroups are charged for, those that were due.
        charges: Vec<Charge>,
        /// The watermark.
        upto: MonoTime,
    },
    /// Processes that live now.
    Listed {
        /// Oldest first.
        live: Vec<(Tgid, StartTicks)>,
        /// When they were listed.
        at: MonoTime,
    },
    /// Names.
    Names(Vec<Line>),
    /// Somebody wants a report.
    Ask(Ask),
}

/// What came of a scan.
#[derive(Debug)]
pub enum Outcome {
    /// It was scanned.
    Seen(Box<Residency>),
    /// Nothing moved since the last scan: only the totals were read.
    Still(Total),
    /// The budget does not allow it now: only the totals were read.
    Later(Total),
    /// The process is gone.
    Vanished,
    /// It cannot be read.
    Failed(String),
}
