//! Records as the programs write them (`src/bpf/abi.h`). Knows no domain.

use crate::skeleton::types;

pub(crate) use crate::skeleton::regions::types::{bss as regions_bss, region_record};
pub(crate) use types::{call_record, name_record, record_head, side_head};

/// A type of `abi.h`: integers and enums over integers only, no padding, any bits valid.
///
/// # Safety
/// The type is `repr(C)` and all of the above holds.
pub(crate) unsafe trait Wire: Copy {}

// SAFETY: four-byte enums arrive as transparent integers; sizes asserted below are sums of the fields' sizes.
unsafe impl Wire for record_head {}
// SAFETY: as above.
unsafe impl Wire for call_record {}
// SAFETY: as above; `name` is an array of bytes.
unsafe impl Wire for name_record {}
// SAFETY: as above.
unsafe impl Wire for side_head {}
// SAFETY: as above, all of u64.
unsafe impl Wire for types::space {}
// SAFETY: as above, of the types above.
unsafe impl Wire for types::bss {}

// SAFETY: as above.
unsafe impl Wire for region_record {}
// SAFETY: as above, of the type above and of u64.
unsafe impl Wire for regions_bss {}

const _: () = assert!(size_of::<record_head>() == 32);
const _: () = assert!(size_of::<call_record>() == 72);
const _: () = assert!(size_of::<name_record>() == 88);
const _: () = assert!(size_of::<side_head>() == 72);
const _: () = assert!(size_of::<types::space>() == 32);
const _: () = assert!(size_of::<region_record>() == 48);

/// Reads a value from the front of `bytes`; `None` when they are too few.
pub(crate) fn read<T: Wire>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: `Wire` says that any bits are a value, and there are as many bytes as it has.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// A record of the lifecycle ring.
pub(crate) enum Record {
    /// Anything but a name.
    Call(call_record),
    /// A name.
    Name(name_record),
}

/// Reads a record of the lifecycle ring; `None` when it is cut short.
pub(crate) fn record(bytes: &[u8]) -> Option<Record> {
    let head: record_head = read(bytes)?;
    if head.kind == types::record_kind::RECORD_NAME {
        Some(Record::Name(read(bytes)?))
    } else {
        Some(Record::Call(read(bytes)?))
    }
}

/// Reads a record of the stack ring: its head and the stack's bytes. `None` when it is cut short.
pub(crate) fn side(bytes: &[u8]) -> Option<(side_head, &[u8])> {
    let head: side_head = read(bytes)?;
    let stack = bytes.get(size_of::<side_head>()..)?.get(..usize::try_from(head.bytes).ok()?)?;
    Some((head, stack))
}

#[cfg(test)]
mod tests {
    use super::{record, side, side_head};

    #[test]
    fn bytes_cut_anywhere_are_refused_and_not_read_past() {
        let mut bytes = vec![0u8; 88];
        bytes[24] = 7;
        for len in 0..88 {
            assert!(record(&bytes[..len]).is_none(), "{len}");
        }
        assert!(record(&bytes).is_some());
        let (mut bytes, at) = (vec![0u8; 88], std::mem::offset_of!(side_head, bytes));
        bytes[at] = 16;
        assert_eq!(side(&bytes).map(|(_, stack)| stack.len()), Some(16));
        bytes[at] = 17;
        assert!(side(&bytes).is_none());
    }
}
