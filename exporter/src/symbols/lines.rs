//! Source files and line numbers, on request only: they cost tens of megabytes of debug information.
//!
//! For the client, in its own process: debug information is read through a memory mapping.

use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

/// A place in source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file, as the compiler was given it.
    pub file: String,
    /// The line, where known.
    pub line: Option<u32>,
}

/// Where the instructions at `addresses` (ELF virtual addresses) of the ELF file at `path` come from, by its own or its
/// separate debug information. `None`: nothing tells.
///
/// # Errors
/// When the file cannot be read.
pub fn lines(path: &Path, addresses: &[u64]) -> Result<Vec<Option<Line>>, blazesym::Error> {
    let source = Source::Elf(Elf::new(path));
    let symbolizer = Symbolizer::new();
    let symbolized = symbolizer.symbolize(&source, Input::VirtOffset(addresses))?;
    let line = |place: &blazesym::symbolize::CodeInfo<'_>| Line {
        file: place.to_path().to_string_lossy().into_owned(),
        line: place.line,
    };
    let of = |found: &blazesym::symbolize::Symbolized<'_>| {
        found.as_sym().and_then(|sym| sym.code_info.as_deref()).map(line)
    };
    Ok(symbolized.iter().map(of).collect())
}
