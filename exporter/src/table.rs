//! A report for people on a terminal. Pure: the same report and view give the same text.
//!
//! `?` is unknown, `-` was not measured, `0` is zero. Names belong to whoever wrote them: what could move the cursor or
//! reorder text is escaped.

mod accesses;
mod charges;
mod equation;
mod next;
mod owners;
mod places;
mod regions;
pub(crate) mod text;

use std::collections::BTreeSet;

use crate::report::{Process, Report, SharedRow};
use crate::support::SIDEBAND;
use equation::Sum;
use owners::{Layout, Row, rows};
use text::{Paint, age, clean, clock, elide, fit, percent, sum, uptime, wrap};

/// How a report is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Columns of the terminal; fewer than 40 count as 40.
    pub width: usize,
    /// Whether ANSI colours are used.
    pub color: bool,
    /// Every process and owner, instead of the largest and a folded remainder.
    pub all: bool,
    /// Written into the commands that are suggested, where it is not the default.
    pub state_dir: Option<String>,
    /// Whether a daemon answers there. One that made the report does.
    pub daemon: bool,
    /// The trace that a replay is of, for the same purpose.
    pub trace: Option<String>,
}

impl Default for View {
    fn default() -> Self {
        Self { width: 100, color: false, all: false, state_dir: None, daemon: false, trace: None }
    }
}

/// Processes shown in full unless all are asked for.
const PROCESSES: usize = 8;
/// Shared objects shown unless all are asked for.
const SHARED: usize = 8;

/// What a snapshot cannot tell.
const UNKNOWN: &str = "call sites are unknown";

/// The report as text, each line ended by a newline.
#[must_use]
pub fn render(report: &Report, view: &View) -> String {
    let width = view.width.max(40);
    let paint = Paint(view.color);
    let mut out = Vec::new();
    header(report, view.daemon, width, paint, &mut out);
    let (processes, bare): (Vec<_>, Vec<_>) =
        by_space(report).into_iter().partition(|p| !imported(report) || !p.owners.is_empty());
    if processes.is_empty() && report.accesses.is_none() {
        out.push(String::new());
        out.push("No process is observed.".to_owned());
    }
    let shown = if view.all { processes.len() } else { PROCESSES.min(processes.len()) };
    let (first, rest) = processes.split_at(shown);
    for process in first {
        out.push(String::new());
        one_process(process, report, view, width, &mut out);
    }
    if !rest.is_empty() {
        let known = rest.iter().map(|p| Some(Sum::resident(p)).filter(Sum::closed));
        out.push(String::new());
        let rss = sum(known.map(|sum| sum.map(|sum| sum.parts())));
        let rss = if imported(report) { String::new() } else { format!(", RSS {rss}") };
        out.push(format!("… {} more processes{rss}", rest.len()));
    }
    if !bare.is_empty() {
        out.push(String::new());
        out.push(format!("… without a recorded mapping: {}", bare.len()));
    }
    shared(&report.shared, view, width, paint, &mut out);
    charges::section(report, view.all, width, paint, &mut out);
    places::section(report, first, view.all, width, paint, &mut out);
    regions::section(report, view.all, width, paint, &mut out);
    accesses::section(report, view.all, width, paint, &mut out);
    losses(report, width, paint, &mut out);
    let next = next::commands(report, view);
    if !next.is_empty() {
        out.push(String::new());
        out.push(paint.dim("next:"));
        out.extend(next.into_iter().map(|command| format!("  {command}")));
    }
    let mut text = out.join("\n");
    text.push('\n');
    text
}

fn header(report: &Report, daemon: bool, width: usize, paint: Paint, out: &mut Vec<String>) {
    let host = &report.host;
    let nodes = match host.nodes {
        None => "NUMA nodes unknown".to_owned(),
        Some(1) => "1 NUMA node".to_owned(),
        Some(n) => format!("{n} NUMA nodes"),
    };
    let kernel = host.kernel.as_deref().map_or_else(|| "unknown".to_owned(), clean);
    out.extend(
        wrap(
            &[
                match (report.source.as_str(), daemon) {
                    ("snapshot", false) => format!("memprov snapshot: no daemon; {UNKNOWN}"),
                    ("snapshot", true) => format!("memprov snapshot: no daemon asked; {UNKNOWN}"),
                    (source, _) => format!("memprov {}", clean(source)),
                },
                format!("kernel {kernel}"),
                nodes,
                match report.no_wall_time {
                    true => "no wall time".to_owned(),
                    false => clock(&report.generated_at, ""),
                },
            ],
            width,
            "",
        )
        .into_iter()
        .map(|line| paint.bold(&line)),
    );
    let mut notes = match (&report.accesses, &host.no_pmu) {
        _ if imported(report) => vec![
            format!("recorded by perf since {}", instant(&report.watching_since, report)),
            "mappings and accesses, neither resident bytes nor call sites".to_owned(),
        ],
        (Some(_), _) => return,
        (None, Some(_)) => vec!["no access latency: no PMU".to_owned()],
        (None, None) => vec!["no access latency in this version".to_owned()],
    };
    let touched = |process: &Process| process.owners.iter().any(|owner| owner.touched.is_some());
    let used = report.processes.iter().any(touched);
    notes.extend(used.then(|| "DAMON tells what is used".to_owned()));
    out.extend(wrap(&notes, width, "").into_iter().map(|line| paint.dim(&line)));
}

/// An instant of a report: of its own clock where no wall time is known.
fn instant(at: &str, report: &Report) -> String {
    if report.no_wall_time { uptime(at) } else { clock(at, &report.generated_at) }
}

/// Whether this was recorded by perf, and has neither pages nor call sites.
fn imported(report: &Report) -> bool {
    report.source == "import"
}

