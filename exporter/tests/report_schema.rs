//! `docs/report.schema.json` describes the report document as the code writes it.

use std::collections::BTreeMap;

use jsonschema::Validator;
use memprov::report::{
    AccessRow, AccessSums, Accesses, Advice, Agent, Book, BpfCost, CacheFile, Cgroup, ChargeRow,
    Configuration, Control, Differences, FaultShare, Faults, Filled, FirstTouch, FrameView, Framed,
    Host, Located, Measured, Monitored, NumaNode, OnNode, OwnerRow, Placement, PopulatedRow,
    Process, Quantity, Ran, Report, SCHEMA, Scans, ShareRow, SharedRow, SyscallTax, TouchRow,
    Touched,
};
use memprov_ledger::evidence::{EvidenceClass, Policy};
use serde_json::{Value, json};

fn schema() -> Value {
    serde_json::from_str(include_str!("../../docs/report.schema.json")).expect("it is JSON")
}

/// The schema as it is published: a reader ignores fields that it does not know.
fn open() -> Validator {
    jsonschema::draft202012::new(&schema()).expect("it is a schema")
}

/// The schema with every object closed: the code writes no field that it does not describe.
fn closed() -> Validator {
    fn close(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.values_mut().for_each(close);
                if map.contains_key("properties") {
                    map.insert("additionalProperties".into(), json!(false));
                }
            }
            Value::Array(list) => list.iter_mut().for_each(close),
            _ => {}
        }
    }
    let mut schema = schema();
    close(&mut schema);
    jsonschema::draft202012::new(&schema).expect("it is a schema")
}

fn minimal() -> Report {
    Report {
        schema: SCHEMA.into(),
        source: "snapshot".into(),
        generated_at: "2025-11-29T20:00:00Z".into(),
        watching_since: "2025-11-29T20:00:00Z".into(),
        ..Report::default()
    }
}

/// One process with an owner, a book and a shared object, and nothing that may be left out.
fn sparse() -> Report {
    let owner = OwnerRow {
        id: "00".into(),
        kind: "preexisting".into(),
        name: String::new(),
        caller: String::new(),
        stability: "content".into(),
        stack: vec![FrameView {
            function: None,
            module: None,
            build_id: None,
            offset: u64::MAX,
            line: None,
        }],
        truncated: false,
        reserved: Quantity::default(),
        resident: Quantity::default(),
        swapped: None,
        touched: None,
        growth_per_minute: None,
        intervals: 0,
        first_touch: Vec::new(),
        placement: None,
    };
    let process = Process {
        pid: 1,
        start_time: None,
        comm: String::new(),
        space: "0".into(),
        space_pids: vec![1],
        cgroup: None,
        container: None,
        as_of: "2025-11-29T20:00:00.123456789Z".into(),
        lossless: false,
        predates: 0,
        pages_unread: false,
        books: BTreeMap::from([("swap".into(), Book { skew: i64::MIN, ..Book::default() })]),
        owners: vec![owner],
        faults: Some(Faults::default()),
        first_touch: None,
        ran: None,
    };
    let shared = SharedRow {
        id: "00".into(),
        kind: "shm".into(),
        name: String::new(),
        as_of: "2025-11-29T20:00:00Z".into(),
        stack: Vec::new(),
        reserved: Quantity::default(),
        resident: Quantity::default(),
        sharers: 2,
        sharers_complete: false,
    };
    let agent = Some(Agent::default());
    let row = AccessRow {
        space: None,
        pid: None,
        start_time: None,
        cgroup: None,
        container: None,
        id: "00".into(),
        kind: "unattributed".into(),
        name: String::new(),
        caller: String::new(),
        population: "unknown".into(),
        sums: AccessSums::default(),
        added: None,
    };
    let accesses = Some(Accesses { totals: BTreeMap::new(), owners: vec![row] });
    Report { processes: vec![process], shared: vec![shared], agent, accesses, ..minimal() }
}

