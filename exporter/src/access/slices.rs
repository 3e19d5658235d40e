//! The window in slices of equal length: what a share's variance is told from.
//!
//! A young window has short slices. When they become too many, neighbours are joined in pairs, until a slice is as long
//! as it is for good; from then on the oldest falls out. So there are enough slices after a third of a second and after a
//! day, and a recording is told from whatever its length.

use memprov_ledger::time::MonoTime;

use super::sums::Sums;

/// Slices at most; at least half as many once ten of the shortest are over.
const MOST: u64 = 20;
/// Nanoseconds of a slice of a window of five minutes.
const LONGEST: u64 = 15_000_000_000;
/// Nanoseconds of a slice at the beginning.
const SHORTEST: u64 = LONGEST >> 9;
const _: () = assert!(SHORTEST << 9 == LONGEST);

/// The slices that all owners have in common: number `n` is `n * length` to `(n + 1) * length` nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    length: u64,
    /// The first and the last slice with samples.
    spanned: Option<(u64, u64)>,
}

impl Default for Grid {
    fn default() -> Self {
        Self { length: SHORTEST, spanned: None }
    }
}

impl Grid {
    /// Whether an instant lies in the window that ends with the newest sample; the grid grows to hold it.
    pub fn enter(&mut self, at: MonoTime) -> bool {
        let mut slice = at.0 / self.length;
        let (mut first, mut last) = self.spanned.unwrap_or((slice, slice));
        (first, last) = (first.min(slice), last.max(slice));
        while last - first >= MOST && self.length < LONGEST {
            self.length *= 2;
            (first, last, slice) = (first / 2, last / 2, slice / 2);
        }
        first = first.max((last + 1).saturating_sub(MOST));
        self.spanned = Some((first, last));
        slice >= first
    }

    /// Slices that end after `at - MOST * LONGEST`, of those that the grid has: the window of a report made at `at`.
    fn window(&self, at: MonoTime) -> std::ops::RangeInclusive<u64> {
        let (first, last) = self.spanned.unwrap_or((1, 0));
        let oldest = at.0.saturating_sub(MOST * LONGEST) / self.length;
        first.max(oldest)..=last
    }
}

/// What one owner has in each slice; slices without samples are not kept.
#[derive(Clone, Debug)]
pub struct Slices {
    length: u64,
    kept: Vec<(u64, Sums)>,
}

impl Default for Slices {
    fn default() -> Self {
        Self { length: SHORTEST, kept: Vec::new() }
    }
}

impl Slices {
    /// The slice of an instant that `grid` has entered.
    pub fn at(&mut self, grid: &Grid, at: MonoTime) -> &mut Sums {
        self.follow(grid);
        let number = at.0 / grid.length;
        let place = match self.kept.last() {
            Some((last, _)) if *last == number => self.kept.len() - 1,
            _ => match self.kept.binary_search_by_key(&number, |(number, _)| *number) {
                Ok(place) => place,
                Err(place) => {
                    self.kept.insert(place, (number, Sums::default()));
                    place
                }
            },
        };
        &mut self.kept[place].1
    }

    /// The slices of a window that ends at `at`. What is to be joined comes with the same number.
    pub fn within(&self, grid: &Grid, at: MonoTime) -> impl Iterator<Item = (u64, &Sums)> {
        let window = grid.window(at);
        let joined = (grid.length / self.length).max(1);
        let kept = self.kept.iter().map(move |(number, sums)| (number / joined, sums));
        kept.filter(move |(number, _)| window.contains(number))
    }

    /// Adds those of `other`, as far as they are in the grid.
    pub fn merge(&mut self, other: &Self, grid: &Grid) {
        let mut other = other.clone();
        other.follow(grid);
        for (number, sums) in &other.kept {
            self.at(grid, MonoTime(number.saturating_mul(grid.length))).merge(sums);
        }
    }

