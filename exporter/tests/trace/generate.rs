//! Arbitrary lines of a trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use memprov::report::{Host, Identity, NumaNode};
use memprov::trace::{Clock, Header, Line, SCHEMA, Scope, Support};
use memprov_ledger::charge::{CachedFile, Charge, Figures};
use memprov_ledger::evidence::{
    Access, Activity, Backing, Blocked, Change, Counters, Evidence, EvidenceClass, Fault, Frames,
    Gap, Lifecycle, MapFlags, Mapping, NodeRange, Op, Placed, Policy, Population, Ran, Region,
    Residency, Run, Served, Snoop, StackRef, Stream, Timing, Tlb, Total,
};
use memprov_ledger::identity::{
    Extent, Generation, IntervalId, ModuleId, ObjectKey, PAGE, SpaceId, StackId, StartTicks, Tgid,
};
use memprov_ledger::pages::{PageSet, PageState};
use memprov_ledger::pieces::Traits;
use memprov_ledger::recall::{Recall, Remembered};
use memprov_ledger::stack::{Frame, Module, ModuleRole, Stack, StackEnd};
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};
use proptest::{collection, option, sample};

pub(crate) fn header() -> Header {
    let support = Support {
        id: "mapping.lifecycle".into(),
        state: "available".into(),
        mechanism: Some("fentry".into()),
        class: Some(EvidenceClass::Exact),
    };
    Header {
        schema: SCHEMA.into(),
        version: "0.1.0".into(),
        clock: Clock { wall_at_zero: -1_764_445_000_123_456_789 },
        watching_since: MonoTime(u64::MAX),
        watching_ticks: Some(StartTicks(500)),
        host: Host {
            kernel: Some("6.18.0".into()),
            nodes: Some(2),
            no_pmu: None,
            numa: vec![NumaNode { node: 1, cpus: 2, distances: vec![(0, 20), (1, 10)] }],
        },
        scope: Scope { all: true, pids: Vec::new() },
        sample: Sample { seed: u32::MAX, probability: 0.015_625 },
        identity: Identity {
            host_id: "0123456789abcdef0123456789abcdef".into(),
            host_name: "zeal".into(),
            boot: Some(u64::MAX),
            attributes: [("host.type".to_owned(), "\u{fffd}".to_owned())].into(),
        },
        boot_id: Some("8f14e45f-ceea-467f-a0e6-4b5b0d1f8a11".to_owned()),
        support: vec![support],
        redacted: false,
    }
}

/// Text, among it what JSON must escape.
pub(crate) fn text() -> BoxedStrategy<String> {
    any::<String>().boxed()
}

/// A path or name of words that are recognisable: each holds `zeal`.
pub(crate) fn name() -> BoxedStrategy<String> {
    let word = "[a-z]{0,3}zeal[0-9]{0,4}";
    collection::vec(word, 1..4).prop_map(|words| format!("/{}.so.1", words.join("/"))).boxed()
}

pub(crate) fn line(name: BoxedStrategy<String>) -> impl Strategy<Value = Line> {
    let module_id = || (1u32..).prop_map(ModuleId);
    let role = sample::select(vec![ModuleRole::Code, ModuleRole::Libc, ModuleRole::Go]);
    let module = (module_id(), name.clone(), option::of("[0-9a-f]{40}"));
    prop_oneof![
        (module, Just(ModuleRole::Code)).prop_map(|((id, name, build_id), role)| Line::Module {
            id,
            module: Module { name, build_id, role }
        }),
        (module_id(), "[a-z]{3,9}", role).prop_map(|(id, name, role)| Line::Module {
            id,
            module: Module { name: format!("lib{name}"), build_id: None, role }
        }),
        stack(),
        (module_id(), any::<u64>(), option::of(name.clone()))
            .prop_map(|(module, function, name)| { Line::Name { module, function, name } }),
        (any::<u32>(), any::<u32>()).prop_map(|(stack, module)| Line::Forget {
            stacks: StackId(stack),
            modules: ModuleId(module)
        }),
        any::<u64>().prop_map(|when| Line::Watermark { when: MonoTime(when) }),
        evidence(name).prop_map(Line::Evidence),
    ]
}