fn cgroup(quantity: &Quantity) -> Cgroup {
    let row = ChargeRow { kind: "cache".into(), part: "file".into(), bytes: quantity.clone() };
    let file = CacheFile { id: "0a".into(), name: "/srv/*".into(), bytes: quantity.clone() };
    Cgroup {
        cgroup: "/docker/0a".into(),
        container: Some("0a".into()),
        as_of: "2025-11-29T20:00:00Z".into(),
        current: u64::MAX,
        control: Control { lo: 0, hi: u64::MAX },
        whole: u64::MAX,
        processes: Some(2),
        observed: 1,
        rows: vec![row],
        cache_files: vec![file],
        unattributed: 1,
        skew: i64::MIN,
        slack: 1,
        swap_cache: Some(0),
        charged_elsewhere: Control { lo: 0, hi: 1 },
        facts: BTreeMap::from([("peak".into(), u64::MAX)]),
    }
}

/// Everything that may be there.
fn maximal() -> Report {
    let quantity = Quantity {
        bytes: Some(u64::MAX),
        evidence: EvidenceClass::Sampled,
        lo: Some(0),
        hi: Some(u64::MAX),
    };
    let frame = FrameView {
        function: Some("main".into()),
        module: Some("redis-server".into()),
        build_id: Some("ab12".into()),
        offset: 4711,
        line: Some("server.c:2702".into()),
    };
    let touch = TouchRow {
        id: "0f".into(),
        name: "initServer".into(),
        caller: "main".into(),
        resident: quantity.clone(),
        pages: 9,
        stack: vec![frame.clone()],
    };
    let book = Book { control: Control { lo: 1, hi: 2 }, at_rest: true, ..Book::default() };
    let mut report = sparse();
    report.scan_seconds.record(0.1, 1.0);
    report.source = "daemon".into();
    report.mechanism = Some("fentry".into());
    report.no_wall_time = true;
    report.cgroups = vec![cgroup(&quantity)];
    report.host = Host {
        kernel: Some("6.18.0".into()),
        nodes: Some(2),
        no_pmu: Some("no PMU".into()),
        numa: vec![NumaNode { node: 0, cpus: 2, distances: vec![(0, 10)] }],
    };
    report.lost = BTreeMap::from([("lifecycle".into(), 3)]);
    report.agent = Some(Agent {
        cpu_seconds: BTreeMap::from([("fuser".into(), 0.25), ("ended".into(), 0.0)]),
        cpu_fraction: Some(0.01),
        rss_bytes: Some(u64::MAX),
        bpf: Some(BpfCost { cpu_fraction: 0.001, runs_per_second: 50_000.0, counted_seconds: 1.0 }),
        syscall_tax: Some(SyscallTax {
            nanoseconds_per_call: 100.5,
            calls_per_second: Some(25_000.0),
            cpu_fraction: Some(0.0025),
        }),
        scans: Scans { skipped: BTreeMap::from([("still".into(), u64::MAX)]) },
        differences: Differences { adopted: 1, vanished: 2, replaced: 0 },
        configuration: Some(Configuration { hash: "5e7".into(), applied: 2, refused: 1 }),
    });
    let process = &mut report.processes[0];
    process.pages_unread = true;
    process.cgroup = Some("/docker/ab12".into());
    process.container = Some("ab12".into());
    process.books = ["anon", "file", "shmem", "hugetlb", "swap"]
        .map(|kind| (kind.to_owned(), book.clone()))
        .into();
    let by_kind = ["anon", "file", "shmem", "unknown"]
        .map(|kind| (kind.to_owned(), FaultShare { faults: 1, lo: 0, hi: 2, samples: 5 }));
    process.faults =
        Some(Faults { watched: Some(4), by_kind: by_kind.into(), ..Faults::default() });
    process.ran = Some(Ran {
        seconds: 300.0,
        recent: BTreeMap::from([(1, 2.5)]),
        total: BTreeMap::from([(0, 0.01), (1, 7.5)]),
    });
    process.first_touch = Some(FirstTouch {
        probability: 0.015_625,
        pages: 9,
        unknown_share: Some(0.5),
        rows: vec![touch.clone()],
    });
    report.regions = vec![Monitored {
        monitor: 77,
        pid: Some(1),
        regions: 1000,
        watched: u64::MAX,
        in_use: quantity.clone(),
        aggregations: 10,
        checks: 20,
        sampling_seconds: 0.005,
        seconds: 1.0,
        frames: Some(Framed { owned: 1, moved: 2, unknown: quantity.clone() }),
    }];
    let owner = &mut report.processes[0].owners[0];
    owner.touched = Some(Touched {
        method: "addresses".into(),
        lower: 0,
        upper: u64::MAX,
        in_use: quantity.clone(),
        covered: 1,
        spill: 0.5,
        aggregations: 10,
        checks: 200,
        sampling_seconds: 0.005,
        seconds: 1.0,
    });
    owner.caller = "main".into();
    owner.truncated = true;
    owner.stack = vec![frame.clone()];
    owner.reserved = quantity.clone();
    owner.swapped = Some(quantity);
    owner.growth_per_minute = Some(-1);
    owner.first_touch = vec![touch];
    owner.placement = Some(Placement {
        as_of: "2025-11-29T20:00:00Z".into(),
        nodes: vec![OnNode { node: u32::MAX, resident: Quantity::default() }],
        unplaced: 4096,
        policies: Policy::ALL.map(|policy| policy.id().to_owned()).to_vec(),
        shares: BTreeMap::from([("remote".into(), 1.0)]),
        advice: Some(Advice {
            what: "move".into(),
            node: Some(1),
            bytes: Some(4096),
            remote: Some(0.0),
            against_policy: true,
        }),
    });
    report.shared[0].stack = vec![frame];
    let share = ShareRow { share: 0.3, lo: 0.2, hi: 0.4 };
    let located = Located {
        weights: BTreeMap::from([("remote".into(), u64::MAX)]),
        squares: BTreeMap::from([("remote".into(), 1e30)]),
        effective: 431.5,
        unknown_share: Some(0.25),
        shares: BTreeMap::from([("remote".into(), share)]),
        withheld: Some("few_samples".into()),
    };
    let measured = Measured { time: Some(located.clone()), count: located };
    let accesses = report.accesses.as_mut().expect("sparse() has some");
    let row = &mut accesses.owners[0];
    (row.space, row.pid, row.start_time) = (Some("1f".into()), Some(4242), Some(77));
    (row.cgroup, row.container) = (Some("/docker/ab12".into()), Some("ab12".into()));
    row.caller = "main".into();
    row.sums = AccessSums {
        samples: BTreeMap::from([("attributed".into(), 5)]),
        timed: 4,
        conflicts: 1,
        latency: Some(report.scan_seconds.clone()),
        methods: BTreeMap::from([("served".into(), measured)]),
        populated: Some(PopulatedRow {
            evidence: EvidenceClass::Inferred,
            nodes: BTreeMap::from([("0".into(), Filled { faults: 1, bytes: 4096 })]),
        }),
    };
    accesses.totals = BTreeMap::from([("loads".into(), row.sums.clone())]);
    report
}