    /// Joins what the grid has joined, and drops what fell out of it.
    fn follow(&mut self, grid: &Grid) {
        while self.length < grid.length {
            self.length *= 2;
            self.kept.iter_mut().for_each(|(number, _)| *number /= 2);
            self.kept.dedup_by(|(later, sums), (number, into)| {
                let same = later == number;
                if same {
                    into.merge(sums);
                }
                same
            });
        }
        let first = grid.spanned.map_or(0, |(first, _)| first);
        if self.kept.first().is_some_and(|(number, _)| *number < first) {
            self.kept.retain(|(number, _)| *number >= first);
        }
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::Locality;
    use memprov_ledger::time::MonoTime;

    use super::super::sums::{Measure, Method, Sums};
    use super::{Grid, LONGEST, MOST, SHORTEST, Slices};

    fn counted(sums: &Sums) -> f64 {
        sums.of(Measure::Count, Method::Served)[Locality::Local as usize].sum
    }

    /// Samples at these instants: by slice, and all that is in the window of a report made at the end.
    fn run(instants: impl Iterator<Item = u64>) -> (Vec<u64>, f64) {
        let (mut grid, mut slices, mut last) = (Grid::default(), Slices::default(), 0);
        for at in instants {
            if grid.enter(MonoTime(at)) {
                slices.at(&grid, MonoTime(at)).add(1.0, None, [Locality::Local; 2]);
            }
            last = last.max(at);
        }
        let window: Vec<(u64, f64)> =
            slices.within(&grid, MonoTime(last)).map(|(number, s)| (number, counted(s))).collect();
        let sum = window.iter().map(|(_, n)| n).sum();
        let mut numbers: Vec<u64> = window.into_iter().map(|(number, _)| number).collect();
        numbers.dedup();
        (numbers, sum)
    }

    #[test]
    fn whatever_it_lasts_there_are_ten_to_twenty_slices_and_they_hold_all_of_the_window() {
        for lasts in [SHORTEST * 10, SHORTEST * 77, 1_000_000_000, 60_000_000_000, MOST * LONGEST] {
            let begin = 987_654_321_000;
            let instants = (0..1000).map(|n| begin + n * lasts / 1000);
            let (slices, sum) = run(instants);
            assert!((10..=20).contains(&slices.len()), "{lasts}: {slices:?}");
            assert!(sum >= 949.0, "{lasts}: {sum}");
        }
        let (slices, sum) = run((0..100_000).map(|n| n * 100_000_000));
        assert_eq!(slices.len(), 20);
        assert!((2_850.0..=3_000.0).contains(&sum), "{sum}");
    }

    #[test]
    fn what_comes_too_late_is_in_no_slice_and_what_is_old_falls_out() {
        let mut grid = Grid::default();
        let mut slices = Slices::default();
        let hour = 3_600_000_000_000;
        for at in [1, hour, 2] {
            if grid.enter(MonoTime(at)) {
                slices.at(&grid, MonoTime(at)).add(1.0, None, [Locality::Local; 2]);
            }
        }
        assert_eq!(slices.within(&grid, MonoTime(hour)).count(), 1);
        assert_eq!(slices.within(&grid, MonoTime(2 * hour)).count(), 0);
    }

    #[test]
    fn the_end_of_time_does_no_harm() {
        let (_, sum) = run([0, u64::MAX, 5, u64::MAX - 1].into_iter());
        assert!(sum > 0.0);
    }

    #[test]
    fn who_was_not_touched_while_slices_were_joined_is_told_in_the_joined_ones() {
        let (mut grid, mut early) = (Grid::default(), Slices::default());
        for n in 0..10 {
            assert!(grid.enter(MonoTime(n * SHORTEST)));
            early.at(&grid, MonoTime(n * SHORTEST)).add(1.0, None, [Locality::Local; 2]);
        }
        let at = MonoTime(70 * SHORTEST);
        assert!(grid.enter(at));
        let told: Vec<_> =
            early.within(&grid, at).map(|(number, s)| (number, counted(s))).collect();
        assert_eq!(told.iter().map(|(_, n)| n).sum::<f64>(), 10.0);
        assert_eq!((told[0].0, told[9].0), (0, 9 / 4));
    }
}
