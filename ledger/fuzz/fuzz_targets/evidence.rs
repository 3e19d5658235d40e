//! Any evidence in any order: nothing panics, pieces stay disjoint, and every question has an answer.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use memprov_ledger::evidence::{
    Backing, Change, Counters, Evidence, Fault, Gap, Lifecycle, MapFlags, Mapping, NodeRange,
    Placed, Policy, Ran, Residency,
    StackRef, Stream, Total,
};
use memprov_ledger::identity::{Extent, ObjectKey, PAGE, StackId, StartTicks, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pages::{PageSetBuilder, PageState};
use memprov_ledger::space::Space;
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;

/// Values out of the fuzzer's bytes; zeros when they are used up.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bit(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Few pages that meet each other, the ends of all numbers, or anything.
    fn number(&mut self) -> u64 {
        let kind = self.byte();
        match kind >> 5 {
            0..=3 => u64::from(kind & 31) * PAGE,
            4 => u64::from(kind & 31) * 777,
            5 => u64::MAX - u64::from(kind & 31),
            6 => u64::MAX - u64::from(kind & 31) * PAGE,
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn extent(&mut self) -> Extent {
        Extent { start: self.number(), end: self.number() }
    }

    fn span(&mut self) -> Span {
        Span { begin: MonoTime(self.number()), end: MonoTime(self.number()) }
    }

    fn tgid(&mut self) -> Tgid {
        Tgid(u32::from(self.byte() & 7))
    }

    fn stack(&mut self) -> StackRef {
        match self.byte() {
            0 => StackRef::None,
            1 => StackRef::Lost,
            id => StackRef::Known(StackId(u32::from(id))),
        }
    }

    fn counters(&mut self) -> Counters {
        let mut some = || self.bit().then(|| self.number());
        let (anon, file, shmem, hugetlb, swap) = (some(), some(), some(), some(), some());
        let (minor_faults, major_faults) = (self.number(), self.number());
        Counters { anon, file, shmem, hugetlb, swap, minor_faults, major_faults }
    }

    fn change(&mut self) -> Change {
        match self.byte() % 13 {
            0 | 1 => Change::Map {
                extent: self.extent(),
                flags: MapFlags {
                    fixed: self.bit(),
                    anonymous: self.bit(),
                    shared: self.bit(),
                    offset: self.number(),
                    ..MapFlags::default()
                },
                stack: self.stack(),
            },
            2 => Change::Unmap { extent: self.extent() },
            3 | 4 => Change::Remap {
                from: self.extent(),
                to: self.extent(),
                keep: self.bit(),
                fixed: self.bit(),
                stack: self.stack(),
            },
            5 => Change::Brk { old: self.number(), new: self.number(), stack: self.stack() },
            6 => Change::Attach { at: self.number(), stack: self.stack() },
            7 => Change::Detach { at: self.number() },
            8 => Change::Name { extent: self.extent(), name: self.bit().then(|| "name".into()) },
            9 => Change::Fork {
                child: self.tgid(),
                child_start: StartTicks(self.number()),
                shares: self.bit(),
            },
            10 => [Change::Exec, Change::Exit][usize::from(self.bit())].clone(),
            11 => Change::Vma {
                extent: self.extent(),
                object: self.bit().then(|| self.key()),
                flags: MapFlags {
                    anonymous: self.bit(),
                    shared: self.bit(),
                    offset: self.number(),
                    ..MapFlags::default()
                },
                path: self.bit().then(|| "/dev/shm/x".into()),
            },
            _ => Change::Doubt { extent: self.extent() },
        }
    }

    fn key(&mut self) -> ObjectKey {
        ObjectKey { major: 0, minor: 1, inode: u64::from(self.byte() & 3) }
    }

    fn mapping(&mut self) -> Mapping {
        let key = self.key();
        let backing = match self.byte() % 5 {
            0 => Backing::Anonymous,
            1 => Backing::File(key),
            2 => Backing::Shmem(key),
            3 => Backing::Hugetlb(key),
            _ => Backing::Special,
        };
        Mapping {
            extent: self.extent(),
            backing,
            offset: self.number(),
            shared: self.bit(),
            exec: self.bit(),
            write: self.bit(),
            path: self.bit().then(|| "/SYSV00000000".into()),
        }
    }

    fn residency(&mut self) -> Residency {
        let maps = (0..self.byte() & 7).map(|_| self.mapping()).collect();
        let mut pages = PageSetBuilder::default();
        for _ in 0..self.byte() & 7 {
            let extent = Extent::new(self.number() & !(PAGE - 1), u64::from(self.byte()) * PAGE);
            pages.push(extent, PageState(self.byte() & 0x3f));
        }
        Residency {
            when: self.span(),
            tgid: self.tgid(),
            start: self.bit().then(|| StartTicks(self.number())),
            comm: "fuzz".into(),
            parent: self.tgid(),
            layout: self.bit().then(|| (u64::from(self.byte() & 1), 1)),
            cgroup: None,
            before: self.counters(),
            maps: self.bit().then_some(maps),
            pages: self.bit().then(|| Arc::new(pages.build())),
            exclusive_known: self.bit(),
            after: self.counters(),
            slack: self.number(),
            object_slack: self.number(),
        }
    }

    fn placed(&mut self) -> Placed {
        let nodes = |bytes: &mut Self| {
            let nodes: std::collections::BTreeMap<u32, u64> =
                (0..bytes.byte() & 3).map(|_| (u32::from(bytes.byte()), bytes.number())).collect();
            nodes.into_iter().collect::<Vec<_>>()
        };
        let range = |bytes: &mut Self| {
            let (extent, nodes) = (bytes.extent(), nodes(bytes));
            NodeRange { extent, policy: Policy::Default, nodes }
        };
        Placed {
            when: self.span(),
            tgid: self.tgid(),
            ranges: self.bit().then(|| (0..self.byte() & 3).map(|_| range(self)).collect()),
            drawn: self.bit().then(|| [(self.number(), u32::from(self.byte()))].into()),
            ran: self.bit().then(|| Ran { since: MonoTime(0), by_node: nodes(self).into() }),
        }
    }

    fn evidence(&mut self) -> Evidence {
        match self.byte() % 9 {
            0..=3 => {
                let (when, tgid) = (self.span(), self.tgid());
                Evidence::Lifecycle(Lifecycle { when, tgid, change: self.change() })
            }
            4 => Evidence::Residency(Box::new(self.residency())),
            5 => Evidence::Fault(Fault {
                when: self.span(),
                tgid: self.tgid(),
                address: self.number(),
                write: self.bit(),
                present: self.bit(),
                probability: 1.0,
                stack: self.stack(),
            }),
            6 => Evidence::Total(Total {
                when: self.span(),
                tgid: self.tgid(),
                start: StartTicks(self.number()),
                counters: self.counters(),
            }),
            7 => Evidence::Placed(Box::new(self.placed())),
            _ => Evidence::Gap(Gap {
                when: self.span(),
                stream: [Stream::Lifecycle, Stream::Queue, Stream::Stacks, Stream::Faults]
                    [usize::from(self.byte() & 3)],
                lost: self.number(),
                whose: self.bit().then(|| self.tgid()),
            }),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    let sample = Sample { seed: 1, probability: 0.5 };
    let mut ledger = Ledger::new(MonoTime(bytes.number()), sample);
    while !bytes.0.is_empty() {
        if bytes.byte() == 255 {
            ledger.forget_before(MonoTime(bytes.number()));
        }
        ledger.apply(&bytes.evidence());
    }
    let sharing = ledger.sharing();
    let spaces: Vec<&Space> = ledger.spaces().collect();
    for space in &spaces {
        let extents: Vec<Extent> = space.pieces().map(|p| p.extent).collect();
        assert!(extents.iter().all(|e| !e.is_empty()));
        assert!(extents.windows(2).all(|e| e[0].end <= e[1].start));
        for tgid in &space.tgids {
            for extent in &extents {
                let when = Span::at(MonoTime(extent.start));
                let _answer = ledger.owner_of(*tgid, extent.start, when);
            }
        }
        let _closed = sharing.close(space);
    }
    let _shared = sharing.shared(&spaces);
});
