//! What is said of one pane.

use super::*;

#[test]
fn owners_joint_and_skew_close_the_kernels_total_in_every_resource_at_every_level() {
    for options in [all(), kinds(), Options { resources: 1, ..kinds() }] {
        let request = with(&busy(), options);
        let mut totals: BTreeMap<_, BTreeMap<String, i64>> = BTreeMap::new();
        for ((place, metric, kind), sum) in sums(&request, "memprov.kind") {
            if kind != "swap" && kind != "hugetlb" {
                *totals.entry(place).or_default().entry(metric).or_default() += sum;
            }
        }
        let mut closed = 0;
        for of in totals.values() {
            let sum = |name: &str| of.get(&format!("memprov.memory.{name}")).copied();
            let Some(control) = sum("control") else { continue };
            let explained = sum("resident").unwrap() + sum("joint").unwrap() + sum("skew").unwrap();
            assert!(control <= explained, "{control} {explained}");
            assert!(explained <= control + sum("control_spread").unwrap(), "{control} {explained}");
            closed += 1;
        }
        assert_eq!(closed, 2);
    }
}

#[test]
fn a_limit_of_owners_changes_no_sum_of_any_class() {
    let report = busy();
    let whole = sums(&encode(&report), "memprov.evidence");
    for limit in 0..20 {
        let limited = with(&report, Options { owners: limit, ..all() });
        assert_eq!(sums(&limited, "memprov.evidence"), whole, "limit {limit}");
        let mut owners: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        let points = flat(&limited);
        for flat in points.iter().filter(|flat| !flat.get("memprov.owner.id").is_empty()) {
            let place = flat.resource["service.instance.id"].clone();
            owners.entry(place).or_default().insert(flat.get("memprov.owner.id"));
        }
        assert!(owners.values().all(|ids| ids.len() <= limit), "limit {limit}: {owners:?}");
        for flat in &points {
            let rest = flat.get("memprov.owner.kind") == "remainder";
            assert_eq!(flat.get("otel.metric.overflow") == "true", rest);
        }
    }
}

#[test]
fn levels_of_detail_agree_on_every_sum_that_both_tell() {
    let fine = encode(&busy());
    let coarse = with(&busy(), kinds());
    let (fine_sums, coarse_sums) = (sums(&fine, ""), sums(&coarse, ""));
    let mut compared = 0;
    for (key, sum) in &coarse_sums {
        if let Some(same) = fine_sums.get(key) {
            assert_eq!(sum, same, "{key:?}");
            compared += 1;
        }
    }
    assert!(compared > 15, "{compared}");
    let exact: BTreeMap<_, _> = sums(&fine, "memprov.evidence")
        .into_iter()
        .filter(|((_, metric, class), _)| metric == "memprov.memory.resident" && class == "exact")
        .map(|((place, ..), sum)| (place, sum))
        .collect();
    let sibling: BTreeMap<_, _> = coarse_sums
        .iter()
        .filter(|((_, metric, _), _)| metric == "memprov.memory.resident_exact")
        .map(|((place, ..), sum)| (place.clone(), *sum))
        .collect();
    assert_eq!(exact, sibling);
}

#[test]
fn what_is_touched_is_told_of_covered_owners_and_adds_up_whoever_is_named() {
    let mut report = busy();
    assert!(!flat(&encode(&report)).iter().any(|flat| flat.metric.contains("touched")));
    for row in report.processes.iter_mut().flat_map(|p| &mut p.owners).filter(|r| r.id != "05") {
        row.touched = Some(Touched { lower: 3, upper: 40, covered: 20, ..touched() });
    }
    let whole = sums(&encode(&report), "");
    let told = |name: &str| -> i64 {
        whole.iter().filter(|((_, metric, _), _)| metric == name).map(|(_, sum)| sum).sum()
    };
    let covered = i64::try_from(
        report.processes.iter().flat_map(|p| &p.owners).filter(|r| r.touched.is_some()).count(),
    )
    .unwrap();
    assert_eq!(told("memprov.memory.touched.lower"), 3 * covered);
    assert_eq!(told("memprov.memory.touched.upper"), 40 * covered);
    assert_eq!(told("memprov.memory.touched.covered"), 20 * covered);
    assert_eq!(sums(&with(&report, Options { owners: 2, ..all() }), ""), whole);
}

