//! What came through, as the Collector's file exporter wrote it: lines of OTLP/JSON.

use std::collections::{BTreeMap, BTreeSet};

use memprov_tests::otlp::{self, Kept};
use serde_json::Value;

/// How a request begins, by what is in it.
pub(crate) const METRICS: &str = r#"{"resourceMetrics":"#;
pub(crate) const LOGS: &str = r#"{"resourceLogs":"#;

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
        Self { points: requests(file, METRICS).flat_map(|request| points(&request)).collect() }
    }

    /// What memprov sent of all that the file holds, held against the registry of names.
    ///
    /// # Errors
    /// What departs from it.
    pub(crate) fn kept(file: &str) -> Result<Kept, String> {
        let of_memprov = |resource: &Value| {
            items(resource, "scopeMetrics").any(|scope| scope["scope"]["name"] == "memprov")
        };
        let requests = requests(file, METRICS).map(|mut request| {
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

    /// What a counter said of one outcome, at each point.
    pub(crate) fn counted(&self, metric: &str, outcome: &str) -> Vec<u64> {
        let named = format!("\"{outcome}\"");
        let of_outcome = |p: &&Point| p.metric == metric && p.series.contains(&named);
        let points = self.points.iter().filter(of_outcome);
        points.filter_map(|p| p.value.as_ref()?.as_str()?.parse().ok()).collect()
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

/// The requests of whole lines. A Collector that was killed while it wrote leaves a request without an end, or without
/// the end of its line, and the next one goes on there: what has no end is left out, for it is sent again.
pub(crate) fn requests<'a>(file: &'a str, begin: &'a str) -> impl Iterator<Item = Value> + 'a {
    let lines = file.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.flat_map(move |line| {
        let begins: Vec<usize> = line.match_indices(begin).map(|(at, _)| at).collect();
        let ends = begins.iter().copied().skip(1).chain([line.len()]);
        let parts = begins.iter().zip(ends).map(|(&from, to)| (&line[from..to], to == line.len()));
        let parse = |(part, last): (&str, bool)| match serde_json::from_str(part) {
            Ok(request) => Some(request),
            Err(error) if last => panic!("OTLP/JSON: {error}"),
            Err(_) => None,
        };
        parts.filter_map(parse).collect::<Vec<Value>>()
    })
}

/// The list below a key; empty where there is none.
pub(crate) fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
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

#[cfg(test)]
mod tests {
    use super::{METRICS, requests};

    #[test]
    fn a_request_that_a_kill_cut_costs_no_other() {
        let whole = format!("{METRICS}[]}}");
        let count = |file: &str| requests(file, METRICS).count();
        assert_eq!(
            count(&format!("{whole}\n{whole}\n{METRICS}")),
            2,
            "the last line is not whole yet"
        );
        assert_eq!(count(&format!("{whole}{whole}\n")), 2, "cut before the end of its line");
        assert_eq!(count(&format!("{METRICS}[{whole}\n")), 1, "cut within");
    }
}
