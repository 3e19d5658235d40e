//! The charge book: what a cgroup is charged for, split so that it adds up to the kernel's own total.
//!
//! ```text
//! mapped + elsewhere + cache + tmpfs + hugetlb + kernel + unattributed + skew = memory.current of the cgroup itself
//! ```
//! The kernel charges a page to the cgroup that first used it, whoever maps it later, and tells nobody which: what its
//! lines do not say follows from what the processes of the cgroup map, with bounds that hold whoever is charged.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::book::{Kind, Sharing};
use crate::evidence::{Backing, EvidenceClass};
use crate::identity::ObjectKey;
use crate::ranges::RangeSet;
use crate::scan::object;
use crate::space::Space;
use crate::time::Span;

/// A reading of what a cgroup is charged for. Bytes.
///
/// Names are those of cgroup v2 (kernel `mm/memcontrol.c`, `memory_stats`); what v1 calls otherwise is translated.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Charge {
    /// From before the first file was read to after the last.
    pub when: Span,
    /// Path in the hierarchy that charges memory, lossless text, as in [`crate::evidence::Residency::cgroup`].
    pub cgroup: Arc<str>,
    /// `memory.current` before the lines were read, with all that lies below.
    pub before: u64,
    /// The cgroup with all that lies below, `current` read after the lines.
    pub whole: Figures,
    /// The sum of its direct children, each with all that lies below it.
    pub below: Figures,
    /// How many children that sum has.
    pub children: u64,
    /// Processes in the cgroup itself; `None` where they cannot be listed.
    pub processes: Option<u64>,
    /// How far `current` may be ahead of what is in use: pages that CPUs took in advance.
    pub stock: u64,
    /// How far a line may be off: changes that CPUs have not handed in yet.
    pub lag: u64,
    /// Everything else that the kernel tells of it, by file and key: `max`, `peak`, `swap.current`, `events.oom_kill`,
    /// `pressure.some.total` (µs). A limit of `max` is absent.
    pub facts: BTreeMap<Arc<str>, u64>,
    /// Files that its processes hold open and what the page cache has of them, whoever is charged for it.
    pub files: Vec<CachedFile>,
}

/// The figures of one reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Figures {
    /// `memory.current`.
    pub current: u64,
    /// The lines of `memory.stat`: amounts in bytes, events as counts. Unknown ones are kept.
    pub stat: BTreeMap<Arc<str>, u64>,
}

impl Figures {
    /// Adds those of another cgroup.
    pub fn add(&mut self, other: &Self) {
        self.current = self.current.saturating_add(other.current);
        for (key, value) in &other.stat {
            let sum = self.stat.entry(Arc::clone(key)).or_default();
            *sum = sum.saturating_add(*value);
        }
    }
}

/// A regular file in the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CachedFile {
    /// Which, as `stat` names it.
    pub key: ObjectKey,
    /// Its path, lossless text.
    pub path: Arc<str>,
    /// Bytes of it in the page cache (`cachestat`, Linux 6.5), mapped or not.
    pub cached: u64,
}

/// What the observed processes of one cgroup map. Bytes.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    /// Anonymous pages that surely are their own.
    pub anon_lo: u64,
    /// Anonymous pages that they map, those that are common to relatives once for each.
    pub anon_hi: u64,
    /// Present pages of files, each once, by file.
    pub files: BTreeMap<ObjectKey, u64>,
    /// Present pages of files in processes whose pages cannot be read: which of them are the same is not known.
    pub unread: u64,
    /// Present pages of shmem, each once, where pages can be read.
    pub shmem: u64,
    /// How far their totals moved since their pages were read.
    pub moved: u64,
    /// Spaces that were scanned.
    pub spaces: u64,
    /// Processes that live in them.
    pub processes: u64,
}

