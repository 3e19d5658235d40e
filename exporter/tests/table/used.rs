//! Sections of use: sampled accesses, and what monitors of memory find.

use std::collections::BTreeMap;

use memprov::report::{
    AccessRow, AccessSums, Accesses, Filled, Framed, Located, Measured, Monitored, PopulatedRow,
    ShareRow, Touched,
};
use memprov::table::{View, render};
use memprov_ledger::evidence::EvidenceClass;
use unicode_width::UnicodeWidthStr;

use super::{MIB, between, golden, process, report, server};

/// Accesses of an owner: cycles by locality, and the remote share where it is told.
fn accessed(name: &str, cycles: &[(&str, u64)], share: Result<[f64; 3], &str>) -> AccessRow {
    let told = share.map(|[share, lo, hi]| ("remote".to_owned(), ShareRow { share, lo, hi }));
    let time = Located {
        weights: cycles.iter().map(|(at, n)| ((*at).to_owned(), *n)).collect(),
        effective: if told.is_ok() { 500.0 } else { 37.0 },
        unknown_share: Some(0.25),
        shares: told.clone().into_iter().collect(),
        withheld: told.err().map(str::to_owned),
        ..Located::default()
    };
    let served = Measured { time: Some(time), count: Located::default() };
    AccessRow {
        space: Some("1092".to_owned()),
        pid: Some(4242),
        start_time: None,
        cgroup: None,
        container: None,
        id: "00".to_owned(),
        kind: "mapping".to_owned(),
        name: name.to_owned(),
        caller: String::new(),
        population: "loads".to_owned(),
        sums: AccessSums {
            samples: BTreeMap::from([("attributed".to_owned(), 980), ("kernel".to_owned(), 20)]),
            timed: 1000,
            methods: BTreeMap::from([("served".to_owned(), served)]),
            ..AccessSums::default()
        },
        added: None,
    }
}

#[test]
fn sampled_accesses_are_shown_with_intervals_and_with_what_is_not_known() {
    let total = accessed("all", &[("remote", 40_000), ("local", 60_000)], Ok([0.4, 0.35, 0.45]));
    let rows = vec![
        accessed("load_index", &[("remote", 30_000), ("local", 50_000)], Ok([0.375, 0.3, 0.456])),
        accessed("\x1b[2Jevil", &[("local", 19_990)], Err("few_samples")),
        accessed("never_known", &[("unknown", 10)], Err("no_samples")),
        // What ran in that process before.
        AccessRow {
            space: Some("0".to_owned()),
            ..accessed("load_index", &[("local", 5)], Err("few_slices"))
        },
    ];
    let mut report = report(vec![process(4242, "mix", &[], Vec::new())]);
    let totals = BTreeMap::from([("loads".to_owned(), total.sums)]);
    report.accesses = Some(Accesses { totals, owners: rows });
    golden("accesses.txt", &render(&report, &View::default()));
    let narrow = render(&report, &View { width: 40, ..View::default() });
    assert!(narrow.lines().take(8).all(|line| line.width() <= 40), "{narrow}");
}

/// What checks prove of an owner's use.
fn touched(lower: u64, upper: u64) -> Touched {
    Touched {
        method: "addresses".into(),
        lower,
        upper,
        in_use: between(lower, EvidenceClass::Sampled, lower, upper),
        covered: upper,
        spill: 0.0,
        aggregations: 10,
        checks: 200,
        sampling_seconds: 0.05,
        seconds: 12.4,
    }
}

#[test]
fn what_owners_used_stands_beside_them_where_a_monitor_covers_one_and_there_is_room() {
    let mut told = server();
    for (owner, lower) in told.processes[1].owners.iter_mut().zip([1200 * MIB, 0]) {
        owner.touched = Some(touched(lower, owner.resident.bytes.unwrap()));
    }
    golden("used.txt", &render(&told, &View::default()));
    golden("used60.txt", &render(&told, &View { width: 60, ..View::default() }));
    for width in 40..140 {
        let text = render(&told, &View { width, ..View::default() });
        let (_, from) = text.split_once("RESIDENT").unwrap();
        let rows: Vec<&str> = from.lines().take_while(|line| !line.is_empty()).skip(1).collect();
        assert!(rows.iter().all(|line| line.width() <= width), "{text}");
    }
}

#[test]
fn what_faults_populated_is_told_with_its_nodes_and_how_sure_that_is() {
    let filled = |bytes| Filled { faults: bytes / 4096, bytes };
    let told = |nodes: &[(&str, u64)]| {
        let nodes = nodes.iter().map(|(node, bytes)| ((*node).to_owned(), filled(*bytes)));
        let populated = PopulatedRow { evidence: EvidenceClass::Inferred, nodes: nodes.collect() };
        let sums = AccessSums { populated: Some(populated), ..AccessSums::default() };
        let mut report = report(Vec::new());
        let totals = BTreeMap::from([("faults".to_owned(), sums)]);
        report.accesses = Some(Accesses { totals, owners: Vec::new() });
        render(&report, &View::default())
    };
    let text = told(&[("0", 3 * MIB), ("1", MIB)]);
    let line = "faults populated 4.00 MiB (inferred; node 0: 3.00 MiB, node 1: 1.00 MiB)";
    assert!(text.contains(line), "{text}");
    assert!(told(&[("0", MIB)]).contains("faults populated 1.00 MiB (inferred)\n"));
}

#[test]
fn programs_that_a_process_ran_before_are_told_apart_by_their_order() {
    let mut told = report(vec![process(4242, "mix", &[], Vec::new())]);
    let of = |space: &str, pid| AccessRow {
        space: Some(space.to_owned()),
        pid: Some(pid),
        ..accessed("heap", &[("local", 5)], Err("few_samples"))
    };
    let rows = vec![of("1092", 4242), of("f", 4242), of("10", 4242), of("9", 7)];
    let totals = BTreeMap::from([("loads".to_owned(), of("1", 1).sums)]);
    told.accesses = Some(Accesses { totals, owners: rows });
    let text = render(&told, &View::default());
    let of = |row: &str| text.matches(&format!("heap (mapping of {row})")).count();
    let rows = ["4242", "4242, ended 1", "4242, ended 2", "7, ended"].map(of);
    assert_eq!(rows, [1; 4], "{text}");
}

#[test]
fn what_monitors_find_is_told_with_its_bounds_and_nothing_where_none_speaks() {
    let mut told = report(Vec::new());
    assert!(!render(&told, &View::default()).contains("DAMON"));
    told.regions = vec![Monitored {
        monitor: 76,
        pid: None,
        regions: 1168,
        watched: 24 << 30,
        in_use: between(10 * MIB, EvidenceClass::Sampled, 3 * MIB, 1536 * MIB),
        aggregations: 6,
        checks: 10,
        sampling_seconds: 0.5,
        seconds: 30.0,
        frames: None,
    }];
    let text = render(&told, &View::default());
    let line = "physical memory: 3.00 MiB to 1.50 GiB of 24.0 GiB in 30 s (kdamond 76)";
    assert!(text.contains(line), "{text}");
    let unknown = between(8 * MIB, EvidenceClass::Sampled, 2 * MIB, 1024 * MIB);
    told.regions[0].frames = Some(Framed { owned: MIB, moved: 0, unknown });
    let text = render(&told, &View { width: 120, ..View::default() });
    assert!(text.contains(" in 30 s, 2.00 MiB to 1.00 GiB in nobody's known frames ("), "{text}");
}
