//! Numbers, times and names as text of known width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// ANSI styles, or none.
#[derive(Clone, Copy)]
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn alarm(self, text: &str) -> String {
        self.with("33", text)
    }
}

const UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// The unit in which a number of this size is written, and how many bytes it has.
pub(crate) fn unit(bytes: u64) -> (&'static str, u64) {
    UNITS.into_iter().find(|(_, scale)| bytes >= *scale).unwrap_or(("B", 1))
}

/// Bytes with three significant digits and their unit; zero is `0`.
pub(crate) fn bytes(bytes: u64) -> String {
    let (name, _) = unit(bytes);
    if bytes == 0 { "0".to_owned() } else { format!("{} {name}", digits(bytes, unit(bytes).1)) }
}

/// Bytes in a given unit, without its name, with three significant digits.
pub(crate) fn digits(bytes: u64, scale: u64) -> String {
    if scale == 1 {
        return bytes.to_string();
    }
    // The remainder is below a unit: hundredths are exact enough for a number that is shown.
    let hundredths = u128::from(bytes) * 100 / u128::from(scale);
    let decimals = if hundredths < 1000 { 2 } else { usize::from(hundredths < 10_000) };
    let step = 10u128.pow(u32::try_from(2 - decimals).unwrap_or_default());
    let tail = u128::from(bytes) * 100 % u128::from(scale);
    let half = step * u128::from(scale) / 2;
    let rounded = (hundredths % step) * u128::from(scale) + tail >= half;
    let value = hundredths / step + u128::from(rounded);
    match decimals {
        0 => value.to_string(),
        1 => format!("{}.{}", value / 10, value % 10),
        _ => format!("{}.{:02}", value / 100, value % 100),
    }
}

/// Bytes with their sign.
pub(crate) fn signed(value: i64) -> String {
    let magnitude = bytes(value.unsigned_abs());
    match value {
        0 => magnitude,
        1.. => format!("+{magnitude}"),
        _ => format!("−{magnitude}"),
    }
}

/// A share in percent; what is not nothing is never shown as 0, and what is not all never as 100.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".to_owned();
    }
    let rounded = (u128::from(part) * 200 + u128::from(whole)) / (u128::from(whole) * 2);
    match rounded {
        0 => "< 1 %".to_owned(),
        100.. if part < whole => "> 99 %".to_owned(),
        n => format!("{n} %"),
    }
}

/// A sum, of which some may be unknown: `?` where all are.
pub(crate) fn sum(parts: impl Iterator<Item = Option<u64>>) -> String {
    let (mut known, mut missing, mut total) = (0u64, 0u64, 0u64);
    for part in parts {
        match part {
            Some(part) => (known, total) = (known + 1, total.saturating_add(part)),
            None => missing += 1,
        }
    }
    match (known, missing) {
        (0, 1..) => "?".to_owned(),
        (_, 0) => bytes(total),
        (_, _) => format!("{} and {missing} unknown", bytes(total)),
    }
}

/// The text without anything that moves the cursor, hides or reorders characters: those appear as `\xNN` or `\u{N}`.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let visible = matches!(c.width(), Some(1..)) && !matches!(c, '\u{2028}' | '\u{2029}');
        match c {
            _ if visible => out.push(c),
            '\0'..='\u{ff}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            _ => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
    out
}

/// At most `width` columns; what is too long loses its middle.
pub(crate) fn elide(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let head = take(text.chars(), room.div_ceil(2));
    let tail: String = take(text.chars().rev(), room / 2).chars().rev().collect();
    format!("{head}…{tail}")
}

/// As many characters as fit.
fn take(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or_default();
            used <= width
        })
        .collect()
}

/// The text with spaces up to `width`.
pub(crate) fn fit(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// The text with spaces before it up to `width`.
pub(crate) fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}

/// Parts joined by ` · `, on as many lines as it takes; later lines begin with `indent`.
pub(crate) fn wrap(parts: &[String], width: usize, indent: &str) -> Vec<String> {
    join(parts, " · ", width, indent)
}

/// Parts joined, on as many lines as it takes; later lines begin with `indent`.
pub(crate) fn join(parts: &[String], between: &str, width: usize, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let part = elide(part, width.saturating_sub(indent.width()));
        match lines.last_mut() {
            Some(line) if line.width() + between.width() + part.width() <= width => {
                line.push_str(between);
                line.push_str(&part);
            }
            Some(_) => lines.push(format!("{indent}{part}")),
            None => lines.push(part),
        }
    }
    lines
}

