//! Configuration: one typed tree, whose default is the shipped file `packaging/memprov.toml`.
//!
//! Later sources win: the file, `OTEL_EXPORTER_OTLP_…`, `OTEL_EXPORTER_OTLP_METRICS_…`, `MEMPROV_…`, flags. Each setting of
//! each source is tried alone on the defaults, so that every problem is reported at once, with its place, also
//! where a later source overrides it. Then the crate `config` merges them, and each value keeps its origin.

mod access;
mod allow;
mod bounds;
mod change;
mod detail;
mod judge;
mod layers;
mod otel;
mod pairs;
mod setting;
mod units;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use config::ValueKind;
use serde::{Deserialize, Serialize};

pub use change::SWAPPED;
use layers::Layer;
pub use units::parse_duration;

/// A closed list of words; an unknown one is answered with the list.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum $name {
            $($(#[$word_doc])* $variant,)+
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(word: String) -> Result<Self, String> {
                match word.as_str() {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("allowed: {}", [$($word),+].join(", "))),
                }
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => $word.to_owned(),)+
                }
            }
        }
    };
}

mod damon;
mod export;
mod logs;
pub use access::Access;
pub use allow::Allow;
pub use damon::{Damon, DamonMode, Watched};
pub use detail::{Detail, Term};
pub use export::{Compression, Export, Grain, Histograms, OrPreset, Preset, Protocol, Temporality};
pub use logs::{Logs, OrExport};
pub use pairs::{Attributes, Headers};

/// The state directory unless another one is named.
pub const STATE_DIR: &str = "/run/memprov";

/// All that can be configured. `Default` equals `packaging/memprov.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where socket and kill switch live.
    pub state_dir: PathBuf,
    /// Below which `/proc` and `/sys` are read.
    pub root: PathBuf,
    /// Which log lines go to standard error.
    pub log: LogLevel,
    /// What leaves the host, and how often.
    pub export: Export,
    /// Where exemplars go as log records.
    pub logs: Logs,
    /// Reading resident pages.
    pub scan: Scan,
    /// Buffers between kernel and daemon.
    pub rings: Rings,
    /// Who touched pages first.
    pub first_touch: FirstTouch,
    /// How mapping calls are observed.
    pub hooks: Hooks,
    /// Which memory is used, as DAMON finds.
    pub damon: Damon,
    /// Which memory is accessed, as perf samples.
    pub access: Access,
    /// Losses made on purpose, for tests. Not in the shipped file.
    pub inject: Inject,
}

/// Reading resident pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// CPU time that scans may use, as a fraction of one CPU.
    pub budget: f64,
    /// Age beyond which the owners of a process are a gap instead of a repeated number.
    #[serde(with = "units::duration")]
    pub max_age: Duration,
}

/// Buffers between kernel and daemon, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rings {
    /// Lifecycle records, at most 96 bytes each.
    #[serde(with = "units::size")]
    pub lifecycle: u32,
    /// Copied stacks, up to 8 KiB each.
    #[serde(with = "units::size")]
    pub stacks: u32,
    /// Sampled accesses and faults, some 80 bytes each.
    #[serde(with = "units::size")]
    pub accesses: u32,
}

/// Who touched pages first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstTouch {
    /// Whether page faults are sampled.
    pub enabled: bool,
    /// The share of pages in the sample.
    pub probability: f64,
}

/// How mapping calls are observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hooks {
    /// The mechanism.
    pub mechanism: Mechanism,
}

choice! {
    /// How mapping calls are observed.
    Mechanism {
        /// The cheapest that works here.
        Auto = "auto",
        /// `fentry` and `fexit` of the calls.
        Fentry = "fentry",
        /// BTF tracepoints at every syscall's entry and exit.
        TpBtf = "tp_btf",
        /// Tracepoints of the calls alone; 32-bit calls are not seen.
        Tp = "tp",
        /// No BPF: perf side-band tells of new mappings and processes, scans tell what ended.
        Sideband = "sideband",
    }
}

choice! {
    /// Which log lines go to standard error.
    LogLevel {
        /// None.
        Off = "off",
        /// Something was lost, or a human is needed.
        Error = "error",
        /// Nothing was lost, but look.
        Warn = "warn",
        /// Changes of state.
        Info = "info",
        /// For people who debug memprov.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

impl From<LogLevel> for tracing::level_filters::LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Probabilities with which a record is treated as lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inject {
    /// Lifecycle records in the kernel.
    pub lifecycle: f64,
    /// Stacks in the kernel.
    pub stacks: f64,
    /// Sampled faults in the kernel.
    pub faults: f64,
    /// Batches between a source and the fuser.
    pub queue: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from(STATE_DIR),
            root: PathBuf::from("/"),
            log: LogLevel::Info,
            export: Export::default(),
            logs: Logs::default(),
            scan: Scan { budget: 0.01, max_age: Duration::from_secs(600) },
            rings: Rings { lifecycle: 4 << 20, stacks: 16 << 20, accesses: 4 << 20 },
            first_touch: FirstTouch { enabled: true, probability: 0.01 },
            hooks: Hooks { mechanism: Mechanism::Auto },
            damon: Damon::default(),
            access: Access::default(),
            inject: Inject::default(),
        }
    }
}

/// Where settings come from. Nothing else is read: neither the process' environment nor a default file.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// A TOML file; it must exist.
    pub file: Option<PathBuf>,
    /// Environment variables, of which those that concern memprov are read.
    pub env: Vec<(OsString, OsString)>,
    /// Flags.
    pub flags: Vec<Flag>,
}

