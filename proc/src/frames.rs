//! In which frames pages of a process lie, and which of them stayed there.
//!
//! Present pages are found by `PAGEMAP_SCAN` where the kernel has it, so that holes cost nothing, and their entries of
//! `pagemap` are read: 20 and 40 ns a page. The lock of the target is held for no longer than a scan holds it. The zero page, which
//! is everybody's, is left out, huge or not.

use std::fs::File;
use std::io;

use memprov_ledger::evidence::Run;
use memprov_ledger::identity::{Extent, PAGE, Tgid};
use rustix::io::Errno;

use crate::maps::{self, MapLine};
use crate::pagemap::{entries, zero_frame};
use crate::pagemap_scan::{Region, category, scan};
use crate::procfs::Proc;
use crate::read::{ReadError, open};
use crate::scan::ScanOptions;

/// Runs taken from the kernel at a time: 24 KiB.
const REGIONS: usize = 1024;
/// Addresses looked through by one call: empty page tables take time, too.
const WINDOW: u64 = 1 << 30;
/// What is asked of pages that are found: those in swap are found, too.
const WANTED: u64 = category::PRESENT | category::ZERO;

/// How much is read of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Pages looked at, at most: present ones, and those in swap, which the kernel walks, too.
    pub pages: u64,
    /// Runs told, at most.
    pub runs: usize,
}

/// What one reading found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lying {
    /// In order of addresses.
    pub runs: Vec<Run>,
    /// Up to which address was read.
    pub upto: u64,
}

/// Reads frames. Keeps its buffers.
#[derive(Debug)]
pub struct FrameReader {
    zero: Option<u64>,
    regions: Vec<Region>,
    buffer: Vec<u8>,
}

impl FrameReader {
    /// A reader of processes of `proc`.
    #[must_use]
    pub fn new(proc: &Proc) -> Self {
        let zero = File::open(proc.path("self/pagemap")).ok().and_then(|own| zero_frame(&own));
        Self { zero, regions: Vec::new(), buffer: Vec::new() }
    }

    /// Frames of present pages in `extents`, which are in order.
    ///
    /// # Errors
    /// The process has vanished, we may not look, or frames are hidden from us (no `CAP_SYS_ADMIN`).
    pub fn read(
        &mut self,
        proc: &Proc,
        tgid: Tgid,
        extents: &[Extent],
        most: Most,
    ) -> Result<Lying, ReadError> {
        let path = proc.memory(tgid)?.join("pagemap");
        let file = open(&path)?;
        let mut sink = Sink { zero: self.zero, most, ..Sink::default() };
        for extent in extents {
            if sink.full {
                break;
            }
            let of = (proc, tgid);
            self.extent(of, &file, *extent, &mut sink).map_err(|e| ReadError::io(&path, e))?;
        }
        if sink.hidden {
            return Err(ReadError::io(&path, io::Error::from(Errno::PERM)));
        }
        Ok(sink.lying)
    }

    fn extent(
        &mut self,
        (proc, tgid): (&Proc, Tgid),
        file: &File,
        extent: Extent,
        sink: &mut Sink,
    ) -> io::Result<()> {
        let options = ScanOptions::default();
        self.regions.resize(REGIONS, Region::default());
        let mut at = extent.start;
        while at < extent.end && !sink.full {
            let part = Extent { start: at, end: extent.end.min(at.saturating_add(WINDOW)) };
            let pages = options.pages_per_call.min(sink.most.pages);
            let scanned = scan(file, part, WANTED, pages, &mut self.regions);
            let upto = match scanned {
                Ok((found, walked)) => {
                    for region in self.regions.get(..found).unwrap_or_default() {
                        sink.take(file, *region, &mut self.buffer)?;
                    }
                    // A walk that stands still has met the end of the process.
                    if walked > at { walked } else { part.end }
                }
                // Before Linux 6.7, and for a recording below another root.
                Err(Errno::NOTTY) => {
                    let pages = sink.most.pages.saturating_mul(PAGE);
                    sink.anonymous.get_or_insert_with(|| anonymous(proc, tgid));
                    let part = Extent { end: part.end.min(at.saturating_add(pages)), ..part };
                    sink.read(file, part, &mut self.buffer)?;
                    part.end
                }
                Err(errno) => return Err(errno.into()),
            };
            at = upto;
            if !sink.full {
                sink.lying.upto = upto;
            }
        }
        Ok(())
    }
}

/// Mappings of a process without an object, in order.
fn anonymous(proc: &Proc, tgid: Tgid) -> Vec<Extent> {
    let mut text = Vec::new();
    if proc.map_text(tgid, &mut text).is_err() {
        return Vec::new();
    }
    let of_none = |line: &MapLine<'_>| {
        (line.major, line.minor, line.inode) == (0, 0, 0) && !line.name.starts_with(b"/")
    };
    let lines = maps::lines(&text).flatten().filter(of_none);
    lines.map(|line| Extent { start: line.start, end: line.end }).collect()
}

