//! Page faults of a program that touches a known number of pages of each node (`touched/touched.c`), told one by one.

use serde_json::{Value, json};

use crate::guest::Guest;

/// What it touches of the first and of the second node, and what it only reads.
const TOUCHED: [u64; 2] = [1200, 800];
const READ: u64 = 100;

fn rows<'a>(list: &'a Value, site: &'a str) -> impl Iterator<Item = &'a Value> {
    let of_site = move |row: &&Value| row["name"].as_str().is_some_and(|name| name.contains(site));
    list.as_array().into_iter().flatten().filter(of_site)
}

/// Samples of the faults of an owner, and what they populated by node.
fn told(report: &Value, site: &str) -> Option<(u64, Value)> {
    let of_faults = |row: &&Value| row["population"] == "faults";
    let row = rows(&report["accesses"]["owners"], site).find(of_faults)?;
    let samples = row["sums"]["samples"].as_object()?.values().filter_map(Value::as_u64).sum();
    Some((samples, row["sums"]["populated"]["nodes"].clone()))
}

/// Each page that it touched is one fault of its owner, on the node where it lies, and of pages that it only read none has a
/// frame of its own.
pub(crate) fn told_one_by_one(guest: &Guest) -> Result<(), Vec<String>> {
    let report: Value = guest.read("faults.json")?;
    let mut wrong = Vec::new();
    if report["lost"]["accesses"] != 0 {
        wrong.push(format!("samples were lost: {}", report["lost"]));
    }
    let [first, second] = TOUCHED;
    let filled = |pages: u64| json!({"faults": pages, "bytes": pages << 12});
    let expected = json!({"0": filled(first), "1": filled(second)});
    for (site, pages, nodes) in
        [("touched_memory", first + second, expected), ("read_memory", READ, Value::Null)]
    {
        let found = told(&report, site);
        if found.as_ref() != Some(&(pages, nodes)) {
            wrong.push(format!("{site}: {pages} pages, told as {found:?}"));
        }
    }
    let resident: Vec<&Value> = rows(&report["processes"][0]["owners"], "touched_memory")
        .map(|owner| &owner["resident"]["bytes"])
        .collect();
    if resident != [&json!((first + second) << 12)] {
        wrong.push(format!("the book has {resident:?} of {} pages", first + second));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}
