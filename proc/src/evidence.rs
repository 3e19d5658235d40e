//! From what the kernel prints to the ledger's vocabulary.

use std::collections::HashMap;
use std::sync::Arc;

use memprov_ledger::evidence::{Counters, Mapping};
use memprov_ledger::identity::{Extent, PAGE};

use crate::backing::Devices;
use crate::maps::MapLine;
use crate::stat::Stat;
use crate::status::Status;
use crate::sums::Sums;
use crate::text::lossless;

/// The kernel's totals of one reading. `stat` is that of the whole thread group; `sums` stand in for what `status` says.
pub(crate) fn counters(stat: &Stat, status: &Status, sums: Option<Sums>) -> Counters {
    let amounts = &status.amounts;
    Counters {
        anon: sums.map_or(amounts.rss_anon, |sums| Some(sums.anon)),
        file: sums.map_or(amounts.rss_file, |sums| Some(sums.file)),
        shmem: sums.map_or(amounts.rss_shmem, |sums| Some(sums.shmem)),
        hugetlb: amounts.hugetlb_pages,
        swap: sums.map_or(amounts.vm_swap, |sums| Some(sums.swap)),
        minor_faults: stat.minor_faults,
        major_faults: stat.major_faults,
    }
}

/// The mappings of a list, in address order and without overlap; equal names share one text.
///
/// The kernel prints a page of text at a time and lets go of the lock between, so that a mapping which grew or merged
/// meanwhile can overlap the one before: the later line's front is cut off.
pub(crate) fn mappings(lines: &[MapLine<'_>], devices: &Devices) -> Vec<Mapping> {
    let mut names: HashMap<&[u8], Arc<str>> = HashMap::new();
    let mut end = 0;
    let mut mappings = Vec::with_capacity(lines.len());
    for line in lines {
        let start = line.start.max(end);
        if start >= line.end {
            continue;
        }
        end = line.end;
        let name = || Arc::from(lossless(&line.name()));
        let path =
            (!line.name.is_empty()).then(|| names.entry(line.name).or_insert_with(name).clone());
        mappings.push(Mapping {
            extent: Extent { start, end },
            backing: devices.backing(line),
            offset: line.offset.wrapping_add(start - line.start),
            shared: line.shared,
            exec: line.exec,
            write: line.write,
            path,
        });
    }
    mappings
}

/// Whether a list cannot be of one instant: a line overlaps the one before, or is not in whole pages.
pub(crate) fn torn(lines: &[MapLine<'_>]) -> bool {
    let odd =
        |line: &MapLine<'_>| !line.start.is_multiple_of(PAGE) || !line.end.is_multiple_of(PAGE);
    lines.windows(2).any(|pair| matches!(pair, [a, b] if b.start < a.end)) || lines.iter().any(odd)
}

#[cfg(test)]
mod tests {
    use memprov_ledger::identity::Extent;

    use super::{mappings, torn};
    use crate::backing::Devices;
    use crate::maps::{MapLine, lines};

    fn parse(text: &str) -> Vec<MapLine<'_>> {
        lines(text.as_bytes()).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn overlapping_lines_are_torn_and_no_address_is_mapped_twice() {
        let text = parse(
            "1000-3000 r--p 00005000 08:01 7 /a\n2000-5000 r--p 00006000 08:01 7 /a\n4000-5000 r--p 0 08:01 7 /a\n",
        );
        assert!(torn(&text));
        let mappings = mappings(&text, &Devices::default());
        let extents: Vec<_> = mappings.iter().map(|m| (m.extent, m.offset)).collect();
        let wanted = [Extent { start: 0x1000, end: 0x3000 }, Extent { start: 0x3000, end: 0x5000 }];
        assert_eq!(extents, [(wanted[0], 0x5000), (wanted[1], 0x7000)]);
        assert!(!torn(&parse("1000-3000 r--p 0 08:01 7 /a\n3000-5000 r--p 0 08:01 7 /a\n")));
    }

    #[test]
    fn equal_names_share_one_text() {
        let text = parse(
            "1000-2000 r--p 0 08:01 7 /a\n2000-3000 r-xp 0 08:01 7 /a\n3000-4000 rw-p 0 00:00 0\n",
        );
        let mappings = mappings(&text, &Devices::default());
        let path = |i: usize| mappings[i].path.as_ref();
        assert!(std::sync::Arc::ptr_eq(path(0).unwrap(), path(1).unwrap()));
        assert_eq!(path(2), None);
    }
}