impl Mapped {
    fn all_files(&self) -> u64 {
        self.files.values().fold(self.unread, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl Sharing<'_> {
    /// What `spaces` map.
    #[must_use]
    pub fn mapped(&self, spaces: &[&Space]) -> Mapped {
        let mut mapped = Mapped::default();
        let mut present: BTreeMap<(bool, ObjectKey), Vec<(u64, u64)>> = BTreeMap::new();
        for space in spaces {
            let (Some(closed), Some(scan)) = (self.close(space), space.scan.as_deref()) else {
                continue;
            };
            mapped.spaces += 1;
            mapped.processes += space.tgids.len() as u64;
            let moved = closed.books.iter().map(|book| book.drift.unsigned_abs());
            mapped.moved = moved.fold(mapped.moved, u64::saturating_add);
            if let Some(book) = closed.books.iter().find(|b| b.kind == Kind::Anon) {
                mapped.anon_lo = mapped.anon_lo.saturating_add(book.owned);
                let all = book.owned.saturating_add(book.joint).saturating_add(book.unattributed);
                mapped.anon_hi = mapped.anon_hi.saturating_add(all);
            }
            if !closed.pages_known {
                let of = |kind| closed.books.iter().find(|b| b.kind == kind).map_or(0, |b| b.hi);
                mapped.unread = mapped.unread.saturating_add(of(Kind::File));
                mapped.shmem = mapped.shmem.saturating_add(of(Kind::Shmem));
                continue;
            }
            for piece in scan.pieces.iter() {
                let backing = piece.origin.as_ref().map_or(Backing::Anonymous, |o| o.backing);
                let shmem = match backing {
                    Backing::File(_) => false,
                    Backing::Shmem(_) => true,
                    Backing::Anonymous | Backing::Hugetlb(_) | Backing::Special => continue,
                };
                let Some(key) = object(backing) else { continue };
                let runs = scan.pages.runs(piece.extent).filter(|(_, state)| state.object());
                let runs =
                    runs.map(|(run, _)| (piece.offset_of(run.start), piece.offset_of(run.end)));
                present.entry((shmem, key)).or_default().extend(runs);
            }
        }
        for ((shmem, key), ranges) in present {
            let bytes = RangeSet::union(ranges).bytes();
            if shmem {
                mapped.shmem = mapped.shmem.saturating_add(bytes);
            } else {
                mapped.files.insert(key, bytes);
            }
        }
        mapped
    }
}

/// What memory is charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Charged {
    /// Mapped by observed processes of the cgroup.
    Mapped,
    /// Mapped, but by no observed process of the cgroup: by others, by one that is not observed or has moved.
    Elsewhere,
    /// Page cache of files that nobody maps.
    Cache,
    /// Files of tmpfs and shared memory that nobody maps.
    Tmpfs,
    /// Huge pages of hugetlb, where they are charged.
    Hugetlb,
    /// Memory of the kernel.
    Kernel,
}

impl Charged {
    /// Its stable short name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Elsewhere => "elsewhere",
            Self::Cache => "cache",
            Self::Tmpfs => "tmpfs",
            Self::Hugetlb => "hugetlb",
            Self::Kernel => "kernel",
        }
    }
}

/// A number with its bounds. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounded {
    /// The number.
    pub bytes: u64,
    /// It is not less.
    pub lo: u64,
    /// It is not more.
    pub hi: u64,
}

impl Bounded {
    /// How sure it is.
    #[must_use]
    pub fn class(self) -> EvidenceClass {
        if self.lo == self.hi { EvidenceClass::Exact } else { EvidenceClass::Inferred }
    }

    /// `bytes` between `lo` and `hi`, each of which may be off by `lag`.
    fn near(bytes: u64, lo: u64, hi: u64, lag: u64) -> Self {
        let (lo, hi) = (lo.min(bytes), hi.max(bytes));
        Self { bytes, lo: lo.saturating_sub(lag), hi: hi.saturating_add(lag) }
    }
}

/// One row of the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is charged for.
    pub charged: Charged,
    /// Which part of that: `anon`, `file`, `shmem`, or a kind of kernel memory by the kernel's own name.
    pub part: &'static str,
    /// How much.
    pub bytes: Bounded,
}

/// The share of one file in the row [`Charged::Cache`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheShare {
    /// Which.
    pub key: ObjectKey,
    /// Its path.
    pub path: Arc<str>,
    /// How much; who is charged is not known.
    pub bytes: Bounded,
}