fn evidence(name: BoxedStrategy<String>) -> impl Strategy<Value = Evidence> {
    let when = (any::<u64>(), any::<u64>())
        .prop_map(|(a, b)| Span { begin: MonoTime(a.min(b)), end: MonoTime(a.max(b)) });
    let tgid = (1u32..9).prop_map(Tgid);
    let start = any::<u64>().prop_map(StartTicks);
    let stream = sample::select(Stream::ALL.to_vec());
    let lifecycle = (when.clone(), tgid.clone(), change(name.clone()))
        .prop_map(|(when, tgid, change)| Lifecycle { when, tgid, change });
    let fault =
        (
            when.clone(),
            tgid.clone(),
            address(),
            any::<(bool, bool)>(),
            f64::MIN_POSITIVE..=1.0,
            called(),
        )
            .prop_map(|(when, tgid, address, (write, present), probability, stack)| {
                Fault { when, tgid, address, write, present, probability, stack }
            });
    let who = (
        when.clone(),
        tgid.clone(),
        start.clone(),
        name.clone(),
        tgid.clone(),
        option::of(name.clone()),
    );
    let what = (
        option::of((address(), address())),
        collection::vec(mapping(name.clone()), 0..5),
        collection::vec((0u64..1 << 35, 1u64..2000, 1u8..64), 0..5),
        (counters(), counters(), any::<bool>(), any::<u64>()),
    );
    let residency = (who, what).prop_map(|(who, what)| {
        let (when, tgid, start, comm, parent, cgroup) = who;
        let (layout, maps, mut pages, (before, after, exclusive_known, slack)) = what;
        pages.sort_unstable();
        let run =
            |(first, pages, state)| (Extent::new(first * PAGE, pages * PAGE), PageState(state));
        let pages: PageSet = pages.into_iter().map(run).collect();
        Residency {
            when,
            tgid,
            start: Some(start),
            comm: comm.into(),
            parent,
            layout,
            cgroup: cgroup.map(Arc::from),
            before,
            maps: (!maps.is_empty()).then(|| maps.into()),
            pages: exclusive_known.then(|| Arc::new(pages)),
            exclusive_known,
            after,
            slack,
            object_slack: slack / 2,
        }
    });
    prop_oneof![
        lifecycle.prop_map(Evidence::Lifecycle),
        fault.prop_map(Evidence::Fault),
        access(when.clone()).prop_map(|e| Evidence::Access(Box::new(e))),
        activity(when.clone()).prop_map(|e| Evidence::Activity(Box::new(e))),
        frames(when.clone()).prop_map(|e| Evidence::Frames(Box::new(e))),
        placed(when.clone()).prop_map(|e| Evidence::Placed(Box::new(e))),
        residency.prop_map(|r| Evidence::Residency(Box::new(r))),
        (when.clone(), tgid.clone(), start, counters())
            .prop_map(|(when, tgid, start, counters)| Total { when, tgid, start, counters })
            .prop_map(Evidence::Total),
        recall(when.clone()).prop_map(|known| Evidence::Recall(Box::new(known))),
        charge(name).prop_map(|charge| Evidence::Charge(Box::new(charge))),
        (when, stream, any::<u64>(), option::of(tgid))
            .prop_map(|(when, stream, lost, whose)| Gap { when, stream, lost, whose })
            .prop_map(Evidence::Gap),
    ]
}

