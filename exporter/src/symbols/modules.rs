//! The table of modules, and what is kept of them for unwinding.
//!
//! A module is a file, told from others by device, inode, size and time of change. Build ids are labels, not keys: they
//! are whatever the file says, and one tenant's file must not decide how another's stacks are unwound or named.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memprov_ledger::identity::{ModuleId, Tgid};
use memprov_ledger::stack::{Module, ModuleRole, StackEnd};

use super::cfi::{Cfi, Registers, Rule, Scratch, StackBytes, follow};
use super::elf::{Elf, Image, Layout, role_of_name};
use super::gopclntab::GoTable;
use super::segments::{Binding, Code, Segment, process_dir};
use super::source::{FileIdentity, ModuleSource, OpenError, Place, SourceKind, open_segment, vdso};
use super::text;

/// Rules remembered, over all modules.
const CACHED_RULES: usize = 8192;
/// Failed openings of a module after which the next process that has it is waited for.
const MAX_FAILURES: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    File(FileIdentity),
    /// Files that cannot be opened, as `maps` names them.
    Closed(super::segments::Inode),
    Vdso,
    /// Generated code of one program run.
    Generated(Tgid, u64),
}

#[derive(Debug)]
struct Entry {
    module: Module,
    layout: Layout,
    source: ModuleSource,
    unwind: Unwind,
    told: bool,
}

#[derive(Debug)]
enum Unwind {
    Unread { failures: u8 },
    None,
    Read { cfi: Option<Box<Cfi>>, go: Option<Box<GoTable>>, used: u64 },
}

impl Unwind {
    /// What can be read; broken tables cost their own functions.
    fn read(elf: &Elf, limit: u64) -> Self {
        let cfi = Cfi::read(elf, limit).unwrap_or_default();
        let go = GoTable::read(elf, limit).unwrap_or_default();
        if cfi.is_none() && go.is_none() {
            return Self::None;
        }
        Self::Read { cfi: cfi.map(Box::new), go: go.map(Box::new), used: 0 }
    }

    /// About how many bytes `read` would take: room is made first, or both would be there at once.
    fn expected(elf: &Elf) -> u64 {
        elf.section(".eh_frame").map_or(0, |section| section.size.saturating_add(section.size / 3))
    }

    fn footprint(&self) -> usize {
        match self {
            Self::Read { cfi, go, .. } => {
                cfi.as_deref().map_or(0, Cfi::footprint)
                    + go.as_deref().map_or(0, GoTable::footprint)
            }
            Self::Unread { .. } | Self::None => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    module: usize,
    address: u64,
    function: Option<u64>,
    rule: Rule,
}

/// All modules seen so far.
#[derive(Debug)]
pub(crate) struct Modules {
    root: PathBuf,
    limit: usize,
    unwind_limit: usize,
    first: u32,
    entries: Vec<Entry>,
    by_key: HashMap<Key, usize>,
    unwind_bytes: usize,
    clock: u64,
    cache: Box<[Option<Cached>]>,
    scratch: Scratch,
}

impl Modules {
    /// No modules yet; `first` will be the id of the first one.
    pub(crate) fn new(root: PathBuf, limit: usize, unwind_limit: usize, first: u32) -> Self {
        Self {
            root,
            limit,
            unwind_limit,
            first,
            entries: Vec::new(),
            by_key: HashMap::new(),
            unwind_bytes: 0,
            clock: 0,
            cache: vec![None; CACHED_RULES].into(),
            scratch: Scratch::new(),
        }
    }

    /// Forgets all modules. Their ids are not used again.
    pub(crate) fn forget(&mut self) {
        self.first =
            self.first.saturating_add(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.clear();
        self.by_key.clear();
        self.cache.fill(None);
        self.unwind_bytes = 0;
    }

    pub(crate) fn id(&self, index: usize) -> ModuleId {
        ModuleId(self.first.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)))
    }

    fn index(&self, id: ModuleId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(self.first)?).ok().filter(|n| *n < self.entries.len())
    }

    pub(crate) fn source(&self, id: ModuleId) -> Option<&ModuleSource> {
        Some(&self.entries.get(self.index(id)?)?.source)
    }

    /// The module, when it was not told before.
    pub(crate) fn tell(&mut self, id: ModuleId) -> Option<Module> {
        let index = self.index(id)?;
        let entry = self.entries.get_mut(index)?;
        if std::mem::replace(&mut entry.told, true) { None } else { Some(entry.module.clone()) }
    }

