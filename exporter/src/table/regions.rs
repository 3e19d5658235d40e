//! What monitors of memory find: how much of what they watch is used.

use super::text::{Paint, bytes, elide};
use crate::report::{Monitored, Quantity, Report};

/// Monitors of single processes shown unless all are asked for.
const MONITORS: usize = 4;

/// The section; nothing where no monitor speaks.
pub(super) fn section(
    report: &Report,
    all: bool,
    width: usize,
    paint: Paint,
    out: &mut Vec<String>,
) {
    if report.regions.is_empty() {
        return;
    }
    out.push(String::new());
    out.push(paint.bold(&elide("Used, as DAMON's checks tell (nominal 95 % bounds)", width)));
    let shown = if all { report.regions.len() } else { MONITORS.min(report.regions.len()) };
    let (first, rest) = report.regions.split_at(shown);
    out.extend(first.iter().map(|monitored| elide(&line(monitored), width)));
    if !rest.is_empty() {
        out.push(format!("  … {} more", rest.len()));
    }
}

fn line(monitored: &Monitored) -> String {
    let Monitored { monitor, pid, watched, in_use, seconds, frames, .. } = monitored;
    let whose = pid.map_or_else(|| "physical memory".to_owned(), |pid| format!("process {pid}"));
    let used = |quantity: &Quantity| match (quantity.lo, quantity.hi) {
        (Some(lo), Some(hi)) => format!("{} to {}", bytes(lo), bytes(hi)),
        _ => "?".to_owned(),
    };
    let unknown = frames.as_ref().map(|frames| used(&frames.unknown));
    let unknown = unknown.map(|bytes| format!(", {bytes} in nobody's known frames"));
    let (in_use, unknown) = (used(in_use), unknown.unwrap_or_default());
    let watched = bytes(*watched);
    format!("  {whose}: {in_use} of {watched} in {seconds:.0} s{unknown} (kdamond {monitor})")
}
