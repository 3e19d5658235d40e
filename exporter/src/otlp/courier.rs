//! The client's thread: fetches a shipment when the line is free, sends its parts one after the other, and tells the
//! shipment's fate.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::feed::{Fate, Feed, Shipment};
use super::health::{Health, Outcome};
use super::line::Line;
use super::own::Own;
use super::part::Packed;
use super::request::Request;
use super::settings::Settings;
use super::stats::Stats;
use super::verdict::{Failure, Verdict};
use super::{Order, SHIPMENT_BYTES};
use crate::logging::chain;

/// The thread's state.
pub(super) struct Courier<F> {
    settings: Arc<Settings>,
    feed: F,
    orders: watch::Receiver<Order>,
    counts: watch::Sender<Stats>,
    health: Health,
    own: Option<Own>,
    /// None after a failure of the connection: a new one reads certificates anew, and one whose other end vanished would
    /// swallow every attempt until TCP gives up.
    line: Option<Line>,
    /// Encoded bytes that the server is known to take.
    limit: usize,
    /// Failures in a row, whichever shipment they met.
    failures: u32,
}

/// A request on its way.
struct Part {
    request: Request,
    points: u64,
    /// Encoded bytes.
    size: usize,
    /// The client's own metrics: that they arrive says nothing of the shipment.
    own: bool,
}

impl Part {
    fn new(request: Request, own: bool) -> Self {
        let (points, size) = (request.points() as u64, request.size());
        Self { request, points, size, own }
    }
}

impl<F: Feed> Courier<F> {
    pub(super) fn new(
        settings: Arc<Settings>,
        feed: F,
        orders: watch::Receiver<Order>,
        counts: watch::Sender<Stats>,
    ) -> Self {
        let health = Health::new(settings.place.clone());
        let own = settings.agent.as_ref();
        let own = own.map(|(resource, kind)| Own::new(resource, *kind, &counts.subscribe()));
        let limit = settings.max_request;
        Self { settings, feed, orders, counts, health, own, line: None, limit, failures: 0 }
    }

    /// Works until it is told to stop; then everything is tried once more.
    pub(super) async fn run(mut self) {
        let mut done = 0;
        loop {
            let stop = |order: &Order| order.stop.is_some();
            let poked = self.orders.wait_for(|order| order.pokes > done || stop(order)).await;
            // An error says that the exporter is gone without a word, which is the end too.
            let goes_on = poked.is_ok_and(|order| !stop(&order));
            self.take_over();
            if goes_on {
                let phase = self.settings.pace.phase;
                if tokio::time::timeout(phase, self.orders.wait_for(stop)).await.is_err() {
                    done = self.orders.borrow_and_update().pokes;
                }
            }
            while let Some(shipment) = self.feed.next() {
                let number = shipment.number;
                let fate = self.ship(shipment).await;
                self.feed.settle(number, fate);
            }
            if self.stopping() {
                return;
            }
        }
    }

    fn stopping(&self) -> bool {
        self.orders.borrow().stop.is_some() || self.orders.has_changed().is_err()
    }

    /// Goes by other settings, if there are any.
    fn take_over(&mut self) {
        let settings = Arc::clone(&self.orders.borrow().settings);
        if !Arc::ptr_eq(&settings, &self.settings) {
            self.health = Health::new(settings.place.clone());
            (self.line, self.limit, self.failures) = (None, settings.max_request, 0);
            self.settings = settings;
        }
    }

    fn count(&self, change: impl FnOnce(&mut Stats)) {
        self.counts.send_modify(change);
    }

