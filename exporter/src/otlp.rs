//! The OTLP client: sends what a [`Feed`] has, by gRPC or HTTP, and never makes anybody wait.
//!
//! One OS thread with a single-threaded runtime and one request in flight. A poke says that there is something new; when
//! the line is free the thread asks the feed for all of it, so there is no queue. What fails for a reason that may pass
//! (OTLP specification, "Failures") is tried again with exponential backoff and jitter, or when the server asks for it.
//! What is refused never holds up anything else.
//!
//! | file | is |
//! |---|---|
//! | `feed` | what is sent, and who has it |
//! | `settings`, `pace` | where to and how; how patiently |
//! | `courier` | the thread: shipments, parts, retries, halves |
//! | `request`, `part` | a request: its size and its halves; its bytes |
//! | `line`, `tls` | the connection |
//! | `grpc`, `http`, `verdict` | the two protocols: headers, and what an answer means |
//! | `stats`, `health`, `own` | what became of it: counts, log lines, metrics |

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

mod courier;
pub mod feed;
mod grpc;
mod health;
mod http;
mod line;
mod own;
mod pace;
mod part;
pub(crate) mod request;
mod settings;
mod stats;
#[cfg(test)]
mod tests;
mod tls;
mod verdict;

pub use feed::{Fate, Feed, Shipment};
pub use pace::Pace;
pub use part::Packed;
pub use request::Request;
pub use settings::Settings;
pub use stats::Stats;
pub use tls::TlsError;

use courier::Courier;

/// Encoded bytes of a shipment; parts beyond it are refused. It bounds what the client holds.
pub const SHIPMENT_BYTES: usize = 64 << 20;

/// Why there is no exporter.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The endpoint is no URL.
    #[error("OTLP endpoint {endpoint:?} is not a URL like http://localhost:4317")]
    Endpoint {
        /// As given.
        endpoint: String,
    },
    /// The endpoint wants TLS, and a file for it cannot be used.
    #[error("prepare TLS for {place}")]
    Tls {
        /// Scheme, host and port.
        place: String,
        /// What is wrong.
        #[source]
        source: TlsError,
    },
    /// The runtime or its thread does not start.
    #[error("start the OTLP thread")]
    Thread(#[source] std::io::Error),
}

/// Sends a feed's shipments to one endpoint.
pub struct Exporter {
    orders: watch::Sender<Order>,
    stats: watch::Receiver<Stats>,
    thread: std::thread::JoinHandle<()>,
}

/// What the thread is told.
#[derive(Clone)]
struct Order {
    /// How often there was something new.
    pokes: u64,
    /// Where to and how.
    settings: Arc<Settings>,
    /// Until when everything must have ended.
    stop: Option<Instant>,
}

impl Exporter {
    /// Starts the thread. Nothing is connected yet: the endpoint may be absent now and come later.
    ///
    /// # Errors
    /// When files of TLS cannot be used, or the thread does not start.
    pub fn start<F: Feed + 'static>(settings: Settings, feed: F) -> Result<Self, StartError> {
        let settings = Arc::new(settings.proved()?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(StartError::Thread)?;
        let order = Order { pokes: 0, settings: Arc::clone(&settings), stop: None };
        let (orders, told) = watch::channel(order);
        let (counts, stats) = watch::channel(Stats::default());
        // The thread logs to where its starter does.
        let log = tracing::dispatcher::get_default(Clone::clone);
        let run = move || {
            let _log = tracing::dispatcher::set_default(&log);
            runtime.block_on(Courier::new(settings, feed, told, counts).run());
            // A name lookup under way cannot be cancelled and must not hold up the end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(run);
        Ok(Self { orders, stats, thread: thread.map_err(StartError::Thread)? })
    }

    /// Says that the feed has something new. Never blocks.
    pub fn poke(&self) {
        self.orders.send_modify(|order| order.pokes += 1);
    }

    /// Sends by other settings from now on; the client's own metrics stay as they are. Parts that are not delivered go
    /// the new way, the one that waits for its answer after it; what was delivered is not sent again.
    ///
    /// # Errors
    /// When files of TLS cannot be used; then nothing changes.
    pub fn change(&self, settings: Settings) -> Result<(), StartError> {
        let settings = Arc::new(settings.proved()?);
        self.orders.send_modify(|order| order.settings = settings);
        Ok(())
    }

    /// What became of everything so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.stats.borrow()
    }

    /// Whether its thread has ended, behind which nothing is counted.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Tries once more to deliver all that the feed has, for at most `within`, and ends the thread. Waits for neither.
    pub fn leave(&self, within: Duration) {
        self.orders.send_modify(|order| order.stop = Some(Instant::now() + within));
    }

    /// The same, and waits for it.
    #[must_use]
    pub fn shutdown(self, within: Duration) -> Stats {
        self.leave(within);
        if self.thread.join().is_err() {
            tracing::error!("the OTLP thread panicked");
        }
        *self.stats.borrow()
    }
}