/// The closed book of a cgroup without what lies below it. Bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeBook {
    /// The kernel's total that the rows add up to: the last reading.
    pub current: u64,
    /// The lower one of the readings before and after the lines.
    pub lo: u64,
    /// The higher one.
    pub hi: u64,
    /// Rows that the kernel has lines for.
    pub rows: Vec<Row>,
    /// The row of the page cache by file, largest first; what is left of it is of unknown files.
    pub files: Vec<CacheShare>,
    /// Charged for what no line tells: kernel memory without a line (all of it before Linux 5.18 beyond the known kinds),
    /// swap cache that nobody maps, pages in stock.
    pub unattributed: u64,
    /// What the lines have too much, because they are behind or were read at another time; never positive.
    pub skew: i64,
    /// How far lines and total may be apart while nothing moves.
    pub slack: u64,
    /// Swap cache of the cgroup (`swapcached`): what of it nobody maps is in no row.
    pub swap_cache: Option<u64>,
    /// Memo: mapped by its observed processes and charged to others. At least and at most.
    pub charged_elsewhere: (u64, u64),
    /// Lines and total are further apart than `slack` and movement explain: memprov is wrong about something.
    pub bug: bool,
}

/// Kinds within `kernel`, disjoint. `slab` and `kernel` are sums and no kinds.
const KERNEL: [&str; 8] = [
    "kernel_stack",
    "pagetables",
    "sec_pagetables",
    "percpu",
    "vmalloc",
    "slab_reclaimable",
    "slab_unreclaimable",
    "zswap",
];

/// The lines of the cgroup itself: those of the whole without those of its children.
struct Own<'a>(&'a Charge);

impl Own<'_> {
    fn line(&self, key: &str) -> Option<u64> {
        let whole = self.0.whole.stat.get(key)?;
        let below = self.0.below.stat.get(key).copied().unwrap_or(0);
        Some(whole.saturating_sub(below))
    }

    fn bytes(&self, key: &str) -> u64 {
        self.line(key).unwrap_or(0)
    }
}

/// Closes the book of a reading over what the cgroup's observed processes map.
///
/// Known from the kernel: `anon` and `file_mapped` are mapped by somebody, `shmem` is part of `file`. Not known: by whom,
/// and how much of `file_mapped` is shmem. What the cgroup's own processes map is taken to be charged to it as far as the
/// lines allow; the bounds assume nothing of the kind. They allow for how far the processes moved since they were scanned.
#[must_use]
pub fn close(charge: &Charge, mapped: &Mapped) -> ChargeBook {
    let own = Own(charge);
    let readings = charge.children.saturating_add(1);
    let lag = charge.lag.saturating_mul(readings);
    let anon = own.bytes("anon");
    let all = own.bytes("file");
    let shmem = own.bytes("shmem").min(all);
    let file = all - shmem;
    let anybody = own.bytes("file_mapped").min(all);
    let files = mapped.all_files();

    let anon_here = anon.min(mapped.anon_hi);
    let shmem_here = shmem.min(anybody).min(mapped.shmem);
    let file_here = file.min(anybody - shmem_here).min(files);
    // Who else maps something is taken to map files first: that leaves tmpfs as it is where nobody maps it.
    let others = anybody - shmem_here - file_here;
    let file_others = others.min(file - file_here);
    let shmem_others = (others - file_others).min(shmem - shmem_here);

    let near = |bytes, lo, hi| Bounded::near(bytes, lo, hi, lag);
    let row = |charged, part, bytes| Row { charged, part, bytes };
    let now = |then: u64| then.saturating_add(mapped.moved);
    let most_here = anybody.min(now(files.saturating_add(mapped.shmem)));
    let most_shmem = shmem.min(anybody).min(now(mapped.shmem));
    let mut rows = vec![
        row(Charged::Mapped, "anon", near(anon_here, 0, anon.min(now(mapped.anon_hi)))),
        row(Charged::Mapped, "file", near(file_here, 0, file.min(anybody).min(now(files)))),
        row(Charged::Mapped, "shmem", near(shmem_here, 0, most_shmem)),
        row(Charged::Elsewhere, "anon", near(anon - anon_here, 0, anon)),
        row(Charged::Elsewhere, "file", near(others, anybody - most_here, anybody)),
        row(
            Charged::Cache,
            "file",
            near(
                file - file_here - file_others,
                file - file.min(anybody),
                file - anybody.saturating_sub(shmem).min(file),
            ),
        ),
        row(
            Charged::Tmpfs,
            "shmem",
            near(
                shmem - shmem_here - shmem_others,
                shmem - shmem.min(anybody),
                shmem - anybody.saturating_sub(file).min(shmem),
            ),
        ),
    ];
    rows.extend(own.line("hugetlb").map(|n| row(Charged::Hugetlb, "hugetlb", near(n, n, n))));
    kernel_rows(&own, lag, &mut rows);

    let files = cache_by_file(charge, mapped, &rows);
    let after = charge.whole.current.saturating_sub(charge.below.current);
    let before = charge.before.saturating_sub(charge.below.current);
    let told = rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.bytes.bytes));
    let skew = told.saturating_sub(after);
    let slack = lag.saturating_add(charge.stock.saturating_mul(readings));
    ChargeBook {
        current: after,
        lo: before.min(after),
        hi: before.max(after),
        rows,
        files,
        unattributed: after.saturating_sub(told),
        skew: -i64::try_from(skew).unwrap_or(i64::MAX),
        slack,
        swap_cache: own.line("swapcached"),
        charged_elsewhere: charged_elsewhere(mapped, anon, anybody, lag),
        bug: skew > slack.saturating_add(before.abs_diff(after)),
    }
}

