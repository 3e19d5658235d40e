//! `/proc/PID/status` (kernel `fs/proc/array.c`, `proc_pid_status`): the lines about identity and memory.

use crate::bytes::{cut, decimal_u32, kib_table, lines, words};
use crate::read::ParseError;

kib_table! {
    /// Amounts of memory, in bytes. `None`: the kernel did not print the line (kernel threads, zombies, old kernels).
    Amounts {
        /// `VmPeak`.
        vm_peak = "VmPeak",
        /// `VmSize`.
        vm_size = "VmSize",
        /// `VmLck`.
        vm_lck = "VmLck",
        /// `VmHWM`.
        vm_hwm = "VmHWM",
        /// `VmRSS`: the sum of the next three.
        vm_rss = "VmRSS",
        /// `RssAnon`.
        rss_anon = "RssAnon",
        /// `RssFile`.
        rss_file = "RssFile",
        /// `RssShmem`.
        rss_shmem = "RssShmem",
        /// `VmPTE`: page tables.
        vm_pte = "VmPTE",
        /// `VmSwap`: anonymous memory only, no swapped shmem.
        vm_swap = "VmSwap",
        /// `HugetlbPages`: no part of Rss.
        hugetlb_pages = "HugetlbPages",
    }
}

/// The lines that memprov uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `Tgid`.
    pub tgid: u32,
    /// `Pid`.
    pub pid: u32,
    /// `PPid`.
    pub ppid: u32,
    /// `NSpid`: the id in each pid namespace, outermost first. `None` before Linux 4.1.
    pub ns_pids: Option<Vec<u32>>,
    /// `Threads`.
    pub threads: Option<u32>,
    /// Amounts of memory.
    pub amounts: Amounts,
}

/// Parses a whole file.
///
/// # Errors
/// `Tgid`, `Pid` or `PPid` is missing (the file was cut), or a line that is used does not hold what the kernel prints.
pub fn parse(text: &[u8]) -> Result<Status, ParseError> {
    let (mut tgid, mut pid, mut ppid) = (None, None, None);
    let mut status = Status::default();
    let mut last = 0;
    for (line, text) in lines(text) {
        last = line;
        // `Name` escapes newlines, so that no process can write lines of its own.
        let Some((key, value)) = cut(text, b':') else { continue };
        let value = value.trim_ascii();
        let id = || decimal_u32(value).ok_or(ParseError { line, what: "not a number" });
        match key {
            b"Tgid" => tgid = Some(id()?),
            b"Pid" => pid = Some(id()?),
            b"PPid" => ppid = Some(id()?),
            b"Threads" => status.threads = Some(id()?),
            b"NSpid" => {
                let ids: Option<Vec<u32>> = words(value).map(decimal_u32).collect();
                let ids = ids.ok_or(ParseError { line, what: "not a list of pids" })?;
                status.ns_pids = Some(ids);
            }
            _ => {
                status.amounts.take(key, value, line)?;
            }
        }
    }
    let missing = |what| ParseError { line: last, what };
    status.tgid = tgid.ok_or(missing("no Tgid"))?;
    status.pid = pid.ok_or(missing("no Pid"))?;
    status.ppid = ppid.ok_or(missing("no PPid"))?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::parse;

    const TEXT: &str = "Name:\ta\\nRssAnon:\t9 kB\nState:\tS (sleeping)\nTgid:\t5000\nPid:\t5001\nPPid:\t1\n\
        NSpid:\t5000\t17\nVmRSS:\t    28 kB\nRssAnon:\t      16 kB\nRssFile:\t      12 kB\nRssShmem:\t       0 kB\n\
        VmSwap:\t       4 kB\nHugetlbPages:\t    2048 kB\nThreads:\t3\n";

    #[test]
    fn amounts_are_bytes_and_ids_are_those_of_every_namespace() {
        let status = parse(TEXT.as_bytes()).unwrap();
        assert_eq!((status.tgid, status.pid, status.ppid), (5000, 5001, 1));
        assert_eq!(status.ns_pids.as_deref(), Some(&[5000, 17][..]));
        assert_eq!(status.amounts.rss_anon, Some(16 << 10));
        assert_eq!(status.amounts.rss_shmem, Some(0));
        assert_eq!(status.amounts.hugetlb_pages, Some(2 << 20));
        assert_eq!(status.threads, Some(3));
    }

    #[test]
    fn a_line_that_is_not_printed_is_none_and_not_zero() {
        let status = parse(b"Tgid:\t2\nPid:\t2\nPPid:\t0\n").unwrap();
        assert_eq!(status.amounts.rss_anon, None);
        assert_eq!(status.ns_pids, None);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let error = parse(b"Tgid:\t2\nPid:\t2\nPPid:\t0\nRssAnon:\tmuch\n").unwrap_err();
        assert_eq!(error.line, 4);
        assert!(parse(b"").is_err());
        assert!(parse(b"Tgid:\t99999999999\nPid:\t2\nPPid:\t0\n").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&text).ok();
        }

        #[test]
        fn no_damaged_file_panics(at in 0usize..200, byte in any::<u8>(), cut in 0usize..300) {
            let mut text = TEXT.as_bytes().to_vec();
            text[at] = byte;
            text.truncate(cut);
            parse(&text).ok();
        }
    }
}
