//! ELF files by bounded, positioned reads.
//!
//! Files belong to whoever wrote them: every offset is checked against the file, every length against a limit, and
//! nothing is memory-mapped (a file that is cut short under a mapping kills its reader with `SIGBUS`). Formats: System V
//! ABI, `elf.h`; build ids are notes `GNU`/3 (GNU ld) and `Go`/4 (Go's linker).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memprov_ledger::stack::ModuleRole;
use object::LittleEndian as LE;
use object::elf;
use object::pod::{from_bytes, slice_from_bytes};

use super::text;

const MAX_PROGRAM_HEADERS: usize = 256;
const MAX_SECTIONS: usize = 4096;
const MAX_SECTION_NAMES: u64 = 1 << 20;
const MAX_NOTES: u64 = 64 << 10;
const MAX_STRING: u64 = 4096;

/// Why an ELF file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// Reading failed.
    #[error("read {what} of an ELF file")]
    Read {
        /// What was read.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Something lies outside the file or is larger than memprov reads.
    #[error("{what} of an ELF file is out of bounds: {len} bytes at {offset:#x}")]
    Bounds {
        /// What it is.
        what: &'static str,
        /// Where it should be.
        offset: u64,
        /// How long it should be.
        len: u64,
    },
    /// Not a 64-bit little-endian ELF file, or one that contradicts itself.
    #[error("bad {what} in an ELF file")]
    Format {
        /// What is wrong.
        what: &'static str,
    },
}

/// The bytes of an ELF image: a file, or a part of a process' memory.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    base: u64,
    size: u64,
}

impl Image {
    /// All of a regular file.
    pub(crate) fn file(file: File) -> Result<Self, ElfError> {
        let size = file.metadata().map_err(|source| ElfError::Read { what: "size", source })?.len();
        Ok(Self { file, base: 0, size })
    }

    /// `size` bytes from `base`.
    pub(crate) fn part(file: File, base: u64, size: u64) -> Self {
        Self { file, base, size }
    }

    fn check(&self, what: &'static str, offset: u64, len: u64) -> Result<usize, ElfError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size);
        match usize::try_from(len) {
            Ok(n) if inside => Ok(n),
            _ => Err(ElfError::Bounds { what, offset, len }),
        }
    }

    /// `len` bytes at `offset`, refused when they are more than `limit`.
    pub(crate) fn read(
        &self,
        what: &'static str,
        offset: u64,
        len: u64,
        limit: u64,
    ) -> Result<Vec<u8>, ElfError> {
        if len > limit {
            return Err(ElfError::Bounds { what, offset, len });
        }
        let mut bytes = vec![0; self.check(what, offset, len)?];
        self.fill(what, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `into` from `offset`.
    pub(crate) fn fill(
        &self,
        what: &'static str,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ElfError> {
        self.check(what, offset, into.len() as u64)?;
        self.file
            .read_exact_at(into, self.base.saturating_add(offset))
            .map_err(|source| ElfError::Read { what, source })
    }

    /// The zero-terminated string at `offset`, at most 4 KiB and not beyond `end`, as lossless text.
    pub(crate) fn string(&self, offset: u64, end: u64) -> Result<String, ElfError> {
        let len = MAX_STRING.min(end.min(self.size).saturating_sub(offset));
        let mut bytes = [0; 256];
        let mut all = Vec::new();
        while (all.len() as u64) < len {
            let want = (len - all.len() as u64).min(256);
            let part = &mut bytes[..usize::try_from(want).unwrap_or(0)];
            self.fill("string", offset + all.len() as u64, part)?;
            if let Some(zero) = part.iter().position(|b| *b == 0) {
                all.extend_from_slice(&part[..zero]);
                return Ok(text::lossless(&all));
            }
            all.extend_from_slice(part);
        }
        Err(ElfError::Format { what: "string" })
    }
}

/// A section header.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// Name.
    pub(crate) name: Box<[u8]>,
    /// Address in memory, before relocation.
    pub(crate) address: u64,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// `sh_link`: for a symbol table the index of its strings.
    pub(crate) link: u32,
    kind: u32,
}

impl Section {
    /// A symbol table with all symbols, not only those for dynamic linking.
    pub(crate) fn is_full(&self) -> bool {
        self.kind == elf::SHT_SYMTAB.0
    }
}

/// Where a file's bytes are in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout(Box<[Load]>);

impl Layout {
    /// The address before relocation of the byte at `offset` in the file, as an executable segment maps it.
    ///
    /// `offset` is that of a mapping, a multiple of the page size: segments are mapped in whole pages.
    pub(crate) fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let load = self.0.iter().find(|l| {
            let first = l.offset & !0xfff;
            l.executable && offset >= first && offset < l.offset.saturating_add(l.size)
        })?;
        Some(load.address.wrapping_add(offset.wrapping_sub(load.offset)))
    }
}

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
struct Load {
    offset: u64,
    size: u64,
    address: u64,
    executable: bool,
}

