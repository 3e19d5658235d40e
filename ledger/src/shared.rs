//! Objects that several observed spaces map: their pages belong to none of them and are told once.

use std::collections::{BTreeMap, BTreeSet};

use crate::book::{Claim, Sharing};
use crate::evidence::{Backing, EvidenceClass, StackRef};
use crate::identity::{ObjectKey, SpaceId};
use crate::pages::PageState;
use crate::ranges::RangeSet;
use crate::scan::{Scan, object};
use crate::space::Space;
use crate::time::Span;

/// An object that two or more observed spaces map.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Which.
    pub key: ObjectKey,
    /// What its oldest mapping is.
    pub claim: Claim,
    /// The oldest reading it rests on.
    pub as_of: Span,
    /// Bytes of it that anybody maps.
    pub reserved: u64,
    /// Bytes of it that anybody has present, as far as pages could be read; `None` where nobody's could.
    pub resident: Option<u64>,
    /// How sure `resident` is.
    pub class: EvidenceClass,
    /// Observed spaces that map it.
    pub sharers: u64,
    /// All of them were scanned, with their pages.
    pub all_scanned: bool,
}

impl Sharing<'_> {
    /// Objects that `spaces` map and that some other observed space maps too.
    #[must_use]
    pub fn shared(&self, spaces: &[&Space]) -> Vec<Shared> {
        let of_interest: BTreeSet<ObjectKey> =
            spaces.iter().flat_map(|s| s.objects.iter().copied()).collect();
        let wanted: Vec<(&ObjectKey, &Vec<SpaceId>)> = self
            .mappers
            .iter()
            .filter(|(key, mappers)| mappers.len() > 1 && of_interest.contains(key))
            .collect();
        let keys: BTreeSet<ObjectKey> = wanted.iter().map(|(key, _)| **key).collect();
        let mut views: BTreeMap<ObjectKey, View> = BTreeMap::new();
        let ids: BTreeSet<SpaceId> = wanted.iter().flat_map(|(_, m)| m.iter().copied()).collect();
        for space in ids.iter().filter_map(|id| self.ledger.spaces.get(id)) {
            if let Some(scan) = space.scan.as_deref() {
                View::collect(scan, space, &keys, &mut views);
            }
        }
        wanted
            .into_iter()
            .filter_map(|(key, mappers)| {
                let view = views.remove(key)?;
                Some(view.finish(*key, mappers.len()))
            })
            .collect()
    }
}

/// What is known of one object while a list of shared objects is made.
struct View {
    claim: Claim,
    as_of: Span,
    mapped: Vec<(u64, u64)>,
    present: Vec<(u64, u64)>,
    class: EvidenceClass,
    scanned: BTreeSet<SpaceId>,
}

impl View {
    fn collect(
        scan: &Scan,
        space: &Space,
        keys: &BTreeSet<ObjectKey>,
        views: &mut BTreeMap<ObjectKey, Self>,
    ) {
        for piece in scan.pieces.iter() {
            let backing = piece.origin.as_ref().map_or(Backing::Anonymous, |o| o.backing);
            let Some(key) = object(backing).filter(|key| keys.contains(key)) else { continue };
            let view = views.entry(key).or_insert_with(|| Self {
                claim: Claim::of(piece),
                as_of: scan.when,
                mapped: Vec::new(),
                present: Vec::new(),
                class: EvidenceClass::Exact,
                scanned: BTreeSet::new(),
            });
            if view.claim.stack == StackRef::None && piece.stack != StackRef::None {
                view.claim = Claim::of(piece);
            }
            if scan.when.begin < view.as_of.begin {
                view.as_of = scan.when;
            }
            if !scan.exact() || !space.proven(piece) {
                view.class = EvidenceClass::Inferred;
            }
            if scan.pages_known {
                view.scanned.insert(space.id);
            }
            view.mapped.push((piece.offset, piece.offset_of(piece.extent.end)));
            for (run, state) in scan.pages.runs(piece.extent) {
                let there = state.object()
                    || matches!(backing, Backing::Hugetlb(_)) && state.has(PageState::PRESENT);
                if there {
                    view.present.push((piece.offset_of(run.start), piece.offset_of(run.end)));
                }
            }
        }
    }

    fn finish(self, key: ObjectKey, sharers: usize) -> Shared {
        Shared {
            key,
            claim: self.claim,
            as_of: self.as_of,
            reserved: RangeSet::union(self.mapped).bytes(),
            resident: (!self.scanned.is_empty()).then(|| RangeSet::union(self.present).bytes()),
            class: self.class,
            sharers: sharers as u64,
            all_scanned: self.scanned.len() == sharers,
        }
    }
}