/// Processes by Rss and then by what they have mapped, largest first, each address space once.
fn by_space(report: &Report) -> Vec<&Process> {
    let mut seen = BTreeSet::new();
    let mut processes: Vec<&Process> =
        report.processes.iter().filter(|p| seen.insert(p.space.as_str())).collect();
    let reserved = |p: &Process| p.owners.iter().filter_map(|row| row.reserved.bytes).sum::<u64>();
    let size = |p: &Process| (Sum::resident(p).parts(), reserved(p));
    processes.sort_by_key(|p| (std::cmp::Reverse(size(p)), p.pid));
    processes
}

fn one_process(
    process: &Process,
    report: &Report,
    view: &View,
    width: usize,
    out: &mut Vec<String>,
) {
    let paint = Paint(view.color);
    let others: Vec<String> =
        process.space_pids.iter().filter(|pid| **pid != process.pid).map(u32::to_string).collect();
    let mut title = format!("{} {}", process.pid, clean(&process.comm));
    if !others.is_empty() {
        let listed = others.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
        let more = if others.len() > 4 { ", …" } else { "" };
        title.push_str(&format!(" (same memory: {listed}{more})"));
    }
    let as_of = format!(
        "as of {} ({})",
        instant(&process.as_of, report),
        age(&process.as_of, &report.generated_at)
    );
    let room = width.saturating_sub(as_of.chars().count() + 2);
    let title = fit(&elide(&title, room), room);
    out.push(format!("{}  {as_of}", paint.bold(&title)));

    if imported(report) {
        out.extend(rows(process, view.all, width, paint));
        return;
    }
    let resident = Sum::resident(process);
    out.extend(resident.lines("RSS", width, paint));
    for (name, kind) in [("huge pages", "hugetlb"), ("swap", "swap")] {
        let sum = Sum::of(process, &[kind]);
        // A total that may be 0 and of which nothing was found is no memory.
        if sum.lo > 0 || sum.parts() > 0 {
            out.extend(sum.lines(name, width, paint));
        }
    }
    let mut facts = vec![format!("watching since {}", instant(&report.watching_since, report))];
    if process.pages_unread {
        facts.push(
            "its pages may not be read (CAP_DAC_READ_SEARCH): what owners have resident is unknown"
                .to_owned(),
        );
    } else {
        facts.push(format!(
            "{} of resident predates it",
            percent(process.predates, resident.parts())
        ));
    }
    if let Some(touch) = process.first_touch.as_ref().filter(|_| !process.pages_unread) {
        facts.push(match touch.unknown_share {
            Some(share) if share > 0.0 && share < 0.005 => {
                "first touch unknown: < 1 % of anonymous".to_owned()
            }
            Some(share) => format!("first touch unknown: {:.0} % of anonymous", share * 100.0),
            None => "too few pages sampled for first touch".to_owned(),
        });
    }
    if report.mechanism.as_deref() == Some(SIDEBAND) {
        facts.push("by perf side-band: no call sites, owners are inferred".to_owned());
    } else if !process.lossless {
        facts.push("events went unseen: owners are inferred".to_owned());
    }
    out.extend(wrap(&facts, width.saturating_sub(2), "").into_iter().map(|l| format!("  {l}")));
    if process.owners.is_empty() {
        out.push("  no owner is known yet".to_owned());
    } else {
        out.extend(rows(process, view.all, width, paint));
    }
}

fn shared(objects: &[SharedRow], view: &View, width: usize, paint: Paint, out: &mut Vec<String>) {
    if objects.is_empty() {
        return;
    }
    let mut objects: Vec<&SharedRow> = objects.iter().collect();
    objects.sort_by_key(|row| std::cmp::Reverse(row.resident.bytes));
    out.push(String::new());
    let title = elide("Shared by several processes, each object once", width);
    out.push(paint.bold(&title));
    let layout = Layout::of(width, false);
    out.push(paint.dim(&Row::shared_header().line(layout, width)));
    let limit = if view.all { objects.len() } else { SHARED.min(objects.len()) };
    let (first, rest) = objects.split_at(limit);
    out.extend(first.iter().map(|row| Row::shared(row).line(layout, width)));
    if !rest.is_empty() {
        let total = sum(rest.iter().map(|row| row.resident.bytes));
        out.push(format!("  … {} more objects {total}", rest.len()));
    }
    if first.iter().any(|row| !row.sharers_complete) {
        let note = elide("  +: processes that are not observed may map it too", width);
        out.push(paint.dim(&note));
    }
}

fn losses(report: &Report, width: usize, paint: Paint, out: &mut Vec<String>) {
    let lost: Vec<_> = report.lost.iter().filter(|(_, count)| **count > 0).collect();
    if lost.is_empty() {
        return;
    }
    out.push(String::new());
    let title = if imported(report) { "Lost by the recording:" } else { "Lost since the start:" };
    out.push(paint.alarm(title));
    for (stream, count) in lost {
        let meaning = match stream.as_str() {
            "sideband" if imported(report) => {
                "mappings, forks and exits may be among them; perf record -m gives them more room"
            }
            "accesses" if imported(report) => "shares rest on fewer samples",
            "lifecycle" => {
                "owners of the processes concerned are inferred until they are read again"
            }
            "sideband" => "new mappings of any process are inferred until it is read again",
            "stacks" => "the mappings are known, who asked for them is not",
            "faults" => "first touch rests on fewer pages",
            "queue" => "the daemon was too slow, and the processes concerned are read again",
            "scans" => "books are older than asked for; see scan.budget",
            _ => "what rests on it is weaker",
        };
        let line = format!("{count} {}: {meaning}", clean(stream));
        out.push(format!("  {}", elide(&line, width.saturating_sub(2))));
    }
}
