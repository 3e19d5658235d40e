//! What a sampled access costs, from decoded record to series.
//!
//! Wanted on one core: an owner in 300 ns at a million live intervals, a million samples a second from evidence to
//! series. A million intervals are in no cache: compare with one read that waits for the one before, which the benchmark
//! of the ledger measures.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memprov::access::tally::Tally;
use memprov::config::{Detail, Grain};
use memprov::encode::{Accumulator, Options, Style, Window};
use memprov::fuse::Fuser;
use memprov::trace::{Clock, Header, Line};
use memprov_ledger::evidence::{
    Access, Change, Counters, Evidence, Lifecycle, MapFlags, Population, Residency, Served,
    StackRef,
};
use memprov_ledger::identity::{Extent, PAGE, StackId, StartTicks, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::pages::PageSet;
use memprov_ledger::time::{MonoTime, Span};
use memprov_ledger::touch::Sample;
use memprov_proc::clock;

const PID: Tgid = Tgid(100);
/// Live intervals, by a thousand call sites.
const LIVE: u64 = 1_000_000;
/// Samples of a round.
const SAMPLES: u64 = 100_000;

/// A process that has so many mappings of two pages, with holes of two pages.
fn world(live: u64) -> (Vec<Evidence>, u64) {
    let totals = Counters { anon: Some(0), file: Some(0), ..Counters::default() };
    let seen = Residency {
        when: Span { begin: MonoTime(1), end: MonoTime(2) },
        tgid: PID,
        start: Some(StartTicks(1)),
        comm: "bench".into(),
        parent: Tgid(1),
        layout: None,
        cgroup: None,
        before: totals,
        maps: Some([].into()),
        pages: Some(Arc::new(PageSet::default())),
        exclusive_known: true,
        after: totals,
        slack: 0,
        object_slack: 0,
    };
    let mut all = vec![Evidence::Residency(Box::new(seen))];
    let mut now = 10;
    for slot in 0..live {
        now += 1000;
        let flags = MapFlags { anonymous: true, ..MapFlags::default() };
        let stack = StackRef::Known(StackId(u32::try_from(slot % 1000).unwrap_or(0) + 1));
        let extent = Extent::new(0x7000_0000_0000 + slot * 4 * PAGE, 2 * PAGE);
        let when = Span { begin: MonoTime(now), end: MonoTime(now + 500) };
        let change = Change::Map { extent, flags, stack };
        all.push(Evidence::Lifecycle(Lifecycle { when, tgid: PID, change }));
    }
    (all, now)
}

/// Loads at random places of so many mappings.
fn loads(live: u64, now: u64) -> Vec<Access> {
    let mut x = 0x9e37u64;
    let mut random = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let one = |number| {
        let bits = random();
        let remote = Served::RemoteMemory { hops: None };
        Access {
            when: Span::at(MonoTime(now + 1000 + number * 10_000)),
            tgid: Some(PID),
            address: Some(0x7000_0000_0000 + bits % live * 4 * PAGE + (bits >> 40) % (2 * PAGE)),
            population: Population::Loads,
            period: Some(10_007),
            latency: Some(100 + (bits >> 20) % 900),
            served: if bits & 1 == 0 { Served::Local } else { remote },
            ..Access::default()
        }
    };
    (0..SAMPLES).map(one).collect()
}

/// Measures CPU time of this thread: what else runs on the machine takes turns, and only shares its caches.
fn cpu(mut work: impl FnMut()) -> impl FnMut(u64) -> Duration {
    move |rounds| {
        let begin = clock::thread_cpu();
        (0..rounds).for_each(|_| work());
        clock::thread_cpu().saturating_sub(begin)
    }
}

fn owners(c: &mut Criterion) {
    let mut group = c.benchmark_group("a sampled access");
    group.throughput(Throughput::Elements(SAMPLES)).sample_size(10);
    for live in [100, LIVE] {
        let (evidence, now) = world(live);
        let mut ledger = Ledger::new(MonoTime(0), Sample::default());
        evidence.iter().for_each(|evidence| ledger.apply(evidence));
        let loads = loads(live, now);
        group.bench_function(format!("whose it is, {live} intervals"), |b| {
            b.iter_custom(cpu(|| {
                for load in &loads {
                    let address = load.address.unwrap_or(0);
                    black_box(ledger.owner_of(PID, address, load.when));
                }
            }));
        });
        let mut tally = Tally::default();
        group.bench_function(format!("added to its owner, {live} intervals"), |b| {
            b.iter_custom(cpu(|| loads.iter().for_each(|load| tally.add(load, &ledger))));
        });
    }
    group.finish();
}

fn series(c: &mut Criterion) {
    let (evidence, now) = world(10_000);
    let loads = loads(10_000, now);
    let header = Header::new(Clock { wall_at_zero: 0 }, MonoTime(0));
    let mut fuser = Fuser::new(header, "replay", Duration::from_secs(60));
    for evidence in evidence {
        drop(fuser.apply(Line::Evidence(evidence)));
    }
    let mut accumulator = Accumulator::new(Options {
        detail: Detail::Owners,
        grain: Grain::Container,
        owners: 100,
        resources: 10,
        exemplar_logs: false,
        max_age: Duration::from_secs(900),
        style: Style::default(),
    });
    let mut end = now;
    let mut group = c.benchmark_group("from evidence to series");
    group.throughput(Throughput::Elements(SAMPLES)).sample_size(10);
    group.bench_function("a pane of accesses", |b| {
        b.iter_custom(cpu(|| {
            for load in &loads {
                drop(fuser.apply(Line::Evidence(Evidence::Access(Box::new(load.clone())))));
            }
            end += 1;
            let report = fuser.report(None, MonoTime(end));
            black_box(accumulator.json(&report, Window { start: 1, end }));
        }));
    });
    group.finish();
}

criterion_group!(benches, owners, series);
criterion_main!(benches);
