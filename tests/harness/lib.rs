//! What the integration tests have in common: a daemon under test, workloads that know the truth, and the scorer.
//!
//! The daemon is seen from outside only: its command line, its exit codes, the document `memprov.report/1` and OTLP. None
//! of its types are used here, so that a change of the document breaks a test and not only a reader elsewhere; names of
//! OTLP are held against their registry.
#![forbid(unsafe_code)]

pub mod agent;
pub mod host;
pub mod otlp;
pub mod physical;
pub mod play;
pub mod report;
pub mod score;
pub mod truth;
