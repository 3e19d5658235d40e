//! Sampled accesses: the owners that most of the time goes to, and how much of that is remote.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use memprov_ledger::evidence::EvidenceClass;

use super::text::{Paint, bytes, clean, elide, percent, right};
use crate::access::share::{SLICES, WORTH};
use crate::report::{AccessRow, AccessSums, Located, PopulatedRow, Report};

/// Owners shown unless all are asked for.
const OWNERS: usize = 8;
/// Columns of the remote share with its interval.
const SHARE: usize = 18;

/// Says what was sampled of each population.
pub(super) fn section(
    report: &Report,
    all: bool,
    width: usize,
    paint: Paint,
    out: &mut Vec<String>,
) {
    let Some(told) = &report.accesses else { return };
    let live: HashSet<&str> = report.processes.iter().map(|p| p.space.as_str()).collect();
    let ended = ended(&told.owners, &live);
    for (population, total) in &told.totals {
        let (method, whole) = chosen(total);
        let samples: u64 = total.samples.values().sum();
        let of = |outcome: &str| total.samples.get(outcome).copied().unwrap_or(0);
        let owned = of("attributed") + of("implausible");
        let how = match (method, whole) {
            (_, None | Some(Located { effective: 0.0, .. })) => "nothing says from where",
            ("placement", _) => "by node of page and CPU",
            (_, Some(_)) => "as the hardware says",
        };
        out.push(String::new());
        let title = format!(
            "Sampled accesses ({}): {samples}, {} with an owner; {how}",
            clean(population),
            percent(owned, samples)
        );
        out.push(paint.bold(&elide(&title, width)));
        if let Some(filled) = &total.populated {
            out.push(elide(&populated(filled), width));
        }
        let measure = if total.timed > 0 { "TIME" } else { "COUNT" };
        let head = line([measure, "REMOTE [95 %]", "UNKNOWN", "OWNER"], width);
        out.push(paint.dim(&head));
        let rows: Vec<&AccessRow> =
            told.owners.iter().filter(|row| row.population == *population).collect();
        let limit = if all { rows.len() } else { OWNERS.min(rows.len()) };
        let weights = weight(whole);
        let mut withheld = false;
        for row in rows.iter().take(limit) {
            let located = of_method(&row.sums, method);
            let name = match row.pid {
                Some(pid) => {
                    let ended = row.space.as_deref().and_then(|space| ended.get(space));
                    let ended = ended.map_or("", String::as_str);
                    format!("{} ({} of {pid}{ended})", clean(&row.name), clean(&row.kind))
                }
                None => clean(&row.name),
            };
            let share = percent(weight(located), weights);
            let remote = remote(located);
            withheld |= located.is_some_and(|located| located.withheld.is_some());
            let unknown = located
                .and_then(|located| located.unknown_share)
                .map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0));
            out.push(line([&share, &remote, &unknown, &name], width));
        }
        if limit < rows.len() {
            out.push(format!("  … {} more", rows.len() - limit));
        }
        if withheld {
            let why = format!(
                "? takes samples of known places worth {WORTH} equal ones, in {SLICES} parts of the window"
            );
            out.push(paint.dim(&elide(&format!("  {why}"), width)));
        }
    }
}

/// What is said of address spaces that have ended, by their ids. A process that runs another program has another one since
/// then, with owners of the same names: those of one process are numbered in their order.
fn ended<'a>(rows: &'a [AccessRow], live: &HashSet<&str>) -> HashMap<&'a str, String> {
    let mut of: BTreeMap<Option<u32>, BTreeSet<(u64, &str)>> = BTreeMap::new();
    for row in rows {
        if let Some(space) = row.space.as_deref().filter(|space| !live.contains(space)) {
            // Ids are given in order.
            let number = u64::from_str_radix(space, 16).unwrap_or(0);
            of.entry(row.pid).or_default().insert((number, space));
        }
    }
    let words = |spaces: BTreeSet<(u64, &'a str)>| {
        let several = spaces.len() > 1;
        spaces.into_iter().zip(1..).map(move |((_, space), nth)| {
            let nth = if several { format!(" {nth}") } else { String::new() };
            (space, format!(", ended{nth}"))
        })
    };
    of.into_values().flat_map(words).collect()
}

/// What is shown: what the hardware says, or where it says nothing, how far pages lie.
fn chosen(sums: &AccessSums) -> (&'static str, Option<&Located>) {
    let known = |method| of_method(sums, method).filter(|located| located.effective > 0.0);
    match (known("served"), known("placement")) {
        (None, Some(located)) => ("placement", Some(located)),
        _ => ("served", of_method(sums, "served")),
    }
}

/// By time where any is known.
fn of_method<'a>(sums: &'a AccessSums, method: &str) -> Option<&'a Located> {
    let measured = sums.methods.get(method)?;
    Some(measured.time.as_ref().unwrap_or(&measured.count))
}

fn weight(located: Option<&Located>) -> u64 {
    located.map_or(0, |l| l.weights.values().fold(0, |sum, n| sum.saturating_add(*n)))
}

fn remote(located: Option<&Located>) -> String {
    let Some(located) = located else { return "-".to_owned() };
    match (located.shares.get("remote"), located.withheld.as_deref()) {
        (Some(share), _) => {
            let [share, lo, hi] = [share.share, share.lo, share.hi].map(|share| share * 100.0);
            format!("{share:.1} % [{lo:.1}, {hi:.1}]")
        }
        (None, None) => "?".to_owned(),
        (None, Some("no_samples")) => "? no place known".to_owned(),
        (None, Some("few_slices")) => "? too short".to_owned(),
        (None, Some(_)) => format!("? worth {:.0}", located.effective),
    }
}

/// What faults made present, and on which nodes where there are several.
fn populated(PopulatedRow { evidence, nodes }: &PopulatedRow) -> String {
    let word = match evidence {
        EvidenceClass::Exact => "exact",
        EvidenceClass::Inferred => "inferred",
        EvidenceClass::Sampled => "sampled",
    };
    let whole = nodes.values().fold(0u64, |sum, filled| sum.saturating_add(filled.bytes));
    let each = nodes.iter().map(|(node, filled)| format!("node {node}: {}", bytes(filled.bytes)));
    let each: Vec<String> = each.collect();
    let each = if nodes.len() > 1 { format!("; {}", each.join(", ")) } else { String::new() };
    format!("  faults populated {} ({word}{each})", bytes(whole))
}

fn line([weight, remote, unknown, owner]: [&str; 4], width: usize) -> String {
    let line = format!("  {}  {remote:<SHARE$}  {}  {owner}", right(weight, 6), right(unknown, 7));
    elide(&line, width)
}
