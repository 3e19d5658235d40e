//! Small steps of parsing shared by the readers. Numbers that do not fit are errors, never wrapped.

use crate::read::ParseError;

/// Lines with their numbers from 1, without the newline. A last line without one counts.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let any = !text.is_empty();
    text.split(|b| *b == b'\n').enumerate().map(|(i, line)| (i + 1, line)).filter(move |_| any)
}

/// What lies before and behind the first `by`.
pub(crate) fn cut(text: &[u8], by: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|b| *b == by)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// Non-empty words between blanks and tabs.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| matches!(b, b' ' | b'\t')).filter(|w| !w.is_empty())
}

/// An unsigned number in `radix`: digits only, at least one.
pub(crate) fn number(digits: &[u8], radix: u32) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let value = char::from(*digit).to_digit(radix)?;
        sum.checked_mul(u64::from(radix))?.checked_add(u64::from(value))
    })
}

/// A decimal number.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    number(digits, 10)
}

/// A decimal number of 32 bits.
pub(crate) fn decimal_u32(digits: &[u8]) -> Option<u32> {
    u32::try_from(decimal(digits)?).ok()
}

/// The bytes that `1234 kB` says.
pub(crate) fn kib(value: &[u8], line: usize) -> Result<u64, ParseError> {
    let mut words = words(value);
    let amount = words.next().and_then(decimal).and_then(|n| n.checked_mul(1024));
    match (amount, words.next(), words.next()) {
        (Some(amount), Some(b"kB"), None) => Ok(amount),
        _ => Err(ParseError { line, what: "not an amount in kB" }),
    }
}

/// A struct of amounts that the kernel prints as `Key: 1234 kB`, one line each; other lines are left alone.
macro_rules! kib_table {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident = $key:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Option<u64>,)*
        }

        impl $name {
            /// Takes a line in; tells whether its key is one of the fields.
            pub(crate) fn take(
                &mut self,
                key: &[u8],
                value: &[u8],
                line: usize,
            ) -> Result<bool, crate::read::ParseError> {
                match std::str::from_utf8(key) {
                    $(Ok($key) => self.$field = Some(crate::bytes::kib(value, line)?),)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}
pub(crate) use kib_table;

#[cfg(test)]
mod tests {
    use super::{decimal, kib, lines, number};

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!(number(b"", 16), None);
        assert_eq!(number(b"+1", 16), None);
        assert!(kib(b"18014398509481984 kB", 1).is_err(), "2^64 bytes");
        assert!(kib(b"1 MB", 1).is_err());
        assert_eq!(kib(b"\t   12 kB", 1).unwrap(), 12288);
    }

    #[test]
    fn an_empty_text_has_no_lines() {
        assert_eq!(lines(b"").count(), 0);
        assert_eq!(lines(b"a\n\nb\n").map(|(n, _)| n).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
