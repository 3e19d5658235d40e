//! A scan as the ledger keeps it, and how a list of mappings is taken in.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::evidence::{Backing, Counters, Mapping, Residency, StackRef};
use crate::identity::{Extent, ObjectKey, Tgid};
use crate::pages::PageSet;
use crate::piece_map::PieceMap;
use crate::pieces::{Origin, Piece, Traits};
use crate::ranges::RangeSet;
use crate::space::{Open, Space};
use crate::time::{MonoTime, Span};

/// What a scan saw, with the pieces that were live when it ended.
#[derive(Clone, Debug)]
pub struct Scan {
    /// From before its first reading to after its last.
    pub when: Span,
    /// Name of the process.
    pub comm: Arc<str>,
    /// Its parent then.
    pub parent: Tgid,
    /// Where the kernel put code and stack.
    pub layout: Option<(u64, u64)>,
    /// Cgroup path.
    pub cgroup: Option<Arc<str>>,
    /// The kernel's totals before.
    pub before: Counters,
    /// The kernel's totals after.
    pub after: Counters,
    /// How far the totals of anonymous memory and swap may be off, bytes.
    pub slack: u64,
    /// How far those of files and shmem may be off.
    pub object_slack: u64,
    /// Pages; none where they could not be read.
    pub pages: Arc<PageSet>,
    /// Whether they could.
    pub pages_known: bool,
    /// Whether sharing after fork was read.
    pub exclusive_known: bool,
    /// Pieces as of its end.
    pub pieces: PieceMap,
    /// Nothing moved while it ran.
    pub at_rest: bool,
    /// Before this instant events may be missing.
    pub loss: MonoTime,
}

/// How the ledger and a list of mappings differed, in ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Mapped, and the ledger knew nothing there.
    pub adopted: u64,
    /// The ledger had it, and it is not mapped.
    pub vanished: u64,
    /// The ledger had something else there.
    pub replaced: u64,
}

impl Scan {
    /// Nothing moved, and the totals are known to the byte.
    pub(crate) fn exact(&self) -> bool {
        self.at_rest && self.slack == 0 && self.object_slack == 0
    }
}

impl Space {
    /// Takes in a scan: settles what is mapped, keeps the pages beside the pieces of that time.
    pub(crate) fn scanned(&mut self, seen: &Residency, watching_since: MonoTime) -> Differences {
        let busy = self.changed >= seen.when.begin || self.loss > seen.when.begin;
        let differences = match &seen.maps {
            Some(maps) => self.reconcile(maps, seen.when, watching_since),
            None => {
                if self.endless {
                    self.pieces = PieceMap::default();
                }
                Differences::default()
            }
        };
        let at_rest = !busy && seen.before == seen.after;
        self.totals(seen.when, seen.after);
        self.confirmed = None;
        self.scan = Some(Arc::new(Scan {
            when: seen.when,
            comm: Arc::clone(&seen.comm),
            parent: seen.parent,
            layout: seen.layout,
            cgroup: seen.cgroup.clone(),
            before: seen.before,
            after: seen.after,
            slack: seen.slack,
            object_slack: seen.object_slack,
            pages: seen.pages.clone().unwrap_or_default(),
            pages_known: seen.pages.is_some(),
            exclusive_known: seen.exclusive_known,
            pieces: self.pieces.clone(),
            at_rest,
            loss: self.loss,
        }));
        differences
    }

    /// Makes pieces and the kernel's list of mappings agree.
    ///
    /// What changed after the list was begun is left alone: the list may be older than that. What survives keeps its
    /// interval; what is mapped and unknown is adopted without a call site.
    fn reconcile(&mut self, maps: &[Mapping], when: Span, watching_since: MonoTime) -> Differences {
        let mut differences = Differences::default();
        let mut at = 0;
        let mut before: Option<&Mapping> = None;
        let mut code = None;
        let mut objects = BTreeSet::new();
        let younger = self.ended_since(when.begin);
        self.recognise(maps);
        for mapping in maps {
            differences.vanished +=
                self.vanish(Extent { start: at, end: mapping.extent.start }, when);
            at = at.max(mapping.extent.end);
            objects.extend(object(mapping.backing));
            if mapping.exec {
                code = object(mapping.backing);
            }
            let origin = origin(mapping, before, code);
            differences.replaced += self.settle(mapping, origin.as_ref(), when);
            self.uncover(mapping, origin.as_ref(), when, &younger);
            for hole in self.pieces.holes(mapping.extent) {
                for hole in younger.outside(hole) {
                    self.adopt(hole, mapping, origin.as_ref(), when, watching_since);
                    differences.adopted += 1;
                }
            }
            before = Some(mapping);
        }
        differences.vanished += self.vanish(Extent { start: at, end: u64::MAX }, when);
        if *self.objects != objects {
            self.objects = Arc::new(objects);
        }
        self.answered(when);
        differences
    }

