//! Pages of an address space: a walk over its mappings by `PAGEMAP_SCAN`, or by reading `pagemap` where that is absent.
//!
//! Without `PAGEMAP_SCAN` (before Linux 6.7) every page of every mapping is read, present or not; huge mappings are not
//! told; and where frame numbers are hidden a zero page looks like an anonymous one, which then counts too much.
//!
//! On no kernel can an entry of an anonymous page under migration be told from one that is swapped out, unless frame
//! numbers are shown: then it is left out.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use memprov_ledger::evidence::{Backing, Mapping};
use memprov_ledger::identity::{Extent, PAGE};
use memprov_ledger::pages::{PageSet, PageSetBuilder, PageState};
use rustix::io::Errno;

use crate::pagemap::{self, Entry, entries};
use crate::pagemap_scan::{Region, category, scan};

/// Ours, beside the kernel's categories: pagemap bit 56.
const EXCLUSIVE: u64 = 1 << 63;
const ALL: u64 = category::FILE
    | category::PRESENT
    | category::SWAPPED
    | category::ZERO
    | category::HUGE
    | category::GUARD;
/// Runs taken from the kernel at a time: 192 KiB.
const REGIONS: usize = 8192;
/// Mappings this near to each other are walked in one call: holes cost nothing.
const GAP: u64 = 64 << 20;
/// Swap areas lie below this type; see [`Entry::swap_type`].
const SWAP_AREAS: u64 = 23;

/// How pages are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    /// `PAGEMAP_SCAN` with these categories.
    Scan(u64),
    /// Entries of `pagemap`.
    Entries,
}

/// What is asked of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Tell exclusive anonymous pages from shared ones.
    pub(crate) exclusive: bool,
    /// The kernel says that something is swapped out. If not, entries that look so are markers.
    pub(crate) swap: bool,
}

/// Walks address spaces. Keeps its buffers.
#[derive(Debug)]
pub(crate) struct Walker {
    mechanism: Mechanism,
    zero_frame: Option<u64>,
    pages_per_call: u64,
    /// Bytes of addresses of the next call.
    window: u64,
    regions: Vec<Region>,
    buffer: Vec<u8>,
}

impl Walker {
    /// Finds out by trying on ourselves what the kernel can do.
    pub(crate) fn new(pages_per_call: u64, entries_only: bool) -> Self {
        let own = File::open("/proc/self/pagemap");
        let tried = own.as_ref().ok().filter(|_| !entries_only).and_then(|own| {
            let mut regions = [Region::default()];
            [ALL, ALL & !category::GUARD]
                .into_iter()
                .find(|wanted| scan(own, Extent::default(), *wanted, 1, &mut regions).is_ok())
        });
        let zero_frame = own.ok().and_then(|own| pagemap::zero_frame(&own));
        Self {
            mechanism: tried.map_or(Mechanism::Entries, Mechanism::Scan),
            zero_frame,
            pages_per_call,
            window: 1 << 30,
            regions: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Whether the kernel tells ranges of pages (`PAGEMAP_SCAN`) instead of single entries.
    pub(crate) fn scans(&self) -> bool {
        matches!(self.mechanism, Mechanism::Scan(_))
    }

    /// All pages of `maps`, which are in order. Gives the number of present ones beside.
    pub(crate) fn walk(
        &mut self,
        pagemap: &File,
        maps: &[Mapping],
        wanted: Wanted,
    ) -> io::Result<(PageSet, u64)> {
        let mut sink = Sink { maps, wanted, pages: PageSetBuilder::default(), next: 0, present: 0 };
        for range in ranges(maps) {
            match self.mechanism {
                Mechanism::Scan(categories) => {
                    match self.scan(pagemap, range, categories, &mut sink) {
                        // A recording of a pagemap, below another root.
                        Err(Errno::NOTTY) => self.entries(pagemap, range, &mut sink)?,
                        done => done?,
                    }
                }
                Mechanism::Entries => self.entries(pagemap, range, &mut sink)?,
            }
        }
        Ok((sink.pages.build(), sink.present))
    }

    /// By `PAGEMAP_SCAN`, letting go of the target's mmap lock after `pages_per_call` pages, and after a stretch of
    /// addresses that is sized by how long the last one took, as empty page tables take time, too.
    fn scan(
        &mut self,
        pagemap: &File,
        range: Extent,
        categories: u64,
        sink: &mut Sink<'_>,
    ) -> Result<(), Errno> {
        self.regions.resize(REGIONS, Region::default());
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at.saturating_add(self.window));
            let began = Instant::now();
            let extent = Extent { start: at, end };
            let (found, walked) =
                scan(pagemap, extent, categories, self.pages_per_call, &mut self.regions)?;
            match began.elapsed() {
                long if long > Duration::from_millis(1) => {
                    self.window = (self.window / 2).max(32 << 20)
                }
                short if short < Duration::from_micros(250) => {
                    self.window = (self.window * 2).min(1 << 46);
                }
                _ => {}
            }
            for region in self.regions.get(..found).unwrap_or_default() {
                let extent = Extent { start: region.start, end: region.end };
                sink.take(pagemap, &mut self.buffer, extent, region.categories)
                    .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            }
            // A walk that stands still has met the end of the process.
            at = if walked > at { walked } else { end };
            std::thread::yield_now();
        }
        Ok(())
    }

