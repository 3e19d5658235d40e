//! Attributes of points, as sets that points share.

use std::cmp::Ordering;
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

/// The value of an attribute of a point.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Word(Word),
    Flag(bool),
}

/// The order of two sets of attributes. Most texts that are equal are the same text, which is seen without reading it.
pub(super) fn order(a: &Attributes, b: &Attributes) -> Ordering {
    let text = |a: &str, b: &str| if std::ptr::eq(a, b) { Ordering::Equal } else { a.cmp(b) };
    let value = |a: &Value, b: &Value| match (a, b) {
        (Value::Word(a), Value::Word(b)) => text(a.as_str(), b.as_str()),
        (Value::Flag(a), Value::Flag(b)) => a.cmp(b),
        (Value::Word(_), Value::Flag(_)) => Ordering::Less,
        (Value::Flag(_), Value::Word(_)) => Ordering::Greater,
    };
    let pairs = a.iter().zip(b.iter());
    let one = |((a, x), (b, y)): (&(Key, Value), &(Key, Value))| {
        text(a.as_str(), b.as_str()).then_with(|| value(x, y))
    };
    pairs.map(one).find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
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
