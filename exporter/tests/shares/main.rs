//! Shares of sampled accesses, from evidence to report.

mod laws;
mod outcomes;
mod recordings;
mod rig;
mod slots;
