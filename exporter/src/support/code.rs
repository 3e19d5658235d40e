//! The support matrix as a word that fits into an exemplar, and back.
//!
//! A version digit, then a number in base 36: one digit in base 4 for each of [`CODED`], the first the lowest: 0 not told,
//! 1 unavailable, 2 degraded, 3 available.

use crate::trace::Support;

/// Capabilities in the order of their digits. New ones are appended; an old code says nothing of them.
pub const CODED: [&str; 15] = [
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
    "faults.frames",
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
    if code.is_empty() {
        code.push(b'0');
    }
    std::iter::once(VERSION).chain(code.into_iter().rev().map(char::from)).collect()
}

/// Why a text is no code, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Another version, or something else.
    #[error("a code of this version begins with {VERSION}")]
    Version,
    /// Nothing follows the version.
    #[error("it ends after its first character: digits are missing")]
    Empty,
    /// A character that no code has.
    #[error("character {place} is {character:?}: digits are 0 to 9 and a to z")]
    Digit {
        /// From 1.
        place: usize,
        /// Which.
        character: char,
    },
    /// It tells of capabilities that this version does not know.
    #[error("it tells of more than the {} capabilities that this version knows", CODED.len())]
    TooLong,
}

/// What a code says: capabilities with their state.
///
/// # Errors
/// When it is no code of this version.
pub fn decode(code: &str) -> Result<Vec<(&'static str, &'static str)>, CodeError> {
    let digits = code.strip_prefix(VERSION).ok_or(CodeError::Version)?;
    if digits.is_empty() {
        return Err(CodeError::Empty);
    }
    let mut number = 0u64;
    for (character, place) in digits.chars().zip(2..) {
        let wrong = CodeError::Digit { place, character };
        let digit = character.to_digit(36).filter(|_| !character.is_uppercase()).ok_or(wrong)?;
        number = number * 36 + u64::from(digit);
        if number >> (2 * CODED.len()) != 0 {
            return Err(CodeError::TooLong);
        }
    }
    let state = |nth: usize| STATES[usize::try_from(number >> (2 * nth) & 3).unwrap_or(0)];
    Ok(CODED.iter().enumerate().map(|(nth, id)| (*id, state(nth))).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{CODED, CodeError, STATES, decode, encode};
    use crate::trace::Support;

    #[test]
    fn what_is_wrong_with_a_code_is_told_by_its_place() {
        let character = |place, character| CodeError::Digit { place, character };
        for (text, wrong) in [
            ("", CodeError::Version),
            ("2a", CodeError::Version),
            ("1", CodeError::Empty),
            ("1a-b", character(3, '-')),
            ("1A", character(2, 'A')),
            ("1zzzzzzzzzzzzzzzzzzzzzzz", CodeError::TooLong),
        ] {
            assert_eq!(decode(text), Err(wrong), "{text}");
        }
        assert!(decode("10").unwrap().iter().all(|(_, state)| *state == STATES[0]));
    }

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
            prop_assert_eq!(decode(&code), Ok(told));
        }

        #[test]
        fn what_is_no_code_is_refused(text in any::<String>()) {
            if let Ok(told) = decode(&text) {
                prop_assert_eq!(told.len(), CODED.len());
            }
        }
    }
}
