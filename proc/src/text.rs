//! Names as text, without losing a byte.

use std::fmt::Write;

/// Bytes as text: what is UTF-8 stays, every other byte becomes `\xNN` (lower-case hex).
///
/// A backslash stays a backslash, except where `x` and two hex digits follow: there it becomes `\x5c`. So `\xNN` in the
/// result always stands for one byte, two names never give the same text, and ordinary names look as they are.
#[must_use]
pub fn lossless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        for (at, c) in valid.char_indices() {
            if c == '\\' && looks_escaped(valid.as_bytes().get(at + 1..at + 4)) {
                text.push_str("\\x5c");
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a `String` cannot fail.
            write!(text, "\\x{byte:02x}").unwrap_or_default();
        }
    }
    text
}

fn looks_escaped(next: Option<&[u8]>) -> bool {
    matches!(next, Some([b'x', a, b]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::lossless;

    /// The inverse, which is why no two names can give one text.
    fn bytes(text: &str) -> Vec<u8> {
        let (text, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
        while at < text.len() {
            let escaped = text.get(at..at + 4).filter(|t| t.starts_with(b"\\x"));
            let value = escaped
                .and_then(|t| std::str::from_utf8(&t[2..]).ok())
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            out.push(value.unwrap_or(text[at]));
            at += if value.is_some() { 4 } else { 1 };
        }
        out
    }

    #[test]
    fn ordinary_names_stay_as_they_are() {
        assert_eq!(lossless("/tmp/ä b\\c\n(deleted)".as_bytes()), "/tmp/ä b\\c\n(deleted)");
        assert_eq!(lossless(b"a\xff\xc3"), "a\\xff\\xc3");
    }

    #[test]
    fn a_literal_escape_differs_from_an_escaped_byte() {
        assert_eq!(lossless(br"\xff"), r"\x5cxff");
        assert_ne!(lossless(br"\xff"), lossless(b"\xff"));
        assert_eq!(lossless(br"\x"), r"\x");
    }

    proptest! {
        #[test]
        fn every_name_can_be_had_back(name in proptest::collection::vec(any::<u8>(), 0..40)) {
            assert_eq!(bytes(&lossless(&name)), name);
        }

        #[test]
        fn so_can_names_full_of_backslashes(name in proptest::collection::vec(
            proptest::sample::select(vec![b'\\', b'x', b'f', b'4', 0xff, 0xc3, 0xa4]), 0..12)) {
            assert_eq!(bytes(&lossless(&name)), name);
        }
    }
}
