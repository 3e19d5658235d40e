//! Each source of settings as one layer of the crate `config`, every value with its origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use config::{ConfigError, Map, Source, Value, ValueKind};
use toml::de::{DeTable, DeValue};

use super::setting::Setting;
use super::{Flag, Problem, otel};

/// Longest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// Variables that a container runtime makes for a service of our name ("service links"); they are no settings.
const SERVICE_LINKS: [&str; 2] = ["MEMPROV_SERVICE_", "MEMPROV_PORT"];

/// The settings of one source; of two with the same key the later wins.
#[derive(Clone, Debug)]
pub(super) struct Layer(pub(super) Vec<Setting>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.0.iter().map(|s| (s.key.clone(), s.value.clone())).collect())
    }
}

/// Reads a TOML file. What cannot be read is a problem, and the rest still counts.
pub(super) fn file(path: &Path, problems: &mut Vec<Problem>) -> Layer {
    let whole = |message: String| Problem {
        origin: path.display().to_string(),
        key: String::new(),
        value: None,
        message,
    };
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    match read {
        Err(error) => {
            problems.push(whole(format!("cannot read the configuration file: {error}")));
            return Layer(Vec::new());
        }
        Ok(_) if text.len() as u64 > MAX_FILE => {
            problems.push(whole("a configuration file is at most 1MiB long".to_owned()));
            return Layer(Vec::new());
        }
        Ok(_) => {}
    }
    let place = |offset: usize| {
        let before = text.as_bytes().get(..offset).unwrap_or_default();
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        format!("{}:{line}", path.display())
    };
    let (tree, errors) = DeTable::parse_recoverable(&text);
    problems.extend(errors.iter().map(|error| Problem {
        origin: place(error.span().map_or(0, |span| span.start)),
        key: String::new(),
        value: None,
        message: error.message().to_owned(),
    }));
    let mut settings = Vec::new();
    flatten("", tree.get_ref(), &place, &mut settings);
    Layer(settings)
}

fn flatten(
    prefix: &str,
    table: &DeTable<'_>,
    place: &dyn Fn(usize) -> String,
    out: &mut Vec<Setting>,
) {
    for (key, value) in table {
        let name = key.get_ref();
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        let kind = match value.get_ref() {
            // An empty table sets nothing, but a table of an unknown name is still a mistake.
            DeValue::Table(inner) if !inner.is_empty() => {
                flatten(&path, inner, place, out);
                continue;
            }
            DeValue::Table(_)
                if super::keys().iter().any(|k| k.starts_with(&format!("{path}."))) =>
            {
                continue;
            }
            DeValue::String(text) => ValueKind::String(text.to_string()),
            DeValue::Boolean(value) => ValueKind::Boolean(*value),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| ValueKind::String(number.as_str().to_owned()), ValueKind::I64),
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .map_or_else(|_| ValueKind::String(number.as_str().to_owned()), ValueKind::Float),
            DeValue::Datetime(time) => ValueKind::String(time.to_string()),
            DeValue::Array(_) => ValueKind::Array(Vec::new()),
            DeValue::Table(_) => ValueKind::Table(Map::new()),
        };
        out.push(Setting::new(path, kind, place(key.span().start)));
    }
}

/// Reads `MEMPROV_…` and OpenTelemetry's own variables.
///
/// `MEMPROV_CONFIG` names the file and is the command line's to read.
pub(super) fn environment(
    env: &[(OsString, OsString)],
    keys: &[String],
    problems: &mut Vec<Problem>,
) -> Layer {
    let variable = |key: &str| format!("MEMPROV_{}", key.to_uppercase().replace('.', "_"));
    let mut foreign = Vec::new();
    let mut own = Vec::new();
    for (name, value) in env {
        let Some(name) = name.to_str() else { continue };
        if !otel::knows(name) && !name.starts_with("MEMPROV_") {
            continue;
        }
        if name == "MEMPROV_CONFIG" || SERVICE_LINKS.iter().any(|link| name.starts_with(link)) {
            continue;
        }
        let Some(value) = value.to_str() else {
            problems.push(Problem {
                origin: name.to_owned(),
                key: name.to_owned(),
                value: None,
                message: "the value is not UTF-8".to_owned(),
            });
            continue;
        };
        if otel::knows(name) {
            foreign.push((name, value));
            continue;
        }
        let kind = ValueKind::String(value.to_owned());
        match keys.iter().find(|key| variable(key) == name) {
            Some(key) => own.push(Setting::new(key.clone(), kind, name.to_owned())),
            None => problems.push(Problem {
                origin: "environment".to_owned(),
                key: name.to_owned(),
                value: None,
                message:
                    "unknown variable; the variable of a key is MEMPROV_ and the key in capitals \
                          with _ for the dot, as in MEMPROV_EXPORT_INTERVAL"
                        .to_owned(),
            }),
        }
    }
    own.sort_by(|a, b| a.key.cmp(&b.key));
    let mut settings = otel::settings(&foreign, problems);
    settings.append(&mut own);
    Layer(settings)
}

/// Reads flags.
pub(super) fn flags(flags: &[Flag]) -> Layer {
    let settings = flags.iter().map(|flag| {
        Setting::new(flag.key.clone(), ValueKind::String(flag.value.clone()), flag.flag.clone())
    });
    Layer(settings.collect())
}

/// Origins of all leaves that have one.
pub(super) fn origins(prefix: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (name, inner) in table {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                origins(&key, inner, out);
            }
        }
        _ => {
            if let Some(origin) = value.origin() {
                out.insert(prefix.to_owned(), origin.to_owned());
            }
        }
    }
}

/// A value as TOML writes it.
pub(super) fn literal(kind: &ValueKind) -> String {
    match kind {
        ValueKind::String(text) => toml::Value::String(text.clone()).to_string(),
        ValueKind::Array(_) => "[…]".to_owned(),
        ValueKind::Table(_) => "{…}".to_owned(),
        other => other.to_string(),
    }
}
