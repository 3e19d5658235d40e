//! What page faults made present, by node.
//!
//! A fault that ends with a frame of its own maps at least one page, and at most what its page table entry maps: with huge
//! pages these differ. Around a fault in a file the kernel maps further pages, of which nothing is told.

use std::collections::{BTreeMap, BTreeSet};

use memprov_ledger::evidence::{Access, EvidenceClass};
use memprov_ledger::identity::PAGE;

use crate::report::{AccessRow, Accesses, Filled, PopulatedRow, Process};

/// No kernel has a node with this id or a higher one (kernel `include/linux/numa.h`: MAX_NUMNODES, CONFIG_NODES_SHIFT up to
/// 10).
const NODES: u32 = 1 << 10;

/// Page faults of one owner. Empty where none was told with its frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Populated {
    /// By node of the frame; `None`: not known.
    pub nodes: BTreeMap<Option<u32>, Filled>,
    /// Some of them stand for others that were not told.
    pub sampled: bool,
    /// Some mapped more than a page of 4 KiB, or it isn't told how much.
    pub large: bool,
}

impl Populated {
    /// Takes in a fault. One that ended on the zero page, or whose frame is not told, populated nothing that is known.
    pub fn add(&mut self, fault: &Access) {
        if fault.frame.is_none() {
            return;
        }
        let times = fault.period.unwrap_or(1);
        self.sampled |= fault.period != Some(1);
        self.large |= fault.page_size != Some(PAGE);
        let node = fault.page_node.filter(|node| *node < NODES);
        let filled = self.nodes.entry(node).or_default();
        filled.faults = filled.faults.saturating_add(times);
        let bytes = fault.page_size.unwrap_or(PAGE).saturating_mul(times);
        filled.bytes = filled.bytes.saturating_add(bytes);
    }

    /// Adds those of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (node, more) in &other.nodes {
            let filled = self.nodes.entry(*node).or_default();
            filled.faults = filled.faults.saturating_add(more.faults);
            filled.bytes = filled.bytes.saturating_add(more.bytes);
        }
        self.sampled |= other.sampled;
        self.large |= other.large;
    }
}

/// Lets stay exact only what the books prove: that the owner has just these bytes, exactly. Faults that came before anybody
/// listened, two threads' faults of one page, and pages that a child shared once go unseen else.
#[must_use]
pub fn proven(mut accesses: Accesses, processes: &[Process]) -> Accesses {
    let mut doubted = BTreeSet::new();
    for row in &mut accesses.owners {
        let proof = proof(row, processes);
        let Some(populated) = &mut row.sums.populated else { continue };
        if populated.evidence == EvidenceClass::Exact && proof != Some(bytes(populated)) {
            populated.evidence = EvidenceClass::Inferred;
        }
        if populated.evidence != EvidenceClass::Exact {
            doubted.insert(row.population.clone());
        }
    }
    for (population, sums) in &mut accesses.totals {
        let populated = sums.populated.iter_mut();
        let exact = |of: &&mut PopulatedRow| of.evidence == EvidenceClass::Exact;
        let wrong = populated.filter(exact).filter(|_| doubted.contains(population));
        wrong.for_each(|of| of.evidence = EvidenceClass::Inferred);
    }
    accesses
}

fn bytes(of: &PopulatedRow) -> u64 {
    of.nodes.values().fold(0, |sum, filled| sum.saturating_add(filled.bytes))
}

/// Bytes that this owner has resident, where they are exact.
fn proof(row: &AccessRow, processes: &[Process]) -> Option<u64> {
    let space = row.space.as_ref()?;
    let process = processes.iter().find(|process| process.space == *space)?;
    let resident = &process.owners.iter().find(|owner| owner.id == row.id)?.resident;
    resident.bytes.filter(|_| resident.evidence == EvidenceClass::Exact)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use memprov_ledger::evidence::{Access, EvidenceClass};

    use super::{Filled, NODES, Populated, proven};
    use crate::report;

    #[test]
    fn a_fault_counts_with_what_it_mapped_and_one_without_a_frame_does_not() {
        let fault = |frame, page_node, page_size| Access {
            frame,
            page_node,
            page_size,
            period: Some(1),
            ..Access::default()
        };
        let mut populated = Populated::default();
        populated.add(&fault(None, None, Some(4096)));
        assert_eq!(populated, Populated::default(), "the zero page is nobody's");
        populated.add(&fault(Some(7), Some(1), Some(4096)));
        populated.add(&fault(Some(8), Some(1), Some(4096)));
        assert!(!populated.large && !populated.sampled);
        populated.add(&fault(Some(512), None, Some(2 << 20)));
        assert!(populated.large);
        let told = [(None, 1, 2 << 20), (Some(1), 2, 8192)];
        let told = told.map(|(node, faults, bytes)| (node, Filled { faults, bytes }));
        assert_eq!(populated.nodes, told.into());
        populated.add(&Access { period: Some(100), ..fault(Some(9), Some(1), Some(4096)) });
        let mut twice = populated.clone();
        twice.merge(&populated);
        assert!(twice.sampled);
        assert_eq!(twice.nodes[&Some(1)], Filled { faults: 204, bytes: 204 * 4096 });
    }

    #[test]
    fn nodes_that_no_kernel_has_are_none() {
        let mut populated = Populated::default();
        for node in [NODES - 1, NODES, u32::MAX] {
            populated.add(&Access { frame: Some(1), page_node: Some(node), ..Access::default() });
        }
        let told: Vec<_> = populated.nodes.keys().copied().collect();
        assert_eq!(told, [None, Some(NODES - 1)]);
    }

    #[test]
    fn exact_stays_only_what_the_books_have_exactly_too() {
        let of = |bytes| report::PopulatedRow {
            evidence: EvidenceClass::Exact,
            nodes: BTreeMap::from([("0".to_owned(), report::Filled { faults: 1, bytes })]),
        };
        let sums = |bytes| report::AccessSums { populated: Some(of(bytes)), ..Default::default() };
        let row = |id: &str, bytes| report::AccessRow {
            space: Some("1".to_owned()),
            id: id.to_owned(),
            population: "faults".to_owned(),
            sums: sums(bytes),
            ..Default::default()
        };
        let owner = |id: &str, bytes, evidence| report::OwnerRow {
            id: id.to_owned(),
            resident: report::Quantity { bytes: Some(bytes), evidence, lo: None, hi: None },
            ..Default::default()
        };
        let process = report::Process {
            space: "1".to_owned(),
            owners: vec![
                owner("whole", 8192, EvidenceClass::Exact),
                owner("twice", 8192, EvidenceClass::Exact),
                owner("guess", 8192, EvidenceClass::Inferred),
            ],
            ..Default::default()
        };
        let told = |rows: Vec<report::AccessRow>| {
            let totals = BTreeMap::from([("faults".to_owned(), sums(1))]);
            let accesses = report::Accesses { totals, owners: rows };
            let told = proven(accesses, std::slice::from_ref(&process));
            let all = told.totals.into_values().chain(told.owners.into_iter().map(|row| row.sums));
            let exact = |sums: report::AccessSums| {
                sums.populated.is_some_and(|of| of.evidence == EvidenceClass::Exact)
            };
            all.map(exact).collect::<Vec<bool>>()
        };
        assert_eq!(told(vec![row("whole", 8192)]), [true, true]);
        let doubted =
            ["twice", "guess", "gone"].map(|id| row(id, if id == "twice" { 16384 } else { 8192 }));
        assert_eq!(told(doubted.into()), [false; 4]);
    }
}
