//! What the host's resource says of the agent: what it lost, costs, can tell and covers.

use std::sync::Arc;

use memprov_semconv::{self as semconv, Key, difference, export_outcome, outcome, source_name};

use super::records::Mirrored;
use super::rows::{Amount, Number, Rows, level, measured};
use super::words::{Word, word};
use crate::report::{Agent, Report};
use crate::trace::Support;

/// What became of the panes that were taken in; but for the newest one each met one of these fates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Panes {
    /// They arrived.
    pub delivered: u64,
    /// A newer one went instead; what they counted is in it.
    pub replaced: u64,
    /// They were refused or given up.
    pub refused: u64,
}

/// Says all of it. Of what was exported before: counts that no shipment took along, and what became of panes and of log
/// records.
pub(super) fn say(
    report: &Report,
    support: &[Support],
    (lost, panes, records): (u64, Panes, Option<Mirrored>),
    rows: &mut Rows,
) {
    let told = |text: &str| Word::from(Arc::<str>::from(text));
    let total = |n: u64| Some(Amount::Total(Number::Int(i64::try_from(n).ok()?)));
    let count =
        |key: Key, name: &str, n: u64| Some(([word(key, told(name))].as_slice().into(), total(n)?));
    let lost = report
        .lost
        .iter()
        .map(|(stream, n)| (stream.as_str(), *n))
        .chain([(source_name::EXPORT, lost)]);
    rows.say(
        &semconv::SOURCE_LOST,
        lost.filter_map(|(stream, n)| count(semconv::SOURCE_NAME, stream, n)).collect::<Vec<_>>(),
    );
    let panes = [
        (export_outcome::DELIVERED, panes.delivered),
        (export_outcome::REFUSED, panes.refused),
        (export_outcome::REPLACED, panes.replaced),
    ];
    let panes = panes.iter().filter_map(|(fate, n)| count(semconv::EXPORT_OUTCOME, fate, *n));
    rows.say(&semconv::EXPORT_PANES, panes.collect::<Vec<_>>());
    if let Some(records) = records {
        let fates = [
            (export_outcome::DELIVERED, records.delivered),
            (export_outcome::REJECTED, records.rejected),
            (export_outcome::REFUSED, records.refused),
        ];
        let fates = fates.iter().filter_map(|(fate, n)| count(semconv::EXPORT_OUTCOME, fate, *n));
        rows.say(&semconv::EXPORT_RECORDS, fates.collect::<Vec<_>>());
    }
    if report.scan_seconds.count() > 0 {
        let scans = Amount::Observed(Arc::new(report.scan_seconds.clone()));
        rows.one(&semconv::BUDGET_SCAN_DURATION, &[], Some(scans));
    }
    for row in support {
        let key = [
            word(semconv::CAPABILITY, told(&row.id)),
            word(semconv::MECHANISM, told(row.mechanism.as_deref().unwrap_or("none"))),
            word(semconv::STATE, told(&row.state)),
        ];
        rows.one(&semconv::SUPPORT, &key, level(1));
    }
    coverage(report, rows);
    if let Some(nodes) = report.host.nodes {
        rows.one(&semconv::NUMA_NODES, &[], level(nodes.into()));
    }
    rows.one(
        &semconv::BUILD_INFO,
        &[word(semconv::BUILD_VERSION, env!("CARGO_PKG_VERSION"))],
        level(1),
    );
    if let Some(agent) = &report.agent {
        cost(agent, &count, rows);
    }
}

/// A count of one name.
type Count<'a> = &'a dyn Fn(Key, &str, u64) -> Option<(super::words::Attributes, Amount)>;

fn cost(agent: &Agent, count: Count<'_>, rows: &mut Rows) {
    let d = agent.differences;
    let differences = [
        (difference::ADOPTED, d.adopted),
        (difference::VANISHED, d.vanished),
        (difference::REPLACED, d.replaced),
    ];
    let differences = differences.iter().filter_map(|(how, n)| count(semconv::DIFFERENCE, how, *n));
    rows.say(&semconv::LEDGER_DIFFERENCES, differences);
    for (thread, seconds) in &agent.cpu_seconds {
        let thread = [word(semconv::THREAD, Arc::<str>::from(thread.as_str()))];
        let spent = Amount::Total(Number::Float(*seconds));
        rows.one(&semconv::BUDGET_CPU_TIME, &thread, Some(spent));
    }
    let tax = agent.syscall_tax;
    let gauges = [
        (&semconv::BUDGET_CPU_UTILIZATION, agent.cpu_fraction),
        (&semconv::BUDGET_BPF_UTILIZATION, agent.bpf.map(|bpf| bpf.cpu_fraction)),
        (&semconv::BUDGET_SYSCALL_LATENCY, tax.map(|t| t.nanoseconds_per_call / 1e9)),
        (&semconv::BUDGET_SYSCALL_UTILIZATION, tax.and_then(|t| t.cpu_fraction)),
    ];
    for (metric, value) in gauges {
        rows.one(metric, &[], value.map(measured));
    }
    let resident = agent.rss_bytes.and_then(|n| level(i128::from(n)));
    rows.one(&semconv::BUDGET_RESIDENT, &[], resident);
    if let Some(configuration) = &agent.configuration {
        let hash = word(semconv::CONFIG_HASH, Arc::<str>::from(configuration.hash.as_str()));
        rows.one(&semconv::CONFIG_INFO, &[hash], level(1));
        let reloads =
            [(outcome::APPLIED, configuration.applied), (outcome::REFUSED, configuration.refused)];
        let reloads = reloads.iter().filter_map(|(what, n)| count(semconv::OUTCOME, what, *n));
        rows.say(&semconv::CONFIG_RELOADS, reloads.collect::<Vec<_>>());
    }
    let skipped = &agent.scans.skipped;
    rows.say(
        &semconv::BUDGET_SCAN_SKIPPED,
        skipped.iter().filter_map(|(why, n)| count(semconv::REASON, why, *n)),
    );
}

/// How much of resident memory was seen mapped, and touched; nothing of what nobody looked for.
fn coverage(report: &Report, rows: &mut Rows) {
    let (mut resident, mut predates) = (0u128, 0u128);
    let (mut anon, mut touched) = (0.0, 0.0);
    let mut thinnest: Option<f64> = None;
    for process in &report.processes {
        let bytes = process.owners.iter().filter_map(|row| row.resident.bytes);
        resident += bytes.map(u128::from).sum::<u128>();
        predates += u128::from(process.predates);
        let Some(touch) = &process.first_touch else { continue };
        thinnest = Some(thinnest.map_or(touch.probability, |p| p.min(touch.probability)));
        if let Some(unknown) = touch.unknown_share {
            let owned = process.books.get("anon").map_or(0.0, |book| float(book.owned.into()));
            anon += owned;
            touched += owned * (1.0 - unknown);
        }
    }
    let share = |of: &'static str, part: f64, whole: f64| {
        let key = [word(semconv::CAPABILITY, of)];
        (whole > 0.0).then(|| (key.as_slice().into(), measured(part / whole)))
    };
    let seen = float(resident.saturating_sub(predates));
    let shares =
        [share("first_touch", touched, anon), share("mapping.lifecycle", seen, float(resident))];
    rows.say(&semconv::COVERAGE, shares.into_iter().flatten());
    let period = thinnest.filter(|p| *p > 0.0).map(|p| measured(1.0 / p));
    rows.one(&semconv::SAMPLING_PERIOD, &[word(semconv::CAPABILITY, "first_touch")], period);
}

fn float(bytes: u128) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let bytes = bytes as f64;
    bytes
}
