//! The whole way: a workload that knows the truth, memprov, a Collector beside it, a gateway, Prometheus, a query.
//!
//! The Collectors and Prometheus are real, their configurations those of `otel-collector/`. Panes are one second where
//! a host has sixty.
#![forbid(unsafe_code)]

mod boards;
mod books;
mod container;
mod dashboards;
mod documented;
mod evidence;
mod exemplars;
mod interruptions;
mod join;
mod manifests;
mod nodes;
mod numa;
mod panels;
mod programs;
mod promql;
mod recording;
mod scene;
mod scrape;
mod service;
mod stack;
mod steady;
mod witness;
