//! The support matrix as a word that fits into an exemplar, and back.
//!
//! A version digit, then [`LENGTH`] digits of a number in base 36, zeros in front: one digit in base 4 for each of [`CODED`],
//! the first the lowest: 0 not told, 1 unavailable, 2 degraded, 3 available. All codes of a version are equally long, so that
//! one that was cut is told from a whole one.

use crate::trace::Support;

/// Capabilities in the order of their digits. New ones are appended; an old code says nothing of them. One that makes codes
/// longer makes a new version.
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
/// Digits behind the version: as many as the greatest number has.
pub const LENGTH: usize = (1u64 << (2 * CODED.len())).ilog(36) as usize + 1;

/// The code of a matrix.
#[must_use]
pub fn encode(matrix: &[Support]) -> String {
    let digit = |id: &&str| {
        let state = matrix.iter().find(|row| row.id == **id).map(|row| row.state.as_str());
        let at = STATES.iter().position(|name| Some(*name) == state).unwrap_or(0);
        u64::try_from(at).unwrap_or(0)
    };
    let mut number = CODED.iter().rev().fold(0u64, |number, id| number << 2 | digit(id));
    let mut digits = [DIGITS[0]; LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[usize::try_from(number % 36).unwrap_or(0)];
        number /= 36;
    }
    std::iter::once(VERSION).chain(digits.into_iter().map(char::from)).collect()
}

/// Why a text is no code, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Another version, or something else.
    #[error("a code of this version begins with {VERSION}")]
    Version,
    /// Its end is missing, or it is as codes once were, without zeros in front.
    #[error(
        "it was cut, or is of an earlier form: {LENGTH} digits follow the version, and {missing} of them are missing"
    )]
    Cut {
        /// How many digits.
        missing: usize,
    },
    /// A character that no code has.
    #[error("character {place} is {character:?}: digits are 0 to 9 and a to z")]
    Digit {
        /// From 1.
        place: usize,
        /// Which.
        character: char,
    },
    /// More follows than a code has, or it tells of capabilities that this version does not know.
    #[error("it tells of more than the {} capabilities that this version knows", CODED.len())]
    TooLong,
}

/// What a code says: capabilities with their state.
///
/// # Errors
/// When it is no code of this version.
pub fn decode(code: &str) -> Result<Vec<(&'static str, &'static str)>, CodeError> {
    let digits = code.strip_prefix(VERSION).ok_or(CodeError::Version)?;
    let (mut number, mut told) = (0u64, 0);
    for (character, place) in digits.chars().zip(2..) {
        let wrong = CodeError::Digit { place, character };
        let digit = character.to_digit(36).filter(|_| !character.is_uppercase()).ok_or(wrong)?;
        (number, told) = (number * 36 + u64::from(digit), told + 1);
        if told > LENGTH || number >> (2 * CODED.len()) != 0 {
            return Err(CodeError::TooLong);
        }
    }
    if told < LENGTH {
        return Err(CodeError::Cut { missing: LENGTH - told });
    }
    let state = |nth: usize| STATES[usize::try_from(number >> (2 * nth) & 3).unwrap_or(0)];
    Ok(CODED.iter().enumerate().map(|(nth, id)| (*id, state(nth))).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{CODED, CodeError, LENGTH, STATES, decode, encode};
    use crate::trace::Support;

    #[test]
    fn what_is_wrong_with_a_code_is_told_by_its_place() {
        let character = |place, character| CodeError::Digit { place, character };
        for (text, wrong) in [
            ("", CodeError::Version),
            ("2a", CodeError::Version),
            ("1", CodeError::Cut { missing: 6 }),
            ("10oh2k", CodeError::Cut { missing: 1 }),
            ("1000000z", CodeError::TooLong),
            ("1a-b", character(3, '-')),
            ("1A", character(2, 'A')),
            ("1zzzzzzzzzzzzzzzzzzzzzzz", CodeError::TooLong),
        ] {
            assert_eq!(decode(text), Err(wrong), "{text}");
        }
        assert!(decode("1000000").unwrap().iter().all(|(_, state)| *state == STATES[0]));
    }

    proptest! {
        #[test]
        fn a_code_says_what_the_matrix_said_and_a_part_of_it_says_nothing(states in proptest::collection::vec(0usize..4, CODED.len())) {
            let told: Vec<_> = CODED.iter().zip(&states).map(|(id, at)| (*id, STATES[*at])).collect();
            let row = |(id, state): &(&str, &str)| Support {
                id: (*id).to_owned(),
                state: (*state).to_owned(),
                mechanism: None,
                class: None,
            };
            let matrix: Vec<Support> = told.iter().map(row).collect();
            let code = encode(&matrix);
            prop_assert_eq!(code.len(), 1 + LENGTH);
            prop_assert_eq!(decode(&code), Ok(told));
            for cut in 1..code.len() {
                prop_assert_eq!(decode(&code[..cut]), Err(CodeError::Cut { missing: code.len() - cut }));
            }
        }

        #[test]
        fn what_is_no_code_is_refused(text in any::<String>()) {
            if let Ok(told) = decode(&text) {
                prop_assert_eq!(told.len(), CODED.len());
            }
        }
    }
}
