//! The process book: owned + joint + unattributed + skew = the kernel's own total, per kind.
//!
//! A book is closed over the newest scan of a space and the pieces of that time. What is joint follows from the other
//! observed spaces: pages of an object that two of them map, and anonymous pages that an older relative still has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::activity::{Use, lay};
use crate::evidence::{Backing, Counters, EvidenceClass, StackRef};
use crate::identity::{IntervalId, ObjectKey, PAGE, SpaceId};
use crate::ledger::Ledger;
use crate::pages::{BLOCK, PageState};
use crate::pieces::{Origin, Piece, Traits};
use crate::placement::ByNode;
use crate::relatives::{Common, Families, Relatives};
use crate::scan::{Scan, object};
use crate::space::Space;
use crate::time::MonoTime;
use crate::touch::{TouchTally, Touches};

/// What a total of the kernel is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// RssAnon.
    Anon,
    /// RssFile.
    File,
    /// RssShmem.
    Shmem,
    /// HugetlbPages: not part of Rss.
    Hugetlb,
    /// VmSwap: not part of Rss.
    Swap,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Anon, Self::File, Self::Shmem, Self::Hugetlb, Self::Swap];
    /// The kinds that make up Rss.
    pub const RSS: [Self; 3] = [Self::Anon, Self::File, Self::Shmem];

    fn total(self, counters: &Counters) -> Option<u64> {
        match self {
            Self::Anon => counters.anon,
            Self::File => counters.file,
            Self::Shmem => counters.shmem,
            Self::Hugetlb => counters.hugetlb,
            Self::Swap => counters.swap,
        }
    }
}

/// Bytes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByKind([u64; 5]);

impl ByKind {
    /// Bytes of a kind.
    #[must_use]
    pub fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    fn add(&mut self, kind: Kind, bytes: u64) {
        self.0[kind as usize] += bytes;
    }

    /// Bytes of the kinds that make up Rss.
    #[must_use]
    pub fn rss(&self) -> u64 {
        Kind::RSS.iter().map(|k| self.get(*k)).sum()
    }
}

/// The closed book of one kind. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Book {
    /// What it is about.
    pub kind: Kind,
    /// The kernel's total, lower bound over the scan.
    pub lo: u64,
    /// The kernel's total, upper bound over the scan.
    pub hi: u64,
    /// Belongs to owners of this space.
    pub owned: u64,
    /// Belongs to an older relative, or to an object that several observed spaces map.
    pub joint: u64,
    /// Nobody is known to own it.
    pub unattributed: u64,
    /// What is left to reach the kernel's total; 0 at rest.
    pub skew: i64,
    /// The kernel's newest total minus that of the scan.
    pub drift: i64,
}

/// What tells owners apart before names are known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Who made the mapping.
    pub stack: StackRef,
    /// What it is made of.
    pub origin: Option<Arc<Origin>>,
    /// How it came to be.
    pub traits: Traits,
}

impl Claim {
    /// The claim of whoever has `piece`.
    #[must_use]
    pub fn of(piece: &Piece) -> Self {
        let history = Traits::DOUBTED | Traits::INFERRED | Traits::LATE;
        let traits = Traits(piece.traits.0 & !history);
        Self { stack: piece.stack, origin: piece.origin.clone(), traits }
    }
}

/// What one claim has in one space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Bytes of live extents.
    pub reserved: u64,
    /// Bytes owned, by kind.
    pub owned: ByKind,
    /// How sure the extents are.
    pub extents: EvidenceClass,
    /// How sure the page states are.
    pub pages: EvidenceClass,
    /// Bounds of the resident bytes (anon, file and shmem together).
    pub lo: u64,
    /// Upper bound.
    pub hi: u64,
    /// Resident bytes of mappings that were born before the watch.
    pub predates: u64,
    /// Intervals.
    pub intervals: u64,
    /// First touch of its resident anonymous pages.
    pub touch: TouchTally,
    /// What checks of a monitor say of it; `None` where none covers the space.
    pub used: Option<Use>,
    /// On which nodes its resident bytes lie; `None` where nobody looked, or it has none.
    pub nodes: Option<ByNode>,
}

