//! What a run of the daemon is given, and why it does not start or ends.

use std::path::PathBuf;
use std::time::Duration;

use memprov_ledger::identity::Tgid;

use crate::config::{Config, Sources};
use crate::screen::Screen;
use crate::socket::ServerError;
use crate::statedir::StateDirError;
use crate::trace::TraceError;

/// Batches between the sources and the fuser.
pub(crate) const INBOX: usize = 256;

/// What to run.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Configuration.
    pub config: Config,
    /// What it was read from, and is read from again at SIGHUP.
    pub sources: Sources,
    /// These processes and their descendants; all without any.
    pub pids: Vec<Tgid>,
    /// Record to this file.
    pub record: Option<PathBuf>,
    /// Write hashes for names into it.
    pub redact: bool,
    /// End by itself after this long.
    pub limit: Option<Duration>,
    /// Where every pane's report is shown.
    pub screen: Option<&'a Screen>,
}

/// Why the daemon did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The state directory.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The socket.
    #[error(transparent)]
    Socket(#[from] ServerError),
    /// A process to watch is not there.
    #[error("no process {}", .0.0)]
    NoProcess(Tgid),
    /// The file to record to cannot be made.
    #[error("create {}", path.display())]
    Output {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// No key to redact the trace with.
    #[error("draw a key for the redaction")]
    Redact(#[source] std::io::Error),
    /// A thread.
    #[error("start the thread {name}")]
    Thread {
        /// Which.
        name: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Signals.
    #[error("handle signals")]
    Signals(#[source] std::io::Error),
    /// The exporter.
    #[error("export")]
    Export(#[from] crate::otlp::StartError),
}
