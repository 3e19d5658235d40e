//! What a scan reads of the naive kernel: lists of mappings, page states, totals.

use std::collections::BTreeSet;
use std::sync::Arc;

use memprov_ledger::evidence::{Backing, Counters, Mapping, Residency};
use memprov_ledger::identity::{PAGE, StartTicks, Tgid};
use memprov_ledger::pages::{PageSet, PageState};
use memprov_ledger::time::Span;

use crate::call::{backing, extent};
use crate::kernel::{Cell, Kernel, Present, Stuff};

impl Kernel {
    /// The lines of `/proc/PID/maps`: pages that the kernel would merge are one mapping.
    pub(crate) fn maps(&self, tgid: u32) -> Vec<Mapping> {
        let mut lines: Vec<(u64, u64, Cell, Cell)> = Vec::new();
        for (page, cell) in &self.mm(tgid).cells {
            match lines.last_mut() {
                Some((_, end, _, last)) if *end == *page && merges(last, cell) => {
                    (*end, *last) = (page + 1, *cell);
                }
                _ => lines.push((*page, page + 1, *cell, *cell)),
            }
        }
        let mapping = |(start, end, first, _): (u64, u64, Cell, Cell)| {
            let (backing, offset, private, path) = match first.stuff {
                Stuff::Anonymous => (Backing::Anonymous, 0, true, None),
                Stuff::Object { key, index, private, sysv } => {
                    let kind = if sysv { "/SYSV" } else { "/file" };
                    let path: Arc<str> = format!("{kind}{}", key.inode).into();
                    (backing(key), index * PAGE, private, Some(path))
                }
            };
            let extent = extent(start, end - start);
            Mapping { extent, backing, offset, shared: !private, exec: false, write: true, path }
        };
        lines.into_iter().map(mapping).collect()
    }

    /// What pagemap says.
    pub(crate) fn pages(&self, tgid: u32) -> PageSet {
        let state = |cell: &Cell| match cell.present {
            Present::None => 0,
            Present::Zero => PageState::PRESENT | PageState::ZERO,
            Present::Object => PageState::PRESENT | PageState::OBJECT,
            Present::Swapped => PageState::SWAPPED,
            Present::Frame(frame) if self.frames[&frame] == 1 => {
                PageState::PRESENT | PageState::EXCLUSIVE
            }
            Present::Frame(_) => PageState::PRESENT,
        };
        self.mm(tgid).cells.iter().map(|(p, c)| (extent(*p, 1), PageState(state(c)))).collect()
    }

    /// What `/proc/PID/status` and `stat` say.
    pub(crate) fn counters(&self, tgid: u32) -> Counters {
        let mm = self.mm(tgid);
        let sum = |of: &dyn Fn(&Cell) -> bool| {
            Some(mm.cells.values().filter(|c| of(c)).count() as u64 * PAGE)
        };
        let object = |c: &Cell, odd: u64| matches!((c.present, c.stuff), (Present::Object, Stuff::Object { key, .. }) if key.inode % 2 == odd);
        Counters {
            anon: sum(&|c| matches!(c.present, Present::Frame(_))),
            file: sum(&|c| object(c, 1)),
            shmem: sum(&|c| object(c, 0)),
            hugetlb: None,
            swap: sum(&|c| c.present == Present::Swapped),
            minor_faults: mm.faults,
            major_faults: 0,
        }
    }

    /// A whole scan at this instant.
    pub(crate) fn scan(&self, tgid: u32, when: Span) -> Option<Residency> {
        let process = self.live.get(&tgid)?;
        Some(Residency {
            when,
            tgid: Tgid(tgid),
            start: Some(StartTicks(process.start)),
            comm: "model".into(),
            parent: Tgid(process.parent),
            layout: Some((1, self.mm(tgid).layout)),
            cgroup: None,
            before: self.counters(tgid),
            maps: Some(self.maps(tgid).into()),
            pages: Some(Arc::new(self.pages(tgid))),
            exclusive_known: true,
            after: self.counters(tgid),
            slack: 0,
            object_slack: 0,
        })
    }

    /// Distinct frames that any process has: anonymous ones, and pages of objects by (inode, index).
    pub(crate) fn distinct(&self) -> (u64, u64) {
        let mms: BTreeSet<usize> = self.live.values().map(|p| p.mm).collect();
        let mut objects = BTreeSet::new();
        for cell in mms.iter().flat_map(|mm| self.mms[*mm].cells.values()) {
            if let (Present::Object, Stuff::Object { key, index, .. }) = (cell.present, cell.stuff)
            {
                objects.insert((key, index));
            }
        }
        (self.frames.len() as u64, objects.len() as u64)
    }
}

/// Whether the kernel makes one mapping of two neighbours.
pub(crate) fn merges(a: &Cell, b: &Cell) -> bool {
    match (a.stuff, b.stuff) {
        (Stuff::Anonymous, Stuff::Anonymous) => true,
        (
            Stuff::Object { key, index, private, sysv: false },
            Stuff::Object { key: other, index: next, private: too, sysv: false },
        ) => key == other && index + 1 == next && private == too,
        // Attachments never merge; one of them stays whole.
        (
            Stuff::Object { key, index, sysv: true, .. },
            Stuff::Object { key: k, index: n, sysv: true, .. },
        ) => key == k && index + 1 == n && a.made == b.made,
        _ => false,
    }
}
