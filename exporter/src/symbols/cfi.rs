//! Call frame information: which function holds an address, and where its caller is.
//!
//! Format: `.eh_frame` as in the LSB core specification, call frame instructions as in DWARF 5 §6.4. Only `rip`, `rsp`
//! and `rbp` are recovered; a canonical frame address that needs another register is not found. Sections are read once
//! into a sorted table; `.eh_frame_hdr` is not needed (static programs have none). A hostile section costs no more
//! than its size: entries, expressions and depth are bounded.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, Evaluation, EvaluationResult,
    LittleEndian, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
    X86_64,
};
use memprov_ledger::stack::StackEnd;

use super::elf::{Elf, ElfError};

type Section<'a> = EhFrame<EndianSlice<'a, LittleEndian>>;
/// Scratch memory of [`Cfi::rule`].
pub(crate) type Scratch = UnwindContext<usize>;

/// Entries longer than this are not used: their instructions are run for one address at a time.
const MAX_ENTRY: usize = 64 << 10;
/// An entry is hardly ever shorter: two lengths, address and size of 4 bytes each, a byte or more, padding.
const MIN_ENTRY: usize = 20;
const MAX_OPERATIONS: u32 = 64;

/// The registers that unwinding recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
}

/// The copied part of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackBytes<'a> {
    /// Address of the first byte.
    pub(crate) start: u64,
    /// The bytes.
    pub(crate) bytes: &'a [u8],
    /// There is no more stack behind them.
    pub(crate) complete: bool,
}

impl StackBytes<'_> {
    /// The word at `address`; why unwinding ends when it is not in the copy.
    pub(crate) fn word(&self, address: u64) -> Result<u64, StackEnd> {
        let at = address.checked_sub(self.start).ok_or(StackEnd::Lost)?;
        let word = usize::try_from(at)
            .ok()
            .and_then(|at| self.bytes.get(at..at.checked_add(8)?))
            .and_then(|word| word.try_into().ok());
        match word {
            Some(word) => Ok(u64::from_le_bytes(word)),
            None if self.complete => Err(StackEnd::Lost),
            None => Err(StackEnd::Cut),
        }
    }
}

/// How to get from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Everything is saved at a fixed distance from the canonical frame address.
    Saved {
        /// The frame address counts from `rbp`, else from `rsp`.
        from_bp: bool,
        /// The frame address minus that register.
        cfa: i32,
        /// Where the return address is, from the frame address.
        ip: i32,
        /// Where `rbp` is saved, from the frame address; `None` when it is still in the register.
        bp: Option<i32>,
    },
    /// Something is a DWARF expression: procedure linkage tables, signal frames, hand-written code.
    Expressions,
    /// The frame address is in `rbp` by convention: no information covers the address.
    FramePointer,
    /// The outermost frame: its return address is undefined.
    Root,
    /// The stack was switched here.
    Switch,
    /// Information that this unwinder cannot follow.
    Unknown,
}

/// Follows a rule; for [`Rule::Expressions`] see [`Cfi::evaluate`].
pub(crate) fn follow(
    rule: Rule,
    at: Registers,
    stack: &StackBytes<'_>,
) -> Result<Registers, StackEnd> {
    let (cfa, ip, bp) = match rule {
        Rule::Saved { from_bp, cfa, ip, bp } => {
            let base = if from_bp { at.bp } else { at.sp };
            (base.wrapping_add_signed(cfa.into()), ip, bp)
        }
        Rule::FramePointer if at.bp == 0 => return Err(StackEnd::Root),
        Rule::FramePointer if at.bp.is_multiple_of(8) => (at.bp.wrapping_add(16), -8, Some(-16)),
        Rule::Root => return Err(StackEnd::Root),
        Rule::Switch => return Err(StackEnd::Switch),
        Rule::Expressions | Rule::FramePointer | Rule::Unknown => return Err(StackEnd::Lost),
    };
    // The stack grows down: every frame lies above the one that it called.
    if cfa <= at.sp {
        return Err(StackEnd::Lost);
    }
    let ip = stack.word(cfa.wrapping_add_signed(ip.into()))?;
    let bp = match bp {
        Some(offset) => saved_bp(cfa.wrapping_add_signed(offset.into()), at, stack)?,
        None => at.bp,
    };
    Ok(Registers { ip, sp: cfa, bp })
}

