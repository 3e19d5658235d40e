//! What to do next: three commands that fit what was seen.

use super::View;
use super::equation::Sum;
use crate::report::{Process, Report};

/// Three commands, each with what it is for.
pub(super) fn commands(report: &Report, view: &View) -> Vec<String> {
    let place = view
        .state_dir
        .as_deref()
        .map_or_else(String::new, |dir| format!(" --state-dir {}", quote(dir)));
    let largest = report.processes.iter().max_by_key(|p| Sum::resident(p).parts());
    let growth = |p: &Process| {
        p.owners.iter().filter_map(|row| row.growth_per_minute).max().unwrap_or_default()
    };
    let growing = report.processes.iter().max_by_key(|p| growth(p));
    let mut out = Vec::new();
    if report.source == "replay" {
        out.push((
            "memprov replay FILE --output report-json".to_owned(),
            "whole stacks, for a program",
        ));
        out.push((
            "memprov replay FILE --output otlp-json".to_owned(),
            "what would have been sent",
        ));
        out.push(("memprov run --pid PID".to_owned(), "watch a living process"));
        return lines(&out);
    }
    if report.source == "snapshot" {
        out.push((format!("memprov run{place}"), "see who maps and touches memory from now on"));
    }
    if let Some(process) = growing.filter(|p| growth(p) > 0) {
        out.push((
            format!("memprov record --pid {} --for 60s --output growth.jsonl.zst", process.pid),
            "keep the evidence of this growth",
        ));
    }
    if let Some(process) = largest {
        if !view.all {
            out.push((format!("memprov report{place} --pid {} --all", process.pid), "every owner"));
        }
        out.push((
            format!("memprov report{place} --pid {} --output json", process.pid),
            "whole stacks, for a program to read",
        ));
    } else {
        out.push((format!("memprov run{place} --pid PID"), "watch one process and its children"));
        out.push((
            format!("memprov report{place} --output json"),
            "the same, for a program to read",
        ));
    }
    out.push(("memprov check".to_owned(), "what this host can tell, and how to get more"));
    out.push((format!("memprov report{place} --lines"), "source lines where debug information is"));
    out.truncate(3);
    lines(&out)
}

fn lines(commands: &[(String, &str)]) -> Vec<String> {
    let column = commands.iter().map(|(command, _)| command.chars().count()).max();
    let column = column.unwrap_or_default();
    commands.iter().map(|(command, why)| format!("{command:column$}  # {why}")).collect()
}

/// The word as a shell takes it.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", super::text::clean(word).replace('\'', "'\\''"))
    }
}
