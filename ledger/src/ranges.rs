//! Sets of ranges of bytes: which parts of an object anybody has.

/// Disjoint ranges `[start, end)` in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(Vec<(u64, u64)>);

impl RangeSet {
    /// The union of `ranges`, which come in any order and may overlap.
    #[must_use]
    pub fn union(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match out.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => out.push((start, end)),
            }
        }
        Self(out)
    }

    /// Bytes in the set.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::RangeSet;

    #[test]
    fn what_two_have_counts_once() {
        let set = RangeSet::union(vec![(8, 16), (0, 4), (12, 20), (4, 5), (7, 7)]);
        assert_eq!(set.bytes(), 5 + 12);
    }
}