#[derive(Default)]
struct Sink {
    zero: Option<u64>,
    /// Where what looks like an object's is the huge zero page, if entries alone must tell.
    anonymous: Option<Vec<Extent>>,
    /// What may still be read.
    most: Most,
    lying: Lying,
    /// No more is read.
    full: bool,
    hidden: bool,
}

impl Sink {
    /// What a scan found: frames of present pages are read, all others only count.
    fn take(&mut self, file: &File, found: Region, buffer: &mut Vec<u8>) -> io::Result<()> {
        let extent = Extent { start: found.start, end: found.end };
        if found.categories & WANTED == category::PRESENT {
            return self.read(file, extent, buffer);
        }
        self.most.pages = self.most.pages.saturating_sub(extent.len() / PAGE);
        self.full |= self.most.pages == 0;
        Ok(())
    }

    fn no_object(&self, address: u64) -> bool {
        let anonymous = self.anonymous.as_deref().unwrap_or_default();
        let next = anonymous.partition_point(|extent| extent.end <= address);
        anonymous.get(next).is_some_and(|extent| extent.contains(address))
    }

    /// Entries of `extent`, as far as there is room.
    fn read(&mut self, file: &File, extent: Extent, buffer: &mut Vec<u8>) -> io::Result<()> {
        let room = self.most.pages.saturating_mul(PAGE);
        let extent = Extent { end: extent.end.min(extent.start.saturating_add(room)), ..extent };
        self.most.pages -= extent.len() / PAGE;
        entries(file, extent, buffer, |address, entry| {
            if !entry.present() || self.full || entry.object() && self.no_object(address) {
                return;
            }
            let Some(frame) = entry.frame() else {
                self.hidden = true;
                return;
            };
            let at = frame.checked_mul(PAGE).filter(|_| Some(frame) != self.zero);
            let Some(at) = at else { return };
            let number = self.lying.runs.len();
            match self.lying.runs.last_mut() {
                Some(run) if run.extent.end == address && run.physical().end == at => {
                    run.extent.end += PAGE;
                }
                _ if number == self.most.runs => self.full = true,
                _ => self.lying.runs.push(Run { extent: Extent::new(address, PAGE), at }),
            }
            if !self.full {
                self.lying.upto = address + PAGE;
            }
        })?;
        self.full |= self.most.pages == 0;
        Ok(())
    }
}