/// The headers of an ELF file.
#[derive(Debug)]
pub(crate) struct Elf {
    /// The file.
    pub(crate) image: Image,
    /// Its sections by index; empty when it has none or they are broken.
    pub(crate) sections: Vec<Section>,
    /// Its loadable segments.
    pub(crate) layout: Layout,
    notes: Vec<(u64, u64)>,
}

impl Elf {
    /// Reads the headers.
    pub(crate) fn parse(image: Image) -> Result<Self, ElfError> {
        let bytes = image.read("header", 0, size_of::<elf::FileHeader64<LE>>() as u64, 64)?;
        let (header, _) = from_bytes::<elf::FileHeader64<LE>>(&bytes)
            .map_err(|()| ElfError::Format { what: "header" })?;
        let ident = &header.e_ident;
        if ident.magic != elf::ELFMAG
            || ident.class != elf::ELFCLASS64
            || ident.data != elf::ELFDATA2LSB
        {
            return Err(ElfError::Format { what: "magic, class or byte order" });
        }
        let count = usize::from(header.e_phnum.get(LE)).min(MAX_PROGRAM_HEADERS);
        let entry = size_of::<elf::ProgramHeader64<LE>>();
        if usize::from(header.e_phentsize.get(LE)) != entry && count > 0 {
            return Err(ElfError::Format { what: "program header size" });
        }
        let bytes = image.read(
            "program headers",
            header.e_phoff.get(LE),
            (count * entry) as u64,
            u64::MAX,
        )?;
        let (segments, _) = slice_from_bytes::<elf::ProgramHeader64<LE>>(&bytes, count)
            .map_err(|()| ElfError::Format { what: "program headers" })?;
        let (mut loads, mut notes) = (Vec::new(), Vec::new());
        for segment in segments {
            let (offset, size) = (segment.p_offset.get(LE), segment.p_filesz.get(LE));
            match segment.p_type.get(LE) {
                elf::PT_LOAD => loads.push(Load {
                    offset,
                    size,
                    address: segment.p_vaddr.get(LE),
                    executable: segment.p_flags.get(LE).0 & elf::PF_X.0 != 0,
                }),
                elf::PT_NOTE => notes.push((offset, size)),
                _ => {}
            }
        }
        // A file without usable section headers is still a module: it has loads and perhaps a build id.
        let sections = Self::sections(&image, header).unwrap_or_default();
        Ok(Self { image, sections, layout: Layout(loads.into()), notes })
    }

    fn sections(image: &Image, header: &elf::FileHeader64<LE>) -> Result<Vec<Section>, ElfError> {
        let count = usize::from(header.e_shnum.get(LE)).min(MAX_SECTIONS);
        let entry = size_of::<elf::SectionHeader64<LE>>();
        if count == 0 || usize::from(header.e_shentsize.get(LE)) != entry {
            return Ok(Vec::new());
        }
        let bytes = image.read(
            "section headers",
            header.e_shoff.get(LE),
            (count * entry) as u64,
            u64::MAX,
        )?;
        let (raw, _) = slice_from_bytes::<elf::SectionHeader64<LE>>(&bytes, count)
            .map_err(|()| ElfError::Format { what: "section headers" })?;
        let names = raw
            .get(usize::from(header.e_shstrndx.get(LE).0))
            .ok_or(ElfError::Format { what: "section name index" })?;
        let names = image.read(
            "section names",
            names.sh_offset.get(LE),
            names.sh_size.get(LE),
            MAX_SECTION_NAMES,
        )?;
        let name = |at: u32| {
            let rest = usize::try_from(at).ok().and_then(|at| names.get(at..)).unwrap_or(&[]);
            rest.iter().take(64).take_while(|b| **b != 0).copied().collect()
        };
        Ok(raw
            .iter()
            .map(|s| Section {
                name: name(s.sh_name.get(LE)),
                address: s.sh_addr.get(LE),
                offset: s.sh_offset.get(LE),
                size: s.sh_size.get(LE),
                link: s.sh_link.get(LE),
                kind: s.sh_type.get(LE).0,
            })
            .collect())
    }