/// Kernel memory: its kinds, and what is left of its sum where the kernel tells one. Sockets are in no sum.
fn kernel_rows(own: &Own<'_>, lag: u64, rows: &mut Vec<Row>) {
    let (mut kinds, mut lines) = (0u64, 1u64);
    let row = |part, n| Row { charged: Charged::Kernel, part, bytes: Bounded::near(n, n, n, lag) };
    for part in KERNEL {
        let Some(n) = own.line(part) else { continue };
        kinds = kinds.saturating_add(n);
        lines += 1;
        rows.push(row(part, n));
    }
    rows.extend(own.line("sock").map(|n| row("sock", n)));
    if let Some(sum) = own.line("kernel") {
        // Each line may be off on its own.
        let lag = lag.saturating_mul(lines);
        let rest = sum.saturating_sub(kinds);
        let bytes = Bounded::near(rest, rest, rest, lag);
        rows.push(Row { charged: Charged::Kernel, part: "other", bytes });
    }
}

/// Divides the page cache that nobody maps among the files that are known to be in it. Where they have more than is
/// charged here, others are charged for some of it, nobody knows of which: each gives way by its share.
fn cache_by_file(charge: &Charge, mapped: &Mapped, rows: &[Row]) -> Vec<CacheShare> {
    let cache = rows.iter().find(|row| row.charged == Charged::Cache);
    let Some(cache) = cache.map(|row| row.bytes) else { return Vec::new() };
    let unmapped = |file: &CachedFile| {
        file.cached.saturating_sub(mapped.files.get(&file.key).copied().unwrap_or(0))
    };
    let mut known: BTreeMap<ObjectKey, (&CachedFile, u64)> = BTreeMap::new();
    known.extend(charge.files.iter().map(|file| (file.key, (file, unmapped(file)))));
    let sum: u128 = known.values().map(|(_, bytes)| u128::from(*bytes)).sum();
    let share = |bytes: u64| {
        let part = u128::from(bytes) * u128::from(cache.bytes) / sum.max(1);
        u64::try_from(part).map_or(bytes, |part| part.min(bytes))
    };
    let mut shares: Vec<CacheShare> = known
        .into_values()
        .map(|(file, bytes)| CacheShare {
            key: file.key,
            path: Arc::clone(&file.path),
            bytes: Bounded { bytes: share(bytes), lo: 0, hi: bytes.min(cache.hi) },
        })
        .filter(|share| share.bytes.bytes > 0)
        .collect();
    shares.sort_by(|a, b| (b.bytes.bytes, a.key).cmp(&(a.bytes.bytes, b.key)));
    shares
}

/// What is mapped here and charged to others: at least what exceeds the lines, at most all.
fn charged_elsewhere(mapped: &Mapped, anon: u64, anybody: u64, lag: u64) -> (u64, u64) {
    let objects = mapped.all_files().saturating_add(mapped.shmem);
    let surely = if mapped.unread == 0 { objects } else { 0 };
    let away = lag.saturating_add(mapped.moved);
    let at_least = |have: u64, line: u64| have.saturating_sub(line.saturating_add(away));
    let least = at_least(mapped.anon_lo, anon).saturating_add(at_least(surely, anybody));
    (least, objects.saturating_add(mapped.anon_hi).saturating_add(mapped.moved))
}

#[cfg(test)]
mod tests;