    /// Where something ended after `t`, or it is open what happened.
    fn ended_since(&self, t: MonoTime) -> RangeSet {
        let dead = self.dead.iter().rev().take_while(|d| d.died.end >= t).map(|d| d.piece.extent);
        let cleared = self.cleared.iter().filter(|c| c.when.end >= t).map(|c| c.extent);
        let open = self.open.iter().filter(|o| o.when.end >= t).map(|o| o.extent);
        RangeSet::union(dead.chain(cleared).chain(open).map(|e| (e.start, e.end)).collect())
    }

    /// A list of mappings answers the questions that are older than it.
    fn answered(&mut self, when: Span) {
        self.attaches.retain(|a| a.when.end >= when.begin);
        self.cleared.retain(|c| c.when.end >= when.begin);
        let old = |o: &&mut Open| o.when.end < when.begin && o.open();
        self.open.iter_mut().filter(old).for_each(|o| o.until = when.end);
        if self.doubt && self.doubted < when.begin {
            self.doubt = false;
            self.resolved = when.end;
        }
        // Ends that the list may be older than were forgotten, or lost: it shows what is gone.
        let blind = self.forgotten > when.begin || self.loss > when.begin;
        if self.unread {
            self.forgotten = self.forgotten.max(when.end);
        }
        self.unread = blind;
        self.listed = true;
        self.read = when.begin;
    }

    /// Ends what lies in `gap`, where nothing is mapped, unless it is younger than the list.
    fn vanish(&mut self, gap: Extent, when: Span) -> u64 {
        let gone: Vec<Extent> = self
            .pieces
            .overlapping(gap)
            .filter(|p| p.born.end < when.begin)
            .map(|p| p.extent.intersect(gap))
            .collect();
        for extent in &gone {
            self.end(*extent, Span { begin: self.read, end: when.end });
        }
        gone.len() as u64
    }

    /// Gives the pieces inside a mapping their origin; ends those that cannot be it.
    fn settle(&mut self, mapping: &Mapping, origin: Option<&Arc<Origin>>, when: Span) -> u64 {
        let mut others = Vec::new();
        let mut stale = false;
        let doubted = self.doubted >= when.begin;
        let unseen = self.loss > self.read;
        for piece in self.pieces.overlapping(mapping.extent).filter(|p| p.born.end < when.begin) {
            if contradicts(piece, mapping, unseen) {
                others.push(piece.extent.intersect(mapping.extent));
            } else {
                let cleared = piece.traits.has(Traits::DOUBTED) && !doubted;
                stale |= piece.origin.as_ref() != origin || cleared;
            }
        }
        for extent in &others {
            self.end(*extent, Span { begin: self.read, end: when.end });
        }
        if stale {
            self.pieces.update(mapping.extent, |piece| {
                if piece.born.end < when.begin {
                    piece.origin = origin.cloned();
                    if !doubted {
                        piece.traits.0 &= !Traits::DOUBTED;
                    }
                }
            });
        }
        others.len() as u64
    }

    /// What a fault made of `hole`: more of the mapping that begins behind it and grows down (kernel `mm/mmap.c`,
    /// `expand_downwards`).
    fn grown_down(&self, hole: Extent, mapping: &Mapping, when: Span) -> Option<Piece> {
        let piece = self.pieces.find(hole.end).filter(|piece| {
            piece.extent.start == hole.end
                && mapping.extent.contains(hole.end)
                && piece.traits.has(Traits::GROWS_DOWN)
                && piece.private_anonymous()
                && piece.born.end < when.begin
                && !contradicts(piece, mapping, false)
        })?;
        let older = if piece.born.begin < self.loss { Traits::INFERRED } else { 0 };
        Some(Piece {
            extent: hole,
            born: Span { begin: self.read.max(piece.born.begin), end: when.end },
            traits: Traits(piece.traits.0 & !Traits::PREDATES | older),
            offset: hole.start,
            ..piece.clone()
        })
    }

    fn adopt(
        &mut self,
        hole: Extent,
        mapping: &Mapping,
        origin: Option<&Arc<Origin>>,
        when: Span,
        watching_since: MonoTime,
    ) {
        if let Some(piece) = self.grown_down(hole, mapping, when) {
            return self.pieces.insert(piece);
        }
        let attach = self.attaches.iter().rev().find(|a| a.shows(mapping));
        let attach = attach.map(|a| (a.when.begin, a.stack));
        let shared = if mapping.shared { Traits::SHARED } else { 0 };
        let exec = if mapping.exec { Traits::EXEC } else { 0 };
        let predates = if self.read < watching_since { Traits::PREDATES } else { 0 };
        let known = self.listed || self.open.iter().any(|o| o.extent.overlaps(hole));
        let late = if known { Traits::LATE } else { 0 };
        let (traits, stack, begin) = match attach {
            // What is at a segment's place after a loss may be something else.
            Some((begin, stack)) if begin < self.loss => (Traits::INFERRED | shared, stack, begin),
            Some((begin, stack)) => (Traits::ATTACHED | shared, stack, begin),
            None => (Traits::UNSEEN | shared | exec | predates | late, StackRef::None, self.read),
        };
        let offset = match object(mapping.backing) {
            Some(_) => mapping.offset.wrapping_add(hole.start.wrapping_sub(mapping.extent.start)),
            None => hole.start,
        };
        let piece = Piece {
            extent: hole,
            id: self.mint(),
            born: Span { begin, end: when.end },
            traits: Traits(traits),
            offset,
            stack,
            origin: origin.cloned(),
        };
        self.pieces.insert(piece);
    }
}

