//! From records to evidence. The only file that knows both.

use std::fmt::Write as _;
use std::sync::Arc;

use memprov_ledger::evidence::{Change, Fault, Lifecycle, MapFlags, StackRef};
use memprov_ledger::identity::{Extent, StartTicks, Tgid};
use memprov_ledger::time::{MonoTime, Span};

use crate::record::{Record, call_record, name_record, record_head, side_head};
use crate::sink::{RawStack, Registers};
use crate::skeleton::types::{record_flag, record_kind, side_flag};

/// Nanoseconds of a clock tick in `/proc/PID/stat` (`USER_HZ` is 100).
const TICK: u64 = 10_000_000;

// include/uapi/asm-generic/mman-common.h and linux/mman.h
const PROT_EXEC: u32 = 4;
const MAP_SHARED: u32 = 1;
const MAP_TYPE: u32 = 0xf;
const MAP_SHARED_VALIDATE: u32 = 3;
const MAP_FIXED: u32 = 0x10;
const MAP_ANONYMOUS: u32 = 0x20;
const MAP_GROWSDOWN: u32 = 0x100;
const MAP_NORESERVE: u32 = 0x4000;
const MAP_STACK: u32 = 0x2_0000;
const MAP_HUGETLB: u32 = 0x4_0000;
const MAP_HUGE_SHIFT: u32 = 26;
const MAP_FIXED_NOREPLACE: u32 = 0x10_0000;
const MREMAP_FIXED: u32 = 2;
/// `include/uapi/linux/shm.h`.
const SHM_REMAP: u32 = 0o40000;
const MREMAP_DONTUNMAP: u32 = 4;

/// The name that a stack and its record share: thread and entry of the call.
pub(crate) type StackKey = (u32, u64);

/// What a record says, with its stack still to come if there is a key.
pub(crate) fn lifecycle(
    record: &Record,
    mut emit: impl FnMut(Lifecycle, Option<StackKey>),
) -> Result<(), UnknownRecord> {
    let (head, changes) = match record {
        Record::Call(call) => (&call.head, call_changes(call)?),
        Record::Name(name) => (&name.head, [Some(name_change(name)), None]),
    };
    let key = has(head.flags, record_flag::RECORD_STACK).then_some((head.tid, head.begin));
    let when = Span { begin: MonoTime(head.begin), end: MonoTime(head.end) };
    for change in changes.into_iter().flatten() {
        emit(Lifecycle { when, tgid: Tgid(head.tgid), change }, key);
    }
    Ok(())
}

/// A record of a kind that this loader does not know.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownRecord;

fn has(flags: u32, flag: record_flag) -> bool {
    flags & flag.0 != 0
}

fn stack_of(head: &record_head) -> StackRef {
    if has(head.flags, record_flag::RECORD_STACK_LOST) { StackRef::Lost } else { StackRef::None }
}

/// One change, or two where a failed call named two ranges.
fn call_changes(call: &call_record) -> Result<[Option<Change>; 2], UnknownRecord> {
    let failed = has(call.head.flags, record_flag::RECORD_FAILED);
    let stack = stack_of(&call.head);
    let doubt = |extent: Extent| (!extent.is_empty()).then_some(Change::Doubt { extent });
    let one = |change: Change| Ok([Some(change), None]);
    match call.head.kind {
        record_kind::RECORD_MMAP => {
            let extent = Extent::new(call.a, mapped_length(call.b, call.bits));
            if failed {
                return Ok([doubt(extent), None]);
            }
            one(Change::Map { extent, flags: map_flags(call), stack })
        }
        record_kind::RECORD_MUNMAP => {
            let extent = Extent::pages(call.a, call.b);
            if failed { Ok([doubt(extent), None]) } else { one(Change::Unmap { extent }) }
        }
        record_kind::RECORD_MREMAP => {
            let (from, to) = (Extent::pages(call.a, call.b), Extent::pages(call.c, call.d));
            let fixed = call.bits & MREMAP_FIXED != 0;
            if failed {
                return Ok([doubt(from), if fixed { doubt(to) } else { None }]);
            }
            let keep = call.bits & MREMAP_DONTUNMAP != 0;
            one(Change::Remap { from, to, keep, fixed, stack })
        }
        record_kind::RECORD_BRK => one(Change::Brk { old: call.a, new: call.b, stack }),
        record_kind::RECORD_SHMAT => {
            let replaces = call.bits & SHM_REMAP != 0;
            one(Change::Attach { at: call.a, replaces, stack })
        }
        record_kind::RECORD_SHMDT => one(Change::Detach { at: call.a }),
        record_kind::RECORD_FORK => one(Change::Fork {
            child: Tgid(u32::try_from(call.a).map_err(|_| UnknownRecord)?),
            child_start: StartTicks(call.b / TICK),
            shares: has(call.head.flags, record_flag::RECORD_SHARES),
        }),
        record_kind::RECORD_EXEC => one(Change::Exec),
        record_kind::RECORD_EXIT => one(Change::Exit),
        _ => Err(UnknownRecord),
    }
}

