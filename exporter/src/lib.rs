//! The daemon and its command line, as a library for its tests.
#![forbid(unsafe_code)]

pub mod asks;
pub mod check;
pub mod checkpoint;
pub mod cli;
pub mod commands;
pub mod compose;
pub mod config;
pub mod cost;
pub mod daemon;
pub mod encode;
pub mod engine;
pub mod exporting;
mod folding;
pub mod fuse;
pub mod histogram;
pub mod host;
pub mod otlp;
pub mod owners;
pub mod plan;
pub mod privileges;
pub mod probing;
mod recorder;
pub mod report;
pub mod screen;
pub mod socket;
pub mod sources;
pub mod statedir;
pub mod stats;
pub mod support;
pub mod symbols;
pub mod table;
pub mod tables;
pub mod trace;
pub mod wall;
pub mod window;
