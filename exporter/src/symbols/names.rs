//! Names of functions, off the path of events.
//!
//! A name is that of the symbol that begins where the function begins, or of a sized symbol that holds it; never the
//! nearest one before it, which in a stripped file belongs to something else. Sources, in this order: `.gopclntab`,
//! `.symtab`, the separate debug file of the same build id, `.dynsym`, and perf maps for generated code.

use std::path::PathBuf;

use object::LittleEndian as LE;
use object::elf::{STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym64};
use object::pod::slice_from_bytes;

use super::demangle::demangle;
use super::elf::{Elf, ElfError, Image, Section};
use super::source::{ModuleSource, OpenError, SourceKind, open_of_host, open_perf_map};
use super::{gopclntab, perfmap};

/// Larger tables are not read.
const MAX_TABLE: u64 = 256 << 20;
const CHUNK: usize = 4096;
/// Symbols considered for one address.
const MAX_ALIASES: usize = 8;
/// Steps spent on symbols that hold several of the addresses asked for.
const MAX_COVERED: usize = 1 << 24;

/// Finds names. It reads files and may take long: it belongs on a thread of its own.
#[derive(Debug)]
pub struct Namer {
    root: PathBuf,
}

impl Namer {
    /// A namer of the host whose files are at `root`.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The demangled names of the functions at `functions` (ELF virtual addresses; for generated code any address).
    /// `None`: nothing names it.
    ///
    /// # Errors
    /// When the module cannot be read now. What it would have said is unknown, not absent.
    pub fn names(
        &self,
        module: &ModuleSource,
        functions: &[u64],
    ) -> Result<Vec<Option<String>>, OpenError> {
        if let SourceKind::PerfMap { root, tgid, place } = &module.kind {
            let file = open_perf_map(root, *tgid, place)?;
            let read = |source| ElfError::Read { what: "perf map", source }.into();
            return perfmap::names(file, functions).map_err(read);
        }
        let elf = module.elf()?;
        let mut names = gopclntab::names(&elf, functions).unwrap_or(vec![None; functions.len()]);
        let debug = match elf.symbol_tables().next() {
            Some((table, _)) if table.is_full() => None,
            _ => self.debug_file(module),
        };
        for elf in debug.iter().chain([&elf]) {
            let missing = |n: &usize| names.get(*n).is_some_and(Option::is_none);
            let missing: Vec<usize> = (0..functions.len()).filter(missing).collect();
            let asked: Vec<u64> =
                missing.iter().filter_map(|n| functions.get(*n).copied()).collect();
            for (n, name) in missing.into_iter().zip(symbols(elf, &asked)?) {
                if let Some(slot) = names.get_mut(n) {
                    *slot = name.map(|name| demangle(&name));
                }
            }
        }
        Ok(names)
    }

    /// `/usr/lib/debug/.build-id/xx/….debug`, as gdb documents it.
    fn debug_file(&self, module: &ModuleSource) -> Option<Elf> {
        let id = module.build_id.as_deref()?;
        let (first, rest) = id.split_at_checked(2)?;
        let dir = self.root.join("usr/lib/debug/.build-id").join(first);
        let file = open_of_host(&dir.join(format!("{rest}.debug"))).ok()?;
        let elf = Elf::parse(Image::file(file).ok()?).ok()?;
        (elf.build_id().as_deref() == Some(id)).then_some(elf)
    }
}

#[derive(Clone, Debug)]
struct Candidate {
    exact: bool,
    typed: bool,
    global: bool,
    name: u64,
    strings_end: u64,
}

/// The raw names of the symbols at `functions`.
pub(crate) fn symbols(elf: &Elf, functions: &[u64]) -> Result<Vec<Option<String>>, ElfError> {
    let mut wanted: Vec<u64> = functions.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    let mut found: Vec<Vec<Candidate>> = vec![Vec::new(); wanted.len()];
    let mut covered = 0;
    for (table, strings) in elf.symbol_tables() {
        scan(elf, table, strings, &wanted, &mut found, &mut covered)?;
    }
    let chosen: Vec<Option<String>> =
        found.iter().map(|candidates| choose(elf, candidates)).collect();
    let of = |f: &u64| wanted.binary_search(f).ok().and_then(|n| chosen.get(n)?.clone());
    Ok(functions.iter().map(of).collect())
}

fn scan(
    elf: &Elf,
    table: &Section,
    strings: &Section,
    wanted: &[u64],
    found: &mut [Vec<Candidate>],
    covered: &mut usize,
) -> Result<(), ElfError> {
    let entry = size_of::<Sym64<LE>>() as u64;
    let mut left = table.size / entry;
    if table.size > MAX_TABLE {
        return Err(ElfError::Bounds {
            what: "symbol table",
            offset: table.offset,
            len: table.size,
        });
    }
    let mut offset = table.offset;
    while left > 0 {
        let count = left.min(CHUNK as u64);
        let bytes = elf.image.read("symbol table", offset, count * entry, MAX_TABLE)?;
        let count = usize::try_from(count).unwrap_or(CHUNK);
        let (symbols, _) = slice_from_bytes::<Sym64<LE>>(&bytes, count)
            .map_err(|()| ElfError::Format { what: "symbol table" })?;
        for symbol in symbols {
            let (start, size) = (symbol.st_value.get(LE), symbol.st_size.get(LE));
            let kind = symbol.st_info.st_type();
            let typed = kind == STT_FUNC || kind == STT_GNU_IFUNC;
            if symbol.st_shndx.get(LE).0 == 0 || !(typed || kind == STT_NOTYPE) {
                continue;
            }
            let end = if typed { start.saturating_add(size) } else { start };
            let first = wanted.partition_point(|w| *w < start);
            for (address, candidates) in wanted.iter().zip(found.iter_mut()).skip(first) {
                if *address != start && *address >= end || *covered > MAX_COVERED {
                    break;
                }
                *covered += 1;
                if candidates.len() < MAX_ALIASES {
                    candidates.push(Candidate {
                        exact: *address == start,
                        typed,
                        global: symbol.st_info.st_bind() != STB_LOCAL,
                        name: strings.offset.saturating_add(symbol.st_name.get(LE).into()),
                        strings_end: strings.offset.saturating_add(strings.size),
                    });
                }
            }
        }
        offset = offset.saturating_add(bytes.len() as u64);
        left -= count as u64;
    }
    Ok(())
}

/// The best of several names of one function, the same whichever table they come from: where it begins, exported,
/// the plainest.
fn choose(elf: &Elf, candidates: &[Candidate]) -> Option<String> {
    let names = candidates.iter().filter_map(|c| {
        let name = elf.image.string(c.name, c.strings_end).ok().filter(|n| !n.is_empty())?;
        let underscores = name.bytes().take_while(|b| *b == b'_').count();
        Some(((!c.exact, !c.typed, !c.global, underscores, name.len()), name))
    });
    names.min().map(|(_, name)| name)
}
