//! The report over HTTP/1.1 on a unix socket in the state directory, for its owner only (mode 0600).
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/report[?pid=N]` | 200 and the document `memprov.report/1` |
//! | `GET /v1/health` | 200 and `{"status":"ok","pid":N,"version":"…"}` |
//!
//! Everything else is 400, 404, 405 or 431, a report that cannot be given now is 503, all as `{"error":"…"}`. One
//! request a connection.

mod client;
mod server;

use std::path::{Path, PathBuf};

pub use client::{ClientError, fetch, listener_pid};
pub use server::{Server, ServerError};

/// File name of the socket.
pub const SOCKET: &str = "memprov.sock";

/// Where the socket of this state directory is.
#[must_use]
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// What answers requests.
pub trait Handler: Send + Sync + 'static {
    /// The report, as JSON, about one process and what comes with it, or about all. May take seconds.
    ///
    /// # Errors
    /// Why there is none.
    fn report(&self, pid: Option<u32>) -> Result<Vec<u8>, Refusal>;
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not now: still starting, disabled, ending, or too busy. Asking again makes sense.
    NotReady(String),
    /// Nothing is known of what was asked for, for instance a process that is not observed.
    NothingToSay(String),
}

#[cfg(test)]
mod tests;