/// The object whose pages a backing shows.
#[must_use]
pub fn object(backing: Backing) -> Option<ObjectKey> {
    match backing {
        Backing::File(key) | Backing::Shmem(key) | Backing::Hugetlb(key) => Some(key),
        Backing::Anonymous | Backing::Special => None,
    }
}

/// What a mapping is made of. Anonymous memory without a name right behind a private mapping of the file whose code was
/// mapped last is that file's `.bss` as the kernel or the loader put it there.
fn origin(
    mapping: &Mapping,
    before: Option<&Mapping>,
    code: Option<ObjectKey>,
) -> Option<Arc<Origin>> {
    if mapping.backing == Backing::Anonymous && mapping.path.is_none() {
        let image = before.filter(|b| {
            b.extent.end == mapping.extent.start
                && !b.shared
                && matches!(b.backing, Backing::File(key) if Some(key) == code)
        })?;
        return Some(Arc::new(Origin { backing: Backing::Anonymous, path: image.path.clone() }));
    }
    Some(Arc::new(Origin { backing: mapping.backing, path: mapping.path.clone() }))
}

/// Whether `mapping` cannot be what `piece` was made as. `unseen`: events since the last list of mappings may be missing.
pub(crate) fn contradicts(piece: &Piece, mapping: &Mapping, unseen: bool) -> bool {
    let shared = piece.traits.has(Traits::SHARED);
    let private = piece.traits.has(Traits::ANONYMOUS) && !shared;
    let made_anonymous = private && matches!(mapping.backing, Backing::File(_) | Backing::Shmem(_));
    let was = piece.origin.as_ref().and_then(|o| object(o.backing));
    // Unseen, another part of the object can have come to where this one was. Where nothing is missing the offset proves
    // nothing: drivers change it behind the call.
    let remembered = piece.traits.has(Traits::PREDATES) && !piece.traits.has(Traits::UNSEEN);
    let offset = mapping.offset.wrapping_add(piece.extent.start.wrapping_sub(mapping.extent.start));
    let moved = (unseen || remembered) && !private && object(mapping.backing).is_some();
    shared != mapping.shared
        || made_anonymous
        || moved && offset != piece.offset
        || was.is_some_and(|key| object(mapping.backing) != Some(key))
}

/// Gives the pieces of a child that was there before the watch the intervals of its parent, where both have the same
/// mapping at the same place: a family known by its equal layout instead of a fork that was seen.
pub(crate) fn inherit(child: &mut PieceMap, parent: &PieceMap) {
    let unseen: Vec<Piece> =
        parent.iter().filter(|p| p.traits.has(Traits::UNSEEN)).cloned().collect();
    for piece in unseen {
        child.update(piece.extent, |own| {
            let offset = piece.offset_of(own.extent.start);
            let of_object = own.origin.as_ref().is_some_and(|o| object(o.backing).is_some());
            let same = own.origin == piece.origin && (own.offset == offset || !of_object);
            if own.traits.has(Traits::UNSEEN) && same {
                own.id = piece.id;
                own.offset = offset;
                own.traits.0 |= piece.traits.0 & Traits::PREDATES;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::origin;
    use crate::evidence::{Backing, Mapping};
    use crate::identity::{Extent, ObjectKey, PAGE};

    fn mapping(page: u64, backing: Backing) -> Mapping {
        let path = matches!(backing, Backing::File(_)).then(|| Arc::from("/f"));
        let extent = Extent { start: page * PAGE, end: (page + 1) * PAGE };
        Mapping { extent, backing, offset: 0, shared: false, exec: false, write: true, path }
    }

    #[test]
    fn memory_behind_a_file_is_its_bss_only_where_the_file_is_a_program() {
        let file = ObjectKey { major: 8, minor: 1, inode: 7 };
        let other = ObjectKey { inode: 8, ..file };
        let (data, behind) = (mapping(1, Backing::File(file)), mapping(2, Backing::Anonymous));
        let path = |code| origin(&behind, Some(&data), code).and_then(|o| o.path.clone());
        assert_eq!(path(Some(file)).as_deref(), Some("/f"));
        assert_eq!(path(Some(other)), None, "the last code is another file's");
        assert_eq!(path(None), None);
        let apart = mapping(3, Backing::Anonymous);
        assert_eq!(origin(&apart, Some(&data), Some(file)), None, "a hole lies between");
    }
}
