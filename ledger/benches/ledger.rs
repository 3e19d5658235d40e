//! What the ledger costs: lifecycle events at a million live intervals, questions, fork, closing a book, memory.
//!
//! Wanted on one core: 3 million events a second, an answer in 200 ns, fork of 10⁵ pieces in 1 ms, 96 bytes a live
//! interval. A million intervals are in no cache: what a machine can do at random places is told by the time of one read
//! that waits for the one before, in as much memory (`one read after another`).

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memprov_ledger::evidence::{
    Backing, Change, Counters, Evidence, Lifecycle, MapFlags, Mapping, Residency, StackRef,
};
use memprov_ledger::identity::{
    Extent, Generation, IntervalId, PAGE, SpaceId, StackId, StartTicks, Tgid,
};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pages::{PageSet, PageState};
use memprov_ledger::piece_map::PieceMap;
use memprov_ledger::pieces::{Piece, Traits};
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;
use rustix::time::{ClockId, clock_gettime};

/// Time on a CPU, so that what else runs on the machine costs caches but no turns.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    fn end(&self, start: Duration) -> Duration {
        self.start().saturating_sub(start)
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// Live intervals in all.
const LIVE: u64 = 1_000_000;

/// A ledger, its clock, and a source of numbers.
struct Load {
    ledger: Ledger,
    spaces: u64,
    now: u64,
    x: u64,
}

impl Load {
    /// `spaces` processes that have `live` mappings of two pages between them, with holes of two pages.
    fn new(spaces: u64, live: u64) -> Self {
        let sample = Sample { seed: 1, probability: 0.01 };
        let mut load = Self { ledger: Ledger::new(MonoTime(0), sample), spaces, now: 1, x: 0x9e37 };
        for space in 0..spaces {
            load.scan(space, &[], PageSet::default());
            for slot in 0..live / spaces {
                load.map(space, slot);
            }
        }
        load
    }

    fn random(&mut self, below: u64) -> u64 {
        self.x ^= self.x << 13;
        self.x ^= self.x >> 7;
        self.x ^= self.x << 17;
        self.x % below
    }

    fn tgid(space: u64) -> Tgid {
        Tgid(100 + u32::try_from(space).unwrap_or(0))
    }

    fn extent(slot: u64) -> Extent {
        Extent::new(0x7000_0000_0000 + slot * 4 * PAGE, 2 * PAGE)
    }

    fn change(&mut self, space: u64, change: Change) {
        self.now += 1000;
        let when = Span { begin: MonoTime(self.now), end: MonoTime(self.now + 500) };
        let event = Lifecycle { when, tgid: Self::tgid(space), change };
        self.ledger.apply(&Evidence::Lifecycle(event));
    }

    fn map(&mut self, space: u64, slot: u64) {
        let flags = MapFlags { anonymous: true, ..MapFlags::default() };
        let stack = StackRef::Known(StackId(u32::try_from(slot % 1000).unwrap_or(0) + 1));
        self.change(space, Change::Map { extent: Self::extent(slot), flags, stack });
    }

    /// Unmaps and maps again a mapping somewhere: two events.
    fn churn(&mut self, live: u64) {
        let (space, slot) = (self.random(self.spaces), self.random(live / self.spaces));
        self.change(space, Change::Unmap { extent: Self::extent(slot) });
        self.map(space, slot);
    }

    fn scan(&mut self, space: u64, maps: &[Mapping], pages: PageSet) {
        self.now += 2000;
        let resident = pages.all().map(|(extent, _)| extent.len()).sum();
        let totals = Counters { anon: Some(resident), file: Some(0), ..Counters::default() };
        let seen = Residency {
            when: Span { begin: MonoTime(self.now), end: MonoTime(self.now + 1000) },
            tgid: Self::tgid(space),
            start: Some(StartTicks(1)),
            comm: "bench".into(),
            parent: Tgid(1),
            layout: None,
            cgroup: None,
            before: totals,
            maps: Some(maps.into()),
            pages: Some(Arc::new(pages)),
            exclusive_known: true,
            after: totals,
            slack: 0,
            object_slack: 0,
        };
        self.ledger.apply(&Evidence::Residency(Box::new(seen)));
        self.now += 1000;
    }

    /// Scans space 0: every mapping is listed and has its first page.
    fn scan_all_of(&mut self, live: u64) {
        let mapping = |slot| Mapping {
            extent: Self::extent(slot),
            backing: Backing::Anonymous,
            offset: 0,
            shared: false,
            exec: false,
            write: true,
            path: None,
        };
        let maps: Vec<Mapping> = (0..live).map(mapping).collect();
        let page = |m: &Mapping| (Extent::new(m.extent.start, PAGE), PageState(PageState::PRESENT));
        let pages = maps.iter().map(page).collect();
        self.scan(0, &maps, pages);
    }
}

