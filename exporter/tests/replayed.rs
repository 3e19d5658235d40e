//! What is sent while it happens and what a recording of it replays to are the same points.

mod receiver;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use receiver::{Point, Receiver};
use rustix::process::geteuid;

/// What these tests cannot do without.
const NEEDED: &str = "the kernel, the file system and memprov do what they are asked to";

/// What is known of the agent that runs and not of one that replays: what it costs, how its export goes, which settings
/// it has, and how often a list of mappings surprised it. Of all others every field is compared.
const OF_THE_AGENT: [&str; 4] =
    ["memprov.budget.", "memprov.config.", "memprov.export.", "memprov.ledger."];

/// Points by their time.
type Panes = BTreeMap<u64, BTreeSet<String>>;

fn panes(points: Vec<Point>) -> Panes {
    let mut panes = Panes::new();
    let own = |point: &Point| OF_THE_AGENT.iter().any(|begin| point.metric.starts_with(begin));
    for point in points.into_iter().filter(|point| !own(point)) {
        let told = format!("{} {}", point.series, point.told);
        assert!(panes.entry(point.time).or_default().insert(told), "a point came twice");
    }
    panes
}

fn memprov(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memprov"));
    command.args(arguments).args(["--interval", "1s", "--set", "export.detail=owners"]);
    command.stdin(Stdio::null());
    command
}

/// Records and sends at once: the panes that came, and those of the recording.
fn both(directory: &Path) -> (Panes, Panes) {
    let trace = directory.join("t.jsonl.zst");
    let trace = trace.to_str().expect("plain text");
    let receiver = Receiver::start();
    let endpoint = format!("export.endpoint=http://127.0.0.1:{}", receiver.port);
    // A program that maps, forks, executes and ends, again and again.
    let mut busy = Command::new("sh")
        .args(["-c", "while :; do cat /proc/self/maps >/dev/null; sleep 0.1; done"])
        .spawn()
        .expect(NEEDED);
    let recorded = memprov(&["record", "--pid", &busy.id().to_string(), "--for", "8s"])
        .args(["--output", trace])
        .args(["--set", &endpoint, "--set", "export.protocol=http/protobuf"])
        .args(["--set", "export.compression=none", "--state-dir"])
        .arg(directory.join("state"))
        .output()
        .expect(NEEDED);
    busy.kill().and_then(|()| busy.wait()).expect(NEEDED);
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let replayed = memprov(&["replay", trace, "--output", "otlp-json"]).output().expect(NEEDED);
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    let replayed = String::from_utf8(replayed.stdout).expect("JSON");
    let replayed = replayed.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let replayed = replayed.flat_map(|request| receiver::points(&request)).collect();
    (panes(receiver.points()), panes(replayed))
}

#[test]
fn live_a_recording_replays_to_the_points_that_were_sent() {
    if !geteuid().is_root() {
        println!("skipped: not root, so nothing can be watched");
        return;
    }
    for _ in 0..3 {
        let directory = tempfile::tempdir().expect(NEEDED);
        let (mut sent, mut replayed) = both(directory.path());
        // With the last request every series ends: that the agent ends is no part of the recording.
        let (_, ends) = sent.pop_last().expect("something was sent");
        assert!(ends.iter().all(|point| point.contains("\"flags\":1")), "{ends:?}");
        // The recording ends within a pane, which nobody waits for.
        replayed.pop_last();
        assert!(sent.len() >= 3, "{} panes", sent.len());
        assert!(sent.keys().all(|time| replayed.contains_key(time)), "a pane of another time");
        // Where the agent had no time for a pane, it told of it with the next one.
        if sent.len() == replayed.len() {
            assert_eq!(sent, replayed);
            return;
        }
    }
    panic!("panes were merged in each of three recordings");
}
