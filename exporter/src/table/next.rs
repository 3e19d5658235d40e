//! What to do next: up to three commands that fit what was seen, each to be pasted as it stands.

use super::View;
use super::equation::Sum;
use super::text::clean;
use crate::config::STATE_DIR;
use crate::report::{Process, Report};

/// Commands shown.
const COMMANDS: usize = 3;

/// A command, and what it is for.
type Next = (String, &'static str);

/// The commands, each with what it is for. None where a name in them cannot be written for a shell.
pub(super) fn commands(report: &Report, view: &View) -> Vec<String> {
    let next = match report.source.as_str() {
        source @ ("replay" | "import") => replay(source, view),
        "snapshot" => snapshot(report, view),
        _ => daemon(report, view),
    };
    let mut next = next.unwrap_or_default();
    next.truncate(COMMANDS);
    let column = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
    next.iter().map(|(command, why)| format!("{command:column$}  # {why}")).collect()
}

/// `command`: what read the trace or recording.
fn replay(command: &str, view: &View) -> Option<Vec<Next>> {
    let trace = quote(view.trace.as_deref()?)?;
    let mut out = Vec::new();
    if !view.all {
        out.push((format!("memprov {command} {trace} --all"), "every owner"));
    }
    out.push((
        format!("memprov {command} {trace} --output report-json"),
        "whole stacks, for a program",
    ));
    out.push((
        format!("memprov {command} {trace} --output otlp-json"),
        "what would have been sent",
    ));
    Some(out)
}

fn snapshot(report: &Report, view: &View) -> Option<Vec<Next>> {
    let place = place(view, "")?;
    let whose = largest(report).map_or_else(String::new, |p| format!(" --pid {}", p.pid));
    let mut out = vec![if view.daemon {
        (format!("memprov report{place}{whose}"), "the daemon's report, with call sites")
    } else {
        (format!("memprov run{place}"), "see who maps and touches memory from now on")
    }];
    if !view.all {
        let command = format!("memprov report --snapshot{whose} --all");
        out.push((command, "every owner"));
    }
    out.push(("memprov check".to_owned(), "what this host can tell, and how to get more"));
    Some(out)
}

fn daemon(report: &Report, view: &View) -> Option<Vec<Next>> {
    let place_of_daemon = place(view, "")?;
    let ask = format!("memprov report{place_of_daemon}");
    let mut out = Vec::new();
    if let Some(process) =
        report.processes.iter().max_by_key(|p| growth(p)).filter(|p| growth(p) > 0)
    {
        // The daemon holds its directory: a recording has one of its own, beside it.
        let own = place(view, "-record")?;
        let (pid, file) = (process.pid, "growth.jsonl.zst");
        out.push((
            format!("memprov record{own} --pid {pid} --for 60s --output {file}"),
            "keep the evidence of this growth",
        ));
    }
    match largest(report) {
        Some(process) => {
            if !view.all {
                let command = format!("{ask} --pid {} --all", process.pid);
                out.push((command, "every owner"));
            }
            out.push((
                format!("{ask} --pid {} --output report-json", process.pid),
                "whole stacks, for a program to read",
            ));
        }
        None => {
            out.push((ask.clone(), "ask again: first scans may be under way"));
            out.push(("memprov report --snapshot".to_owned(), "read every process once"));
        }
    }
    out.push(("memprov check".to_owned(), "what this host can tell, and how to get more"));
    out.push((format!("{ask} --lines"), "source lines where debug information is"));
    Some(out)
}

fn largest(report: &Report) -> Option<&Process> {
    report.processes.iter().max_by_key(|p| Sum::resident(p).parts())
}

fn growth(process: &Process) -> i64 {
    process.owners.iter().filter_map(|row| row.growth_per_minute).max().unwrap_or_default()
}

/// The flag that names the daemon's state directory, or one beside it; empty for the daemon's where that is the default.
fn place(view: &View, beside: &str) -> Option<String> {
    let dir = match (&view.state_dir, beside) {
        (None, "") => return Some(String::new()),
        (None, _) => format!("{STATE_DIR}{beside}"),
        (Some(dir), _) => format!("{}{beside}", dir.trim_end_matches('/')),
    };
    Some(format!(" --state-dir {}", quote(&dir)?))
}

/// The word as a shell takes it; `None` where it would not be shown as it is.
fn quote(word: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('-') {
        return Some(word.to_owned());
    }
    (clean(word) == word && !word.starts_with('-'))
        .then(|| format!("'{}'", word.replace('\'', "'\\''")))
}
