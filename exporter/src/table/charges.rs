//! What cgroups are charged for, one equation each.

use super::text::{Paint, bytes, clean, elide, signed, wrap};
use crate::report::Cgroup;
use crate::report::Report;

/// Cgroups shown unless all are asked for.
const CGROUPS: usize = 8;
/// Files of the page cache shown of one cgroup.
const FILES: usize = 3;

/// The section; nothing where no book is known.
pub(super) fn section(
    report: &Report,
    all: bool,
    width: usize,
    paint: Paint,
    out: &mut Vec<String>,
) {
    let mut cgroups: Vec<&Cgroup> = report.cgroups.iter().filter(|c| c.current > 0).collect();
    if cgroups.is_empty() {
        return;
    }
    cgroups.sort_by_key(|cgroup| (std::cmp::Reverse(cgroup.current), &cgroup.cgroup));
    out.push(String::new());
    out.push(paint.bold(&elide("Charged to cgroups, each without those below it", width)));
    let shown = if all { cgroups.len() } else { CGROUPS.min(cgroups.len()) };
    let (first, rest) = cgroups.split_at(shown);
    for cgroup in first {
        out.push(format!("  {}", elide(&clean(&cgroup.cgroup), width.saturating_sub(2))));
        let lines = wrap(&terms(cgroup), width.saturating_sub(4), "");
        out.extend(lines.into_iter().map(|line| format!("    {line}")));
    }
    if !rest.is_empty() {
        let total = rest.iter().fold(0, |sum: u64, cgroup| sum.saturating_add(cgroup.current));
        out.push(format!("  … {} more cgroups {}", rest.len(), bytes(total)));
    }
}

fn terms(cgroup: &Cgroup) -> Vec<String> {
    let mut terms = vec![format!("charged {}", bytes(cgroup.current))];
    for (kind, name) in [
        ("mapped", "mapped here"),
        ("elsewhere", "mapped elsewhere"),
        ("cache", "page cache nobody maps"),
        ("tmpfs", "tmpfs nobody maps"),
        ("hugetlb", "hugetlb"),
        ("kernel", "kernel"),
    ] {
        let rows = cgroup.rows.iter().filter(|row| row.kind == kind);
        let sum = rows.filter_map(|row| row.bytes.bytes).fold(0, u64::saturating_add);
        if sum > 0 {
            terms.push(format!("{name} {}", bytes(sum)));
        }
    }
    terms.push(format!("unattributed {}", bytes(cgroup.unattributed)));
    if cgroup.skew != 0 {
        terms.push(format!("skew {}", signed(cgroup.skew)));
    }
    if cgroup.charged_elsewhere.lo > 0 {
        terms.push(format!("charged to others ≥ {}", bytes(cgroup.charged_elsewhere.lo)));
    }
    for file in cgroup.cache_files.iter().take(FILES) {
        let size = file.bytes.bytes.unwrap_or(0);
        terms.push(format!("cache of {} ≈ {}", elide(&clean(&file.name), 40), bytes(size)));
    }
    terms
}
