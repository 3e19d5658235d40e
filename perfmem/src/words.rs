//! An event as the numbers that `perf_event_open(2)` takes, and how a PMU describes them in sysfs.
//!
//! `format/NAME` says which bits a field has (`config:0-7,32-35`), `events/NAME` which fields an event sets
//! (`event=0xcd,umask=0x1,ldlat=3`): kernel `Documentation/ABI/testing/sysfs-bus-event_source-devices-format` and `-events`.
//! The reader of `perf-event2` refuses a PMU that has a field of several ranges, as AMD's cores do.

use std::io;
use std::path::{Path, PathBuf};

use perf_event::Builder;
use perf_event::events::Software;

/// `type`, `bp_type` and `config`, `config1`, `config2` of `perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Which PMU (`PERF_TYPE_*`, or the number in its `type`).
    pub kind: u32,
    /// Of a breakpoint: which accesses (`HW_BREAKPOINT_*`).
    pub breakpoint: u32,
    /// The event; of a breakpoint nothing, its address, its length.
    pub config: [u64; 3],
}

/// Why an event cannot be read from its description.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// A file is not readable.
    #[error("read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file holds something else than a description.
    #[error("{}: {text:?} is no description that is known here", path.display())]
    Text {
        /// Which.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// A value has more bits than its field.
    #[error("{value:#x} does not fit the {bits} bits of {}", path.display())]
    Wide {
        /// The description of the field.
        path: PathBuf,
        /// The value.
        value: u64,
        /// Bits that the field has.
        bits: usize,
    },
}

impl DescriptionError {
    /// The error number, where the system gave one.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Read { source, .. } => source.raw_os_error(),
            Self::Text { .. } | Self::Wide { .. } => None,
        }
    }
}

impl Words {
    /// An event of the kernel itself (`PERF_COUNT_SW_*`).
    #[must_use]
    pub const fn software(number: u64) -> Self {
        Self { kind: 1, breakpoint: 0, config: [number, 0, 0] }
    }

    /// Reads and writes of 1, 2, 4 or 8 bytes at an address.
    #[must_use]
    pub const fn breakpoint(address: u64, bytes: u64) -> Self {
        Self { kind: 5, breakpoint: 3, config: [0, address, bytes] }
    }

    /// An event of the PMU below `pmu`, with further fields where the PMU has them.
    pub(crate) fn of(
        pmu: &Path,
        event: Option<&str>,
        fields: &[(&str, u64)],
    ) -> Result<Self, DescriptionError> {
        let path = pmu.join("type");
        let text = read(&path)?;
        let kind = text.parse().map_err(|_| DescriptionError::Text { path, text })?;
        let mut words = Self { kind, ..Self::default() };
        if let Some(event) = event {
            let path = pmu.join("events").join(event);
            let text = read(&path)?;
            for term in text.split(',') {
                let (name, value) = term.split_once('=').unwrap_or((term, "1"));
                let bad = || DescriptionError::Text { path: path.clone(), text: text.clone() };
                let value = number(value).ok_or_else(bad)?;
                words.set(pmu, name, value)?;
            }
        }
        for (name, value) in fields {
            if pmu.join("format").join(name).exists() {
                words.set(pmu, name, *value)?;
            }
        }
        Ok(words)
    }

    fn set(&mut self, pmu: &Path, name: &str, value: u64) -> Result<(), DescriptionError> {
        let path = pmu.join("format").join(name);
        let text = read(&path)?;
        let Some((word, bits)) = layout(&text) else {
            return Err(DescriptionError::Text { path, text });
        };
        let bits = bits.as_slice();
        if bits.len() < 64 && value >> bits.len() != 0 {
            return Err(DescriptionError::Wide { path, value, bits: bits.len() });
        }
        if let Some(word) = self.config.get_mut(word) {
            // The lowest bit of the value goes to the first bit that the field has.
            for (nth, bit) in bits.iter().enumerate() {
                *word = *word & !(1 << bit) | (value >> nth & 1) << bit;
            }
        }
        Ok(())
    }

