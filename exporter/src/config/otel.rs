//! OpenTelemetry's own variables, as settings (OTLP exporter specification, "Configuration Options"; SDK specification,
//! "Environment Variables").
//!
//! Those of a signal win over the general ones, and `OTEL_SDK_DISABLED` over both. An empty variable counts as unset, and
//! words may be written in any case, as the specification demands. Logs go by the settings of metrics unless a variable says
//! something of its own for them, or for metrics only. Variables of traces are not looked at.

use config::ValueKind;

use super::Problem;
use super::setting::Setting;

const GENERAL: &str = "OTEL_EXPORTER_OTLP_";
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_";
const LOGS: &str = "OTEL_EXPORTER_OTLP_LOGS_";

/// How a variable's text becomes a setting's.
type Carry = fn(&str) -> Result<String, String>;

/// The end of the name of a variable that exists in general and for each signal, and the key it sets in `export` or
/// `logs`.
const EXPORTER: [(&str, &str, Carry); 7] = [
    ("PROTOCOL", "protocol", word),
    ("HEADERS", "headers", as_is),
    ("COMPRESSION", "compression", word),
    ("TIMEOUT", "timeout", millis),
    ("CERTIFICATE", "ca", as_is),
    ("CLIENT_KEY", "key", as_is),
    ("CLIENT_CERTIFICATE", "cert", as_is),
];

/// The name of a variable that exists once, and the key it sets.
const SINGLE: [(&str, &str, Carry); 6] = [
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "export.temporality", word),
    ("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "export.histograms", histograms),
    ("OTEL_METRIC_EXPORT_INTERVAL", "export.interval", millis),
    ("OTEL_SERVICE_NAME", "export.service_name", as_is),
    ("OTEL_RESOURCE_ATTRIBUTES", "export.resource_attributes", as_is),
    ("OTEL_SDK_DISABLED", "export.endpoint", disabled),
];

/// Whether this variable is read here.
pub(super) fn knows(name: &str) -> bool {
    let mut prefixes = [METRICS, LOGS, GENERAL].into_iter();
    let shared = prefixes.find_map(|prefix| name.strip_prefix(prefix));
    let shared = shared.is_some_and(|end| {
        matches!(end, "ENDPOINT" | "INSECURE") || EXPORTER.iter().any(|(name, ..)| *name == end)
    });
    shared || SINGLE.iter().any(|(single, ..)| *single == name)
}

/// The settings that these variables make, in the order of their rank.
pub(super) fn settings(variables: &[(&str, &str)], problems: &mut Vec<Problem>) -> Vec<Setting> {
    let value = |name: &str| {
        let found =
            variables.iter().find(|(variable, value)| *variable == name && !value.is_empty());
        found.map(|(_, value)| *value)
    };
    let mut settings = Vec::new();
    let mut set = |name: &str, key: &str, carried: Result<String, String>| match carried {
        Ok(text) => {
            settings.push(Setting::new(key.to_owned(), ValueKind::String(text), name.to_owned()));
        }
        Err(message) => problems.push(Problem {
            origin: name.to_owned(),
            key: key.to_owned(),
            value: value(name).map(|text| format!("{text:?}")),
            message,
        }),
    };
    for (own, section, path) in [(METRICS, "export", "v1/metrics"), (LOGS, "logs", "v1/logs")] {
        // What is general holds for logs by way of metrics, unless metrics have it otherwise.
        let general = |end: &str| own == METRICS || value(&format!("{METRICS}{end}")).is_some();
        let both = |end: &str| {
            let general = general(end).then(|| format!("{GENERAL}{end}"));
            general.into_iter().chain([format!("{own}{end}")])
        };
        let mut insecure = false;
        for name in [format!("{GENERAL}INSECURE"), format!("{own}INSECURE")] {
            match value(&name).map(boolean) {
                Some(Ok(flag)) => insecure = flag,
                Some(Err(message)) if own == METRICS || name.starts_with(LOGS) => {
                    set(&name, &format!("{section}.endpoint"), Err(message));
                }
                Some(Err(_)) | None => {}
            }
        }
        for name in both("ENDPOINT") {
            if let Some(text) = value(&name) {
                let url = if name.starts_with(own) { whole(text) } else { base(text, path) };
                set(&name, &format!("{section}.endpoint"), Ok(with_scheme(&url, insecure)));
            }
        }
        for (end, key, carry) in EXPORTER {
            for name in both(end) {
                if let Some(text) = value(&name) {
                    set(&name, &format!("{section}.{key}"), carry(text));
                }
            }
        }
    }
    for (name, key, carry) in SINGLE {
        let Some(text) = value(name) else { continue };
        // Not disabled is no setting, and must not empty the endpoint.
        if name != "OTEL_SDK_DISABLED" || boolean(text) != Ok(false) {
            set(name, key, carry(text));
        }
    }
    settings
}

/// The URL below which each signal has its path. Without a path of its own it is left so: HTTP then appends the signal's.
fn base(text: &str, path: &str) -> String {
    let trimmed = text.trim_end_matches('/');
    if has_path(trimmed) { format!("{trimmed}/{path}") } else { trimmed.to_owned() }
}

/// The URL of a signal, to be used as it is; without a path it means the root.
fn whole(text: &str) -> String {
    if has_path(text) { text.to_owned() } else { format!("{text}/") }
}

fn has_path(url: &str) -> bool {
    url.split_once("://").map_or(url, |(_, rest)| rest).contains('/')
}

/// A target of gRPC may come without scheme; then `…_INSECURE` decides.
fn with_scheme(url: &str, insecure: bool) -> String {
    match (url.contains("://"), insecure) {
        (true, _) => url.to_owned(),
        (false, true) => format!("http://{url}"),
        (false, false) => format!("https://{url}"),
    }
}

fn as_is(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn word(text: &str) -> Result<String, String> {
    Ok(text.to_ascii_lowercase())
}

fn millis(text: &str) -> Result<String, String> {
    match text.parse::<u64>() {
        Ok(number) => Ok(format!("{number}ms")),
        Err(_) => Err("allowed: a whole number of milliseconds".to_owned()),
    }
}

fn histograms(text: &str) -> Result<String, String> {
    match text.to_ascii_lowercase().as_str() {
        "explicit_bucket_histogram" => Ok("explicit".to_owned()),
        "base2_exponential_bucket_histogram" => Ok("exponential".to_owned()),
        _ => {
            Err("allowed: explicit_bucket_histogram, base2_exponential_bucket_histogram".to_owned())
        }
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("allowed: true, false".to_owned()),
    }
}

/// A disabled SDK sends nothing: the endpoint is empty.
fn disabled(text: &str) -> Result<String, String> {
    boolean(text).map(|_| String::new())
}
