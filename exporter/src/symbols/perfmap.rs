//! Perf maps: names that a runtime writes for the code it generates.
//!
//! Format: Linux `tools/perf/Documentation/jit-interface.txt`, lines of `START SIZE name`, the numbers in hex. Code moves:
//! of several lines that hold an address the last one is true.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::source::{OpenError, open_plain};
use super::text;

const MAX_FILE: u64 = 64 << 20;
const MAX_LINE: u64 = 4096;

/// The names of the code at `addresses`; of a map larger than 64 MiB only the first so many bytes are read.
pub(crate) fn names(path: &Path, addresses: &[u64]) -> Result<Vec<Option<String>>, OpenError> {
    let file = open_plain(path)?;
    let failed = |source| OpenError::Open { path: path.into(), source };
    let mut lines = BufReader::new(file.take(MAX_FILE));
    let mut wanted: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
    wanted.sort_unstable();
    let mut names = vec![None; addresses.len()];
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(names);
        }
        let Some((start, end, name)) = parse(&line) else { continue };
        let first = wanted.partition_point(|(address, _)| *address < start);
        for (_, n) in wanted.iter().skip(first).take_while(|(address, _)| *address < end) {
            if let Some(slot) = names.get_mut(*n) {
                *slot = Some(text::lossless(name));
            }
        }
    }
}

fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut fields = line.trim_ascii_end().splitn(3, |b| *b == b' ');
    let mut number = || {
        let text = std::str::from_utf8(fields.next()?).ok()?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = fields.next().filter(|name| !name.is_empty())?;
    Some((start, start.checked_add(size)?, name))
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn the_last_line_that_holds_an_address_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf-1.map");
        let text = "1000 100 old\nnonsense\n10ff 1\n0x1080 10 LFoo;::bar new\n1200 0 empty\n";
        std::fs::write(&path, text).unwrap();
        let found = names(&path, &[0x1200, 0x1080, 0x10ff, 0x1100, 0xfff]).unwrap();
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, [None, Some("LFoo;::bar new"), Some("old"), None, None]);
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("perf-1.map"));
        std::fs::write(&real, "1000 100 secret\n").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(names(&link, &[0x1000]).is_err());
    }
}
