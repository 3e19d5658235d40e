//! What the client sends, and who has it: the client asks for it when the line is free, and tells its fate.
//!
//! There is no queue between the two. What was observed since the last shipment lies in the feed's own sums, so that
//! the memory of an endpoint that is down is these sums and one shipment.

use super::request::Request;

/// What the client asks for when the line is free. Called from the client's thread; must be quick (encode only).
pub trait Feed: Send {
    /// All that the other side does not have yet, as of now, in parts of bounded size. `None` when there is nothing new
    /// since the last shipment that was settled as delivered or refused.
    fn next(&mut self) -> Option<Shipment>;

    /// The fate of shipment `number`. Every shipment meets exactly one.
    fn settle(&mut self, number: u64, fate: Fate);
}

/// What is sent as one: its parts go in order, each a request of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shipment {
    /// Grows from shipment to shipment.
    pub number: u64,
    /// Requests, each small enough for a server that takes 4 MiB; the client halves what is not.
    pub parts: Vec<Request>,
    /// Cumulative points: a newer shipment may replace this one while it is retried. Delta points: it is retried to the
    /// end.
    pub replaceable: bool,
}

/// What became of a shipment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server has it, but for points it said that it rejected and parts that it refused: they are counted.
    Delivered,
    /// A lasting failure of all its parts, or given up: it is never sent again, and counted.
    Refused,
    /// A newer shipment goes instead. Some of its parts may have been delivered.
    Replaced,
}
