//! Who gets series of its own: a bounded set with inertia.
//!
//! Whoever comes while there is room is in. When there is none, a newcomer takes the place of the smallest, if it is at
//! least twice as large. For an hour after it came somebody is held to be as large as he ever was in it: so the members
//! change slowly, whatever the sizes do, and yet what is new and large is named at once.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

/// How long the largest size that somebody had counts for him, in nanoseconds.
const TENURE: u64 = 3_600_000_000_000;

/// The members.
#[derive(Debug)]
pub(super) struct Admission<K> {
    cap: usize,
    members: HashMap<K, Member>,
}

#[derive(Debug)]
struct Member {
    since: u64,
    peak: u128,
    size: u128,
    /// It was there at the last choice.
    there: bool,
}

impl Member {
    fn new(size: u128, now: u64) -> Self {
        Self { since: now, peak: size, size, there: false }
    }

    /// What a newcomer has to exceed twice.
    fn weight(&self, now: u64) -> u128 {
        if now.saturating_sub(self.since) < TENURE { self.peak } else { self.size }
    }
}

impl<K: Ord + Hash + Clone> Admission<K> {
    /// Room for `cap` members.
    pub(super) fn new(cap: usize) -> Self {
        Self { cap, members: HashMap::new() }
    }

    /// Room for `cap` members from the next choice on.
    pub(super) fn resize(&mut self, cap: usize) {
        self.cap = cap;
    }

    /// Whether `key` is in.
    pub(super) fn has(&self, key: &K) -> bool {
        self.members.contains_key(key)
    }

