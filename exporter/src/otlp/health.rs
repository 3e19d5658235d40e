//! What the log says about the endpoint: one line whenever its state changes, none while it stays.

use std::time::Instant;

/// How a shipment went, for the log.
#[derive(Default)]
pub(super) struct Outcome {
    /// Parts were taken.
    pub(super) delivered: bool,
    /// Points that were left out of them, and the server's words.
    pub(super) rejected: u64,
    pub(super) message: String,
    /// Why parts were refused.
    pub(super) refused: Option<String>,
}

/// Turns outcomes into log lines.
pub(super) struct Health {
    place: String,
    state: State,
    /// Whether the server's advice was told in this state.
    advised: bool,
}

enum State {
    /// Nothing was tried yet.
    New,
    Up,
    /// It takes requests, but not all their points.
    Picky,
    /// It will not take some requests, or any.
    Refusing,
    /// It cannot be reached, or not now.
    Down {
        since: Instant,
        failures: u64,
    },
}

impl Health {
    /// `place` names the endpoint in every line.
    pub(super) fn new(place: String) -> Self {
        Self { place, state: State::New, advised: false }
    }

    /// An attempt failed in a way that may pass.
    pub(super) fn down(&mut self, why: &str) {
        if let State::Down { failures, .. } = &mut self.state {
            *failures = failures.saturating_add(1);
            return;
        }
        let place = &self.place;
        tracing::warn!("OTLP to {place} does not work: {why}; it is tried again until it does");
        self.enter(State::Down { since: Instant::now(), failures: 1 });
    }

    /// All parts of a shipment met their fate.
    pub(super) fn shipped(&mut self, outcome: &Outcome) {
        if outcome.delivered {
            self.reached();
        }
        let place = &self.place;
        if let Some(why) = &outcome.refused {
            if !matches!(self.state, State::Refusing) {
                tracing::error!(
                    "OTLP to {place}: requests are refused, and what they held is lost: {why}"
                );
                self.enter(State::Refusing);
            }
        } else if outcome.rejected > 0 {
            if !matches!(self.state, State::Picky) {
                let (rejected, why) = (outcome.rejected, &outcome.message);
                tracing::error!(
                    "OTLP to {place}: the server rejects points ({rejected} now): {why}"
                );
                self.enter(State::Picky);
            }
        } else if outcome.delivered {
            match self.state {
                State::New => tracing::info!("OTLP to {place} works"),
                State::Picky => tracing::info!("OTLP to {place}: all points are taken again"),
                State::Refusing => tracing::info!("OTLP to {place}: requests are taken again"),
                State::Up | State::Down { .. } => {}
            }
            if !matches!(self.state, State::Up) {
                self.enter(State::Up);
            }
            if !outcome.message.is_empty() && !self.advised {
                self.advised = true;
                tracing::warn!(
                    "OTLP to {}: the server takes all and says: {}",
                    self.place,
                    outcome.message
                );
            }
        }
    }

    fn reached(&mut self) {
        if let State::Down { since, failures } = self.state {
            let (place, seconds) = (&self.place, since.elapsed().as_secs());
            tracing::info!("OTLP to {place} works again after {failures} failures in {seconds} s");
            self.enter(State::Up);
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.advised = false;
    }
}
