//! Files that lie: errors and missing frames, never a panic, a hang or a large allocation.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::cfi::{Cfi, Registers, Rule, Scratch, StackBytes, follow};
use super::elf::{Elf, ElfError, Image};
use super::gopclntab::{self, GoTable};
use super::names::symbols;
use super::testbed::Bench;

const LIMIT: u64 = 24 << 20;

/// Everything that is ever read of a module. Returns how many addresses had a function.
fn read_all(file: &File) -> Result<usize, ElfError> {
    let elf = Elf::parse(Image::file(file.try_clone().unwrap())?)?;
    elf.build_id();
    elf.role("a.out");
    elf.layout.address_of_offset(0x1000);
    let starts: Vec<u64> = elf
        .sections
        .iter()
        .filter(|s| [b".text".as_slice(), b".plt", b".init"].contains(&&*s.name))
        .flat_map(|s| (0..s.size.min(1 << 16)).step_by(97).map(|n| s.address.wrapping_add(n)))
        .chain([0, 1, u64::MAX])
        .collect();
    let mut scratch = Scratch::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let stack = StackBytes { start: 0x7000_0000, bytes: &bytes, complete: false };
    let mut found = 0;
    if let Ok(Some(cfi)) = Cfi::read(&elf, LIMIT) {
        for address in &starts {
            for at in [
                Registers { ip: *address, sp: stack.start, bp: stack.start + 64 },
                Registers { ip: *address, sp: u64::MAX, bp: u64::MAX },
                Registers { ip: *address, sp: 0, bp: 0 },
            ] {
                let Some((start, rule)) = cfi.rule(*address, &mut scratch) else { continue };
                assert!(start <= *address);
                found += 1;
                let after = match rule {
                    Rule::Expressions => {
                        cfi.evaluate(*address, at, &stack, &mut scratch).map(|(next, _)| next)
                    }
                    rule => follow(rule, at, &stack),
                };
                assert!(after.is_err() || after.is_ok_and(|next| next.sp > at.sp));
            }
        }
    }
    if let Ok(Some(go)) = GoTable::read(&elf, LIMIT) {
        found += starts.iter().filter(|address| go.rule(**address).is_some()).count();
    }
    let some = &starts[..starts.len().min(20)];
    for names in [gopclntab::names(&elf, some), symbols(&elf, some)].into_iter().flatten() {
        assert_eq!(names.len(), some.len());
        assert!(names.iter().flatten().all(|name| super::demangle::demangle(name).len() < 1 << 16));
    }
    Ok(found)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}

/// Programs, each with a copy of itself to spoil.
fn programs() -> Vec<(Vec<u8>, File)> {
    let Some(bench) = Bench::new(&["go"]) else { return Vec::new() };
    bench.build("gcc", &["-O2"], "program.c", "c");
    bench.build("go", &[], "program.go", "go");
    let with_copy = |name| {
        let bytes = std::fs::read(bench.path(name)).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        (bytes, file)
    };
    ["c", "go"].map(with_copy).into()
}

#[test]
fn spoiled_bytes_cost_frames_and_names_only() {
    for (bytes, file) in programs() {
        let whole = read_all(&file).unwrap();
        assert!(whole > 20, "{whole}");
        // Where lies hurt: headers, and the sections that are read.
        let elf = Elf::parse(Image::file(file.try_clone().unwrap()).unwrap()).unwrap();
        let read =
            [".eh_frame", ".gopclntab", ".symtab", ".dynsym", ".strtab", ".note.gnu.build-id"];
        let mut places = vec![(0, 0x400), (bytes.len() as u64 - 0xa00, 0xa00)];
        let sections = read.iter().filter_map(|name| elf.section(name));
        places.extend(sections.map(|s| (s.offset, s.size.min(0x2000))));
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let rounds = if bytes.len() > 1 << 20 { 60 } else { 1500 };
        for _ in 0..rounds {
            let mut spoiled = Vec::new();
            for _ in 0..=random.below(6) {
                let (offset, size) = random.of(&places);
                let at = offset + random.below(size);
                let noise = random.byte();
                let value = random.of(&[0, 0xff, 0x7f, 0x80, noise]);
                file.write_all_at(&[value], at).unwrap();
                spoiled.push(at);
            }
            // Whatever it answers, it answers.
            read_all(&file).unwrap_or(0);
            for at in spoiled {
                file.write_all_at(&bytes[usize::try_from(at).unwrap()..][..1], at).unwrap();
            }
        }
        assert_eq!(read_all(&file).unwrap(), whole, "the copy was restored");
    }
}

#[test]
fn a_file_cut_short_anywhere_is_an_error_or_less() {
    for (bytes, file) in programs() {
        let whole = read_all(&file).unwrap();
        for part in (0..24).rev() {
            file.set_len(bytes.len() as u64 * part / 24).unwrap();
            assert!(read_all(&file).unwrap_or(0) <= whole);
        }
        assert!(read_all(&file).is_err(), "an empty file is no ELF file");
    }
}

#[test]
fn noise_is_not_an_elf_file() {
    let file = tempfile::tempfile().unwrap();
    let mut random = Random(1);
    for _ in 0..200 {
        let noise: Vec<u8> = (0..600).map(|_| random.byte()).collect();
        file.write_all_at(&noise, 0).unwrap();
        assert!(read_all(&file).is_err());
        // With a good beginning the rest still lies.
        file.write_all_at(b"\x7fELF\x02\x01\x01", 0).unwrap();
        read_all(&file).unwrap_or(0);
    }
}

#[test]
fn an_expression_that_loops_for_ever_is_given_up() {
    // A CIE and an FDE for 0x1000..0x2000 whose frame address is `DW_OP_skip -3`.
    let mut section = Vec::new();
    let cie: &[u8] =
        &[0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1, 0, 0];
    section.extend(u32::try_from(cie.len()).unwrap().to_le_bytes());
    section.extend(cie);
    let mut fde = Vec::new();
    fde.extend(u32::try_from(section.len() + 4).unwrap().to_le_bytes());
    fde.extend(0x1000u64.to_le_bytes());
    fde.extend(0x1000u64.to_le_bytes());
    fde.extend([0, 0x0f, 3, 0x2f, 0xfd, 0xff]);
    fde.resize(fde.len().next_multiple_of(4), 0);
    section.extend(u32::try_from(fde.len()).unwrap().to_le_bytes());
    section.extend(fde);
    let cfi = Cfi::from_bytes(section.into(), Default::default());
    let mut scratch = Scratch::new();
    let (start, rule) = cfi.rule(0x1800, &mut scratch).unwrap();
    assert_eq!((start, rule), (0x1000, Rule::Expressions));
    let stack = StackBytes { start: 0x7000, bytes: &[0; 64], complete: false };
    let at = Registers { ip: 0x1800, sp: 0x7000, bp: 0 };
    assert!(cfi.evaluate(0x1800, at, &stack, &mut scratch).is_err());
}
