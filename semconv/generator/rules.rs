//! What every name has to keep to (OpenTelemetry semantic conventions, general/naming and general/metrics), and what
//! the code that is made of names needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::Problem;
use crate::files::Instrument;
use crate::prometheus::{self, UNITS};
use crate::registry::{Attribute, Line, Metric, Registry};
use crate::rust;

/// Our own root.
const ROOT: &str = "memprov.";
/// Units and instruments have fields of their own.
const SAID_ELSEWHERE: [&str; 6] = ["bytes", "seconds", "ratio", "total", "count", "sum"];
/// What Prometheus appends to the families of classic histograms.
const HISTOGRAM: [&str; 3] = ["_bucket", "_sum", "_count"];

/// All rules that do not hold.
pub(crate) fn check(registry: &Registry) -> Vec<Problem> {
    let mut problems = Vec::new();
    for attribute in registry.attributes.values() {
        problems.extend(of_attribute(attribute).map(|what| attribute.line.problem(what)));
    }
    for metric in &registry.metrics {
        problems.extend(of_metric(metric).map(|what| metric.line.problem(what)));
    }
    problems.extend(unique(registry));
    problems.extend(unused(registry));
    problems.extend(queries(registry));
    problems
}

fn of_attribute(attribute: &Attribute) -> impl Iterator<Item = String> {
    let Attribute { key, members, brief, .. } = attribute;
    let values: BTreeSet<_> = members.iter().map(|member| &member.value).collect();
    let ids: BTreeSet<_> = members.iter().map(|member| &member.id).collect();
    let briefs = members.iter().map(|member| &member.brief).chain([brief]);
    [
        (!plain(key), format!("{key} is not lower case words, parted by dots and underscores")),
        (values.len() < members.len(), format!("{key} has a value twice")),
        (ids.len() < members.len(), format!("{key} has a member twice")),
        (
            !ids.iter().all(|id| plain(id) && !id.contains('.')),
            format!("{key}: ids of members are words"),
        ),
        (!briefs.into_iter().all(|brief| sentence(brief)), format!("{key}: a brief is a sentence")),
    ]
    .into_iter()
    .filter_map(|(wrong, what)| wrong.then_some(what))
}

fn of_metric(metric: &Metric) -> impl Iterator<Item = String> {
    let Metric { name, unit, instrument, .. } = metric;
    let annotation = unit.starts_with('{') && unit.ends_with('}');
    let counts_nothing = unit == "1" && *instrument != Instrument::Gauge;
    let last = name.rsplit(['.', '_']).next().unwrap_or_default();
    [
        (!plain(name), format!("{name} is not lower case words, parted by dots and underscores")),
        (!name.starts_with(ROOT), format!("{name} is not below {ROOT}")),
        (SAID_ELSEWHERE.contains(&last), format!("{name} repeats its unit or its instrument")),
        (
            !annotation && !UNITS.iter().any(|(known, _)| known == unit),
            format!("{unit} is none of By, s, 1 and an annotation in braces"),
        ),
        (counts_nothing, format!("{name}: only a gauge can have the unit 1")),
        (!sentence(&metric.brief), format!("{name}: its brief is a sentence")),
        (!sentence(&metric.query.tells), format!("{name}: what its query tells is a sentence")),
        (metric.entities.is_empty(), format!("{name} is about no entity")),
    ]
    .into_iter()
    .filter_map(|(wrong, what)| wrong.then_some(what))
}

/// Nothing bears the name of another thing, neither as it travels nor in Prometheus nor in code.
fn unique(registry: &Registry) -> Vec<Problem> {
    let attributes = registry.attributes.values();
    let keys = attributes.clone().map(|one| (&one.line, one.key.clone()));
    let labels = attributes.clone().map(|one| (&one.line, prometheus::label(&one.key)));
    let constants = attributes.map(|one| (&one.line, rust::constant(&one.key)));
    let metrics = registry.metrics.iter();
    let names = metrics.clone().map(|one| (&one.line, one.name.clone()));
    let families = metrics.clone().map(|one| (&one.line, one.prometheus.clone()));
    let streams = metrics.map(|one| (&one.line, rust::constant(&one.name)));
    let mut problems = twice(keys.chain(names));
    problems.extend(twice(labels));
    problems.extend(twice(families));
    problems.extend(twice(constants.chain(streams)));
    problems
}

fn twice<'a>(all: impl Iterator<Item = (&'a Line, String)>) -> Vec<Problem> {
    let mut seen: BTreeMap<String, &Line> = BTreeMap::new();
    let mut problems = Vec::new();
    for (line, name) in all {
        if let Some(first) = seen.get(&name) {
            let place = format!("{}:{}", first.file, first.number);
            problems.push(line.problem(format!("{name} is also the name of {place}")));
        }
        seen.insert(name, line);
    }
    problems
}

/// An attribute that nothing carries is a name without a thing.
fn unused(registry: &Registry) -> Vec<Problem> {
    let uses = registry.metrics.iter().flat_map(|metric| &metric.attributes);
    let used: BTreeSet<_> =
        uses.chain(&registry.resource).map(|one| one.attribute.key.as_str()).collect();
    let unused = registry.attributes.values().filter(|one| !used.contains(one.key.as_str()));
    unused.map(|one| one.line.problem(format!("nothing carries {}", one.key))).collect()
}

/// A query asks for its own metric, and names nothing that does not exist.
fn queries(registry: &Registry) -> Vec<Problem> {
    let root = prometheus::label(ROOT);
    let labels = registry.attributes.keys().map(|key| prometheus::label(key));
    let families = registry.metrics.iter().flat_map(|metric| {
        let parts: &[&str] =
            if metric.instrument == Instrument::Histogram { &HISTOGRAM } else { &[] };
        let parts = parts.iter().map(|part| format!("{}{part}", metric.prometheus));
        parts.chain([metric.prometheus.clone()])
    });
    let known: BTreeSet<_> = labels.chain(families).collect();
    let mut problems = Vec::new();
    for metric in &registry.metrics {
        let query = &metric.query.promql;
        let words = || query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if !words().any(|word| word.starts_with(&metric.prometheus)) {
            let what = format!("the query of {} lacks {}", metric.name, metric.prometheus);
            problems.push(metric.line.problem(what));
        }
        for word in words().filter(|word| word.starts_with(&root) && !known.contains(*word)) {
            let what = format!("the query of {}: nothing is named {word}", metric.name);
            problems.push(metric.line.problem(what));
        }
    }
    problems
}

fn plain(name: &str) -> bool {
    let words = || name.split(['.', '_']);
    let word = |word: &str| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    words().all(|one| !one.is_empty() && word(one))
        && name.starts_with(|c: char| c.is_ascii_lowercase())
}

fn sentence(text: &str) -> bool {
    text.ends_with('.') && !text.contains('\n')
}
