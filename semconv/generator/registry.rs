//! The registry, resolved: every reference stands for what it names.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::Spanned;

use crate::files::{
    AttributeDef, Definitions, Instrument, Level, Member, MetricDef, Number, PlainLevel, Primitive,
    Query, Reference, TypeDef, Visibility,
};
use crate::{Problem, prometheus, rules};

/// Names, ready to be written down.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// By key, those of other registries among them.
    pub(crate) attributes: BTreeMap<String, Attribute>,
    /// What resources carry.
    pub(crate) resource: Vec<Use>,
    /// In the order of the files.
    pub(crate) metrics: Vec<Metric>,
}

/// An attribute, wherever it is used.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub(crate) key: String,
    pub(crate) kind: Primitive,
    /// The only values there are; none: any.
    pub(crate) members: Vec<Member>,
    pub(crate) brief: String,
    pub(crate) note: Option<String>,
    pub(crate) examples: Vec<String>,
    pub(crate) line: Line,
}

/// An attribute where it is used.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) attribute: Attribute,
    pub(crate) level: Level,
    /// The members that occur here, where not all do.
    pub(crate) values: Option<Vec<Member>>,
}

/// A metric.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) prometheus: String,
    pub(crate) unit: String,
    pub(crate) instrument: Instrument,
    pub(crate) number: Number,
    pub(crate) brief: String,
    pub(crate) note: Option<String>,
    pub(crate) attributes: Vec<Use>,
    pub(crate) entities: Vec<String>,
    pub(crate) query: Query,
    pub(crate) line: Line,
}

/// Where something is defined.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) file: String,
    pub(crate) number: u64,
}

impl Line {
    fn of<T>(file: &str, what: &Spanned<T>) -> Self {
        Self { file: file.to_owned(), number: what.referenced.line() }
    }

    /// What is wrong here.
    pub(crate) fn problem(&self, what: impl Into<String>) -> Problem {
        Problem::Rule { file: self.file.clone(), line: self.number, what: what.into() }
    }
}

/// Resolves files into a registry.
///
/// # Errors
/// Everything that does not resolve and every rule that does not hold, each with file and line.
pub(crate) fn resolve(files: &[(String, Definitions)]) -> Result<Registry, Vec<Problem>> {
    let mut resolver = Resolver::default();
    for (file, definitions) in files {
        resolver.entities.extend(definitions.imports.entities.iter().map(String::as_str));
        definitions.attributes.iter().for_each(|one| resolver.define(file, one));
        for group in &definitions.attribute_groups {
            let known = resolver.groups.insert(&group.value.id, (file, &group.value.attributes));
            if known.is_some() {
                let line = Line::of(file, group);
                resolver.problems.push(line.problem(format!("{} is twice", group.value.id)));
            }
        }
    }
    for (file, definitions) in files {
        let groups = definitions.attribute_groups.iter().map(|group| &group.value);
        for group in groups.filter(|group| group.visibility == Visibility::Public) {
            group.attributes.iter().for_each(|one| resolver.import(file, one));
            let uses = resolver.uses(file, &group.attributes);
            resolver.registry.resource.extend(uses);
        }
    }
    for (file, definitions) in files {
        definitions.metrics.iter().for_each(|one| resolver.metric(file, one));
    }
    resolver.problems.extend(rules::check(&resolver.registry));
    if resolver.problems.is_empty() { Ok(resolver.registry) } else { Err(resolver.problems) }
}

#[derive(Default)]
struct Resolver<'a> {
    registry: Registry,
    groups: BTreeMap<&'a str, (&'a str, &'a [Spanned<Reference>])>,
    entities: BTreeSet<&'a str>,
    problems: Vec<Problem>,
}

impl<'a> Resolver<'a> {
    fn define(&mut self, file: &str, definition: &Spanned<AttributeDef>) {
        let AttributeDef { key, kind, brief, note, examples, .. } = definition.value.clone();
        let (kind, members) = match kind {
            TypeDef::Open(kind) => (kind, Vec::new()),
            TypeDef::Closed(closed) => (Primitive::String, closed.members),
        };
        let line = Line::of(file, definition);
        self.add(Attribute { key, kind, members, brief, note, examples, line });
    }

