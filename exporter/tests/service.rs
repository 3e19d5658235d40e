//! The program as a service manager sees it: it says when it is ready, and reads its settings again when it is told to.

mod receiver;

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use memprov::report::{Configuration, Report};
use memprov::socket::fetch;
use receiver::Receiver;
use rustix::process::{Pid, Signal, kill_process};

/// What these tests cannot do without.
const NEEDED: &str = "the kernel, the file system and the daemon do what they are asked to";

/// A daemon that watches a small process only; both end with the value.
struct Service {
    child: Child,
    watched: Child,
    heard: UnixDatagram,
    directory: tempfile::TempDir,
}

impl Service {
    fn start(settings: &str) -> Self {
        let directory = tempfile::tempdir().expect(NEEDED);
        let socket = directory.path().join("notify");
        let heard = UnixDatagram::bind(&socket).expect(NEEDED);
        heard.set_read_timeout(Some(Duration::from_secs(60))).expect(NEEDED);
        std::fs::write(directory.path().join("memprov.toml"), settings).expect(NEEDED);
        let watched = Command::new("sleep").arg("600").spawn().expect(NEEDED);
        let child = Command::new(env!("CARGO_BIN_EXE_memprov"))
            .args(["run", "--output", "none", "--pid", &watched.id().to_string()])
            .arg("--config")
            .arg(directory.path().join("memprov.toml"))
            .arg("--state-dir")
            .arg(directory.path().join("state"))
            .env("NOTIFY_SOCKET", &socket)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("log")).expect(NEEDED))
            .spawn()
            .expect(NEEDED);
        Self { child, watched, heard, directory }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect(NEEDED)).expect(NEEDED)
    }

    /// The first word of the next message, but for the line of the status.
    fn hears(&self) -> String {
        loop {
            let mut message = [0; 1024];
            let length = self.heard.recv(&mut message).expect("it says something within a minute");
            let text =
                String::from_utf8_lossy(message.get(..length).unwrap_or_default()).into_owned();
            let word = text.lines().next().unwrap_or_default().to_owned();
            if !word.starts_with("STATUS=") {
                return word;
            }
        }
    }

    /// Changes the file and tells the daemon; what its reports say then.
    fn reload(&self, settings: &str) -> Configuration {
        std::fs::write(self.path("memprov.toml"), settings).expect(NEEDED);
        kill_process(self.pid(), Signal::HUP).expect(NEEDED);
        assert_eq!(self.hears(), "RELOADING=1");
        assert_eq!(self.hears(), "READY=1");
        configuration(&self.path("state"))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for child in [&mut self.child, &mut self.watched] {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn configuration(state: &Path) -> Configuration {
    let report: Report = serde_json::from_slice(&fetch(state, None).expect(NEEDED)).expect(NEEDED);
    report.agent.expect(NEEDED).configuration.expect(NEEDED)
}

#[test]
fn live_a_service_says_that_it_is_ready_reads_its_settings_again_and_ends_in_order() {
    let mut service = Service::start("log = \"info\"\n");
    assert_eq!(service.hears(), "READY=1");
    let first = configuration(&service.path("state"));
    assert_eq!((first.applied, first.refused), (0, 0));

    let changed = service.reload("log = \"warn\"\nroot = \"/nowhere\"\n[scan]\nbudget = 0.5\n");
    assert_eq!((changed.applied, changed.refused), (1, 0));
    assert_ne!(changed.hash, first.hash);

    let refused = service.reload("log = \"error\"\n[scan]\nbudget = 7\n");
    assert_eq!((refused.applied, refused.refused), (1, 1));
    assert_eq!(refused.hash, changed.hash);

    let back = service.reload("log = \"info\"\n");
    assert_eq!((back.applied, back.hash), (2, first.hash));

    kill_process(service.pid(), Signal::TERM).unwrap();
    assert_eq!(service.hears(), "STOPPING=1");
    assert!(service.child.wait().unwrap().success());
    let log = std::fs::read_to_string(service.path("log")).unwrap();
    assert!(log.contains("key=\"root\""), "a key that waits is named: {log}");
    assert!(log.contains("scan.budget = 7"), "a mistake is named: {log}");
}

/// Settings that send to a receiver.
fn sending(receiver: &Receiver, more: &str) -> String {
    let port = receiver.port;
    format!(
        "[export]\ninterval = \"1s\"\nendpoint = \"http://127.0.0.1:{port}\"\n\
         protocol = \"http/protobuf\"\ncompression = \"none\"\n{more}"
    )
}

/// Waits until so many panes came.
fn comes(receiver: &Receiver, panes: usize) -> BTreeSet<u64> {
    for _ in 0..600 {
        let points = receiver.points();
        let of_pane = points.iter().filter(|point| point.metric == "memprov.build_info");
        let times: BTreeSet<u64> = of_pane.map(|point| point.time).collect();
        if times.len() >= panes {
            return times;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{panes} panes don't come");
}

#[test]
fn live_another_endpoint_takes_over_without_loss_and_nothing_comes_twice() {
    let (first, second) = (Receiver::start(), Receiver::start());
    let mut service = Service::start(&sending(&first, ""));
    assert_eq!(service.hears(), "READY=1");
    comes(&first, 2);
    let moved = service.reload(&sending(&second, "detail = \"owners\"\n"));
    assert_eq!((moved.applied, moved.refused), (1, 0));
    let there = comes(&second, 2);

    let unusable = "ca = \"/nowhere.pem\"\n";
    let unusable = sending(&first, unusable).replace("http://", "https://");
    let refused = service.reload(&unusable);
    assert_eq!((refused.applied, refused.refused), (1, 1));
    assert_eq!(refused.hash, moved.hash);
    comes(&second, there.len() + 2);

    kill_process(service.pid(), Signal::TERM).unwrap();
    assert!(service.child.wait().unwrap().success());
    let log = std::fs::read_to_string(service.path("log")).unwrap();
    assert!(log.contains("/nowhere.pem"), "the file is named: {log}");

    let (before, after) = (first.points(), second.points());
    let mut seen = BTreeSet::new();
    for point in before.iter().chain(&after) {
        assert!(seen.insert((&point.series, point.time)), "{} comes twice", point.series);
    }
    // Of each pane it is said later that it was delivered, and none was given up.
    let fates = |fate: &str| {
        let of_fate = |series: &str| series.contains("export.panes") && series.contains(fate);
        let told = after.iter().filter(|point| of_fate(&point.series));
        told.filter_map(|point| Some((point.time, point.told["asInt"].as_str()?))).max()
    };
    let panes: BTreeSet<u64> = before
        .iter()
        .chain(&after)
        .filter(|point| point.metric == "memprov.build_info")
        .map(|point| point.time)
        .collect();
    let (last, delivered) = fates("delivered").expect("panes are counted");
    let earlier = panes.iter().filter(|time| **time < last).count();
    // Of the last but one the answer may not have been there yet.
    let open = earlier - delivered.parse::<usize>().expect("a count");
    assert!(open <= 1, "{delivered} of {earlier}");
    assert_eq!(fates("refused"), Some((last, "0")));
    // A series goes on where it was: it has one start.
    let counted = before.iter().chain(&after).filter(|p| p.metric == "memprov.memory.faults");
    let starts: BTreeSet<String> = counted
        .map(|point| format!("{} {}", point.series, point.told["startTimeUnixNano"]))
        .collect();
    assert_eq!(starts.len(), 2, "{starts:?}");
}