    /// By reading entries of mappings.
    fn entries(&mut self, pagemap: &File, range: Extent, sink: &mut Sink<'_>) -> io::Result<()> {
        let maps = sink.maps;
        let first = maps.partition_point(|m| m.extent.end <= range.start);
        let inside = maps.get(first..).unwrap_or_default();
        for map in inside.iter().take_while(|m| m.extent.start < range.end) {
            if map.backing == Backing::Special {
                continue;
            }
            let (mut run, mut seen) = (Extent::new(map.extent.start, 0), 0);
            let zero = self.zero_frame;
            entries(pagemap, map.extent, &mut self.buffer, |at, entry| {
                let categories = categories(entry, map, zero, sink.wanted.swap);
                if categories != seen {
                    sink.put(run, seen);
                    (run.start, seen) = (at, categories);
                }
                run.end = at + PAGE;
            })?;
            sink.put(run, seen);
        }
        Ok(())
    }
}

/// The categories that `PAGEMAP_SCAN` would give, as far as an entry tells, and [`EXCLUSIVE`].
fn categories(entry: Entry, map: &Mapping, zero_frame: Option<u64>, swap: bool) -> u64 {
    let bit = |set: bool, bit: u64| if set { bit } else { 0 };
    // In memory without an object only the huge zero page looks like one.
    let huge_zero = entry.object() && map.backing == Backing::Anonymous;
    let zero = huge_zero || entry.frame().is_some() && entry.frame() == zero_frame;
    let swapped = entry.swapped() && (entry.object() || swap && is_swap(entry));
    bit(entry.present(), category::PRESENT)
        | bit(entry.object(), category::FILE)
        | bit(swapped, category::SWAPPED)
        | bit(entry.guard(), category::GUARD)
        | bit(entry.present() && zero, category::ZERO)
        | bit(huge_zero, category::HUGE)
        | bit(entry.present() && entry.exclusive(), EXCLUSIVE)
}

/// It may be in a swap area: where the type is hidden there is no telling.
fn is_swap(entry: Entry) -> bool {
    entry.swapped() && !entry.guard() && entry.swap_type().is_none_or(|area| area < SWAP_AREAS)
}

/// Stretches of addresses to walk: mappings that are near to each other together, special ones left out.
fn ranges(maps: &[Mapping]) -> Vec<Extent> {
    let mut ranges: Vec<Extent> = Vec::new();
    for map in maps.iter().filter(|m| m.backing != Backing::Special) {
        match ranges.last_mut() {
            Some(last) if map.extent.start - last.end <= GAP => last.end = map.extent.end,
            _ => ranges.push(map.extent),
        }
    }
    ranges
}

/// Takes runs in address order, cuts them by mapping and gives them their state.
struct Sink<'a> {
    maps: &'a [Mapping],
    wanted: Wanted,
    pages: PageSetBuilder,
    /// Mappings before this one end before the next run.
    next: usize,
    present: u64,
}

