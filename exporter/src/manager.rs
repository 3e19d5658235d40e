//! What the service manager is told (`sd_notify(3)`); nothing where none listens.

use std::time::Duration;

use memprov_ledger::time::MonoTime;
use sd_notify::NotifyState;

/// The service manager.
#[derive(Debug)]
pub struct Manager {
    /// How often it wants to hear that we are alive, halved; `None` where it does not ask.
    beat: Option<Duration>,
    next: MonoTime,
}

impl Manager {
    /// The one that started this process, if any.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self { beat: sd_notify::watchdog_enabled().map(|limit| limit / 2), next: MonoTime(0) }
    }

    /// The start, or taking over a changed configuration, is done.
    pub fn ready(&self) {
        tell(&[NotifyState::Ready]);
    }

    /// The configuration is being read again.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::debug!(%error, "no time for the service manager"),
        }
    }

    /// The end has begun.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// A line for `systemctl status`.
    pub fn status(&self, line: &str) {
        tell(&[NotifyState::Status(line)]);
    }

    /// We are alive at `now`. Tells it as seldom as the manager allows.
    pub fn alive(&mut self, now: MonoTime) {
        if let Some(beat) = self.beat
            && now >= self.next
        {
            self.next = now.after(beat);
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, ?state, "the service manager does not hear");
    }
}
