//! The registry as Rust: constants in the types of the crate's root.

use std::fmt::{self, Write};

use crate::files::{Instrument, Level, Member, Number, PlainLevel, Primitive};
use crate::registry::{Metric, Registry, Use};

/// Prefixes that constants do without.
const IMPLIED: [&str; 2] = ["memprov.", "otel.metric."];

/// The text of `src/generated.rs`.
pub(crate) fn write(registry: &Registry) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "//! Made from `registry/*.yaml` by `cargo run -p memprov-semconv --example generate`.\n"
    )?;
    writeln!(out, "use crate::{{Attribute, Instrument, Key, Metric, Number, Type, attribute}};")?;
    for attribute in registry.attributes.values() {
        let constant = constant(&attribute.key);
        writeln!(out, "\n/// {}", attribute.brief)?;
        writeln!(out, "pub const {constant}: Key = Key({:?});", attribute.key)?;
        if !attribute.members.is_empty() {
            closed(&mut out, &constant, &attribute.members)?;
        }
    }
    for metric in &registry.metrics {
        self::metric(&mut out, metric)?;
    }
    writeln!(out, "\n/// What resources carry.")?;
    uses(&mut out, "pub const RESOURCE: &[Attribute] =", &registry.resource, ";")?;
    writeln!(out, "\n/// Every metric, in the order of the registry's files.")?;
    writeln!(out, "pub const ALL: &[&Metric] = &[")?;
    for metric in &registry.metrics {
        writeln!(out, "    &{},", constant(&metric.name))?;
    }
    writeln!(out, "];")?;
    Ok(out)
}

/// The name of the constant of a metric or a key.
pub(crate) fn constant(name: &str) -> String {
    let own = IMPLIED.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    own.replace('.', "_").to_ascii_uppercase()
}

fn closed(out: &mut String, constant: &str, members: &[Member]) -> fmt::Result {
    writeln!(out, "\n/// Values of [`{constant}`].")?;
    writeln!(out, "pub mod {} {{", constant.to_ascii_lowercase())?;
    for member in members {
        writeln!(out, "    /// {}", member.brief)?;
        let name = member.id.to_ascii_uppercase();
        writeln!(out, "    pub const {name}: &str = {:?};", member.value)?;
    }
    let names: Vec<_> = members.iter().map(|member| member.id.to_ascii_uppercase()).collect();
    writeln!(out, "    /// All of them.")?;
    writeln!(out, "    pub const ALL: &[&str] = &[{}];", names.join(", "))?;
    writeln!(out, "}}")
}

fn metric(out: &mut String, metric: &Metric) -> fmt::Result {
    let instrument = match metric.instrument {
        Instrument::Counter => "Counter",
        Instrument::UpDownCounter => "UpDownCounter",
        Instrument::Gauge => "Gauge",
        Instrument::Histogram => "Histogram",
    };
    let number = match metric.number {
        Number::Int => "Int",
        Number::Double => "Double",
    };
    writeln!(out, "\n/// {}", metric.brief)?;
    writeln!(out, "pub const {}: Metric = Metric {{", constant(&metric.name))?;
    writeln!(out, "    name: {:?},", metric.name)?;
    writeln!(out, "    unit: {:?},", metric.unit)?;
    writeln!(out, "    instrument: Instrument::{instrument},")?;
    writeln!(out, "    number: Number::{number},")?;
    writeln!(out, "    brief: {:?},", metric.brief)?;
    uses(out, "    attributes:", &metric.attributes, ",")?;
    writeln!(out, "}};")
}

fn uses(out: &mut String, before: &str, uses: &[Use], after: &str) -> fmt::Result {
    let indent = before.len() - before.trim_start().len();
    if uses.is_empty() {
        return writeln!(out, "{before} &[]{after}");
    }
    writeln!(out, "{before} &[")?;
    for one in uses {
        let constant = constant(&one.attribute.key);
        let kind = match one.attribute.kind {
            Primitive::String => "Text",
            Primitive::Int => "Int",
            Primitive::Boolean => "Bool",
        };
        let required = one.level == Level::Plain(PlainLevel::Required);
        let module = constant.to_ascii_lowercase();
        let values = match &one.values {
            Some(some) => {
                let name = |m: &Member| format!("{module}::{}", m.id.to_ascii_uppercase());
                format!("&[{}]", some.iter().map(name).collect::<Vec<_>>().join(", "))
            }
            None if one.attribute.members.is_empty() => "&[]".to_owned(),
            None => format!("{module}::ALL"),
        };
        writeln!(
            out,
            "{:indent$}    attribute({constant}, Type::{kind}, {required}, {values}),",
            ""
        )?;
    }
    writeln!(out, "{:indent$}]{after}", "")
}