/// Streams, threads and reasons come as they are needed.
fn open_map(place: &str) -> bool {
    let ends = ["/totals", "/samples", "/methods", "/weights", "/squares", "/shares", "/nodes"];
    ["/lost", "/agent/cpu_seconds", "/agent/scans/skipped", "/cgroups/0/facts"].contains(&place)
        || [
            "/processes/0/ran/recent",
            "/processes/0/ran/total",
            "/processes/0/owners/0/placement/shares",
        ]
        .contains(&place)
        || place.starts_with("/accesses") && ends.iter().any(|end| place.ends_with(end))
}

fn check(validator: &Validator, report: &Value) -> Result<(), String> {
    validator.validate(report).map_err(|e| format!("{}: {e}", e.instance_path()))
}

#[test]
fn every_report_that_the_code_can_make_is_valid_and_described_in_full() {
    for report in [minimal(), sparse(), maximal()] {
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(check(&open(), &value), Ok(()));
        assert_eq!(check(&closed(), &value), Ok(()));
    }
}

/// The places of all objects and fields in `value`, as JSON pointers; of a list, those of its first entry.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                into.push(format!("{at}/{name}"));
                places(value, &format!("{at}/{name}"), into);
            }
        }
        Value::Array(list) => {
            if let Some(value) = list.first() {
                places(value, &format!("{at}/0"), into);
            }
        }
        _ => {}
    }
}

