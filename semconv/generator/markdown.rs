//! The registry as `docs/METRICS.md`. One `promql` block a metric, so that a test can ask every query.

use std::fmt::{self, Write};

use crate::files::{Instrument, Level, Number, PlainLevel, Primitive};
use crate::prometheus;
use crate::registry::{Attribute, Metric, Registry, Use};

const HEAD: &str = "\
# Metrics

What memprov exports by OTLP, and what Prometheus makes of it. This file is made from `semconv/registry/*.yaml`
([how to add a metric](../CONTRIBUTING.md#adding-a-metric)).

Prometheus names are those of its default translation of OTLP (`UnderscoreEscapingWithSuffixes`): dots become
underscores, the unit and for counters `_total` are appended. `job` is `service.name`, `instance` is
`service.instance.id`. Other attributes of resources are on `target_info`, unless `promote_resource_attributes` names
them. All metrics are in development: their names may change between minor versions, with a line in the
[changelog](../CHANGELOG.md).
";

/// The text of `docs/METRICS.md`.
pub(crate) fn write(registry: &Registry) -> Result<String, fmt::Error> {
    let mut out = HEAD.to_owned();
    writeln!(out, "\n| metric | in Prometheus | tells |\n|---|---|---|")?;
    for metric in &registry.metrics {
        let Metric { name, prometheus, brief, .. } = metric;
        writeln!(out, "| [`{name}`](#{}) | `{prometheus}` | {} |", anchor(name), cell(brief))?;
    }
    for metric in &registry.metrics {
        self::metric(&mut out, metric)?;
    }
    writeln!(out, "\n## Resources\n")?;
    writeln!(out, "What every point of a resource has in common.\n")?;
    uses(&mut out, &registry.resource)?;
    writeln!(out, "\n## Values\n")?;
    writeln!(
        out,
        "What the attributes of points say. Where values are listed, no others are sent."
    )?;
    let points = registry.attributes.values();
    let of_points = |one: &&Attribute| registry.resource.iter().all(|r| r.attribute.key != one.key);
    for attribute in points.filter(of_points) {
        self::attribute(&mut out, attribute)?;
    }
    Ok(out)
}

fn metric(out: &mut String, metric: &Metric) -> fmt::Result {
    let instrument = match metric.instrument {
        Instrument::Counter => "counter",
        Instrument::UpDownCounter => "up-down counter",
        Instrument::Gauge => "gauge",
        Instrument::Histogram => "histogram",
    };
    let number = match metric.number {
        Number::Int => "integers",
        Number::Double => "doubles",
    };
    writeln!(out, "\n## {}\n\n{}", metric.name, metric.brief)?;
    if let Some(note) = &metric.note {
        writeln!(out, "{note}")?;
    }
    writeln!(out, "\n- Prometheus: `{}`", metric.prometheus)?;
    writeln!(out, "- Unit: `{}`", metric.unit)?;
    writeln!(out, "- Instrument: {instrument} of {number}")?;
    writeln!(out, "- Resource: {}", metric.entities.join(", "))?;
    if !metric.attributes.is_empty() {
        writeln!(out)?;
        uses(out, &metric.attributes)?;
    }
    writeln!(out, "\n{}\n\n```promql\n{}\n```", metric.query.tells, metric.query.promql.trim_end())
}

fn uses(out: &mut String, uses: &[Use]) -> fmt::Result {
    writeln!(out, "| attribute | in Prometheus | present | values |\n|---|---|---|---|")?;
    for one in uses {
        let Attribute { key, kind, members, .. } = &one.attribute;
        let level = match &one.level {
            Level::Plain(PlainLevel::Required) => "always",
            Level::Plain(PlainLevel::Recommended) => "where known",
            Level::Plain(PlainLevel::OptIn) => "on request",
            Level::Conditional(condition) => condition.conditionally_required.trim_end_matches('.'),
        };
        let members = one.values.as_ref().unwrap_or(members);
        let values: Vec<_> = members.iter().map(|member| format!("`{}`", member.value)).collect();
        let values = match kind {
            _ if !values.is_empty() => values.join(", "),
            Primitive::String => "any text".to_owned(),
            Primitive::Int => "an integer".to_owned(),
            Primitive::Boolean => "`true`".to_owned(),
        };
        let label = prometheus::label(key);
        writeln!(out, "| `{key}` | `{label}` | {} | {values} |", cell(level))?;
    }
    Ok(())
}

fn attribute(out: &mut String, attribute: &Attribute) -> fmt::Result {
    writeln!(out, "\n### {}\n\n{}", attribute.key, attribute.brief)?;
    if let Some(note) = &attribute.note {
        writeln!(out, "{note}")?;
    }
    if !attribute.members.is_empty() {
        writeln!(out, "\n| value | says |\n|---|---|")?;
        for member in &attribute.members {
            writeln!(out, "| `{}` | {} |", member.value, cell(&member.brief))?;
        }
    }
    if !attribute.examples.is_empty() {
        let examples: Vec<_> = attribute.examples.iter().map(|one| format!("`{one}`")).collect();
        writeln!(out, "For example {}.", examples.join(", "))?;
    }
    Ok(())
}

/// The anchor that renderers give a heading.
fn anchor(heading: &str) -> String {
    heading.replace('.', "")
}

/// Text inside a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
