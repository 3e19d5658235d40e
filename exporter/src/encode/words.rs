//! Attributes of points, as sets that points share.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use memprov_semconv::Key;

/// Text that is part of the program, or shared.
#[derive(Clone, Debug)]
pub(super) enum Word {
    Known(&'static str),
    Told(Arc<str>),
}

impl Word {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Known(text) => text,
            Self::Told(text) => text,
        }
    }
}

impl From<&'static str> for Word {
    fn from(text: &'static str) -> Self {
        Self::Known(text)
    }
}

impl From<Arc<str>> for Word {
    fn from(text: Arc<str>) -> Self {
        Self::Told(text)
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}
impl Eq for Word {}
impl PartialOrd for Word {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Word {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}
impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

/// The value of an attribute of a point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value {
    Word(Word),
    Flag(bool),
}

/// A set of attributes: what tells the points of one metric of one resource apart.
pub(super) type Attributes = Arc<[(Key, Value)]>;

/// One attribute of text.
pub(super) fn word(key: Key, text: impl Into<Word>) -> (Key, Value) {
    (key, Value::Word(text.into()))
}

/// One attribute that is true.
pub(super) fn flag(key: Key) -> (Key, Value) {
    (key, Value::Flag(true))
}
