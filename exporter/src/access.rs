//! Sampled accesses: whose they are, where they were served from, and which share of the time that is.

pub mod share;
