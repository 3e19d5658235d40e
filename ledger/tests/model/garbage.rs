//! Evidence comes from outside: a trace may hold anything that its types can hold. Nothing panics, nothing overflows.

use std::sync::Arc;

use memprov_ledger::activity::POOLED;
use memprov_ledger::book::Closed;
use memprov_ledger::evidence::{
    Access, Activity, Backing, Change, Counters, Evidence, Fault, Frames, Gap, Lifecycle, MapFlags,
    Mapping, NodeRange, Placed, Policy, Ran, Region, Residency, Run, StackRef, Stream, Total,
};
use memprov_ledger::identity::{Extent, ObjectKey, PAGE, StackId, StartTicks, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pages::{PageSetBuilder, PageState};
use memprov_ledger::space::Space;
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;
use proptest::prelude::{Just, Strategy, any, prop};
use proptest::{prop_oneof, proptest};

use crate::activity::{LATER, two};
use crate::long::cases;

/// Numbers where arithmetic goes wrong, and a few pages that meet each other.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (0u64..12).prop_map(|page| page * PAGE),
        2 => (0u64..40).prop_map(|n| n * 777),
        2 => (0u64..4).prop_map(|n| u64::MAX - n * PAGE),
        1 => Just(u64::MAX),
        1 => (0u64..3).prop_map(|n| (1 << 47) - n * PAGE),
        1 => any::<u64>(),
    ]
}

fn extent() -> impl Strategy<Value = Extent> {
    (number(), number()).prop_map(|(start, end)| Extent { start, end })
}

fn span() -> impl Strategy<Value = Span> {
    (number(), number()).prop_map(|(a, b)| Span { begin: MonoTime(a), end: MonoTime(b) })
}

fn tgid() -> impl Strategy<Value = Tgid> {
    (0u32..4).prop_map(Tgid)
}

