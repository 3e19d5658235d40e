//! Perf maps: names that a runtime writes for the code it generates.
//!
//! Format: Linux `tools/perf/Documentation/jit-interface.txt`, lines of `START SIZE name`, the numbers in hex. Code moves:
//! of several lines that hold an address the last one is true.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use super::text;

const MAX_FILE: u64 = 64 << 20;
const MAX_LINE: u64 = 4096;

/// The names of the code at `addresses`; of a map larger than 64 MiB only the first so many bytes are read.
pub(crate) fn names(file: File, addresses: &[u64]) -> io::Result<Vec<Option<String>>> {
    let mut lines = BufReader::new(file.take(MAX_FILE));
    let mut wanted: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
    wanted.sort_unstable();
    let mut names = vec![None; addresses.len()];
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
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
    use std::io::{Seek, Write};
    use std::path::Path;

    use super::names;
    use crate::symbols::source::Place;

    #[test]
    fn the_last_line_that_holds_an_address_names_it() {
        let mut file = tempfile::tempfile().unwrap();
        let text = "1000 100 old\nnonsense\n10ff 1\n0x1080 10 LFoo;::bar new\n1200 0 empty\n";
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        let found = names(file, &[0x1200, 0x1080, 0x10ff, 0x1100, 0xfff]).unwrap();
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, [None, Some("LFoo;::bar new"), Some("old"), None, None]);
    }

    #[test]
    fn a_link_or_a_pipe_in_its_place_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| Place::below(dir.path().into(), Path::new(name));
        std::fs::write(dir.path().join("real"), "1000 100 secret\n").unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(dir.path().join("pipe")).status();
        assert!(pipe.unwrap().success());
        assert!(at("real").open(|_| true).is_ok());
        assert!(at("link").open(|_| true).is_err());
        assert!(at("pipe").open(|_| true).is_err());
        assert!(at("real").open(|_| false).is_err());
    }
}
