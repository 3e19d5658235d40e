//! What a scheme of a monitor found, region by region: the directory `tried_regions` (Linux 6.2).
//!
//! The kernel empties and fills it when it is told to (kernel `Documentation/admin-guide/mm/damon/usage.rst`,
//! "schemes/<N>/tried_regions/"), so only a monitor of our own is asked. Each region is a directory whose name is a number:
//! not from 0 on, and in no order, on every kernel.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};

use crate::aggregate::{REGIONS, Region};

/// Digits of the largest number, and the end of the line.
const LONGEST: usize = 24;

/// Why a directory is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum TriedError {
    /// A file is not there or refuses, as when somebody empties the directory meanwhile.
    #[error("read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file holds no number.
    #[error("{} holds no number", .0.display())]
    Number(PathBuf),
    /// More regions than anybody has.
    #[error("{} has more than {REGIONS} regions", .0.display())]
    Many(PathBuf),
    /// Regions are missing: the kernel had no memory to tell them all.
    #[error("{} tells of {found} bytes of {total}", path.display())]
    Partial {
        /// The directory.
        path: PathBuf,
        /// Bytes of all regions that are there.
        found: u64,
        /// What the kernel says that they should be.
        total: u64,
    },
}

/// The regions in the directory `at`, in order of addresses. Since Linux 6.6 it is known that none is missing.
///
/// # Errors
/// It cannot be read whole, or is not whole.
pub fn tried(at: &Path) -> Result<Vec<Region>, TriedError> {
    let file = |name: &[u8]| at.join(String::from_utf8_lossy(name).as_ref());
    let failed = |name: &[u8], errno: rustix::io::Errno| TriedError::File {
        path: file(name),
        source: errno.into(),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, at, flags, Mode::empty()).map_err(|errno| failed(b"", errno))?;
    let number = |name: &[u8]| -> Result<u64, TriedError> {
        let mut text = [0; LONGEST];
        let opened = openat(&dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let read = opened.and_then(|fd| rustix::io::read(fd, &mut text));
        let length = read.map_err(|errno| failed(name, errno))?;
        let digits = text.get(..length).map(<[u8]>::trim_ascii);
        digits.and_then(of_digits).ok_or_else(|| TriedError::Number(file(name)))
    };
    let mut regions = Vec::new();
    let mut name = Vec::with_capacity(LONGEST * 2);
    for entry in Dir::read_from(&dir).map_err(|errno| failed(b"", errno))? {
        let entry = entry.map_err(|errno| failed(b"", errno))?;
        let directory = entry.file_name().to_bytes();
        if of_digits(directory).is_none() {
            continue;
        }
        if regions.len() >= REGIONS {
            return Err(TriedError::Many(at.to_owned()));
        }
        let mut of = |field: &[u8]| {
            name.clear();
            name.extend_from_slice(directory);
            name.push(b'/');
            name.extend_from_slice(field);
            number(&name)
        };
        let (start, end) = (of(b"start")?, of(b"end")?);
        let count = |told: u64| u32::try_from(told).unwrap_or(u32::MAX);
        let (accesses, age) = (count(of(b"nr_accesses")?), count(of(b"age")?));
        regions.push(Region { start, end, accesses, age });
    }
    regions.sort_unstable_by_key(|region| (region.start, region.end));
    match number(b"total_bytes") {
        Ok(total) => whole(at, &regions, total)?,
        // Linux 6.2 to 6.5.
        Err(TriedError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(regions)
}

/// Regions must have all the bytes that the kernel counted while it told of them.
fn whole(at: &Path, regions: &[Region], total: u64) -> Result<(), TriedError> {
    let lengths = regions.iter().map(|region| region.end.saturating_sub(region.start));
    let found = lengths.fold(0, u64::saturating_add);
    let path = || at.to_owned();
    if found == total { Ok(()) } else { Err(TriedError::Partial { path: path(), found, total }) }
}

/// A decimal number and nothing else.
fn of_digits(text: &[u8]) -> Option<u64> {
    let digit = |value: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::{TriedError, of_digits, tried};
    use crate::aggregate::Region;

    fn region(start: u64) -> Region {
        Region { start, end: start + 10, accesses: 3, age: 1 }
    }

    fn put(at: &Path, name: &str, region: Region) {
        let directory = at.join(name);
        fs::create_dir_all(&directory).unwrap();
        let Region { start, end, accesses, age } = region;
        let accesses = u64::from(accesses);
        let fields =
            [("start", start), ("end", end), ("nr_accesses", accesses), ("age", age.into())];
        for (field, value) in fields {
            fs::write(directory.join(field), format!("{value}\n")).unwrap();
        }
    }

    #[test]
    fn regions_come_in_order_of_addresses_whatever_their_directories_are_called() {
        let at = tempfile::tempdir().unwrap();
        for (name, start) in [("77", 30), ("9", 50), ("75", 10)] {
            put(at.path(), name, region(start));
        }
        // Files and directories that no number names are no regions, whatever bytes they are called by.
        fs::create_dir(at.path().join("probes")).unwrap();
        fs::create_dir(at.path().join(OsStr::from_bytes(b"\xff7"))).unwrap();
        let expected = [10, 30, 50].map(region);
        assert_eq!(tried(at.path()).unwrap(), expected, "before Linux 6.6");
        fs::write(at.path().join("total_bytes"), "30\n").unwrap();
        assert_eq!(tried(at.path()).unwrap(), expected);
    }

    #[test]
    fn what_is_not_whole_is_no_snapshot() {
        let at = tempfile::tempdir().unwrap();
        [("0", 10), ("1", 20)]
            .into_iter()
            .for_each(|(name, at_)| put(at.path(), name, region(at_)));
        fs::write(at.path().join("total_bytes"), "30\n").unwrap();
        let lacking = tried(at.path());
        assert!(
            matches!(lacking, Err(TriedError::Partial { found: 20, total: 30, .. })),
            "{lacking:?}"
        );
        fs::write(at.path().join("total_bytes"), "20\n").unwrap();
        for wrong in ["", "-1\n", "0x7\n", "99999999999999999999\n", "9999999999999999999999999\n"]
        {
            fs::write(at.path().join("1/age"), wrong).unwrap();
            let error = tried(at.path()).unwrap_err();
            assert!(error.to_string().ends_with("1/age holds no number"), "{wrong:?}: {error}");
        }
        fs::remove_file(at.path().join("1/age")).unwrap();
        let error = tried(at.path()).unwrap_err();
        assert!(matches!(&error, TriedError::File { path, .. } if path.ends_with("1/age")));
        assert!(matches!(tried(&at.path().join("none")), Err(TriedError::File { .. })));
    }

    #[test]
    fn a_number_is_digits_only_and_fits() {
        for (text, number) in [
            (&b"0"[..], Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"", None),
            (b"+1", None),
            (b"1 2", None),
            (b"\xff", None),
        ] {
            assert_eq!(of_digits(text), number, "{text:?}");
        }
    }
}
