//! Against a real gRPC server in this process.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{
    DataPointFlags, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric::Data,
};
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status};

use super::{Exporter, Pace, StartError, Stats, backoff};

const PATIENT: Pace = Pace {
    timeout: Duration::from_secs(60),
    first_wait: Duration::from_millis(5),
    longest_wait: Duration::from_millis(20),
};

#[derive(Clone)]
enum Answer {
    Take,
    Reject(i64),
    Fail(tonic::Code),
    Hang,
}

#[derive(Clone)]
struct Sink {
    answer: watch::Receiver<Answer>,
    calls: watch::Sender<Vec<ExportMetricsServiceRequest>>,
}

#[tonic::async_trait]
impl MetricsService for Sink {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.calls.send_modify(|calls| calls.push(request.into_inner()));
        let mut answer = self.answer.clone();
        let answer =
            answer.wait_for(|answer| !matches!(answer, Answer::Hang)).await.unwrap().clone();
        let partial_success = match answer {
            Answer::Take | Answer::Hang => None,
            Answer::Reject(rejected_data_points) => Some(ExportMetricsPartialSuccess {
                rejected_data_points,
                error_message: "too old".to_owned(),
            }),
            Answer::Fail(code) => return Err(Status::new(code, "busy\nnow")),
        };
        Ok(Response::new(ExportMetricsServiceResponse { partial_success }))
    }
}

