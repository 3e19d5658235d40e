//! OTLP over gRPC: sends the newest totals, and never makes anybody wait.
//!
//! One OS thread with a single-threaded runtime. There is room for one request that waits and one on its way: all
//! sums are cumulative, so a newer request says everything an older one said, and replaces it. What fails for a
//! reason that may pass (OTLP specification, "Failures") is tried again with exponential backoff and jitter until it
//! is replaced. A part that was delivered is not sent again.
//!
//! Of the requests offered, each is in the end either sent, failed or superseded: [`Stats`] adds up.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::encode;

pub mod feed;
mod health;
#[cfg(test)]
mod tests;

use health::Health;

/// Encoded bytes of one message: below the 4 MiB that a gRPC server takes unless told otherwise.
const MESSAGE_BYTES: usize = 3 << 20;

/// How patient the exporter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// For one answer, connecting included.
    pub timeout: Duration,
    /// Wait after the first failure; it doubles with each further one, less up to half of it at random.
    pub first_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
        }
    }
}

/// What became of the requests offered so far. `sent + failed + superseded` is all of them but for at most two: one
/// waiting and one on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests delivered whole.
    pub sent: u64,
    /// Requests given up: refused for good, or not delivered before the end.
    pub failed: u64,
    /// Requests replaced by a newer one before they were delivered.
    pub superseded: u64,
    /// Points that the server took the request without.
    pub rejected_points: u64,
    /// Attempts that failed and were to be repeated.
    pub retried: u64,
}

/// Why there is no exporter.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The endpoint is no URL.
    #[error("OTLP endpoint {endpoint:?} is not a URL like http://localhost:4317")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it; none where only the host or the scheme is missing.
        #[source]
        source: Option<tonic::transport::Error>,
    },
    /// The endpoint asks for TLS.
    #[error(
        "OTLP endpoint {place}: TLS is not supported; use http:// to a collector on this host, and TLS from there"
    )]
    Tls {
        /// Scheme, host and port.
        place: String,
    },
    /// The runtime or its thread does not start.
    #[error("start the OTLP thread")]
    Thread(#[source] std::io::Error),
}

/// Sends requests to one endpoint.
pub struct Exporter {
    mailbox: watch::Sender<Mail>,
    stats: watch::Receiver<Stats>,
    thread: std::thread::JoinHandle<()>,
}

/// The newest request. `number` counts the requests offered.
#[derive(Clone, Default)]
struct Mail {
    number: u64,
    request: Arc<ExportMetricsServiceRequest>,
    stop: Option<Instant>,
}

impl Exporter {
    /// Starts the thread. Nothing is connected yet: the endpoint may be absent now and come later.
    ///
    /// # Errors
    /// When the endpoint is not `http://host:port`, or the thread does not start.
    pub fn start(endpoint: &str, pace: Pace) -> Result<Self, StartError> {
        let (endpoint, place) = parse(endpoint)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(StartError::Thread)?;
        let (mailbox, mail) = watch::channel(Mail::default());
        let (counts, stats) = watch::channel(Stats::default());
        // The thread logs to where its starter does.
        let log = tracing::dispatcher::get_default(Clone::clone);
        let run = move || {
            let _log = tracing::dispatcher::set_default(&log);
            runtime.block_on(async {
                let client = connect(&endpoint);
                let health = Health::new(place);
                let last = Arc::default();
                Courier { endpoint, pace, client, mail, counts, health, done: 0, last }.run().await;
            });
            // A name lookup under way cannot be cancelled and must not hold up the end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(run);
        Ok(Self { mailbox, stats, thread: thread.map_err(StartError::Thread)? })
    }

    /// Hands over the newest totals. Never blocks; whatever still waits is superseded.
    pub fn offer(&self, request: ExportMetricsServiceRequest) {
        let request = Arc::new(request);
        self.mailbox.send_modify(|mail| {
            mail.number += 1;
            mail.request = request;
        });
    }

    /// What became of the requests so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.stats.borrow()
    }

