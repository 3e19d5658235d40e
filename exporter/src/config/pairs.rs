//! Lists of `key=value`, as OpenTelemetry's variables write them: comma-separated and percent-encoded (W3C Baggage,
//! "Header Content", without metadata).

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

/// What [`Attributes`] encode when they are written.
const ENCODED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'%').add(b',').add(b';').add(b'=').add(b'\\');

/// Headers that the protocols set themselves.
const TAKEN: [&str; 11] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "keep-alive",
];

/// Headers of a request. They may hold a token: their values are shown nowhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Headers(pub HeaderMap);

impl TryFrom<String> for Headers {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (key, value) in split(&text)? {
            let name = HeaderName::from_bytes(key.as_bytes());
            let name =
                name.map_err(|_| format!("allowed: names of HTTP headers, unlike {key:?}"))?;
            if TAKEN.contains(&name.as_str()) || name.as_str().starts_with("grpc-") {
                return Err(format!(
                    "allowed: headers that OTLP does not set itself, unlike {name}"
                ));
            }
            let value = HeaderValue::from_str(&value);
            let mut value =
                value.map_err(|_| format!("allowed: visible ASCII as the value of {name}"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self(headers))
    }
}

impl From<Headers> for String {
    fn from(headers: Headers) -> Self {
        let shown: Vec<String> = headers.0.keys().map(|name| format!("{name}=***")).collect();
        shown.join(",")
    }
}

/// Attributes of a resource, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Attributes(pub BTreeMap<String, String>);

impl TryFrom<String> for Attributes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        split(&text).map(|pairs| Self(pairs.into_iter().collect()))
    }
}

impl From<Attributes> for String {
    fn from(attributes: Attributes) -> Self {
        let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let pairs =
            attributes.0.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value)));
        pairs.collect::<Vec<_>>().join(",")
    }
}

/// Pairs in their order. Blanks around keys and values do not count, nor do empty places between commas.
fn split(text: &str) -> Result<Vec<(String, String)>, String> {
    let allowed = || "allowed: key=value,key=value with percent-encoded values".to_owned();
    let decode = |text: &str| {
        percent_decode_str(text.trim()).decode_utf8().map(String::from).map_err(|_| allowed())
    };
    let mut pairs = Vec::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(allowed)?;
        let key = decode(key)?;
        if key.is_empty() {
            return Err(allowed());
        }
        pairs.push((key, decode(value)?));
    }
    Ok(pairs)
}
