//! Reads OTLP/JSON requests of one agent from standard input, one a line, and says what departs from the registry of
//! names. Arguments are keys that resources may carry besides those of the registry, as a Collector adds them.
//!
//! `cargo run -p memprov-tests --example contract k8s.pod.uid < requests.jsonl`
#![forbid(unsafe_code)]

use std::process::ExitCode;

use memprov_tests::otlp;

fn main() -> ExitCode {
    let also: Vec<String> = std::env::args().skip(1).collect();
    let also: Vec<&str> = also.iter().map(String::as_str).collect();
    match otlp::kept(std::io::stdin().lock(), &also) {
        Ok(kept) => {
            println!("{} requests with {} points of:", kept.requests, kept.points);
            kept.names.iter().for_each(|name| println!("  {name}"));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