struct Server {
    address: SocketAddr,
    answer: watch::Sender<Answer>,
    calls: watch::Receiver<Vec<ExportMetricsServiceRequest>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(answer: Answer) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), answer)
    }

    fn start_at(address: SocketAddr, answer: Answer) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, answers) = watch::channel(answer);
        let (sender, calls) = watch::channel(Vec::new());
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let sink = Sink { answer: answers, calls: sender };
                let serve = tonic::transport::Server::builder()
                    .add_service(MetricsServiceServer::new(sink))
                    .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener));
                tokio::select! {
                    served = serve => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self { address, answer, calls, stop: Some(stop), thread: Some(thread) }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn received(&self) -> Vec<ExportMetricsServiceRequest> {
        self.calls.borrow().clone()
    }

    fn say(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A request that is told by its schema URL.
fn numbered(number: u32) -> ExportMetricsServiceRequest {
    let schema_url = number.to_string();
    let resource_metrics = vec![ResourceMetrics { schema_url, ..Default::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

/// Waits for what must come; a test that waits a minute has failed.
fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}

/// An address at which nobody listens: bound once, to make it free, and closed again.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Log lines of the exporters started while it is the default.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn keep(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("info")
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

#[test]
fn the_server_receives_what_was_offered() {
    let server = Server::start(Answer::Take);
    let exporter = Exporter::start(&server.url(), PATIENT).unwrap();
    exporter.offer(numbered(1));
    until("sent", || exporter.stats().sent == 1);
    let stats = exporter.shutdown(Duration::from_secs(60));
    assert_eq!(stats, Stats { sent: 1, ..Stats::default() });
    assert_eq!(server.received(), [numbered(1)]);
}

#[test]
fn a_series_that_the_next_request_lacks_is_ended_after_it_and_only_once() {
    let gauge = |name: &str, point: NumberDataPoint| {
        let data = Some(Data::Gauge(Gauge { data_points: vec![point] }));
        let metrics = vec![Metric { name: name.to_owned(), data, ..Default::default() }];
        let scope_metrics = vec![ScopeMetrics { metrics, ..Default::default() }];
        let resource_metrics = vec![ResourceMetrics { scope_metrics, ..Default::default() }];
        ExportMetricsServiceRequest { resource_metrics }
    };
    let at = |time_unix_nano| NumberDataPoint { time_unix_nano, ..Default::default() };
    let flags = DataPointFlags::NoRecordedValueMask as u32;
    let server = Server::start(Answer::Take);
    let exporter = Exporter::start(&server.url(), PATIENT).unwrap();
    let offers = [gauge("a", at(1)), gauge("b", at(2)), gauge("b", at(3))];
    for (before, offer) in (0..).zip(&offers) {
        exporter.offer(offer.clone());
        until("sent", || exporter.stats().sent == before + 1);
    }
    let end = gauge("a", NumberDataPoint { flags, ..at(2) });
    let [a, b, b_again] = offers;
    assert_eq!(server.received(), [a, b, end, b_again]);
    assert_eq!(exporter.shutdown(Duration::from_secs(60)).sent, 3);
}

#[test]
fn what_waits_at_shutdown_is_still_delivered() {
    let server = Server::start(Answer::Take);
    let exporter = Exporter::start(&server.url(), PATIENT).unwrap();
    exporter.offer(numbered(1));
    let stats = exporter.shutdown(Duration::from_secs(60));
    assert_eq!(stats, Stats { sent: 1, ..Stats::default() });
    assert_eq!(server.received(), [numbered(1)]);
}

#[test]
fn the_newest_supersedes_all_that_waits_behind_a_slow_answer() {
    let server = Server::start(Answer::Hang);
    let exporter = Exporter::start(&server.url(), PATIENT).unwrap();
    exporter.offer(numbered(1));
    until("the first is on its way", || server.received().len() == 1);
    for number in 2..=9 {
        exporter.offer(numbered(number));
    }
    server.say(Answer::Take);
    let stats = exporter.shutdown(Duration::from_secs(60));
    assert_eq!(stats, Stats { sent: 2, superseded: 7, ..Stats::default() });
    assert_eq!(server.received(), [numbered(1), numbered(9)]);
}

#[test]
fn an_absent_endpoint_is_named_once_and_delivery_resumes_with_the_newest_when_it_appears() {
    let log = Log::default();
    let kept = log.keep();
    let address = nobody();
    let exporter = Exporter::start(&format!("http://{address}/"), PATIENT).unwrap();
    exporter.offer(numbered(1));
    until("retries", || exporter.stats().retried >= 3);
    exporter.offer(numbered(2));
    let server = Server::start_at(address, Answer::Take);
    until("sent", || exporter.stats().sent == 1);
    exporter.offer(numbered(3));
    let stats = exporter.shutdown(Duration::from_secs(60));
    drop(kept);
    assert_eq!(stats, Stats { sent: 2, superseded: 1, retried: stats.retried, ..Stats::default() });
    assert_eq!(server.received(), [numbered(2), numbered(3)]);
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[0].starts_with(&format!("WARN OTLP to http://{address} does not work: ")),
        "{lines:?}"
    );
    assert!(lines[0].contains("Connection refused"), "{lines:?}");
    let again =
        format!("INFO OTLP to http://{address} works again after {} failures", stats.retried);
    assert!(lines[1].starts_with(&again), "{lines:?}");
}

#[test]
fn an_endpoint_that_never_appears_does_not_hold_up_the_end() {
    let exporter = Exporter::start(&format!("http://{}", nobody()), Pace::default()).unwrap();
    exporter.offer(numbered(1));
    exporter.offer(numbered(2));
    let stats = exporter.shutdown(Duration::from_secs(3600));
    assert_eq!((stats.sent, stats.failed, stats.superseded), (0, 1, 1));
}

#[test]
fn a_server_that_never_answers_does_not_hold_up_the_end() {
    let server = Server::start(Answer::Hang);
    let exporter = Exporter::start(&server.url(), PATIENT).unwrap();
    exporter.offer(numbered(1));
    until("it is on its way", || server.received().len() == 1);
    let stats = exporter.shutdown(Duration::ZERO);
    assert_eq!((stats.sent, stats.failed), (0, 1));
    server.say(Answer::Take);
}

#[test]
fn a_slow_answer_is_given_up_and_tried_again() {
    let server = Server::start(Answer::Hang);
    let pace = Pace { timeout: Duration::from_millis(50), ..PATIENT };
    let exporter = Exporter::start(&server.url(), pace).unwrap();
    exporter.offer(numbered(1));
    until("retries", || exporter.stats().retried >= 2);
    server.say(Answer::Take);
    until("sent", || exporter.stats().sent == 1);
    let stats = exporter.shutdown(Duration::from_secs(60));
    assert_eq!((stats.sent, stats.failed, stats.superseded), (1, 0, 0));
}

#[test]
fn a_server_that_goes_away_and_returns_is_found_again() {
    let first = Server::start(Answer::Take);
    let address = first.address;
    let exporter = Exporter::start(&first.url(), PATIENT).unwrap();
    exporter.offer(numbered(1));
    until("sent", || exporter.stats().sent == 1);
    drop(first);
    exporter.offer(numbered(2));
    until("it is missed", || exporter.stats().retried >= 1);
    let second = Server::start_at(address, Answer::Take);
    until("sent again", || exporter.stats().sent == 2);
    assert_eq!(second.received(), [numbered(2)]);
    let stats = exporter.shutdown(Duration::from_secs(60));
    assert_eq!((stats.sent, stats.failed, stats.superseded), (2, 0, 0));
}

#[test]
fn rejected_points_are_counted_told_once_and_never_sent_again() {
    let log = Log::default();
    let kept = log.keep();
    let server = Server::start(Answer::Reject(3));
    let exporter = Exporter::start(&server.url(), PATIENT).unwrap();
    for number in 1..=3 {
        exporter.offer(numbered(number));
        until("sent", || exporter.stats().sent == u64::from(number));
    }
    server.say(Answer::Take);
    exporter.offer(numbered(4));
    let stats = exporter.shutdown(Duration::from_secs(60));
    drop(kept);
    assert_eq!(stats, Stats { sent: 4, rejected_points: 9, ..Stats::default() });
    assert_eq!(server.received().len(), 4);
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains(&server.url()) && lines[0].contains("too old"), "{lines:?}");
}

#[test]
fn a_refusal_for_good_is_not_repeated_and_the_next_request_is_tried() {
    let log = Log::default();
    let kept = log.keep();
    let server = Server::start(Answer::Fail(tonic::Code::InvalidArgument));
    let exporter = Exporter::start(&server.url(), PATIENT).unwrap();
    for number in 1..=2 {
        exporter.offer(numbered(number));
        until("refused", || exporter.stats().failed == u64::from(number));
    }
    server.say(Answer::Take);
    exporter.offer(numbered(3));
    let stats = exporter.shutdown(Duration::from_secs(60));
    drop(kept);
    assert_eq!(stats, Stats { sent: 1, failed: 2, ..Stats::default() });
    assert_eq!(server.received(), [numbered(1), numbered(2), numbered(3)]);
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("busy now"), "one line: {lines:?}");
}

#[test]
fn a_failure_that_may_pass_is_repeated_until_it_does() {
    let server = Server::start(Answer::Fail(tonic::Code::Unavailable));
    let exporter = Exporter::start(&server.url(), PATIENT).unwrap();
    exporter.offer(numbered(1));
    until("retries", || exporter.stats().retried >= 2);
    server.say(Answer::Take);
    until("sent", || exporter.stats().sent == 1);
    let stats = exporter.shutdown(Duration::from_secs(60));
    assert_eq!((stats.sent, stats.failed), (1, 0));
}

#[test]
fn an_endpoint_that_cannot_be_served_is_refused_with_its_name() {
    let refused = |endpoint: &str| Exporter::start(endpoint, PATIENT).err().unwrap();
    let tls = refused("https://user:secret@collector:4317/x");
    assert!(matches!(tls, StartError::Tls { .. }));
    assert!(
        tls.to_string().contains("https://collector:4317") && !tls.to_string().contains("secret")
    );
    for endpoint in ["", "localhost:4317", "collector", "ftp://collector:4317", "http://"] {
        assert!(matches!(refused(endpoint), StartError::Endpoint { .. }), "{endpoint}");
    }
}

#[test]
fn waits_double_up_to_the_longest_and_keep_at_least_half() {
    let pace = Pace::default();
    for failures in 1..200 {
        let full = pace.first_wait * 2_u32.pow((failures - 1).min(10));
        let full = full.min(pace.longest_wait);
        let wait = backoff(pace, failures);
        assert!(wait <= full && wait >= full / 2, "{failures}: {wait:?} of {full:?}");
    }
}
