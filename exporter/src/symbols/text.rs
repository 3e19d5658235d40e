//! Bytes as text.

use std::fmt::Write;

/// Lossless text: what is not UTF-8 appears as `\xNN`.
pub(crate) fn lossless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        push_hex(&mut text, "\\x", chunk.invalid());
    }
    text
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    push_hex(&mut text, "", bytes);
    text
}

fn push_hex(text: &mut String, before: &str, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String does not fail.
        write!(text, "{before}{byte:02x}").unwrap_or_default();
    }
}
