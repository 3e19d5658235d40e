//! From reports to OTLP metrics: pure, so that a recording and the live agent ship the same bytes, but for what the
//! agent costs.
//!
//! ```text
//! report ─ group ─ (place, faults) ─ admission ─ rows ─ series ─ view ─ proto ─▶ shipment
//!          whose bytes               who is named  said   life     since   messages
//!                                                   └─ records ─▶ exemplars as logs, on request
//! ```
//!
//! - **Resources.** One per container or systemd unit, one for processes in neither and the sum of all resources beyond
//!   the cap (`service.name` is `host`), and one for the agent and for objects that several address spaces map
//!   (`memprov`). Within a resource equal owners are added up. An address space that several processes share is counted
//!   once.
//! - **Owners add up.** In each resource with processes, over the kinds `anon`, `file` and `shmem`:
//!   `control ≤ Σ resident + joint + skew ≤ control + control_spread`, where Σ runs over all points of
//!   `memprov.memory.resident`: owners, the `remainder`, and `unattributed`.
//! - **Charges add up.** Where a resource is told whole, so do the books of the cgroups that are its own:
//!   `control ≤ Σ charged + skew ≤ control + control_spread` of `memprov.book = charge`.
//! - **Unknown is absent.** A quantity without a number makes no point. Integers are never sent as doubles.
//! - **Time.** Every point of a shipment has the end of the last pane as its time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;

use crate::config;
use crate::otlp::{Fate, Feed, Request, Shipment};
use crate::report::Report;

mod accesses;
mod accumulator;
mod admission;
mod agent;
mod charge;
mod estimate;
mod faults;
mod group;
mod place;
mod places;
mod proto;
mod records;
mod rows;
mod series;
#[cfg(test)]
mod tests;
mod view;
mod words;

pub use accumulator::{Accumulator, Options, Window};
pub use agent::Panes;
pub use estimate::{Estimate, estimate};
pub(crate) use place::unit_of;
pub use records::{Mirrored, Records};
pub use view::Style;

pub use crate::report::Identity;

/// Owners of a resource that are named at [`config::Detail::Kinds`].
const NAMED: usize = 3;

/// Series of a resource at [`config::Detail::Kinds`], at most.
pub const PER_RESOURCE: usize = 18;

/// Series of a resource at [`config::Detail::Kinds`] on a host with several NUMA nodes, at most, beside those.
pub const PLACES: usize = NODES + accesses::LOCALITIES.len();

/// Values of `memprov.numa.node`.
const NODES: usize = places::NODES as usize + 1;

/// Series of a resource at [`config::Detail::Kinds`] of which accesses are sampled, at most, beside those: time and its
/// square by method and locality, latency, outcomes.
pub const ACCESSES: usize = 2 * accesses::METHODS.len() * accesses::LOCALITIES.len() + 1 + OUTCOMES;

/// Series of what became of samples: told of a resource, not of its owners.
const OUTCOMES: usize = accesses::OUTCOMES.len();

/// Series of what a monitor proves of one owner: lower, upper, covered.
const TOUCHED: usize = 3;

/// An accumulator that one thread fills and another one empties.
#[derive(Clone, Debug)]
pub struct Shared(Arc<(Mutex<Accumulator>, Condvar)>);

impl Shared {
    /// Shares an accumulator.
    #[must_use]
    pub fn new(accumulator: Accumulator) -> Self {
        Self(Arc::new((Mutex::new(accumulator), Condvar::new())))
    }

    /// As [`Accumulator::pane`].
    pub fn pane(&self, report: &Report, window: Window) -> Request {
        self.lock().pane(report, window)
    }

    /// As [`Accumulator::mirrored`].
    pub fn mirrored(&self, told: Option<Mirrored>) {
        self.lock().mirrored(told);
    }

    /// As [`Accumulator::close`].
    pub fn close(&self, end: u64) {
        self.lock().close(end);
    }

    /// As [`Accumulator::change`].
    pub fn change(&self, options: Options) {
        self.lock().change(options);
    }

    /// As [`Accumulator::panes`].
    #[must_use]
    pub fn panes(&self) -> Panes {
        self.lock().panes()
    }

    /// Whether a pane was taken in.
    #[must_use]
    pub fn begun(&self) -> bool {
        self.lock().begun()
    }

    /// Waits until all that was taken in has met its fate, for at most `within`. Whether it has.
    #[must_use]
    pub fn settled(&self, within: Duration) -> bool {
        let pending = |series: &mut Accumulator| series.pending();
        let waited = self.0.1.wait_timeout_while(self.lock(), within, pending);
        let (series, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !series.pending()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Accumulator> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed for Shared {
    fn next(&mut self) -> Option<Shipment> {
        self.lock().next()
    }

    fn settle(&mut self, number: u64, fate: Fate) {
        self.lock().settle(number, fate);
        self.0.1.notify_all();
    }
}

impl Accumulator {
    /// Takes in a report and says what would be sent of it: a line of OTLP/JSON for each request.
    #[must_use]
    pub fn json(&mut self, report: &Report, window: Window) -> Vec<String> {
        drop(self.pane(report, window));
        let Some(shipment) = self.next() else { return Vec::new() };
        self.settle(shipment.number, Fate::Delivered);
        let line = |part: &Request| {
            let message: ExportMetricsServiceRequest =
                part.decode().expect("what is made here is a request of metrics");
            serde_json::to_string(&message).expect("OTLP messages have text keys only")
        };
        shipment.parts.iter().map(line).collect()
    }
}

impl Options {
    /// As configured.
    #[must_use]
    pub fn of(config: &config::Config) -> Self {
        let export = &config.export;
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        Self {
            detail: export.detail.clone(),
            grain: export.resources,
            owners: size(export.max_owners),
            resources: size(export.max_resources),
            exemplar_logs: export.exemplar_logs,
            max_age: config.scan.max_age,
            style: Style { temporality: export.temporality(), histograms: export.histograms() },
        }
    }
}