/// Seconds since the epoch of an RFC 3339 instant in UTC (`YYYY-MM-DDTHH:MM:SS[.f]Z`), whole seconds.
fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let number = |text: Option<&str>| text?.parse::<i64>().ok().filter(|n| (0..=9999).contains(n));
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next())?, number(date.next())?, number(date.next())?);
    let mut time = time.split(['.', ':']);
    let (hour, minute, second) = (number(time.next())?, number(time.next())?, number(time.next())?);
    // Years that begin in March put the leap day last; 153 days are the five months from one to the next long pair.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    const EPOCH: i64 = 719_468;
    Some((days - EPOCH) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// The time of day in UTC; with its date where that is not the date of `today`.
pub(crate) fn clock(instant: &str, today: &str) -> String {
    let parts = instant.strip_suffix('Z').and_then(|text| text.split_once('T'));
    match (seconds(instant), parts) {
        (Some(_), Some((date, time))) => {
            let time = time.split('.').next().unwrap_or(time);
            let same = today.split_once('T').is_some_and(|(other, _)| other == date);
            if same { format!("{time}Z") } else { format!("{date} {time}Z") }
        }
        _ => elide(&clean(instant), 24),
    }
}

/// The second of a clock that is told as if it had begun in 1970.
pub(crate) fn uptime(instant: &str) -> String {
    seconds(instant).map_or_else(|| elide(&clean(instant), 24), |second| format!("second {second}"))
}

/// How long before `now` an instant was.
pub(crate) fn age(instant: &str, now: &str) -> String {
    let (Some(then), Some(now)) = (seconds(instant), seconds(now)) else {
        return "age unknown".to_owned();
    };
    match now - then {
        ..=0 => "now".to_owned(),
        s @ 1..120 => format!("{s} s ago"),
        s @ 120..7200 => format!("{} min ago", s / 60),
        s => format!("{} h ago", s / 3600),
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::{age, bytes, clean, clock, elide, percent, seconds, signed, uptime, wrap};

    #[test]
    fn bytes_have_three_significant_digits() {
        let cases = [
            (0, "0"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (4096, "4.00 KiB"),
            (15_360, "15.0 KiB"),
            (1 << 20, "1.00 MiB"),
            (123 << 20, "123 MiB"),
            ((1 << 30) + (1 << 29), "1.50 GiB"),
            (u64::MAX, "16777216 TiB"),
        ];
        for (value, text) in cases {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(signed(-4096), "−4.00 KiB");
        assert_eq!(signed(i64::MIN), "−8388608 TiB");
        assert_eq!(signed(0), "0");
    }

    #[test]
    fn a_share_is_nothing_or_all_only_when_it_is() {
        assert_eq!(percent(0, 0), "0 %");
        assert_eq!(percent(0, 10), "0 %");
        assert_eq!(percent(1, 1000), "< 1 %");
        assert_eq!(percent(999, 1000), "> 99 %");
        assert_eq!(percent(1000, 1000), "100 %");
        assert_eq!(percent(3, 100), "3 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100 %");
    }

    #[test]
    fn nothing_in_a_name_reaches_the_terminal_as_a_command() {
        let hostile = "a\x1b[2J\r\n\u{9b}31m\u{202e}x\u{200b}\u{2028}\u{feff}e\u{301}ü漢";
        let shown = clean(hostile);
        assert_eq!(
            shown,
            "a\\x1b[2J\\x0d\\x0a\\x9b31m\\u{202e}x\\u{200b}\\u{2028}\\u{feff}e\\u{301}ü漢"
        );
        assert_eq!(clean(&shown), shown);
    }

    #[test]
    fn long_names_lose_their_middle_and_never_exceed_the_width() {
        assert_eq!(elide("abcdefgh", 8), "abcdefgh");
        assert_eq!(elide("abcdefghi", 8), "abcd…ghi");
        for width in 0..12 {
            assert!(elide("漢字漢字漢字漢字", width).width() <= width.max(1));
        }
    }

    #[test]
    fn lines_are_broken_between_parts() {
        let parts = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
        assert_eq!(wrap(&parts, 80, ""), ["one · two · three"]);
        assert_eq!(wrap(&parts, 10, "> "), ["one · two", "> three"]);
    }

    #[test]
    fn instants_agree_with_the_calendar() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-02-29T12:00:00.5Z"), Some(951_825_600));
        assert_eq!(seconds("2026-11-29T20:40:00Z"), Some(1_795_984_800));
        for broken in ["", "Z", "2026-11-29", "2026-11-29T20:40:00", "x-y-zTa:b:cZ", "1-2T3Z"] {
            assert_eq!(seconds(broken), None);
        }
        let now = "2026-11-29T20:40:00Z";
        assert_eq!(clock("2026-11-29T20:39:58.123Z", now), "20:39:58Z");
        assert_eq!(clock("2026-11-28T20:39:58Z", now), "2026-11-28 20:39:58Z");
        assert_eq!(clock("\x1b", now), "\\x1b");
        assert_eq!(uptime("1970-01-20T15:00:06.19Z"), "second 1695606");
        assert_eq!(uptime("\x1b"), "\\x1b");
        assert_eq!(age("2026-11-29T20:39:58.123Z", now), "2 s ago");
        assert_eq!(age("2026-11-29T20:30:00Z", now), "10 min ago");
        assert_eq!(age("2026-11-28T20:40:00Z", now), "24 h ago");
        assert_eq!(age(now, now), "now");
        assert_eq!(age("yesterday", now), "age unknown");
    }
}
