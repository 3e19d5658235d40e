//! Where memory lies, by NUMA node, and what would bring it nearer to where it is used.

use std::collections::BTreeMap;

use super::text::{Paint, bytes, clean, elide, right};
use crate::report::{Advice, OwnerRow, Placement, Process, Quantity, Report};

/// Owners shown unless all are asked for.
const OWNERS: usize = 8;
/// Nodes that have a column.
const NODES: usize = 4;
/// Width of a column of bytes, and of that of shares.
const BYTES: usize = 8;
const SHARE: usize = 6;

type Row<'a> = (&'a Process, &'a OwnerRow, &'a Placement);

/// The section; nothing where nobody looked.
pub(super) fn section(
    report: &Report,
    processes: &[&Process],
    all: bool,
    width: usize,
    paint: Paint,
    out: &mut Vec<String>,
) {
    let mut rows: Vec<Row<'_>> = processes
        .iter()
        .copied()
        .flat_map(|process| process.owners.iter().map(move |row| (process, row)))
        .filter_map(|(process, row)| Some((process, row, row.placement.as_ref()?)))
        .filter(|(_, row, _)| row.resident.bytes.is_some_and(|bytes| bytes > 0))
        .collect();
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|(process, row, _)| (std::cmp::Reverse(row.resident.bytes), process.pid));
    let columns = columns(&rows);
    out.push(String::new());
    let title = match report.host.numa.iter().filter(|node| node.cpus == 0).count() {
        0 => "Where memory lies, by NUMA node".to_owned(),
        n => format!("Where memory lies, by NUMA node ({n} without CPUs)"),
    };
    out.push(paint.bold(&elide(&title, width)));
    let heads = columns.iter().map(|node| format!("NODE {node}")).collect();
    out.push(paint.dim(&line(heads, "ELSE", "REMOTE", "OWNER", width)));
    let shown = if all { rows.len() } else { OWNERS.min(rows.len()) };
    let (first, rest) = rows.split_at(shown);
    for (process, row, placement) in first {
        let on = |node: &u32| {
            let found = placement.nodes.iter().find(|on| on.node == *node);
            found.map_or_else(|| "0".to_owned(), |on| amount(&on.resident))
        };
        let others = placement.nodes.iter().filter(|on| !columns.contains(&on.node));
        let others = others.map(|on| on.resident.bytes.or(on.resident.lo).unwrap_or(0));
        let beyond = others.fold(placement.unplaced, u64::saturating_add);
        let remote = remote(placement);
        let name = format!("{} ({} of {})", clean(&row.name), clean(&row.kind), process.pid);
        let cells = columns.iter().map(on).collect();
        out.push(line(cells, &bytes(beyond), &remote, &name, width));
        if let Some(advice) = &placement.advice {
            out.push(paint.dim(&elide(&format!("    ↳ {}", advised(advice)), width)));
        }
    }
    if !rest.is_empty() {
        out.push(format!("  … {} more", rest.len()));
    }
    let note = "REMOTE: share of CPU time, if all bytes are used alike from where threads ran";
    out.push(paint.dim(&elide(&format!("  {note}"), width)));
}

/// The nodes with most bytes, in order of ids.
fn columns(rows: &[Row<'_>]) -> Vec<u32> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for on in rows.iter().flat_map(|(.., placement)| &placement.nodes) {
        let sum = sums.entry(on.node).or_default();
        *sum = sum.saturating_add(on.resident.bytes.or(on.resident.lo).unwrap_or(0));
    }
    let mut nodes: Vec<u32> = sums.keys().copied().collect();
    nodes.sort_by_key(|node| (std::cmp::Reverse(sums.get(node)), *node));
    nodes.truncate(NODES);
    nodes.sort_unstable();
    nodes
}

/// A number, or what it is at least, or at most.
fn amount(told: &Quantity) -> String {
    match (told.bytes, told.lo, told.hi) {
        (Some(told), ..) => bytes(told),
        (None, Some(least), _) if least > 0 => format!("≥{}", bytes(least)),
        (None, _, Some(most)) => format!("≤{}", bytes(most)),
        (None, ..) => "?".to_owned(),
    }
}

/// The remote share, or what it is at least where some of the time went to bytes of which no node is known.
fn remote(placement: &Placement) -> String {
    let share = |at: &str| placement.shares.get(at).copied().unwrap_or(0.0);
    let (remote, unknown) = (share("remote") * 100.0, share("unknown"));
    if placement.shares.keys().all(|at| at == "unknown") {
        return "?".to_owned();
    }
    let least = if unknown >= 0.005 { "≥" } else { "" };
    format!("{least}{remote:.0} %")
}

fn advised(advice: &Advice) -> String {
    let held = if advice.against_policy { "; its policy holds it there" } else { "" };
    match (advice.what.as_str(), advice.node, advice.bytes, advice.remote) {
        ("move", Some(node), Some(moved), Some(remote)) => {
            let then = remote * 100.0;
            format!("{} on node {node}: remote {then:.0} %{held}", bytes(moved))
        }
        ("shared", ..) => "threads run on several nodes: no one node would be nearer".to_owned(),
        ("tier", ..) => "in memory without CPUs: a matter of tiers, not of nodes".to_owned(),
        (other, ..) => clean(other),
    }
}

fn line(cells: Vec<String>, beyond: &str, remote: &str, owner: &str, width: usize) -> String {
    let mut line = " ".to_owned();
    for cell in cells.iter().map(String::as_str).chain([beyond]) {
        line.push(' ');
        line.push_str(&right(cell, BYTES));
    }
    elide(&format!("{line}  {}  {owner}", right(remote, SHARE)), width)
}
