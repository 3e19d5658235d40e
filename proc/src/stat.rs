//! `/proc/PID/stat` (kernel `fs/proc/array.c`, `do_task_stat`; fields as numbered in proc(5)).

use crate::bytes::{decimal, decimal_u32, words};
use crate::read::ParseError;

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The fields that memprov uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Field 1.
    pub pid: u32,
    /// Field 2 without its parentheses: raw bytes, which may hold parentheses and newlines.
    pub comm: Vec<u8>,
    /// Field 3, a letter.
    pub state: u8,
    /// Field 4.
    pub ppid: u32,
    /// Field 9: `PF_*`.
    pub flags: u64,
    /// Field 10: minor faults of the whole thread group, dead threads included; of one thread in `task/TID/stat`.
    pub minor_faults: u64,
    /// Field 12: major faults, likewise.
    pub major_faults: u64,
    /// Fields 14 and 15: CPU time in ticks of 10 ms, in the program and in the kernel: of the whole thread group, or of one
    /// thread in `task/TID/stat`.
    pub cpu_ticks: u64,
    /// Field 22: start, in ticks since boot.
    pub start_ticks: u64,
    /// Field 26: where code starts; 1 when hidden from us, 0 without memory.
    pub start_code: u64,
    /// Field 28: where the stack starts; 0 when hidden from us or without memory.
    pub start_stack: u64,
    /// Field 39: the CPU that the thread runs on, or ran on last; `None` where the file ends before it.
    pub processor: Option<u32>,
}

impl Stat {
    /// Where stack and code lie. `None` where the kernel hides them (0 and 1) or there is no memory.
    #[must_use]
    pub fn layout(&self) -> Option<(u64, u64)> {
        (self.start_stack > 1 && self.start_code > 1).then_some((self.start_stack, self.start_code))
    }

    /// It has no memory of its own, ever.
    #[must_use]
    pub fn kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// This thread has exited (`Z`, `X`, `x`); others of its group may live on.
    #[must_use]
    pub fn exited(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Parses a whole file.
///
/// # Errors
/// The file is cut, or a field that is used is not a number.
pub fn parse(text: &[u8]) -> Result<Stat, ParseError> {
    let error = |what| ParseError { line: 1, what };
    let open = text.iter().position(|b| *b == b'(').ok_or(error("no command name"))?;
    // The name may hold parentheses; no field behind it can.
    let close = text.iter().rposition(|b| *b == b')').filter(|close| *close > open);
    let close = close.ok_or(error("command name has no end"))?;
    let pid = text.get(..open).map(<[u8]>::trim_ascii).and_then(decimal_u32);
    let comm = text.get(open + 1..close).unwrap_or_default().to_vec();

    let mut rest = words(text.get(close + 1..).unwrap_or_default().trim_ascii());
    let mut position = 2;
    let mut field = |number: usize| {
        let word = rest.nth(number - position - 1);
        position = number;
        word.ok_or(error("too few fields"))
    };
    let &[state] = field(3)? else { return Err(error("state is not one letter")) };
    let number = |word| decimal(word).ok_or(error("field is not a number"));
    let mut stat = Stat {
        pid: pid.ok_or(error("no pid"))?,
        comm,
        state,
        ppid: decimal_u32(field(4)?).ok_or(error("parent is not a pid"))?,
        flags: number(field(9)?)?,
        minor_faults: number(field(10)?)?,
        major_faults: number(field(12)?)?,
        cpu_ticks: number(field(14)?)?.saturating_add(number(field(15)?)?),
        start_ticks: number(field(22)?)?,
        start_code: number(field(26)?)?,
        start_stack: number(field(28)?)?,
        processor: None,
    };
    // What stands behind a field shows that it is whole.
    field(29)?;
    stat.processor = field(39).ok().and_then(decimal_u32).filter(|_| field(40).is_ok());
    Ok(stat)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::parse;

    const TEXT: &str = "4242 (a) R (\nb) S 17 4242 4242 0 -1 4194560 1500 99 3 7 10 5 0 0 20 0 1 0 \
        123456 5000000 400 18446744073709551615 94000000000000 94000000100000 140720000000000 0 0 0\n";

    #[test]
    fn a_name_with_parentheses_and_a_newline_shifts_no_field() {
        let stat = parse(TEXT.as_bytes()).unwrap();
        assert_eq!(stat.comm, b"a) R (\nb");
        assert_eq!((stat.pid, stat.state, stat.ppid), (4242, b'S', 17));
        assert_eq!((stat.minor_faults, stat.major_faults), (1500, 3));
        assert_eq!(stat.start_ticks, 123_456);
        assert_eq!((stat.start_code, stat.start_stack), (94_000_000_000_000, 140_720_000_000_000));
        assert_eq!((stat.cpu_ticks, stat.processor), (15, None), "it ends before field 39");
        assert!(!stat.kernel_thread() && !stat.exited());
    }

    #[test]
    fn the_cpu_is_told_where_the_file_is_whole() {
        let processor = |text: &str| parse(text.as_bytes()).unwrap().processor;
        let cut = format!("{} 0 0 0 0 0 0 0 17", TEXT.trim_end());
        assert_eq!(processor(&format!("{cut} 0\n")), Some(17));
        assert_eq!(processor(&cut), None, "it may be 170");
    }

    #[test]
    fn a_cut_file_is_an_error() {
        for end in 0..TEXT.len() - 8 {
            assert!(parse(&TEXT.as_bytes()[..end]).is_err(), "{end}");
        }
        assert!(parse(b")(").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&text).ok();
        }

        #[test]
        fn no_damaged_file_panics(at in 0usize..180, byte in any::<u8>(), cut in 0usize..200) {
            let mut text = TEXT.as_bytes().to_vec();
            text[at.min(TEXT.len() - 1)] = byte;
            text.truncate(cut);
            parse(&text).ok();
        }
    }
}
