use serde_json::json;

use super::*;

/// A request with a sum of owners, a counter and a gauge.
fn good() -> Value {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let owner = json!({
        "attributes": [
            text("memprov.evidence", "exact"),
            text("memprov.owner.id", "aa"),
            text("memprov.owner.kind", "arena"),
            text("memprov.owner.name", "arena:glibc"),
        ],
        "startTimeUnixNano": "1", "timeUnixNano": "2", "asInt": "9007199254740993",
    });
    json!({"resourceMetrics": [{
        "resource": {"attributes": [
            text("host.id", "4c"), text("host.name", "n1"), text("service.name", "cache"),
            text("service.instance.id", "6f1c"),
            {"key": "process.pid", "value": {"intValue": "7"}},
        ]},
        "scopeMetrics": [{"scope": {"name": "memprov"}, "metrics": [
            {
                "name": "memprov.memory.resident", "unit": "By",
                "description": crate::MEMORY_RESIDENT.brief,
                "sum": {"aggregationTemporality": 2, "dataPoints": [owner]},
            },
            {
                "name": "memprov.source.lost", "unit": "{record}",
                "description": crate::SOURCE_LOST.brief,
                "sum": {"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [{
                    "attributes": [text("memprov.source.name", "stacks")],
                    "startTimeUnixNano": "1", "timeUnixNano": "2", "asInt": "0",
                }]},
            },
            {
                "name": "memprov.budget.cpu.utilization", "unit": "1",
                "description": crate::BUDGET_CPU_UTILIZATION.brief,
                "gauge": {"dataPoints": [{"timeUnixNano": "2", "asDouble": 0.5}]},
            },
        ]}],
    }]})
}

fn breaches(request: &Value) -> Vec<String> {
    Contract::default().check(request).iter().map(ToString::to_string).collect()
}

#[test]
fn a_request_that_keeps_to_the_registry_has_no_breach() {
    let mut contract = Contract::default();
    assert_eq!(contract.check(&good()), []);
    assert_eq!(contract.points(), 3);
    let names =
        ["memprov.budget.cpu.utilization", "memprov.memory.resident", "memprov.source.lost"];
    assert_eq!(contract.names().iter().copied().collect::<Vec<_>>(), names);
}