    /// Chooses anew among all that exist now. Who is not there any more leaves, and so do the smallest where there is less
    /// room than before. `now` is a time of panes, in
    /// nanoseconds; equal sizes come in the order of their keys.
    pub(super) fn choose<'a>(&mut self, sizes: impl IntoIterator<Item = (&'a K, u128)>, now: u64)
    where
        K: 'a,
    {
        let mut outside = Vec::new();
        for (key, size) in sizes {
            match self.members.get_mut(key) {
                Some(member) => {
                    (member.peak, member.size) = (member.peak.max(size), size);
                    member.there = true;
                }
                None => outside.push((size, key)),
            }
        }
        self.members.retain(|_, member| std::mem::take(&mut member.there));
        let over = self.members.len().saturating_sub(self.cap);
        for (_, key) in self.weakest(now).into_iter().take(over) {
            self.members.remove(&key);
        }
        outside.sort_by_key(|(size, key)| (Reverse(*size), *key));
        let room = self.cap.saturating_sub(self.members.len());
        let mut newcomers = outside.into_iter();
        for (size, key) in newcomers.by_ref().take(room) {
            self.members.insert(key.clone(), Member::new(size, now));
        }
        let Some(first) = newcomers.next() else { return };
        let newcomers = std::iter::once(first).chain(newcomers);
        for ((size, key), (weight, member)) in newcomers.zip(self.weakest(now)) {
            if size <= weight.saturating_mul(2).saturating_sub(1) {
                break;
            }
            self.members.remove(&member);
            self.members.insert(key.clone(), Member::new(size, now));
        }
    }

    /// The members with their weights, the weakest first.
    fn weakest(&self, now: u64) -> Vec<(u128, K)> {
        let weight = |(key, member): (&K, &Member)| (member.weight(now), key.clone());
        let mut weakest: Vec<(u128, K)> = self.members.iter().map(weight).collect();
        weakest.sort();
        weakest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::{Admission, TENURE};

    const MINUTE: u64 = TENURE / 60;

    fn choose(admission: &mut Admission<u32>, sizes: &[(u32, u128)], now: u64) -> Vec<u32> {
        admission.choose(sizes.iter().map(|(key, size)| (key, *size)), now);
        sizes.iter().map(|(key, _)| *key).filter(|key| admission.has(key)).collect()
    }

    #[test]
    fn the_largest_that_comes_last_is_in() {
        let mut admission = Admission::new(2_000);
        let mut sizes: Vec<(u32, u128)> = Vec::new();
        for arriving in 1..=5_000u32 {
            sizes.push((arriving, u128::from(arriving)));
            if arriving % 500 == 0 {
                choose(&mut admission, &sizes, u64::from(arriving) * 1_000_000);
            }
        }
        sizes.push((9, 1 << 40));
        let sizes: Vec<_> = sizes.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
        let chosen = choose(&mut admission, &sizes, 6_000_000_000);
        assert_eq!(chosen.len(), 2_000);
        assert!(chosen.contains(&9) && chosen.contains(&5_000));
    }

    #[test]
    fn somebody_slightly_larger_stays_outside_and_twice_as_large_comes_in() {
        let mut admission = Admission::new(1);
        assert_eq!(choose(&mut admission, &[(1, 10)], 0), [1]);
        assert_eq!(choose(&mut admission, &[(1, 10), (2, 19)], 2 * TENURE), [1]);
        assert_eq!(choose(&mut admission, &[(1, 10), (2, 20)], 3 * TENURE), [2]);
    }

    #[test]
    fn who_shrinks_keeps_the_place_for_an_hour() {
        let mut admission = Admission::new(1);
        choose(&mut admission, &[(1, 100)], 0);
        assert_eq!(choose(&mut admission, &[(1, 1), (2, 100)], MINUTE), [1]);
        assert_eq!(choose(&mut admission, &[(1, 1), (2, 200)], 2 * MINUTE), [2]);
        assert_eq!(choose(&mut admission, &[(1, 100), (2, 1)], TENURE + MINUTE), [2]);
        assert_eq!(choose(&mut admission, &[(1, 100), (2, 1)], TENURE + 2 * MINUTE), [1]);
    }

    #[test]
    fn with_less_room_the_smallest_leave_and_with_more_the_largest_come() {
        let mut admission = Admission::new(3);
        let sizes = [(1, 10), (2, 40), (3, 30), (4, 20)];
        assert_eq!(choose(&mut admission, &sizes, 0), [2, 3, 4]);
        admission.resize(1);
        assert_eq!(choose(&mut admission, &sizes, MINUTE), [2]);
        admission.resize(2);
        assert_eq!(choose(&mut admission, &sizes, 2 * MINUTE), [2, 3]);
        admission.resize(0);
        assert_eq!(choose(&mut admission, &sizes, 3 * MINUTE), [0; 0]);
    }

    #[test]
    fn two_that_take_turns_change_places_once_an_hour_at_most() {
        let mut admission = Admission::new(1);
        let mut changes = 0;
        let mut before = Vec::new();
        for minute in 0..600 {
            let sizes = if minute % 2 == 0 { [(1, 1000), (2, 1)] } else { [(1, 1), (2, 1000)] };
            let now = choose(&mut admission, &sizes, minute * MINUTE);
            changes += u32::from(now != before);
            before = now;
        }
        assert!(changes <= 11, "{changes}");
    }

    proptest! {
        #[test]
        fn the_set_is_as_large_as_can_be_and_nobody_outside_is_twice_as_large_as_all_inside(
            cap in 0usize..6,
            panes in proptest::collection::vec(proptest::collection::btree_map(0u32..12, 0u128..1000, 0..12), 1..20),
            step in 1u64..100,
        ) {
            let mut admission = Admission::new(cap);
            for (pane, sizes) in panes.iter().enumerate() {
                let sizes: Vec<_> = sizes.iter().map(|(key, size)| (*key, *size)).collect();
                let chosen = choose(&mut admission, &sizes, pane as u64 * step * MINUTE);
                prop_assert_eq!(chosen.len(), cap.min(sizes.len()));
                prop_assert_eq!(admission.members.len(), chosen.len());
                let peak = admission.members.values().map(|member| member.peak).min();
                let outside = sizes.iter().filter(|(key, _)| !chosen.contains(key));
                let largest = outside.map(|(_, size)| *size).max().unwrap_or(0);
                prop_assert!(peak.is_none_or(|peak| largest <= 2 * peak));
            }
        }
    }
}
