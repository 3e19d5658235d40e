//! Many owners, many containers, many processes.

use prost::Message;

use super::reader::Reader;
use super::*;
use crate::encode::{PER_RESOURCE, estimate};

#[test]
fn fifty_thousand_owners_fit_a_server_that_takes_four_mebibytes_and_none_is_missing_or_twice() {
    let rows = (0..50_000u64).map(|n| {
        let mut row = owner(&format!("{n:032x}"), bytes(n * 4096, Exact));
        row.name = format!("a_function_with_a_name_of_usual_length_{n}");
        row
    });
    let report = report(vec![process(7, Some("c0ffee"), rows.collect())]);
    let mut series = Accumulator::new(all());
    series.pane(&report, WINDOW);
    let shipment = series.next().unwrap();
    assert!(shipment.parts.len() > 4, "{}", shipment.parts.len());
    let mut seen = BTreeSet::new();
    let mut sum = 0;
    for part in &shipment.parts {
        let size = part.size();
        let part: ExportMetricsServiceRequest = part.decode().unwrap();
        assert!(size < 3 << 20 && size == part.encoded_len(), "{size}, {}", part.encoded_len());
        assert!(part.resource_metrics.iter().all(|r| r.resource.is_some()));
        for flat in flat(&part) {
            if flat.metric == "memprov.memory.resident" {
                sum += flat.value();
            }
            let identity = (flat.resource, flat.metric.to_owned(), flat.attributes);
            assert!(seen.insert(identity), "a series twice");
        }
    }
    let owned: u64 = (0..50_000u64).map(|n| n * 4096).sum();
    assert_eq!(sum, i64::try_from(owned + 70 + 4096).unwrap());
    let ids = seen.iter().filter(|(_, metric, attributes)| {
        metric == "memprov.memory.resident" && attributes.contains_key("memprov.owner.id")
    });
    assert_eq!(ids.count(), 50_000 + 1);
}

#[test]
fn of_five_thousand_owners_the_largest_is_named_though_it_comes_last_and_no_sum_depends_on_the_cap()
{
    let row = |n: u64| owner(&format!("{n:04}"), bytes(n * 4096, Exact));
    let tell = |cap: usize| {
        let mut series = Accumulator::new(Options { owners: cap, ..all() });
        let mut last = BTreeMap::new();
        let mut named = BTreeSet::new();
        for minute in 1..=5u64 {
            let mut rows: Vec<OwnerRow> = (1..=minute * 1000).map(row).collect();
            if minute == 5 {
                rows.push(owner("the largest", bytes(1 << 40, Exact)));
            }
            let mut one = process(7, Some("c0ffee"), rows);
            one.as_of = "2026-09-21T14:20:00Z".to_owned();
            series.pane(&report(vec![one]), Window { start: START, end: START + minute * MINUTE });
            let request = ship(&mut series);
            last = sums(&request, "memprov.evidence");
            let points = flat(&request);
            let live = points.iter().filter(|f| f.point.value.is_some());
            named = live.map(|flat| flat.get("memprov.owner.id").to_owned()).collect();
        }
        (last, named)
    };
    let (sums, named) = tell(2_000);
    let (whole, all_named) = tell(1_000_000);
    assert_eq!(sums, whole);
    assert!(named.contains("the largest"));
    // The shared object and what has no owner.
    assert_eq!((named.len(), all_named.len()), (2_000 + 2, 5_001 + 2));
}