#[test]
fn a_field_of_another_type_is_refused_wherever_it_is() {
    let report = serde_json::to_value(maximal()).unwrap();
    let validator = open();
    let mut all = Vec::new();
    places(&report, "", &mut all);
    assert!(all.len() > 100, "{}", all.len());
    for place in all {
        let mut wrong = report.clone();
        *wrong.pointer_mut(&place).unwrap() = json!([[[1]]]);
        assert!(!validator.is_valid(&wrong), "{place} takes anything");
    }
}

#[test]
fn a_field_that_the_code_always_writes_is_required() {
    let (maximal, sparse) = (serde_json::to_value(maximal()), serde_json::to_value(sparse()));
    let (maximal, sparse) = (maximal.unwrap(), sparse.unwrap());
    let validator = open();
    let mut all = Vec::new();
    places(&maximal, "", &mut all);
    for place in all {
        let (parent, name) = place.rsplit_once('/').unwrap();
        // Kinds of books and streams of loss come as they are needed; only a daemon tells its cost.
        let open = parent.ends_with("/books") || parent.ends_with("/by_kind") || open_map(parent);
        if open
            || ["/agent", "/accesses"].contains(&&*place)
            || ["/min", "/max"].iter().any(|end| place.ends_with(end))
        {
            continue;
        }
        let mut without = maximal.clone();
        without.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        if sparse.pointer(parent).is_some() {
            let always = sparse.pointer(&place).is_some();
            assert_eq!(validator.is_valid(&without), !always, "{place}");
        }
    }
}

#[test]
fn a_field_that_the_schema_does_not_know_is_noticed_here_and_ignored_by_readers() {
    let report = serde_json::to_value(maximal()).unwrap();
    let (open, closed) = (open(), closed());
    let mut all = vec![String::new()];
    places(&report, "", &mut all);
    for place in all {
        let mut more = report.clone();
        // Everything else that is an object is described.
        if open_map(&place) {
            continue;
        }
        if let Some(Value::Object(map)) = more.pointer_mut(&place) {
            map.insert("mood".into(), json!({}));
            assert!(closed.validate(&more).is_err(), "{place}");
            assert!(open.is_valid(&more), "{place}");
        }
    }
}

#[test]
fn all_fields_of_the_schema_are_explained_and_written() {
    fn explained(value: &Value, at: &str, written: &[String]) {
        let Value::Object(map) = value else { return };
        for (name, value) in map {
            let at = format!("{at}/{name}");
            if name == "properties" {
                for (field, value) in value.as_object().unwrap() {
                    assert!(value["description"].is_string(), "{at}/{field} has no description");
                    let name = format!("/{field}");
                    assert!(written.iter().any(|w| w.ends_with(&name)), "{at}/{field}");
                    explained(value, &format!("{at}/{field}"), written);
                }
            } else {
                explained(value, &at, written);
            }
        }
    }
    let mut written = Vec::new();
    places(&serde_json::to_value(maximal()).unwrap(), "", &mut written);
    explained(&schema(), "", &written);
}
