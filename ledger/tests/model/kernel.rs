//! A naive kernel: page tables as maps of pages, executed call by call, and the evidence that sources would give.
//!
//! Every page knows the call that mapped it: its `made` number is the stack that the record of the call names.

use std::collections::BTreeMap;

use memprov_ledger::evidence::{Change, Evidence, Fault, Lifecycle, MapFlags, StackRef};
use memprov_ledger::identity::{ObjectKey, PAGE, StackId, StartTicks, Tgid};
use memprov_ledger::time::{MonoTime, Span};

use crate::call::{Call, Object, address, extent, key};
use crate::readings::merges;

/// The mapping that the kernel made itself: no call, no stack.
pub(crate) const KERNEL: u32 = 0;
/// First page of the heap; below it are the pages that calls play with.
pub(crate) const HEAP: u64 = 48;

/// What a page is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuff {
    Anonymous,
    /// A page of an object. `private`: a write makes an anonymous copy. `sysv`: attached by `shmat`.
    Object {
        key: ObjectKey,
        index: u64,
        private: bool,
        sysv: bool,
    },
}

/// What the page table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Present {
    None,
    Zero,
    Object,
    Frame(u64),
    Swapped,
}

/// A mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) made: u32,
    pub(crate) stuff: Stuff,
    pub(crate) present: Present,
}

/// An `mm`.
#[derive(Clone, Debug)]
pub(crate) struct Mm {
    pub(crate) cells: BTreeMap<u64, Cell>,
    heap_end: u64,
    pub(crate) faults: u64,
    /// Where the kernel put code and stack: random at exec, copied by fork.
    pub(crate) layout: u64,
    /// What was where, from when on: (page, instant, call, who).
    pub(crate) past: Vec<Step>,
}

/// A page changed hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) page: u64,
    pub(crate) at: u64,
    pub(crate) call: Span,
    pub(crate) made: Option<u32>,
}

/// A process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) mm: usize,
    pub(crate) start: u64,
    pub(crate) parent: u32,
    /// Since when it has this `mm`.
    pub(crate) since: u64,
}

/// The whole kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) mms: Vec<Mm>,
    pub(crate) live: BTreeMap<u32, Process>,
    pub(crate) frames: BTreeMap<u64, u32>,
    next_frame: u64,
    pub(crate) calls: u32,
    pub(crate) now: u64,
}

impl Kernel {
    /// A kernel with one process, 1, that has its image and its stack.
    pub(crate) fn new() -> Self {
        let mut kernel = Self {
            mms: Vec::new(),
            live: BTreeMap::new(),
            frames: BTreeMap::new(),
            next_frame: 1,
            calls: 0,
            now: 1_000_000,
        };
        let mm = kernel.fresh(Span::at(MonoTime(0)));
        kernel.live.insert(1, Process { mm, start: 7, parent: 0, since: 0 });
        kernel
    }

    /// An address space as exec makes it: a page of the program's file, a page of stack.
    fn fresh(&mut self, call: Span) -> usize {
        self.mms.push(Mm {
            cells: BTreeMap::new(),
            heap_end: HEAP,
            faults: 0,
            layout: u64::from(self.calls) + 1,
            past: Vec::new(),
        });
        let mm = self.mms.len() - 1;
        let image = Stuff::Object { key: key(1), index: 0, private: true, sysv: false };
        self.put(mm, 40, KERNEL, image, call);
        self.put(mm, 44, KERNEL, Stuff::Anonymous, call);
        mm
    }

    pub(crate) fn mm(&self, tgid: u32) -> &Mm {
        &self.mms[self.live[&tgid].mm]
    }

    fn put(&mut self, mm: usize, page: u64, made: u32, stuff: Stuff, call: Span) {
        self.take(mm, page, call);
        self.mms[mm].cells.insert(page, Cell { made, stuff, present: Present::None });
        let step = Step { page, at: self.now, call, made: Some(made) };
        self.mms[mm].past.push(step);
    }

    fn take(&mut self, mm: usize, page: u64, call: Span) -> Option<Cell> {
        let cell = self.mms[mm].cells.remove(&page)?;
        self.release(cell.present);
        let step = Step { page, at: self.now, call, made: None };
        self.mms[mm].past.push(step);
        Some(cell)
    }

