//! What outlasts a run, and what changes within one: the checkpoint, and the configuration that is read again.

use std::time::Duration;

use memprov_ledger::evidence::Evidence;
use memprov_ledger::time::{MonoTime, Span};

use super::Folding;
use crate::checkpoint::{self, Checkpoint};
use crate::config::Config;
use crate::logging;
use crate::logging::chain;
use crate::setup::DaemonError;
use crate::sources::scans::Job;
use crate::statedir::StateDir;

/// How often what is known is kept for the next run, beside the end.
const KEEP_EVERY: Duration = Duration::from_secs(600);

impl Folding<'_> {
    /// Takes in what an earlier run knew.
    ///
    /// # Errors
    /// When a recording cannot be written.
    pub(crate) fn recall(&mut self, known: Checkpoint) -> Result<(), DaemonError> {
        known.tables.into_iter().try_for_each(|line| self.apply(line))?;
        let recalls = known.recalls.into_iter().map(|known| Evidence::Recall(Box::new(known)));
        recalls.for_each(|evidence| self.window.push(evidence));
        Ok(())
    }

    /// Keeps what is known for the next run.
    pub(super) fn keep(&mut self, directory: &StateDir, now: MonoTime) {
        self.keep = now.after(KEEP_EVERY);
        let lines = self.fuser.remembered(Span::at(now));
        let kept = checkpoint::write(directory.path(), self.fuser.header(), &lines);
        if let Err(error) = kept {
            tracing::error!(error = chain(&error), "what is known cannot be kept for the next run");
        }
    }

    /// Reads the configuration again, and takes over what it may change.
    pub(super) fn reload(&mut self, now: MonoTime) {
        self.manager.reloading();
        let exporting = &mut self.exporting;
        let holds = |config: &Config| match exporting.change(config) {
            Ok(()) => true,
            Err(error) => {
                let problem = chain(&error);
                tracing::error!(%problem, "the configuration is not taken over");
                false
            }
        };
        let taken = self.reload.read(&self.setup.config).filter(holds);
        self.reload.settle(taken.as_ref());
        if let Some(config) = taken {
            if config.log != self.setup.config.log {
                logging::at(config.log);
            }
            self.fuser.every(config.export.interval);
            self.plan.every(config.export.interval, config.scan.max_age, now);
            // No scan, so the watermark of scans stays where it is.
            if self.jobs.send(Job::Budget(config.scan.budget)).is_err() {
                tracing::error!("the scan thread ended");
            }
            self.setup.config = config;
        }
        self.manager.ready();
    }
}
