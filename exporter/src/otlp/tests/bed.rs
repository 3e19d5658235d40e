//! What the tests share: an outbox for a feed, two servers, a log to look into.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, Once};
use std::thread::JoinHandle;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric::Data,
};
use prost::Message;
use tokio::sync::{oneshot, watch};
use tonic::codec::CompressionEncoding;
use tonic::transport::ServerTlsConfig;
use tonic::{Request, Response, Status};

use crate::config::{Compression, Export, Protocol};
use crate::otlp::{Exporter, Fate, Feed, Pace, Settings, Shipment};
use crate::report::Identity;

pub(super) const LONG: Duration = Duration::from_secs(60);

/// Waits long for answers and short between attempts; sends at once; has no metrics of its own.
pub(super) fn settings(url: &str, protocol: Protocol) -> Settings {
    configured(&Export { endpoint: url.to_owned(), protocol, ..Export::default() })
}

pub(super) fn configured(export: &Export) -> Settings {
    let mut settings = Settings::new(export, &Identity::default()).unwrap();
    settings.pace = Pace {
        timeout: LONG,
        first_wait: Duration::from_millis(5),
        longest_wait: Duration::from_millis(20),
        phase: Duration::ZERO,
    };
    settings.agent = None;
    settings
}

/// A request of `points` points of the metric `name`.
pub(super) fn request(name: &str, points: u64) -> ExportMetricsServiceRequest {
    let point = |n| NumberDataPoint { time_unix_nano: n, ..Default::default() };
    let data = Some(Data::Gauge(Gauge { data_points: (1..=points).map(point).collect() }));
    let metrics = vec![Metric { name: name.to_owned(), data, ..Default::default() }];
    let scope_metrics = vec![ScopeMetrics { metrics, ..Default::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..Default::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

/// Name of the metric and time of each point.
pub(super) fn points(requests: &[ExportMetricsServiceRequest]) -> Vec<(String, u64)> {
    let scopes = requests.iter().flat_map(|r| &r.resource_metrics).flat_map(|r| &r.scope_metrics);
    let mut found = Vec::new();
    for metric in scopes.flat_map(|scope| &scope.metrics) {
        if let Some(Data::Gauge(gauge)) = &metric.data {
            found.extend(gauge.data_points.iter().map(|p| (metric.name.clone(), p.time_unix_nano)));
        }
    }
    found
}

/// A feed that a test fills. Of shipments that may be replaced only the newest is given.
#[derive(Clone, Default)]
pub(super) struct Outbox(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    waiting: VecDeque<Shipment>,
    fates: Vec<(u64, Fate)>,
}

impl Outbox {
    pub(super) fn put(&self, exporter: &Exporter, shipment: Shipment) {
        self.0.lock().unwrap().waiting.push_back(shipment);
        exporter.poke();
    }

    /// One cumulative request as a shipment.
    pub(super) fn send(
        &self,
        exporter: &Exporter,
        number: u64,
        request: ExportMetricsServiceRequest,
    ) {
        self.put(exporter, Shipment { number, parts: vec![request.into()], replaceable: true });
    }

    pub(super) fn fates(&self) -> Vec<(u64, Fate)> {
        self.0.lock().unwrap().fates.clone()
    }
}

impl Feed for Outbox {
    fn next(&mut self) -> Option<Shipment> {
        let waiting = &self.0.lock().unwrap().waiting;
        let newest = waiting.back().filter(|shipment| shipment.replaceable);
        newest.or(waiting.front()).cloned()
    }

    fn settle(&mut self, number: u64, fate: Fate) {
        let mut contents = self.0.lock().unwrap();
        contents.fates.push((number, fate));
        contents.waiting.retain(|shipment| shipment.number > number);
    }
}

/// Starts an exporter in a process that logs, if to nowhere: a line that is first met where nobody listens can be taken
/// for one that nobody wants, by all threads.
pub(super) fn start(settings: Settings) -> (Outbox, Exporter) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let nowhere = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        // Another one that is there already does as well.
        let _already = tracing::subscriber::set_global_default(nowhere);
    });
    let outbox = Outbox::default();
    (outbox.clone(), Exporter::start(settings, outbox).unwrap())
}

