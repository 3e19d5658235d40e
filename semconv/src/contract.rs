//! Whether what is sent keeps to the registry: a check of OTLP/JSON requests, for tests.
//!
//! Format: OTLP specification, "JSON Protobuf Encoding" (64-bit integers are decimal strings, enums are numbers, what
//! has its default value may be missing), and `opentelemetry/proto/metrics/v1/metrics.proto`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use serde_json::Value;

use crate::{ALL, Attribute, Instrument, Metric, Number, RESOURCE, Type};

/// What the names of all our scopes begin with.
const SCOPE: &str = "memprov";
/// `DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK`: the point ends its series and has no value.
const NO_RECORDED_VALUE: u64 = 1;
/// `AGGREGATION_TEMPORALITY_DELTA`.
const DELTA: u64 = 1;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// Something in a request that the registry doesn't allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Resource, metric and point, as numbers from 0 and names.
    pub place: String,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Checks requests of one agent. It remembers every point, so that none is there twice in all requests together.
#[derive(Debug, Default)]
pub struct Contract<'a> {
    also: &'a [&'a str],
    names: BTreeSet<&'static str>,
    points: HashSet<(String, u64)>,
    breaches: Vec<Breach>,
}

impl<'a> Contract<'a> {
    /// Resources may carry the keys `also` besides those of the registry, as where a deployment or a Collector adds
    /// them.
    #[must_use]
    pub fn new(also: &'a [&'a str]) -> Self {
        Self { also, ..Self::default() }
    }

    /// The metrics that the requests so far held.
    #[must_use]
    pub fn names(&self) -> &BTreeSet<&'static str> {
        &self.names
    }

    /// How many different points the requests so far held.
    #[must_use]
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// Everything in `request`, an `ExportMetricsServiceRequest`, that the registry doesn't allow.
    pub fn check(&mut self, request: &Value) -> Vec<Breach> {
        if !request["resourceMetrics"].is_array() {
            self.breach("request", "it has no list of resourceMetrics");
        }
        for (number, resource) in list(request, "resourceMetrics").iter().enumerate() {
            self.resource(&format!("resource {number}"), resource);
        }
        std::mem::take(&mut self.breaches)
    }

    fn resource(&mut self, place: &str, resource: &Value) {
        let whom = self.attributes(place, &resource["resource"], RESOURCE, self.also);
        for scope in list(resource, "scopeMetrics") {
            let name = scope["scope"]["name"].as_str().unwrap_or_default();
            if !name.starts_with(SCOPE) {
                self.breach(place, format!("its scope is {name:?}"));
            }
            let mut names = HashSet::new();
            for metric in list(scope, "metrics") {
                let name = metric["name"].as_str().unwrap_or_default();
                let place = format!("{place}, {name}");
                if !names.insert(name) {
                    self.breach(&place, "it is in one scope twice");
                }
                match ALL.iter().find(|known| known.name == name) {
                    Some(known) => self.metric(&place, &whom, known, metric),
                    None => self.breach(&place, "no metric has this name"),
                }
            }
        }
    }

    fn metric(&mut self, place: &str, whom: &str, known: &Metric, metric: &Value) {
        for (field, right) in [("unit", known.unit), ("description", known.brief)] {
            let given = metric[field].as_str().unwrap_or_default();
            if given != right {
                self.breach(place, format!("its {field} is {given:?}, not {right:?}"));
            }
        }
        let (kind, monotonic, temporalities): (_, _, &[u64]) = match known.instrument {
            Instrument::Counter => ("sum", true, &[CUMULATIVE, DELTA]),
            Instrument::UpDownCounter => ("sum", false, &[CUMULATIVE]),
            Instrument::Gauge => ("gauge", false, &[0]),
            Instrument::Histogram if metric["exponentialHistogram"].is_object() => {
                ("exponentialHistogram", false, &[CUMULATIVE, DELTA])
            }
            Instrument::Histogram => ("histogram", false, &[CUMULATIVE, DELTA]),
        };
        let data = &metric[kind];
        if !data.is_object() {
            self.breach(place, format!("it has no {kind}"));
        }
        if data["isMonotonic"].as_bool().unwrap_or_default() != monotonic {
            self.breach(place, format!("monotonic is {}", !monotonic));
        }
        let temporality = data["aggregationTemporality"].as_u64().unwrap_or_default();
        if !temporalities.contains(&temporality) {
            self.breach(place, format!("its temporality is {temporality}"));
        }
        let points = list(data, "dataPoints");
        if points.is_empty() {
            self.breach(place, "it has no points");
        }
        for (number, point) in points.iter().enumerate() {
            self.point(&format!("{place}, point {number}"), whom, known, point);
        }
        if let Some(known) = ALL.iter().find(|one| one.name == known.name) {
            self.names.insert(known.name);
        }
    }

    fn point(&mut self, place: &str, whom: &str, known: &Metric, point: &Value) {
        let series = self.attributes(place, point, known.attributes, &[]);
        let (start, time) = (nanos(point, "startTimeUnixNano"), nanos(point, "timeUnixNano"));
        match (start, time) {
            (_, None | Some(0)) => self.breach(place, "it has no time"),
            (None, _) => self.breach(place, "its start is no number"),
            (Some(0), _) if known.instrument != Instrument::Gauge => {
                self.breach(place, "it has no start");
            }
            (Some(start), Some(time)) if start > time => {
                self.breach(place, format!("it starts at {start}, after its time {time}"));
            }
            _ => {}
        }
        let identity = (format!("{whom} {} {series}", known.name), time.unwrap_or_default());
        if !self.points.insert(identity) {
            self.breach(place, "the same series has another point at this time");
        }
        self.value(place, known, point);
    }

    fn value(&mut self, place: &str, known: &Metric, point: &Value) {
        let integer = point["asInt"].as_str().and_then(|text| text.parse::<i64>().ok());
        let double = point["asDouble"].as_f64();
        let given = point.get("asInt").is_some() || point.get("asDouble").is_some();
        let flags = point["flags"].as_u64().unwrap_or_default();
        if flags & NO_RECORDED_VALUE != 0 {
            if given {
                self.breach(place, "it has a value, and a flag that says it has none");
            }
            return;
        }
        if known.instrument == Instrument::Histogram {
            return self.buckets(place, point);
        }
        let (right, negative) = match known.number {
            Number::Int => (integer.is_some(), integer.is_some_and(|n| n < 0)),
            Number::Double => (double.is_some(), double.is_some_and(|n| n < 0.0)),
        };
        if !right {
            self.breach(place, format!("its value is no {:?}", known.number));
        }
        if negative && known.instrument == Instrument::Counter {
            self.breach(place, "a counter is below 0");
        }
    }

    /// All that a histogram counted lies in its buckets.
    fn buckets(&mut self, place: &str, point: &Value) {
        let counts = |holder: &Value| -> Vec<u64> {
            let counts = list(holder, "bucketCounts").iter();
            counts.filter_map(|count| count.as_str()?.parse().ok()).collect()
        };
        let explicit = counts(point);
        let bounds = list(point, "explicitBounds").len();
        let inside: u64 = explicit.iter().chain(&counts(&point["positive"])).sum();
        let zero = nanos(point, "zeroCount").unwrap_or_default();
        if nanos(point, "count") != Some(inside + zero) {
            self.breach(
                place,
                format!("{inside} lie in its buckets and {zero} at 0, which is not its count"),
            );
        }
        if !explicit.is_empty() && explicit.len() != bounds + 1 {
            self.breach(place, format!("{bounds} bounds part {} buckets", explicit.len()));
        }
        if !point["sum"].is_number() {
            self.breach(place, "it has no sum");
        }
    }

    /// Checks the attributes of `holder` and returns them in one order, as text.
    fn attributes(
        &mut self,
        place: &str,
        holder: &Value,
        known: &[Attribute],
        also: &[&str],
    ) -> String {
        let mut given: BTreeMap<&str, &Value> = BTreeMap::new();
        for attribute in list(holder, "attributes") {
            let key = attribute["key"].as_str().unwrap_or_default();
            let value = &attribute["value"];
            if given.insert(key, value).is_some() {
                self.breach(place, format!("{key} is there twice"));
            }
            match known.iter().find(|one| one.as_str() == key) {
                Some(known) => {
                    if let Err(what) = allowed(known, value) {
                        self.breach(place, format!("{key} {what}"));
                    }
                }
                None if also.contains(&key) => {}
                None => self.breach(place, format!("{key} is none of its attributes")),
            }
        }
        for lacking in known.iter().filter(|one| one.required && !given.contains_key(one.as_str()))
        {
            self.breach(place, format!("{} is missing", lacking.as_str()));
        }
        given.iter().map(|(key, value)| format!("{key}={value};")).collect()
    }

    fn breach(&mut self, place: &str, what: impl Into<String>) {
        self.breaches.push(Breach { place: place.to_owned(), what: what.into() });
    }
}

fn allowed(known: &Attribute, value: &Value) -> Result<(), String> {
    let right = match known.kind {
        Type::Text => value["stringValue"].is_string(),
        Type::Int => value["intValue"].as_str().is_some_and(|text| text.parse::<i64>().is_ok()),
        Type::Bool => value["boolValue"].is_boolean(),
    };
    let text = value["stringValue"].as_str().unwrap_or_default();
    if !right {
        Err(format!("is no {:?} but {value}", known.kind))
    } else if known.values.is_empty() || known.values.contains(&text) {
        Ok(())
    } else {
        Err(format!("is {text:?}, which is none of its values"))
    }
}

/// A time; 0 where it is missing, `None` where it is no number.
fn nanos(point: &Value, field: &str) -> Option<u64> {
    match &point[field] {
        Value::Null => Some(0),
        value => value.as_str()?.parse().ok(),
    }
}

fn list<'v>(holder: &'v Value, field: &str) -> &'v [Value] {
    holder[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests;
