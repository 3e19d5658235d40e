//! Go's function table, `.gopclntab`: functions, how far their frames reach, and their names.
//!
//! Go programs have no `.eh_frame` for Go code. Format: the Go runtime's `symtab.go` and `runtime2.go` (`pcHeader`,
//! `_func`), versions 1.18 (magic `fffffff0`) and 1.20 and later (`fffffff1`). `_func.pcsp` gives the distance of the
//! stack pointer from the return address for every instruction, so frames without frame pointer (the leaf that makes
//! the system call) are unwound exactly, too.

use super::cfi::Rule;
use super::elf::{Elf, ElfError};

const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;
/// `abi.FuncFlagTopFrame`: nobody called it.
const TOP_FRAME: u8 = 1;
/// `abi.FuncFlagSPWrite`: it sets the stack pointer to another stack (`systemstack`, `mcall`, `asmcgocall`, …).
const SP_WRITE: u8 = 2;
/// Word of `.go.module` (`moduledata`) that holds the start of text, from Go 1.26 on, which leaves `textStart` zero.
const MODULEDATA_TEXT: u64 = 22 * 8;

#[derive(Clone, Copy, Debug)]
struct Header {
    is_1_20: bool,
    quantum: u64,
    functions: u64,
    text: u64,
    names: u64,
    pcs: u64,
    table: u64,
}

impl Header {
    const LEN: u64 = 72;

    fn read(elf: &Elf) -> Result<Option<(Self, u64, u64)>, ElfError> {
        let Some(section) = elf.section(".gopclntab") else { return Ok(None) };
        let bytes = elf.image.read(".gopclntab", section.offset, Self::LEN, Self::LEN)?;
        let bad = ElfError::Format { what: ".gopclntab header" };
        let word = |n: usize| word(&bytes, 8 + 8 * n).unwrap_or(0);
        let header = match (half(&bytes, 0), bytes.get(4..8)) {
            (Some(magic @ (MAGIC_1_18 | MAGIC_1_20)), Some([0, 0, quantum, 8])) => Self {
                is_1_20: magic == MAGIC_1_20,
                quantum: u64::from(*quantum),
                functions: word(0),
                text: match word(2) {
                    0 => text_start(elf, section.address),
                    text => text,
                },
                names: word(3),
                pcs: word(6),
                table: word(7),
            },
            _ => return Err(bad),
        };
        let fits = header.functions.checked_mul(8).and_then(|n| n.checked_add(header.table));
        if fits.is_none_or(|end| end > section.size) || header.pcs > header.table {
            return Err(bad);
        }
        Ok(Some((header, section.offset, section.size)))
    }
}