    /// The section of that name which has bytes in the file.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        let has_bytes = |s: &&Section| s.kind != elf::SHT_NOBITS.0 && s.size > 0;
        self.sections.iter().filter(has_bytes).find(|s| *s.name == *name.as_bytes())
    }

    /// Tables of symbols with their strings: `.symtab` before `.dynsym`.
    pub(crate) fn symbol_tables(&self) -> impl Iterator<Item = (&Section, &Section)> {
        [elf::SHT_SYMTAB.0, elf::SHT_DYNSYM.0].into_iter().filter_map(|kind| {
            let table = self.sections.iter().find(|s| s.kind == kind)?;
            Some((table, self.sections.get(usize::try_from(table.link).ok()?)?))
        })
    }

    /// The GNU build id in hex, or Go's, or none.
    pub(crate) fn build_id(&self) -> Option<String> {
        let notes = self.notes.iter().copied();
        let sections = self.sections.iter().filter(|s| s.kind == elf::SHT_NOTE.0);
        let notes: Vec<_> = notes.chain(sections.map(|s| (s.offset, s.size))).take(64).collect();
        let id = |owner: &[u8], kind: u32| {
            notes.iter().find_map(|(offset, size)| {
                let bytes = self.image.read("notes", *offset, *size, MAX_NOTES).ok()?;
                note(&bytes, owner, kind)
            })
        };
        id(b"GNU\0", elf::NT_GNU_BUILD_ID.0).or_else(|| id(b"Go\0\0", 4))
    }

    /// What a file of this name and content is to attribution.
    pub(crate) fn role(&self, name: &str) -> ModuleRole {
        match role_of_name(name) {
            ModuleRole::Code if self.section(".gopclntab").is_some() => ModuleRole::Go,
            role => role,
        }
    }
}

/// The description of the note `owner`/`kind`, in hex; notes are aligned to 4 bytes.
fn note(mut bytes: &[u8], owner: &[u8], kind: u32) -> Option<String> {
    loop {
        let word = |at: usize| {
            let raw: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_le_bytes(raw)).ok()
        };
        let (name_len, len, this) = (word(0)?, word(4)?, word(8)?);
        let start = name_len.checked_next_multiple_of(4)?.checked_add(12)?;
        let end = start.checked_add(len)?;
        let name = bytes.get(12..12usize.checked_add(name_len)?)?;
        if name == owner && u32::try_from(this).ok()? == kind && (1..=128).contains(&len) {
            return Some(text::hex(bytes.get(start..end)?));
        }
        bytes = bytes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

/// What a file of this name is to attribution, as far as names tell: names of Debian, Fedora, Alpine and upstream.
pub(crate) fn role_of_name(name: &str) -> ModuleRole {
    let is = |prefixes: &[&str]| {
        prefixes
            .iter()
            .any(|p| name.strip_prefix(p).is_some_and(|rest| rest.starts_with(['.', '-', '_'])))
    };
    // Of a C library split into several files any may be between a caller and the kernel.
    if is(&["libc", "ld", "ld64", "libpthread", "ld-linux", "ld-musl", "libdl", "librt"]) {
        ModuleRole::Libc
    } else if is(&["libstdc++", "libgcc_s", "libc++", "libc++abi", "libunwind", "libsupc++"]) {
        ModuleRole::Runtime
    } else if is(&["libjemalloc"]) {
        ModuleRole::Jemalloc
    } else if is(&["libtcmalloc"]) {
        ModuleRole::Tcmalloc
    } else if is(&["libmimalloc"]) {
        ModuleRole::Mimalloc
    } else {
        ModuleRole::Code
    }
}
