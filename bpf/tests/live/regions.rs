//! What DAMON says where it runs. Nothing is written to it.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use memprov_bpf::{Region, Regions};

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// A file of DAMON's sysfs. All of it is under one lock that is tried, not waited for.
fn read(path: &str) -> Option<String> {
    let path = format!("{KDAMONDS}/{path}");
    let text = (0..20).find_map(|_| match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
            std::thread::sleep(Duration::from_millis(50));
            None
        }
        other => Some(other.ok()),
    });
    text.flatten().map(|text| text.trim().to_owned())
}

#[test]
fn the_regions_of_a_running_monitor_come_in_whole_ascending_snapshots() {
    let running = read("0/state").is_some_and(|state| state == "on");
    let Some(thread) = read("0/pid").and_then(|pid| pid.parse::<u32>().ok()).filter(|_| running)
    else {
        eprintln!("skipped: no DAMON monitor runs here");
        return;
    };
    let mut regions = match Regions::listen() {
        Ok(regions) => regions,
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    let aggregation = read("0/contexts/0/monitoring_attrs/intervals/aggr_us");
    let aggregation = aggregation.and_then(|us| us.parse().ok()).map(Duration::from_micros);
    let end = Instant::now() + aggregation.unwrap_or(Duration::from_secs(5)) * 3;
    let mut told: Vec<Region> = Vec::new();
    let mut snapshots = 0;
    while Instant::now() < end && snapshots < 2 {
        regions.poll(Duration::from_millis(100), |region| told.push(region)).expect("a poll");
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for region in told.iter().filter(|region| region.thread == thread) {
            *counts.entry(region.regions).or_default() += 1;
        }
        snapshots = counts.iter().filter(|(of, n)| **n >= **of as usize).count();
    }
    assert_eq!(regions.lost(), 0);
    let own: Vec<_> = told.iter().filter(|region| region.thread == thread).collect();
    assert!(snapshots > 0, "{} events of thread {thread}", own.len());
    assert!(own.iter().all(|region| region.start < region.end && region.regions > 0));
    let same = |pair: &[&Region]| pair[0].target == pair[1].target && pair[0].end <= pair[1].start;
    let ascending = own.windows(2).filter(|pair| same(pair)).count();
    assert!(ascending + 3 >= own.len(), "{ascending} of {} ascend", own.len());
    println!("{} regions of thread {thread} in {snapshots} snapshots", own.len());
}