    /// An attribute that a public group refers to and nobody here defines is another registry's.
    fn import(&mut self, file: &str, reference: &Spanned<Reference>) {
        let Reference { key: Some(key), brief, annotations, .. } = reference.value.clone() else {
            return;
        };
        if self.registry.attributes.contains_key(&key) {
            return;
        }
        let line = Line::of(file, reference);
        let (Some(kind), Some(brief)) = (annotations.memprov.kind, brief) else {
            self.problems.push(line.problem(format!(
                "{key} is defined by another registry, so its type and brief belong here"
            )));
            return;
        };
        let (members, note, examples) = (Vec::new(), None, Vec::new());
        self.add(Attribute { key, kind, members, brief, note, examples, line });
    }

    fn add(&mut self, attribute: Attribute) {
        let line = attribute.line.clone();
        let key = attribute.key.clone();
        if self.registry.attributes.insert(key, attribute).is_some() {
            self.problems.push(line.problem("this attribute is defined twice"));
        }
    }

    fn metric(&mut self, file: &str, definition: &Spanned<MetricDef>) {
        let line = Line::of(file, definition);
        let metric = &definition.value;
        for entity in &metric.entity_associations {
            if !self.entities.contains(entity.as_str()) {
                self.problems.push(line.problem(format!("{entity} is no imported entity")));
            }
        }
        let attributes = self.uses(file, &metric.attributes);
        self.registry.metrics.push(Metric {
            name: metric.name.clone(),
            prometheus: prometheus::metric(&metric.name, &metric.unit, metric.instrument),
            unit: metric.unit.clone(),
            instrument: metric.instrument,
            number: metric.annotations.code_generation.metric_value_type,
            brief: metric.brief.clone(),
            note: metric.note.clone(),
            attributes,
            entities: metric.entity_associations.clone(),
            query: metric.annotations.memprov.query.clone(),
            line,
        });
    }

    /// The attributes that references name, those of groups among them, each once.
    fn uses(&mut self, file: &str, references: &[Spanned<Reference>]) -> Vec<Use> {
        let mut uses: Vec<Use> = Vec::new();
        for reference in references {
            let line = Line::of(file, reference);
            let found = match (&reference.value.key, &reference.value.group) {
                (Some(key), None) => self.one(&line, key, &reference.value).into_iter().collect(),
                (None, Some(group)) => match self.groups.get(group.as_str()).copied() {
                    // A group refers to no group, so this ends.
                    Some((file, inner)) if inner.iter().all(|one| one.value.group.is_none()) => {
                        self.uses(file, inner)
                    }
                    Some(_) => self.fail(&line, format!("{group} refers to another group")),
                    None => self.fail(&line, format!("nobody defines the group {group}")),
                },
                _ => self.fail(&line, "either ref or ref_group is needed".to_owned()),
            };
            for one in found {
                if uses.iter().any(|known| known.attribute.key == one.attribute.key) {
                    let twice = format!("{} is referred to twice", one.attribute.key);
                    self.problems.push(line.problem(twice));
                }
                uses.push(one);
            }
        }
        uses
    }

    fn fail(&mut self, line: &Line, what: String) -> Vec<Use> {
        self.problems.push(line.problem(what));
        Vec::new()
    }

    fn one(&mut self, line: &Line, key: &str, reference: &Reference) -> Option<Use> {
        let Some(attribute) = self.registry.attributes.get(key).cloned() else {
            self.problems.push(line.problem(format!("nobody defines the attribute {key}")));
            return None;
        };
        let level = reference.requirement_level.clone();
        let level = level.unwrap_or(Level::Plain(PlainLevel::Recommended));
        let mut values = None;
        if let Some(wanted) = &reference.annotations.memprov.values {
            let member = |value: &String| attribute.members.iter().find(|m| m.value == *value);
            for value in wanted.iter().filter(|value| member(value).is_none()) {
                self.problems.push(line.problem(format!("{value} is no value of {key}")));
            }
            values = Some(wanted.iter().filter_map(member).cloned().collect());
        }
        Some(Use { attribute, level, values })
    }
}