fn events(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("lifecycle events at a million live intervals");
    group.throughput(Throughput::Elements(2));
    for spaces in [1, 1000] {
        let mut load = Load::new(spaces, LIVE);
        group.bench_function(format!("{spaces} spaces, random places"), |b| {
            b.iter(|| load.churn(LIVE));
        });
        let mut slot = 0;
        group.bench_function(format!("{spaces} spaces, the place freed last"), |b| {
            b.iter(|| {
                slot = if load.random(8) == 0 { load.random(LIVE / spaces) } else { slot };
                load.change(0, Change::Unmap { extent: Load::extent(slot) });
                load.map(0, slot);
            });
        });
    }
    group.finish();
}

fn questions(c: &mut Criterion<CpuTime>) {
    let mut load = Load::new(1, LIVE);
    c.bench_function("owner_of at a million live intervals", |b| {
        b.iter(|| {
            let addr = Load::extent(load.random(LIVE)).start + 100;
            let when = Span::at(MonoTime(load.now));
            black_box(load.ledger.owner_of(Load::tgid(0), addr, when))
        });
    });
}

/// Lines of 64 bytes, as many bytes as a million intervals may take, each read only once the last one told its place.
fn memory_alone(c: &mut Criterion<CpuTime>) {
    let mut load = Load::new(0, 0);
    let lines = LIVE * 96 / 64;
    let mut order: Vec<u64> = (0..lines).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, usize::try_from(load.random(last as u64)).unwrap_or(0));
    }
    let mut next = vec![[0u64; 8]; order.len()];
    for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
        next[usize::try_from(*from).unwrap_or(0)][0] = *to;
    }
    let mut at = 0;
    c.bench_function("one read after another in 96 MB", |b| {
        b.iter(|| {
            at = next[usize::try_from(at).unwrap_or(0)][0];
            at
        });
    });
}

fn fork(c: &mut Criterion<CpuTime>) {
    let mut load = Load::new(1, 100_000);
    let mut child = 1000;
    c.bench_function("fork of 100,000 pieces, and exit", |b| {
        b.iter(|| {
            child += 1;
            let fork = Change::Fork {
                child: Load::tgid(child),
                child_start: StartTicks(child),
                shares: false,
            };
            load.change(0, fork);
            load.change(child, Change::Exit);
            // Ended spaces are kept for late observations; forgetting them is a part of the cost.
            load.ledger.forget_before(MonoTime(load.now.saturating_sub(10_000)));
        });
    });
}

fn books(c: &mut Criterion<CpuTime>) {
    let mut load = Load::new(1, 30_000);
    c.bench_function("a scan of 30,000 pieces is taken in", |b| {
        b.iter(|| load.scan_all_of(30_000));
    });
    let ledger = &load.ledger;
    c.bench_function("a book of 30,000 pieces is closed", |b| {
        b.iter(|| {
            let space = ledger.space(Load::tgid(0)).expect("it was scanned");
            black_box(ledger.sharing().close(space))
        });
    });
}

/// Bytes a live interval: in order of address, in random order, and after half of them were taken out at random.
fn memory(_: &mut Criterion<CpuTime>) {
    let mut load = Load::new(0, 0);
    let piece = |n: u64| Piece {
        extent: Load::extent(n),
        id: IntervalId { space: SpaceId(1), generation: Generation(n) },
        born: Span::default(),
        traits: Traits::default(),
        offset: 0,
        stack: StackRef::None,
        origin: None,
    };
    let print = |order: &str, map: &PieceMap| {
        let bytes = map.footprint() as f64 / map.len() as f64;
        println!("{order}: {bytes:.1} bytes a live interval");
    };
    let mut rising = PieceMap::default();
    (0..LIVE).for_each(|n| rising.insert(piece(n)));
    print("rising", &rising);
    let mut random = PieceMap::default();
    // An odd step visits every residue of a power of two once.
    (0..1 << 20).for_each(|n: u64| random.insert(piece(n.wrapping_mul(0x9e37_79b1) % (1 << 20))));
    print("random", &random);
    for _ in 0..1 << 20 {
        random.cut(Load::extent(load.random(1 << 20)), &mut Vec::new());
    }
    print("a third left at random", &random);
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = memory, memory_alone, events, questions, fork, books
}
criterion_main!(benches);
