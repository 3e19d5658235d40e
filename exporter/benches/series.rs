//! What series cost: a pane of 80,000 points (as many as 10,000 owners with 8 series each), taken in and shipped.
//!
//! Wanted on one core: taking in, encoding and sending within 100 ms.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memprov::config::{Detail, Grain};
use memprov::encode::{Accumulator, Options, Style, Window};
use memprov::otlp::{Fate, Feed};
use memprov::report::{Faults, Host, OwnerRow, Process, Quantity, Report, SCHEMA};
use memprov_ledger::evidence::EvidenceClass::{self, Exact, Inferred};
use prost::Message;

/// Each has six series: reserved, resident and swapped, exact and inferred.
const OWNERS: u64 = 13_334;

fn row(n: u64, class: EvidenceClass) -> OwnerRow {
    let bytes = |bytes| Quantity { bytes: Some(bytes), evidence: class, lo: None, hi: None };
    OwnerRow {
        id: format!("{n:032x}"),
        kind: "mapping".to_owned(),
        name: format!("a_function_with_a_name_of_usual_length_{n}"),
        caller: String::new(),
        stability: "content".to_owned(),
        stack: Vec::new(),
        truncated: false,
        reserved: bytes(n << 13),
        resident: bytes(n << 12),
        swapped: Some(bytes(n)),
        growth_per_minute: None,
        intervals: 1,
        first_touch: Vec::new(),
    }
}

fn process(pid: u32, class: EvidenceClass) -> Process {
    Process {
        pid,
        start_time: u64::from(pid),
        comm: "server".to_owned(),
        space: format!("{pid:x}"),
        space_pids: vec![pid],
        cgroup: None,
        container: Some("c".repeat(64)),
        as_of: "2026-09-21T14:14:18Z".to_owned(),
        lossless: true,
        pages_unread: false,
        predates: 0,
        books: BTreeMap::new(),
        owners: (0..OWNERS).map(|n| row(n, class)).collect(),
        faults: Faults::default(),
        first_touch: None,
    }
}

fn report() -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        source: "daemon".to_owned(),
        generated_at: "2026-09-21T14:14:20Z".to_owned(),
        watching_since: "2026-09-21T14:13:20Z".to_owned(),
        mechanism: None,
        host: Host::default(),
        processes: vec![process(1, Exact), process(2, Inferred)],
        shared: Vec::new(),
        lost: BTreeMap::new(),
        scan_seconds: memprov::histogram::Histogram::default(),
        agent: None,
        about: None,
    }
}

fn pane(c: &mut Criterion) {
    let report = report();
    let options = Options {
        detail: Detail::Owners,
        grain: Grain::Container,
        owners: usize::MAX,
        resources: 32,
        max_age: Duration::from_secs(600),
        style: Style::default(),
    };
    let start = 1_790_000_000_000_000_000;
    let mut series = Accumulator::new(options);
    let mut end = start;
    let mut next = || {
        end += 1_000_000;
        series.pane(&report, Window { start, end });
        let shipment = series.next().expect("a pane was taken in");
        series.settle(shipment.number, Fate::Delivered);
        shipment
    };
    let shipment = next();
    let bytes: usize = shipment.parts.iter().map(Message::encoded_len).sum();
    let points = 6 * OWNERS;
    println!("{bytes} bytes in {} parts, {} a point", shipment.parts.len(), bytes as u64 / points);
    let mut group = c.benchmark_group("series");
    group.throughput(Throughput::Elements(points)).sample_size(10);
    group.bench_function("pane and shipment", |b| b.iter(|| black_box(next())));
    group.bench_function("and its bytes", |b| {
        b.iter(|| {
            let parts = next().parts;
            black_box(parts.iter().map(|part| part.encode_to_vec().len()).sum::<usize>())
        });
    });
    group.finish();
}

criterion_group!(benches, pane);
criterion_main!(benches);
