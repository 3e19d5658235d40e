//! The laws of the ledger, checked against a naive kernel.
//!
//! The kernel (`kernel`) executes calls on arrays of pages and emits the evidence that sources would; `watch` asks the
//! ledger and says which answers would be wrong.

mod activity;
mod books;
mod call;
mod garbage;
mod kernel;
mod lives;
mod long;
mod loss;
mod placement;
mod races;
mod readings;
mod recall;
mod sideband;
mod small;
mod touch;
mod watch;
