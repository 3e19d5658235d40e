//! OTLP over gRPC: one unary call as one HTTP/2 request (gRPC over HTTP/2).
//!
//! The frame is written here and not by tonic's client, which would clone and compress a request again for each attempt,
//! at a level it fixes, and which reads no error page. Statuses are read by tonic.

use std::borrow::Cow;
use std::io::{self, Read};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::part::PREFIX;
use super::verdict::{BODY, Failure, Reply, Verdict, sentence};
use crate::config::Compression;

/// How a message whose flag is set is compressed.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// The headers of a call that may take `timeout`.
pub(super) fn headers(compression: Compression, timeout: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    // At most eight digits (gRPC over HTTP/2, "Timeout").
    let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(99_999_999);
    if let Ok(value) = HeaderValue::from_str(&format!("{millis}m")) {
        headers.insert(HeaderName::from_static("grpc-timeout"), value);
    }
    let encoding = match compression {
        Compression::None => return headers,
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    };
    headers.insert(ENCODING, HeaderValue::from_static(encoding));
    headers
}

/// What an answer means.
pub(super) fn judge(reply: &Reply) -> Verdict {
    let status = Status::from_header_map(&reply.trailers)
        .or_else(|| Status::from_header_map(&reply.headers));
    match status {
        Some(status) if status.code() == Code::Ok => taken(reply),
        Some(status) => failed(&status).into(),
        None => without_status(reply).into(),
    }
}

fn taken(reply: &Reply) -> Verdict {
    if let Some(failure) = reply.too_long() {
        return failure.into();
    }
    let answer = message(reply).and_then(|m| ExportMetricsServiceResponse::decode(&*m).ok());
    let Some(answer) = answer else {
        return Failure::Lasting("the answer is no OTLP message".to_owned()).into();
    };
    answer.into()
}

/// The message of an answer. Servers may compress it as the request was, without being asked (gRPC, "Compression"): those
/// in Go do.
fn message(reply: &Reply) -> Option<Cow<'_, [u8]>> {
    let ([flag, length @ ..], rest) = reply.body.split_first_chunk::<PREFIX>()?;
    let message = rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    match (flag, reply.header(ENCODING)) {
        (0, _) => Some(message.into()),
        (1, Some("gzip")) => unpacked(flate2::read::GzDecoder::new(message)).ok(),
        (1, Some("zstd")) => unpacked(zstd::Decoder::new(message).ok()?).ok(),
        _ => None,
    }
}

/// At most [`BODY`] bytes: more is no answer, however small it was packed.
fn unpacked<'a>(packed: impl Read) -> io::Result<Cow<'a, [u8]>> {
    let mut plain = Vec::new();
    packed.take(BODY as u64 + 1).read_to_end(&mut plain)?;
    if plain.len() > BODY {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(plain.into())
}

impl From<ExportMetricsServiceResponse> for Verdict {
    fn from(answer: ExportMetricsServiceResponse) -> Self {
        let partial = answer.partial_success.unwrap_or_default();
        let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0);
        Self::Taken { rejected, message: sentence(&partial.error_message) }
    }
}

/// The table of the OTLP specification ("Failures"). `RESOURCE_EXHAUSTED` passes only when the server says when.
fn failed(status: &Status) -> Failure {
    let name = format!("{:?}", status.code());
    let why = match sentence(status.message()) {
        message if message.is_empty() => name,
        message => format!("{name}: {message}"),
    };
    let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
    let after = delay.filter(|delay| !delay.is_zero());
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Failure::Passing { why, after },
        Code::ResourceExhausted if after.is_some() => Failure::Passing { why, after },
        Code::ResourceExhausted => Failure::TooLarge(why),
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::Internal
        | Code::Unauthenticated => Failure::Lasting(why),
    }
}

/// An answer that a proxy gave, or a server of something else ("HTTP to gRPC Status Code Mapping").
fn without_status(reply: &Reply) -> Failure {
    let summary = reply.summary();
    match reply.status.as_u16() {
        200 if reply.body.is_empty() => Failure::passing("the call ended without a status"),
        429 | 502..=504 => Failure::passing(summary),
        413 => Failure::TooLarge(summary),
        _ => Failure::Lasting(format!(
            "no answer of gRPC but {summary}; if this receiver takes HTTP only, set export.protocol to http/protobuf"
        )),
    }
}
