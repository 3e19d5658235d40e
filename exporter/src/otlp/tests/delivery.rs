//! What arrives, and what is counted.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;

use super::bed::{
    Answer, Grpc, Http, LONG, Log, configured, decompressed, nobody, points, request, says,
    settings, start, takes, until,
};
use crate::config::{Attributes, Compression, Export, Headers, Protocol, Temporality};
use crate::otlp::{Fate, Request, SHIPMENT_BYTES, Shipment, StartError, Stats};

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zstd];

#[test]
fn a_grpc_server_receives_what_the_feed_has_under_every_compression() {
    for compression in COMPRESSIONS {
        let server = Grpc::start(Answer::Take);
        let headers = Headers::try_from("Api-Key=a%20b,x=1".to_owned()).unwrap();
        let export = Export { endpoint: server.url(), compression, headers, ..Export::default() };
        let (outbox, exporter) = start(configured(&export));
        outbox.send(&exporter, 1, request("a", 3));
        let stats = exporter.shutdown(LONG);
        assert_eq!(server.received(), [request("a", 3)], "{compression:?}");
        assert_eq!(outbox.fates(), [(1, Fate::Delivered)]);
        assert_eq!((stats.sent, stats.delivered_points), (1, 3));
        assert_eq!(server.header("api-key").as_deref(), Some("a b"));
        assert_eq!(server.header("x").as_deref(), Some("1"));
        let encoding = server.header("grpc-encoding");
        let expected = (compression != Compression::None).then(|| String::from(compression));
        assert_eq!(encoding, expected);
        assert!(server.header("user-agent").unwrap().starts_with("memprov/"));
    }
}

#[test]
fn an_http_server_receives_what_the_feed_has_under_every_compression() {
    for compression in COMPRESSIONS {
        let server = Http::start(|_| takes());
        let headers = Headers::try_from("api-key=secret".to_owned()).unwrap();
        let protocol = Protocol::HttpProtobuf;
        let export =
            Export { endpoint: server.url(), protocol, compression, headers, ..Export::default() };
        let (outbox, exporter) = start(configured(&export));
        for number in 1..=2 {
            outbox.send(&exporter, number, request("a", number));
            until("delivered", || exporter.stats().sent == number);
        }
        assert_eq!(exporter.shutdown(LONG).delivered_points, 3);
        let seen = server.seen();
        assert_eq!(seen.len(), 2);
        for (seen, sent) in seen.iter().zip(1..) {
            let plain = decompressed(seen, compression);
            let message = ExportMetricsServiceRequest::decode(&plain[..]).unwrap();
            assert_eq!(message, request("a", sent), "{compression:?}");
            assert_eq!(seen.head[0], "post /v1/metrics http/1.1");
            let has = |line: &str| seen.head.iter().any(|l| l.starts_with(line));
            assert!(has("content-type: application/x-protobuf") && has("api-key: secret"));
            assert!(has("user-agent: memprov/"), "{:?}", seen.head);
            let encoding = format!("content-encoding: {}", String::from(compression));
            assert_eq!(has(&encoding), compression != Compression::None);
        }
    }
}

#[test]
fn parts_go_in_order_and_a_refused_one_holds_up_no_other() {
    let log = Log::default();
    let kept = log.keep();
    let server = Grpc::start(Answer::Dislike("b"));
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    for number in 1..=2 {
        let parts = [request("a", 1), request("b", 2), request("c", 4)];
        let parts = parts.map(Request::from).into();
        outbox.put(&exporter, Shipment { number, parts, replaceable: true });
        until("settled", || outbox.fates().len() as u64 == number);
    }
    let stats = exporter.shutdown(LONG);
    drop(kept);
    let bytes = stats.bytes;
    let (sent, refused, delivered_points, refused_points) = (4, 2, 10, 4);
    let expected =
        Stats { sent, refused, delivered_points, refused_points, bytes, ..Stats::default() };
    assert_eq!(stats, expected);
    assert_eq!(outbox.fates(), [(1, Fate::Delivered), (2, Fate::Delivered)]);
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("refused") && lines[0].contains("unknown metric"), "{lines:?}");
}

#[test]
fn what_a_server_calls_too_large_is_halved_until_it_fits_and_the_size_is_kept_in_mind() {
    let server = Grpc::start(Answer::Limit(1000));
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    outbox.send(&exporter, 1, request("a", 1000));
    until("settled", || outbox.fates() == [(1, Fate::Delivered)]);
    let first = exporter.stats();
    assert_eq!((first.delivered_points, first.refused_points), (1000, 0));
    assert!(first.retries > 0);
    outbox.send(&exporter, 2, request("b", 1000));
    let stats = exporter.shutdown(LONG);
    assert_eq!(stats.retries, first.retries, "no request is too large any more");
    let taken: Vec<_> =
        server.received().into_iter().filter(|request| request.encoded_len() <= 1000).collect();
    let mut arrived = points(&taken);
    arrived.sort();
    assert_eq!(arrived, points(&[request("a", 1000), request("b", 1000)]), "each point once");
}