    async fn ship(&mut self, shipment: Shipment) -> Fate {
        let fetched = self.orders.borrow().pokes;
        let mut outcome = Outcome::default();
        let empty = shipment.parts.is_empty();
        let mut waiting = self.admit(shipment.parts, &mut outcome);
        let mut halving = true;
        let mut fate = None;
        while let Some(part) = waiting.pop() {
            self.take_over();
            let size = part.size;
            if halving && size > self.limit {
                self.halve(part, &mut waiting, &mut outcome, "longer than export.max_request");
                continue;
            }
            let failure = match self.attempt(&part, &mut outcome).await {
                Ok(()) => continue,
                Err(failure) => failure,
            };
            match failure {
                Failure::Lasting(why) => self.refuse(&part, &mut outcome, why),
                // A single point is not too large: the server is out of something else, and halves would not help.
                Failure::TooLarge(why) if halving && part.points < 2 => {
                    halving = false;
                    self.limit = self.settings.max_request;
                    self.refuse(&part, &mut outcome, why);
                }
                Failure::TooLarge(why) if halving => {
                    self.limit = size / 4 * 3;
                    self.count(|stats| stats.retries += 1);
                    self.halve(part, &mut waiting, &mut outcome, &why);
                }
                Failure::TooLarge(why) => self.refuse(&part, &mut outcome, why),
                Failure::Passing { why, after } => {
                    self.line = None;
                    self.health.down(&why);
                    self.failures = self.failures.saturating_add(1);
                    waiting.push(part);
                    if self.stopping() {
                        self.give_up(&waiting);
                        break;
                    }
                    self.count(|stats| stats.retries += 1);
                    let pause = self.settings.pace.wait(self.failures, after);
                    let settings = &self.settings;
                    let early = |order: &Order| {
                        order.stop.is_some() || !Arc::ptr_eq(&order.settings, settings)
                    };
                    // Ends early when it is the end, for one more attempt, or when there is another way.
                    drop(tokio::time::timeout(pause, self.orders.wait_for(early)).await);
                    if shipment.replaceable && self.orders.borrow().pokes > fetched {
                        let points: u64 = waiting.iter().map(|part| part.points).sum();
                        self.count(|stats| {
                            stats.replaced += 1;
                            stats.replaced_points += points;
                        });
                        fate = Some(Fate::Replaced);
                        break;
                    }
                }
            }
        }
        self.health.shipped(&outcome);
        let settled = if outcome.delivered || empty { Fate::Delivered } else { Fate::Refused };
        fate.unwrap_or(settled)
    }

    /// The parts, next one last, and the client's own metrics after them. What is beyond the bound is refused.
    fn admit(&self, parts: Vec<Request>, outcome: &mut Outcome) -> Vec<Part> {
        let mut room = SHIPMENT_BYTES;
        let mut waiting = Vec::new();
        let own = self.own.as_ref().and_then(Own::collect);
        let parts = parts.into_iter().map(|part| Part::new(part, false));
        for part in parts.chain(own.map(|own| Part::new(own, true))) {
            match room.checked_sub(part.size) {
                Some(left) => {
                    room = left;
                    waiting.push(part);
                }
                None => {
                    let why = format!("a shipment of more than {SHIPMENT_BYTES} bytes");
                    self.refuse(&part, outcome, why);
                }
            }
        }
        waiting.reverse();
        waiting
    }

    /// One attempt, unless the end comes first.
    async fn attempt(&mut self, part: &Part, outcome: &mut Outcome) -> Result<(), Failure> {
        let packed = Packed::new(&part.request, self.settings.compression)
            .map_err(|error| Failure::Lasting(format!("compress a request: {error}")))?;
        let line = match self.line.take() {
            Some(line) => line,
            None => Line::open(&self.settings).map_err(|error| Failure::passing(chain(&error)))?,
        };
        let begin = Instant::now();
        let verdict = tokio::select! {
            verdict = line.send(&packed) => verdict,
            () = end(self.orders.clone()) => Failure::passing("no answer before the end").into(),
        };
        self.line = Some(line);
        if let Some(own) = &self.own {
            own.took(begin.elapsed());
        }
        match verdict {
            Verdict::Failed(failure) => Err(failure),
            Verdict::Taken { rejected, message } => {
                self.failures = 0;
                let rejected = rejected.min(part.points);
                self.count(|stats| {
                    stats.sent += 1;
                    stats.bytes += packed.len();
                    stats.delivered_points += part.points - rejected;
                    stats.rejected_points += rejected;
                });
                outcome.delivered |= !part.own;
                outcome.rejected += rejected;
                if outcome.message.is_empty() {
                    outcome.message = message;
                }
                Ok(())
            }
        }
    }

    fn halve(&self, part: Part, waiting: &mut Vec<Part>, outcome: &mut Outcome, why: &str) {
        match part.request.halves() {
            Ok(halves) => {
                waiting.extend([halves.1, halves.0].map(|half| Part::new(half, part.own)));
            }
            Err(request) => self.refuse(&Part { request, ..part }, outcome, why.to_owned()),
        }
    }

    fn refuse(&self, part: &Part, outcome: &mut Outcome, why: String) {
        self.give_up(std::slice::from_ref(part));
        outcome.refused.get_or_insert(why);
    }

    /// Counts parts that are never sent again.
    fn give_up(&self, parts: &[Part]) {
        let points: u64 = parts.iter().map(|part| part.points).sum();
        self.count(|stats| {
            stats.refused += parts.len() as u64;
            stats.refused_points += points;
        });
    }
}

/// Ends when the exporter's time is over.
async fn end(mut orders: watch::Receiver<Order>) {
    let stop =
        orders.wait_for(|order| order.stop.is_some()).await.ok().and_then(|order| order.stop);
    if let Some(stop) = stop {
        tokio::time::sleep_until(stop).await;
    }
}
