//! What came through, as the Collector's file exporter wrote it: lines of OTLP/JSON.

use std::collections::{BTreeMap, BTreeSet};

use memprov_tests::otlp::{self, Kept};
use serde_json::Value;

/// One point of a request.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) metric: String,
    /// Resource, metric and attributes: what makes a series.
    pub(crate) series: String,
    /// Nanoseconds since the Unix epoch.
    pub(crate) time: u64,
    /// None for the end of a series.
    pub(crate) value: Option<Value>,
}

/// Every point that came, in the order of arrival.
pub(crate) struct Witness {
    pub(crate) points: Vec<Point>,
}

impl Witness {
    /// Reads the file; a last line that is not whole yet is left out.
    pub(crate) fn read(file: &str) -> Self {
        let points = whole_lines(file).flat_map(|line| {
            let request: Value = serde_json::from_str(line).expect("OTLP/JSON");
            points(&request)
        });
        Self { points: points.collect() }
    }

    /// What memprov sent of all that the file holds, held against the registry of names.
    ///
    /// # Errors
    /// What departs from it.
    pub(crate) fn kept(file: &str) -> Result<Kept, String> {
        let of_memprov = |resource: &Value| {
            items(resource, "scopeMetrics").any(|scope| scope["scope"]["name"] == "memprov")
        };
        let requests = whole_lines(file).map(|line| {
            let mut request: Value = serde_json::from_str(line).expect("OTLP/JSON");
            if let Some(resources) = request["resourceMetrics"].as_array_mut() {
                resources.retain(of_memprov);
            }
            format!("{request}\n")
        });
        otlp::kept(requests.collect::<String>().as_bytes(), &[])
    }

    /// Points that came more than once: the same series at the same time.
    pub(crate) fn repeated(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let again = self.points.iter().filter(|p| !seen.insert((&p.series, p.time)));
        again.map(|p| format!("{} at {}", p.series, p.time)).collect()
    }

    /// The times of the points of one metric.
    pub(crate) fn panes(&self, metric: &str) -> BTreeSet<u64> {
        let of_metric = self.points.iter().filter(|p| p.metric == metric && p.value.is_some());
        of_metric.map(|p| p.time).collect()
    }

    /// Series whose points came in another order than that of their times.
    pub(crate) fn disordered(&self) -> Vec<String> {
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        let mut disordered = Vec::new();
        for point in &self.points {
            let newest = newest.entry(&point.series).or_default();
            if point.time < *newest {
                disordered.push(format!("{} at {}", point.series, point.time));
            }
            *newest = point.time.max(*newest);
        }
        disordered
    }
}

fn whole_lines(file: &str) -> impl Iterator<Item = &str> {
    file.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn points(request: &Value) -> Vec<Point> {
    let mut found = Vec::new();
    for resource in items(request, "resourceMetrics") {
        let whom = &resource["resource"]["attributes"];
        for metric in items(resource, "scopeMetrics").flat_map(|scope| items(scope, "metrics")) {
            let name = metric["name"].as_str().unwrap_or_default();
            let data = ["sum", "gauge", "histogram", "exponentialHistogram"];
            for point in data.iter().flat_map(|kind| items(&metric[*kind], "dataPoints")) {
                let value = ["asInt", "asDouble", "count"].iter().find_map(|key| point.get(key));
                let time = point["timeUnixNano"].as_str().and_then(|time| time.parse().ok());
                found.push(Point {
                    metric: name.to_owned(),
                    series: format!("{name} {} {whom}", point["attributes"]),
                    time: time.expect("a point has a time"),
                    value: value.filter(|_| point["flags"].as_u64() != Some(1)).cloned(),
                });
            }
        }
    }
    found
}