    /// Finds or makes the module of a segment. `since` tells program runs of one process apart.
    pub(crate) fn bind(&mut self, tgid: Tgid, since: u64, segment: &Segment) -> Binding {
        match &segment.code {
            Code::File { offset, path, .. } => self.bind_file(tgid, segment, *offset, path),
            Code::Vdso => {
                let Ok(elf) = vdso().and_then(|image| Ok(Elf::parse(image)?)) else {
                    return Binding::Nothing;
                };
                let Some(address) = elf.layout.address_of_offset(0) else {
                    return Binding::Nothing;
                };
                let index = self.entry(Key::Vdso, || {
                    let name = "[vdso]".to_owned();
                    Entry::new(ModuleRole::Libc, name, elf.build_id(), SourceKind::Vdso)
                });
                bound(index, segment.extent.start.wrapping_sub(address))
            }
            Code::Generated => {
                let root = self.root.clone();
                let Some(place) = perf_map(&root, tgid) else { return Binding::Nothing };
                let index = self.entry(Key::Generated(tgid, since), || {
                    let kind = SourceKind::PerfMap { root, tgid, place };
                    Entry::closed(super::GENERATED.to_owned(), ModuleRole::Code, kind)
                });
                bound(index, 0)
            }
        }
    }

    fn bind_file(&mut self, tgid: Tgid, segment: &Segment, offset: u64, path: &[u8]) -> Binding {
        let base = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let name = text::lossless(base);
        let (file, identity, place) = match (open_segment(&self.root, tgid, segment), &segment.code)
        {
            (Ok(opened), _) => opened,
            (Err(_), Code::File { inode, .. }) => {
                return self.bind_closed(Key::Closed(*inode), name, segment, offset);
            }
            (Err(_), Code::Vdso | Code::Generated) => return Binding::Nothing,
        };
        let key = Key::File(identity);
        let index = match self.by_key.get(&key) {
            Some(index) => Some(*index),
            None => match Image::file(file).and_then(Elf::parse) {
                Ok(elf) => {
                    let host = Place::below(self.root.clone(), Path::new(OsStr::from_bytes(path)));
                    let kind = SourceKind::File { identity, places: Vec::new(), host };
                    self.entry(key, || {
                        let entry = Entry::new(elf.role(&name), name, elf.build_id(), kind);
                        Entry { layout: elf.layout, ..entry }
                    })
                }
                Err(_) => return self.bind_closed(key, name, segment, offset),
            },
        };
        let Some(entry) = index.and_then(|n| self.entries.get_mut(n)) else {
            return Binding::Nothing;
        };
        entry.source.seen_at(place);
        if let Unwind::Unread { failures } = &mut entry.unwind {
            *failures = 0;
        }
        let address = entry.layout.address_of_offset(offset).unwrap_or(offset);
        bound(index, segment.extent.start.wrapping_sub(address))
    }

    /// A file that cannot be read. Without headers an address is that of its byte in the file: stable all the same.
    fn bind_closed(&mut self, key: Key, name: String, segment: &Segment, offset: u64) -> Binding {
        let role = role_of_name(&name);
        let index = self.entry(key, || Entry::closed(name, role, SourceKind::Unreadable));
        bound(index, segment.extent.start.wrapping_sub(offset))
    }

    fn entry(&mut self, key: Key, make: impl FnOnce() -> Entry) -> Option<usize> {
        if let Some(index) = self.by_key.get(&key) {
            return Some(*index);
        }
        let index = self.entries.len();
        let id = u32::try_from(index).ok().and_then(|n| n.checked_add(self.first));
        if index >= self.limit || id.is_none() {
            return None;
        }
        self.entries.push(make());
        self.by_key.insert(key, index);
        Some(index)
    }

    /// The function that holds `address` (of the module) and the rule there.
    pub(crate) fn rule(&mut self, index: usize, address: u64) -> (Option<u64>, Rule) {
        let slot = slot(index, address);
        if let Some(Some(found)) = self.cache.get(slot)
            && found.module == index
            && found.address == address
        {
            return (found.function, found.rule);
        }
        let Some(known) = self.load(index) else { return (None, Rule::FramePointer) };
        let (function, rule) = match known {
            (Some(cfi), go, scratch) => match cfi.rule(address, scratch) {
                Some((start, rule)) => (Some(start), rule),
                None => go_rule(go, address),
            },
            (None, go, _) => go_rule(go, address),
        };
        if let Some(place) = self.cache.get_mut(slot) {
            *place = Some(Cached { module: index, address, function, rule });
        }
        (function, rule)
    }

