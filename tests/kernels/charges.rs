//! Charge books against what a workload did and what the kernel's own lines say.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::guest::Guest;

const MIB: i64 = 1 << 20;
/// Libraries, stacks and metadata of the workload itself.
const OWN: i64 = 3 * MIB / 2;

/// What the workload did: cgroup, row, part, MiB.
const DONE: [(&str, &str, &str, i64); 5] = [
    ("/first", "mapped", "anon", 48),
    ("/first", "cache", "file", 64),
    ("/first", "tmpfs", "shmem", 32),
    ("/first", "mapped", "shmem", 8),
    ("/second", "elsewhere", "file", 16),
];

/// What of the books is wrong.
pub(crate) fn judge(guest: &Guest) -> Result<(), Vec<String>> {
    let report: Value = guest.read("charge/report.json")?;
    let mut wrong = Vec::new();
    let mut books = BTreeMap::new();
    for book in report["cgroups"].as_array().into_iter().flatten() {
        wrong.extend(closes(book));
        books.insert(book["cgroup"].as_str().unwrap_or_default(), book);
    }
    for name in ["first", "second"] {
        let path = format!("/{name}");
        match books.get(path.as_str()) {
            Some(book) => wrong.extend(agrees(book, name, guest)?),
            None => wrong.push(format!("{path} has no book: {}", report["cgroups"])),
        }
    }
    if wrong.is_empty() {
        for (path, kind, part, mib) in DONE {
            wrong.extend(near(&format!("{path} {kind} {part}"), books[path], (kind, part), mib));
        }
        let first = books["/first"];
        let kernel = rows(first, "kernel");
        if kernel < 3 * MIB {
            wrong.push(format!("4,000 files take only {kernel} bytes of the kernel"));
        }
        let others = &first["charged_elsewhere"];
        let (least, most) = (number(&others["lo"]), number(&others["hi"]));
        let room = slack(first) + OWN;
        // Its libraries are in the initial root file system, whose pages nobody is charged for.
        if !(16 * MIB - room..=16 * MIB + OWN).contains(&least) || most < 16 * MIB {
            wrong.push(format!("16 MiB are mapped and charged to others, told {others}"));
        }
        let named = first["cache_files"].as_array().into_iter().flatten();
        let big = named.filter(|f| f["name"].as_str().is_some_and(|name| name.ends_with("/big")));
        let big: Vec<i64> = big.filter_map(|file| file["bytes"]["bytes"].as_i64()).collect();
        // `cachestat` came with Linux 6.5: before, no file of the cache has a name.
        let told = first["cache_files"].as_array().is_some_and(|files| !files.is_empty());
        if told && !big.iter().any(|n| (n - 64 * MIB).abs() <= slack(first) + OWN) {
            wrong.push(format!("the file of 64 MiB is told as {}", first["cache_files"]));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(i64::MIN)
}

fn slack(book: &Value) -> i64 {
    number(&book["slack"])
}

/// The sum of the rows of a kind; of all where it is empty.
fn rows(book: &Value, kind: &str) -> i64 {
    let rows = book["rows"].as_array().into_iter().flatten();
    rows.filter(|row| kind.is_empty() || row["kind"] == kind)
        .map(|row| number(&row["bytes"]["bytes"]))
        .sum()
}

/// Rows, unattributed and skew are the total.
fn closes(book: &Value) -> Option<String> {
    let sum = rows(book, "") + number(&book["unattributed"]) + number(&book["skew"]);
    let total = number(&book["current"]);
    (sum != total || total < 0).then(|| format!("{} does not close: {sum} {book}", book["cgroup"]))
}

/// The total is the kernel's, and rows are its lines, as near as it keeps them.
fn agrees(book: &Value, name: &str, guest: &Guest) -> Result<Vec<String>, Vec<String>> {
    let mut wrong = Vec::new();
    let (before, after) = (
        guest.read::<i64>(&format!("charge/{name}.before"))?,
        guest.read::<i64>(&format!("charge/{name}.after"))?,
    );
    let slack = slack(book);
    let current = number(&book["current"]);
    if !(before.min(after) - slack..=before.max(after) + slack).contains(&current) {
        wrong.push(format!("{name}: {current} is charged, the kernel says {before} and {after}"));
    }
    if number(&book["unattributed"]) > slack + 2 * OWN || number(&book["skew"]) < -slack {
        wrong.push(format!("{name}: {} unattributed, skew {}", book["unattributed"], book["skew"]));
    }
    let path = guest.path(&format!("charge/{name}.stat"));
    let text = std::fs::read_to_string(&path)
        .map_err(|why| vec![format!("read {}: {why}", path.display())])?;
    let lines: BTreeMap<&str, i64> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(key, value)| Some((key, value.parse().ok()?)))
        .collect();
    let line = |key: &str| lines.get(key).copied();
    let anon = rows_of(book, "anon");
    let objects = rows_of(book, "file") + rows_of(book, "shmem");
    let told = [("anon", anon), ("file", objects)];
    let kernel = line("kernel").map(|sum| ("kernel", sum + line("sock").unwrap_or(0)));
    for (what, have) in told {
        let want = line(what).unwrap_or(i64::MIN);
        if (have - want).abs() > slack {
            wrong.push(format!("{name}: rows have {have} of {what}, the kernel {want}"));
        }
    }
    if let Some((what, want)) =
        kernel.filter(|(_, want)| (rows(book, "kernel") - want).abs() > slack)
    {
        wrong.push(format!(
            "{name}: rows have {} of {what}, the kernel {want}",
            rows(book, "kernel")
        ));
    }
    Ok(wrong)
}

/// The sum of all rows of a part.
fn rows_of(book: &Value, part: &str) -> i64 {
    let rows = book["rows"].as_array().into_iter().flatten();
    rows.filter(|row| row["part"] == part).map(|row| number(&row["bytes"]["bytes"])).sum()
}

/// A row says what the workload did, and its bounds hold it.
fn near(what: &str, book: &Value, (kind, part): (&str, &str), mib: i64) -> Option<String> {
    let mut rows = book["rows"].as_array().into_iter().flatten();
    let row = rows.find(|row| row["kind"] == kind && row["part"] == part);
    let Some(bytes) = row.map(|row| &row["bytes"]) else { return Some(format!("{what}: no row")) };
    let (have, want, room) = (number(&bytes["bytes"]), mib * MIB, slack(book) + OWN);
    let lo = bytes["lo"].as_i64().unwrap_or(have);
    let hi = bytes["hi"].as_i64().unwrap_or(have);
    let holds = lo - OWN <= want && want <= hi + OWN;
    ((have - want).abs() > room || !holds).then(|| format!("{what}: {mib} MiB are told as {bytes}"))
}
