//! What is wrong with one setting, and what is allowed instead.

use config::{ConfigError, ValueKind};

use super::layers::{self, Layer};
use super::setting::Setting;
use super::{Problem, build};

/// Tries one setting alone on the defaults.
pub(super) fn judge(setting: &Setting, keys: &[String]) -> Option<Problem> {
    let message = if !keys.contains(&setting.key) {
        unknown(&setting.key, keys)
    } else {
        match build(vec![Layer(vec![setting.clone()])]) {
            Err(error) => worded(&error, || allowed(&setting.key)),
            Ok((config, _)) => config.violation()?.1,
        }
    };
    Some(Problem {
        origin: setting.origin.clone(),
        key: setting.key.clone(),
        value: (!secret(setting)).then(|| layers::literal(&setting.value.kind)),
        message,
    })
}

/// Whether the value may hold a token or a password, and must not be repeated.
fn secret(setting: &Setting) -> bool {
    let text = layers::literal(&setting.value.kind);
    setting.key == "export.headers" || (setting.key == "export.endpoint" && text.contains('@'))
}

/// What to say of a key that does not exist.
fn unknown(key: &str, keys: &[String]) -> String {
    let table = key.rsplit_once('.').map_or("", |(table, _)| table);
    let inside = |table: &str| {
        let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
        let names: Vec<&str> = keys
            .iter()
            .filter_map(|k| k.strip_prefix(&prefix))
            .filter(|name| !name.contains('.'))
            .collect();
        names.join(", ")
    };
    if keys.iter().any(|k| k.starts_with(&format!("{key}."))) {
        return format!("this is a section, with the keys {}", inside(key));
    }
    if table == "inject" || inside(table).is_empty() {
        return format!(
            "unknown key; all keys are in `memprov config`, at the top: {}",
            inside("")
        );
    }
    let place = if table.is_empty() { "at the top" } else { table };
    format!("unknown key; allowed {place}: {}", inside(table))
}

/// What is allowed of a number, as is said of one that is too small; `None`: any is, or it is none.
fn allowed(key: &str) -> Option<String> {
    [-1, 0].into_iter().find_map(|number| {
        let small = Setting::new(key.to_owned(), ValueKind::I64(number), String::new());
        let (config, _) = build(vec![Layer(vec![small])]).ok()?;
        Some(config.violation()?.1)
    })
}

/// The part of the crate's message that says what is wrong; key and origin are told by [`Problem`].
pub(super) fn reason(error: &ConfigError) -> String {
    worded(error, || None)
}

fn worded(error: &ConfigError, allowed: impl FnOnce() -> Option<String>) -> String {
    match error {
        ConfigError::At { error, .. } => worded(error, allowed),
        ConfigError::Type { unexpected, expected, .. } => {
            let kind = || format!("allowed: {}", expected.replace("floating point", "number"));
            format!("this is {unexpected}; {}", allowed().unwrap_or_else(kind))
        }
        other => other.to_string(),
    }
}