impl Sink<'_> {
    /// A run of `PAGEMAP_SCAN`. Reads the entries of the pages whose categories leave something open.
    fn take(
        &mut self,
        pagemap: &File,
        buffer: &mut Vec<u8>,
        run: Extent,
        seen: u64,
    ) -> io::Result<()> {
        let has = |bit| seen & bit != 0;
        let anonymous = !has(category::FILE | category::ZERO | category::GUARD);
        let open = match (has(category::PRESENT), has(category::SWAPPED)) {
            (true, _) => anonymous && self.wanted.exclusive,
            (false, swapped) => swapped && anonymous,
        };
        if !open {
            self.put(run, seen);
            return Ok(());
        }
        if !has(category::PRESENT) && !self.wanted.swap {
            return Ok(());
        }
        let (mut part, mut state) = (Extent::new(run.start, 0), 0);
        entries(pagemap, run, buffer, |at, entry| {
            let now = match (has(category::PRESENT), entry.present() && !entry.object()) {
                (true, true) if entry.exclusive() => seen | EXCLUSIVE,
                // It went since, or is not exclusive: the weaker of the two.
                (true, _) => seen,
                (false, _) if is_swap(entry) => seen,
                (false, _) => 0,
            };
            if now != state {
                self.put(part, state);
                (part.start, state) = (at, now);
            }
            part.end = at + PAGE;
        })?;
        self.put(part, state);
        Ok(())
    }

    /// A run of one set of categories. Pages outside the mappings, which came after them, are left out.
    fn put(&mut self, run: Extent, seen: u64) {
        if run.is_empty() || seen == 0 {
            return;
        }
        let rest = self.maps.get(self.next..).unwrap_or_default();
        self.next += rest.iter().take_while(|m| m.extent.end <= run.start).count();
        let rest = self.maps.get(self.next..).unwrap_or_default();
        for map in rest.iter().take_while(|m| m.extent.start < run.end) {
            let part = map.extent.intersect(run);
            let state = state(map, seen);
            self.pages.push(part, state);
            if state.has(PageState::PRESENT) {
                self.present += part.len() / PAGE;
            }
        }
    }
}

