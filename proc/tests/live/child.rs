//! Children that stand still.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memprov_ledger::identity::Tgid;
use memprov_proc::{Proc, RssAccuracy, ScanOptions, Scanner};

/// A scanner of this machine, whose kernel is taken to sum Rss exactly: these tests compare bytes.
pub(crate) fn scanner(entries_only: bool) -> Scanner {
    let options =
        ScanOptions { accuracy: Some(RssAccuracy::Exact), entries_only, ..ScanOptions::default() };
    Scanner::new(Proc::at("/".as_ref()), options)
}

/// A stopped child; killed when dropped.
pub(crate) struct Stopped(pub(crate) Child);

impl Stopped {
    /// Runs a shape in a new process. `None`, with the reason printed, where this machine cannot have it.
    pub(crate) fn shape(name: &str) -> Option<Self> {
        let own = std::env::current_exe().unwrap();
        let mut child = Command::new(own)
            .args(["shapes::one_shape", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env("MEMPROV_SHAPE", name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let stopped = Self(child);
        for line in output.lines().map_while(Result::ok) {
            if let Some((_, reason)) = line.split_once("cannot: ") {
                eprintln!("skipped: {name}: {reason}");
                return None;
            }
            if line.contains("ready") {
                stopped.wait_for_stop();
                return Some(stopped);
            }
        }
        panic!("the shape {name} ended without a word");
    }

    /// Runs a program and stops it when it has had time to settle.
    pub(crate) fn program(name: &str, args: &[&str]) -> Option<Self> {
        let quiet = Stdio::null;
        let dir = tempfile::tempdir().unwrap();
        let child = Command::new(name)
            .args(args)
            .current_dir(dir.path())
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .spawn();
        let Ok(child) = child else {
            eprintln!("skipped: {name} is not installed");
            return None;
        };
        let stopped = Self(child);
        std::thread::sleep(Duration::from_millis(500));
        stopped.signal(libc::SIGSTOP);
        stopped.wait_for_stop();
        Some(stopped)
    }

    pub(crate) fn tgid(&self) -> Tgid {
        Tgid(self.0.id())
    }

    pub(crate) fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.0.id()).unwrap();
        // SAFETY: a signal to a child of ours that is not reaped yet.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    fn wait_for_stop(&self) {
        let proc = Proc::at("/".as_ref());
        let began = Instant::now();
        let tgid = self.tgid();
        // Every thread stops by itself.
        while proc.tasks(tgid).unwrap().into_iter().any(|task| {
            let stat = std::fs::read(proc.path(format!("{}/task/{task}/stat", tgid.0))).unwrap();
            !matches!(memprov_proc::stat::parse(&stat).unwrap().state, b'T' | b't' | b'Z')
        }) {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