    fn release(&mut self, present: Present) {
        if let Present::Frame(frame) = present
            && let Some(users) = self.frames.get_mut(&frame)
        {
            *users -= 1;
            if *users == 0 {
                self.frames.remove(&frame);
            }
        }
    }

    fn new_frame(&mut self) -> Present {
        self.next_frame += 1;
        self.frames.insert(self.next_frame, 1);
        Present::Frame(self.next_frame)
    }

    fn free(&self, mm: usize, at: u64, pages: u64) -> bool {
        self.mms[mm].cells.range(at..at + pages).next().is_none()
    }

    fn lowest_free(&self, mm: usize, pages: u64) -> Option<u64> {
        (0..=32u64.saturating_sub(pages)).find(|at| self.free(mm, *at, pages))
    }

    /// Whether one mapping covers all of it, as `mremap` wants: neighbours that the kernel would merge.
    fn one_mapping(&self, mm: usize, at: u64, pages: u64) -> bool {
        let cells = &self.mms[mm].cells;
        (at..at + pages).all(|page| match (cells.get(&page), cells.get(&(page + 1))) {
            (Some(_), _) if page + 1 == at + pages => true,
            (Some(a), Some(b)) => merges(a, b),
            _ => false,
        })
    }

    /// Executes a call at this instant; its record, when it has one. `None` also when the call fails without an effect.
    pub(crate) fn execute(&mut self, tgid: u32, call: Call, when: Span) -> Option<Evidence> {
        let process = *self.live.get(&tgid)?;
        let mm = process.mm;
        self.calls += 1;
        let made = self.calls;
        let stack = StackRef::Known(StackId(made));
        let change = match call {
            Call::Map { pages, of } => {
                let at = self.lowest_free(mm, pages)?;
                self.map(mm, at, pages, of, made, when);
                Change::Map { extent: extent(at, pages), flags: flags(of, false), stack }
            }
            Call::MapFixed { at, pages, of } => {
                self.map(mm, at, pages, of, made, when);
                Change::Map { extent: extent(at, pages), flags: flags(of, true), stack }
            }
            Call::Unmap { at, pages } => {
                self.unmap(mm, at, pages, when);
                Change::Unmap { extent: extent(at, pages) }
            }
            Call::Resize { at, old, new } => {
                self.one_mapping(mm, at, old).then_some(())?;
                if new > old {
                    self.free(mm, at + old, new - old).then_some(())?;
                    self.grow(mm, at + old - 1, at + old, new - old, when);
                } else {
                    self.unmap(mm, at + new, old - new, when);
                }
                let (from, to) = (extent(at, old), extent(at, new));
                Change::Remap { from, to, keep: false, fixed: false, stack }
            }
            Call::Move { at, old, new, keep } => {
                let to = self.lowest_free(mm, new)?;
                self.remap(mm, (at, old), (to, new), keep, when)?;
                let (from, to) = (extent(at, old), extent(to, new));
                Change::Remap { from, to, keep, fixed: false, stack }
            }
            Call::MoveFixed { at, old, new, to, keep } => {
                let apart = at + old.max(1) <= to || to + new <= at;
                (apart && self.movable(mm, (at, old), new, keep)).then_some(())?;
                self.unmap(mm, to, new, when);
                self.remap(mm, (at, old), (to, new), keep, when)?;
                let (from, to) = (extent(at, old), extent(to, new));
                Change::Remap { from, to, keep, fixed: true, stack }
            }
            Call::Brk { pages } => {
                let (old, new) = (self.mms[mm].heap_end, HEAP + pages);
                if new > old {
                    self.free(mm, old, new - old).then_some(())?;
                    for page in old..new {
                        self.put(mm, page, made, Stuff::Anonymous, when);
                    }
                } else {
                    self.unmap(mm, new, old - new, when);
                }
                self.mms[mm].heap_end = new;
                // The break itself is a byte, not a page.
                Change::Brk { old: address(old) - 1, new: address(new) - 100, stack }
            }
            Call::Attach { segment, pages } => {
                let at = self.lowest_free(mm, pages)?;
                self.attach(mm, at, segment, pages, made, when);
                Change::Attach { at: address(at), replaces: false, stack }
            }
            Call::AttachOver { at, segment, pages } => {
                self.attach(mm, at, segment, pages, made, when);
                Change::Attach { at: address(at), replaces: true, stack }
            }
            Call::Detach { at } => {
                self.detach(mm, at, when)?;
                Change::Detach { at: address(at) }
            }
            Call::FailMapFixed { at, pages, removed } | Call::FailUnmap { at, pages, removed } => {
                self.unmap(mm, at, removed.min(pages), when);
                Change::Doubt { extent: extent(at, pages) }
            }
            Call::Read { at } => return self.touch(tgid, at, false, when),
            Call::Write { at } => return self.touch(tgid, at, true, when),
            Call::Drop { at, pages } => {
                for page in at..at + pages {
                    if let Some(cell) = self.mms[mm].cells.get(&page).copied() {
                        self.release(cell.present);
                        self.set(mm, page, Present::None);
                    }
                }
                return None;
            }
            Call::SwapOut { at } => {
                let cell = *self.mms[mm].cells.get(&at)?;
                matches!(cell.present, Present::Frame(f) if self.frames[&f] == 1).then_some(())?;
                self.release(cell.present);
                self.set(mm, at, Present::Swapped);
                return None;
            }
            Call::Fork { child } => {
                self.vacant(child).then_some(())?;
                let copy = self.copy(mm, when);
                let start = 100 + u64::from(made) * 5;
                self.live
                    .insert(child, Process { mm: copy, start, parent: tgid, since: when.end.0 });
                Change::Fork { child: Tgid(child), child_start: StartTicks(start), shares: false }
            }
            Call::Share { child } => {
                self.vacant(child).then_some(())?;
                let start = 100 + u64::from(made) * 5;
                self.live.insert(child, Process { mm, start, parent: tgid, since: when.end.0 });
                Change::Fork { child: Tgid(child), child_start: StartTicks(start), shares: true }
            }
            Call::Exec => {
                let new = self.fresh(when);
                self.live.insert(tgid, Process { mm: new, since: when.end.0, ..process });
                self.reap(mm, when);
                Change::Exec
            }
            Call::Exit => {
                self.live.remove(&tgid);
                self.reap(mm, when);
                Change::Exit
            }
        };
        Some(Evidence::Lifecycle(Lifecycle { when, tgid: Tgid(tgid), change }))
    }