/// The state of pages of one mapping.
fn state(map: &Mapping, seen: u64) -> PageState {
    use PageState as P;
    let has = |bit| seen & bit != 0;
    let huge = if has(category::HUGE) { P::HUGE } else { 0 };
    let bits = match (map.backing, has(category::PRESENT)) {
        (Backing::Special, _) | (Backing::Hugetlb(_), false) => 0,
        (Backing::Hugetlb(_), true) => P::PRESENT | P::OBJECT | P::HUGE,
        // An object's page under migration: it is counted as if it were in place.
        (_, false) if has(category::FILE) => P::PRESENT | P::OBJECT,
        // No page of a shared mapping is swapped out by its own entry.
        (_, false) if has(category::GUARD) || map.shared => 0,
        (_, false) if has(category::SWAPPED) => P::SWAPPED,
        (_, false) => 0,
        (_, true) if has(category::ZERO) => P::PRESENT | P::ZERO | huge,
        (_, true) if has(category::FILE) => P::PRESENT | P::OBJECT | huge,
        // A shared mapping has no anonymous pages: a driver inserted a frame that the kernel does not count.
        (_, true) if map.shared => 0,
        (_, true) if has(EXCLUSIVE) => P::PRESENT | P::EXCLUSIVE | huge,
        (_, true) => P::PRESENT | huge,
    };
    P(bits)
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::{Backing, Mapping};
    use memprov_ledger::identity::{Extent, ObjectKey};
    use memprov_ledger::pages::{PageSetBuilder, PageState as P};

    use super::{EXCLUSIVE, Entry, GAP, Sink, Wanted, categories, ranges, state};
    use crate::pagemap_scan::category::{FILE, GUARD, HUGE, PRESENT, SWAPPED, ZERO};

    fn map(start: u64, end: u64, backing: Backing, shared: bool) -> Mapping {
        let extent = Extent { start, end };
        Mapping { extent, backing, offset: 0, shared, exec: false, write: true, path: None }
    }

    #[test]
    fn a_page_counts_as_what_the_kernel_counts_it() {
        let object = ObjectKey { major: 0, minor: 1, inode: 7 };
        let private = |backing| map(0, 4096, backing, false);
        let shared = |backing| map(0, 4096, backing, true);
        let file = Backing::File(object);
        for (map, seen, bits) in [
            (private(Backing::Anonymous), PRESENT, P::PRESENT),
            (
                private(Backing::Anonymous),
                PRESENT | HUGE | EXCLUSIVE,
                P::PRESENT | P::HUGE | P::EXCLUSIVE,
            ),
            (private(Backing::Anonymous), PRESENT | ZERO | HUGE, P::PRESENT | P::ZERO | P::HUGE),
            (private(Backing::Anonymous), SWAPPED, P::SWAPPED),
            (private(Backing::Anonymous), SWAPPED | GUARD, 0),
            (private(file), PRESENT, P::PRESENT),
            (private(file), PRESENT | FILE, P::PRESENT | P::OBJECT),
            (private(file), SWAPPED | FILE, P::PRESENT | P::OBJECT),
            (shared(file), PRESENT, 0),
            (shared(Backing::Shmem(object)), SWAPPED, 0),
            (private(Backing::Hugetlb(object)), PRESENT | HUGE, P::PRESENT | P::OBJECT | P::HUGE),
            (private(Backing::Hugetlb(object)), SWAPPED, 0),
            (private(Backing::Special), PRESENT, 0),
        ] {
            assert_eq!(state(&map, seen), P(bits), "{map:?} {seen:x}");
        }
    }

    #[test]
    fn an_entry_of_a_marker_is_no_swap() {
        let map = map(0, 4096, Backing::Anonymous, false);
        let entry = |bits| categories(Entry(bits), &map, Some(0x3b34), true);
        assert_eq!(entry(1 << 62 | 3 << 5), SWAPPED);
        assert_eq!(entry(1 << 62), SWAPPED, "the area is hidden");
        assert_eq!(entry(1 << 62 | 31), 0);
        assert_eq!(entry(1 << 62 | 1 << 58 | 31), GUARD);
        assert_eq!(
            categories(Entry(1 << 62 | 3 << 5), &map, None, false),
            0,
            "nothing is swapped out"
        );
        assert_eq!(entry(1 << 63 | 0x3b34), PRESENT | ZERO);
        assert_eq!(entry(1 << 63 | 1 << 61 | 0x11_c800), PRESENT | FILE | ZERO | HUGE);
    }

    #[test]
    fn near_mappings_are_walked_together_and_special_ones_not_at_all() {
        let maps = [
            map(0x1000, 0x2000, Backing::Anonymous, false),
            map(0x4000, 0x5000, Backing::Anonymous, false),
            map(0x5000 + 2 * GAP, 0x6000 + 2 * GAP, Backing::Anonymous, false),
            map(0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000, Backing::Special, false),
        ];
        let wanted = [Extent { start: 0x1000, end: 0x5000 }, maps[2].extent];
        assert_eq!(ranges(&maps), wanted);
    }

    #[test]
    fn a_run_over_several_mappings_is_cut_at_their_ends() {
        let object = Backing::File(ObjectKey { major: 8, minor: 1, inode: 7 });
        let maps = [
            map(0x1000, 0x3000, Backing::Anonymous, false),
            map(0x3000, 0x4000, object, true),
            map(0x8000, 0x9000, Backing::Anonymous, false),
        ];
        let wanted = Wanted { exclusive: false, swap: false };
        let mut sink =
            Sink { maps: &maps, wanted, pages: PageSetBuilder::default(), next: 0, present: 0 };
        sink.put(Extent { start: 0x2000, end: 0x9000 }, PRESENT);
        let runs: Vec<_> = sink.pages.build().all().collect();
        let anon = P(P::PRESENT);
        assert_eq!(runs, [(Extent::new(0x2000, 4096), anon), (Extent::new(0x8000, 4096), anon)]);
        assert_eq!(sink.present, 2);
    }
}