#[test]
fn the_largest_owners_are_those_that_keep_their_points() {
    let rows = vec![
        owner("aa", bytes(1, Exact)),
        owner("bb", bytes(3, Exact)),
        owner("cc", bytes(2, Exact)),
    ];
    let report = report(vec![process(1, Some("c0ffee"), rows)]);
    let request = with(&report, Options { owners: 2, ..all() });
    let kept: BTreeSet<_> = flat(&request)
        .iter()
        .filter(|flat| flat.resource.contains_key("container.id"))
        .map(|flat| flat.get("memprov.owner.id").to_owned())
        .filter(|id| !id.is_empty())
        .collect();
    assert_eq!(kept, BTreeSet::from(["bb".to_owned(), "cc".to_owned()]));
}

#[test]
fn evidence_partitions_an_owner_and_no_series_occurs_twice() {
    let report = report(vec![
        process(7, Some("c0ffee"), vec![owner("aa", bytes(100, Exact))]),
        process(8, Some("c0ffee"), vec![owner("aa", bytes(30, Inferred))]),
        process(9, Some("c0ffee"), vec![owner("aa", bytes(5, Exact))]),
    ]);
    let request = encode(&report);
    let points = flat(&request);
    let of_owner: BTreeMap<_, _> = points
        .iter()
        .filter(|flat| {
            flat.metric == "memprov.memory.resident" && flat.get("memprov.owner.id") == "aa"
        })
        .map(|flat| (flat.get("memprov.evidence"), flat.value()))
        .collect();
    assert_eq!(of_owner, BTreeMap::from([("exact", 105), ("inferred", 30)]));
    for options in [all(), kinds()] {
        let request = with(&busy(), options);
        let points = flat(&request);
        let series: BTreeSet<_> =
            points.iter().map(|flat| (&flat.resource, flat.metric, &flat.attributes)).collect();
        assert_eq!(series.len(), points.len());
    }
}

#[test]
fn an_address_space_of_several_processes_is_counted_once() {
    let mut twin = process(7, None, vec![owner("aa", bytes(100, Exact))]);
    twin.space_pids = vec![7, 8];
    let mut other = twin.clone();
    (other.pid, other.start_time) = (8, twin.start_time.map(|ticks| ticks + 1));
    let once = sums(&encode(&report(vec![other.clone(), twin.clone()])), "");
    assert_eq!(once, sums(&encode(&report(vec![twin])), ""));
}

#[test]
fn what_is_unknown_makes_no_point_and_zero_makes_one() {
    let unknown = owner("aa", Quantity::default());
    let report = report(vec![process(1, None, vec![unknown, owner("bb", bytes(0, Exact))])]);
    let request = encode(&report);
    let points = flat(&request);
    let values = |id: &str| -> Vec<i64> {
        points.iter().filter(|flat| flat.get("memprov.owner.id") == id).map(Flat::value).collect()
    };
    assert!(values("aa").is_empty());
    assert_eq!(values("bb"), [0, 0]);
}

