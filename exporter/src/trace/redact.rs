//! Redaction: a trace that can be given away.
//!
//! Names become keyed hashes that keep their structure, addresses move by an offset per address space. Sizes, times,
//! process ids, device and inode numbers, and offsets in files stay: replay of a redacted trace closes the same books,
//! under other names, without first touch. Who has the key can test guesses, so it is drawn per trace and forgotten.
//!
//! Attribution reads some names (wrappers of allocators, `[heap]`, names that runtimes give to mappings). What it knows by
//! text is public; `known` tells, and such names stay.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hasher;
use std::io;
use std::sync::Arc;

use memprov_ledger::evidence::{
    Access, Activity, Backing, Change, Evidence, Frames, Lifecycle, Mapping, NodeRange, Placed,
    Region, Residency, Run, is_kernel,
};
use memprov_ledger::identity::{Extent, ModuleId, PAGE, Tgid};
use memprov_ledger::pages::PageSet;
use memprov_ledger::recall::{Recall, Remembered};
use memprov_ledger::stack::{Frame, Module, ModuleRole};
use memprov_ledger::touch::Sample;
use siphasher::sip128::{Hasher128, SipHasher24};

use super::line::{Header, Line};
use crate::report::Identity;

/// Addresses from here on are the kernel's, equal in every process (`[vsyscall]`): they do not move.
const USER_END: u64 = 1 << 56;
/// The bits above those that a hashed address has; all are set in addresses of the kernel.
const KERNEL: u64 = !(USER_END - 1);
/// Offsets are multiples of this, so that a huge page stays one.
const STEP: u64 = 2 << 20;
/// Log 2 of the number of offsets: moved addresses stay below 2^57.
const STEP_BITS: u32 = 25;
/// A letter for four bits of a hash. No digits and no hex digits: path templates replace runs of those.
const LETTERS: &[u8; 16] = b"ghijklmnopqrstuv";
/// Letters of a hashed word: 48 bits.
const WORD: u32 = 12;
/// Words that say what kind of object a path or cgroup names, and nothing about whose it is.
const KINDS: [&str; 16] = [
    "anon", "aio", "deleted", "dev", "hugepage", "inode", "io", "uring", "memfd", "scope",
    "service", "shm", "shmem", "slice", "so", "zero",
];

/// Redacts a trace line by line.
///
/// A child of fork has its parent's offset, because its addresses are its parent's; exec draws a new one. All spaces that
/// are older than the trace share one offset: which of them are relatives is not known when they first appear. Lines
/// come in the order of their time: evidence that overtakes the fork or exec of its own process moves by the offset
/// that held before.
pub struct Redactor {
    key: [u8; 16],
    known: fn(&str) -> bool,
    offsets: HashMap<Tgid, u64>,
    execs: u64,
    public: HashSet<ModuleId>,
}

/// What is hashed, so that equal bytes in different roles differ.
#[derive(Clone, Copy)]
enum Use {
    Word,
    Digits,
    Hex,
    Offset,
    Address,
}

