//! The daemon and its command line, as a library for its tests.
#![forbid(unsafe_code)]

pub mod report;
