//! How patient the client is, and how it keeps out of step with those on other hosts.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use siphasher::sip::SipHasher13;

/// The longest wait that a server can ask for.
const LONGEST_HINT: Duration = Duration::from_secs(600);

/// How patient the client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// For one answer, connecting included.
    pub timeout: Duration,
    /// Wait after the first failure; it doubles with each further one, less up to half of it at random.
    pub first_wait: Duration,
    /// The longest such wait.
    pub longest_wait: Duration,
    /// How long each shipment waits before it is fetched and sent.
    pub phase: Duration,
}

impl Pace {
    /// The pace of one host of a fleet: its phase is its own part of a tenth of the interval, always the same, so that
    /// agents which started together do not send together.
    #[must_use]
    pub fn of_host(host: &str, interval: Duration, timeout: Duration) -> Self {
        let mut hasher = SipHasher13::new();
        hasher.write(host.as_bytes());
        let part = u32::try_from(hasher.finish() % 1024).unwrap_or(0);
        Self {
            timeout,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
            phase: interval / 10 * part / 1024,
        }
    }

    /// The wait after `failures` in a row: doubling, bounded, and shortened by up to half at random so that the agents
    /// of a fleet do not come back together. A server that names a time is given it, ten minutes at most.
    pub(super) fn wait(&self, failures: u32, hint: Option<Duration>) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let full = self.first_wait.saturating_mul(doubled).min(self.longest_wait);
        let random = u32::try_from(RandomState::new().hash_one(()) % 512).unwrap_or(0);
        let own = full - full / 1024 * random;
        hint.map_or(own, |hint| hint.min(LONGEST_HINT).max(own))
    }
}
