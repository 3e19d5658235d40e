//! Exemplars on their way through both Collectors: with their metric, and as log records. The accesses are those of a
//! recording: no host of these tests has a PMU.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;
use std::time::SystemTime;

use memprov_tests::host;
use serde_json::Value;

use crate::promql::seconds;
use crate::recording::{Loads, PERIOD, stream};
use crate::service::until;
use crate::stack::{Stack, Store};
use crate::witness::items;

const KINDS: [Loads; 2] = [
    Loads { file: "/srv/near", each_second: 10, cycles: 200, node: Some(0) },
    Loads { file: "/srv/far", each_second: 20, cycles: 400, node: Some(1) },
];
const SECONDS: u64 = 5;

/// An exemplar, or the record of one: nanoseconds since 1970, and all that is said of it by name.
type Told = (u64, BTreeMap<String, String>);

/// Attributes by name, as text.
fn attributes(list: &Value) -> BTreeMap<String, String> {
    let all = list.as_array().into_iter().flatten();
    let pair = |one: &Value| {
        let value = &one["value"];
        let text = value["stringValue"].as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((one["key"].as_str()?.to_owned(), text))
    };
    all.filter_map(pair).collect()
}

fn time(of: &Value) -> u64 {
    let text = of["timeUnixNano"].as_str().expect("it has a time");
    text.parse().expect("nanoseconds")
}

/// What came with `memprov.access.latency`: attributes of the point and of its exemplar, and the value.
fn with_metrics(requests: &[Value]) -> BTreeSet<Told> {
    let resources = requests.iter().flat_map(|request| items(request, "resourceMetrics"));
    let scopes = resources.flat_map(|resource| items(resource, "scopeMetrics"));
    let metrics = scopes.flat_map(|scope| items(scope, "metrics"));
    let latency = metrics.filter(|metric| metric["name"] == "memprov.access.latency");
    let points = latency.flat_map(|metric| items(&metric["histogram"], "dataPoints"));
    let of_point = |point: &Value| -> Vec<Told> {
        let told = |one: &Value| {
            let mut all = attributes(&point["attributes"]);
            all.extend(attributes(&one["filteredAttributes"]));
            let value = one["asDouble"].as_f64().expect("exemplars are doubles");
            all.insert("body".to_owned(), format!("memprov.access.latency = {value} {{cycle}}"));
            (time(one), all)
        };
        items(point, "exemplars").map(told).collect()
    };
    points.flat_map(of_point).collect()
}

/// The same of log records.
fn as_records(requests: &[Value]) -> BTreeSet<Told> {
    let resources = requests.iter().flat_map(|request| items(request, "resourceLogs"));
    let scopes = resources.flat_map(|resource| items(resource, "scopeLogs"));
    let told = |record: &Value| {
        assert_eq!(record["eventName"], "memprov.exemplar", "{record}");
        let mut all = attributes(&record["attributes"]);
        let body = record["body"]["stringValue"].as_str().unwrap_or_default();
        all.insert("body".to_owned(), body.to_owned());
        (time(record), all)
    };
    scopes.flat_map(|scope| items(scope, "logRecords")).map(told).collect()
}

/// What memprov said of capabilities in its metrics, by id.
fn support(requests: &[Value]) -> BTreeMap<String, String> {
    let resources = requests.iter().flat_map(|request| items(request, "resourceMetrics"));
    let metrics = resources
        .flat_map(|resource| items(resource, "scopeMetrics"))
        .flat_map(|scope| items(scope, "metrics"));
    let rows = metrics.filter(|metric| metric["name"] == "memprov.support");
    let points = rows.flat_map(|metric| {
        items(&metric["sum"], "dataPoints").chain(items(&metric["gauge"], "dataPoints"))
    });
    let row = |point: &Value| {
        let all = attributes(&point["attributes"]);
        Some((all.get("memprov.capability")?.clone(), all.get("memprov.state")?.clone()))
    };
    points.filter_map(row).collect()
}

#[test]
fn exemplars_arrive_as_log_records_with_the_code_that_the_metric_has_and_explain_decodes_it() {
    let stack = match Stack::start(Store::Prometheus) {
        Ok(stack) => stack,
        Err(why) => return host::skip("e2e exemplars", &why),
    };
    let files = tempfile::tempdir().expect("a directory");
    let recording = files.path().join("perf.data");
    let begun = seconds(SystemTime::now());
    fs::write(&recording, stream(&KINDS, SECONDS)).expect("a recording is written");
    let sent = host::command(&host::memprov())
        .arg("import")
        .arg(&recording)
        .args(["--interval", "1s", "--endpoint", &stack.endpoint()])
        .args(["--set", "export.detail=owners", "--set", "export.exemplar_logs=true"])
        .stdin(Stdio::null())
        .output()
        .expect("memprov starts");
    let said = String::from_utf8_lossy(&sent.stderr);
    assert!(sent.status.success(), "{}: {said}", sent.status);

    let (metrics, records) = until("both ways bring the same", || {
        let (metrics, records) = (stack.requests(), stack.records());
        let (with_metrics, as_records) = (with_metrics(&metrics), as_records(&records));
        if with_metrics.is_empty() || with_metrics != as_records {
            return Err(format!("{with_metrics:?} with metrics, {as_records:?} as records"));
        }
        Ok((metrics, as_records))
    });
    let codes: BTreeSet<_> = records.iter().map(|(_, all)| all["support.code"].clone()).collect();
    let [code] = codes.iter().collect::<Vec<_>>()[..] else {
        panic!("{codes:?}: one host has one")
    };
    for kind in KINDS {
        let of_kind = |(_, all): &&Told| all["memprov.owner.name"] == kind.file;
        let told: Vec<_> = records.iter().filter(of_kind).collect();
        assert!(!told.is_empty(), "none of {}", kind.file);
        for (at, all) in told {
            assert_eq!(all["body"], format!("memprov.access.latency = {} {{cycle}}", kind.cycles));
            assert_eq!(all["rate"], PERIOD.to_string());
            assert_eq!(all["ambiguity"], "none");
            #[expect(clippy::cast_precision_loss, reason = "to a microsecond")]
            let at = *at as f64 / 1e9;
            #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
            let earliest = begun - SECONDS as f64;
            assert!((earliest..seconds(SystemTime::now())).contains(&at), "{at}");
        }
    }

    // What the code says is what the metric of the same host says, and nothing beyond.
    let decoded = host::command(&host::memprov()).args(["explain", code]).output();
    let decoded = decoded.expect("memprov starts");
    assert!(decoded.status.success(), "{decoded:?}");
    let decoded = String::from_utf8(decoded.stdout).expect("text");
    let told = decoded.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let told = told.map(|(id, state)| (id.to_owned(), state.trim().to_owned()));
    let told: BTreeMap<_, _> = told.filter(|(_, state)| state != "not told").collect();
    assert_eq!(told, support(&metrics));
    assert!(!told.is_empty());

    // Prometheus keeps the same beside the buckets, and leaves dots in the names of an exemplar's labels.
    until("Prometheus has an exemplar with that code", || {
        let (from, to) = (begun - 60.0, seconds(SystemTime::now()));
        let kept = stack.api.exemplars("memprov_access_latency_bucket", from, to)?;
        let ours = |labels: &BTreeMap<String, String>| labels.get("support.code") == Some(code);
        let named = kept.iter().any(|one| ours(one) && one["rate"] == PERIOD.to_string());
        named.then_some(()).ok_or(format!("{kept:?}"))
    });
    assert_eq!(stack.complaints(), Vec::<String>::new(), "{}", stack.gateway.tail());
}
