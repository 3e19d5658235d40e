//! The support matrix as a word that fits into an exemplar, and back.
//!
//! A version digit, then a number in base 36: one digit in base 4 for each of [`CODED`], the first the lowest: 0 not told,
//! 1 unavailable, 2 degraded, 3 available.

use crate::trace::Support;

/// Capabilities in the order of their digits. New ones are appended; an old code says nothing of them.
pub const CODED: [&str; 14] = [
    "mapping.lifecycle",
    "mapping.stacks",
    "mapping.compat",
    "process.fork_exec_exit",
    "residency.scan",
    "residency.exclusive",
    "residency.exact_rss",
    "first_touch",
    "faults.totals",
    "names",
    "pmu.mem",
    "damon",
    "frames.pfn",
    "numa.nodes",
];

const STATES: [&str; 4] = ["not told", "unavailable", "degraded", "available"];
const VERSION: char = '1';
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The code of a matrix.
#[must_use]
pub fn encode(matrix: &[Support]) -> String {
    let digit = |id: &&str| {
        let state = matrix.iter().find(|row| row.id == **id).map(|row| row.state.as_str());
        let at = STATES.iter().position(|name| Some(*name) == state).unwrap_or(0);
        u64::try_from(at).unwrap_or(0)
    };
    let mut number = CODED.iter().rev().fold(0u64, |number, id| number << 2 | digit(id));
    let mut code = Vec::new();
    while number > 0 {
        code.push(DIGITS[usize::try_from(number % 36).unwrap_or(0)]);
        number /= 36;
    }
    std::iter::once(VERSION).chain(code.into_iter().rev().map(char::from)).collect()
}

/// What a code says: capabilities with their state. `None`: it is no code of this version.
#[must_use]
pub fn decode(code: &str) -> Option<Vec<(&'static str, &'static str)>> {
    let digits = code.strip_prefix(VERSION)?;
    let number = if digits.is_empty() { 0 } else { u64::from_str_radix(digits, 36).ok()? };
    let state = |nth: usize| STATES[usize::try_from(number >> (2 * nth) & 3).unwrap_or(0)];
    let whole = number >> (2 * CODED.len()) == 0 && !code.contains(['+', '-']);
    whole.then(|| CODED.iter().enumerate().map(|(nth, id)| (*id, state(nth))).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{CODED, STATES, decode, encode};
    use crate::trace::Support;

    proptest! {
        #[test]
        fn a_code_is_short_and_says_what_the_matrix_said(states in proptest::collection::vec(0usize..4, CODED.len())) {
            let told: Vec<_> = CODED.iter().zip(&states).map(|(id, at)| (*id, STATES[*at])).collect();
            let row = |(id, state): &(&str, &str)| Support {
                id: (*id).to_owned(),
                state: (*state).to_owned(),
                mechanism: None,
                class: None,
            };
            let matrix: Vec<Support> = told.iter().map(row).collect();
            let code = encode(&matrix);
            prop_assert!(code.len() <= 7, "{code}");
            prop_assert_eq!(decode(&code), Some(told));
        }

        #[test]
        fn what_is_no_code_is_refused(text in any::<String>()) {
            if let Some(told) = decode(&text) {
                prop_assert_eq!(told.len(), CODED.len());
            }
        }
    }
}
