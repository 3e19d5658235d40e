//! What there was before a recording began: perf writes a record for each thread and mapping that it finds, with time 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use memprov_ledger::evidence::{Backing, Counters, Mapping, Residency};
use memprov_ledger::identity::{Extent, ObjectKey, Tgid};
use memprov_ledger::time::Span;

use super::{Region, path};

/// Mappings of all processes at most.
const MAPPINGS: usize = 1 << 22;

/// Processes as they were found.
#[derive(Debug, Default)]
pub(crate) struct Start {
    processes: BTreeMap<Tgid, Found>,
    count: usize,
    /// Mappings that there was no room for.
    pub(crate) crowded: u64,
}

#[derive(Debug, Default)]
struct Found {
    comm: Option<Arc<str>>,
    parent: Option<Tgid>,
    threads: u32,
    /// By first address, without overlap.
    mappings: BTreeMap<u64, Mapping>,
}

impl Start {
    /// A process has this name.
    pub(crate) fn named(&mut self, tgid: Tgid, name: &[u8]) {
        self.processes.entry(tgid).or_default().comm = path(name);
    }

    /// A thread of a process, whose parent is this; the process itself where it is that.
    pub(crate) fn thread(&mut self, tgid: Tgid, parent: Tgid) {
        let found = self.processes.entry(tgid).or_default();
        found.threads = found.threads.saturating_add(1);
        if parent != tgid {
            found.parent = Some(parent);
        }
    }

    /// A mapping, over whatever was told to be there.
    pub(crate) fn mapped(&mut self, tgid: Tgid, region: &Region) {
        let extent = region.extent;
        if extent.is_empty() {
            return;
        }
        let mappings = &mut self.processes.entry(tgid).or_default().mappings;
        let under: Vec<Mapping> = mappings
            .range(..extent.end)
            .rev()
            .take_while(|(_, mapping)| mapping.extent.end > extent.start)
            .map(|(_, mapping)| mapping.clone())
            .collect();
        self.count = self.count.saturating_sub(under.len());
        if self.count + 3 > MAPPINGS {
            self.crowded += 1;
            return;
        }
        for old in under {
            mappings.remove(&old.extent.start);
            let left = Extent { start: old.extent.start, end: old.extent.end.min(extent.start) };
            let right = Extent { start: old.extent.start.max(extent.end), end: old.extent.end };
            for part in [left, right].into_iter().filter(|part| !part.is_empty()) {
                let offset = match old.backing {
                    Backing::Anonymous | Backing::Special => 0,
                    _ => old.offset.wrapping_add(part.start - old.extent.start),
                };
                mappings.insert(part.start, Mapping { extent: part, offset, ..old.clone() });
                self.count += 1;
            }
        }
        let Region { object, flags, path, .. } = region;
        let mapping = Mapping {
            extent,
            backing: Backing::told(*object, flags.hugetlb, path.as_deref()),
            offset: flags.offset,
            shared: flags.shared,
            exec: flags.exec,
            // Not told of all; nothing is concluded from it.
            write: false,
            path: path.clone(),
        };
        mappings.insert(extent.start, mapping);
        self.count += 1;
    }

    /// How many threads each process had.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (Tgid, u32)> {
        self.processes.iter().map(|(tgid, found)| (*tgid, found.threads))
    }

    /// The list of mappings of each process, as a scan that read nothing else. `when`: when they were read.
    pub(crate) fn residencies(self, when: Span) -> impl Iterator<Item = Residency> {
        self.processes.into_iter().map(move |(tgid, found)| {
            let parent = found.parent.unwrap_or_default();
            let maps = found.mappings.into_values().collect();
            list(tgid, found.comm.unwrap_or_default(), parent, maps, when)
        })
    }
}

/// A list of mappings as a scan that read nothing else. Start and, with `Tgid(0)`, parent are not told.
pub(super) fn list(
    tgid: Tgid,
    comm: Arc<str>,
    parent: Tgid,
    maps: Arc<[Mapping]>,
    when: Span,
) -> Residency {
    Residency {
        when,
        tgid,
        start: None,
        comm,
        parent,
        layout: None,
        cgroup: None,
        before: Counters::default(),
        maps: Some(maps),
        pages: None,
        exclusive_known: false,
        after: Counters::default(),
        slack: 0,
        object_slack: 0,
    }
}

/// Numbers for files that records name by path alone. Their device is 0:0, which no file has.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    known: BTreeMap<Arc<str>, u64>,
}

impl Objects {
    /// Gives a mapping of a file an object.
    pub(crate) fn number(&mut self, region: &mut Region) {
        if region.flags.anonymous || region.object.is_some() || self.known.len() >= MAPPINGS {
            return;
        }
        let Some(path) = &region.path else { return };
        let next = self.known.len() as u64 + 1;
        let inode = *self.known.entry(Arc::clone(path)).or_insert(next);
        region.object = Some(ObjectKey { major: 0, minor: 0, inode });
    }
}

#[cfg(test)]
mod tests {
    use memprov_ledger::evidence::MapFlags;
    use memprov_ledger::identity::{Extent, Tgid};
    use memprov_ledger::time::Span;

    use super::super::Region;
    use super::{Objects, Start};

    fn region(start: u64, end: u64, path: &str) -> Region {
        let flags = MapFlags { offset: 0x1000, ..MapFlags::default() };
        let extent = Extent { start, end };
        Region { extent, object: None, flags, path: Some(path.into()) }
    }

    #[test]
    fn a_mapping_that_is_told_later_lies_over_those_told_before() {
        let (mut start, mut objects, tgid) = (Start::default(), Objects::default(), Tgid(7));
        let told = [(0x1000, 0x9000, "/a"), (0x2000, 0x4000, "/b"), (0x3000, 0x6000, "/a")];
        for (from, to, path) in told {
            let mut region = region(from, to, path);
            objects.number(&mut region);
            start.mapped(tgid, &region);
        }
        start.mapped(tgid, &region(0x5000, 0x5000, "/empty"));
        start.thread(tgid, Tgid(1));
        start.named(tgid, b"x");
        assert_eq!(start.threads().collect::<Vec<_>>(), [(tgid, 1)]);
        let lists: Vec<_> = start.residencies(Span::default()).collect();
        let maps = lists[0].maps.as_deref().unwrap_or_default();
        let told: Vec<_> = maps
            .iter()
            .map(|m| (m.extent.start, m.extent.end, m.path.as_deref().unwrap_or(""), m.offset))
            .collect();
        let expected = [
            (0x1000, 0x2000, "/a", 0x1000),
            (0x2000, 0x3000, "/b", 0x1000),
            (0x3000, 0x6000, "/a", 0x1000),
            (0x6000, 0x9000, "/a", 0x6000),
        ];
        assert_eq!(told, expected);
        assert_eq!((lists[0].comm.as_ref(), lists[0].parent), ("x", Tgid(1)));
        assert_eq!(maps[0].backing, maps[2].backing, "one file");
        assert_ne!(maps[0].backing, maps[1].backing);
    }
}