#[test]
fn a_hundred_thousand_starts_of_processes_leave_series_and_memory_as_they_were() {
    for grain in [Grain::Container, Grain::Process] {
        let mut series = Accumulator::new(Options { grain, ..kinds() });
        let mut reader = Reader::default();
        let mut largest = (0, 0);
        for minute in 1..=250u64 {
            let processes = (0..400u32).map(|n| {
                let pid = u32::try_from(minute).unwrap() * 400 + n;
                let container = format!("c{}", n % 20);
                let rows =
                    vec![owner(&format!("{:02x}", n % 10), bytes(u64::from(n) << 12, Exact))];
                let mut one = process(pid, (n > 100).then_some(&container), rows);
                one.as_of = "2026-09-21T20:00:00Z".to_owned();
                one
            });
            let report = report(processes.collect());
            series.pane(&report, Window { start: START, end: START + minute * MINUTE });
            let request = ship(&mut series);
            if minute % 50 == 0 {
                reader = Reader::default();
            }
            drop(std::mem::take(&mut reader));
            let size = (series.series(), request.encoded_len());
            if minute <= 5 {
                largest = (largest.0.max(size.0), largest.1.max(size.1));
            }
            assert!(size.0 <= largest.0 && size.1 <= largest.1 * 11 / 10, "{size:?} {largest:?}");
        }
        assert!(largest.0 <= 700 + 700, "{largest:?}");
    }
}

#[test]
fn where_nobody_takes_shipments_memory_stays_bounded_and_loss_is_counted() {
    let mut series = Accumulator::new(Options { grain: Grain::Process, resources: 1000, ..all() });
    for minute in 1..=60u64 {
        // Each lives for two panes, so that it counts something.
        let processes = (0..800u32).map(|n| {
            let pid = u32::try_from(minute).unwrap() * 400 + n;
            let mut one = process(pid, None, vec![owner("aa", bytes(4096, Exact))]);
            one.faults = Some(Faults { minor: 100 * minute, ..Default::default() });
            one.as_of = "2026-09-21T15:00:00Z".to_owned();
            one
        });
        let report = report(processes.collect());
        series.pane(&report, Window { start: START, end: START + minute * MINUTE });
        assert!(series.series() < 10_000 + 1001 * 20, "{}", series.series());
    }
    assert!(series.lost() > 0);
}

/// A host with 30 containers, as many units, and processes in neither, each with many owners, all five kinds of memory.
fn crowded() -> Report {
    let mut processes = Vec::new();
    for n in 0..60u32 {
        for k in 0..3u32 {
            let rows = (0..200u64).map(|i| owner(&format!("{i:02x}-{k}"), bytes(i << 12, Exact)));
            let id = format!("{n:064x}");
            let mut one = process(n * 3 + k, (n < 30).then_some(&id), rows.collect());
            let unit = format!("/system.slice/u{n}.service");
            one.cgroup = (30..58).contains(&n).then_some(unit);
            let book = one.books["anon"].clone();
            for kind in ["file", "shmem", "swap", "hugetlb"] {
                one.books.insert(kind.to_owned(), book.clone());
            }
            processes.push(one);
        }
    }
    let mut report = report(processes);
    let mut agent = agent();
    for n in 0..10 {
        agent.cpu_seconds.insert(format!("thread{n}"), 1.0);
    }
    let skips = ["still", "budget", "vanished", "refused", "placement"];
    agent.scans.skipped = skips.map(|why| (why.to_owned(), 1)).into();
    report.agent = Some(agent);
    report.scan_seconds.record(0.1, 1.0);
    let row = |n: u32| Support {
        id: format!("c{n}"),
        state: "available".to_owned(),
        mechanism: None,
        class: None,
    };
    let support = (0..25).map(row).collect();
    report.about = Some(Arc::new(About { identity: identity(), support }));
    report
}