    /// Tries once more to deliver what waits, for at most `within`, and ends the thread.
    #[must_use]
    pub fn shutdown(self, within: Duration) -> Stats {
        self.mailbox.send_modify(|mail| mail.stop = Some(Instant::now() + within));
        if self.thread.join().is_err() {
            tracing::error!("the OTLP thread panicked");
        }
        *self.stats.borrow()
    }
}

/// The endpoint, and what messages call it: without user, password and path.
fn parse(text: &str) -> Result<(Endpoint, String), StartError> {
    let invalid = |source| StartError::Endpoint { endpoint: text.to_owned(), source };
    let endpoint = Endpoint::from_shared(text.to_owned()).map_err(|e| invalid(Some(e)))?;
    let uri = endpoint.uri();
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(invalid(None));
    };
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    let place = format!("{scheme}://{host}{port}");
    match scheme {
        "http" => Ok((endpoint, place)),
        "https" => Err(StartError::Tls { place }),
        _ => Err(invalid(None)),
    }
}

fn connect(endpoint: &Endpoint) -> MetricsServiceClient<Channel> {
    MetricsServiceClient::new(endpoint.connect_lazy())
}

/// The thread's side.
struct Courier {
    endpoint: Endpoint,
    pace: Pace,
    client: MetricsServiceClient<Channel>,
    mail: watch::Receiver<Mail>,
    counts: watch::Sender<Stats>,
    health: Health,
    /// Number of the last request that was dealt with.
    done: u64,
    /// The last request that was delivered.
    last: Arc<ExportMetricsServiceRequest>,
}

/// A request on its way.
struct Parcel {
    number: u64,
    request: Arc<ExportMetricsServiceRequest>,
    /// What is not delivered yet, next one last.
    parts: Vec<(Arc<ExportMetricsServiceRequest>, Range<usize>)>,
    failures: u32,
}

enum Failure {
    /// May pass.
    Passing(String),
    /// Repeating it is no use.
    Lasting(String),
}

impl Courier {
    async fn run(mut self) {
        let mut waiting: Option<Parcel> = None;
        loop {
            let stopping = self.wait(waiting.as_ref()).await;
            let mail = self.mail.borrow_and_update().clone();
            if waiting.as_ref().map_or(self.done, |parcel| parcel.number) < mail.number {
                let failures = waiting.map_or(0, |parcel| parcel.failures);
                waiting = Some(self.pack(mail, failures));
            }
            let Some(mut parcel) = waiting.take() else { return };
            match self.deliver(&mut parcel).await {
                Ok(()) => {
                    self.settle(parcel.number, |stats| &mut stats.sent);
                    self.last = parcel.request;
                }
                Err(Failure::Passing(why)) => {
                    self.health.down(&why);
                    if stopping {
                        self.settle(parcel.number, |stats| &mut stats.failed);
                    } else {
                        self.counts.send_modify(|stats| stats.retried += 1);
                        parcel.failures = parcel.failures.saturating_add(1);
                        waiting = Some(parcel);
                    }
                }
                Err(Failure::Lasting(why)) => {
                    self.health.refused(&why);
                    self.settle(parcel.number, |stats| &mut stats.failed);
                }
            }
        }
    }

    /// Waits until it is time for an attempt, or for the end; says whether it is the end.
    async fn wait(&mut self, waiting: Option<&Parcel>) -> bool {
        let done = self.done;
        match waiting {
            None => {
                let work = self.mail.wait_for(|mail| mail.number > done || mail.stop.is_some());
                work.await.map_or(true, |mail| mail.stop.is_some())
            }
            Some(parcel) => {
                let pause = backoff(self.pace, parcel.failures);
                let stop = self.mail.wait_for(|mail| mail.stop.is_some());
                // An error of `stop` says that the exporter is gone without a word, which is the end too.
                tokio::time::timeout(pause, stop).await.is_ok()
            }
        }
    }