    fn vacant(&self, child: u32) -> bool {
        child != 0 && !self.live.contains_key(&child)
    }

    /// Frees an `mm` that no process has.
    fn reap(&mut self, mm: usize, when: Span) {
        if self.live.values().all(|p| p.mm != mm) {
            let pages: Vec<u64> = self.mms[mm].cells.keys().copied().collect();
            for page in pages {
                self.take(mm, page, when);
            }
        }
    }

    fn map(&mut self, mm: usize, at: u64, pages: u64, of: Option<Object>, made: u32, when: Span) {
        for i in 0..pages {
            let stuff = of.map_or(Stuff::Anonymous, |o| Stuff::Object {
                key: key(o.inode),
                index: o.index + i,
                private: o.private,
                sysv: false,
            });
            self.put(mm, at + i, made, stuff, when);
        }
    }

    fn attach(&mut self, mm: usize, at: u64, segment: u64, pages: u64, made: u32, when: Span) {
        for index in 0..pages {
            let key = key(segment * 2);
            let stuff = Stuff::Object { key, index, private: false, sysv: true };
            self.put(mm, at + index, made, stuff, when);
        }
    }

    fn unmap(&mut self, mm: usize, at: u64, pages: u64, when: Span) {
        for page in at..at + pages {
            self.take(mm, page, when);
        }
    }

    fn set(&mut self, mm: usize, page: u64, present: Present) {
        if let Some(cell) = self.mms[mm].cells.get_mut(&page) {
            cell.present = present;
        }
    }

    /// New pages behind `last`, of the same mapping.
    fn grow(&mut self, mm: usize, last: u64, at: u64, pages: u64, when: Span) {
        let Some(cell) = self.mms[mm].cells.get(&last).copied() else { return };
        for i in 0..pages {
            let stuff = match cell.stuff {
                Stuff::Anonymous => Stuff::Anonymous,
                Stuff::Object { key, index, private, sysv } => {
                    Stuff::Object { key, index: index + 1 + i, private, sysv }
                }
            };
            self.put(mm, at + i, cell.made, stuff, when);
        }
    }