/// A setting given on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag, for messages: `--interval`.
    pub flag: String,
    /// The key it sets: `export.interval`.
    pub key: String,
    /// The value as text.
    pub value: String,
}

/// Something wrong with one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File and line, variable, or flag.
    pub origin: String,
    /// The key; empty where a whole file could not be read.
    pub key: String,
    /// The value as given, where there is one.
    pub value: Option<String>,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.key.is_empty() {
            write!(f, "{}", self.key)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.message)
    }
}

/// A configuration that holds, and where each of its settings that is not a default came from.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The configuration.
    pub config: Config,
    /// Origin by key.
    pub origins: BTreeMap<String, String>,
    /// What it was read from, to be read again.
    pub sources: Sources,
}

impl Config {
    /// Reads all sources.
    ///
    /// # Errors
    /// Every problem of every source, in the order of the sources.
    pub fn load(sources: &Sources) -> Result<Self, Vec<Problem>> {
        Ok(Effective::load(sources)?.config)
    }
}

impl Effective {
    /// Reads all sources.
    ///
    /// # Errors
    /// Every problem of every source, in the order of the sources.
    pub fn load(sources: &Sources) -> Result<Self, Vec<Problem>> {
        let keys = keys();
        let mut problems = Vec::new();
        let mut layers = Vec::new();
        if let Some(path) = &sources.file {
            layers.push(layers::file(path, &mut problems));
        }
        layers.push(layers::environment(&sources.env, &keys, &mut problems));
        layers.push(layers::flags(&sources.flags));
        for setting in layers.iter().flat_map(|layer| &layer.0) {
            problems.extend(judge::judge(setting, &keys));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let (config, origins) = merge(layers)?;
        Ok(Self { config, origins, sources: sources.clone() })
    }

    /// The configuration as TOML, each setting that is not a default with its origin.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let mut section = "";
        let leaves = leaves(&self.config);
        for (key, value) in &leaves {
            let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
            if table == "inject" && self.config.inject == Inject::default() {
                continue;
            }
            if table != section {
                out.push_str(&format!("\n[{table}]\n"));
                section = table;
            }
            out.push_str(&format!("{name} = {}", layers::literal(&value.kind)));
            if let Some(origin) = self.origins.get(key) {
                out.push_str(&format!("  # {origin}"));
            }
            out.push('\n');
        }
        out.push('\n');
        out.extend(at_reload().map(|line| format!("# {line}\n")));
        out
    }
}

/// Which settings a running daemon takes over, and which count from its next start on: a line each.
#[must_use]
pub fn at_reload() -> [String; 2] {
    let (taken, waiting): (Vec<_>, Vec<_>) = keys()
        .into_iter()
        .filter(|key| !key.starts_with("inject."))
        .partition(|key| SWAPPED.contains(&key.as_str()));
    [
        format!("SIGHUP takes over: {}", taken.join(", ")),
        format!("at the next start: {}", waiting.join(", ")),
    ]
}

/// Keys that exist, in the order of the shipped file.
fn keys() -> Vec<String> {
    leaves(&Config::default()).into_iter().map(|(key, _)| key).collect()
}

/// Key and value of every leaf: those of the root first, then table by table.
fn leaves(config: &Config) -> Vec<(String, config::Value)> {
    let tree = config::Config::try_from(config).map(|c| c.cache.kind);
    let mut out = Vec::new();
    let mut tables = Vec::new();
    if let Ok(ValueKind::Table(root)) = tree {
        for (key, value) in root {
            match value.kind {
                ValueKind::Table(table) => tables.push((key, table)),
                _ => out.push((key, value)),
            }
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    tables.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, table) in tables {
        let mut inner: Vec<_> =
            table.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)).collect();
        inner.sort_by(|a, b| a.0.cmp(&b.0));
        out.append(&mut inner);
    }
    out
}

/// The typed tree of these layers over the defaults, later ones first in rank, and the origins.
fn build(layers: Vec<Layer>) -> Result<(Config, BTreeMap<String, String>), config::ConfigError> {
    let mut builder =
        config::Config::builder().add_source(config::Config::try_from(&Config::default())?);
    for layer in layers {
        builder = builder.add_source(layer);
    }
    let merged = builder.build()?;
    let mut origins = BTreeMap::new();
    layers::origins("", &merged.cache, &mut origins);
    Ok((merged.try_deserialize()?, origins))
}

/// All layers together, and what must hold between settings.
fn merge(layers: Vec<Layer>) -> Result<(Config, BTreeMap<String, String>), Vec<Problem>> {
    let (config, origins) = build(layers).map_err(|error| {
        vec![Problem {
            origin: "all sources together".to_owned(),
            key: String::new(),
            value: None,
            message: judge::reason(&error),
        }]
    })?;
    let contradictions = config.contradictions();
    if contradictions.is_empty() {
        return Ok((config, origins));
    }
    let problem = |contradiction: bounds::Contradiction| {
        let origin = contradiction.keys.iter().find_map(|key| origins.get(*key));
        Problem {
            origin: origin.cloned().unwrap_or_default(),
            key: contradiction.keys.first().copied().unwrap_or_default().to_owned(),
            value: Some(contradiction.value),
            message: contradiction.message,
        }
    };
    Err(contradictions.into_iter().map(problem).collect())
}

#[cfg(test)]
mod otel_tests;
#[cfg(test)]
mod tests;