/// `rbp` as saved at `address`. In an epilogue it may be popped already, and then still be in the register: compilers
/// leave out the instruction that says so.
fn saved_bp(address: u64, at: Registers, stack: &StackBytes<'_>) -> Result<u64, StackEnd> {
    if address < at.sp { Ok(at.bp) } else { stack.word(address) }
}

#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    len: u32,
    entry: u32,
}

/// The call frame information of one module.
#[derive(Debug)]
pub(crate) struct Cfi {
    bytes: Box<[u8]>,
    bases: BaseAddresses,
    functions: Box<[Function]>,
}

impl Cfi {
    /// Reads `.eh_frame`, at most `limit` bytes of it; `None` when there is none.
    pub(crate) fn read(elf: &Elf, limit: u64) -> Result<Option<Self>, ElfError> {
        let Some(section) = elf.section(".eh_frame") else { return Ok(None) };
        let bytes = elf.image.read(".eh_frame", section.offset, section.size, limit)?;
        let address = |name| elf.section(name).map_or(0, |s| s.address);
        let bases = BaseAddresses::default()
            .set_eh_frame(section.address)
            .set_text(address(".text"))
            .set_got(address(".got"));
        Ok(Some(Self::from_bytes(bytes.into(), bases)))
    }

    /// Indexes the bytes of an `.eh_frame` section.
    pub(crate) fn from_bytes(bytes: Box<[u8]>, bases: BaseAddresses) -> Self {
        let functions = functions(&Self::section(&bytes), bytes.len(), &bases);
        Self { bytes, bases, functions }
    }

    fn section(bytes: &[u8]) -> Section<'_> {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    /// Bytes of memory.
    pub(crate) fn footprint(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.functions)
    }

    fn find(&self, address: u64) -> Option<&Function> {
        let behind = self.functions.partition_point(|f| f.start <= address);
        let function = self.functions.get(behind.checked_sub(1)?)?;
        (address - function.start < u64::from(function.len)).then_some(function)
    }

    /// The start of the function that holds `address` and the rule at that address.
    pub(crate) fn rule(&self, address: u64, scratch: &mut Scratch) -> Option<(u64, Rule)> {
        let function = self.find(address)?;
        let rule = self.row(function, address, scratch, |_, _, row| {
            let ip = row.register(X86_64::RA);
            let bp = match row.register(X86_64::RBP) {
                None | Some(RegisterRule::SameValue) => Ok(None),
                Some(RegisterRule::Offset(at)) => i32::try_from(at).map(Some).map_err(|_| ()),
                Some(_) => Err(()),
            };
            match (row.cfa(), ip, bp) {
                (_, Some(RegisterRule::Undefined), _) => Rule::Root,
                (
                    CfaRule::RegisterAndOffset { register, offset },
                    Some(RegisterRule::Offset(ip)),
                    Ok(bp),
                ) => match (*register, i32::try_from(*offset), i32::try_from(ip)) {
                    (r, Ok(cfa), Ok(ip)) if r == X86_64::RSP || r == X86_64::RBP => {
                        Rule::Saved { from_bp: r == X86_64::RBP, cfa, ip, bp }
                    }
                    _ => Rule::Unknown,
                },
                (_, Some(_), _) => Rule::Expressions,
                (_, None, _) => Rule::Unknown,
            }
        });
        Some((function.start, rule.unwrap_or(Rule::Unknown)))
    }

    /// Follows [`Rule::Expressions`]. The flag says that the caller was interrupted by a signal: its address is not a
    /// return address.
    pub(crate) fn evaluate(
        &self,
        address: u64,
        at: Registers,
        stack: &StackBytes<'_>,
        scratch: &mut Scratch,
    ) -> Result<(Registers, bool), StackEnd> {
        let function = self.find(address).ok_or(StackEnd::Lost)?;
        self.row(function, address, scratch, |section, signal, row| {
            let run = |expression: &UnwindExpression<usize>, first| {
                evaluate(section, expression, first, at, stack)
            };
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    register_of(at, *register)?.wrapping_add_signed(*offset)
                }
                CfaRule::Expression(expression) => run(expression, None)?,
            };
            let saved = |rule: Option<RegisterRule<usize>>, now| match rule {
                None | Some(RegisterRule::SameValue) => Ok(now),
                Some(RegisterRule::Offset(n)) => stack.word(cfa.wrapping_add_signed(n)),
                Some(RegisterRule::ValOffset(n)) => Ok(cfa.wrapping_add_signed(n)),
                Some(RegisterRule::Expression(e)) => stack.word(run(&e, Some(cfa))?),
                Some(RegisterRule::ValExpression(e)) => run(&e, Some(cfa)),
                Some(_) => Err(StackEnd::Lost),
            };
            let ip = saved(row.register(X86_64::RA), at.ip)?;
            let bp = saved(row.register(X86_64::RBP), at.bp)?;
            // A signal frame may go back to another stack, which the copy does not hold.
            if cfa <= at.sp {
                Err(StackEnd::Lost)
            } else {
                Ok((Registers { ip, sp: cfa, bp }, signal))
            }
        })
        .unwrap_or(Err(StackEnd::Lost))
    }

    fn row<T>(
        &self,
        function: &Function,
        address: u64,
        scratch: &mut Scratch,
        then: impl FnOnce(&Section<'_>, bool, &gimli::UnwindTableRow<usize>) -> T,
    ) -> Option<T> {
        let section = Self::section(&self.bytes);
        let at = usize::try_from(function.entry).ok()?.into();
        let fde = section.fde_from_offset(&self.bases, at, Section::cie_from_offset).ok()?;
        let row = fde.unwind_info_for_address(&section, &self.bases, scratch, address).ok()?;
        Some(then(&section, fde.is_signal_trampoline(), row))
    }
}