impl Lying {
    /// What lay in the same frames at `later`, too, and how many bytes did not.
    #[must_use]
    pub fn stayed(&self, later: &Self) -> (Vec<Run>, u64) {
        let upto = self.upto.min(later.upto);
        let (mut stayed, mut next) = (Vec::new(), later.runs.iter().peekable());
        let (mut before, mut kept) = (0u64, 0u64);
        for run in &self.runs {
            let extent = run.extent.intersect(Extent { start: 0, end: upto });
            before += extent.len();
            while next.next_if(|other| other.extent.end <= extent.start).is_some() {}
            let mut others = next.clone();
            while let Some(other) = others.next_if(|other| other.extent.start < extent.end) {
                let part = extent.intersect(other.extent);
                let at = |run: &Run| run.at.saturating_add(part.start - run.extent.start);
                if at(run) == at(other) {
                    kept += part.len();
                    stayed.push(Run { extent: part, at: at(run) });
                }
            }
        }
        (stayed, before - kept)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use memprov_ledger::evidence::Run;
    use memprov_ledger::identity::{Extent, PAGE, Tgid};

    use super::{FrameReader, Lying, Most, Sink};
    use crate::Proc;
    use crate::pagemap_scan::{Region, category};

    const MOST: Most = Most { pages: 1 << 20, runs: 1 << 16 };

    fn run(first: u64, pages: u64, frame: u64) -> Run {
        Run { extent: Extent::new(first * PAGE, pages * PAGE), at: frame * PAGE }
    }

    /// A process below a root of plain files, whose pages from address 0 on have these frames; 0: not present.
    fn recorded(frames: &[u64]) -> (tempfile::TempDir, Proc) {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        let stat = format!("7 (x) S 1 7 7 0 -1 4194304{}\n", " 1".repeat(43));
        std::fs::write(process.join("stat"), stat).unwrap();
        let entry = |frame: &u64| if *frame == 0 { 0 } else { 1 << 63 | frame };
        let text: Vec<u8> = frames.iter().flat_map(|f| entry(f).to_ne_bytes()).collect();
        std::fs::write(process.join("pagemap"), text).unwrap();
        let proc = Proc::at(root.path());
        (root, proc)
    }

    fn read(frames: &[u64], most: Most) -> Lying {
        let (_root, proc) = recorded(frames);
        let mut reader = FrameReader { zero: Some(99), ..FrameReader::new(&proc) };
        let extents = [Extent::new(0, 4 * PAGE), Extent::new(4 * PAGE, 100 * PAGE)];
        reader.read(&proc, Tgid(7), &extents, most).unwrap()
    }

    #[test]
    fn pages_side_by_side_in_frames_side_by_side_are_one_run() {
        let found = read(&[10, 11, 12, 0, 13, 14, 99, 8], MOST);
        assert_eq!(found.runs, [run(0, 3, 10), run(4, 2, 13), run(7, 1, 8)]);
        assert_eq!(found.upto, 104 * PAGE);
    }

    #[test]
    fn what_looks_like_an_objects_where_there_is_none_is_the_huge_zero_page() {
        const OBJECT: u64 = 1 << 61;
        let (root, proc) = recorded(&[OBJECT | 10, OBJECT | 11, 12, OBJECT | 13]);
        let maps = "0-3000 rw-p 00000000 00:00 0 \n3000-4000 rw-s 00000000 00:01 7 /memfd:x\n";
        std::fs::write(root.path().join("proc/7/maps"), maps).unwrap();
        let mut reader = FrameReader::new(&proc);
        let found = reader.read(&proc, Tgid(7), &[Extent::new(0, 4 * PAGE)], MOST).unwrap();
        assert_eq!(found.runs, [run(2, 2, 12)]);
    }

    #[test]
    fn no_more_is_read_and_told_than_asked_for() {
        let few = read(&[10, 12, 14, 16, 18, 20], Most { pages: 5, ..MOST });
        assert_eq!((few.runs.len(), few.upto), (5, 5 * PAGE));
        let few = read(&[10, 11, 14, 16, 18, 20], Most { runs: 2, ..MOST });
        assert_eq!(few.runs, [run(0, 2, 10), run(2, 1, 14)]);
    }

    #[test]
    fn pages_in_swap_are_as_many_less_to_read() {
        let (root, _proc) = recorded(&[0, 0, 0, 13, 14, 15]);
        let file = std::fs::File::open(root.path().join("proc/7/pagemap")).unwrap();
        let mut sink = Sink { most: Most { pages: 5, ..MOST }, ..Sink::default() };
        for (first, end, categories) in [(0, 3, category::SWAPPED), (3, 6, category::PRESENT)] {
            let found = Region { start: first * PAGE, end: end * PAGE, categories };
            assert!(!sink.full);
            sink.take(&file, found, &mut Vec::new()).unwrap();
        }
        assert_eq!((sink.lying.runs, sink.full), (vec![run(3, 2, 13)], true));
    }

    #[test]
    fn hidden_frames_are_an_error_and_so_is_a_process_that_is_gone() {
        let (root, proc) = recorded(&[]);
        let mut reader = FrameReader::new(&proc);
        let extents = [Extent::new(0, PAGE)];
        std::fs::write(root.path().join("proc/7/pagemap"), (1u64 << 63).to_ne_bytes()).unwrap();
        assert!(reader.read(&proc, Tgid(7), &extents, MOST).unwrap_err().refused());
        assert!(reader.read(&proc, Tgid(8), &extents, MOST).unwrap_err().vanished());
    }

    #[test]
    fn a_page_stayed_where_both_readings_agree_and_only_there() {
        let lying = |runs: &[Run], upto: u64| Lying { runs: runs.to_vec(), upto: upto * PAGE };
        let before = lying(&[run(0, 8, 10), run(10, 2, 50), run(20, 2, 60)], 30);
        // Page 2 moved, 4 and 5 are gone, 10 and 11 changed places, and 30 was not read before.
        let runs = [run(0, 2, 10), run(2, 1, 70), run(3, 1, 13), run(6, 2, 16), run(10, 1, 51)];
        let after =
            lying(&[&runs[..], &[run(11, 1, 50), run(20, 2, 60), run(30, 1, 90)]].concat(), 40);
        let expected = [run(0, 2, 10), run(3, 1, 13), run(6, 2, 16), run(20, 2, 60)];
        assert_eq!(before.stayed(&after), (expected.to_vec(), 5 * PAGE));
        // What one of them did not come to says nothing.
        let short = lying(&runs[..1], 2);
        assert_eq!(before.stayed(&short), (expected[..1].to_vec(), 0));
        assert_eq!(before.stayed(&before), (before.runs.clone(), 0));
    }

    #[test]
    fn our_own_memory_lies_where_the_kernel_says_and_stays() {
        let memory = vec![7u8; 4 << 20];
        let start = u64::try_from(memory.as_ptr().addr()).unwrap().next_multiple_of(PAGE);
        let extents = [Extent::new(start, (4 << 20) - PAGE)];
        let (proc, own) = (Proc::at(Path::new("/")), Tgid(std::process::id()));
        let mut reader = FrameReader::new(&proc);
        let mut look = || reader.read(&proc, own, &extents, MOST);
        let (before, after) = match (look(), look()) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(error), _) | (_, Err(error)) => {
                assert!(error.refused(), "{error}");
                eprintln!("skipped: frame numbers are hidden (needs CAP_SYS_ADMIN)");
                return;
            }
        };
        let bytes = |runs: &[Run]| runs.iter().map(|run| run.extent.len()).sum::<u64>();
        assert_eq!(bytes(&before.runs), extents[0].len());
        let (stayed, moved) = before.stayed(&after);
        assert_eq!(bytes(&stayed) + moved, extents[0].len());
        assert!(moved < extents[0].len() / 2, "{moved} bytes moved");
        std::hint::black_box(&memory);
    }
}
