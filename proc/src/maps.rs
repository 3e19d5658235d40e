//! `/proc/PID/maps`: one line per mapping (kernel `fs/proc/task_mmu.c`, `show_map_vma`).

use std::borrow::Cow;

use crate::bytes::{cut, lines as text_lines, number};
use crate::read::ParseError;

/// A line, as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLine<'a> {
    /// First address.
    pub start: u64,
    /// First address behind it; above `start`.
    pub end: u64,
    /// `r`.
    pub read: bool,
    /// `w`.
    pub write: bool,
    /// `x`.
    pub exec: bool,
    /// `s` and not `p`.
    pub shared: bool,
    /// Offset into the file, in bytes. It wraps for some private mappings, so any number is valid.
    pub offset: u64,
    /// Major device number.
    pub major: u32,
    /// Minor device number; above 255 on real machines.
    pub minor: u32,
    /// Inode number; 0 is valid for the first SysV segment.
    pub inode: u64,
    /// The text behind the inode, as printed: a newline in a path is `\012`. Empty when there is none.
    pub name: &'a [u8],
}

impl<'a> MapLine<'a> {
    /// The name with the kernel's escape of a newline undone.
    ///
    /// The kernel escapes nothing else, not even the backslash: a file whose name holds the four characters `\012` reads
    /// like one with a newline there.
    #[must_use]
    pub fn name(&self) -> Cow<'a, [u8]> {
        const ESCAPE: &[u8] = b"\\012";
        let mut rest = self.name;
        let find = |text: &[u8]| text.windows(ESCAPE.len()).position(|w| w == ESCAPE);
        if find(rest).is_none() {
            return Cow::Borrowed(rest);
        }
        let mut name = Vec::with_capacity(rest.len());
        while let Some(at) = find(rest) {
            let (before, from) = rest.split_at(at);
            name.extend_from_slice(before);
            name.push(b'\n');
            rest = from.get(ESCAPE.len()..).unwrap_or_default();
        }
        name.extend_from_slice(rest);
        Cow::Owned(name)
    }
}

/// The lines of a list of mappings. A line that the kernel does not print is an error in its place.
pub fn lines(text: &[u8]) -> impl Iterator<Item = Result<MapLine<'_>, ParseError>> {
    text_lines(text)
        .map(|(number, text)| line(text).map_err(|what| ParseError { line: number, what }))
}

/// One line without its newline; the header lines of `smaps` have the same form.
pub(crate) fn line(text: &[u8]) -> Result<MapLine<'_>, &'static str> {
    let (range, rest) = cut(text, b' ').ok_or("no permissions")?;
    let (permissions, rest) = cut(rest, b' ').ok_or("no offset")?;
    let (offset, rest) = cut(rest, b' ').ok_or("no device")?;
    let (device, rest) = cut(rest, b' ').ok_or("no inode")?;
    let (inode, name) = cut(rest, b' ').unwrap_or((rest, b""));

    let hex = |digits| number(digits, 16);
    let (start, end) = cut(range, b'-').ok_or("no address range")?;
    let (start, end) = hex(start).zip(hex(end)).ok_or("address is no hex number")?;
    if start >= end {
        return Err("mapping ends before it starts");
    }
    let &[read, write, exec, shared] = permissions else {
        return Err("permissions are not four letters");
    };
    let flag = |letter: u8, set: u8, clear: u8| match letter {
        l if l == set => Ok(true),
        l if l == clear => Ok(false),
        _ => Err("unknown permission letter"),
    };
    let device = cut(device, b':').and_then(|(major, minor)| hex(major).zip(hex(minor)));
    let (major, minor) = device.ok_or("device is not major:minor")?;
    let short = |n| u32::try_from(n).map_err(|_| "device number beyond 32 bits");
    Ok(MapLine {
        start,
        end,
        read: flag(read, b'r', b'-')?,
        write: flag(write, b'w', b'-')?,
        exec: flag(exec, b'x', b'-')?,
        shared: flag(shared, b's', b'p')?,
        offset: hex(offset).ok_or("offset is no hex number")?,
        major: short(major)?,
        minor: short(minor)?,
        inode: number(inode, 10).ok_or("inode is no number")?,
        // Names begin with '/', '[' or a word, never with a blank: blanks before them are padding, those behind belong
        // to them.
        name: name.trim_ascii_start(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{MapLine, lines};
    use crate::read::ParseError;

    fn one(text: &str) -> MapLine<'_> {
        lines(text.as_bytes()).next().unwrap().unwrap()
    }

    #[test]
    fn every_column_is_read() {
        let line =
            one("7f84809b6000-7f84809c0000 rw-s 00001000 103:1a4 49684469    /memfd:x (deleted)\n");
        assert_eq!((line.start, line.end), (0x7f84_809b_6000, 0x7f84_809c_0000));
        assert!(line.read && line.write && !line.exec && line.shared);
        assert_eq!((line.offset, line.major, line.minor), (0x1000, 0x103, 0x1a4));
        assert_eq!(line.inode, 49_684_469);
        assert_eq!(line.name, b"/memfd:x (deleted)");
    }

    #[test]
    fn addresses_of_32_and_64_bits_are_whole() {
        assert_eq!(one("ffffd000-ffffe000 rw-p 00000000 00:00 0 [stack]").end, 0xffff_e000);
        let last = one("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]");
        assert_eq!(last.start, 0xffff_ffff_ff60_0000);
    }

    #[test]
    fn names_keep_blanks_newlines_and_wild_bytes() {
        assert_eq!(one("1000-2000 r--p 0 08:01 7   /a b  (deleted)").name, b"/a b  (deleted)");
        assert_eq!(one("1000-2000 r--p 0 08:01 7   /a ").name, b"/a ");
        assert_eq!(&*one("1000-2000 r--p 0 08:01 7 /a\\012b\\012").name(), b"/a\nb\n");
        assert_eq!(&*one("1000-2000 r--p 0 08:01 7 /a\\b").name(), b"/a\\b");
        let wild = lines(b"1000-2000 r--p 0 08:01 7 /\xff\n").next().unwrap().unwrap();
        assert_eq!(wild.name, b"/\xff");
        assert_eq!(one("1000-2000 rw-p 00000000 00:00 0 ").name, b"");
        assert_eq!(one("1000-2000 rw-p 00000000 00:00 0").name, b"");
    }

    #[test]
    fn a_bad_line_is_an_error_in_its_place_and_the_next_is_read() {
        let text = b"1000-2000 rw-p 0 00:00 0\n2000-1000 rw-p 0 00:00 0\n\n3000-4000 rw\n5000-6000 r--p 0 0:0 1 /x\n";
        let read: Vec<_> = lines(text).collect();
        let errors: Vec<_> = read.iter().filter_map(|r| r.as_ref().err()).map(|e| e.line).collect();
        assert_eq!(errors, [2, 3, 4]);
        assert_eq!(read[4].unwrap().name, b"/x");
        assert_eq!(read[1], Err(ParseError { line: 2, what: "mapping ends before it starts" }));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            for line in lines(&text).flatten() {
                assert!(line.start < line.end);
                assert!(line.name().len() <= line.name.len());
            }
        }

        #[test]
        fn no_damaged_line_panics(at in 0usize..80, byte in any::<u8>(), cut in 0usize..80) {
            let mut text = b"7f84809b6000-7f84809c0000 rw-p 00000000 00:01 1026   /memfd:x\\012y (deleted)".to_vec();
            if let Some(b) = text.get_mut(at) { *b = byte; }
            text.truncate(cut);
            for line in lines(&text).flatten() { assert!(line.name().len() <= line.name.len()); }
        }
    }
}
