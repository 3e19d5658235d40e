//! The panels of the dashboard *evidence, loss, budget* against what is known of the agents.

use memprov_tests::host;
use memprov_tests::physical;
use serde_json::Value;

use crate::boards::{Boards, INTERVAL_SECONDS, by, newest, total};
use crate::nodes::cpu_seconds;
use crate::promql::Series;
use crate::scene::exact;
use crate::service::until;

/// What agents say of themselves is within a factor of two of what the kernel says.
const TWICE: f64 = 2.0;

/// A share of the pages of a process is sampled (`first_touch.probability`), one in so many.
const SAMPLED: f64 = 100.0;

fn near(said: f64, is: f64) -> bool {
    said / is < TWICE && is / said < TWICE
}

/// Fails unless all values of a panel come to be as wanted.
fn each(boards: &Boards, (title, legend): (&str, &str), wanted: impl Fn(f64) -> bool) {
    until(&format!("all of panel {title:?}, {legend:?} is as wanted"), || {
        let found = boards.ask(title, legend)?;
        let good = !found.is_empty() && found.iter().map(newest).all(&wanted);
        good.then_some(()).ok_or(format!("{found:?}"))
    });
}

/// Capabilities that this host lacks, as the command line says.
fn lacking() -> Vec<String> {
    let told = host::command(&host::memprov()).args(["check", "--output", "json"]).output();
    let told = told.expect("memprov starts").stdout;
    let told: Value = serde_json::from_slice(&told).expect("a document");
    let all = told["capabilities"].as_array().expect("a list").iter();
    let lacking = all.filter(|one| one["state"] != "available");
    lacking.filter_map(|one| Some(one["id"].as_str()?.to_owned())).collect()
}

/// `agents` live; those that ended since the begin took `before` CPU seconds. They watch for `age` seconds at most.
pub(crate) fn panels(boards: &Boards, agents: &[u32], before: f64, age: f64) {
    boards.shows("Agents", exact(agents.len().try_into().expect("a few")));
    boards.shows("Books that are open", 0.0);
    boards.shows("Settings refused in a day", 0.0);
    let share = boards.value("Exact share of resident memory").expect("a share");
    assert!((0.0..=1.0).contains(&share), "{share} of memory is exact");
    each(boards, ("Bytes by which books are open", "{{job}}"), |bytes| bytes == 0.0);
    // Everything stands still.
    for what in ["skew {{job}}", "drift {{job}}"] {
        each(boards, ("Skew and drift", what), |bytes| bytes == 0.0);
    }
    each(boards, ("Age of the oldest reading", "{{job}}"), |age_of| {
        (0.0..=age + 60.0).contains(&age_of)
    });
    each(boards, ("Coverage", "{{memprov_capability}} {{host_id}}"), |share| {
        (0.0..=1.0).contains(&share)
    });
    let sampled = "{{memprov_capability}} {{host_id}}";
    each(boards, ("Pages of which one is sampled", sampled), |pages| {
        (pages - SAMPLED).abs() < 1e-3
    });
    until("what hosts lack is what the command line says", || {
        let found = by("memprov_capability", &boards.ask("What hosts lack", "Hosts")?);
        let missing: Vec<_> = lacking().into_iter().filter(|id| !found.contains_key(id)).collect();
        missing.is_empty().then_some(()).ok_or(format!("{missing:?} are not in {found:?}"))
    });

    each(boards, ("Records lost, by source", "{{memprov_source_name}}"), |lost| lost == 0.0);
    let points = "Points by what became of them";
    until("every point is delivered or replaced", || {
        let found =
            by("memprov_export_outcome", &boards.ask(points, "{{memprov_export_outcome}}")?);
        let lost: f64 = ["refused", "rejected"].iter().filter_map(|what| found.get(*what)).sum();
        let delivered = found.get("delivered").is_some_and(|rate| *rate > 0.0);
        (delivered && lost == 0.0).then_some(()).ok_or(format!("{found:?}"))
    });
    let timeout = 10.0;
    each(boards, ("Time from a request to its answer", "{{host_id}}"), |s| s > 0.0 && s < timeout);
    each(boards, ("Bytes sent", "{{host_id}}"), |rate| rate > 0.0);

    until("CPUs by what takes them are all CPUs", || {
        let parts = ["agents", "BPF programs", "system calls"]
            .map(|part| boards.ask("CPUs, by what takes them", part).map(|found| total(&found)));
        let sum = parts.iter().cloned().sum::<Result<f64, _>>()?;
        let all = boards.value("CPUs that all agents take")?;
        ((sum - all).abs() < 1e-9).then_some(()).ok_or(format!("{parts:?} are not {all}"))
    });
    until("CPU time by thread is what the kernel says", || {
        let is = before + agents.iter().map(|pid| cpu_seconds(*pid)).sum::<f64>();
        let said = total(&boards.ask("CPUs, by thread", "{{memprov_thread}}")?) * INTERVAL_SECONDS;
        near(said, is).then_some(()).ok_or(format!("{said} s, not {is}"))
    });
    let said = boards.ask("Resident memory of agents", "{{host_id}}").expect("a panel");
    for pid in agents {
        let is = exact(physical::rollup(*pid, "Rss").expect("memprov lives"));
        let any = said.iter().any(|series: &Series| near(newest(series), is));
        assert!(any, "{said:?}, not {is}");
    }
    let quantile = |legend| boards.ask("Duration of scans", legend).map(|found| total(&found));
    until("scans take some time, and few take longer", || {
        let (median, slow) = (quantile("median")?, quantile("99 %")?);
        (0.0 < median && median <= slow).then_some(()).ok_or(format!("{median} s, {slow} s"))
    });
    each(boards, ("What a system call takes longer", "{{host_id}}"), |s| (0.0..1e-3).contains(&s));
}
