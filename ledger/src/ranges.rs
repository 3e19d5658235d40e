//! Sets of ranges of bytes: which parts of an object anybody has, which addresses are spoken for.

use crate::identity::Extent;

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

    /// The parts of `extent` that are not in the set, in order.
    pub fn outside(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let first = self.0.partition_point(|(_, end)| *end <= extent.start);
        let mut at = extent.start;
        let inside = self.0[first..].iter().copied().take_while(move |(s, _)| *s < extent.end);
        inside
            .chain([(extent.end, extent.end)])
            .map(move |(start, end)| {
                let before = Extent { start: at, end: start };
                at = at.max(end);
                before
            })
            .filter(|part| !part.is_empty())
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
    use crate::identity::Extent;

    #[test]
    fn what_two_have_counts_once() {
        let set = RangeSet::union(vec![(8, 16), (0, 4), (12, 20), (4, 5), (7, 7)]);
        assert_eq!(set.bytes(), 5 + 12);
    }

    #[test]
    fn what_is_outside_and_what_is_inside_make_up_the_whole() {
        let set = RangeSet::union(vec![(2, 4), (6, 8), (9, 12)]);
        let outside = |start, end| -> Vec<(u64, u64)> {
            set.outside(Extent { start, end }).map(|e| (e.start, e.end)).collect()
        };
        assert_eq!(outside(0, 10), [(0, 2), (4, 6), (8, 9)]);
        assert_eq!(outside(3, 7), [(4, 6)]);
        assert_eq!(outside(9, 12), []);
        assert_eq!(outside(12, 14), [(12, 14)]);
    }
}
