//! How much is told: the levels of detail, and which resources are told whole.

use serde::{Deserialize, Serialize};

/// How much of each resource is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Detail {
    /// The kernel's totals by kind of memory, and the largest owners of resident memory: at most 17 series a resource, one more has room.
    #[default]
    Kinds,
    /// Every quantity of the largest owners, by evidence.
    Owners,
    /// Every quantity of every owner of the resources for which a term holds; of others as [`Detail::Kinds`].
    All(Vec<Term>),
}

/// What finds a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// It is one.
    Everything,
    /// The container's id begins so.
    Container(String),
    /// The last segment of the unit's path is this.
    Unit(String),
    /// It has a process of this name.
    Comm(String),
}

/// What may stand in the configuration.
const ALLOWED: &str = "kinds, owners, all(*), or all(TERM,…) with the terms container=ID (or its begin), \
                       unit=NAME, comm=NAME of 15 bytes at most";

impl TryFrom<String> for Detail {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let allowed = || format!("allowed: {ALLOWED}");
        match text.as_str() {
            "kinds" => Ok(Self::Kinds),
            "owners" => Ok(Self::Owners),
            other => {
                let terms = other.strip_prefix("all(").and_then(|rest| rest.strip_suffix(')'));
                let terms = terms.ok_or_else(allowed)?.split(',').map(|term| term.trim());
                let terms: Option<Vec<Term>> = terms.map(Term::parse).collect();
                Ok(Self::All(terms.ok_or_else(allowed)?))
            }
        }
    }
}

impl From<Detail> for String {
    fn from(detail: Detail) -> Self {
        match detail {
            Detail::Kinds => "kinds".to_owned(),
            Detail::Owners => "owners".to_owned(),
            Detail::All(terms) => {
                let terms: Vec<String> = terms.iter().map(Term::text).collect();
                format!("all({})", terms.join(","))
            }
        }
    }
}

impl Term {
    /// Whether it finds a process of this name, in this container and systemd unit.
    #[must_use]
    pub fn holds(&self, comm: &str, container: Option<&str>, unit: Option<&str>) -> bool {
        match self {
            Self::Everything => true,
            Self::Container(begin) => container.is_some_and(|id| id.starts_with(begin)),
            Self::Unit(name) => unit == Some(name),
            Self::Comm(name) => comm == name,
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Everything);
        }
        let (key, value) = text.split_once('=')?;
        if value.is_empty() {
            return None;
        }
        match key {
            "container" => Some(Self::Container(value.to_owned())),
            "unit" => Some(Self::Unit(value.to_owned())),
            // The kernel keeps 15 bytes; one that is no text is written with four.
            "comm" if value.len() > 15 && !value.contains('\\') => None,
            "comm" => Some(Self::Comm(value.to_owned())),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Everything => "*".to_owned(),
            Self::Container(id) => format!("container={id}"),
            Self::Unit(name) => format!("unit={name}"),
            Self::Comm(name) => format!("comm={name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Detail;

    #[test]
    fn a_level_is_written_as_it_is_read_and_anything_else_is_refused_with_the_list() {
        for text in ["kinds", "owners", "all(*)", "all(container=c0ffee,unit=a.service,comm=redis)"]
        {
            assert_eq!(String::from(Detail::try_from(text.to_owned()).unwrap()), text);
        }
        for text in ["", "all", "all()", "all(pid=3)", "all(comm=)", "all(comm=a", "Kinds"] {
            let message = Detail::try_from(text.to_owned()).unwrap_err();
            assert!(message.contains("kinds, owners"), "{message}");
        }
    }
}
