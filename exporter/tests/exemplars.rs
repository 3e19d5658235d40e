//! Exemplars of sampled accesses, from a report to a receiver: with their metric, and on request as log records.

mod receiver;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use memprov::config::{Compression, Config, Protocol};
use memprov::exemplar::Exemplar;
use memprov::exporting::Exporting;
use memprov::histogram::{CYCLES, Histogram};
use memprov::report::{AccessRow, AccessSums, Accesses, Host, Identity, Report, SCHEMA};
use memprov::sending::Sending;
use memprov::trace::{self, Clock, Header, Scope};
use memprov_ledger::time::MonoTime;
use memprov_ledger::touch::Sample;
use receiver::Receiver;

/// The zero of the monotonic clock, in nanoseconds since the Unix epoch.
const ZERO: i64 = 1_790_000_000_000_000_000;

fn header() -> Header {
    Header {
        schema: trace::SCHEMA.to_owned(),
        version: "0".to_owned(),
        clock: Clock { wall_at_zero: ZERO },
        watching_since: MonoTime(0),
        watching_ticks: None,
        host: Host::default(),
        scope: Scope { all: true, pids: Vec::new() },
        sample: Sample::default(),
        identity: Identity::default(),
        boot_id: None,
        support: Vec::new(),
        redacted: false,
    }
}

/// An owner with one sample of 300 cycles, so many nanoseconds after the zero of the clock.
fn report(at: u64) -> Report {
    let mut latency = Histogram::default();
    latency.record(300.0, 1.0);
    let sample = Exemplar::new(ZERO.unsigned_abs() + at, 300.0, 1009, None);
    latency.exemplars.offer(&CYCLES, 1.0, 1, sample);
    let sums = AccessSums {
        samples: BTreeMap::from([("attributed".to_owned(), 1)]),
        timed: 1,
        latency: Some(latency),
        ..AccessSums::default()
    };
    let row = AccessRow {
        id: "aa".to_owned(),
        kind: "mapping".to_owned(),
        name: "main".to_owned(),
        population: "loads".to_owned(),
        sums,
        ..AccessRow::default()
    };
    Report {
        schema: SCHEMA.to_owned(),
        source: "daemon".to_owned(),
        generated_at: "2026-09-21T14:14:20Z".to_owned(),
        watching_since: "2026-09-21T14:13:20Z".to_owned(),
        accesses: Some(Accesses { totals: BTreeMap::new(), owners: vec![row] }),
        ..Report::default()
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Exports to `receiver`, with exemplars as log records.
fn config(receiver: &Receiver) -> Config {
    let mut config = Config::default();
    config.export.endpoint = format!("http://127.0.0.1:{}", receiver.port);
    config.export.protocol = Protocol::HttpProtobuf;
    config.export.compression = Compression::None;
    config.export.interval = Duration::from_millis(10);
    config.export.exemplar_logs = true;
    config
}

/// Log records that arrived, as the newest point of the metric tells.
fn counted(receiver: &Receiver) -> Option<u64> {
    let points = receiver.points();
    let ours = points.iter().filter(|point| {
        point.metric == "memprov.export.records" && point.series.contains("delivered")
    });
    let newest = ours.max_by_key(|point| point.time)?;
    newest.told["asInt"].as_str()?.parse::<u64>().ok()
}

#[test]
fn counts_of_log_records_go_on_when_they_are_asked_for_again() {
    let receiver = Receiver::start();
    let mut config = config(&receiver);
    let mut exporting = Exporting::start(&config, &header()).unwrap();
    let end = Cell::new(0);
    let offer = |exporting: &Exporting| {
        end.set(end.get() + 1_000_000_000);
        exporting.offer(&report(end.get() - 5), MonoTime(end.get()));
    };
    for (asked, records) in [(true, 1), (false, 1), (true, 2), (false, 2), (true, 3)] {
        config.export.exemplar_logs = asked;
        exporting.change(&config).unwrap();
        if asked {
            offer(&exporting);
            until("records", || receiver.messages("/v1/logs").len() == records);
        }
        until("the count", || {
            end.set(end.get() + 1_000_000_000);
            exporting.offer(&report(0), MonoTime(end.get()));
            counted(&receiver) == Some(records as u64)
        });
    }
}

#[test]
fn exemplars_arrive_as_log_records_while_they_are_asked_for() {
    let receiver = Receiver::start();
    let mut config = config(&receiver);
    let mut exporting = Exporting::start(&config, &header()).unwrap();
    exporting.offer(&report(5), MonoTime(1_000_000_000));
    until("records", || !receiver.messages("/v1/logs").is_empty());
    let told = &receiver.messages("/v1/logs")[0];
    let record = &told["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(record["timeUnixNano"], (ZERO + 5).to_string(), "{told}");
    assert_eq!(record["body"]["stringValue"], "memprov.access.latency = 300 {cycle}");
    assert_eq!(record["eventName"], "memprov.exemplar");
    until("the metric", || counted(&receiver) == Some(0));
    // The receiver has the records before the client knows that it has.
    let end = Cell::new(1_000_000_000);
    until("the count", || {
        end.set(end.get() + 1_000_000_000);
        exporting.offer(&report(5), MonoTime(end.get()));
        counted(&receiver) == Some(1)
    });
    config.export.exemplar_logs = false;
    exporting.change(&config).unwrap();
    let before = receiver.messages("/v1/logs").len();
    // One of the last pane: it would be a record if they were still asked for.
    exporting.offer(&report(end.get() + 5), MonoTime(end.get() + 1_000_000_000));
    exporting.finish(MonoTime(end.get() + 2_000_000_000));
    assert_eq!(receiver.messages("/v1/logs").len(), before);
}

#[test]
fn log_records_of_an_import_arrive_though_attempts_failed() {
    let attempts = Arc::new(AtomicU32::new(0));
    let receiver = Receiver::answering(move |path| {
        let early = path == "/v1/logs" && attempts.fetch_add(1, Ordering::Relaxed) < 2;
        if early { "503 Service Unavailable" } else { "200 OK" }
    });
    let mut sending = Sending::start(&config(&receiver), &header()).unwrap();
    sending.pane(&report(5)).unwrap();
    let told = sending.finish();
    assert!(told.is_ok(), "{told:?}");
    assert_eq!(receiver.messages("/v1/logs").len(), 1);
}

#[test]
fn records_that_arrive_after_others_were_asked_for_and_not_again_are_counted() {
    let answered = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicBool::new(false));
    let (gate, came) = (Arc::clone(&answered), Arc::clone(&asked));
    let receiver = Receiver::answering(move |path| {
        if path == "/v1/logs" {
            came.store(true, Ordering::Relaxed);
            until("the answer", || gate.load(Ordering::Relaxed));
        }
        "200 OK"
    });
    let mut config = config(&receiver);
    let mut exporting = Exporting::start(&config, &header()).unwrap();
    exporting.offer(&report(5), MonoTime(1_000_000_000));
    until("a request", || asked.load(Ordering::Relaxed));
    for on in [false, true, false] {
        config.export.exemplar_logs = on;
        exporting.change(&config).unwrap();
    }
    answered.store(true, Ordering::Relaxed);
    let end = Cell::new(1_000_000_000);
    until("the count", || {
        end.set(end.get() + 1_000_000_000);
        exporting.offer(&report(0), MonoTime(end.get()));
        counted(&receiver) == Some(1)
    });
}
