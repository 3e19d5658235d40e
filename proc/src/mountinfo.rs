//! `/proc/PID/mountinfo` (kernel `fs/proc_namespace.c`, `show_mountinfo`): which device is which file system.

use crate::bytes::{cut, decimal_u32, lines as text_lines, words};
use crate::read::ParseError;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountLine<'a> {
    /// Major device number of the super block.
    pub major: u32,
    /// Minor device number.
    pub minor: u32,
    /// Path of the mount point, with blank, tab, newline and backslash as `\040`, `\011`, `\012` and `\134`.
    pub mount_point: &'a [u8],
    /// File system type: `tmpfs`, `ext4`, `fuse.sshfs`.
    pub fs_type: &'a [u8],
    /// Options of the super block, with commas; empty where none are printed.
    pub super_options: &'a [u8],
}

/// The lines. One that the kernel does not print is an error in its place.
pub fn lines(text: &[u8]) -> impl Iterator<Item = Result<MountLine<'_>, ParseError>> {
    text_lines(text)
        .map(|(number, text)| line(text).map_err(|what| ParseError { line: number, what }))
}

fn line(text: &[u8]) -> Result<MountLine<'_>, &'static str> {
    let mut words = words(text);
    let device = words.nth(2).and_then(|w| cut(w, b':')).ok_or("no device")?;
    let device = decimal_u32(device.0).zip(decimal_u32(device.1));
    let (major, minor) = device.ok_or("device is not major:minor")?;
    let mount_point = words.nth(1).ok_or("no mount point")?;
    // Any number of optional fields (`shared:7`) stands before the separator.
    let mut behind = words.skip(1).skip_while(|w| *w != b"-").skip(1);
    let fs_type = behind.next().ok_or("no file system type")?;
    let super_options = behind.nth(1).unwrap_or_default();
    Ok(MountLine { major, minor, mount_point, fs_type, super_options })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::lines;

    #[test]
    fn any_number_of_optional_fields_is_skipped() {
        for optional in ["", "shared:1 ", "shared:1 master:2 propagate_from:3 "] {
            let text =
                format!("30 25 0:27 / /dev/shm\\040x rw,relatime {optional}- tmpfs tmpfs rw\n");
            let line = lines(text.as_bytes()).next().unwrap().unwrap();
            assert_eq!((line.major, line.minor), (0, 27));
            assert_eq!(line.fs_type, b"tmpfs");
            assert_eq!(line.super_options, b"rw");
            assert_eq!(line.mount_point, b"/dev/shm\\040x");
        }
    }

    #[test]
    fn a_bad_line_costs_itself_alone() {
        let text = b"1 2 x / / rw - ext4 a rw\n22 27 0:21 / /proc rw\n23 27 0:22 / /sys rw - sysfs sysfs rw\n";
        let read: Vec<_> = lines(text).collect();
        assert_eq!(read[0].unwrap_err().line, 1);
        assert_eq!(read[1].unwrap_err().line, 2);
        assert_eq!(read[2].unwrap().fs_type, b"sysfs");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            assert!(lines(&text).count() <= text.len());
        }
    }
}
