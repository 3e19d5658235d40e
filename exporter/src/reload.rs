//! SIGHUP: the configuration is read again, and what holds of it is taken over by the running daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::{Config, Effective, Sources};
use crate::report;

/// Reads the configuration again when it is asked to.
#[derive(Debug)]
pub(crate) struct Reload {
    asked: Arc<AtomicBool>,
    sources: Sources,
    told: report::Configuration,
}

impl Reload {
    /// `config` was read from `sources` and is in effect.
    pub(crate) fn new(config: &Config, sources: Sources) -> Self {
        let told = report::Configuration { hash: config.hash(), applied: 0, refused: 0 };
        Self { asked: Arc::default(), sources, told }
    }

    /// SIGHUP asks from now on. Not for what belongs to a terminal: there it says that the terminal is gone.
    ///
    /// # Errors
    /// When the signal cannot be handled.
    pub(crate) fn listen(&self) -> std::io::Result<()> {
        let asked = Arc::clone(&self.asked);
        signal_hook::flag::register(signal_hook::consts::SIGHUP, asked).map(drop)
    }

    /// Whether somebody asked since the last time.
    pub(crate) fn asked(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }

    /// The configuration that takes the place of `ours`; `None`, with every problem logged, where the sources hold
    /// mistakes.
    pub(crate) fn read(&self, ours: &Config) -> Option<Config> {
        let new = match Effective::load(&self.sources) {
            Ok(effective) => effective.config,
            Err(problems) => {
                for problem in problems {
                    tracing::error!(%problem, "the configuration is not taken over");
                }
                return None;
            }
        };
        let (taken, waiting) = ours.taking(&new);
        for key in waiting {
            tracing::warn!(key, "this setting changes at the next start only");
        }
        Some(taken)
    }

    /// Books what came of it: this configuration is in effect now, or none took the old one's place.
    pub(crate) fn settle(&mut self, taken: Option<&Config>) {
        match taken {
            Some(config) => {
                self.told.applied += 1;
                self.told.hash = config.hash();
                tracing::info!(hash = self.told.hash, "the configuration was read again");
            }
            None => self.told.refused += 1,
        }
    }

    /// For reports.
    pub(crate) fn told(&self) -> report::Configuration {
        self.told.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::Reload;
    use crate::config::{Config, Effective, LogLevel, Sources};

    fn write(file: &mut tempfile::NamedTempFile, text: &str) {
        file.as_file_mut().set_len(0).unwrap();
        file.reopen().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// A daemon that was started with this file.
    fn started(text: &str) -> (tempfile::NamedTempFile, Config, Reload) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write(&mut file, text);
        let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
        let Effective { config, sources, .. } = Effective::load(&sources).unwrap();
        let reload = Reload::new(&config, sources);
        (file, config, reload)
    }

    #[test]
    fn a_changed_file_is_taken_over_but_for_what_needs_a_restart() {
        let (mut file, config, mut reload) = started("log = \"warn\"\n");
        let before = reload.told();
        write(&mut file, "log = \"debug\"\n[scan]\nbudget = 0.5\n[rings]\nstacks = \"1MiB\"\n");
        let taken = reload.read(&config).unwrap();
        reload.settle(Some(&taken));
        assert_eq!((taken.log, taken.scan.budget), (LogLevel::Debug, 0.5));
        assert_eq!(taken.rings, config.rings);
        let told = reload.told();
        assert_eq!((told.applied, told.refused), (1, 0));
        assert_ne!(told.hash, before.hash);
        assert_eq!(told.hash, taken.hash());
    }

    #[test]
    fn a_file_with_a_mistake_leaves_everything_as_it_was() {
        let (mut file, config, mut reload) = started("log = \"warn\"\n");
        let before = reload.told();
        write(&mut file, "log = \"debug\"\n[scan]\nbudget = 7\n");
        let taken = reload.read(&config);
        reload.settle(taken.as_ref());
        assert_eq!(taken, None);
        let told = reload.told();
        assert_eq!((told.hash, told.applied, told.refused), (before.hash, 0, 1));
    }
}
