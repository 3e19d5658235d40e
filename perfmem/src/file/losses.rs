//! What rings had no room for, counted once.
//!
//! The kernel tells of it when a ring has room again (`PERF_RECORD_LOST`). perf since 6.1 adds at its end what each event found
//! no room for in all (`PERF_FORMAT_LOST`), as a `PERF_RECORD_LOST_SAMPLES` without a time (`record__read_lost_samples` of
//! `tools/perf/builtin-record.c`): the same losses once more, and those of rings that had no room any more.

/// Losses of a recording so far.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Told, by whoever knew of them first.
    told: u64,
    /// Of all events, as perf counted them.
    counted: u64,
    /// An event that tells of mappings is among these.
    mappings: bool,
}

impl Losses {
    /// The kernel tells of so many.
    pub(super) fn hear(&mut self, lost: u64) {
        self.told = self.told.saturating_add(lost);
    }

    /// perf counted so many of one event. Returns how many of those counted until now nobody told of, and whether
    /// mappings can be among them.
    pub(super) fn count(&mut self, lost: u64, mappings: bool) -> (u64, bool) {
        self.counted = self.counted.saturating_add(lost);
        self.mappings |= mappings && lost > 0;
        let beyond = self.counted.saturating_sub(self.told);
        self.told += beyond;
        (beyond, self.mappings)
    }
}

#[cfg(test)]
mod tests {
    use super::Losses;

    #[test]
    fn what_perf_counts_is_told_as_far_as_the_kernel_did_not() {
        let mut losses = Losses::default();
        losses.hear(17);
        losses.hear(3);
        assert_eq!(losses.count(12, false), (0, false));
        assert_eq!(losses.count(9, false), (1, false), "21, of which 20 were told");
        assert_eq!(losses.count(5, false), (5, false));
        assert_eq!(losses.count(u64::MAX, false).0, u64::MAX - 26, "sums do not wrap");
        assert_eq!(losses.count(1, false).0, 0);
    }

    #[test]
    fn what_an_event_of_mappings_lost_can_be_in_what_is_told_with_another_event() {
        let mut losses = Losses::default();
        losses.hear(10);
        assert_eq!(losses.count(0, true), (0, false), "it lost nothing");
        assert_eq!(losses.count(5, true), (0, true));
        assert_eq!(losses.count(15, false), (10, true));
    }
}
