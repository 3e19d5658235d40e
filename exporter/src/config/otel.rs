//! OpenTelemetry's own variables, as settings (OTLP exporter specification, "Configuration Options"; SDK specification,
//! "Environment Variables").
//!
//! Those of metrics win over the general ones, and `OTEL_SDK_DISABLED` over both. An empty variable counts as unset, and
//! words may be written in any case, as the specification demands. Variables of other signals are not looked at.

use config::ValueKind;

use super::Problem;
use super::layers::Setting;

const GENERAL: &str = "OTEL_EXPORTER_OTLP_";
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_";

/// How a variable's text becomes a setting's.
type Carry = fn(&str) -> Result<String, String>;

/// The end of the name of a variable that exists in general and for metrics, and the key it sets.
const EXPORTER: [(&str, &str, Carry); 7] = [
    ("PROTOCOL", "export.protocol", word),
    ("HEADERS", "export.headers", as_is),
    ("COMPRESSION", "export.compression", word),
    ("TIMEOUT", "export.timeout", millis),
    ("CERTIFICATE", "export.ca", as_is),
    ("CLIENT_KEY", "export.key", as_is),
    ("CLIENT_CERTIFICATE", "export.cert", as_is),
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
    let shared = name.strip_prefix(METRICS).or_else(|| name.strip_prefix(GENERAL));
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
    let mut insecure = false;
    for prefix in [GENERAL, METRICS] {
        let name = format!("{prefix}INSECURE");
        if let Some(text) = value(&name) {
            match boolean(text) {
                Ok(flag) => insecure = flag,
                Err(message) => set(&name, "export.endpoint", Err(message)),
            }
        }
    }
    for prefix in [GENERAL, METRICS] {
        let name = format!("{prefix}ENDPOINT");
        if let Some(text) = value(&name) {
            let url = if prefix == GENERAL { base(text) } else { whole(text) };
            set(&name, "export.endpoint", Ok(with_scheme(&url, insecure)));
        }
        for (end, key, carry) in EXPORTER {
            let name = format!("{prefix}{end}");
            if let Some(text) = value(&name) {
                set(&name, key, carry(text));
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
fn base(text: &str) -> String {
    let trimmed = text.trim_end_matches('/');
    if has_path(trimmed) { format!("{trimmed}/v1/metrics") } else { trimmed.to_owned() }
}

/// The URL of metrics, to be used as it is; without a path it means the root.
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
