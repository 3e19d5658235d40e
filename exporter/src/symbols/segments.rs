//! The executable segments of a process, from `/proc/PID/maps` (kernel `fs/proc/task_mmu.c`, `show_map_vma`).
//!
//! Lines are streamed and only what holds code is kept: a process may have 65,530 mappings with paths of 4 KiB.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memprov_ledger::identity::{Extent, Tgid};

/// Segments kept of one process.
const MAX_SEGMENTS: usize = 4096;
const MAX_LINE: u64 = 32 << 10;
/// Threads tried where the leader has exited: its own list is empty then.
const MAX_THREADS: usize = 64;

/// Device and inode as `maps` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) number: u64,
}

/// What code a segment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// That of a file.
    File {
        /// Which one.
        inode: Inode,
        /// Offset of the segment in the file.
        offset: u64,
        /// Its path, as the process' mount namespace has it; without ` (deleted)`.
        path: Arc<[u8]>,
        /// It lies on a file system that may keep a reader waiting for ever.
        blocking: bool,
    },
    /// The kernel's `[vdso]`.
    Vdso,
    /// Generated at run time: anonymous memory.
    Generated,
}

/// An executable segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) extent: Extent,
    pub(crate) code: Code,
    pub(crate) binding: Binding,
}

/// Which module a segment belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding {
    /// No address in it was asked for so far.
    Unbound,
    /// To none: generated code that nobody describes, or the table is full.
    Nothing,
    /// To a module.
    Module {
        /// Index in the table of modules.
        index: usize,
        /// Address in the process minus address in the module.
        bias: u64,
    },
}

/// `DIR/proc/PID`; that of another thread where the leader has exited, whose own has neither mappings nor files.
pub(crate) fn process_dir(root: &Path, tgid: Tgid) -> PathBuf {
    let own = root.join("proc").join(tgid.0.to_string());
    let alive = |dir: &PathBuf| std::fs::read_link(dir.join("root")).is_ok();
    if alive(&own) {
        return own;
    }
    let threads = std::fs::read_dir(own.join("task")).into_iter().flatten().flatten();
    threads.take(MAX_THREADS).map(|thread| thread.path()).find(alive).unwrap_or(own)
}

/// Reads the segments of a process, in address order; empty when it is gone or has no address space.
pub(crate) fn read(root: &Path, tgid: Tgid) -> io::Result<Vec<Segment>> {
    let dir = process_dir(root, tgid);
    let mut segments = read_file(&dir.join("maps"))?;
    mark_blocking(root, &dir, &mut segments);
    Ok(segments)
}

fn mark_blocking(root: &Path, dir: &Path, segments: &mut [Segment]) {
    let device = |s: &Segment| match s.code {
        Code::File { inode, .. } => Some((inode.major, inode.minor)),
        Code::Vdso | Code::Generated => None,
    };
    let mut devices: Vec<_> = segments.iter().filter_map(device).collect();
    devices.sort_unstable();
    devices.dedup();
    let bad = super::mounts::blocking(root, dir, devices);
    for segment in segments {
        let is_bad = device(segment).is_some_and(|d| bad.contains(&d));
        if let Code::File { blocking, .. } = &mut segment.code {
            *blocking = is_bad;
        }
    }
}

fn read_file(path: &Path) -> io::Result<Vec<Segment>> {
    let mut file = BufReader::with_capacity(16 << 10, File::open(path)?);
    let (mut segments, mut line) = (Vec::new(), Vec::new());
    while segments.len() < MAX_SEGMENTS {
        line.clear();
        if file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        segments.extend(parse(&line));
    }
    // The kernel lists them in order, but not at one instant.
    segments.sort_by_key(|s| s.extent.start);
    segments.dedup_by(|next, kept| next.extent.overlaps(kept.extent));
    Ok(segments)
}

/// The segment of one line; `None` for lines that hold no code of interest.
fn parse(line: &[u8]) -> Option<Segment> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut fields = line.splitn(6, |b| *b == b' ');
    let mut next = || std::str::from_utf8(fields.next()?).ok();
    let (range, permissions, offset, device, inode) = (next()?, next()?, next()?, next()?, next()?);
    if permissions.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let extent = Extent { start: hex(start)?, end: hex(end)? };
    let (major, minor) = device.split_once(':')?;
    let path = fields.next().unwrap_or(&[]).trim_ascii_start();
    let code = match path {
        b"[vdso]" => Code::Vdso,
        b"[vsyscall]" | b"[uprobes]" => return None,
        _ if inode == "0" && !path.starts_with(b"/") => Code::Generated,
        path => Code::File {
            inode: Inode {
                major: u32::from_str_radix(major, 16).ok()?,
                minor: u32::from_str_radix(minor, 16).ok()?,
                number: inode.parse().ok()?,
            },
            offset: hex(offset)?,
            path: unescape(path.strip_suffix(b" (deleted)").unwrap_or(path)).into(),
            blocking: false,
        },
    };
    (!extent.is_empty()).then_some(Segment { extent, code, binding: Binding::Unbound })
}

/// Undoes the one escape of the kernel: a newline is written `\012`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, behind)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(behind) => {
                plain.push(b'\n');
                rest = behind;
            }
            None => {
                plain.push(*byte);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use memprov_ledger::identity::Extent;

    use super::{Code, Inode, parse};

    #[test]
    fn only_lines_with_code_give_segments() {
        let code = |line: &str| parse(line.as_bytes()).map(|s| s.code);
        let file = |path: &str| Code::File {
            inode: Inode { major: 0xfd, minor: 1, number: 77 },
            offset: 0x1000,
            path: path.as_bytes().into(),
            blocking: false,
        };
        assert_eq!(code("1000-2000 r-xp 00001000 fd:01 77   /a b/c\n"), Some(file("/a b/c")));
        assert_eq!(code("1000-2000 r-xp 00001000 fd:01 77 /x (deleted)\n"), Some(file("/x")));
        assert_eq!(code("1000-2000 r-xp 00001000 fd:01 77 /a\\012b\n"), Some(file("/a\nb")));
        assert_eq!(code("1000-2000 rwxp 00000000 00:00 0 \n"), Some(Code::Generated));
        assert_eq!(code("1000-2000 rwxp 00000000 00:00 0 [anon:v8]\n"), Some(Code::Generated));
        assert_eq!(code("7f00-8000 r-xp 00000000 00:00 0    [vdso]\n"), Some(Code::Vdso));
        assert_eq!(code("1000-2000 rw-p 00001000 fd:01 77 /a\n"), None);
        assert_eq!(
            code("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]"),
            None
        );
        for broken in ["", "\n", "1000", "x-y r-xp 0 0:0 0", "2-1 r-xp 0 0:0 0 /x", "1-2 r-xp"] {
            assert_eq!(code(broken), None, "{broken}");
        }
    }

    #[test]
    fn the_first_page_and_the_last_are_addresses_like_others() {
        let extent = |line: &str| parse(line.as_bytes()).map(|s| s.extent);
        let low = extent("00000000-00001000 r-xp 00000000 fd:01 77 /a");
        assert_eq!(low, Some(Extent { start: 0, end: 0x1000 }));
        let high = extent("fffffffffffff000-ffffffffffffffff r-xp 00000000 fd:01 77 /a");
        assert_eq!(high, Some(Extent { start: u64::MAX - 0xfff, end: u64::MAX }));
    }
}