/// What the gRPC server does with each request.
#[derive(Clone)]
pub(super) enum Answer {
    Take,
    Reject(i64, &'static str),
    Fail(Status),
    /// Takes requests up to so many bytes, and says of longer ones that it is exhausted.
    Limit(usize),
    /// Refuses requests that have a metric of this name.
    Dislike(&'static str),
    Hang,
}

#[derive(Clone)]
struct Sink {
    answer: watch::Receiver<Answer>,
    calls: watch::Sender<Vec<ExportMetricsServiceRequest>>,
    headers: watch::Sender<tonic::metadata::MetadataMap>,
}

#[tonic::async_trait]
impl MetricsService for Sink {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.headers.send_replace(request.metadata().clone());
        let request = request.into_inner();
        let (bytes, names) = (request.encoded_len(), points(std::slice::from_ref(&request)));
        self.calls.send_modify(|calls| calls.push(request));
        let mut answer = self.answer.clone();
        let answer =
            answer.wait_for(|answer| !matches!(answer, Answer::Hang)).await.unwrap().clone();
        let partial_success = match answer {
            Answer::Reject(rejected_data_points, message) => Some(ExportMetricsPartialSuccess {
                rejected_data_points,
                error_message: message.to_owned(),
            }),
            Answer::Fail(status) => return Err(status),
            Answer::Limit(limit) if bytes > limit => {
                return Err(Status::resource_exhausted("message larger than max"));
            }
            Answer::Dislike(name) if names.iter().any(|(n, _)| n == name) => {
                return Err(Status::invalid_argument("unknown metric"));
            }
            Answer::Take | Answer::Hang | Answer::Limit(_) | Answer::Dislike(_) => None,
        };
        Ok(Response::new(ExportMetricsServiceResponse { partial_success }))
    }
}

/// A gRPC server; it ends when dropped.
pub(super) struct Grpc {
    pub(super) address: SocketAddr,
    answer: watch::Sender<Answer>,
    calls: watch::Receiver<Vec<ExportMetricsServiceRequest>>,
    headers: watch::Receiver<tonic::metadata::MetadataMap>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Grpc {
    pub(super) fn start(answer: Answer) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), answer, None)
    }

    pub(super) fn start_at(
        address: SocketAddr,
        answer: Answer,
        tls: Option<ServerTlsConfig>,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, answers) = watch::channel(answer);
        let (sender, calls) = watch::channel(Vec::new());
        let (seen, headers) = watch::channel(tonic::metadata::MetadataMap::new());
        let (stop, stopped) = oneshot::channel::<()>();
        let sink = Sink { answer: answers, calls: sender, headers: seen };
        let service = MetricsServiceServer::new(sink)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let mut server = tonic::transport::Server::builder();
                if let Some(tls) = tls {
                    server = server.tls_config(tls).unwrap();
                }
                let serve = server
                    .add_service(service)
                    .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener));
                tokio::select! {
                    served = serve => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self { address, answer, calls, headers, stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn received(&self) -> Vec<ExportMetricsServiceRequest> {
        self.calls.borrow().clone()
    }

    /// A header of the last request.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.borrow().get(name)?.to_str().unwrap().to_owned())
    }

    pub(super) fn say(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }
}

impl Drop for Grpc {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A request as the HTTP server sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The request line and the headers, in lower case.
    pub(super) head: Vec<String>,
    pub(super) body: Vec<u8>,
}

/// What the HTTP server answers: bytes, or nothing and the connection is closed.
pub(super) type Say = dyn Fn(&Seen) -> Option<Vec<u8>> + Send + Sync;

/// An HTTP/1.1 server. Its threads end with the test process.
pub(super) struct Http {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Http {
    pub(super) fn start(say: impl Fn(&Seen) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self::start_with(None, say)
    }

    pub(super) fn start_with(
        tls: Option<Arc<rustls::ServerConfig>>,
        say: impl Fn(&Seen) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (kept, say): (_, Arc<Say>) = (Arc::clone(&seen), Arc::new(say));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, tls) = (stream.unwrap(), tls.clone());
                let (kept, say) = (Arc::clone(&kept), Arc::clone(&say));
                std::thread::spawn(move || match tls {
                    None => talk(stream, &kept, &*say),
                    Some(tls) => {
                        let session = rustls::ServerConnection::new(tls).unwrap();
                        talk(rustls::StreamOwned::new(session, stream), &kept, &*say)
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// Reads requests of one connection and answers; what goes wrong is the client's to tell.
fn talk(stream: impl Read + Write, kept: &Mutex<Vec<Seen>>, say: &Say) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut seen = Seen::default();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim().to_lowercase();
            if line.is_empty() {
                break;
            }
            seen.head.push(line);
        }
        let length = seen.head.iter().find_map(|line| line.strip_prefix("content-length: "));
        seen.body = vec![0; length?.parse().ok()?];
        stream.read_exact(&mut seen.body).ok()?;
        let answer = say(&seen);
        kept.lock().unwrap().push(seen);
        stream.get_mut().write_all(&answer?).ok()?;
        stream.get_mut().flush().ok()?;
    }
}

/// Where somebody says the same to whoever connects, without listening.
pub(super) fn shouts(text: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Whether it can be written is the client's to tell.
            drop(stream.and_then(|mut stream| stream.write_all(text)));
        }
    });
    address
}

/// An answer of HTTP.
pub(super) fn says(status: &str, headers: &str, body: &[u8]) -> Option<Vec<u8>> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
    Some([head.as_bytes(), body].concat())
}

/// A success that leaves nothing out.
pub(super) fn takes() -> Option<Vec<u8>> {
    says("200 OK", "content-type: application/x-protobuf\r\n", &[])
}

pub(super) fn decompressed(seen: &Seen, compression: Compression) -> Vec<u8> {
    let mut plain = Vec::new();
    match compression {
        Compression::None => plain.clone_from(&seen.body),
        Compression::Gzip => {
            flate2::read::GzDecoder::new(&seen.body[..]).read_to_end(&mut plain).unwrap();
        }
        Compression::Zstd => plain = zstd::decode_all(&seen.body[..]).unwrap(),
    }
    plain
}

/// Waits for what must come; a test that waits a minute has failed.
pub(super) fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}

/// An address at which nobody listens: bound once, to make it free, and closed again.
pub(super) fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Log lines of the exporters started while it is the default.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(super) fn keep(&self) -> tracing::subscriber::DefaultGuard {
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

    pub(super) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}