#[test]
fn a_server_that_is_exhausted_by_one_point_is_not_asked_point_by_point() {
    let server = Grpc::start(Answer::Limit(0));
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    let parts = vec![request("a", 1 << 14).into(), request("b", 1 << 14).into()];
    outbox.put(&exporter, Shipment { number: 1, parts, replaceable: true });
    until("settled", || outbox.fates() == [(1, Fate::Refused)]);
    assert!(server.received().len() < 40, "{}", server.received().len());
    let stats = exporter.shutdown(LONG);
    assert_eq!((stats.refused_points, stats.delivered_points), (1 << 15, 0));
}

#[test]
fn rejected_points_are_counted_told_once_and_never_sent_again() {
    let log = Log::default();
    let kept = log.keep();
    let server = Grpc::start(Answer::Reject(3, "too\nold"));
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    for number in 1..=3 {
        outbox.send(&exporter, number, request("a", 4));
        until("sent", || exporter.stats().sent == number);
    }
    server.say(Answer::Take);
    outbox.send(&exporter, 4, request("a", 4));
    let stats = exporter.shutdown(LONG);
    drop(kept);
    assert_eq!((stats.sent, stats.rejected_points, stats.delivered_points), (4, 9, 7));
    assert_eq!(server.received().len(), 4);
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains(&server.url()) && lines[0].contains("too old"), "{lines:?}");
}

#[test]
fn advice_with_a_success_is_told_once_and_costs_no_point() {
    let log = Log::default();
    let kept = log.keep();
    let server = Grpc::start(Answer::Reject(0, "use delta"));
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    for number in 1..=3 {
        outbox.send(&exporter, number, request("a", 4));
        until("sent", || exporter.stats().sent == number);
    }
    drop(kept);
    assert_eq!(exporter.shutdown(LONG).delivered_points, 12);
    let told = log.lines().iter().filter(|line| line.contains("use delta")).count();
    assert_eq!(told, 1, "{:?}", log.lines());
}

#[test]
fn a_shipment_beyond_the_bound_loses_the_parts_that_do_not_fit_and_counts_them() {
    let server = Http::start(|_| takes());
    let export = Export {
        endpoint: server.url(),
        protocol: Protocol::HttpProtobuf,
        max_request: 64 << 20,
        ..Export::default()
    };
    let (outbox, exporter) = start(configured(&export));
    let long = request(&"x".repeat(SHIPMENT_BYTES / 2), 1);
    let parts = [long.clone(), long, request("b", 1)].map(Request::from).into();
    outbox.put(&exporter, Shipment { number: 1, parts, replaceable: true });
    let stats = exporter.shutdown(LONG);
    assert_eq!((stats.delivered_points, stats.refused_points), (2, 1));
}

#[test]
fn the_newest_replaces_what_may_be_replaced_and_nothing_else() {
    for replaceable in [true, false] {
        let server = Grpc::start(Answer::Fail(tonic::Status::unavailable("busy")));
        let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
        let ship =
            |number| Shipment { number, parts: vec![request("a", number).into()], replaceable };
        outbox.put(&exporter, ship(1));
        until("retries", || exporter.stats().retries >= 2);
        outbox.put(&exporter, ship(2));
        let now = exporter.stats().retries;
        until("more retries", || exporter.stats().retries >= now + 3);
        server.say(Answer::Take);
        let last = if replaceable { 1 } else { 2 };
        until("sent", || exporter.stats().sent == last);
        let stats = exporter.shutdown(LONG);
        let (fates, points) = match replaceable {
            true => (vec![(1, Fate::Replaced), (2, Fate::Delivered)], (2, 1)),
            false => (vec![(1, Fate::Delivered), (2, Fate::Delivered)], (3, 0)),
        };
        assert_eq!(outbox.fates(), fates);
        assert_eq!((stats.delivered_points, stats.replaced_points), points);
    }
}

#[test]
fn what_waits_at_the_end_is_still_delivered() {
    let server = Grpc::start(Answer::Take);
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    outbox.send(&exporter, 1, request("a", 1));
    assert_eq!(exporter.shutdown(LONG).sent, 1);
    assert_eq!(server.received().len(), 1);
}

#[test]
fn neither_an_absent_endpoint_nor_a_silent_one_holds_up_the_end() {
    let (outbox, exporter) = start(settings(&format!("http://{}", nobody()), Protocol::Grpc));
    outbox.send(&exporter, 1, request("a", 2));
    let stats = exporter.shutdown(Duration::from_secs(3600));
    assert_eq!((stats.sent, stats.refused_points), (0, 2));
    let server = Grpc::start(Answer::Hang);
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    outbox.send(&exporter, 1, request("a", 2));
    until("it is on its way", || server.received().len() == 1);
    let stats = exporter.shutdown(Duration::ZERO);
    assert_eq!((stats.sent, stats.refused_points), (0, 2));
    assert_eq!(outbox.fates(), [(1, Fate::Refused)]);
    server.say(Answer::Take);
}

