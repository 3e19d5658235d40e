//! NUMA nodes as `/sys/devices/system/node` shows them. Ids may have gaps and a node may have no CPU or no memory.

use memprov_ledger::identity::PAGE;

use crate::bytes::{cut, decimal_u32, number};
use crate::meminfo::Meminfo;

/// An online node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id: a name, not an index.
    pub id: u32,
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// Distance to each online node, in the order of their ids; empty where the kernel does not print one for each.
    pub distances: Vec<(u32, u32)>,
    /// Its memory.
    pub meminfo: Meminfo,
}

impl Node {
    /// Whether it holds memory, which it does unless the kernel says that it has none.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        self.meminfo.mem_total.is_none_or(|bytes| bytes > 0)
    }
}

/// The ids in a list such as `0-3,8` (kernel `bitmap_print_to_pagebuf`). Blank: none. `None`: not such a list, or more
/// than 65,536 ids. Some kernels end it with a NUL.
#[must_use]
pub fn id_list(text: &[u8]) -> Option<Vec<u32>> {
    let mut ids = Vec::new();
    let text = text.strip_suffix(b"\0").unwrap_or(text).trim_ascii();
    if text.is_empty() {
        return Some(ids);
    }
    for range in text.split(|b| *b == b',') {
        let (first, last) = cut(range, b'-').unwrap_or((range, range));
        let (first, last) = decimal_u32(first).zip(decimal_u32(last))?;
        if first > last || ids.len() as u64 + u64::from(last - first) >= 1 << 16 {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}

/// Frames of a block of memory, whose bytes are told in hexadecimal digits (kernel
/// `Documentation/admin-guide/mm/memory-hotplug.rst`). `None`: no such text, or no whole number of pages.
pub(crate) fn frames_of_block(text: &[u8]) -> Option<u64> {
    let bytes = number(text.trim_ascii(), 16)?;
    (bytes > 0 && bytes.is_multiple_of(PAGE)).then_some(bytes / PAGE)
}

/// Frames of blocks in ascending order, those side by side as one: the first, and the one behind the last.
pub(crate) fn frames(blocks: &[u32], size: u64) -> impl Iterator<Item = (u64, u64)> {
    let neighbours = blocks.chunk_by(|block, next| block.checked_add(1) == Some(*next));
    neighbours.filter_map(move |run| {
        let first = u64::from(*run.first()?).checked_mul(size)?;
        Some((first, first.checked_add(size.checked_mul(run.len() as u64)?)?))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{frames, frames_of_block, id_list};

    #[test]
    fn blocks_side_by_side_are_one_range_of_frames() {
        assert_eq!(frames_of_block(b"8000000\n"), Some(32768));
        assert_eq!([&b"0"[..], b"800", b"8x", b""].map(frames_of_block), [None; 4]);
        let told: Vec<_> = frames(&[0, 1, 2, 32, 40, 41], 32768).collect();
        assert_eq!(told, [(0, 98304), (1_048_576, 1_081_344), (1_310_720, 1_376_256)]);
        assert_eq!(frames(&[u32::MAX], u64::MAX).next(), None, "no host has them");
    }

    #[test]
    fn lists_have_ranges_and_gaps() {
        assert_eq!(id_list(b"0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(id_list(b"0-1\n\0"), Some(vec![0, 1]));
        assert_eq!(id_list(b"\n"), Some(vec![]));
        assert_eq!(id_list(b"3-1"), None);
        assert_eq!(id_list(b"0-4294967295"), None, "more than a kernel can have");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            assert!(id_list(&text).is_none_or(|ids| ids.len() <= 1 << 16));
        }
    }
}
