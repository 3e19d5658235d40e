//! What answers mean, waits, and halves: pure functions.

use std::collections::HashSet;
use std::io::Write;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use proptest::prelude::*;
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::bed::{points, request};
use crate::config::Compression;
use crate::otlp::verdict::{Failure, Reply, Verdict};
use crate::otlp::{Pace, Packed, Request, grpc, http as plain};

fn reply(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    let headers: HeaderMap = headers.iter().map(pair).collect();
    let status = StatusCode::from_u16(status).unwrap();
    Reply { status, headers, body: body.to_vec(), ..Reply::default() }
}

fn with_status(status: &Status) -> Reply {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers).unwrap();
    Reply { trailers, ..reply(200, &[], &[]) }
}

/// `taken`, `passing`, `large` or `lasting`, and the wait.
fn kind(verdict: Verdict) -> (&'static str, Option<u64>) {
    match verdict {
        Verdict::Taken { .. } => ("taken", None),
        Verdict::Failed(Failure::Passing { after, .. }) => {
            ("passing", after.map(|after| after.as_secs()))
        }
        Verdict::Failed(Failure::TooLarge(_)) => ("large", None),
        Verdict::Failed(Failure::Lasting(_)) => ("lasting", None),
    }
}

#[test]
fn grpc_codes_are_repeated_as_the_specification_says() {
    let passing = [
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::DataLoss,
    ];
    for code in (1..=16).map(Code::from_i32) {
        let expected = match code {
            Code::ResourceExhausted => "large",
            code if passing.contains(&code) => "passing",
            _ => "lasting",
        };
        let plain = with_status(&Status::new(code, "why"));
        assert_eq!(kind(grpc::judge(&plain)), (expected, None), "{code:?}");
        for seconds in [0, 7] {
            let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(seconds)));
            let status = Status::with_error_details(code, "why", details);
            let expected = match code {
                Code::ResourceExhausted if seconds > 0 => "passing",
                _ => expected,
            };
            let after = (expected == "passing" && seconds > 0).then_some(seconds);
            assert_eq!(kind(grpc::judge(&with_status(&status))), (expected, after), "{code:?}");
        }
    }
}

/// A message as a server compresses it.
fn framed(message: &[u8], compression: Compression) -> Vec<u8> {
    let packed = match compression {
        Compression::None => message.to_vec(),
        Compression::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(message).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(message, 1).unwrap(),
    };
    [&[1][..], &u32::try_from(packed.len()).unwrap().to_be_bytes(), &packed].concat()
}

#[test]
fn an_answer_may_be_compressed_as_the_request_was() {
    let judged = |body: &[u8], encoding| {
        let mut reply = reply(200, &[("grpc-encoding", encoding)], body);
        reply.trailers.insert("grpc-status", HeaderValue::from_static("0"));
        grpc::judge(&reply)
    };
    let answer = |message: &str| {
        let error_message = message.to_owned();
        let partial = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message };
        ExportMetricsServiceResponse { partial_success: Some(partial) }
    };
    for (compression, encoding) in [(Compression::Gzip, "gzip"), (Compression::Zstd, "zstd")] {
        let body = framed(&answer("why").encode_to_vec(), compression);
        let taken = Verdict::Taken { rejected: 3, message: "why".to_owned() };
        assert_eq!(judged(&body, encoding), taken, "{encoding}");
        assert_eq!(kind(judged(&body, "snappy")).0, "lasting", "{encoding} by another name");
        assert_eq!(kind(judged(&body[..body.len() - 1], encoding)).0, "lasting", "{encoding}, cut");
        let bomb = framed(&answer(&"0".repeat(1 << 20)).encode_to_vec(), compression);
        assert_eq!(kind(judged(&bomb, encoding)).0, "lasting", "{encoding}, a bomb");
        // Any even number of its bytes is a message.
        let fields = framed(&[0x10, 0].repeat(1 << 20), compression);
        assert_eq!(kind(judged(&fields, encoding)).0, "lasting", "{encoding}, a bomb of fields");
    }
}

#[test]
fn a_status_may_come_in_headers_and_none_at_all_is_judged_by_http() {
    let early = reply(200, &[("grpc-status", "3"), ("grpc-message", "no%20metric")], &[]);
    let Verdict::Failed(Failure::Lasting(why)) = grpc::judge(&early) else { panic!("refused") };
    assert_eq!(why, "InvalidArgument: no metric");
    for (status, expected) in [
        (200, "passing"),
        (400, "lasting"),
        (401, "lasting"),
        (404, "lasting"),
        (413, "large"),
        (429, "passing"),
        (502, "passing"),
        (503, "passing"),
        (504, "passing"),
    ] {
        assert_eq!(kind(grpc::judge(&reply(status, &[], &[]))).0, expected, "{status}");
    }
    let endless =
        Reply { body: vec![0, 0, 0, 0, 0], cut: true, ..with_status(&Status::new(Code::Ok, "")) };
    assert_eq!(kind(grpc::judge(&Reply { cut: false, ..endless.clone() })).0, "taken");
    assert_eq!(kind(grpc::judge(&endless)).0, "lasting");
    let cut = Reply { body: vec![0, 0, 0, 9, 0], ..with_status(&Status::new(Code::Ok, "")) };
    assert_eq!(kind(grpc::judge(&cut)).0, "lasting");
}

