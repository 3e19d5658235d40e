//! Sampled accesses: whose they are, where they went, and which share of the time that is.
//!
//! ```text
//! access ─ ledger: whose? ─▶ tally ─ slots ─▶ section ─ names, shares ─▶ report
//!          locality: where?          └─ slices of the window
//! ```

pub mod locality;
pub mod matrix;
pub mod populated;
pub mod section;
pub mod share;
pub mod slices;
pub mod slot;
pub mod sums;
pub mod tally;
