//! Durations and sizes as text: `250ms`, `60s`, `10m`, `1h`; `4096B`, `64KiB`, `16MiB`, `1GiB`.

use std::time::Duration;

const DURATION: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
const SIZE: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A whole number and its unit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

/// The largest unit that leaves a whole number; `smallest` for zero.
fn format(value: u64, units: &[(&str, u64)], smallest: &str) -> String {
    let fit = units.iter().find(|(_, scale)| value > 0 && value.is_multiple_of(*scale));
    fit.map_or_else(|| format!("0{smallest}"), |(name, scale)| format!("{}{name}", value / scale))
}

/// Reads a duration.
///
/// # Errors
/// What is allowed, when it is none.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse(text, &DURATION)
        .map(Duration::from_millis)
        .ok_or_else(|| "allowed: a whole number and its unit, as in 250ms, 60s, 10m, 1h".to_owned())
}

/// The duration as text, in whole milliseconds.
pub(super) fn show(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // One hour reads better as 1h, but 60s is how a minute is written everywhere.
    if millis.is_multiple_of(60_000) && millis < 120_000 {
        return format(millis, &DURATION[2..], "s");
    }
    format(millis, &DURATION, "s")
}

/// Serde form of a duration.
pub(super) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::config) fn serialize<S: Serializer>(
        value: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::show(*value))
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        super::parse_duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Serde form of a number of bytes.
pub(super) mod size {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::config) fn serialize<S: Serializer>(
        value: &u32,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format(u64::from(*value), &super::SIZE, "B"))
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse(&text, &super::SIZE).and_then(|bytes| u32::try_from(bytes).ok()).ok_or_else(
            || {
                D::Error::custom(
                    "allowed: a whole number and its unit below 4GiB, as in 64KiB, 16MiB",
                )
            },
        )
    }
}
