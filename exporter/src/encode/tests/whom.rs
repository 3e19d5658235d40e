//! Whom resources stand for.

use super::*;

fn resources(request: &ExportMetricsServiceRequest) -> Vec<BTreeMap<String, String>> {
    let of = |one: &opentelemetry_proto::tonic::metrics::v1::ResourceMetrics| {
        texts(&one.resource.as_ref().unwrap().attributes)
    };
    request.resource_metrics.iter().map(of).collect()
}

#[test]
fn containers_and_units_are_resources_and_all_other_processes_are_the_hosts() {
    let mut report = busy();
    report.processes.push(process(10, None, vec![owner("loose", bytes(5, Exact))]));
    let request = encode(&report);
    let resources = resources(&request);
    let seen: Vec<_> = resources
        .iter()
        .map(|r| {
            let get = |key: &str| r.get(key).map(String::as_str);
            (r["service.name"].as_str(), get("container.id"), get("memprov.unit"))
        })
        .collect();
    let expected = [
        ("memprov", None, None),
        ("host", None, None),
        ("proc7", Some("c0ffee"), None),
        ("ssh", None, Some("ssh.service")),
    ];
    assert_eq!(seen, expected);
    let instances: BTreeSet<_> = resources.iter().map(|r| &r["service.instance.id"]).collect();
    assert_eq!(instances.len(), 4);
    for flat in flat(&request) {
        match flat.get("memprov.owner.id") {
            "loose" => assert_eq!(flat.resource["service.name"], "host"),
            "5a" => assert_eq!(flat.resource["service.name"], "memprov"),
            _ => {}
        }
        assert!(!flat.resource.contains_key("process.pid"));
    }
}

#[test]
fn a_process_is_a_resource_where_that_is_asked_for() {
    let request = with(&busy(), Options { grain: Grain::Process, ..all() });
    let resources = resources(&request);
    let pids: Vec<_> = resources.iter().filter_map(|r| r.get("process.pid")).collect();
    assert_eq!(pids, ["7", "8", "9"]);
    assert_eq!(resources[1]["container.id"], "c0ffee");
    assert_eq!(resources[3]["process.creation.time"], "2026-09-10T00:26:50.090Z");
}

#[test]
fn an_instance_keeps_its_id_over_restarts_of_the_agent_and_of_the_host() {
    let ids = |report: &Report| -> Vec<String> {
        let request = encode(report);
        resources(&request).iter().map(|r| r["service.instance.id"].clone()).collect()
    };
    let mut later = busy();
    let about = About { identity: Identity { boot: Some(5), ..identity() }, support: Vec::new() };
    later.about = Some(Arc::new(about));
    for process in &mut later.processes {
        (process.pid, process.start_time) = (process.pid + 100, Some(5));
        process.space = format!("{:x}", process.pid);
    }
    assert_eq!(ids(&busy()), ids(&later));
    let elsewhere = Identity { host_id: "77".to_owned(), ..identity() };
    later.about = Some(Arc::new(About { identity: elsewhere, support: Vec::new() }));
    assert!(ids(&later).iter().all(|id| !ids(&busy()).contains(id)));
}

#[test]
fn a_service_keeps_the_name_of_its_first_process_for_as_long_as_it_lives() {
    let mut series = Accumulator::new(all());
    let mut names = BTreeSet::new();
    for pid in 1..4 {
        let mut one = process(pid, Some("c0ffee"), Vec::new());
        one.comm = format!("stage{pid}");
        series.pane(&report(vec![one]), Window { end: START + u64::from(pid) * MINUTE, ..WINDOW });
        let request = ship(&mut series);
        names.extend(resources(&request).into_iter().map(|r| r["service.name"].clone()));
    }
    assert_eq!(names, BTreeSet::from(["memprov".to_owned(), "stage1".to_owned()]));
}

