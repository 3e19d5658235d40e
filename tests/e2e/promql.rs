//! Asks a server that speaks Prometheus' HTTP API.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::Value;

/// Labels of a series, `__name__` among them where the query keeps it.
pub(crate) type Labels = BTreeMap<String, String>;

/// A series: its labels and its samples, Unix seconds and value.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) labels: Labels,
    pub(crate) samples: Vec<(f64, f64)>,
}

/// The API below an address such as `http://127.0.0.1:9090`.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) String);

/// Unix seconds.
pub(crate) fn seconds(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

impl Api {
    /// The value of `query` now, a vector or the raw samples of a range.
    ///
    /// # Errors
    /// What the server says against it.
    pub(crate) fn query(&self, query: &str) -> Result<Vec<Series>, String> {
        self.ask("query", &[("query", query)])
    }

    /// The values of `query` at every second from `from` to `to`, both in Unix seconds.
    ///
    /// # Errors
    /// What the server says against it.
    pub(crate) fn range(&self, query: &str, from: f64, to: f64) -> Result<Vec<Series>, String> {
        let (from, to) = (format!("{from:.3}"), format!("{to:.3}"));
        self.ask("query_range", &[("query", query), ("start", &from), ("end", &to), ("step", "1")])
    }

    /// The one value of a query that has one.
    ///
    /// # Errors
    /// When it has none, or several.
    pub(crate) fn value(&self, query: &str) -> Result<f64, String> {
        match self.query(query)?.as_slice() {
            [Series { samples, .. }] => {
                samples.last().map(|sample| sample.1).ok_or_else(|| format!("{query}: no sample"))
            }
            others => Err(format!("{query}: {} series", others.len())),
        }
    }

    /// The labels of all exemplars of the series that a query names, between two times in Unix seconds.
    ///
    /// # Errors
    /// What the server says against it.
    pub(crate) fn exemplars(&self, query: &str, from: f64, to: f64) -> Result<Vec<Labels>, String> {
        let (from, to) = (format!("{from:.3}"), format!("{to:.3}"));
        let told =
            self.told("query_exemplars", &[("query", query), ("start", &from), ("end", &to)])?;
        let series = told.as_array().into_iter().flatten();
        let all = series.flat_map(|one| one["exemplars"].as_array().into_iter().flatten());
        let labels = |one: &Value| serde_json::from_value(one["labels"].clone());
        all.map(|one| labels(one).map_err(|e| format!("labels of {one}: {e}"))).collect()
    }

    fn ask(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Vec<Series>, String> {
        let told = self.told(what, parameters)?;
        let results = told["result"].as_array().ok_or("no result")?;
        results.iter().map(series).collect()
    }

    /// The data of an answer.
    fn told(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let failed = |e: ureq::Error| format!("{what} {parameters:?}: {e}");
        let mut answer = ureq::get(format!("{}/api/v1/{what}", self.0))
            .query_pairs(parameters.iter().copied())
            .config()
            .http_status_as_error(false)
            .build()
            .call()
            .map_err(failed)?;
        let mut answer: Value = answer.body_mut().read_json().map_err(failed)?;
        if answer["status"] != "success" {
            return Err(format!("{what} {parameters:?}: {}", answer["error"]));
        }
        Ok(answer["data"].take())
    }
}

fn series(result: &Value) -> Result<Series, String> {
    let labels = serde_json::from_value(result["metric"].clone())
        .map_err(|e| format!("labels of {result}: {e}"))?;
    let samples = match (&result["values"], &result["value"]) {
        (Value::Array(values), _) => values.iter().map(sample).collect::<Option<_>>(),
        (_, value) => sample(value).map(|sample| vec![sample]),
    };
    Ok(Series { labels, samples: samples.ok_or_else(|| format!("samples of {result}"))? })
}

fn sample(pair: &Value) -> Option<(f64, f64)> {
    Some((pair.get(0)?.as_f64()?, pair.get(1)?.as_str()?.parse().ok()?))
}