#[test]
fn every_departure_from_the_registry_is_one_breach_with_its_place() {
    let resource = "/resourceMetrics/0/resource/attributes";
    let metrics = "/resourceMetrics/0/scopeMetrics/0/metrics";
    let at = |metric: usize, path: &str| format!("{metrics}/{metric}{path}");
    let point = |metric: usize, path: &str| at(metric, &format!("/sum/dataPoints/0{path}"));
    for (pointer, value, said) in [
        (at(0, "/name"), json!("memprov.memory.present"), "present: no metric has this name"),
        (at(0, "/unit"), json!("KiBy"), "resident: its unit is \"KiBy\", not \"By\""),
        (at(0, "/description"), json!("."), "resident: its description is \".\""),
        (at(0, "/sum/isMonotonic"), json!(true), "resident: monotonic is true"),
        (at(0, "/sum/aggregationTemporality"), json!(1), "resident: its temporality is 1"),
        (at(1, "/sum/isMonotonic"), json!(false), "lost: monotonic is false"),
        (at(1, "/sum/aggregationTemporality"), json!(0), "lost: its temporality is 0"),
        (at(1, "/sum/dataPoints"), json!([]), "lost: it has no points"),
        (at(2, "/gauge/dataPoints/0/asDouble"), json!("NaN"), "point 0: its value is no Double"),
        (point(0, "/asInt"), json!(7), "resident, point 0: its value is no Int"),
        (point(0, "/asInt"), Value::Null, "resident, point 0: its value is no Int"),
        (point(1, "/asInt"), json!("-1"), "lost, point 0: a counter is below 0"),
        (point(0, "/flags"), json!(1), "it has a value, and a flag that says it has none"),
        (point(0, "/timeUnixNano"), json!("0"), "resident, point 0: it has no time"),
        (point(0, "/startTimeUnixNano"), json!("3"), "it starts at 3, after its time 2"),
        (point(0, "/startTimeUnixNano"), json!("0"), "resident, point 0: it has no start"),
        (point(0, "/startTimeUnixNano"), json!("x"), "its start is no number"),
        (point(0, "/attributes/0/value/stringValue"), json!("sampled"), "none of its values"),
        (point(0, "/attributes/0/value"), json!({"intValue": "1"}), "memprov.evidence is no Text"),
        (point(1, "/attributes"), json!([]), "point 0: memprov.source.name is missing"),
        (point(0, "/attributes/1/key"), json!("memprov.why"), "memprov.why is none of its attr"),
        (point(0, "/attributes/3/key"), json!("memprov.owner.id"), "memprov.owner.id is there twi"),
        (format!("{resource}/0/key"), json!("process.creation.time"), "0: host.id is missing"),
        (format!("{resource}/4/key"), json!("k8s.pod.uid"), "0: k8s.pod.uid is none of its attr"),
        (format!("{resource}/4/value"), json!({"intValue": 7}), "process.pid is no Int but"),
        ("/resourceMetrics/0/scopeMetrics/0/scope/name".to_owned(), json!("x"), "scope is \"x\""),
        ("/resourceMetrics".to_owned(), json!({}), "request: it has no list of resourceMetrics"),
    ] {
        let mut request = good();
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        match request.pointer_mut(parent) {
            Some(Value::Object(fields)) => drop(fields.insert(last.to_owned(), value)),
            Some(list) => *list.pointer_mut(&format!("/{last}")).unwrap() = value,
            None => panic!("{pointer} is nowhere"),
        }
        let breaches = breaches(&request);
        assert!(breaches.len() == 1 && breaches[0].contains(said), "{pointer}: {breaches:#?}");
    }
}

#[test]
fn a_point_is_sent_once_in_all_requests_of_an_agent() {
    let mut twice = good();
    let points = &mut twice["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][1]["sum"];
    let points = points["dataPoints"].as_array_mut().unwrap();
    points.push(points[0].clone());
    let said = breaches(&twice);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with("lost, point 1: the same series has another point at this time"));
    let mut contract = Contract::default();
    assert_eq!(contract.check(&good()), []);
    assert_eq!(contract.check(&good()).len(), 3);
    let mut later = good();
    let metrics = &mut later["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    for (metric, kind) in [(0, "sum"), (1, "sum"), (2, "gauge")] {
        metrics[metric][kind]["dataPoints"][0]["timeUnixNano"] = json!("3");
    }
    assert_eq!(contract.check(&later), []);
}

#[test]
fn the_order_of_attributes_makes_no_other_series() {
    let mut twice = good();
    let points = &mut twice["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["sum"];
    let points = points["dataPoints"].as_array_mut().unwrap();
    let mut turned = points[0].clone();
    turned["attributes"].as_array_mut().unwrap().reverse();
    points.push(turned);
    assert_eq!(breaches(&twice).len(), 1);
}

#[test]
fn an_end_of_a_series_has_a_flag_and_no_value() {
    let mut request = good();
    let metrics = &mut request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let point = metrics[0]["sum"]["dataPoints"][0].as_object_mut().unwrap();
    point.remove("asInt");
    point.insert("flags".to_owned(), json!(1));
    assert!(breaches(&request).is_empty());
}

#[test]
fn a_deployment_may_add_keys_to_resources_that_it_names() {
    let mut request = good();
    let attributes = &mut request["resourceMetrics"][0]["resource"]["attributes"];
    let unit = json!({"key": "k8s.pod.uid", "value": {"stringValue": "1-2"}});
    attributes.as_array_mut().unwrap().push(unit);
    assert_eq!(Contract::new(&["k8s.pod.uid"]).check(&request), []);
    assert_eq!(breaches(&request).len(), 1);
}