impl Row {
    /// Adds what another claim of the same owner has.
    pub fn merge(&mut self, other: &Self) {
        self.reserved += other.reserved;
        for kind in Kind::ALL {
            self.owned.add(kind, other.owned.get(kind));
        }
        self.extents = self.extents.max(other.extents);
        self.pages = self.pages.max(other.pages);
        self.lo += other.lo;
        self.hi += other.hi;
        self.predates += other.predates;
        self.intervals += other.intervals;
        self.touch.merge(&other.touch);
        if let Some(other) = &other.used {
            self.used.get_or_insert_default().merge(other);
        }
        match (&mut self.nodes, &other.nodes) {
            (Some(nodes), Some(other)) => nodes.merge(other),
            (None, Some(other)) => self.nodes = Some(other.clone()),
            (_, None) => {}
        }
    }
}

/// The closed books of a space.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Whose.
    pub space: SpaceId,
    /// All of it holds as of this instant: the begin of the scan, or of a later reading that found nothing moved.
    pub as_of: MonoTime,
    /// Nothing moved while the scan ran.
    pub at_rest: bool,
    /// The scan could read which pages are there. Else nothing is known of what owners have, and the books are
    /// unattributed as a whole.
    pub pages_known: bool,
    /// Books of the kinds that the kernel prints.
    pub books: Vec<Book>,
    /// Rows by claim.
    pub rows: BTreeMap<Claim, Row>,
    /// A book did not close at rest: memprov is wrong about something.
    pub bug: bool,
}

/// Who maps what: taken once for all books of one report.
#[derive(Debug)]
pub struct Sharing<'a> {
    pub(crate) ledger: &'a Ledger,
    /// Which spaces map an object.
    pub(crate) mappers: BTreeMap<ObjectKey, Vec<SpaceId>>,
    families: Families<'a>,
}

impl Ledger {
    /// Which observed spaces map which objects now.
    #[must_use]
    pub fn sharing(&self) -> Sharing<'_> {
        let mut mappers: BTreeMap<ObjectKey, Vec<SpaceId>> = BTreeMap::new();
        for space in self.spaces.values() {
            for key in space.objects.iter() {
                mappers.entry(*key).or_default().push(space.id);
            }
        }
        Sharing { ledger: self, mappers, families: Families::of(self) }
    }
}