fn activity(when: impl Strategy<Value = Span>) -> impl Strategy<Value = Activity> {
    let who = (when, any::<u32>(), option::of((1u32..9).prop_map(Tgid)));
    let region = (1u64..1 << 20, 0u32..21, any::<u32>());
    let regions = (1u64..1 << 40, collection::vec(region, 0..5));
    (who, 20u32..100, regions).prop_map(|(who, checks, (start, found))| {
        let (when, monitor, tgid) = who;
        let mut at = start * PAGE;
        let place = |(pages, hits, age): (u64, u32, u32)| {
            let extent = Extent::new(at, pages * PAGE);
            at = extent.end + PAGE * (pages % 2);
            Region { extent, hits, age }
        };
        let regions = found.into_iter().map(place).collect();
        Activity { when, monitor, tgid, checks, regions }
    })
}

fn frames(when: impl Strategy<Value = Span>) -> impl Strategy<Value = Frames> {
    let who = (when, (1u32..9).prop_map(Tgid), any::<u32>(), any::<u64>());
    let run = (1u64..1 << 20, 0u64..1 << 40);
    let runs = (1u64..1 << 35, collection::vec(run, 0..4));
    (who, runs).prop_map(|((when, tgid, monitor, moved), (start, found))| {
        let mut at = start * PAGE;
        let place = |(pages, frame): (u64, u64)| {
            let extent = Extent::new(at, pages * PAGE);
            at = extent.end + PAGE * (pages % 2);
            Run { extent, at: frame * PAGE }
        };
        let runs = found.into_iter().map(place).collect();
        Frames { when, tgid, monitor, runs, moved }
    })
}

fn placed(when: impl Strategy<Value = Span>) -> impl Strategy<Value = Placed> {
    // All bytes of a range are a number of 64 bits.
    let nodes = || collection::btree_map(0u32..1024, 0..u64::MAX / 4, 0..3);
    let range = (1u64..1 << 20, sample::select(Policy::ALL.to_vec()), nodes());
    let ranges = option::of((1u64..1 << 35, collection::vec(range, 0..4)));
    let drawn = option::of(collection::vec((0u64..1 << 35, 0u32..1024), 0..4));
    let who = (when, (1u32..9).prop_map(Tgid));
    (who, ranges, drawn, option::of(nodes())).prop_map(|((when, tgid), ranges, drawn, ran)| {
        let ranges = ranges.map(|(start, found)| {
            let mut at = start * PAGE;
            let place = |(pages, policy, nodes): (u64, _, BTreeMap<u32, u64>)| {
                let extent = Extent::new(at, pages * PAGE);
                at = extent.end + PAGE * (pages % 2);
                NodeRange { extent, policy, nodes: nodes.into_iter().collect() }
            };
            found.into_iter().map(place).collect()
        });
        let ran = ran.map(|nodes| Ran { since: when.begin, by_node: nodes.into_iter().collect() });
        Placed { when, tgid, ranges, drawn: drawn.map(Into::into), ran }
    })
}

fn access(when: impl Strategy<Value = Span>) -> impl Strategy<Value = Access> {
    let number = || option::of(any::<u64>());
    let small = || option::of(any::<u32>());
    let place = || option::of(address().prop_map(|at| at.max(1)));
    let who = (when, option::of((1u32..9).prop_map(Tgid)), small(), small(), small(), small());
    let at = (place(), place(), option::of(0u64..1 << 40), number());
    let weight = (number(), number(), sample::select(Population::ALL), sample::select(Timing::ALL));
    let hops = option::of(any::<u8>());
    let served = prop_oneof![
        hops.clone().prop_map(|hops| Served::RemoteCache { hops }),
        hops.prop_map(|hops| Served::RemoteMemory { hops }),
        Just(Served::Local),
        Just(Served::Ambiguous),
        Just(Served::NotAvailable),
    ];
    let how = (
        served,
        sample::select(Op::ALL),
        sample::select(Snoop::ALL),
        sample::select(Tlb::ALL),
        sample::select(Blocked::ALL),
        option::of(any::<bool>()),
        number(),
    );
    (who, at, weight, how).prop_map(|(who, at, weight, how)| {
        let (when, tgid, tid, cpu, cpu_node, page_node) = who;
        let (address, ip, frame, page_size) = at;
        let (period, latency, population, timing) = weight;
        let (served, op, snoop, tlb, blocked, locked, raw) = how;
        Access {
            when,
            tgid,
            tid,
            cpu,
            cpu_node,
            page_node,
            ip,
            address,
            frame,
            page_size,
            population,
            period,
            latency,
            timing,
            op,
            served,
            snoop,
            tlb,
            locked,
            blocked,
            raw,
        }
    })
}

