//! What DAMON finds of a program that uses 16 of 128 MiB (`hot/hot.c`), and what is left of monitors of memprov's own.

use std::fs;

use serde_json::Value;

use crate::guest::Guest;

const MIB: f64 = 1_048_576.0;
const HOT: f64 = 16.0 * MIB;
const COLD: f64 = 112.0 * MIB;
/// How far a lower bound may reach beyond the truth: a tenth of what is used.
const SLACK: f64 = 0.1 * HOT;

fn text(guest: &Guest, name: &str) -> Option<String> {
    fs::read_to_string(guest.path(name)).ok()
}

/// What is told of an owner's use.
struct Used {
    /// Bytes within one sampling interval.
    in_use: f64,
    /// Bytes at least and at most.
    lower: f64,
    upper: f64,
}

fn used(owners: &[Value], site: &str) -> Option<Used> {
    let named = |owner: &&Value| {
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        text("name").contains(site) || text("caller").contains(site)
    };
    let told: Vec<&Value> =
        owners.iter().filter(named).filter_map(|owner| owner.get("touched")).collect();
    let sum = |of: fn(&Value) -> &Value| told.iter().filter_map(|t| of(t).as_f64()).sum();
    (!told.is_empty()).then(|| Used {
        in_use: sum(|t| &t["in_use"]["bytes"]),
        lower: sum(|t| &t["lower"]),
        upper: sum(|t| &t["upper"]),
    })
}

/// The used part is found with a recall of 0.9 at least, no more than 0.1 of the rest is taken for it, and bounds hold what
/// was used of each: all of the one since the watch began, and nothing of the other. Listened to, of physical memory by the
/// frames of pages, and asked without BPF.
pub(crate) fn found(guest: &Guest) -> Result<(), Vec<String>> {
    if text(guest, "damon-left").is_none() {
        // The kernel has no DAMON, or the programme did not get there, which the other test says.
        return Ok(());
    }
    let mut wrong = Vec::new();
    for kind in ["fvaddr", "vaddr", "paddr", "asked"] {
        let report: Value = guest.read(&format!("damon-{kind}.json"))?;
        let owners = report["processes"][0]["owners"].as_array().cloned().unwrap_or_default();
        let pooled = report["regions"][0]["aggregations"].as_u64().unwrap_or(0);
        let (Some(hot), Some(cold)) = (used(&owners, "hot_memory"), used(&owners, "cold_memory"))
        else {
            wrong.push(format!("{kind}: nothing is told of what is used, or of the rest"));
            continue;
        };
        let (found, taken) = (hot.in_use / HOT, cold.in_use / COLD);
        println!("{kind}: {found:.3} found, {taken:.3} too many, of {pooled} aggregations");
        if found < 0.9 || taken > 0.1 || pooled < 5 {
            wrong.push(format!("{kind}: {found:.3} found, {taken:.3} wrong, of {pooled}"));
        }
        for (what, told, truth) in [("hot", hot, HOT), ("cold", cold, 0.0)] {
            // A bound below holds if regions are alike throughout: what the edge of one reaches over is not.
            if told.lower > truth + SLACK || told.upper < truth {
                let (lower, upper) = (told.lower, told.upper);
                wrong.push(format!("{kind}: {lower} to {upper} of {what} memory, {truth} used"));
            }
        }
    }
    wrong.extend(framed(&guest.read("damon-paddr.json")?));
    let table = text(guest, "damon.txt").unwrap_or_default();
    let shown = |name: &str| table.lines().any(|line| line.ends_with(name) && line.contains('–'));
    if !table.contains("  USED  ") || !shown("hot_memory") || !shown("cold_memory") {
        wrong.push(format!("the table does not show what was used:\n{table}"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Whose physical memory is was found by its frames, and it is told how much of them is known.
fn framed(report: &Value) -> Vec<String> {
    let owners = report["processes"][0]["owners"].as_array().cloned().unwrap_or_default();
    let method = |owner: &Value| owner["touched"]["method"].as_str().map(str::to_owned);
    let others = owners.iter().filter_map(method).filter(|method| method != "frames");
    let mut wrong: Vec<String> = others.map(|method| format!("paddr: told by {method}")).collect();
    let told = &report["regions"][0];
    let bytes = |value: &Value| value.as_f64().unwrap_or(-1.0);
    let (owned, moved) = (bytes(&told["frames"]["owned"]), bytes(&told["frames"]["moved"]));
    let unknown = &told["frames"]["unknown"];
    let holds = bytes(&unknown["lo"]) <= bytes(&unknown["bytes"])
        && bytes(&unknown["bytes"]) <= bytes(&unknown["hi"])
        && bytes(&unknown["hi"]) <= bytes(&told["watched"]) - owned;
    if owned < 0.9 * (HOT + COLD) || moved < 0.0 || bytes(&unknown["lo"]) < 0.0 || !holds {
        wrong.push(format!("paddr: frames of {} bytes: {told}", HOT + COLD));
    }
    wrong
}

/// However memprov ended, and whoever else uses DAMON.
pub(crate) fn left(guest: &Guest) -> Result<(), Vec<String>> {
    let kernel: Value = guest.read("check.json")?;
    let rows = kernel["capabilities"].as_array().cloned().unwrap_or_default();
    let damon = rows.iter().find(|row| row["id"] == "damon").cloned().unwrap_or_default();
    let reason = damon["reason"].as_str().unwrap_or_default();
    if reason.contains("no DAMON") {
        return Ok(());
    }
    let mut wrong = Vec::new();
    if let Some(taken) = text(guest, "damon-taken")
        && (taken != "kdamonds 0\nstat Y\n1\n" || !reason.contains("damon_stat"))
    {
        wrong.push(format!("while the kernel used it: {taken:?}; {reason}"));
    }
    let expected =
        "fvaddr 0\nvaddr 0\npaddr 0\nasked 0\nkilled 1\nundone 0 \nrestarted 0 \nforeign 1\n";
    let left = text(guest, "damon-left").unwrap_or_default();
    let asked: Value = guest.read("damon-check.json")?;
    let rows = asked["capabilities"].as_array().cloned().unwrap_or_default();
    let asked = rows.iter().find(|row| row["id"] == "damon").cloned().unwrap_or_default();
    if asked["mechanism"] != "tried_regions" || asked["state"] != "available" {
        wrong.push(format!("where ours is asked, check says {asked}"));
    }
    if left != expected {
        wrong.push(format!("{left:?} instead of {expected:?}"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}
