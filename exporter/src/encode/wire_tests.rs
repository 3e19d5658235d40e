//! What leaves: JSON, ends of series, parts.

use super::*;

#[test]
fn json_is_what_the_otlp_specification_asks_for() {
    let request = encode(&busy());
    let text = json(&request);
    assert!(!text.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let metrics = &value["resourceMetrics"][2]["scopeMetrics"][0]["metrics"];
    let resident = metrics
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["name"] == "memprov.memory.resident")
        .unwrap();
    assert_eq!(resident["sum"]["aggregationTemporality"], 2, "enums are numbers");
    assert_eq!(resident["sum"]["isMonotonic"], false);
    let point = &resident["sum"]["dataPoints"][0];
    assert_eq!(point["timeUnixNano"], WINDOW.end.to_string(), "64-bit integers are strings");
    assert!(point["asInt"].is_string());
    assert_eq!(point["attributes"][0]["value"]["stringValue"], "exact");
    let resource = value["resourceMetrics"][2]["resource"]["attributes"].as_array().unwrap();
    let pid = resource.iter().find(|attribute| attribute["key"] == "process.pid").unwrap();
    assert_eq!(pid["value"]["intValue"], "9");
    let back: ExportMetricsServiceRequest = serde_json::from_str(&text).unwrap();
    assert_eq!(back, request);
}

#[test]
fn a_series_that_is_gone_ends_once_with_a_point_without_value() {
    let before = encode(&report(vec![
        process(7, None, vec![owner("aa", bytes(100, Exact))]),
        process(8, None, vec![owner("bb", bytes(100, Exact))]),
    ]));
    let now = report(vec![process(7, None, vec![owner("aa", bytes(100, Inferred))])]);
    let later = Window { end: WINDOW.end + 1, ..WINDOW };
    let now = request(&now, &identity(), later, ALL_OWNERS);
    let ends = ended(&before, &now);
    let live: Vec<_> =
        flat(&now).into_iter().map(|f| (f.resource, f.metric, f.attributes)).collect();
    let expected: Vec<_> = flat(&before)
        .into_iter()
        .map(|f| (f.resource, f.metric, f.attributes))
        .filter(|series| !live.contains(series))
        .collect();
    let points = flat(&ends);
    for point in &points {
        assert_eq!(point.point.flags, DataPointFlags::NoRecordedValueMask as u32);
        assert_eq!((&point.point.value, point.point.time_unix_nano), (&None, later.end));
    }
    let got: Vec<_> = points.into_iter().map(|f| (f.resource, f.metric, f.attributes)).collect();
    assert_eq!(got, expected);
    assert!(
        got.iter().any(|(_, _, attributes)| attributes.get("memprov.owner.id").map(String::as_str)
            == Some("aa"))
    );
    assert!(flat(&ended(&now, &now)).is_empty());
}

#[test]
fn parts_are_small_and_make_up_the_request() {
    let processes =
        (1..40).map(|pid| process(pid, None, vec![owner("aa", bytes(1, Exact))])).collect();
    let whole = encode(&report(processes));
    for limit in [1, 4_000, 20_000, usize::MAX] {
        let mut all = Vec::new();
        for range in split(&whole, limit) {
            let resource_metrics = whole.resource_metrics[range].to_vec();
            let part = ExportMetricsServiceRequest { resource_metrics };
            assert!(part.encoded_len() <= limit || part.resource_metrics.len() == 1);
            all.extend(part.resource_metrics);
        }
        assert_eq!(all, whole.resource_metrics);
    }
    assert_eq!(split(&whole, usize::MAX).len(), 1);
}
