//! `/proc/meminfo` and `/sys/devices/system/node/nodeN/meminfo` (kernel `fs/proc/meminfo.c`, `drivers/base/node.c`).

use crate::bytes::{cut, kib_table, lines, words};
use crate::read::ParseError;

kib_table! {
    /// Amounts in bytes; `None`: the kernel did not print the line (a node's file has fewer).
    Meminfo {
        /// `MemTotal`.
        mem_total = "MemTotal",
        /// `MemFree`.
        mem_free = "MemFree",
        /// `MemAvailable`.
        mem_available = "MemAvailable",
        /// `Buffers`.
        buffers = "Buffers",
        /// `Cached`: page cache with shmem.
        cached = "Cached",
        /// `SwapCached`.
        swap_cached = "SwapCached",
        /// `SwapTotal`.
        swap_total = "SwapTotal",
        /// `SwapFree`.
        swap_free = "SwapFree",
        /// `FilePages`: page cache of a node.
        file_pages = "FilePages",
        /// `AnonPages`.
        anon_pages = "AnonPages",
        /// `Mapped`.
        mapped = "Mapped",
        /// `Shmem`.
        shmem = "Shmem",
        /// `KReclaimable`.
        k_reclaimable = "KReclaimable",
        /// `Slab`.
        slab = "Slab",
        /// `SReclaimable`.
        s_reclaimable = "SReclaimable",
        /// `SUnreclaim`.
        s_unreclaim = "SUnreclaim",
        /// `KernelStack`.
        kernel_stack = "KernelStack",
        /// `PageTables`.
        page_tables = "PageTables",
        /// `VmallocUsed`.
        vmalloc_used = "VmallocUsed",
        /// `Percpu`.
        percpu = "Percpu",
        /// `AnonHugePages`.
        anon_huge_pages = "AnonHugePages",
        /// `ShmemHugePages`.
        shmem_huge_pages = "ShmemHugePages",
        /// `Hugetlb`: all hugetlb memory of all sizes.
        hugetlb = "Hugetlb",
    }
}

/// Parses either file; in a node's, `Node N` stands before each key.
///
/// # Errors
/// A line that is used does not hold an amount in kB.
pub fn parse(text: &[u8]) -> Result<Meminfo, ParseError> {
    let mut info = Meminfo::default();
    for (line, text) in lines(text) {
        let Some((key, value)) = cut(text, b':') else { continue };
        let key = words(key).last().unwrap_or_default();
        info.take(key, value, line)?;
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::parse;

    #[test]
    fn the_machine_and_a_node_print_the_same_amounts() {
        let machine =
            parse(b"MemTotal:       24684100 kB\nHugePages_Total:       0\nHugetlb:   0 kB\n")
                .unwrap();
        let node =
            parse(b"Node 3 MemTotal:       24684100 kB\nNode 3 HugePages_Total:     0\n").unwrap();
        assert_eq!(machine.mem_total, Some(24_684_100 << 10));
        assert_eq!(node.mem_total, machine.mem_total);
        assert_eq!((machine.hugetlb, node.hugetlb), (Some(0), None));
    }

    #[test]
    fn a_damaged_amount_is_named() {
        assert_eq!(parse(b"Cached: 1 kB\nSlab: -3 kB\n").unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&text).ok();
        }
    }
}