    /// Old size 0 needs a shared mapping; `MREMAP_DONTUNMAP` needs equal sizes.
    fn movable(&self, mm: usize, (at, old): (u64, u64), new: u64, keep: bool) -> bool {
        let shared = |c: &Cell| matches!(c.stuff, Stuff::Object { private: false, .. });
        if old == 0 {
            let mut source = (at..at + new).map(|page| self.mms[mm].cells.get(&page));
            return !keep && source.all(|c| c.is_some_and(shared)) && self.one_mapping(mm, at, new);
        }
        new > 0 && self.one_mapping(mm, at, old) && (!keep || old == new)
    }

    fn remap(
        &mut self,
        mm: usize,
        from: (u64, u64),
        to: (u64, u64),
        keep: bool,
        when: Span,
    ) -> Option<()> {
        self.movable(mm, from, to.1, keep).then_some(())?;
        let (at, old) = from;
        let (to, new) = to;
        let moved = if old == 0 { new } else { old.min(new) };
        for i in 0..moved {
            let cell = self.mms[mm].cells[&(at + i)];
            let present = if old == 0 { Present::None } else { cell.present };
            if old != 0 {
                // The page leaves its old place without being freed.
                self.set(mm, at + i, Present::None);
                if !keep {
                    self.take(mm, at + i, when);
                }
            }
            self.put(mm, to + i, cell.made, cell.stuff, when);
            self.set(mm, to + i, present);
        }
        if old > new {
            self.unmap(mm, at + new, old - new, when);
        } else if new > moved {
            self.grow(mm, to + moved - 1, to + moved, new - moved, when);
        }
        Some(())
    }

    /// `ksys_shmdt`: the first fragment of an attachment whose place fits tells the segment.
    fn detach(&mut self, mm: usize, at: u64, when: Span) -> Option<()> {
        let mut segment = None;
        let mut pages = Vec::new();
        for (page, cell) in self.mms[mm].cells.range(at..) {
            if let Stuff::Object { key, index, sysv: true, .. } = cell.stuff
                && page - at == index
                && key == *segment.get_or_insert(key)
            {
                pages.push(*page);
            }
        }
        segment?;
        for page in pages {
            self.take(mm, page, when);
        }
        Some(())
    }

    fn copy(&mut self, mm: usize, when: Span) -> usize {
        let mut copy = self.mms[mm].clone();
        copy.faults = 0;
        copy.past.clear();
        for (page, cell) in &mut copy.cells {
            match cell.present {
                Present::Frame(frame) => *self.frames.entry(frame).or_default() += 1,
                Present::Object | Present::Zero => cell.present = Present::None,
                Present::None | Present::Swapped => {}
            }
            let step = Step { page: *page, at: self.now, call: when, made: Some(cell.made) };
            copy.past.push(step);
        }
        self.mms.push(copy);
        self.mms.len() - 1
    }

    fn touch(&mut self, tgid: u32, at: u64, write: bool, when: Span) -> Option<Evidence> {
        let mm = self.live[&tgid].mm;
        let cell = *self.mms[mm].cells.get(&at)?;
        let shared_object = matches!(cell.stuff, Stuff::Object { private: false, .. });
        let anonymous = cell.stuff == Stuff::Anonymous;
        let (present, was) = match (cell.present, write) {
            (Present::None, false) if anonymous => (Present::Zero, false),
            (Present::None, false) => (Present::Object, false),
            (Present::None, true) if shared_object => (Present::Object, false),
            (Present::None, true) => (self.new_frame(), false),
            (Present::Zero, true) => (self.new_frame(), true),
            (Present::Object, true) if !shared_object => (self.new_frame(), true),
            (Present::Frame(frame), true) if self.frames[&frame] > 1 => {
                self.release(cell.present);
                (self.new_frame(), true)
            }
            (Present::Swapped, _) => (self.new_frame(), false),
            (Present::Zero | Present::Object | Present::Frame(_), _) => return None,
        };
        self.set(mm, at, present);
        self.mms[mm].faults += 1;
        Some(Evidence::Fault(Fault {
            when,
            tgid: Tgid(tgid),
            address: address(at) + 8,
            write,
            present: was,
            probability: 1.0,
            stack: StackRef::Known(StackId(self.calls)),
        }))
    }
}

fn flags(of: Option<Object>, fixed: bool) -> MapFlags {
    MapFlags {
        fixed,
        anonymous: of.is_none(),
        shared: of.is_some_and(|o| !o.private),
        offset: of.map_or(0, |o| o.index * PAGE),
        ..MapFlags::default()
    }
}
