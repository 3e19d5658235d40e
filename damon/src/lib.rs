//! DAMON: who runs it, what it is set to, what it finds, and a monitor of our own.
//!
//! - [`probe`] tells who uses it, [`monitors`] what those that run are set to (sysfs);
//! - [`Assembler`] puts whole snapshots together from single events of the tracepoint `damon:damon_aggregated`;
//! - [`activity`] makes evidence of a snapshot;
//! - [`Session`] runs a monitor of our own where nobody else has one, and asks it where nobody can listen; nothing else
//!   here writes;
//! - [`tried`] reads what such a monitor says when it is asked.
#![forbid(unsafe_code)]

mod aggregate;
mod evidence;
mod monitor;
mod plan;
mod presence;
mod retry;
mod session;
mod tried;

pub use aggregate::{Assembler, Event, Region, Snapshot};
pub use evidence::{Unusable, activity};
pub use monitor::{Monitor, Operations, monitors};
pub use plan::{Findings, Goal, Plan, Target, Write};
pub use presence::{Kdamond, Presence, probe, writable};
pub use retry::waits;
pub use session::{Session, SessionError, Undone, is_ours, undo};
pub use tried::{TriedError, tried};