impl Redactor {
    /// A redactor with a key of the operating system's randomness, which nobody learns. `known` tells which names
    /// attribution knows by text.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn new(known: fn(&str) -> bool) -> io::Result<Self> {
        let mut key = [0; 16];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self::with_key(key, known))
    }

    /// A redactor with this key: equal input, equal output.
    #[must_use]
    pub fn with_key(key: [u8; 16], known: fn(&str) -> bool) -> Self {
        Self { key, known, offsets: HashMap::new(), execs: 0, public: HashSet::new() }
    }

    /// The header of the redacted trace. It claims no sample of pages: whether a moved page was in it can no longer
    /// be told, and the seed would betray by how much it moved.
    #[must_use]
    pub fn header(&self, header: Header) -> Header {
        let identity = Identity {
            host_id: self.digits(&header.identity.host_id, Use::Hex),
            host_name: self.words(&header.identity.host_name),
            boot: header.identity.boot,
            attributes: BTreeMap::new(),
        };
        Header { identity, boot_id: None, sample: Sample::default(), redacted: true, ..header }
    }

    /// The redacted line.
    pub fn line(&mut self, line: Line) -> Line {
        match line {
            Line::Module { id, module } => {
                if module.role != ModuleRole::Code {
                    self.public.insert(id);
                }
                Line::Module { id, module: self.module(module) }
            }
            Line::Stack { id, mut stack } => {
                for frame in &mut Arc::make_mut(&mut stack).frames {
                    self.frame(frame);
                }
                Line::Stack { id, stack }
            }
            Line::Name { module, function, name } => {
                let public = self.public.contains(&module);
                let name = name.map(|n| if public { n } else { self.function(n) });
                Line::Name { module, function, name }
            }
            Line::Evidence(evidence) => Line::Evidence(self.evidence(evidence)),
            Line::Forget { .. } | Line::Watermark { .. } | Line::End { .. } => line,
        }
    }

    fn evidence(&mut self, evidence: Evidence) -> Evidence {
        match evidence {
            Evidence::Lifecycle(mut e) => {
                self.lifecycle(&mut e);
                Evidence::Lifecycle(e)
            }
            Evidence::Fault(mut e) => {
                e.address = rebase(e.address, self.offset(e.tgid));
                Evidence::Fault(e)
            }
            Evidence::Access(mut e) => {
                self.access(&mut e);
                Evidence::Access(e)
            }
            Evidence::Activity(mut e) => {
                self.activity(&mut e);
                Evidence::Activity(e)
            }
            Evidence::Frames(mut e) => {
                self.frames(&mut e);
                Evidence::Frames(e)
            }
            Evidence::Placed(mut e) => {
                self.placed(&mut e);
                Evidence::Placed(e)
            }
            Evidence::Residency(mut e) => {
                self.residency(&mut e);
                Evidence::Residency(e)
            }
            Evidence::Total(e) => Evidence::Total(e),
            Evidence::Recall(mut e) => {
                self.recall(&mut e);
                Evidence::Recall(e)
            }
            Evidence::Charge(mut e) => {
                e.cgroup = self.words(&e.cgroup).into();
                for file in &mut e.files {
                    file.path = self.path(&file.path);
                }
                Evidence::Charge(e)
            }
            Evidence::Gap(e) => Evidence::Gap(e),
        }
    }

    fn lifecycle(&mut self, e: &mut Lifecycle) {
        let offset = self.offset(e.tgid);
        let place = |extent: &mut Extent| *extent = moved(*extent, offset);
        match &mut e.change {
            Change::Map { extent, .. } | Change::Unmap { extent } | Change::Doubt { extent } => {
                place(extent)
            }
            Change::Vma { extent, path, .. } => {
                place(extent);
                *path = path.as_deref().map(|path| self.path(path));
            }
            Change::Remap { from, to, .. } => {
                place(from);
                place(to);
            }
            Change::Brk { old, new, .. } => {
                *old = rebase(*old, offset);
                *new = rebase(*new, offset);
            }
            Change::Attach { at, .. } | Change::Detach { at } => *at = rebase(*at, offset),
            Change::Name { extent, name } => {
                place(extent);
                *name = name.as_deref().map(|n| self.words(n).into());
            }
            Change::Fork { child, .. } => {
                self.offsets.insert(*child, offset);
            }
            Change::Exec => {
                self.execs += 1;
                self.offsets.insert(e.tgid, self.draw(self.execs));
            }
            Change::Exit => {}
        }
    }

    /// Addresses of the kernel and of physical memory are hashes: where the kernel lies is nobody's business either.
    fn access(&self, e: &mut Access) {
        let offset = self.offset(e.tgid.unwrap_or_default());
        let place = |address: u64| match is_kernel(address) {
            true => self.hidden(address) | KERNEL,
            false => rebase(address, offset),
        };
        e.address = e.address.map(place);
        e.ip = e.ip.map(place);
        e.frame = e.frame.map(|frame| self.hidden(frame));
    }

    /// Physical memory has an offset of its own, so that its regions keep their order and lengths.
    fn activity(&self, e: &mut Activity) {
        let offset = self.offset(e.tgid.unwrap_or_default());
        let place = |region: &Region| Region { extent: moved(region.extent, offset), ..*region };
        e.regions = e.regions.iter().map(place).collect();
    }

    /// Frames go where the regions of physical memory go that they lie in.
    fn frames(&self, e: &mut Frames) {
        let (offset, physical) = (self.offset(e.tgid), self.offset(Tgid::default()));
        let place =
            |run: &Run| Run { extent: moved(run.extent, offset), at: rebase(run.at, physical) };
        e.runs = e.runs.iter().map(place).collect();
    }

    fn placed(&self, e: &mut Placed) {
        let offset = self.offset(e.tgid);
        let place = |range: &NodeRange| {
            let extent = moved(range.extent, offset);
            NodeRange { extent, ..range.clone() }
        };
        e.ranges = e.ranges.as_ref().map(|ranges| ranges.iter().map(place).collect());
        let page =
            |(page, node): &(u64, u32)| (rebase(page.saturating_mul(PAGE), offset) / PAGE, *node);
        e.drawn = e.drawn.as_ref().map(|drawn| drawn.iter().map(page).collect());
    }

    fn residency(&self, e: &mut Residency) {
        let offset = self.offset(e.tgid);
        e.comm = self.words(&e.comm).into();
        e.layout = e.layout.map(|(stack, code)| (rebase(stack, offset), rebase(code, offset)));
        e.cgroup = e.cgroup.as_deref().map(|path| self.words(path).into());
        let mapping = |m: &Mapping| Mapping {
            extent: moved(m.extent, offset),
            path: m.path.as_deref().map(|path| self.path(path)),
            ..m.clone()
        };
        e.maps = e.maps.as_ref().map(|maps| maps.iter().map(mapping).collect());
        let pages = |pages: &Arc<PageSet>| {
            Arc::new(pages.all().map(|(extent, s)| (moved(extent, offset), s)).collect())
        };
        e.pages = e.pages.as_ref().map(pages);
    }

    /// Processes of one space share its offset, as after a fork.
    fn recall(&mut self, e: &mut Recall) {
        let Some((first, _)) = e.tgids.first() else { return };
        let offset = self.offset(*first);
        self.offsets.extend(e.tgids.iter().map(|(tgid, _)| (*tgid, offset)));
        e.layout = e.layout.map(|(stack, code)| (rebase(stack, offset), rebase(code, offset)));
        let moved = |known: &Remembered| {
            // Of an object it is no address.
            let object = known.backing.is_some_and(|backing| backing != Backing::Anonymous);
            let place = if object { known.offset } else { rebase(known.offset, offset) };
            Remembered { extent: moved(known.extent, offset), offset: place, ..*known }
        };
        e.pieces = e.pieces.iter().map(moved).collect();
    }

    fn module(&self, module: Module) -> Module {
        if module.role != ModuleRole::Code {
            return module;
        }
        let build_id = module.build_id.map(|id| self.digits(&id, Use::Hex));
        Module { name: self.words(&module.name), build_id, role: module.role }
    }

    /// Addresses of a module say nothing of a process; those of no module are its own.
    fn frame(&self, frame: &mut Frame) {
        if frame.module.is_none() {
            frame.address = self.hidden(frame.address);
            frame.function = frame.function.map(|f| self.hidden(f));
        }
    }

    fn hidden(&self, address: u64) -> u64 {
        low(self.hash(Use::Address, &address.to_le_bytes(), 0)) % USER_END
    }

    fn function(&self, name: String) -> String {
        if (self.known)(&name) { name } else { self.word(&name) }
    }

    /// A path as `maps` shows it. What is wholly in brackets and has no colon is the kernel's own name.
    fn path(&self, path: &str) -> Arc<str> {
        let own = path.starts_with('[') && path.ends_with(']') && !path.contains(':');
        if own { path.into() } else { self.words(path).into() }
    }

    /// Text with its words hashed and its punctuation kept.
    fn words(&self, text: &str) -> String {
        if (self.known)(text) {
            return text.to_owned();
        }
        let mut out = String::new();
        let mark = |c: char| c.is_ascii_punctuation() || c == ' ';
        for piece in text.split_inclusive(mark) {
            let (word, mark) = piece.split_at(piece.trim_end_matches(mark).len());
            self.token(word, &mut out);
            out.push_str(mark);
        }
        out
    }

    fn token(&self, token: &str, out: &mut String) {
        if KINDS.contains(&token) {
            out.push_str(token);
        } else if let Some(key) = token.strip_prefix("SYSV").filter(|key| key.len() == 8) {
            out.push_str("SYSV");
            out.push_str(&self.digits(key, Use::Hex));
        } else if hex(token) {
            out.push_str(&self.digits(token, Use::Hex));
        } else {
            for run in token.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
                // Cut at ASCII digits only: each run is UTF-8 as the whole is.
                let run = String::from_utf8_lossy(run);
                let digits = run.starts_with(|c: char| c.is_ascii_digit());
                match run.len() {
                    // Versions and ordinals.
                    ..=2 if digits => out.push_str(&run),
                    _ if digits => out.push_str(&self.digits(&run, Use::Digits)),
                    _ => out.push_str(&self.word(&run)),
                }
            }
        }
    }

    fn word(&self, word: &str) -> String {
        let hash = self.hash(Use::Word, word.as_bytes(), 0);
        (0..WORD).map(|i| char::from(LETTERS[usize::from(nibble(hash, i))])).collect()
    }

    /// As many digits as `text` has bytes; the first is decimal, so that it still reads as a number.
    fn digits(&self, text: &str, kind: Use) -> String {
        let base = if matches!(kind, Use::Hex) { 16 } else { 10 };
        let mut out = String::with_capacity(text.len());
        for block in 0u64.. {
            let hash = self.hash(kind, text.as_bytes(), block);
            for i in 0..32 {
                if out.len() == text.len() {
                    return out;
                }
                let base = if out.is_empty() { 10 } else { base };
                out.extend(char::from_digit(u32::from(nibble(hash, i)) % base, base));
            }
        }
        out
    }

    fn offset(&self, tgid: Tgid) -> u64 {
        self.offsets.get(&tgid).copied().unwrap_or_else(|| self.draw(0))
    }

    /// The offset of the `number`th space; 0 is those older than the trace.
    fn draw(&self, number: u64) -> u64 {
        let hash = low(self.hash(Use::Offset, &number.to_le_bytes(), 0));
        (hash & ((1 << STEP_BITS) - 1)) * STEP
    }

    fn hash(&self, kind: Use, bytes: &[u8], block: u64) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&[kind as u8]);
        hasher.write(&block.to_le_bytes());
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }
}

/// A number in hex as path templates see it: long, of digits and letters.
fn hex(token: &str) -> bool {
    token.len() >= 8
        && token.bytes().all(|b| b.is_ascii_hexdigit())
        && token.bytes().any(|b| b.is_ascii_digit())
        && token.bytes().any(|b| b.is_ascii_alphabetic())
}

fn nibble(hash: u128, index: u32) -> u8 {
    (hash >> (4 * index)).to_le_bytes()[0] & 15
}

fn low(hash: u128) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = hash.to_le_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn rebase(address: u64, offset: u64) -> u64 {
    if address < USER_END { address + offset } else { address }
}

fn moved(extent: Extent, offset: u64) -> Extent {
    Extent::new(rebase(extent.start, offset), extent.len())
}
