//! OTLP over HTTP: one POST of a binary message (OTLP specification, "OTLP/HTTP").

use std::time::{Duration, SystemTime};

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
};
use prost::Message;
use serde_json::Value;

use super::verdict::{Failure, Reply, Verdict, sentence};
use crate::config::Compression;

const PROTOBUF: &str = "application/x-protobuf";

/// The headers of a request.
pub(super) fn headers(compression: Compression) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    let encoding = match compression {
        Compression::None => return headers,
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    };
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    headers
}

/// What an answer that came at `now` means.
pub(super) fn judge(reply: &Reply, now: SystemTime) -> Verdict {
    let failure = match reply.status.as_u16() {
        200..=299 => return taken(reply),
        429 | 502..=504 => {
            let after = reply.header(RETRY_AFTER).and_then(|text| delay(text, now));
            Failure::Passing { why: why(reply), after }
        }
        413 => Failure::TooLarge(why(reply)),
        300..=399 => {
            let to = reply.header(LOCATION).map(sentence).unwrap_or_default();
            let status = reply.status;
            Failure::Lasting(format!(
                "HTTP {status} to {to:?} is not followed: set the URL that it should be"
            ))
        }
        _ => Failure::Lasting(why(reply)),
    };
    failure.into()
}

/// A success may come without body. What is neither a message nor JSON comes from a server of something else.
fn taken(reply: &Reply) -> Verdict {
    if let Some(failure) = reply.too_long() {
        return failure.into();
    }
    let kind = reply.header(CONTENT_TYPE).unwrap_or(PROTOBUF);
    let answer = if kind.starts_with(PROTOBUF) {
        ExportMetricsServiceResponse::decode(&reply.body[..]).ok()
    } else if reply.body.is_empty() {
        Some(ExportMetricsServiceResponse::default())
    } else {
        json(&reply.body)
    };
    match answer {
        Some(answer) => answer.into(),
        None => Failure::Lasting(format!("no answer of OTLP but {}", reply.summary())).into(),
    }
}

/// The JSON form, whose 64-bit numbers may be strings.
fn json(body: &[u8]) -> Option<ExportMetricsServiceResponse> {
    let answer: serde_json::Map<String, Value> = serde_json::from_slice(body).ok()?;
    let Some(partial) = answer.get("partialSuccess") else {
        return Some(ExportMetricsServiceResponse::default());
    };
    let named = ["rejectedDataPoints", "rejectedLogRecords"];
    let rejected = match named.iter().find_map(|name| partial.get(*name)) {
        Some(Value::String(text)) => text.parse().ok()?,
        Some(number) => number.as_i64()?,
        None => 0,
    };
    let message = partial.get("errorMessage").and_then(Value::as_str).unwrap_or_default();
    Some(ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: rejected,
            error_message: message.to_owned(),
        }),
    })
}

/// The message of the `google.rpc.Status` that an error carries, or the first line of whatever it carries.
fn why(reply: &Reply) -> String {
    let status = match reply.header(CONTENT_TYPE) {
        Some(kind) if kind.starts_with(PROTOBUF) => {
            tonic_types::Status::decode(&reply.body[..]).ok()
        }
        _ => None,
    };
    match status.map(|status| sentence(&status.message)) {
        Some(message) if !message.is_empty() => format!("HTTP {}: {message}", reply.status),
        Some(_) => format!("HTTP {}", reply.status),
        None => reply.summary(),
    }
}

/// `Retry-After`: seconds, or a date (RFC 9110, 10.2.3).
fn delay(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}
