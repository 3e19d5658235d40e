//! Snapshots of a recording, against those that DAMON's own tool makes of it.

use std::path::Path;

use memprov_damon::{Assembler, Event, Region};
use memprov_ledger::time::MonoTime;

const RECORDING: &str = "../../shared/data/damon/damo-tests/tests/report";

fn read(name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDING).join(name);
    let text = std::fs::read_to_string(&path);
    text.inspect_err(|error| eprintln!("skipped: {}: {error}", path.display())).ok()
}

/// An event as `perf script` prints it: `kdamond.0 4452 [000] 82820.952659: damon:damon_aggregated: target_id=1 nr_regions=8
/// 94253027950592-94253031862272: 0`.
fn event(line: &str) -> Option<Event> {
    let mut words = line.split_whitespace().skip(1);
    let thread = words.next()?.parse().ok()?;
    let (seconds, micros) = words.nth(1)?.trim_end_matches(':').split_once('.')?;
    let nanos = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000;
    let regions = words.nth(2)?.strip_prefix("nr_regions=")?.parse().ok()?;
    let (start, end) = words.next()?.trim_end_matches(':').split_once('-')?;
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    let accesses = words.next()?.parse().ok()?;
    let region = Region { start, end, accesses, age: 0 };
    Some(Event { when: MonoTime(nanos), thread, target: 0, regions, region })
}

/// Snapshots as the tool prints them: `55b8fe400000-55b8fe7bb000 (   3.730 MiB)           0    -1` below `nr_regions: 8`.
fn printed(text: &str) -> Vec<Vec<(u64, u64, u32)>> {
    let mut snapshots: Vec<Vec<_>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("nr_regions:") {
            snapshots.push(Vec::new());
        }
        let region = || {
            let (range, rest) = line.split_once(" (")?;
            let (start, end) = range.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            let accesses = rest.split_once(')')?.1.split_whitespace().next()?.parse().ok()?;
            Some((hex(start)?, hex(end)?, accesses))
        };
        if let (Some(region), Some(last)) = (region(), snapshots.last_mut()) {
            last.push(region);
        }
    }
    snapshots
}

#[test]
fn snapshots_are_those_that_damons_own_tool_finds() {
    let (Some(script), Some(report)) =
        (read("perf.data.script"), read("expects/report-raw_perf_script"))
    else {
        return;
    };
    let mut assembler = Assembler::default();
    let events: Vec<Event> = script.lines().filter_map(event).collect();
    assert_eq!(events.len(), script.lines().filter(|line| line.contains("aggregated:")).count());
    let whole = events.iter().filter_map(|event| assembler.take(event));
    let found: Vec<Vec<_>> = whole
        .map(|snapshot| snapshot.regions.iter().map(|r| (r.start, r.end, r.accesses)).collect())
        .collect();
    let expected = printed(&report);
    assert!(expected.len() > 100, "{} snapshots are printed", expected.len());
    assert_eq!(assembler.truncated(), 0);
    assert_eq!(found.len(), expected.len());
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "snapshot {number}");
    }
    println!("{} snapshots, {} regions", found.len(), events.len());
}
