//! What DAMON finds of a program that uses 16 of 128 MiB (`hot/hot.c`), and what is left of monitors of memprov's own.

use std::fs;

use serde_json::Value;

use crate::guest::Guest;

const MIB: f64 = 1_048_576.0;
const HOT: f64 = 16.0 * MIB;
const COLD: f64 = 112.0 * MIB;

fn text(guest: &Guest, name: &str) -> Option<String> {
    fs::read_to_string(guest.path(name)).ok()
}

/// Bytes used within one sampling interval, as told of an owner.
fn in_use(owners: &[Value], site: &str) -> Option<f64> {
    let named = |owner: &&Value| {
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        text("name").contains(site) || text("caller").contains(site)
    };
    let told: Vec<f64> = owners
        .iter()
        .filter(named)
        .filter_map(|owner| owner["touched"]["in_use"]["bytes"].as_f64())
        .collect();
    (!told.is_empty()).then(|| told.iter().sum())
}

/// The used part is found with a recall of 0.9 at least, and no more than 0.1 of the rest is taken for it.
pub(crate) fn found(guest: &Guest) -> Result<(), Vec<String>> {
    if text(guest, "damon-left").is_none() {
        // The kernel has no DAMON, or the programme did not get there, which the other test says.
        return Ok(());
    }
    let mut wrong = Vec::new();
    for kind in ["fvaddr", "vaddr"] {
        let report: Value = guest.read(&format!("damon-{kind}.json"))?;
        let owners = report["processes"][0]["owners"].as_array().cloned().unwrap_or_default();
        let (hot, cold) = (in_use(&owners, "hot_memory"), in_use(&owners, "cold_memory"));
        let pooled = report["regions"][0]["aggregations"].as_u64().unwrap_or(0);
        let (Some(hot), Some(cold)) = (hot, cold) else {
            wrong.push(format!("{kind}: {hot:?} of what is used is told, {cold:?} of the rest"));
            continue;
        };
        println!("{kind}: {:.3} of {:.3} found, {:.3} too many", hot / HOT, 1.0, cold / COLD);
        if hot < 0.9 * HOT || cold > 0.1 * COLD || pooled < 5 {
            let (hot, cold) = (hot / HOT, cold / COLD);
            wrong
                .push(format!("{kind}: {hot:.3} found, {cold:.3} wrong, of {pooled} aggregations"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
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
    let expected = "fvaddr 0\nvaddr 0\nkilled 1\nundone 0 \nrestarted 0 \nforeign 1\n";
    let left = text(guest, "damon-left").unwrap_or_default();
    if left != expected {
        wrong.push(format!("{left:?} instead of {expected:?}"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}
