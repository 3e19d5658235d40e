//! `/proc/PID/numa_maps` (kernel `fs/proc/task_mmu.c`, `show_numa_map`; policies as `mpol_to_str` of `mm/mempolicy.c`
//! prints them): on which NUMA nodes the pages of each mapping lie.
//!
//! The kernel walks the page table of each mapping for it and holds the lock of the target meanwhile. What no node is
//! counted for: the zero page, pages without a `struct page`, and reserved ones (vdso).

use memprov_ledger::evidence::Policy;

use crate::bytes::{cut, decimal, decimal_u32, lines as numbered, number, words};
use crate::read::ParseError;

/// What a line says of where pages lie. Its other words (`anon=`, `heap`, …) say how pages are used, and are left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// First address of the mapping. Its end is not told.
    pub start: u64,
    /// Its policy, or that of the process.
    pub policy: Policy,
    /// The file behind it, with newline, tab, blank, `=` and backslash as octal escapes.
    pub file: Option<&'a [u8]>,
    /// It is of hugetlb.
    pub huge: bool,
    /// Pages by node, in the order of the line.
    pub nodes: Vec<(u32, u64)>,
    /// Bytes of the pages that are counted: of hugetlb where it is one, else of the base page, huge pages too.
    pub page_bytes: Option<u64>,
}

impl Line<'_> {
    /// Bytes by node; `None` where a product is no number of 64 bits, or pages are counted whose size is not told.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<(u32, u64)>> {
        let bytes =
            |(node, pages): &(u32, u64)| Some((*node, pages.checked_mul(self.page_bytes?)?));
        self.nodes.iter().map(bytes).collect()
    }
}

/// All lines of a whole file, each a mapping or what is wrong with it.
pub fn lines(text: &[u8]) -> impl Iterator<Item = Result<Line<'_>, ParseError>> {
    numbered(text).map(|(line, text)| parse(text).map_err(|what| ParseError { line, what }))
}

fn parse(text: &[u8]) -> Result<Line<'_>, &'static str> {
    let (start, rest) = cut(text, b' ').ok_or("no policy")?;
    let start = number(start, 16).ok_or("start is no address")?;
    let (policy, rest) = policy(rest)?;
    let (file, huge, nodes, page_bytes) = (None, false, Vec::new(), None);
    let mut line = Line { start, policy, file, huge, nodes, page_bytes };
    for word in words(rest) {
        let Some((key, value)) = cut(word, b'=') else {
            line.huge |= word == b"huge";
            continue;
        };
        let count = || decimal(value).ok_or("a count is no number");
        match key {
            b"file" => line.file = Some(value),
            b"kernelpagesize_kB" => {
                let bytes = count()?.checked_mul(1024).ok_or("a page size is no number")?;
                line.page_bytes = Some(bytes);
            }
            _ => {
                if let Some(node) = key.strip_prefix(b"N").and_then(decimal_u32) {
                    line.nodes.push((node, count()?));
                }
            }
        }
    }
    Ok(line)
}

