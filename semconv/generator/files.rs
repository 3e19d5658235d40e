//! The registry as its files have it: the part of weaver's `definition/2` that memprov uses (open-telemetry/weaver,
//! schemas/semconv.schema.v2.json). What is not listed here is refused, so that a slip of the pen is not lost.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_saphyr::Spanned;

use crate::Problem;

/// Where a registry says who it is and what it rests on; every other file holds definitions.
const MANIFEST: &str = "manifest.yaml";

/// One file of definitions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definitions {
    #[serde(rename = "file_format")]
    _format: Format,
    #[serde(default)]
    pub(crate) imports: Imports,
    #[serde(default)]
    pub(crate) attributes: Vec<Spanned<AttributeDef>>,
    #[serde(default)]
    pub(crate) attribute_groups: Vec<Spanned<Group>>,
    #[serde(default)]
    pub(crate) metrics: Vec<Spanned<MetricDef>>,
}

#[derive(Debug, Deserialize)]
enum Format {
    #[serde(rename = "definition/2")]
    Two,
}

/// What is taken from the registry this one depends on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Imports {
    #[serde(default)]
    pub(crate) entities: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stability {
    Stable,
    ReleaseCandidate,
    Beta,
    Alpha,
    Development,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttributeDef {
    pub(crate) key: String,
    #[serde(rename = "type")]
    pub(crate) kind: TypeDef,
    pub(crate) brief: String,
    pub(crate) note: Option<String>,
    #[serde(default)]
    pub(crate) examples: Vec<String>,
    #[serde(rename = "stability")]
    _stability: Stability,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum TypeDef {
    Open(Primitive),
    Closed(Members),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Primitive {
    String,
    Int,
    Boolean,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Members {
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) value: String,
    pub(crate) brief: String,
    #[serde(rename = "stability")]
    _stability: Stability,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) id: String,
    pub(crate) visibility: Visibility,
    #[serde(rename = "brief")]
    _brief: Option<String>,
    #[serde(rename = "stability")]
    _stability: Option<Stability>,
    pub(crate) attributes: Vec<Spanned<Reference>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Visibility {
    Internal,
    Public,
}

/// Names either an attribute or a group of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    #[serde(rename = "ref")]
    pub(crate) key: Option<String>,
    #[serde(rename = "ref_group")]
    pub(crate) group: Option<String>,
    pub(crate) requirement_level: Option<Level>,
    pub(crate) brief: Option<String>,
    #[serde(default)]
    pub(crate) annotations: ReferenceAnnotations,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Level {
    Plain(PlainLevel),
    Conditional(Condition),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlainLevel {
    Required,
    Recommended,
    OptIn,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    pub(crate) conditionally_required: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReferenceAnnotations {
    #[serde(default)]
    pub(crate) memprov: OwnReference,
}

/// What weaver has no word for at a reference.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnReference {
    /// The type of an attribute that another registry defines.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Primitive>,
    /// The values that occur here, of those that a closed attribute has.
    pub(crate) values: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricDef {
    pub(crate) name: String,
    pub(crate) brief: String,
    pub(crate) note: Option<String>,
    pub(crate) unit: String,
    pub(crate) instrument: Instrument,
    #[serde(rename = "stability")]
    _stability: Stability,
    #[serde(default)]
    pub(crate) attributes: Vec<Spanned<Reference>>,
    pub(crate) entity_associations: Vec<String>,
    pub(crate) annotations: MetricAnnotations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Instrument {
    Counter,
    UpDownCounter,
    Gauge,
    Histogram,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricAnnotations {
    pub(crate) code_generation: CodeGeneration,
    pub(crate) memprov: OwnMetric,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodeGeneration {
    pub(crate) metric_value_type: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Number {
    Int,
    Double,
}

/// What weaver has no word for at a metric.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnMetric {
    pub(crate) query: Query,
}

/// A query that answers a question of the metric's readers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    pub(crate) tells: String,
    pub(crate) promql: String,
}

/// `manifest.yaml` (weaver, schemas/definition-manifest.v2.json).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    #[serde(rename = "schema_url")]
    _schema_url: String,
    #[serde(rename = "description")]
    _description: String,
    #[serde(rename = "stability")]
    _stability: Stability,
    #[serde(rename = "dependencies")]
    _dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dependency {
    #[serde(rename = "schema_url")]
    _schema_url: String,
}

/// The files of definitions in `folder` in the order of their names, each with its name.
///
/// # Errors
/// All files that cannot be read, or are not of the format.
pub(crate) fn read(folder: &Path) -> Result<Vec<(String, Definitions)>, Vec<Problem>> {
    let unreadable = |path: &Path, source| Problem::Read { path: path.to_owned(), source };
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|source| vec![unreadable(folder, source)])?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => {
                problems.push(unreadable(&path, source));
                continue;
            }
        };
        if name == MANIFEST {
            problems.extend(parse::<Manifest>(&name, &text).err());
        } else {
            match parse(&name, &text) {
                Ok(definitions) => files.push((name, definitions)),
                Err(problem) => problems.push(problem),
            }
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}

/// Parses one file.
///
/// # Errors
/// With the line, when it is not of the format.
pub(crate) fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Problem> {
    serde_saphyr::from_str(text).map_err(|error| Problem::Form {
        file: file.to_owned(),
        line: error.location().map_or(0, |at| at.line()),
        // Without its excerpt of the file, the message is one line.
        message: error.without_snippet().to_string(),
    })
}
