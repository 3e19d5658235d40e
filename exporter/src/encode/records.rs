//! Exemplars once more, as log records: what a backend without exemplars of metrics can keep.
//!
//! A record is an event (`memprov.exemplar`): its text names metric and value, its attributes are those of the series and
//! of the exemplar. The records of a pane are made with it. What is not delivered waits, within a bound; what finds no
//! room is counted.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::logs::v1::{ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::proto::{record, scope};
use super::rows::{Amount, Rows};
use super::series::{Pane, Sum};
use crate::otlp::{Fate, Feed, Request, Shipment};

/// Encoded bytes that wait at most.
const WAITING: usize = 4 << 20;

/// What became of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mirrored {
    /// They arrived.
    pub delivered: u64,
    /// The receiver left them out.
    pub rejected: u64,
    /// They were given up, or found no room.
    pub refused: u64,
}

/// The records of one resource in one pane; `None` without any.
pub(super) fn of_pane(
    resource: &Resource,
    rows: &Rows,
    pane: Pane,
    support: &str,
) -> Option<ResourceLogs> {
    let mut log_records = Vec::new();
    for (metric, points) in rows.0.values() {
        for (attributes, amount) in points {
            let (Amount::Added(Sum::Histogram(histogram)) | Amount::Observed(histogram)) = amount
            else {
                continue;
            };
            let inside = histogram.exemplars.within(pane.begin, pane.end);
            log_records
                .extend(inside.map(|one| record(metric, attributes, one, support, pane.end)));
        }
    }
    if log_records.is_empty() {
        return None;
    }
    let scope_logs = vec![ScopeLogs { scope: Some(scope()), log_records, ..Default::default() }];
    Some(ResourceLogs { resource: Some(resource.clone()), scope_logs, ..Default::default() })
}

/// Records on their way to the client.
#[derive(Clone, Debug, Default)]
pub struct Records(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Debug, Default)]
struct Waiting {
    request: Request,
    /// Encoded bytes of it.
    size: usize,
    number: u64,
    under_way: bool,
    dropped: u64,
}

impl Waiting {
    fn pending(&self) -> bool {
        self.under_way || self.request.points() > 0
    }
}

impl Records {
    /// Adds the records of a pane, if there is room.
    pub fn offer(&self, request: Request) {
        let mut waiting = self.lock();
        let size = waiting.size + request.size();
        if size <= WAITING {
            waiting.request.append(request);
            waiting.size = size;
        } else {
            waiting.dropped += request.points() as u64;
        }
    }

    /// How many found no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Waits until the fate of all that was offered is known; whether it is `within` the time.
    #[must_use]
    pub fn settled(&self, within: Duration) -> bool {
        let pending = |waiting: &mut Waiting| waiting.pending();
        let waited = self.0.1.wait_timeout_while(self.lock(), within, pending);
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !waiting.pending()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed for Records {
    fn next(&mut self) -> Option<Shipment> {
        let mut waiting = self.lock();
        if waiting.under_way || waiting.request.points() == 0 {
            return None;
        }
        waiting.number += 1;
        waiting.under_way = true;
        waiting.size = 0;
        let parts = vec![std::mem::take(&mut waiting.request)];
        Some(Shipment { number: waiting.number, parts, replaceable: false })
    }

    fn settle(&mut self, _number: u64, _fate: Fate) {
        self.lock().under_way = false;
        self.0.1.notify_all();
    }
}