#[test]
fn integers_stay_exact_beyond_the_precision_of_a_double() {
    let large = (1 << 53) + 1;
    let report = report(vec![process(1, None, vec![owner("aa", bytes(large, Exact))])]);
    let request = encode(&report);
    let resident =
        |flat: &Flat<'_>| flat.metric.ends_with("resident") && flat.get("memprov.owner.id") == "aa";
    let value = flat(&request).iter().find(|flat| resident(flat)).unwrap().value();
    assert_eq!(value, i64::try_from(large).unwrap());
    let lines = Accumulator::new(all()).json(&report, WINDOW);
    assert!(lines.concat().contains(r#""asInt":"9007199254740993""#));
}

#[test]
fn a_sum_that_no_otlp_integer_holds_makes_no_point_and_harms_no_other() {
    let rows = vec![owner("aa", bytes(u64::MAX, Exact)), owner("bb", bytes(4096, Exact))];
    let request = encode(&report(vec![process(1, None, rows)]));
    let points = flat(&request);
    assert!(points.iter().all(|flat| flat.get("memprov.owner.id") != "aa"));
    assert!(points.iter().any(|flat| flat.get("memprov.owner.id") == "bb"));
}

#[test]
fn the_order_of_rows_in_a_report_does_not_change_the_request() {
    let mut report = busy();
    let first = encode(&report);
    report.processes.reverse();
    for process in &mut report.processes {
        process.owners.reverse();
    }
    assert_eq!(encode(&report), first);
}

#[test]
fn every_point_has_the_windows_times_and_only_registered_names_and_keys() {
    let mut report = Report { accesses: accessed::sampled().accesses, ..charge::charged() };
    report.processes[0].owners[0].touched = Some(touched());
    let placed = placed::placed(1.0);
    report.host = placed.host;
    report.processes[1..].clone_from_slice(&placed.processes[1..]);
    let (fine, coarse) = (encode(&report), with(&report, kinds()));
    let mut seen = BTreeSet::new();
    for flat in flat(&fine).into_iter().chain(flat(&coarse)) {
        let metric = memprov_semconv::ALL.iter().find(|metric| metric.name == flat.metric).unwrap();
        seen.insert(metric.name);
        for key in flat.attributes.keys() {
            assert!(metric.attributes.iter().any(|known| known.as_str() == key), "{key}");
        }
        assert_eq!(flat.point.start_time_unix_nano, WINDOW.start);
        assert_eq!(flat.point.time_unix_nano, WINDOW.end);
    }
    let names = memprov_semconv::ALL.iter().map(|metric| metric.name);
    // The client says its own.
    let names = names.filter(|name| !name.starts_with("memprov.export."));
    let unused: Vec<_> = names.filter(|name| !seen.contains(name)).collect();
    assert_eq!(unused, ["memprov.memory.swapped", "memprov.sampling.period"]);
}

#[test]
fn the_cost_of_the_agent_is_on_the_host_and_what_was_not_measured_makes_no_point() {
    let told = |agent: Agent| -> BTreeMap<(String, String), Value> {
        let mut report = report(vec![process(7, Some("c0ffee"), Vec::new())]);
        report.agent = Some(agent);
        let request = encode(&report);
        let of_agent = |flat: &Flat<'_>| {
            flat.metric.starts_with("memprov.budget") || flat.metric.starts_with("memprov.ledger")
        };
        let points: Vec<_> = flat(&request).into_iter().filter(of_agent).collect();
        assert!(points.iter().all(|flat| flat.resource["service.name"] == "memprov"));
        points
            .iter()
            .map(|flat| {
                let attribute = flat.attributes.values().next().cloned().unwrap_or_default();
                ((flat.metric.to_owned(), attribute), flat.point.value.unwrap())
            })
            .collect()
    };
    let all = told(agent());
    let value = |metric: &str, of: &str| all[&(format!("memprov.{metric}"), of.to_owned())];
    assert_eq!(value("budget.cpu.time", "hooks"), Value::AsDouble(1.5));
    assert_eq!(value("budget.cpu.time", "ended"), Value::AsDouble(0.0));
    assert_eq!(value("budget.cpu.utilization", ""), Value::AsDouble(0.25));
    assert_eq!(value("budget.resident", ""), Value::AsInt(64 << 20));
    assert_eq!(value("budget.bpf.utilization", ""), Value::AsDouble(0.5));
    assert_eq!(value("budget.syscall.latency", ""), Value::AsDouble(1.25e-7));
    assert_eq!(value("budget.syscall.utilization", ""), Value::AsDouble(0.125));
    assert_eq!(value("budget.scan.skipped", "still"), Value::AsInt(7));
    assert_eq!(value("ledger.differences", "adopted"), Value::AsInt(3));
    assert_eq!(value("ledger.differences", "vanished"), Value::AsInt(0));
    let nothing: Vec<_> = told(Agent::default()).into_keys().map(|(metric, _)| metric).collect();
    assert_eq!(nothing, ["memprov.ledger.differences"; 3]);
}

#[test]
fn support_coverage_and_sampling_are_told_as_far_as_they_are_known() {
    let value = |report: &Report, metric: &str, of: &str| {
        let request = encode(report);
        let points = flat(&request);
        let mut found =
            points.iter().filter(|f| f.metric == metric && f.get("memprov.capability") == of);
        found.next().map(|flat| flat.point.value.unwrap())
    };
    let mut one = process(7, None, vec![owner("aa", bytes(1000, Exact))]);
    one.predates = 250;
    let mut report = report(vec![one]);
    let seen = value(&report, "memprov.coverage", "mapping.lifecycle");
    assert_eq!(seen, Some(Value::AsDouble(0.75)));
    assert_eq!(value(&report, "memprov.coverage", "first_touch"), None);
    assert_eq!(value(&report, "memprov.support", "mapping.lifecycle"), Some(Value::AsInt(1)));
    report.processes[0].first_touch = Some(crate::report::FirstTouch {
        probability: 0.01,
        pages: 30,
        unknown_share: Some(0.5),
        rows: Vec::new(),
    });
    assert_eq!(value(&report, "memprov.coverage", "first_touch"), Some(Value::AsDouble(0.5)));
    let period = value(&report, "memprov.sampling.period", "first_touch");
    assert_eq!(period, Some(Value::AsDouble(100.0)));
}

#[test]
fn the_age_of_a_book_is_that_of_its_oldest_reading_and_one_without_a_time_is_a_gap() {
    let mut late = process(8, Some("c0ffee"), Vec::new());
    late.as_of = "2026-09-21T14:14:10.5Z".to_owned();
    let mut broken = process(9, Some("c0ffee"), vec![owner("aa", bytes(1, Exact))]);
    broken.as_of = "yesterday".to_owned();
    let report = report(vec![process(7, Some("c0ffee"), Vec::new()), late, broken]);
    for options in [all(), kinds()] {
        let request = with(&report, options);
        let points = flat(&request);
        let ages: Vec<_> = points.iter().filter(|flat| flat.metric.ends_with(".age")).collect();
        assert_eq!(ages.len(), 1);
        assert_eq!(ages[0].point.value, Some(Value::AsDouble(9.5)));
        assert!(points.iter().all(|flat| flat.get("memprov.owner.id") != "aa"));
    }
}

#[test]
fn a_long_name_is_cut_at_a_character_and_the_id_still_tells_it_apart() {
    let mut row = owner("aa", bytes(1, Exact));
    row.name = "ü".repeat(1000);
    let request = encode(&report(vec![process(1, None, vec![row])]));
    let points = flat(&request);
    let named = points.iter().find(|flat| flat.get("memprov.owner.id") == "aa").unwrap();
    assert_eq!(named.get("memprov.owner.name"), format!("{}…", "ü".repeat(200)));
}

#[test]
fn bytes_that_are_no_text_arrive_as_escapes_that_can_be_undone() {
    let mut row = owner("aa", bytes(1, Exact));
    row.name = memprov_proc::lossless(b"/tmp/\xff\\xff");
    let request = encode(&report(vec![process(1, None, vec![row])]));
    let points = flat(&request);
    let named = points.iter().find(|flat| flat.get("memprov.owner.id") == "aa").unwrap();
    assert_eq!(named.get("memprov.owner.name"), r"/tmp/\xff\x5cxff");
}

#[test]
fn json_is_what_the_otlp_specification_asks_for() {
    let lines = Accumulator::new(all()).json(&busy(), WINDOW);
    let [text] = &lines[..] else { panic!("{} lines", lines.len()) };
    assert!(!text.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    let metrics = &value["resourceMetrics"][1]["scopeMetrics"][0]["metrics"];
    let resident = metrics
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["name"] == "memprov.memory.resident")
        .unwrap();
    assert_eq!(resident["sum"]["aggregationTemporality"], 2, "enums are numbers");
    assert_eq!(resident["sum"]["isMonotonic"], false);
    let point = &resident["sum"]["dataPoints"][2];
    assert_eq!(point["timeUnixNano"], WINDOW.end.to_string(), "64-bit integers are strings");
    assert!(point["asInt"].is_string());
    let back: ExportMetricsServiceRequest = serde_json::from_str(text).unwrap();
    assert_eq!(back, encode(&busy()));
}