#[test]
fn what_the_user_says_of_the_host_is_on_every_resource_and_of_the_agent_on_its_own() {
    let attributes = [
        ("cloud.region", "r1"),
        ("host.name", "other"),
        ("k8s.pod.name", "memprov-x"),
        ("service.instance.id", "same"),
        ("service.name", "agent"),
    ];
    let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let mut report = busy();
    let identity = Identity { attributes, ..identity() };
    report.about = Some(Arc::new(About { identity, support: Vec::new() }));
    let mut series = Accumulator::new(all());
    series.pane(&report, WINDOW);
    let request = ship_any(&mut series);
    for resource in resources(&request) {
        let own = !resource.contains_key("container.id") && !resource.contains_key("memprov.unit");
        assert_eq!(resource["cloud.region"], "r1");
        assert_eq!(resource["host.name"], "other");
        assert_eq!(resource.contains_key("k8s.pod.name"), own);
        assert_eq!(resource["service.name"] == "agent", own);
        assert_ne!(resource["service.instance.id"], "same");
    }
}

#[test]
fn no_resource_of_a_container_names_another_one() {
    let ids = ["aaaa", "bbbb", "cccc"];
    let processes = ids.iter().zip(1..).map(|(id, pid)| {
        let mut one = process(pid, Some(id), vec![owner(&format!("of-{id}"), bytes(9, Exact))]);
        one.comm = format!("comm-{id}");
        one.cgroup = Some(format!("/system.slice/docker-{id}.scope"));
        one
    });
    let report = report(processes.collect());
    for options in [all(), kinds(), Options { resources: 2, ..kinds() }] {
        for metrics in with(&report, options).resource_metrics {
            let attributes = texts(&metrics.resource.as_ref().unwrap().attributes);
            let Some(own) = attributes.get("container.id") else { continue };
            let text = serde_json::to_string(&metrics).unwrap();
            for id in ids.iter().filter(|id| *id != own) {
                assert!(!text.contains(id), "{own} names {id}");
            }
        }
    }
}

#[test]
fn resources_beyond_the_cap_are_told_by_the_host_and_nothing_is_missing() {
    let processes: Vec<Process> = (1..40u32)
        .map(|pid| {
            let rows = vec![owner("aa", bytes(u64::from(pid) * 4096, Exact))];
            process(pid, Some(&format!("c{pid}")), rows)
        })
        .collect();
    let total = |request: &ExportMetricsServiceRequest| {
        let mut totals: BTreeMap<String, i64> = BTreeMap::new();
        for ((_, metric, _), sum) in sums(request, "") {
            *totals.entry(metric).or_default() += sum;
        }
        totals.remove("memprov.memory.faults");
        totals.remove("memprov.memory.faults_by_kind");
        totals
    };
    let whole = total(&encode(&report(processes.clone())));
    for cap in [1, 7, 39] {
        let request = with(&report(processes.clone()), Options { resources: cap, ..all() });
        assert_eq!(total(&request), whole);
        let ids: BTreeSet<_> =
            resources(&request).iter().filter_map(|r| r.get("container.id").cloned()).collect();
        assert_eq!(ids.len(), cap);
        assert!(ids.contains("c39"));
    }
}

#[test]
fn what_a_selector_finds_is_told_whole_and_the_rest_is_not() {
    let rows = |n: u64| (1..=n).map(|i| owner(&format!("{i:04}"), bytes(i, Exact))).collect();
    let mut report = report(vec![
        process(1, Some("aaaa"), rows(200)),
        process(2, Some("bbbb"), rows(200)),
        process(3, None, rows(200)),
    ]);
    report.processes[2].cgroup = Some("/system.slice/a.service".to_owned());
    for (text, found) in [
        ("all(*)", vec!["aaaa", "bbbb", "a.service"]),
        ("all(container=aa)", vec!["aaaa"]),
        ("all(comm=proc2,unit=a.service)", vec!["bbbb", "a.service"]),
    ] {
        let detail = Detail::try_from(text.to_owned()).unwrap();
        let request = with(&report, Options { detail, ..kinds() });
        let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for flat in flat(&request).iter().filter(|flat| !flat.get("memprov.owner.id").is_empty()) {
            let place = flat.resource.get("container.id").or(flat.resource.get("memprov.unit"));
            let Some(place) = place else { continue };
            owners
                .entry(place.clone())
                .or_default()
                .insert(flat.get("memprov.owner.id").to_owned());
        }
        for (place, ids) in owners {
            let whole = found.contains(&place.as_str());
            assert_eq!(ids.len(), if whole { 200 } else { super::super::NAMED }, "{text} {place}");
        }
    }
}
