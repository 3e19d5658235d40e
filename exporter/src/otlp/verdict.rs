//! What an answer means, whichever protocol it came by.

use std::time::Duration;

/// What the server said to one request. The answers of all signals have one form in protobuf, and are read as that of
/// metrics (opentelemetry-proto, `Export*ServiceResponse`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has the request, but for `rejected` points. `message` says why, or gives advice.
    Taken { rejected: u64, message: String },
    /// It does not have it.
    Failed(Failure),
}

/// Why a request was not taken, in words, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It may pass: the same request is tried again, not before `after` if the server named a time.
    Passing { why: String, after: Option<Duration> },
    /// The request is too large, or the server is out of something without saying when it will have more of it.
    TooLarge(String),
    /// Repeating it is no use.
    Lasting(String),
}

impl Failure {
    /// May pass, at a time that nobody knows.
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self::Passing { why: why.into(), after: None }
    }
}

impl From<Failure> for Verdict {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// All that is read of an answer, at most [`BODY`] bytes of its body.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    pub(super) status: http::StatusCode,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Vec<u8>,
    /// There was more: no answer of OTLP, whatever its begin says.
    pub(super) cut: bool,
    pub(super) trailers: http::HeaderMap,
}

/// An answer of OTLP is below a hundred bytes; an error page may be anything.
pub(super) const BODY: usize = 64 << 10;

impl Reply {
    /// Why a success is none.
    pub(super) fn too_long(&self) -> Option<Failure> {
        let why =
            || format!("no answer of OTLP but HTTP {} with more than {BODY} bytes", self.status);
        self.cut.then(|| Failure::Lasting(why()))
    }

    /// A header as text.
    pub(super) fn header(&self, name: http::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The status, and what the body says first: for answers that are not OTLP.
    pub(super) fn summary(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let lines = text.lines().map(|line| sentence(line.trim()));
        match lines.into_iter().find(|line| !line.is_empty()) {
            Some(line) => format!("HTTP {}: {line}", self.status),
            None => format!("HTTP {}", self.status),
        }
    }
}

/// What somebody else says, on one line of bounded length.
pub(super) fn sentence(text: &str) -> String {
    const CHARS: usize = 300;
    text.chars().take(CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