    /// Goes from a frame to its caller. The flag says that the caller's address is exact, not a return address.
    pub(crate) fn step(
        &mut self,
        index: usize,
        address: u64,
        rule: Rule,
        at: Registers,
        stack: &StackBytes<'_>,
    ) -> Result<(Registers, bool), StackEnd> {
        if rule != Rule::Expressions {
            return Ok((follow(rule, at, stack)?, false));
        }
        match self.load(index) {
            Some((Some(cfi), _, scratch)) => cfi.evaluate(address, at, stack, scratch),
            _ => Err(StackEnd::Lost),
        }
    }

    /// The unwind information of a module, read now if it is not there; `None` when it cannot be had this time.
    fn load(&mut self, index: usize) -> Option<(Option<&Cfi>, Option<&GoTable>, &mut Scratch)> {
        self.clock += 1;
        let now = self.clock;
        let entry = self.entries.get_mut(index)?;
        if let Unwind::Unread { failures } = entry.unwind
            && failures < MAX_FAILURES
        {
            // The index of functions may take half as much again as the bytes.
            let limit = self.unwind_limit as u64 / 3 * 2;
            let mut unwind = match entry.source.elf() {
                Ok(elf) => {
                    self.evict(index, Unwind::expected(&elf).min(limit));
                    Unwind::read(&elf, limit)
                }
                Err(OpenError::Elf(_)) => Unwind::None,
                Err(_) => Unwind::Unread { failures: failures + 1 },
            };
            if let Unwind::Read { used, .. } = &mut unwind {
                *used = now;
            }
            self.unwind_bytes += unwind.footprint();
            self.entries.get_mut(index)?.unwind = unwind;
            self.evict(index, 0);
        }
        let entry = self.entries.get_mut(index)?;
        match &mut entry.unwind {
            Unwind::Unread { .. } => None,
            Unwind::None => Some((None, None, &mut self.scratch)),
            Unwind::Read { cfi, go, used } => {
                *used = now;
                Some((cfi.as_deref(), go.as_deref(), &mut self.scratch))
            }
        }
    }

    /// Drops the unwind information used longest ago, but not that of `keep`, until `coming` bytes more would be within
    /// the limit.
    fn evict(&mut self, keep: usize, coming: u64) {
        let limit = self.unwind_limit.saturating_sub(usize::try_from(coming).unwrap_or(usize::MAX));
        while self.unwind_bytes > limit {
            let oldest = self.entries.iter_mut().enumerate().filter_map(|(n, e)| match e.unwind {
                Unwind::Read { used, .. } if n != keep => Some((used, e)),
                _ => None,
            });
            let Some((_, entry)) = oldest.min_by_key(|(used, _)| *used) else { break };
            self.unwind_bytes = self.unwind_bytes.saturating_sub(entry.unwind.footprint());
            entry.unwind = Unwind::Unread { failures: 0 };
        }
    }
}

impl Entry {
    fn new(role: ModuleRole, name: String, build_id: Option<String>, kind: SourceKind) -> Self {
        Self {
            module: Module { name: name.clone(), build_id: build_id.clone(), role },
            layout: Layout::default(),
            source: ModuleSource { name, build_id, kind },
            unwind: Unwind::Unread { failures: 0 },
            told: false,
        }
    }

    /// A module without anything to unwind by.
    fn closed(name: String, role: ModuleRole, kind: SourceKind) -> Self {
        Self { unwind: Unwind::None, ..Self::new(role, name, None, kind) }
    }
}

fn bound(index: Option<usize>, bias: u64) -> Binding {
    index.map_or(Binding::Nothing, |index| Binding::Module { index, bias })
}

fn go_rule(go: Option<&GoTable>, address: u64) -> (Option<u64>, Rule) {
    match go.and_then(|go| go.rule(address)) {
        Some((start, rule)) => (Some(start), rule),
        None => (None, Rule::FramePointer),
    }
}

/// Where a rule is remembered. Whoever makes addresses collide slows himself down.
fn slot(index: usize, address: u64) -> usize {
    let mixed = (address ^ (index as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 32).unwrap_or(0) % CACHED_RULES
}

/// The perf map of a process, `/tmp/perf-PID.map` in its own file system and by its own number, when there is one.
fn perf_map(root: &Path, tgid: Tgid) -> Option<Place> {
    let dir = process_dir(root, tgid);
    let status = std::fs::read_to_string(dir.join("status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let own: u32 = numbers.split_ascii_whitespace().last()?.parse().ok()?;
    let place = Place::below(dir.join("root"), Path::new(&format!("tmp/perf-{own}.map")));
    place.exists().then_some(place)
}