fn recall(when: impl Strategy<Value = Span> + Clone) -> impl Strategy<Value = Recall> {
    let id = || 0u64..1 << 62;
    let tgid = (1u32..9, any::<u64>()).prop_map(|(tgid, start)| (Tgid(tgid), StartTicks(start)));
    let piece = (extent(), (id(), id()), when.clone(), any::<u32>(), address(), called());
    let backing = option::of(backing());
    let piece = (piece, backing).prop_map(|(known, backing)| {
        let (extent, (space, generation), born, traits, offset, stack) = known;
        let id = IntervalId { space: SpaceId(space), generation: Generation(generation) };
        Remembered { extent, id, born, traits: Traits(traits), offset, stack, backing }
    });
    let space = (id(), id(), option::of(id()), id());
    let layout = option::of((address(), address()));
    (when, space, collection::vec(tgid, 1..3), layout, collection::vec(piece, 0..4)).prop_map(
        |(when, (space, family, parent, newest), tgids, layout, pieces)| Recall {
            when,
            space: SpaceId(space),
            family: SpaceId(family),
            parent: parent.map(SpaceId),
            newest: Generation(newest),
            tgids,
            layout,
            pieces: pieces.into(),
        },
    )
}

fn charge(name: BoxedStrategy<String>) -> impl Strategy<Value = Charge> {
    const LINES: [&str; 5] = ["anon", "file", "file_mapped", "kernel", "shmem"];
    const FACTS: [&str; 2] = ["events.oom_kill", "peak"];
    let file = (any::<u64>(), name.clone(), any::<u64>()).prop_map(|(inode, path, cached)| {
        let key = ObjectKey { major: 259, minor: 2, inode };
        CachedFile { key, path: path.into(), cached }
    });
    let figures = || {
        let stat = collection::btree_map(sample::select(&LINES[..]), any::<u64>(), 0..5);
        (any::<u64>(), stat).prop_map(|(current, stat)| Figures { current, stat: named(stat) })
    };
    let facts = collection::btree_map(sample::select(&FACTS[..]), any::<u64>(), 0..3);
    let files = collection::vec(file, 0..3);
    let processes = option::of(any::<u64>());
    (any::<[u64; 6]>(), name, figures(), figures(), processes, facts, files).prop_map(
        |(numbers, cgroup, whole, below, processes, facts, files)| {
            let [begin, length, before, children, stock, lag] = numbers;
            Charge {
                when: Span { begin: MonoTime(begin), end: MonoTime(begin.saturating_add(length)) },
                cgroup: cgroup.into(),
                before,
                whole,
                below,
                children,
                processes,
                stock,
                lag,
                facts: named(facts),
                files,
            }
        },
    )
}

fn named(entries: BTreeMap<&'static str, u64>) -> BTreeMap<Arc<str>, u64> {
    entries.into_iter().map(|(key, value)| (Arc::from(key), value)).collect()
}