    /// A builder of the event.
    pub(crate) fn builder<'a>(self) -> Builder<'a> {
        let mut builder = Builder::new(Software::DUMMY);
        let attrs = builder.attrs_mut();
        let [config, config1, config2] = self.config;
        (attrs.type_, attrs.config, attrs.bp_type) = (self.kind, config, self.breakpoint);
        (attrs.config1, attrs.config2) = (config1, config2);
        builder
    }
}

/// What a file says, without the end of its line.
pub(crate) fn read(path: &Path) -> Result<String, DescriptionError> {
    let read = std::fs::read_to_string(path);
    let read = read.map_err(|source| DescriptionError::Read { path: path.to_owned(), source })?;
    Ok(read.trim().to_owned())
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Which word a field is in, and its bits there, each once.
fn layout(text: &str) -> Option<(usize, Vec<u32>)> {
    let (word, ranges) = text.split_once(':')?;
    let word = ["config", "config1", "config2"].iter().position(|name| *name == word)?;
    let mut bits = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last > 63 || (first..=last).any(|bit| bits.contains(&bit)) {
            return None;
        }
        bits.extend(first..=last);
    }
    Some((word, bits))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{DescriptionError, Words};

    fn pmu(at: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = at.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn an_event_sets_the_bits_that_its_pmu_describes() {
        let at = tempfile::tempdir().unwrap();
        let files = [
            ("type", "4\n"),
            ("format/event", "config:0-7\n"),
            ("format/umask", "config:8-15,40-47\n"),
            ("format/ldlat", "config1:0-15\n"),
            ("format/edge", "config:18\n"),
            ("events/mem-loads", "event=0xcd,umask=0x101,ldlat=3,edge\n"),
        ];
        pmu(at.path(), &files);
        let words = Words::of(at.path(), Some("mem-loads"), &[("ldlat", 30), ("other", 1)]);
        let config = [0x100_0004_01cd, 30, 0];
        assert_eq!(words.unwrap(), Words { kind: 4, breakpoint: 0, config });
        let plain = Words::of(at.path(), None, &[]).unwrap();
        assert_eq!(plain, Words { kind: 4, breakpoint: 0, config: [0; 3] });
    }

    #[test]
    fn what_is_no_description_is_told_with_its_file() {
        let at = tempfile::tempdir().unwrap();
        let missing = Words::of(at.path(), None, &[]).unwrap_err();
        assert_eq!(missing.errno(), Some(2));
        for (format, event) in [
            ("config9:0-7", "event=1"),
            ("config:0-64", "event=1"),
            ("config:0-7", "event=?"),
            ("config:0-63,0-63", "event=1"),
            ("config:0-7,4-11", "event=1"),
            ("config:7-0", "event=1"),
            ("config:", "event=1"),
        ] {
            let files = [("type", "4"), ("format/event", format), ("events/mem-loads", event)];
            pmu(at.path(), &files);
            let error = Words::of(at.path(), Some("mem-loads"), &[]).unwrap_err();
            assert!(matches!(error, DescriptionError::Text { .. }), "{error}");
        }
    }

    #[test]
    fn a_value_that_its_field_cannot_hold_is_refused_and_not_cut() {
        let at = tempfile::tempdir().unwrap();
        let of = |format, event| {
            let files = [("type", "4"), ("format/event", format), ("events/mem-loads", event)];
            pmu(at.path(), &files);
            Words::of(at.path(), Some("mem-loads"), &[]).map(|words| words.config[0])
        };
        let wide = of("config:0-7,32", "event=0x200").unwrap_err();
        let DescriptionError::Wide { path, value: 0x200, bits: 9 } = &wide else {
            panic!("{wide}")
        };
        assert!(path.ends_with("format/event"), "{wide}");
        assert_eq!(of("config:0-7,32", "event=0x1ff").unwrap(), 0x1_0000_00ff);
        assert_eq!(of("config:0-63", "event=0xffffffffffffffff").unwrap(), u64::MAX);
    }
}