impl Sharing<'_> {
    /// Closes the books of a space over its newest scan; `None` before the first one.
    #[must_use]
    pub fn close(&self, space: &Space) -> Option<Closed> {
        let scan = space.scan.as_deref()?;
        let relatives = self.families.relatives(space);
        let page_class = if scan.exact() { EvidenceClass::Exact } else { EvidenceClass::Inferred };
        let mut rows: BTreeMap<Claim, Row> = BTreeMap::new();
        let mut intervals: BTreeMap<Claim, BTreeSet<IntervalId>> = BTreeMap::new();
        let mut joint = ByKind::default();
        let mut owned = ByKind::default();
        for piece in scan.pieces.iter() {
            let claim = Claim::of(piece);
            intervals.entry(claim.clone()).or_default().insert(piece.id);
            let row = rows.entry(claim).or_default();
            row.reserved += piece.extent.len();
            row.pages = row.pages.max(page_class);
            if !space.proven(piece) {
                row.extents = row.extents.max(EvidenceClass::Inferred);
            }
            let part = self.part(space, scan, piece, &relatives);
            for kind in Kind::ALL {
                row.owned.add(kind, part.owned.get(kind));
                owned.add(kind, part.owned.get(kind));
                joint.add(kind, part.joint.get(kind));
            }
            row.hi += part.unsure;
            let unread = !relatives.is_empty() && !scan.exclusive_known;
            if part.guessed || unread && part.owned.get(Kind::Anon) > 0 {
                row.pages = row.pages.max(EvidenceClass::Inferred);
            }
            if piece.traits.has(Traits::PREDATES) {
                row.predates += part.owned.rss();
            }
            self.touch(piece, scan, &space.touches, relatives.oldest(), &mut row.touch);
        }
        for (claim, ids) in intervals {
            if let Some(row) = rows.get_mut(&claim) {
                row.intervals = ids.len() as u64;
            }
        }
        lay(&space.heat, scan, &mut rows);
        self.place(space, scan, &relatives, &mut rows);
        let newest = space.total.map_or(scan.after, |(_, counters)| counters);
        let outside = unmapped_bytes(scan);
        let books: Vec<Book> = Kind::ALL
            .iter()
            .filter_map(|kind| {
                balance(
                    *kind,
                    scan,
                    &newest,
                    owned.get(*kind),
                    joint.get(*kind),
                    outside.get(*kind),
                )
            })
            .collect();
        let bug = scan.exact() && books.iter().any(|b| b.skew != 0);
        // Some page is told as another kind than the kernel counts it as, or it is counted and was not shown, as a huge
        // page while it migrates: nobody knows whose.
        let known = scan.exact() && scan.pages_known;
        let astray = if known { Astray::of(&books, &outside) } else { Astray::default() };
        if astray != Astray::default() {
            rows.values_mut().for_each(|row| row.pages = EvidenceClass::Inferred);
        }
        bound_rows(scan, astray, &mut rows);
        let as_of = space.confirmed.unwrap_or(scan.when.begin);
        let (at_rest, pages_known) = (scan.at_rest, scan.pages_known);
        Some(Closed { space: space.id, as_of, at_rest, pages_known, books, rows, bug })
    }

    /// Splits the present pages of a piece into its own and joint ones.
    pub(crate) fn part(
        &self,
        space: &Space,
        scan: &Scan,
        piece: &Piece,
        relatives: &Relatives<'_>,
    ) -> Part {
        let mut part = Part::default();
        let backing = piece.origin.as_ref().map_or(Backing::Anonymous, |o| o.backing);
        let shared = object(backing).is_some_and(|key| self.is_shared(key, space.id));
        for (extent, state) in scan.pages.runs(piece.extent) {
            let bytes = extent.len();
            if state.has(PageState::SWAPPED) {
                part.owned.add(Kind::Swap, bytes);
            } else if let Backing::Hugetlb(_) = backing {
                let to = if shared && !state.anon() { &mut part.joint } else { &mut part.owned };
                to.add(Kind::Hugetlb, bytes);
            } else if state.object() {
                let to = if shared { &mut part.joint } else { &mut part.owned };
                to.add(object_kind(backing), bytes);
            } else if state.anon() {
                let common = if scan.exclusive_known {
                    relatives.common(piece, extent, state)
                } else {
                    Common::default()
                };
                part.guessed |= common.guessed;
                part.unsure += common.unsure;
                part.owned.add(Kind::Anon, bytes - common.joint);
                part.joint.add(Kind::Anon, common.joint);
            }
        }
        part
    }

    fn is_shared(&self, key: ObjectKey, by: SpaceId) -> bool {
        self.mappers.get(&key).is_some_and(|m| m.iter().any(|id| *id != by))
    }

    /// Counts the sampled pages of a piece by their first touch. In a space that is not the oldest of its family pages
    /// that are common are left out: they are not its own.
    fn touch(
        &self,
        piece: &Piece,
        scan: &Scan,
        touches: &Touches,
        oldest: bool,
        tally: &mut TouchTally,
    ) {
        let sample = touches.sample(self.ledger.sample());
        if sample.probability <= 0.0 {
            return;
        }
        // A moved page is in the sample by the address that it was born at.
        let anonymous = piece.origin.as_ref().is_none_or(|o| object(o.backing).is_none());
        let moved = if anonymous { piece.offset.wrapping_sub(piece.extent.start) } else { 0 };
        let own = |s: PageState| {
            s.anon() && (oldest || !scan.exclusive_known || s.has(PageState::EXCLUSIVE))
        };
        for (extent, state) in scan.pages.runs(piece.extent).filter(|(_, s)| own(*s)) {
            let whole = |at: u64| at.is_multiple_of(BLOCK) && at + BLOCK <= extent.end;
            let mut at = extent.start;
            while at < extent.end {
                let born = at.wrapping_add(moved);
                if state.has(PageState::HUGE) && whole(at) {
                    if sample.has_block(born / BLOCK) {
                        tally.add(touches.block(at / BLOCK).map(|t| t.stack), BLOCK);
                    }
                    at += BLOCK;
                } else {
                    if sample.has_page(born / PAGE) {
                        tally.add(touches.page(at / PAGE).map(|t| t.stack), PAGE);
                    }
                    at += PAGE;
                }
            }
        }
    }
}

/// What a piece has.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) owned: ByKind,
    pub(crate) joint: ByKind,
    /// Whose its common anonymous pages are is not exact.
    guessed: bool,
    /// Joint bytes that may be its own.
    unsure: u64,
}