#[test]
fn http_statuses_are_repeated_as_the_specification_says() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (status, headers, expected) in [
        (200, [].as_slice(), ("taken", None)),
        (202, &[], ("taken", None)),
        (200, &[("content-type", "application/json; charset=utf-8")], ("taken", None)),
        (301, &[("location", "/x")], ("lasting", None)),
        (400, &[], ("lasting", None)),
        (401, &[], ("lasting", None)),
        (403, &[], ("lasting", None)),
        (404, &[], ("lasting", None)),
        (408, &[], ("lasting", None)),
        (413, &[], ("large", None)),
        (429, &[], ("passing", None)),
        (429, &[("retry-after", "7")], ("passing", Some(7))),
        (500, &[], ("lasting", None)),
        (501, &[("retry-after", "7")], ("lasting", None)),
        (502, &[], ("passing", None)),
        (503, &[("retry-after", " 0 ")], ("passing", Some(0))),
        (503, &[("retry-after", "Sun, 09 Sep 2001 01:46:50 GMT")], ("passing", Some(10))),
        (503, &[("retry-after", "Sun, 09 Sep 2001 01:46:30 GMT")], ("passing", None)),
        (503, &[("retry-after", "soon")], ("passing", None)),
        (504, &[("retry-after", "-1")], ("passing", None)),
    ] {
        let judged = kind(plain::judge(&reply(status, headers, &[]), now));
        assert_eq!(judged, expected, "{status} {headers:?}");
    }
}

#[test]
fn an_http_error_speaks_by_the_status_message_it_carries() {
    let message = "quota\nof today".to_owned();
    let body = tonic_types::Status { code: 0, message, details: Vec::new() }.encode_to_vec();
    let answer = reply(400, &[("content-type", "application/x-protobuf")], &body);
    let verdict = plain::judge(&answer, SystemTime::UNIX_EPOCH);
    let why = "HTTP 400 Bad Request: quota of today".to_owned();
    assert_eq!(verdict, Verdict::Failed(Failure::Lasting(why)));
}

#[test]
fn partial_success_is_read_from_messages_and_from_json() {
    let taken = Verdict::Taken { rejected: 2, message: "old".to_owned() };
    for named in ["rejectedDataPoints", "rejectedLogRecords"] {
        let json = format!(r#"{{"partialSuccess":{{"{named}":"2","errorMessage":"old"}}}}"#);
        let answer = reply(200, &[("content-type", "application/json")], json.as_bytes());
        assert_eq!(plain::judge(&answer, SystemTime::UNIX_EPOCH), taken);
    }
    let error_message = "old".to_owned();
    let partial = ExportLogsPartialSuccess { rejected_log_records: 2, error_message };
    let message = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let answer = reply(200, &[("content-type", "application/x-protobuf")], &message);
    assert_eq!(plain::judge(&answer, SystemTime::UNIX_EPOCH), taken, "that of logs is alike");
}

#[test]
fn waits_double_up_to_the_longest_keep_at_least_half_and_give_the_server_its_time() {
    let pace = Pace::of_host("a", Duration::from_secs(60), Duration::from_secs(10));
    for failures in 1..200 {
        let full = pace.first_wait * 2_u32.pow((failures - 1).min(10));
        let full = full.min(pace.longest_wait);
        let wait = pace.wait(failures, None);
        assert!(wait <= full && wait >= full / 2, "{failures}: {wait:?} of {full:?}");
        let hint = Duration::from_secs(90);
        assert_eq!(pace.wait(failures, Some(hint)), hint);
    }
    assert_eq!(pace.wait(1, Some(Duration::from_secs(86_400))), Duration::from_secs(600));
}

#[test]
fn hosts_of_a_fleet_have_different_phases_and_each_always_the_same() {
    let interval = Duration::from_secs(60);
    let phase = |n: u32| Pace::of_host(&format!("host-{n}"), interval, interval).phase;
    let phases: HashSet<_> = (0..200).map(phase).collect();
    assert!(phases.len() > 150, "{}", phases.len());
    assert!((0..200).all(|n| phase(n) == phase(n) && phase(n) < interval / 10));
}

#[test]
fn a_request_that_does_not_shrink_is_packed_as_it_is() {
    let packed = Packed::new(&request("a", 1).into(), Compression::None).unwrap();
    assert_eq!(packed.message(), request("a", 1).encode_to_vec());
    let framed = packed.framed();
    assert_eq!(framed[0], 0);
    assert_eq!(u64::from(u32::from_be_bytes(framed[1..5].try_into().unwrap())), packed.len());
}

fn read(request: &Request) -> ExportMetricsServiceRequest {
    request.decode().unwrap()
}

proptest! {
    #[test]
    fn halves_hold_each_point_once_in_order_under_the_same_heads(
        sizes in prop::collection::vec(0_u64..7, 0..6),
    ) {
        let mut whole = request("m", 0);
        whole.resource_metrics.clear();
        for (size, resource) in sizes.iter().zip(0..) {
            let mut part = request(&format!("m{resource}"), *size).resource_metrics;
            part[0].schema_url = format!("r{}", resource / 2);
            if resource % 2 == 1 && let Some(last) = whole.resource_metrics.last_mut() {
                last.scope_metrics.append(&mut part[0].scope_metrics);
            } else {
                whole.resource_metrics.append(&mut part);
            }
        }
        let kept = Request::from(whole.clone());
        let total = kept.points();
        prop_assert_eq!(kept.size(), whole.encoded_len());
        prop_assert_eq!(read(&kept), whole.clone());
        match kept.clone().halves() {
            Err(same) => prop_assert!(total < 2 && same == kept),
            Ok((a, b)) => {
                prop_assert_eq!(a.points(), total / 2);
                prop_assert_eq!(b.points(), total - total / 2);
                let [a, b] = [a, b].map(|half| read(&half));
                prop_assert_eq!(points(&[a.clone(), b.clone()]), points(&[whole.clone()]));
                for half in [a, b].iter().flat_map(|half| &half.resource_metrics) {
                    prop_assert!(whole.resource_metrics.iter().any(|r| r.schema_url == half.schema_url));
                }
            }
        }
    }
}
