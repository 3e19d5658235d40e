//! `/proc/PID/smaps` and `smaps_rollup` (kernel `fs/proc/task_mmu.c`, `show_smap`): an audit, read on demand, because
//! the kernel walks every page for it.

use crate::bytes::{cut, kib_table, lines, words};
use crate::maps::{self, MapLine};
use crate::read::ParseError;

kib_table! {
    /// Amounts of a mapping, or of a whole process; in bytes. `None`: the kernel did not print the line.
    Amounts {
        /// `Size`.
        size = "Size",
        /// `KernelPageSize`: that of hugetlb where it is one.
        kernel_page_size = "KernelPageSize",
        /// `Rss`, of all kinds, without hugetlb.
        rss = "Rss",
        /// `Pss`.
        pss = "Pss",
        /// `Pss_Anon`.
        pss_anon = "Pss_Anon",
        /// `Pss_File`.
        pss_file = "Pss_File",
        /// `Pss_Shmem`.
        pss_shmem = "Pss_Shmem",
        /// `Shared_Clean`.
        shared_clean = "Shared_Clean",
        /// `Shared_Dirty`.
        shared_dirty = "Shared_Dirty",
        /// `Private_Clean`.
        private_clean = "Private_Clean",
        /// `Private_Dirty`.
        private_dirty = "Private_Dirty",
        /// `Referenced`.
        referenced = "Referenced",
        /// `Anonymous`: the part of `Rss` that is anonymous.
        anonymous = "Anonymous",
        /// `LazyFree`.
        lazy_free = "LazyFree",
        /// `AnonHugePages`.
        anon_huge_pages = "AnonHugePages",
        /// `Shared_Hugetlb`.
        shared_hugetlb = "Shared_Hugetlb",
        /// `Private_Hugetlb`.
        private_hugetlb = "Private_Hugetlb",
        /// `Swap`: of anonymous memory, and of shmem that this mapping shows.
        swap = "Swap",
        /// `SwapPss`.
        swap_pss = "SwapPss",
        /// `Locked`.
        locked = "Locked",
    }
}

/// A mapping of `smaps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The line of `maps`.
    pub map: MapLine<'a>,
    /// Its amounts.
    pub amounts: Amounts,
    /// `VmFlags`, blank-separated pairs of letters; empty where not printed.
    pub flags: &'a [u8],
}

impl Entry<'_> {
    /// Whether a flag is set, for instance `b"ht"` (hugetlb) or `b"pf"` (pure PFN range).
    #[must_use]
    pub fn has_flag(&self, flag: &[u8]) -> bool {
        words(self.flags).any(|f| f == flag)
    }
}

/// All mappings of a whole `smaps`.
///
/// # Errors
/// A line is neither a mapping nor a key with a value, or an amount is not in kB.
pub fn entries(text: &[u8]) -> Result<Vec<Entry<'_>>, ParseError> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (line, text) in lines(text) {
        match maps::line(text) {
            Ok(map) => entries.push(Entry { map, amounts: Amounts::default(), flags: b"" }),
            Err(what) => {
                let (key, value) = cut(text, b':').ok_or(ParseError { line, what })?;
                let entry = entries
                    .last_mut()
                    .ok_or(ParseError { line, what: "an amount before any mapping" })?;
                if key == b"VmFlags" {
                    entry.flags = value.trim_ascii();
                } else {
                    entry.amounts.take(key, value, line)?;
                }
            }
        }
    }
    Ok(entries)
}

/// The amounts of a whole `smaps_rollup`.
///
/// # Errors
/// There is no `[rollup]` line, or an amount is not in kB.
pub fn rollup(text: &[u8]) -> Result<Amounts, ParseError> {
    match entries(text)?.as_slice() {
        [entry] if entry.map.name == b"[rollup]" => Ok(entry.amounts),
        _ => Err(ParseError { line: 1, what: "not one [rollup] line" }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{entries, rollup};

    const TEXT: &[u8] = b"1000-3000 rw-s 00000000 00:11 1   /SYSV00000000 (deleted)\nSize: 8 kB\nRss: 0 kB\n\
        Pss: 0 kB\nPss_Anon: 4 kB\nPrivate_Hugetlb:    2048 kB\nSwap: 328 kB\nSwapPss: 328 kB\n\
        THPeligible:           0\nVmFlags: rd wr sh ht \n4000-5000 r--p 00000000 00:00 0 [vvar]\nRss: 4 kB\n";

    #[test]
    fn amounts_with_like_names_do_not_mix() {
        let entries = entries(TEXT).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].amounts.swap, Some(328 << 10));
        assert_eq!(entries[0].amounts.pss, Some(0));
        assert_eq!(entries[0].amounts.private_dirty, None);
        assert!(entries[0].has_flag(b"ht") && !entries[0].has_flag(b"h"));
        assert_eq!(entries[1].amounts.rss, Some(4096));
    }

    #[test]
    fn a_rollup_is_one_line_of_amounts() {
        let text = b"55eb7f0be000-7ffc06f02000 ---p 00000000 00:00 0      [rollup]\nRss: 4104 kB\nAnonymous: 2384 kB\n";
        let amounts = rollup(text).unwrap();
        assert_eq!((amounts.rss, amounts.anonymous), (Some(4104 << 10), Some(2384 << 10)));
        assert!(rollup(TEXT).is_err());
        assert!(rollup(b"").is_err());
        assert!(entries(b"Rss: 4 kB\n").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..200) {
            entries(&text).ok();
            let mut damaged = TEXT.to_vec();
            damaged.splice(at..at + 3, text.iter().copied().take(3));
            entries(&damaged).ok();
        }
    }
}
