//! What the log says about the endpoint: one line whenever its state changes, none while it stays.

use std::error::Error;
use std::time::Instant;

/// Turns outcomes of attempts into log lines.
pub(super) struct Health {
    place: String,
    state: State,
}

enum State {
    /// Nothing was tried yet.
    New,
    Up,
    /// It takes requests, but not all their points.
    Picky,
    /// It answers that it will not take them.
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
        Self { place, state: State::New }
    }

    /// A request was delivered, but for `refused` of its points.
    pub(super) fn delivered(&mut self, refused: u64, reason: &str) {
        let place = &self.place;
        if let State::Down { since, failures } = self.state {
            let seconds = since.elapsed().as_secs();
            tracing::info!("OTLP to {place} works again after {failures} failures in {seconds} s");
        }
        let picky = refused > 0;
        match (&self.state, picky) {
            (State::Picky, true) | (State::Up | State::Down { .. }, false) => {}
            (State::New | State::Up | State::Refusing | State::Down { .. }, true) => {
                let reason = sentence(reason);
                tracing::error!(
                    "OTLP to {place}: the server rejects points ({refused} now): {reason}"
                );
            }
            (State::New, false) => tracing::info!("OTLP to {place} works"),
            (State::Picky, false) => tracing::info!("OTLP to {place}: all points are taken again"),
            (State::Refusing, false) => tracing::info!("OTLP to {place}: requests are taken again"),
        }
        self.state = if picky { State::Picky } else { State::Up };
    }

    /// An attempt failed in a way that may pass.
    pub(super) fn down(&mut self, why: &str) {
        if let State::Down { failures, .. } = &mut self.state {
            *failures = failures.saturating_add(1);
            return;
        }
        let place = &self.place;
        tracing::warn!(
            "OTLP to {place} does not work: {why}; the newest totals go there as soon as it does"
        );
        self.state = State::Down { since: Instant::now(), failures: 1 };
    }

    /// The server refused a request for good.
    pub(super) fn refused(&mut self, why: &str) {
        if !matches!(self.state, State::Refusing) {
            let place = &self.place;
            tracing::error!("OTLP to {place}: the server refuses requests: {why}");
        }
        self.state = State::Refusing;
    }
}

/// The status and what caused it, each sentence once.
pub(super) fn describe(status: &tonic::Status) -> String {
    let mut text = sentence(status.message());
    if text.is_empty() {
        text = status.code().description().to_owned();
    }
    let mut next = status.source();
    while let Some(error) = next {
        let cause = sentence(&error.to_string());
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}

/// What a server says about itself, on one line of bounded length.
fn sentence(text: &str) -> String {
    const CHARS: usize = 300;
    text.chars().take(CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