/// Where Go's code begins when the header does not say.
fn text_start(elf: &Elf, table: u64) -> u64 {
    let module = elf.section(".go.module").and_then(|s| {
        let bytes = elf.image.read(".go.module", s.offset, MODULEDATA_TEXT + 8, 4096).ok()?;
        let text = word(&bytes, usize::try_from(MODULEDATA_TEXT).ok()?)?;
        (word(&bytes, 0)? == table && text != 0).then_some(text)
    });
    module.or_else(|| elf.section(".text").map(|s| s.address)).unwrap_or(0)
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// What unwinding needs of `.gopclntab`: the part from the tables of program counters to its end.
#[derive(Debug)]
pub(crate) struct GoTable {
    header: Header,
    bytes: Box<[u8]>,
}

impl GoTable {
    /// Reads it, at most `limit` bytes; `None` when there is none.
    pub(crate) fn read(elf: &Elf, limit: u64) -> Result<Option<Self>, ElfError> {
        let Some((header, offset, size)) = Header::read(elf)? else { return Ok(None) };
        let from = offset.saturating_add(header.pcs);
        let bytes = elf.image.read(".gopclntab", from, size - header.pcs, limit)?;
        Ok(Some(Self { header, bytes: bytes.into() }))
    }

    /// Bytes of memory.
    pub(crate) fn footprint(&self) -> usize {
        self.bytes.len()
    }

    fn table(&self) -> &[u8] {
        let from = usize::try_from(self.header.table - self.header.pcs).unwrap_or(usize::MAX);
        self.bytes.get(from..).unwrap_or(&[])
    }

    /// The start of the function that holds `address` and the rule at that address.
    pub(crate) fn rule(&self, address: u64) -> Option<(u64, Rule)> {
        let pc = u32::try_from(address.checked_sub(self.header.text)?).ok()?;
        let table = self.table();
        let entry = |n: u64| half(table, usize::try_from(n).ok()?.checked_mul(8)?);
        let (start, n) = search(self.header.functions, pc, entry)?;
        let at = half(table, usize::try_from(n).ok()?.checked_mul(8)?.checked_add(4)?)?;
        let func = table.get(usize::try_from(at).ok()?..)?;
        let flag = *func.get(if self.header.is_1_20 { 41 } else { 37 })?;
        let rule = match flag {
            f if f & TOP_FRAME != 0 => Rule::Root,
            f if f & SP_WRITE != 0 => Rule::Switch,
            _ => match self.stack_delta(half(func, 16)?, pc - start) {
                Some(delta) => {
                    Rule::Saved { from_bp: false, cfa: delta.checked_add(8)?, ip: -8, bp: None }
                }
                None => Rule::Unknown,
            },
        };
        Some((self.header.text + u64::from(start), rule))
    }

    /// The value of the table at `table` for the instruction `pc` bytes into its function: bytes that the stack pointer
    /// lies below the return address.
    fn stack_delta(&self, table: u32, pc: u32) -> Option<i32> {
        let mut bytes = self.bytes.get(usize::try_from(table).ok()?..)?;
        let (mut value, mut end, mut first) = (-1i64, 0u64, true);
        if table == 0 {
            return None;
        }
        loop {
            let delta = varint(&mut bytes)?;
            if delta == 0 && !first {
                return None;
            }
            first = false;
            value += i64::from(delta >> 1) ^ -i64::from(delta & 1);
            end += u64::from(varint(&mut bytes)?) * self.header.quantum;
            if u64::from(pc) < end {
                return i32::try_from(value).ok().filter(|v| *v >= 0);
            }
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in [0, 7, 14, 21, 28] {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The last of `count` ascending entries that is not above `pc`, and its index.
fn search(count: u64, pc: u32, entry: impl Fn(u64) -> Option<u32>) -> Option<(u32, u64)> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if entry(middle)? <= pc { low = middle + 1 } else { high = middle }
    }
    // Entry `count` is the end of text.
    let n = low.checked_sub(1)?;
    (low < count || entry(count).is_some_and(|end| pc < end)).then_some(())?;
    Some((entry(n)?, n))
}

/// The names of the functions at `starts`, read one by one: the table of a large program has tens of megabytes.
pub(crate) fn names(elf: &Elf, starts: &[u64]) -> Result<Vec<Option<String>>, ElfError> {
    let Some((header, offset, size)) = Header::read(elf)? else {
        return Ok(vec![None; starts.len()]);
    };
    let half_at = |at: u64| {
        let mut bytes = [0; 4];
        let at = offset.checked_add(header.table)?.checked_add(at)?;
        elf.image.fill(".gopclntab", at, &mut bytes).ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let name = |start: u64| {
        let pc = u32::try_from(start.checked_sub(header.text)?).ok()?;
        let (found, n) = search(header.functions, pc, |n| half_at(n.checked_mul(8)?))?;
        let func = u64::from(half_at(n.checked_mul(8)?.checked_add(4)?)?);
        let name = u64::from(half_at(func.checked_add(4)?)?);
        let at = offset.checked_add(header.names)?.checked_add(name)?;
        let text = elf.image.string(at, offset.saturating_add(size)).ok()?;
        (found == pc && !text.is_empty()).then_some(text)
    };
    Ok(starts.iter().map(|start| name(*start)).collect())
}