#[test]
fn the_agents_own_metrics_follow_on_the_same_line_with_its_resource() {
    let server = Grpc::start(Answer::Take);
    let mut settings = settings(&server.url(), Protocol::Grpc);
    let resource = Attributes::try_from("service.name=agent".to_owned()).unwrap();
    settings.agent = Some((resource, Temporality::Cumulative));
    let (outbox, exporter) = start(settings);
    outbox.send(&exporter, 1, request("a", 5));
    until("settled", || outbox.fates().len() == 1);
    outbox.send(&exporter, 2, request("a", 5));
    let stats = exporter.shutdown(LONG);
    let received = server.received();
    let own = &received.last().unwrap().resource_metrics[0];
    let attribute = &own.resource.as_ref().unwrap().attributes[0];
    assert_eq!(attribute.key, "service.name");
    let metrics = &own.scope_metrics[0].metrics;
    let of = |name: &str| metrics.iter().find(|m| m.name == name).unwrap().data.clone().unwrap();
    let Data::Sum(counted) = of("memprov.export.points") else { panic!("a sum") };
    assert!(counted.is_monotonic && counted.data_points.len() == 4);
    let Data::Histogram(duration) = of("memprov.export.duration") else { panic!("a histogram") };
    assert!(duration.data_points[0].count >= 1);
    assert!(stats.delivered_points > 10, "its own points count too: {stats:?}");
}

#[test]
fn a_shipment_of_which_only_the_agents_own_metrics_arrive_is_refused() {
    let server = Http::start(|seen| {
        let own = String::from_utf8_lossy(&seen.body).contains("memprov.export");
        if own { takes() } else { says("404 Not Found", "", &[]) }
    });
    let export = Export {
        endpoint: server.url(),
        protocol: Protocol::HttpProtobuf,
        compression: Compression::None,
        ..Export::default()
    };
    let mut settings = configured(&export);
    let resource = Attributes::try_from("service.name=agent".to_owned()).unwrap();
    settings.agent = Some((resource, Temporality::Cumulative));
    let (outbox, exporter) = start(settings);
    outbox.send(&exporter, 1, request("a", 5));
    let stats = exporter.shutdown(LONG);
    assert_eq!((stats.sent, stats.refused_points), (1, 5));
    assert_eq!(outbox.fates(), [(1, Fate::Refused)]);
}

#[test]
fn another_endpoint_takes_over_what_is_not_delivered_and_nothing_else() {
    let (before, after) = (Grpc::start(Answer::Take), Grpc::start(Answer::Take));
    let (outbox, exporter) = start(settings(&before.url(), Protocol::Grpc));
    outbox.send(&exporter, 1, request("a", 1));
    until("delivered", || exporter.stats().sent == 1);
    before.say(Answer::Fail(tonic::Status::unavailable("moved")));
    let parts = vec![request("b", 2), request("c", 3)];
    let shipped = parts.iter().cloned().map(Request::from).collect();
    outbox.put(&exporter, Shipment { number: 2, parts: shipped, replaceable: true });
    until("tried", || exporter.stats().retries > 0);
    let export = Export { endpoint: after.url(), ..Export::default() };
    exporter.change(configured(&export)).unwrap();
    until("delivered", || exporter.stats().sent == 3);
    outbox.send(&exporter, 3, request("d", 4));
    let stats = exporter.shutdown(LONG);
    assert_eq!(after.received(), [parts, vec![request("d", 4)]].concat());
    assert_eq!(before.received()[0], request("a", 1));
    assert!(before.received()[1..].iter().all(|tried| *tried == request("b", 2)));
    assert_eq!((stats.delivered_points, stats.refused_points, stats.replaced_points), (10, 0, 0));
    assert_eq!(outbox.fates(), [1, 2, 3].map(|number| (number, Fate::Delivered)));
}

#[test]
fn settings_whose_files_cannot_be_used_change_nothing() {
    let server = Grpc::start(Answer::Take);
    let (outbox, exporter) = start(settings(&server.url(), Protocol::Grpc));
    let endpoint = "https://localhost:1".to_owned();
    let export = Export { endpoint, ca: "/nowhere.pem".into(), ..Export::default() };
    let refused = exporter.change(configured(&export)).unwrap_err();
    assert!(matches!(refused, StartError::Tls { .. }), "{refused:?}");
    outbox.send(&exporter, 1, request("a", 1));
    assert_eq!(exporter.shutdown(LONG).delivered_points, 1);
    assert_eq!(server.received(), [request("a", 1)]);
}
