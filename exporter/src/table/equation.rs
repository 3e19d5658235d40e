//! The equation of one process: the kernel's total = owners + shared + unattributed.

use super::text::{Paint, digits, join, signed, unit, wrap};
use crate::report::Process;

/// Books of some kinds added up.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) lo: u64,
    pub(super) hi: u64,
    owned: u64,
    joint: u64,
    unattributed: u64,
    skew: i64,
    drift: i64,
    books: usize,
}

impl Sum {
    /// The kinds that make Rss.
    pub(super) fn resident(process: &Process) -> Self {
        Self::of(process, &["anon", "file", "shmem"])
    }

    pub(super) fn of(process: &Process, kinds: &[&str]) -> Self {
        let mut sum = Self::default();
        for book in kinds.iter().filter_map(|kind| process.books.get(*kind)) {
            sum.lo = sum.lo.saturating_add(book.control.lo);
            sum.hi = sum.hi.saturating_add(book.control.hi);
            sum.owned = sum.owned.saturating_add(book.owned);
            sum.joint = sum.joint.saturating_add(book.joint);
            sum.unattributed = sum.unattributed.saturating_add(book.unattributed);
            sum.skew = sum.skew.saturating_add(book.skew);
            sum.drift = sum.drift.saturating_add(book.drift);
            sum.books += 1;
        }
        sum
    }

    /// Whether any book is closed.
    pub(super) fn closed(&self) -> bool {
        self.books > 0
    }

    /// What the parts add up to.
    pub(super) fn parts(&self) -> u64 {
        let known = self.owned.saturating_add(self.joint).saturating_add(self.unattributed);
        known.saturating_add_signed(self.skew)
    }

    /// The equation, and what is to be said of it.
    pub(super) fn lines(&self, name: &str, width: usize, paint: Paint) -> Vec<String> {
        if self.books == 0 {
            return vec![format!("  {name} ?: no book is closed")];
        }
        let total = self.parts();
        let (unit_name, scale) = unit(total.max(self.hi));
        let known = [self.owned, self.joint, self.unattributed].map(i128::from);
        let parts = [known[0], known[1], known[2], i128::from(self.skew)];
        let exact: i128 = parts.iter().sum();
        let shown = apportion(&parts, i128::from(scale));
        let closes = (self.lo..=self.hi).contains(&total);
        let term = |index: usize| {
            let part = parts.get(index).copied().unwrap_or_default();
            decimal(shown.parts.get(index).copied().unwrap_or_default(), part, scale)
        };
        let mut terms = vec![
            format!("{name} {} {unit_name}", decimal(shown.total, exact, scale)),
            format!("{} owners {}", if closes { "=" } else { "≠" }, term(0)),
            format!("+ shared {}", term(1)),
            format!("+ unattributed {}", term(2)),
        ];
        if self.skew != 0 {
            let sign = if self.skew < 0 { "−" } else { "+" };
            terms.push(format!("{sign} skew {}", term(3)));
        }
        let mut notes = Vec::new();
        if self.lo != self.hi || !closes {
            let (lo, hi) = (digits(self.lo, scale), digits(self.hi, scale));
            notes.push(if lo == hi {
                format!("the kernel says {lo}")
            } else {
                format!("the kernel says {lo} to {hi}")
            });
        }
        if !closes {
            notes.push(paint.alarm("the books do not close: please report this"));
        }
        if self.drift != 0 {
            notes.push(format!("{} since", signed(self.drift)));
        }
        let room = width.saturating_sub(4);
        let equation = join(&terms, " ", room, "  ").into_iter().map(|line| paint.bold(&line));
        let notes = wrap(&notes, room, "").into_iter().map(|line| format!("  {line}"));
        equation.chain(notes).map(|line| format!("  {line}")).collect()
    }
}

/// The size of a number shown in hundredths of a unit. Only zero is `0`: what rounds to it is `0.00`.
fn decimal(hundredths: i128, exact: i128, scale: u64) -> String {
    match (exact, scale, hundredths.abs()) {
        (0, ..) => "0".to_owned(),
        (_, 1, n) => (n / 100).to_string(),
        (.., n) => format!("{}.{:02}", n / 100, n % 100),
    }
}

/// A total and its parts in hundredths of a unit.
struct Shown {
    total: i128,
    parts: [i128; 4],
}

/// Rounds a total and its parts so that what is shown adds up as well: the hundredths that rounding down leaves go to
/// the parts that lost most (largest remainder). No part moves by a whole hundredth or more.
fn apportion(parts: &[i128; 4], scale: i128) -> Shown {
    let exact: i128 = parts.iter().sum();
    let rounded = (exact * 100 + scale / 2).div_euclid(scale);
    let mut shown = parts.map(|part| (part * 100).div_euclid(scale));
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|i| parts.get(*i).map(|part| -(part * 100).rem_euclid(scale)));
    let missing = rounded - shown.iter().sum::<i128>();
    for index in order.into_iter().take(usize::try_from(missing).unwrap_or_default()) {
        if let Some(part) = shown.get_mut(index) {
            *part += 1;
        }
    }
    Shown { total: rounded, parts: shown }
}

#[cfg(test)]
mod tests {
    use super::{apportion, decimal};

    #[test]
    fn what_is_shown_adds_up_and_no_part_moves_by_a_hundredth() {
        let scales = [1i128, 1 << 10, 1 << 20, 1 << 30];
        let values = [0i128, 1, 5, 511, 4096, 123_456, 999_999, 1 << 29, (1 << 30) + 7];
        for scale in scales {
            for a in values {
                for b in values {
                    for (c, skew) in [(0, 0), (4096, -4096), (77, 3), (1 << 20, -77)] {
                        let parts = [a, b, c, skew];
                        let shown = apportion(&parts, scale);
                        assert_eq!(shown.parts.iter().sum::<i128>(), shown.total);
                        for (part, given) in parts.iter().zip(shown.parts) {
                            assert!(
                                (part * 100 - given * scale).abs() < scale,
                                "{parts:?} {scale}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn whole_bytes_have_no_decimals_and_only_zero_is_zero() {
        assert_eq!(decimal(51_200, 512, 1), "512");
        assert_eq!(decimal(171, 1_836_000_000, 1 << 30), "1.71");
        assert_eq!(decimal(0, 4096, 1 << 30), "0.00");
        assert_eq!(decimal(0, 0, 1 << 30), "0");
    }
}
