//! Samples that were lost: whose, and how many at least.

use std::collections::BTreeMap;

use memprov_ledger::identity::Tgid;

use crate::record::Body;

/// By process; `None`: nobody knows whose. 0 where nobody counted.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<Option<Tgid>, u64>);

impl Losses {
    pub(super) fn add(&mut self, whose: Option<Tgid>, lost: u64) {
        let sum = self.0.entry(whose).or_default();
        *sum = sum.saturating_add(lost);
    }

    /// What a record of an event of `whose` says. `counted`: each event counts what it finds no room for, which Linux does
    /// since 6.0, and newer 5.x. Else a ring has one count, of all events that write to it.
    pub(super) fn hear(&mut self, record: &Body<'_>, whose: Option<Tgid>, counted: bool) {
        match record {
            Body::Lost(lost) if !counted => self.add(None, *lost),
            // They were lost before they reached the ring.
            Body::LostSamples(lost) => self.add(whose, *lost),
            Body::Throttle => self.add(whose, 0),
            _ => {}
        }
    }

    pub(super) fn told(self) -> impl Iterator<Item = (Option<Tgid>, u64)> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::identity::Tgid;

    use super::Losses;
    use crate::record::Body;

    fn told(records: &[(Body<'_>, Option<Tgid>)], counted: bool) -> Vec<(Option<Tgid>, u64)> {
        let mut losses = Losses::default();
        records.iter().for_each(|(record, whose)| losses.hear(record, *whose, counted));
        losses.told().collect()
    }

    const ONE: Option<Tgid> = Some(Tgid(1));
    const TWO: Option<Tgid> = Some(Tgid(2));

    #[test]
    fn samples_lost_before_the_ring_are_told_whether_the_event_counts_the_others_or_not() {
        let records = [(Body::LostSamples(5), ONE), (Body::LostSamples(2), ONE)];
        assert_eq!(told(&records, true), [(ONE, 7)]);
        assert_eq!(told(&records, false), [(ONE, 7)]);
    }

    #[test]
    fn what_a_ring_counts_for_all_of_its_events_is_nobodys() {
        let records = [(Body::Lost(5), ONE), (Body::Lost(4), TWO)];
        assert_eq!(told(&records, false), [(None, 9)]);
        assert_eq!(told(&records, true), [], "each event has counted them");
    }

    #[test]
    fn what_nobody_counted_is_told_and_sums_do_not_wrap() {
        let records = [(Body::Throttle, TWO), (Body::Unthrottle, ONE)];
        assert_eq!(told(&records, true), [(TWO, 0)]);
        let records = [(Body::LostSamples(u64::MAX), ONE), (Body::LostSamples(9), ONE)];
        assert_eq!(told(&records, true), [(ONE, u64::MAX)]);
    }
}
