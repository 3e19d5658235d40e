//! DAMON: who runs it, what it is set to, and what it finds. Only reads: the tree may be somebody else's.
//!
//! - [`probe`] tells who uses it, [`monitors`] what those that run are set to (sysfs);
//! - [`Assembler`] puts whole snapshots together from single events of the tracepoint `damon:damon_aggregated`;
//! - [`activity`] makes evidence of a snapshot.
#![forbid(unsafe_code)]

mod aggregate;
mod evidence;
mod monitor;
mod presence;
mod retry;

pub use aggregate::{Assembler, Event, Region, Snapshot};
pub use evidence::{Unusable, activity};
pub use monitor::{Monitor, Operations, monitors};
pub use presence::{Kdamond, Presence, probe};
pub use retry::waits;