/// The length that the kernel maps: whole pages, and whole huge pages where the call asked for such. What size those
/// have is in the flags; without, the default of 2 MiB is taken.
fn mapped_length(len: u64, flags: u32) -> u64 {
    let shift = match (flags & MAP_HUGETLB != 0, flags >> MAP_HUGE_SHIFT) {
        (false, _) => 12,
        (true, 0) => 21,
        (true, shift) => shift,
    };
    len.checked_next_multiple_of(1u64.checked_shl(shift).unwrap_or(1)).unwrap_or(len)
}

fn map_flags(call: &call_record) -> MapFlags {
    let bit = |bit: u32| call.bits & bit != 0;
    MapFlags {
        fixed: bit(MAP_FIXED) && !bit(MAP_FIXED_NOREPLACE),
        anonymous: bit(MAP_ANONYMOUS),
        shared: matches!(call.bits & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE),
        stack: bit(MAP_STACK),
        grows_down: bit(MAP_GROWSDOWN),
        noreserve: bit(MAP_NORESERVE),
        hugetlb: bit(MAP_HUGETLB),
        exec: call.prot & PROT_EXEC != 0,
        inaccessible: call.prot == 0,
        offset: if bit(MAP_ANONYMOUS) { 0 } else { call.c },
    }
}

/// A name that was not read whole says only that the range must be looked at: the list of mappings shows it whole.
fn name_change(record: &name_record) -> Change {
    let extent = Extent::pages(record.address, record.length);
    if has(record.head.flags, record_flag::RECORD_NAME_CUT) {
        return Change::Doubt { extent };
    }
    let name = (!has(record.head.flags, record_flag::RECORD_NAME_NONE)).then(|| {
        let bytes: Vec<u8> =
            record.name.iter().map(|c| c.cast_unsigned()).take_while(|c| *c != 0).collect();
        text(&bytes)
    });
    Change::Name { extent, name }
}

/// Lossless text: bytes that are not UTF-8 as `\xNN`.
fn text(bytes: &[u8]) -> Arc<str> {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").expect("writing to a String cannot fail");
        }
    }
    out.into()
}

/// Puts the stack into a change that has one.
pub(crate) fn set_stack(change: &mut Change, to: StackRef) {
    match change {
        Change::Map { stack, .. }
        | Change::Remap { stack, .. }
        | Change::Brk { stack, .. }
        | Change::Attach { stack, .. } => *stack = to,
        Change::Unmap { .. }
        | Change::Detach { .. }
        | Change::Name { .. }
        | Change::Vma { .. }
        | Change::Fork { .. }
        | Change::Exec
        | Change::Exit
        | Change::Doubt { .. } => {}
    }
}

/// The stack of a side record.
pub(crate) fn raw_stack<'a>(head: &side_head, bytes: &'a [u8]) -> RawStack<'a> {
    RawStack {
        when: MonoTime(head.when),
        tgid: Tgid(head.tgid),
        tid: head.tid,
        regs: Registers { ip: head.ip, sp: head.sp, bp: head.bp },
        compat: head.flags & side_flag::SIDE_COMPAT.0 != 0,
        bytes,
        complete: head.flags & side_flag::SIDE_COMPLETE.0 != 0,
    }
}

/// The fault of a side record. The error code's bits: x86 `enum x86_pf_error_code`.
pub(crate) fn fault(head: &side_head, stack: StackRef) -> Fault {
    Fault {
        when: Span::at(MonoTime(head.when)),
        tgid: Tgid(head.tgid),
        address: head.address,
        write: head.error & 2 != 0,
        present: head.error & 1 != 0,
        probability: head.threshold as f64 / 4_294_967_296.0,
        stack,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAP_HUGETLB, call_changes, mapped_length, text};
    use crate::record::{call_record, record_head};
    use crate::skeleton::types::{record_flag, record_kind};
    use memprov_ledger::evidence::Change;
    use memprov_ledger::identity::Extent;

    #[test]
    fn lengths_are_rounded_as_the_kernel_rounds_them() {
        assert_eq!(mapped_length(1, 0), 4096);
        assert_eq!(mapped_length(4096, 0), 4096);
        assert_eq!(mapped_length(1, MAP_HUGETLB), 2 << 20);
        assert_eq!(mapped_length(1, MAP_HUGETLB | 30 << 26), 1 << 30);
        assert_eq!(mapped_length(u64::MAX, MAP_HUGETLB | 63 << 26), u64::MAX);
    }

    #[test]
    fn a_failed_mremap_with_fixed_leaves_both_ranges_in_doubt() {
        let head = record_head {
            kind: record_kind::RECORD_MREMAP,
            flags: record_flag::RECORD_FAILED.0,
            ..Default::default()
        };
        let call = call_record {
            head,
            a: 0x1000,
            b: 1,
            c: 0x9000,
            d: 0x2000,
            bits: 3,
            ..Default::default()
        };
        let doubt = |start, end| Some(Change::Doubt { extent: Extent { start, end } });
        assert_eq!(call_changes(&call), Ok([doubt(0x1000, 0x2000), doubt(0x9000, 0xb000)]));
    }

    #[test]
    fn no_byte_of_a_name_is_lost() {
        assert_eq!(&*text(b"a\xffb\xc3\xa9"), "a\\xffb\u{e9}");
    }
}
