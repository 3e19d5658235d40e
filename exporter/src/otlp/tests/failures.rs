//! What an endpoint may do wrong: each gives one clear line, and none a flood.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::bed::{
    Answer, Grpc, Http, LONG, Log, nobody, request, says, settings, shouts, start, takes, until,
};
use crate::config::Protocol;
use crate::otlp::{Fate, Settings};

/// Sends to an endpoint until it failed often, and returns what was logged.
fn told(settings: Settings) -> Vec<String> {
    let log = Log::default();
    let kept = log.keep();
    let (outbox, exporter) = start(settings);
    for number in 1..=4 {
        outbox.send(&exporter, number, request("a", 1));
        until("it failed", || {
            let stats = exporter.stats();
            stats.retries + stats.refused >= number
        });
    }
    assert_eq!(exporter.shutdown(Duration::ZERO).sent, 0);
    drop(kept);
    log.lines()
}

/// The one line that tells of it.
fn line(settings: Settings) -> String {
    let lines = told(settings);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines.into_iter().next().unwrap()
}

#[test]
fn an_absent_endpoint_is_named_once_and_delivery_resumes_with_the_newest_when_it_appears() {
    let log = Log::default();
    let kept = log.keep();
    let address = nobody();
    let (outbox, exporter) = start(settings(&format!("http://{address}/"), Protocol::Grpc));
    outbox.send(&exporter, 1, request("a", 1));
    until("retries", || exporter.stats().retries >= 3);
    outbox.send(&exporter, 2, request("a", 2));
    let server = Grpc::start_at(address, Answer::Take, None);
    until("sent", || exporter.stats().sent == 1);
    outbox.send(&exporter, 3, request("a", 3));
    let stats = exporter.shutdown(LONG);
    drop(kept);
    assert_eq!((stats.sent, stats.replaced), (2, 1));
    assert_eq!(server.received(), [request("a", 2), request("a", 3)]);
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    let down = format!("WARN OTLP to http://{address} does not work: ");
    assert!(lines[0].starts_with(&down), "{lines:?}");
    assert!(lines[0].contains("Connection refused"), "{lines:?}");
    let again = format!("INFO OTLP to http://{address} works again after {}", stats.retries);
    assert!(lines[1].starts_with(&again), "{lines:?}");
}

#[test]
fn a_server_that_goes_away_and_returns_is_found_again() {
    let server = Grpc::start(Answer::Take);
    let address = server.address;
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    outbox.send(&exporter, 1, request("a", 1));
    until("sent", || exporter.stats().sent == 1);
    drop(server);
    outbox.send(&exporter, 2, request("a", 2));
    until("it is missed", || exporter.stats().retries >= 1);
    let server = Grpc::start_at(address, Answer::Take, None);
    until("sent again", || exporter.stats().sent == 2);
    assert_eq!(server.received(), [request("a", 2)]);
    assert_eq!(outbox.fates(), [(1, Fate::Delivered), (2, Fate::Delivered)]);
    assert_eq!(exporter.shutdown(LONG).refused, 0);
}

#[test]
fn a_slow_answer_is_given_up_and_tried_again() {
    let server = Grpc::start(Answer::Hang);
    let mut settings = settings(&server.url(), Protocol::Grpc);
    settings.pace.timeout = Duration::from_millis(50);
    let (outbox, exporter) = start(settings);
    outbox.send(&exporter, 1, request("a", 1));
    until("retries", || exporter.stats().retries >= 2 && !server.received().is_empty());
    assert_eq!(server.header("grpc-timeout").as_deref(), Some("50m"));
    server.say(Answer::Take);
    until("sent", || exporter.stats().sent == 1);
    assert_eq!(exporter.shutdown(LONG).refused, 0);
}

