//! Events that take turns: where more of them are wanted than a CPU has counters, each counts for a part of the time
//! (`time_enabled` and `time_running` of `perf_event_open(2)`). Their samples stand for more than their periods say.
//!
//! Times are read of events of all processes. That of a thread on one CPU is enabled, and does not run, while the thread is
//! on another: its times say nothing of turns.

/// Less than one part in so many changes nothing that is told.
const PART: u64 = 100;

/// For how long an event was to count, and for how long it did: nanoseconds, of all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// It was to.
    pub enabled: u64,
    /// It did.
    pub running: u64,
}

impl Ran {
    /// What is new since a reading before.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }

    /// Share of the time in which it did not count; `None` where it was not to count at all.
    #[must_use]
    pub fn idle(self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
        let share = self.enabled.saturating_sub(self.running) as f64 / self.enabled as f64;
        (self.enabled > 0).then_some(share)
    }

    /// Whether it had to leave its counter to others.
    #[must_use]
    pub fn took_turns(self) -> bool {
        self.enabled.saturating_sub(self.running) > self.enabled / PART
    }

    pub(super) fn add(&mut self, more: Self) {
        self.enabled = self.enabled.saturating_add(more.enabled);
        self.running = self.running.saturating_add(more.running);
    }
}

#[cfg(test)]
mod tests {
    use super::Ran;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn an_event_that_ran_all_the_time_took_no_turns_and_one_that_ran_half_of_it_did() {
        let before = Ran { enabled: 5 * SECOND, running: 5 * SECOND };
        let whole = Ran { enabled: 6 * SECOND, running: 6 * SECOND }.since(before);
        assert_eq!((whole.took_turns(), whole.idle()), (false, Some(0.0)));
        let half = Ran { enabled: 7 * SECOND, running: 6 * SECOND }.since(before);
        assert_eq!((half.took_turns(), half.idle()), (true, Some(0.5)));
        let mut sum = whole;
        sum.add(half);
        assert_eq!(sum.idle(), Some(1.0 / 3.0));
    }

    #[test]
    fn what_makes_no_difference_and_what_was_never_enabled_is_no_turn() {
        let nearly = Ran { enabled: 100 * SECOND, running: 99 * SECOND };
        assert!(!nearly.took_turns() && Ran { running: nearly.running - 1, ..nearly }.took_turns());
        assert_eq!((Ran::default().took_turns(), Ran::default().idle()), (false, None));
        let back = Ran { enabled: 1, running: 2 };
        assert_eq!((back.idle(), back.took_turns()), (Some(0.0), false));
        assert_eq!(Ran::default().since(nearly), Ran::default(), "an event that was opened anew");
    }
}
