//! What the agent costs, on the host's resource.

use memprov_semconv::{self as semconv, Key, difference};
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point::Value};

use super::{Window, integer, point, stream, text};
use crate::report::Agent;

/// The metrics that a report's account of the agent makes; none of what was not measured.
pub(super) fn metrics(agent: &Agent, window: Window) -> Vec<Option<Metric>> {
    let one = |value: Option<f64>| -> Vec<NumberDataPoint> {
        value.map(|value| point(Value::AsDouble(value), Vec::new(), window)).into_iter().collect()
    };
    let count =
        |key: Key, name: &str, n: u64| integer(i128::from(n), vec![text(key, name)], window);
    let d = agent.differences;
    let differences = [
        (difference::ADOPTED, d.adopted),
        (difference::VANISHED, d.vanished),
        (difference::REPLACED, d.replaced),
    ];
    let differences = differences.iter().filter_map(|(how, n)| count(semconv::DIFFERENCE, how, *n));
    let cpu = agent.cpu_seconds.iter().map(|(thread, seconds)| {
        point(Value::AsDouble(*seconds), vec![text(semconv::THREAD, thread)], window)
    });
    let resident = agent.rss_bytes.and_then(|n| integer(i128::from(n), Vec::new(), window));
    let skipped = &agent.scans.skipped;
    let skipped = skipped.iter().filter_map(|(why, n)| count(semconv::REASON, why, *n));
    let tax = agent.syscall_tax;
    vec![
        stream(&semconv::LEDGER_DIFFERENCES, differences.collect()),
        stream(&semconv::BUDGET_CPU_TIME, cpu.collect()),
        stream(&semconv::BUDGET_CPU_UTILIZATION, one(agent.cpu_fraction)),
        stream(&semconv::BUDGET_RESIDENT, resident.into_iter().collect()),
        stream(&semconv::BUDGET_BPF_UTILIZATION, one(agent.bpf.map(|bpf| bpf.cpu_fraction))),
        stream(&semconv::BUDGET_SYSCALL_LATENCY, one(tax.map(|t| t.nanoseconds_per_call / 1e9))),
        stream(&semconv::BUDGET_SYSCALL_UTILIZATION, one(tax.and_then(|t| t.cpu_fraction))),
        stream(&semconv::BUDGET_SCAN_SKIPPED, skipped.collect()),
    ]
}