/// All functions, by start. What follows a broken entry is unknown, so reading ends there.
fn functions(section: &Section<'_>, len: usize, bases: &BaseAddresses) -> Box<[Function]> {
    // Room that is not used costs no memory; a table that grows in steps costs two or three times its own.
    let mut found = Vec::with_capacity(len / MIN_ENTRY);
    let mut entries = section.entries(bases);
    let mut last = None;
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        if partial.entry_len() > MAX_ENTRY {
            continue;
        }
        // Entries of one CIE come in a row: parse it once.
        let fde = partial.parse(|section, bases, offset| match &last {
            Some((at, cie)) if *at == offset => Ok(Clone::clone(cie)),
            _ => {
                let cie = section.cie_from_offset(bases, offset)?;
                if cie.entry_len() > MAX_ENTRY {
                    return Err(gimli::Error::NoUnwindInfoForAddress);
                }
                last = Some((offset, cie.clone()));
                Ok(cie)
            }
        });
        let Ok(fde) = fde else { continue };
        if let (Ok(len), Ok(entry)) = (u32::try_from(fde.len()), u32::try_from(fde.offset())) {
            found.push(Function { start: fde.initial_address(), len, entry });
        }
    }
    found.sort_unstable_by_key(|f| (f.start, f.len));
    found.into()
}

fn register_of(at: Registers, register: Register) -> Result<u64, StackEnd> {
    match register {
        X86_64::RSP => Ok(at.sp),
        X86_64::RBP => Ok(at.bp),
        X86_64::RA => Ok(at.ip),
        _ => Err(StackEnd::Lost),
    }
}

fn evaluate(
    section: &Section<'_>,
    expression: &UnwindExpression<usize>,
    first: Option<u64>,
    at: Registers,
    stack: &StackBytes<'_>,
) -> Result<u64, StackEnd> {
    let lost = |_: gimli::Error| StackEnd::Lost;
    let code = expression.get(section).map_err(lost)?;
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
    let mut evaluation: Evaluation<_> = code.evaluation(encoding);
    evaluation.set_max_iterations(MAX_OPERATIONS);
    if let Some(value) = first {
        evaluation.set_initial_value(value);
    }
    let mut state = evaluation.evaluate().map_err(lost)?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = Value::Generic(register_of(at, register)?);
                evaluation.resume_with_register(value).map_err(lost)?
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                let value = Value::Generic(stack.word(address)?);
                evaluation.resume_with_memory(value).map_err(lost)?
            }
            _ => return Err(StackEnd::Lost),
        };
    }
    match evaluation.as_result() {
        [gimli::Piece { location: gimli::Location::Address { address }, .. }] => Ok(*address),
        _ => Err(StackEnd::Lost),
    }
}