#[test]
fn a_retry_waits_as_long_as_either_server_asks() {
    let asks = Duration::from_millis(1500);
    let details = ErrorDetails::with_retry_info(Some(asks));
    let status = Status::with_error_details(Code::ResourceExhausted, "quota", details);
    let grpc = Grpc::start(Answer::Fail(status));
    let http = Http::start(|_| says("429 Too Many Requests", "retry-after: 2\r\n", b""));
    for (url, protocol) in [(grpc.url(), Protocol::Grpc), (http.url(), Protocol::HttpProtobuf)] {
        let (outbox, exporter) = start(settings(&url, protocol));
        let begin = std::time::Instant::now();
        outbox.send(&exporter, 1, request("a", 8));
        until("it was tried again", || exporter.stats().retries == 2);
        assert!(begin.elapsed() >= asks, "{protocol:?}: {:?}", begin.elapsed());
        assert_eq!(exporter.shutdown(Duration::ZERO).refused_points, 8);
    }
}

#[test]
fn an_http_error_page_is_told_by_its_status_and_first_line_whatever_its_length() {
    let page = [b"\n <h1>\x1b[31mGone\x07</h1>\n".as_slice(), &[b'x'; 10 << 20]].concat();
    let server = Http::start(move |_| says("404 Not Found", "content-type: text/html\r\n", &page));
    let line = line(settings(&server.url(), Protocol::HttpProtobuf));
    assert!(line.starts_with("ERROR ") && line.contains("HTTP 404 Not Found"), "{line}");
    assert!(line.contains("<h1> [31mGone </h1>") && line.len() < 300, "{line}");
}

#[test]
fn a_page_that_calls_itself_a_success_is_none() {
    let server = Http::start(|_| says("200 OK", "content-type: text/html\r\n", b"<html>Hi</html>"));
    let line = line(settings(&server.url(), Protocol::HttpProtobuf));
    assert!(line.contains("no answer of OTLP but HTTP 200 OK: <html>Hi"), "{line}");
}

#[test]
fn an_answer_without_end_is_no_success_though_its_begin_is_a_message() {
    // Fields that a message of OTLP does not have: any even number of bytes is one.
    let fields = [0x10, 0].repeat(1 << 20);
    let kind = "content-type: application/x-protobuf\r\n";
    let server = Http::start(move |_| says("200 OK", kind, &fields));
    let line = line(settings(&server.url(), Protocol::HttpProtobuf));
    assert!(line.starts_with("ERROR ") && line.contains("more than 65536 bytes"), "{line}");
}

#[test]
fn a_redirect_is_not_followed_and_says_where_to() {
    let elsewhere = Http::start(|_| takes());
    let to = format!("location: {}/v1/metrics\r\n", elsewhere.url());
    let server = Http::start(move |_| says("307 Temporary Redirect", &to, b""));
    let line = line(settings(&server.url(), Protocol::HttpProtobuf));
    assert!(line.contains("307") && line.contains(&elsewhere.url()), "{line}");
    assert!(elsewhere.seen().is_empty());
}

#[test]
fn a_connection_closed_before_or_within_an_answer_is_tried_again() {
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc".to_vec();
    for answer in [None, Some(cut)] {
        let server = Http::start(move |_| answer.clone());
        // A server that says half an answer keeps the connection; the client's patience ends it.
        let mut settings = settings(&server.url(), Protocol::HttpProtobuf);
        settings.pace.timeout = Duration::from_millis(200);
        let line = line(settings);
        assert!(line.starts_with("WARN ") && line.contains("does not work"), "{line}");
    }
}

#[test]
fn the_wrong_protocol_on_a_port_is_told_with_the_setting_to_change() {
    let plain = Http::start(|_| takes());
    let text = line(settings(&plain.url(), Protocol::Grpc));
    assert!(text.contains("no port of gRPC") && text.contains("http/protobuf"), "{text}");
    let grpc = Grpc::start(Answer::Take);
    let text = line(settings(&grpc.url(), Protocol::HttpProtobuf));
    assert!(text.contains("export.protocol grpc"), "{text}");
}

#[test]
fn a_port_of_something_else_is_told() {
    let url = format!("http://{}", shouts(b"220 mail ready\r\n"));
    for protocol in [Protocol::Grpc, Protocol::HttpProtobuf] {
        let text = line(settings(&url, protocol));
        assert!(text.starts_with("WARN ") && text.contains("does not work"), "{text}");
    }
}
