//! `/proc/PID/numa_maps` (kernel `fs/proc/task_mmu.c`, `show_numa_map`; policies as `mpol_to_str` of `mm/mempolicy.c`
//! prints them): on which NUMA nodes the pages of each mapping lie.
//!
//! The kernel walks the page table of each mapping for it and holds the lock of the target meanwhile. What no node is
//! counted for: the zero page, pages without a `struct page`, and reserved ones (vdso).

use memprov_ledger::evidence::Policy;

use crate::bytes::{cut, decimal, decimal_u32, lines as numbered, number, words};
use crate::read::ParseError;

/// A line. Counts are of pages of [`Line::page_bytes`]; 0 where the kernel prints none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// First address of the mapping. Its end is not told.
    pub start: u64,
    /// Its policy, or that of the process.
    pub policy: Policy,
    /// Flags of the policy (`static`, `relative`, `balancing`, separated by `|`), empty without.
    pub policy_flags: &'a [u8],
    /// Nodes of the policy, as a list such as `0-3,8`; empty where it names none.
    pub policy_nodes: &'a [u8],
    /// The file behind it, with newline, tab, blank, `=` and backslash as octal escapes.
    pub file: Option<&'a [u8]>,
    /// It is the heap of `brk`.
    pub heap: bool,
    /// It is the stack of the first thread.
    pub stack: bool,
    /// It is of hugetlb.
    pub huge: bool,
    /// Anonymous pages.
    pub anon: u64,
    /// Dirty pages.
    pub dirty: u64,
    /// All pages; the kernel leaves it out where it equals `anon` or `dirty`.
    pub mapped: u64,
    /// Most mappings of one page; left out below 2.
    pub most_mapped: u64,
    /// Pages in the swap cache.
    pub swap_cache: u64,
    /// Pages on an active list; left out where it is all.
    pub active: u64,
    /// Pages under writeback.
    pub writeback: u64,
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
    let (told, rest) = told(rest)?;
    let mut line = Line {
        start,
        policy: told.policy,
        policy_flags: told.flags,
        policy_nodes: told.nodes,
        file: None,
        heap: false,
        stack: false,
        huge: false,
        anon: 0,
        dirty: 0,
        mapped: 0,
        most_mapped: 0,
        swap_cache: 0,
        active: 0,
        writeback: 0,
        nodes: Vec::new(),
        page_bytes: None,
    };
    for word in words(rest) {
        let Some((key, value)) = cut(word, b'=') else {
            match word {
                b"heap" => line.heap = true,
                b"stack" => line.stack = true,
                b"huge" => line.huge = true,
                // A word of a later kernel.
                _ => {}
            }
            continue;
        };
        if key == b"file" {
            line.file = Some(value);
            continue;
        }
        let count = || decimal(value).ok_or("a count is no number");
        match key {
            b"anon" => line.anon = count()?,
            b"dirty" => line.dirty = count()?,
            b"mapped" => line.mapped = count()?,
            b"mapmax" => line.most_mapped = count()?,
            b"swapcache" => line.swap_cache = count()?,
            b"active" => line.active = count()?,
            b"writeback" => line.writeback = count()?,
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

/// What stands before the pages.
struct Told<'a> {
    policy: Policy,
    flags: &'a [u8],
    nodes: &'a [u8],
}

/// The policy, and what stands behind. Two modes have a blank in their name.
fn told(text: &[u8]) -> Result<(Told<'_>, &[u8]), &'static str> {
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
    let (of_policy, behind) = cut(rest, b' ').unwrap_or((rest, b""));
    let (flags, nodes) = cut(of_policy, b':').unwrap_or((of_policy, b""));
    let flags = flags.strip_prefix(b"=").unwrap_or(flags);
    Ok((Told { policy, flags, nodes }, behind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use memprov_ledger::evidence::Policy;

    use super::{Line, lines};

    fn one(text: &str) -> Line<'_> {
        lines(text.as_bytes()).next().unwrap().unwrap()
    }

    #[test]
    fn every_word_is_read() {
        let line =
            one("7f00 bind=static|balancing:0-1 file=/a\\040b\\075c anon=3 dirty=2 mapped=9 \
             mapmax=4 swapcache=1 active=5 writeback=7 N0=4 N12=5 kernelpagesize_kB=4\n");
        assert_eq!((line.start, line.policy), (0x7f00, Policy::Bind));
        assert_eq!((line.policy_flags, line.policy_nodes), (&b"static|balancing"[..], &b"0-1"[..]));
        assert_eq!(line.file, Some(&b"/a\\040b\\075c"[..]));
        assert_eq!((line.anon, line.dirty, line.mapped, line.most_mapped), (3, 2, 9, 4));
        assert_eq!((line.swap_cache, line.active, line.writeback), (1, 5, 7));
        assert_eq!(line.bytes(), Some(vec![(0, 4 << 12), (12, 5 << 12)]));
        assert!(!line.heap && !line.stack && !line.huge);
    }

    #[test]
    fn policies_whose_names_have_blanks_are_told_from_what_follows() {
        for (text, mode, nodes) in [
            ("1000 default heap anon=1", Policy::Default, &b""[..]),
            ("1000 prefer:1 heap anon=1", Policy::Preferred, b"1"),
            ("1000 prefer (many):0-1 heap anon=1", Policy::PreferredMany, b"0-1"),
            ("1000 weighted interleave:0,2 heap anon=1", Policy::WeightedInterleave, b"0,2"),
            ("1000 interleave:0-3 heap anon=1", Policy::Interleave, b"0-3"),
            ("1000 local heap anon=1", Policy::Local, b""),
            ("1000 spread:7 heap anon=1", Policy::Unknown, b"7"),
            ("1000 preferred heap anon=1", Policy::Unknown, b""),
        ] {
            let line = one(text);
            assert_eq!((line.policy, line.policy_nodes), (mode, nodes), "{text}");
            assert!(line.heap && line.anon == 1, "{text}");
        }
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

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            for line in lines(&text).flatten() {
                assert!(line.bytes().is_none_or(|bytes| bytes.len() == line.nodes.len()));
            }
        }

        #[test]
        fn no_damaged_line_panics(at in 0usize..99, byte in any::<u8>(), cut in 0usize..99) {
            let mut text = b"7f00 weighted interleave=static:0-1 file=/a anon=3 dirty=2 N0=4 N1=5 kernelpagesize_kB=4".to_vec();
            if let Some(b) = text.get_mut(at) { *b = byte; }
            text.truncate(cut);
            for line in lines(&text).flatten() {
                assert!(line.bytes().is_none_or(|bytes| bytes.len() <= 2));
            }
        }
    }
}