/// The policy, and what stands behind it, its flags and nodes (`bind=static:0-1`) left out. Two names have a blank in them.
fn policy(text: &[u8]) -> Result<(Policy, &[u8]), &'static str> {
    const NAMES: [(&[u8], Policy); 7] = [
        (b"default", Policy::Default),
        (b"prefer (many)", Policy::PreferredMany),
        (b"prefer", Policy::Preferred),
        (b"bind", Policy::Bind),
        (b"interleave", Policy::Interleave),
        (b"weighted interleave", Policy::WeightedInterleave),
        (b"local", Policy::Local),
    ];
    let ends = |rest: &[u8]| rest.first().is_none_or(|b| matches!(b, b' ' | b'=' | b':'));
    let known = NAMES.iter().find_map(|(name, policy)| {
        let rest = text.strip_prefix(*name).filter(|rest| ends(rest))?;
        Some((*policy, rest))
    });
    let (policy, rest) = known.unwrap_or_else(|| {
        let end = text.iter().position(|b| matches!(b, b' ' | b'=' | b':')).unwrap_or(text.len());
        (Policy::Unknown, text.split_at(end).1)
    });
    if rest.len() == text.len() {
        return Err("no policy");
    }
    Ok((policy, cut(rest, b' ').map_or(&b""[..], |(_, behind)| behind)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
    use proptest::sample::select;

    use memprov_ledger::evidence::Policy;

    use super::{Line, lines};

    fn one(text: &str) -> Line<'_> {
        lines(text.as_bytes()).next().unwrap().unwrap()
    }

    /// Policies as the kernel prints them, with flags and nodes and without.
    const POLICIES: [(&str, Policy); 10] = [
        ("default", Policy::Default),
        ("prefer:1", Policy::Preferred),
        ("prefer (many):0-1", Policy::PreferredMany),
        ("bind=static|balancing:0-1", Policy::Bind),
        ("interleave:0-3", Policy::Interleave),
        ("weighted interleave=relative:0,2", Policy::WeightedInterleave),
        ("local", Policy::Local),
        ("spread:7", Policy::Unknown),
        ("preferred", Policy::Unknown),
        ("weighted", Policy::Unknown),
    ];

    #[test]
    fn policies_whose_names_have_blanks_are_told_from_what_follows() {
        for (text, policy) in POLICIES {
            let text = format!("1000 {text} heap anon=1 N1=1 kernelpagesize_kB=4");
            let line = one(&text);
            assert_eq!((line.policy, line.bytes()), (policy, Some(vec![(1, 4096)])), "{text}");
        }
        assert_eq!(one("1000 weighted interleave").policy, Policy::WeightedInterleave);
    }

    #[test]
    fn pages_of_hugetlb_are_as_large_as_the_line_says() {
        let line = one(
            "1000 default file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 N1=2 kernelpagesize_kB=2048",
        );
        assert!(line.huge);
        assert_eq!(line.bytes(), Some(vec![(1, 4 << 20)]));
        assert_eq!(one("1000 default N1=2").bytes(), None, "pages of no known size");
        assert_eq!(one("1000 default").bytes(), Some(vec![]));
        let beyond = one("1000 default N1=18446744073709551615 kernelpagesize_kB=4");
        assert_eq!(beyond.bytes(), None);
    }

    #[test]
    fn a_bad_line_costs_only_itself_and_is_named() {
        let text = b"1000 default\nxyz default\n2000\n3000 default N0=x\n4000 default later=5 new N0=1 kernelpagesize_kB=4\n";
        let read: Vec<_> = lines(text).collect();
        let wrong: Vec<_> =
            read.iter().filter_map(|r| r.as_ref().err()).map(|e| (e.line, e.what)).collect();
        let wanted = [(2, "start is no address"), (3, "no policy"), (4, "a count is no number")];
        assert_eq!(wrong, wanted);
        assert_eq!(read[4].as_ref().unwrap().nodes, [(0, 1)]);
    }

    /// Bytes without a newline: any at all, or a line of which some are replaced.
    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        let line =
            b"7f00 weighted interleave=static:0-1 file=/a anon=3 N0=4 N1=5 kernelpagesize_kB=4";
        let hits = prop::collection::vec((0..line.len(), any::<u8>()), 0..3);
        let hit = (hits, 0..=line.len()).prop_map(|(hits, cut)| {
            let mut text = line.to_vec();
            hits.into_iter().for_each(|(at, byte)| text[at] = byte);
            text.truncate(cut);
            text
        });
        let text = prop_oneof![prop::collection::vec(any::<u8>(), 0..100), hit];
        text.prop_map(|mut text| {
            text.retain(|byte| *byte != b'\n');
            text
        })
    }

    proptest! {
        #[test]
        fn a_line_says_what_the_kernel_printed(
            start in any::<u64>(),
            (name, policy) in select(&POLICIES[..]),
            file in prop::option::of("[!-<>-~]{1,20}"),
            huge in any::<bool>(),
            other in select(&["", " heap", " stack anon=3 dirty=2 mapped=9 active=0", " Nx=1 later=x"][..]),
            nodes in prop::collection::btree_map(any::<u32>(), any::<u64>(), 0..4),
            kib in prop_oneof![Just(None), select(&[4u64, 64, 2048][..]).prop_map(Some)],
        ) {
            let nodes: BTreeMap<u32, u64> = nodes;
            let mut text = format!("{start:08x} {name}");
            if let Some(file) = &file { text += &format!(" file={file}"); }
            text += if huge { " huge" } else { "" };
            text += other;
            nodes.iter().for_each(|(node, pages)| text += &format!(" N{node}={pages}"));
            if let Some(kib) = kib { text += &format!(" kernelpagesize_kB={kib}"); }
            let line = Line {
                start,
                policy,
                file: file.as_deref().map(str::as_bytes),
                huge,
                nodes: nodes.into_iter().collect(),
                page_bytes: kib.map(|kib| kib << 10),
            };
            prop_assert_eq!(one(&text), line);
        }

        #[test]
        fn whatever_stands_between_two_lines_costs_neither(text in damaged()) {
            let (first, last) = (&b"1000 default N0=1"[..], &b"2000 bind:1 N1=2"[..]);
            let whole = [first, &text, last].join(&b'\n');
            let read: Vec<_> = lines(&whole).map(Result::ok).collect();
            let alone = |text| lines(text).next().and_then(Result::ok);
            prop_assert_eq!(read, vec![alone(first), alone(&text), alone(last)]);
        }
    }
}
