//! What became of everything that was to be sent.

/// Counts since the start. Of the points of all shipments that the feed gave and the client settled,
/// `delivered + rejected + refused + replaced` is the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that the server took.
    pub sent: u64,
    /// Requests that were given up.
    pub refused: u64,
    /// Attempts that failed and were, or are to be, repeated.
    pub retries: u64,
    /// Shipments that a newer one replaced.
    pub replaced: u64,
    /// Bytes of the requests that were taken, as they travelled.
    pub bytes: u64,
    /// Points that the server has.
    pub delivered_points: u64,
    /// Points that the server left out of requests that it took.
    pub rejected_points: u64,
    /// Points of requests that were given up: refused for good, too large, or not delivered before the end.
    pub refused_points: u64,
    /// Points whose newer values went instead.
    pub replaced_points: u64,
}
