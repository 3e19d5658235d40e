//! The log: lines on standard error, of a level that can change while the process runs.

use std::error::Error;
use std::io;
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, reload};

use crate::config::LogLevel;

static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// An error and what caused it, in one line.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

/// Begins logging at this level, or goes on at it.
pub fn at(level: LogLevel) {
    let filter = LevelFilter::from(level);
    if let Some(handle) = LEVEL.get() {
        if let Err(error) = handle.reload(filter) {
            tracing::error!(%error, "the log keeps its level");
        }
        return;
    }
    let (layer, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
    match tracing_subscriber::registry().with(layer).with(lines).try_init() {
        // Only the first to get here has a subscriber to change.
        Ok(()) => drop(LEVEL.set(handle)),
        Err(error) => tracing::debug!(%error, "logging had begun before"),
    }
}
