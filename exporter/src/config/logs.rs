//! Where exemplars go as log records, where that is not as `[export]` says: the keys of `[logs]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::export::{Compression, Export, Protocol};
use super::pairs::Headers;
use super::units;

/// Where exemplars go as log records. What is empty is as `[export]` has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logs {
    /// URL of an OTLP receiver. Empty: that of metrics, with `/v1/logs` for `/v1/metrics`.
    pub endpoint: String,
    /// How OTLP travels.
    pub protocol: OrExport<Protocol>,
    /// How requests are compressed.
    pub compression: OrExport<Compression>,
    /// The longest wait for one answer; zero: that of `[export]`.
    #[serde(with = "units::duration")]
    pub timeout: Duration,
    /// Sent with each request.
    pub headers: Headers,
    /// PEM file of the authorities that may sign the server's certificate.
    pub ca: PathBuf,
    /// PEM file of the client's certificate and its chain.
    pub cert: PathBuf,
    /// PEM file of the client certificate's private key.
    pub key: PathBuf,
}

/// A choice of its own, or that of `[export]`: no word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[serde(bound(
    serialize = "T: Clone + Into<String>",
    deserialize = "T: TryFrom<String, Error = String>"
))]
pub struct OrExport<T>(pub Option<T>);

impl<T> Default for OrExport<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: TryFrom<String, Error = String>> TryFrom<String> for OrExport<T> {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        if word.is_empty() {
            return Ok(Self(None));
        }
        let own = T::try_from(word).map(|choice| Self(Some(choice)));
        own.map_err(|allowed| format!("{allowed}, or empty"))
    }
}

impl<T: Into<String>> From<OrExport<T>> for String {
    fn from(OrExport(choice): OrExport<T>) -> Self {
        choice.map_or_else(Self::new, Into::into)
    }
}

impl Export {
    /// The same for log records.
    #[must_use]
    pub fn for_logs(&self, logs: &Logs) -> Self {
        let or = |own: &PathBuf, other: &PathBuf| {
            if own.as_os_str().is_empty() { other.clone() } else { own.clone() }
        };
        // Certificate and key go together.
        let pair = if logs.cert.as_os_str().is_empty() {
            (&self.cert, &self.key)
        } else {
            (&logs.cert, &logs.key)
        };
        Self {
            endpoint: if logs.endpoint.is_empty() {
                beside(&self.endpoint)
            } else {
                logs.endpoint.clone()
            },
            protocol: logs.protocol.0.unwrap_or(self.protocol),
            compression: logs.compression.0.unwrap_or(self.compression),
            timeout: if logs.timeout.is_zero() { self.timeout } else { logs.timeout },
            headers: if logs.headers.0.is_empty() {
                self.headers.clone()
            } else {
                logs.headers.clone()
            },
            ca: or(&logs.ca, &self.ca),
            cert: pair.0.clone(),
            key: pair.1.clone(),
            ..self.clone()
        }
    }
}

/// The URL of logs at a receiver whose URL of metrics this is.
fn beside(url: &str) -> String {
    match url.trim_end_matches('/').strip_suffix("/v1/metrics") {
        Some(base) => format!("{base}/v1/logs"),
        None => url.to_owned(),
    }
}
