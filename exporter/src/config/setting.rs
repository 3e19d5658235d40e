//! One setting with the place that it came from.

use config::{Value, ValueKind};

/// One setting of one source.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// Dotted key.
    pub(super) key: String,
    /// As the source has it.
    pub(super) value: Value,
    /// File and line, variable, or flag.
    pub(super) origin: String,
}

impl Setting {
    pub(super) fn new(key: String, kind: ValueKind, origin: String) -> Self {
        Self { key, value: Value::new(Some(&origin), kind), origin }
    }
}