fn change(name: BoxedStrategy<String>) -> impl Strategy<Value = Change> {
    let flags = (proptest::array::uniform9(any::<bool>()), any::<u64>())
        .prop_map(|(b, offset)| MapFlags {
            fixed: b[0],
            anonymous: b[1],
            shared: b[2],
            stack: b[3],
            noreserve: b[4],
            hugetlb: b[5],
            exec: b[6],
            inaccessible: b[7],
            grows_down: b[8],
            offset,
        })
        .boxed();
    let object = option::of(any::<(u32, u32, u64)>().prop_map(|(major, minor, inode)| ObjectKey {
        major,
        minor,
        inode,
    }));
    prop_oneof![
        (extent(), object, flags.clone(), option::of(name.clone())).prop_map(
            |(extent, object, flags, path)| {
                let path = path.map(Arc::from);
                Change::Vma { extent, object, flags, path }
            }
        ),
        (extent(), flags, called()).prop_map(|(extent, flags, stack)| Change::Map {
            extent,
            flags,
            stack
        }),
        extent().prop_map(|extent| Change::Unmap { extent }),
        (extent(), extent(), any::<(bool, bool)>(), called()).prop_map(
            |(from, to, (keep, fixed), stack)| Change::Remap { from, to, keep, fixed, stack }
        ),
        (address(), address(), called()).prop_map(|(old, new, stack)| Change::Brk {
            old,
            new,
            stack
        }),
        (address(), any::<bool>(), called()).prop_map(|(at, replaces, stack)| Change::Attach {
            at,
            replaces,
            stack
        }),
        address().prop_map(|at| Change::Detach { at }),
        (extent(), option::of(name))
            .prop_map(|(extent, name)| Change::Name { extent, name: name.map(Arc::from) }),
        (1u32..9, any::<u64>(), any::<bool>()).prop_map(|(child, start, shares)| Change::Fork {
            child: Tgid(child),
            child_start: StartTicks(start),
            shares,
        }),
        Just(Change::Exec),
        Just(Change::Exit),
        extent().prop_map(|extent| Change::Doubt { extent }),
    ]
}

fn backing() -> impl Strategy<Value = Backing> {
    let object = any::<(u32, u32, u64)>().prop_map(|(major, minor, inode)| ObjectKey {
        major,
        minor,
        inode,
    });
    prop_oneof![
        Just(Backing::Anonymous),
        object.clone().prop_map(Backing::File),
        object.clone().prop_map(Backing::Shmem),
        object.prop_map(Backing::Hugetlb),
        Just(Backing::Special),
    ]
}

fn mapping(name: BoxedStrategy<String>) -> impl Strategy<Value = Mapping> {
    (extent(), backing(), any::<u64>(), any::<[bool; 3]>(), option::of(name)).prop_map(
        |(extent, backing, offset, [shared, exec, write], path)| Mapping {
            extent,
            backing,
            offset,
            shared,
            exec,
            write,
            path: path.map(Arc::from),
        },
    )
}

fn stack() -> impl Strategy<Value = Line> {
    let frame = (option::of((1u32..).prop_map(ModuleId)), option::of(any::<u64>()), any::<u64>())
        .prop_map(|(module, function, address)| Frame { module, function, address });
    let end = sample::select(vec![StackEnd::Root, StackEnd::Cut, StackEnd::Lost, StackEnd::Switch]);
    (1u32.., collection::vec(frame, 0..5), end).prop_map(|(id, frames, end)| Line::Stack {
        id: StackId(id),
        stack: Stack { frames, end }.into(),
    })
}

fn called() -> impl Strategy<Value = StackRef> {
    prop_oneof![
        (1u32..).prop_map(|id| StackRef::Known(StackId(id))),
        Just(StackRef::Lost),
        Just(StackRef::None),
    ]
}

fn counters() -> impl Strategy<Value = Counters> {
    let line = || option::of(any::<u64>());
    (line(), line(), line(), line(), line(), any::<(u64, u64)>()).prop_map(
        |(anon, file, shmem, hugetlb, swap, (minor_faults, major_faults))| Counters {
            anon,
            file,
            shmem,
            hugetlb,
            swap,
            minor_faults,
            major_faults,
        },
    )
}

/// User addresses, and some of the kernel's.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0u64..1 << 47, 1 => u64::MAX - (1 << 20)..=u64::MAX]
}

fn extent() -> impl Strategy<Value = Extent> {
    (address(), 0u64..1 << 20)
        .prop_map(|(start, pages)| Extent::new(start & !(PAGE - 1), pages * PAGE))
}
