//! `/proc/iomem`: what lies at which physical addresses (kernel `kernel/resource.c`, `r_show`).

use memprov_ledger::identity::{Extent, PAGE};

use crate::bytes::{cut, lines, number};
use crate::read::ParseError;

/// Whole pages of memory, in order: the lines `System RAM` that are part of no other.
///
/// # Errors
/// A line of memory is not the kernel's, or addresses are hidden from us (no `CAP_SYS_ADMIN`): then all are 0.
pub(crate) fn system_ram(text: &[u8]) -> Result<Vec<Extent>, ParseError> {
    let mut ranges = Vec::new();
    for (at, line) in lines(text) {
        let Some(range) = line.strip_suffix(b" : System RAM").filter(|r| !r.starts_with(b" "))
        else {
            continue;
        };
        let error = |what| ParseError { line: at, what };
        let ends = cut(range, b'-')
            .and_then(|(start, last)| Some((number(start, 16)?, number(last, 16)?)));
        let (start, last) = ends.ok_or(error("not a range of addresses"))?;
        if last == 0 {
            return Err(error("addresses are hidden (they take CAP_SYS_ADMIN)"));
        }
        let start = start.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let end = last.saturating_add(1) & !(PAGE - 1);
        ranges.extend((start < end).then_some(Extent { start, end }));
    }
    ranges.sort_unstable();
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use memprov_ledger::identity::Extent;

    use super::system_ram;

    #[test]
    fn memory_is_told_in_whole_pages_and_nothing_else_is() {
        // Linux 6.12 in a guest, and a range that is no page.
        let text = b"00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n\
            000f0000-000fffff : System ROM\n00100000-6ffd6fff : System RAM\n\
            \x20 01000000-01ffffff : Kernel code\n\x20 02000000-02ffffff : System RAM\n\
            6ffd7000-6fffffff : Reserved\n100000000-10000000f : System RAM\n";
        let expected =
            [(0x1000, 0x9f000), (0x10_0000, 0x6ffd_7000)].map(|(start, end)| Extent { start, end });
        assert_eq!(system_ram(text).unwrap(), expected);
        assert_eq!(system_ram(b"").unwrap(), []);
    }

    #[test]
    fn what_is_hidden_or_not_the_kernels_is_no_memory() {
        let hidden = system_ram(b"00000000-00000000 : System RAM\n").unwrap_err();
        assert!(hidden.to_string().contains("CAP_SYS_ADMIN"), "{hidden}");
        for text in [&b"1000 : System RAM"[..], b"x-y : System RAM", b"-1000 : System RAM"] {
            assert_eq!(system_ram(text).unwrap_err().line, 1, "{text:?}");
        }
    }
}