fn stack() -> impl Strategy<Value = StackRef> {
    prop_oneof![
        any::<u32>().prop_map(|id| StackRef::Known(StackId(id))),
        Just(StackRef::Lost),
        Just(StackRef::None),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let flags = (any::<[bool; 9]>(), number())
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
    let key = (0u64..3).prop_map(|inode| ObjectKey { major: 0, minor: 1, inode });
    prop_oneof![
        2 => (extent(), prop::option::of(key), flags.clone())
            .prop_map(|(extent, object, flags)| Change::Vma {
                extent,
                object,
                flags,
                path: object.map(|key| format!("/{}", key.inode).into()),
            }),
        4 => (extent(), flags, stack()).prop_map(|(extent, flags, stack)| Change::Map { extent, flags, stack }),
        2 => extent().prop_map(|extent| Change::Unmap { extent }),
        4 => (extent(), extent(), any::<bool>(), any::<bool>(), stack())
            .prop_map(|(from, to, keep, fixed, stack)| Change::Remap { from, to, keep, fixed, stack }),
        2 => (number(), number(), stack()).prop_map(|(old, new, stack)| Change::Brk { old, new, stack }),
        1 => (number(), any::<bool>(), stack())
            .prop_map(|(at, replaces, stack)| Change::Attach { at, replaces, stack }),
        1 => number().prop_map(|at| Change::Detach { at }),
        1 => (extent(), any::<bool>())
            .prop_map(|(extent, named)| Change::Name { extent, name: named.then(|| "x".into()) }),
        2 => (tgid(), number(), any::<bool>()).prop_map(|(child, start, shares)| Change::Fork {
            child,
            child_start: StartTicks(start),
            shares,
        }),
        1 => Just(Change::Exec),
        1 => Just(Change::Exit),
        1 => extent().prop_map(|extent| Change::Doubt { extent }),
    ]
}

fn counters() -> impl Strategy<Value = Counters> {
    (prop::collection::vec(prop::option::of(number()), 5), number(), number()).prop_map(
        |(of, minor_faults, major_faults)| Counters {
            anon: of[0],
            file: of[1],
            shmem: of[2],
            hugetlb: of[3],
            swap: of[4],
            minor_faults,
            major_faults,
        },
    )
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let key = (0u64..3).prop_map(|inode| ObjectKey { major: 0, minor: 1, inode });
    let backing = prop_oneof![
        Just(Backing::Anonymous),
        Just(Backing::Special),
        key.clone().prop_map(Backing::File),
        key.clone().prop_map(Backing::Shmem),
        key.prop_map(Backing::Hugetlb),
    ];
    (extent(), backing, number(), any::<[bool; 3]>(), prop::option::of(Just("/SYSV0".into())))
        .prop_map(|(extent, backing, offset, b, path)| Mapping {
            extent,
            backing,
            offset,
            shared: b[0],
            exec: b[1],
            write: b[2],
            path,
        })
}

fn residency() -> impl Strategy<Value = Residency> {
    let pages = prop::collection::vec((number(), 0u64..2000, any::<u8>()), 0..6);
    (
        (span(), tgid(), number(), tgid(), prop::option::of((0u64..2, 0u64..2))),
        (counters(), counters(), number(), any::<bool>()),
        prop::collection::vec(mapping(), 0..6),
        pages,
    )
        .prop_map(
            |((when, tgid, start, parent, layout), (before, after, slack, known), maps, pages)| {
                let mut set = PageSetBuilder::default();
                for (start, pages, state) in pages {
                    set.push(
                        Extent::new(start & !(PAGE - 1), pages * PAGE),
                        PageState(state & 0x3f),
                    );
                }
                Residency {
                    when,
                    tgid,
                    start: (start % 8 != 7).then_some(StartTicks(start)),
                    comm: "x".into(),
                    parent,
                    layout,
                    cgroup: None,
                    before,
                    maps: (!maps.is_empty()).then(|| maps.into()),
                    pages: known.then(|| Arc::new(set.build())),
                    exclusive_known: known,
                    after,
                    slack,
                    object_slack: slack / 2,
                }
            },
        )
}

/// Ranges in order most of the time, from `base` on.
pub(crate) fn placed(base: u64) -> impl Strategy<Value = Placed> {
    let node = prop_oneof![9 => 0u32..3, 1 => any::<u32>()];
    let nodes = prop::collection::vec((node, number()), 0..4);
    let range = (prop_oneof![9 => 0u64..3, 1 => number()], 0u64..24, nodes, any::<bool>());
    let ranges = prop::collection::vec(range, 0..5).prop_map(move |ranges| {
        let mut at = base;
        let range = |(gap, quarters, mut nodes, sort): (u64, u64, Vec<(u32, u64)>, bool)| {
            let start = at.saturating_add(gap.saturating_mul(PAGE));
            let extent = Extent::new(start, quarters * PAGE / 4);
            at = extent.end;
            if sort {
                nodes.sort_unstable();
                nodes.dedup_by_key(|(node, _)| *node);
            }
            NodeRange { extent, policy: Policy::Default, nodes }
        };
        ranges.into_iter().map(range).collect::<Vec<NodeRange>>().into()
    });
    let drawn = prop::collection::vec((number(), 0u32..3), 0..5).prop_map(Into::into);
    let ran = (number(), prop::collection::vec((any::<u32>(), number()), 0..2));
    let ran = ran.prop_map(|(since, times)| Ran { since: MonoTime(since), by_node: times.into() });
    (span(), tgid(), prop::option::of(ranges), prop::option::of(drawn), prop::option::of(ran))
        .prop_map(|(when, tgid, ranges, drawn, ran)| Placed { when, tgid, ranges, drawn, ran })
}

/// Extents in order most of the time.
fn extents() -> impl Strategy<Value = Vec<Extent>> {
    (prop::collection::vec(number(), 0..10), any::<bool>()).prop_map(|(mut edges, sort)| {
        if sort {
            edges.sort_unstable();
            edges.dedup();
        }
        let pair = |pair: &[u64; 2]| Extent { start: pair[0], end: pair[1] };
        edges.as_chunks::<2>().0.iter().map(pair).collect()
    })
}

fn activity() -> impl Strategy<Value = Activity> {
    let checks = prop_oneof![9 => 1u32..20, 1 => any::<u32>()];
    (span(), 0u32..2, prop::option::of(tgid()), checks, extents(), number()).prop_map(
        |(when, monitor, tgid, checks, extents, hits)| {
            let hits = u32::try_from(hits % 24).unwrap_or(0).min(checks);
            let region = |extent| Region { extent, hits, age: 0 };
            let regions = extents.into_iter().map(region).collect();
            Activity { when, monitor, tgid, checks, regions }
        },
    )
}

/// While all lasts, most of the time.
fn frames() -> impl Strategy<Value = Frames> {
    let always = Span { begin: MonoTime(0), end: MonoTime(u64::MAX) };
    let when = prop_oneof![3 => Just(always), 1 => span()];
    let at = prop::collection::vec(number(), 5);
    (when, tgid(), 0u32..2, extents(), at, number()).prop_map(
        |(when, tgid, monitor, extents, at, moved)| {
            let run = |(extent, at)| Run { extent, at };
            let runs = extents.into_iter().zip(at).map(run).collect();
            Frames { when, tgid, monitor, runs, moved }
        },
    )
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let fault = (span(), tgid(), number(), any::<[bool; 2]>(), stack(), any::<f64>()).prop_map(
        |(when, tgid, address, [write, present], stack, probability)| {
            Evidence::Fault(Fault { when, tgid, address, write, present, probability, stack })
        },
    );
    let total = (span(), tgid(), number(), counters()).prop_map(|(when, tgid, start, counters)| {
        Evidence::Total(Total { when, tgid, start: StartTicks(start), counters })
    });
    let stream = prop_oneof![
        Just(Stream::Lifecycle),
        Just(Stream::Sideband),
        Just(Stream::Queue),
        Just(Stream::Stacks)
    ];
    let gap = (span(), stream, number(), prop::option::of(tgid()))
        .prop_map(|(when, stream, lost, whose)| Evidence::Gap(Gap { when, stream, lost, whose }));
    prop_oneof![
        12 => (span(), tgid(), change())
            .prop_map(|(when, tgid, change)| Evidence::Lifecycle(Lifecycle { when, tgid, change })),
        3 => residency().prop_map(|seen| Evidence::Residency(Box::new(seen))),
        3 => fault,
        2 => placed(0).prop_map(|seen| Evidence::Placed(Box::new(seen))),
        2 => activity().prop_map(|seen| Evidence::Activity(Box::new(seen))),
        2 => frames().prop_map(|seen| Evidence::Frames(Box::new(seen))),
        1 => total,
        1 => gap,
    ]
}

/// Bounds by node never leave what an owner has resident.
pub(crate) fn assert_placed_within(closed: &Closed) {
    for row in closed.rows.values() {
        let Some(nodes) = &row.nodes else { continue };
        let resident = row.owned.rss();
        let bounds: Vec<(u32, u64, u64)> = nodes.bounds(resident).collect();
        assert!(bounds.iter().all(|(_, lo, hi)| lo <= hi && *hi <= resident), "{row:?}");
        assert!(bounds.iter().map(|(_, lo, _)| lo).sum::<u64>() <= resident, "{row:?}");
        assert!(nodes.unplaced <= resident, "{row:?}");
    }
}

/// What a monitor found of an owner is never more than the owner has, nor than there is.
fn assert_used_within(closed: &Closed) {
    for used in closed.rows.values().filter_map(|row| row.used.as_ref()) {
        assert!(used.cells.iter().all(|c| c.hits <= c.checks && c.checks > 0), "{used:?}");
        assert!(used.cells.iter().all(|c| c.own <= c.present && c.present <= c.len), "{used:?}");
        assert!(used.cells.iter().map(|c| c.own).sum::<u64>() <= used.present, "{used:?}");
    }
}

proptest! {
    #![proptest_config(cases(2000, 100_000))]

    #[test]
    fn any_evidence_at_all_leaves_a_ledger_that_answers(
        evidence in prop::collection::vec(evidence(), 1..40),
        asked in (tgid(), number(), span()),
        since in number(),
        forget in number(),
    ) {
        let mut ledger = Ledger::new(MonoTime(since), Sample { seed: 1, probability: 0.5 });
        let half = evidence.len() / 2;
        for (i, evidence) in evidence.iter().enumerate() {
            // Fewer of a monitor's findings claim nothing.
            let times = if matches!(evidence, Evidence::Activity(_)) { POOLED } else { 1 };
            (0..times).for_each(|_| ledger.apply(evidence));
            if i == half {
                ledger.forget_before(MonoTime(forget));
            }
        }
        let (tgid, address, when) = asked;
        let first = ledger.owner_of(tgid, address, when);
        assert_eq!(first, ledger.owner_of(tgid, address, when));
        let access = Access { tgid: Some(tgid), address: Some(address), ..Access::default() };
        assert!(ledger.node_of(&access).is_none_or(|node| node < 1024));
        let sharing = ledger.sharing();
        let spaces: Vec<&Space> = ledger.spaces().collect();
        assert!(spaces.len() <= 8, "no space without a process: {}", spaces.len());
        for space in &spaces {
            let pieces: Vec<Extent> = space.pieces().map(|p| p.extent).collect();
            assert!(pieces.iter().all(|e| !e.is_empty()), "{pieces:?}");
            assert!(pieces.windows(2).all(|p| p[0].end <= p[1].start), "{pieces:?}");
            if let Some(closed) = sharing.close(space) {
                for book in &closed.books {
                    assert!(book.lo <= book.hi, "{book:?}");
                }
                assert_placed_within(&closed);
                assert_used_within(&closed);
            }
        }
        for monitor in 0..2 {
            let Some(laid) = ledger.laid(monitor) else { continue };
            assert!(laid.segments().all(|(segment, owned)| owned <= segment.extent.len()));
        }
        let shared = sharing.shared(&spaces);
        assert!(shared.iter().all(|s| s.sharers > 1), "{shared:?}");
    }
    #[test]
    fn whatever_monitors_say_of_pages_that_are_known_stays_within_them(
        found in prop::collection::vec((activity(), frames()), 1..8),
    ) {
        let (mut world, [a, _]) = two();
        let ledger = &mut world.watch.ledger;
        let there = |extent: Extent| Extent::new(a.start.saturating_add(extent.start), extent.len());
        for (mut seen, mut frames) in found {
            seen.when.begin = MonoTime(seen.when.begin.0.saturating_add(LATER.0));
            seen.tgid = seen.tgid.and(Some(Tgid(1)));
            if seen.tgid.is_some() {
                let moved = |region: &Region| Region { extent: there(region.extent), ..*region };
                seen.regions = seen.regions.iter().map(moved).collect();
            }
            frames.tgid = Tgid(1);
            let moved = |run: &Run| Run { extent: there(run.extent), ..*run };
            frames.runs = frames.runs.iter().map(moved).collect();
            (0..POOLED).for_each(|_| ledger.apply(&Evidence::Activity(Box::new(seen.clone()))));
            ledger.apply(&Evidence::Frames(Box::new(frames)));
            let space = ledger.space(Tgid(1)).expect("process 1 lives");
            assert_used_within(&ledger.sharing().close(space).expect("it was scanned"));
        }
    }
}
