//! The panels of `dashboards/`, asked of whoever answers their queries.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::programs::root;
use crate::promql::{Api, Series};
use crate::service::until;

/// What `$__rate_interval` is here: long enough for all that a test does, so that a rate is an increase by 600 s.
const INTERVAL: &str = "10m";
pub(crate) const INTERVAL_SECONDS: f64 = 600.0;

/// One query of a panel, ready to be asked.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) title: String,
    pub(crate) legend: String,
    pub(crate) promql: String,
}

/// All dashboards, for all hosts and services.
pub(crate) struct Boards {
    api: Api,
    pub(crate) queries: Vec<Query>,
}

fn queries(board: &str) -> Vec<Query> {
    let path = root().join(format!("dashboards/{board}.json"));
    let text = fs::read_to_string(&path).expect("a dashboard");
    let board: Value = serde_json::from_str(&text).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().expect("a title").to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| Query {
            title: title.clone(),
            legend: target["legendFormat"].as_str().unwrap_or_default().to_owned(),
            promql: ["$host", "$job"]
                .iter()
                .fold(target["expr"].as_str().expect("a query").to_owned(), |promql, variable| {
                    promql.replace(variable, ".*")
                })
                .replace("$__rate_interval", INTERVAL),
        })
    };
    panels.iter().flat_map(of_panel).collect()
}

/// The newest value of a series.
pub(crate) fn newest(series: &Series) -> f64 {
    series.samples.last().map_or(0.0, |sample| sample.1)
}

/// The newest values of all series, added up by the label `label`.
pub(crate) fn by(label: &str, found: &[Series]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for series in found {
        let name = series.labels.get(label).cloned().unwrap_or_default();
        *sums.entry(name).or_default() += newest(series);
    }
    sums
}

/// The sum of the newest values.
pub(crate) fn total(found: &[Series]) -> f64 {
    found.iter().map(newest).sum()
}

impl Boards {
    pub(crate) fn of(api: &Api) -> Self {
        let queries = ["owners", "numa", "evidence"].iter().flat_map(|board| queries(board));
        Self { api: api.clone(), queries: queries.collect() }
    }

    pub(crate) fn ask(&self, title: &str, legend: &str) -> Result<Vec<Series>, String> {
        let query = self.queries.iter().find(|q| q.title == title && q.legend == legend);
        let query = query.unwrap_or_else(|| panic!("no panel {title:?} with {legend:?}"));
        self.api.query(&query.promql)
    }

    /// The one value of a panel that shows one.
    pub(crate) fn value(&self, title: &str) -> Result<f64, String> {
        match self.ask(title, "")?.as_slice() {
            [series] => Ok(newest(series)),
            others => Err(format!("{title}: {} series", others.len())),
        }
    }

    /// The value of another query that has one.
    pub(crate) fn value_of(&self, promql: &str) -> Result<f64, String> {
        self.api.value(promql)
    }

    /// Fails unless a panel comes to show `expected`, exactly.
    pub(crate) fn shows(&self, title: &str, expected: f64) {
        until(&format!("panel {title:?} shows {expected}"), || {
            let shown = self.value(title)?;
            (shown == expected).then_some(()).ok_or(format!("it shows {shown}"))
        });
    }

    /// Fails unless what `read` makes of a panel comes to be `expected`, but for a part `within` of it.
    pub(crate) fn agrees(
        &self,
        (title, legend): (&str, &str),
        read: impl Fn(&[Series]) -> f64,
        (expected, within): (f64, f64),
    ) {
        until(&format!("panel {title:?}, {legend:?} shows {expected}"), || {
            let found = self.ask(title, legend)?;
            let shown = read(&found);
            let near = (shown - expected).abs() <= within * expected.abs();
            near.then_some(()).ok_or_else(|| format!("it shows {shown}: {found:?}"))
        });
    }
}