    /// Series that ended since the last delivery go last, so that their ends cannot overtake what replaces them.
    fn pack(&self, mail: Mail, failures: u32) -> Parcel {
        let ended = Arc::new(encode::ended(&self.last, &mail.request));
        let mut parts = Vec::new();
        for message in [&mail.request, &ended] {
            let ranges = encode::split(message, MESSAGE_BYTES);
            parts.extend(ranges.into_iter().map(|range| (Arc::clone(message), range)));
        }
        parts.reverse();
        Parcel { number: mail.number, request: mail.request, parts, failures }
    }

    async fn deliver(&mut self, parcel: &mut Parcel) -> Result<(), Failure> {
        let mut refused = 0;
        let mut reason = String::new();
        while let Some((message, range)) = parcel.parts.last() {
            let resources = message.resource_metrics.get(range.clone()).unwrap_or_default();
            let part = ExportMetricsServiceRequest { resource_metrics: resources.to_vec() };
            let (points, why) = self.send(part).await?;
            self.counts.send_modify(|stats| stats.rejected_points += points);
            refused += points;
            if reason.is_empty() {
                reason = why;
            }
            parcel.parts.pop();
        }
        self.health.delivered(refused, &reason);
        Ok(())
    }

    /// One attempt. Returns how many points the server left out, and why.
    async fn send(&mut self, part: ExportMetricsServiceRequest) -> Result<(u64, String), Failure> {
        let timeout = self.pace.timeout;
        let mut call = tonic::Request::new(part);
        call.set_timeout(timeout);
        let answer = tokio::select! {
            answer = tokio::time::timeout(timeout, self.client.export(call)) => answer,
            () = end(self.mail.clone()) => {
                return Err(Failure::Passing("no answer before the end".to_owned()));
            }
        };
        let failure = match answer {
            Ok(Ok(answer)) => {
                let partial = answer.into_inner().partial_success.unwrap_or_default();
                let points = u64::try_from(partial.rejected_data_points).unwrap_or(0);
                return Ok((points, partial.error_message));
            }
            Ok(Err(status)) => judge(&status),
            Err(_) => Failure::Passing(format!("no answer within {timeout:?}")),
        };
        // A connection whose other end vanished would swallow every attempt until TCP gives up.
        self.client = connect(&self.endpoint);
        Err(failure)
    }

    /// Books request `number`, and those before it that it replaced.
    fn settle(&mut self, number: u64, outcome: fn(&mut Stats) -> &mut u64) {
        let replaced = (number - self.done).saturating_sub(1);
        self.counts.send_modify(|stats| {
            stats.superseded += replaced;
            *outcome(stats) += 1;
        });
        self.done = number;
    }
}

/// Ends when the exporter's time is over.
async fn end(mut mail: watch::Receiver<Mail>) {
    let stop = mail.wait_for(|mail| mail.stop.is_some()).await.ok().and_then(|mail| mail.stop);
    if let Some(stop) = stop {
        tokio::time::sleep_until(stop).await;
    }
}

/// The codes that the OTLP specification calls retryable. `RESOURCE_EXHAUSTED` is, only when the server says when to come
/// back, which is not read: the next request comes anyway.
fn judge(status: &Status) -> Failure {
    let why = health::describe(status);
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Failure::Passing(why),
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::Internal
        | Code::Unauthenticated => Failure::Lasting(why),
    }
}

/// The wait after `failures` in a row: doubling, bounded, and shortened by up to half at random so that the agents of a
/// fleet do not come back together.
fn backoff(pace: Pace, failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let full = pace.first_wait.saturating_mul(doubled).min(pace.longest_wait);
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ());
    let cut = u32::try_from(random % 512).unwrap_or(0);
    full - full / 1024 * cut
}