#[test]
fn a_host_with_thirty_containers_makes_700_series_at_most_and_no_more_than_were_estimated() {
    let report = crowded();
    let cgroups: Vec<(Option<String>, Option<String>)> =
        report.processes.iter().map(|p| (p.container.clone(), p.cgroup.clone())).collect();
    let live = || cgroups.iter().map(|(id, path)| (id.as_deref(), path.as_deref()));
    for options in [kinds(), Options { detail: Detail::Owners, ..kinds() }] {
        let estimate = estimate(&options, live()).unwrap();
        let request = with(&report, options.clone());
        let mut by_resource: BTreeMap<String, usize> = BTreeMap::new();
        for flat in flat(&request) {
            *by_resource.entry(flat.resource["service.instance.id"].clone()).or_default() += 1;
        }
        let total: usize = by_resource.values().sum();
        assert_eq!(by_resource.len(), 34, "agent, host and 32 others");
        assert!(total <= estimate.total(), "{total} {estimate:?}");
        let mut counts: Vec<usize> = by_resource.into_values().collect();
        counts.sort_unstable();
        if options.detail == Detail::Kinds {
            assert!(total <= 700 && estimate.total() <= 700, "{total} {estimate:?}");
            assert!(counts[..33].iter().all(|count| *count <= PER_RESOURCE), "{counts:?}");
        }
        assert!(counts[..32].iter().all(|count| *count <= estimate.each), "{counts:?}");
    }
}

#[test]
fn where_a_monitor_and_a_sampler_cover_every_owner_there_are_no_more_series_than_were_estimated() {
    let mut report = crowded();
    for process in &mut report.processes {
        process.owners.iter_mut().for_each(|row| row.touched = Some(touched()));
    }
    report.accesses = Some(super::accessed::everywhere(&report.processes));
    let cgroups: Vec<(Option<String>, Option<String>)> =
        report.processes.iter().map(|p| (p.container.clone(), p.cgroup.clone())).collect();
    let live = || cgroups.iter().map(|(id, path)| (id.as_deref(), path.as_deref()));
    for (options, both) in [(kinds(), false), (Options { detail: Detail::Owners, ..kinds() }, true)]
    {
        let estimate = estimate(&options, live()).unwrap();
        let request = with(&report, options);
        let mut touched: BTreeMap<String, usize> = BTreeMap::new();
        let mut accessed = touched.clone();
        let all = flat(&request);
        for flat in &all {
            let resource = || flat.resource["service.instance.id"].clone();
            if flat.metric.starts_with("memprov.memory.touched") {
                *touched.entry(resource()).or_default() += 1;
            }
            let populated = flat.metric == "memprov.memory.populated";
            if populated || flat.metric.starts_with("memprov.access.") {
                *accessed.entry(resource()).or_default() += 1;
            }
        }
        assert!(all.len() <= estimate.most(), "{} {estimate:?}", all.len());
        assert_eq!(accessed.values().max(), Some(&estimate.accesses));
        assert_eq!(touched.values().max().copied(), both.then_some(estimate.touched));
        assert!(accessed.len() <= estimate.resources + 1 && touched.len() <= accessed.len());
    }
}

#[test]
fn the_number_of_series_stays_within_the_estimate_through_a_rolling_deploy() {
    let mut series = Accumulator::new(kinds());
    for minute in 1..=40u64 {
        let processes = (0..30u32).map(|n| {
            // Every container is replaced once, one a minute.
            let generation = u32::from(u64::from(n) < minute);
            let rows: Vec<OwnerRow> = (0..50u64)
                .map(|i| {
                    owner(
                        &format!("{:02x}", (i + minute) % 90),
                        bytes((i * minute % 7) << 20, Exact),
                    )
                })
                .collect();
            let mut one = process(n + 100 * generation, Some(&format!("{n}-{generation}")), rows);
            one.as_of = "2026-09-21T15:00:00Z".to_owned();
            one
        });
        let report = report(processes.collect());
        series.pane(&report, Window { start: START, end: START + minute * MINUTE });
        let request = ship(&mut series);
        let points = flat(&request);
        let live = points.iter().filter(|flat| flat.point.value.is_some()).count();
        assert!(live <= 700, "{live}");
        // Of each container that is gone every series ends, and named owners change slowly.
        assert!(points.len() - live <= 40 + 30, "{}", points.len() - live);
    }
}
