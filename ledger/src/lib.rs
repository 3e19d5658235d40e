//! The domain model: evidence, identity, intervals, pages, owners, books.
//!
//! Nothing here does I/O, reads a clock, starts a thread or uses `unsafe`: time comes in as an argument, evidence
//! comes in as values, and the same input gives the same state.
#![forbid(unsafe_code)]

pub mod activity;
mod attach;
pub mod book;
mod calls;
pub mod charge;
pub mod evidence;
pub mod frames;
pub mod identity;
mod leaf;
pub mod ledger;
pub mod pages;
pub mod piece_map;
pub mod pieces;
pub mod placement;
pub mod ranges;
pub mod recall;
mod relatives;
pub mod resolution;
pub mod scan;
pub mod shared;
pub mod space;
pub mod stack;
pub mod time;
pub mod touch;
