//! NUMA nodes as `/sys/devices/system/node` shows them. Ids may have gaps and a node may have no CPU or no memory.

use crate::bytes::{cut, decimal_u32};
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

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::id_list;

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