fn object_kind(backing: Backing) -> Kind {
    match backing {
        Backing::Shmem(_) => Kind::Shmem,
        Backing::Hugetlb(_) => Kind::Hugetlb,
        // Pages of an object in memory that is anonymous by its mapping are the kernel's own (vdso): RssFile.
        Backing::File(_) | Backing::Anonymous | Backing::Special => Kind::File,
    }
}

/// How books and pages of a scan at rest differ, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Astray {
    /// Counted by the kernel, and in no mapping.
    hidden: u64,
    /// Shown, and not counted as that kind.
    surplus: u64,
}

impl Astray {
    fn of(books: &[Book], outside: &ByKind) -> Self {
        books.iter().fold(Self::default(), |sum, book| Self {
            hidden: sum.hidden + book.unattributed.saturating_sub(outside.get(book.kind)),
            surplus: sum.surplus + book.skew.unsigned_abs(),
        })
    }
}

/// Bounds of each row's resident bytes: as found when exact, else widened by what can have moved during the scan, or is
/// `astray`.
fn bound_rows(scan: &Scan, astray: Astray, rows: &mut BTreeMap<Claim, Row>) {
    let faults = |c: &Counters| c.minor_faults.saturating_add(c.major_faults);
    let huge = scan.pages.all().any(|(_, s)| s.has(PageState::HUGE | PageState::PRESENT));
    let each = if huge { BLOCK } else { PAGE };
    let rss =
        |c: &Counters| Kind::RSS.iter().filter_map(|k| k.total(c)).fold(0, u64::saturating_add);
    let moved = faults(&scan.after).saturating_sub(faults(&scan.before)).saturating_mul(each);
    let changed = rss(&scan.after).abs_diff(rss(&scan.before));
    let width = moved.saturating_add(changed).saturating_add(scan.slack);
    let width = width.saturating_add(astray.surplus);
    for (claim, row) in rows {
        let anonymous = claim.origin.as_ref().is_none_or(|o| o.backing == Backing::Anonymous);
        let width = if anonymous { width } else { width.saturating_add(scan.object_slack) };
        let found = row.owned.rss();
        let exact = row.pages == EvidenceClass::Exact;
        row.lo = if exact { found } else { found.saturating_sub(width) };
        // So far: what is joint and may be its own.
        let unsure = row.hi;
        let most = found.saturating_add(width).saturating_add(astray.hidden).saturating_add(unsure);
        row.hi = if exact { found } else { most.min(row.reserved.max(found)) };
    }
}

/// Present bytes where no piece is, by kind.
fn unmapped_bytes(scan: &Scan) -> ByKind {
    let mut bytes = ByKind::default();
    for (extent, state) in scan.pages.all() {
        for hole in scan.pieces.holes(extent) {
            if state.has(PageState::SWAPPED) {
                bytes.add(Kind::Swap, hole.len());
            } else if state.anon() {
                bytes.add(Kind::Anon, hole.len());
            } else if state.object() {
                bytes.add(Kind::File, hole.len());
            }
        }
    }
    bytes
}

fn balance(
    kind: Kind,
    scan: &Scan,
    newest: &Counters,
    owned: u64,
    joint: u64,
    outside: u64,
) -> Option<Book> {
    let (before, after) = (kind.total(&scan.before)?, kind.total(&scan.after)?);
    let slack = match kind {
        Kind::Anon | Kind::Swap => scan.slack,
        Kind::File | Kind::Shmem => scan.object_slack,
        Kind::Hugetlb => 0,
    };
    let lo = before.min(after).saturating_sub(slack);
    let hi = before.max(after).saturating_add(slack);
    let found = owned + joint + outside;
    // At rest the kernel counts pages that no scan shows: those are nobody's. Else it may be movement, if pages were
    // read at all.
    let hidden = if scan.at_rest || !scan.pages_known { lo.saturating_sub(found) } else { 0 };
    let sum = found + hidden;
    let skew = if sum < lo {
        signed(lo, sum)
    } else if sum > hi {
        signed(hi, sum)
    } else {
        0
    };
    let drift = signed(kind.total(newest).unwrap_or(after), after);
    Some(Book { kind, lo, hi, owned, joint, unattributed: outside + hidden, skew, drift })
}

fn signed(a: u64, b: u64) -> i64 {
    let difference = i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    if a < b { -difference } else { difference }
}
