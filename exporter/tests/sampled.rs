//! Page faults of a live program, told one by one by the daemon.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use memprov::report::{AccessRow, Filled, Report};
use memprov::socket::fetch;
use memprov_ledger::evidence::EvidenceClass;
use rustix::process::{Pid, Signal, kill_process};

/// What these tests cannot do without.
const NEEDED: &str = "the kernel, the file system and the daemon do what they are asked to";
/// Says to the program that it is to touch so many pages.
const PAGES: &str = "MEMPROV_TEST_PAGES";
/// What it touches.
const TOUCHED: u64 = 3000;

/// A process of a test; it ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The program, run by the test below: waits for a line, touches memory once, waits for another.
#[test]
fn touches_memory_where_it_is_told_to() {
    let Some(pages) = std::env::var(PAGES).ok().and_then(|n| n.parse::<usize>().ok()) else {
        return;
    };
    let wait = || std::io::stdin().read_line(&mut String::new()).expect(NEEDED);
    wait();
    let memory = vec![1u8; pages * 4096];
    println!("touched {}", std::hint::black_box(&memory).len());
    wait();
}

fn report(state: &Path, pid: u32) -> Option<Report> {
    serde_json::from_slice(&fetch(state, Some(pid)).ok()?).ok()
}

/// The owner of faults that filled about as much as the program touched, once there is one.
fn filler(report: &Report) -> Option<AccessRow> {
    let rows = &report.accesses.as_ref()?.owners;
    let filled = |row: &&AccessRow| faults(row) >= TOUCHED;
    rows.iter().find(filled).cloned()
}

fn faults(row: &AccessRow) -> u64 {
    let nodes = row.sums.populated.iter().flat_map(|populated| populated.nodes.values());
    nodes.map(|filled: &Filled| filled.faults).sum()
}

#[test]
fn live_bytes_populated_by_an_owner_are_those_that_its_book_has() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if huge.is_ok_and(|text| text.contains("[always]")) {
        println!("skipped: huge pages are always used here");
        return;
    }
    let directory = tempfile::tempdir().expect(NEEDED);
    let (state, trace) = (directory.path().join("state"), directory.path().join("trace"));
    let program = Command::new(std::env::current_exe().expect(NEEDED))
        .args(["--exact", "touches_memory_where_it_is_told_to", "--nocapture"])
        .env(PAGES, TOUCHED.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect(NEEDED);
    let mut program = Running(program);
    let pid = program.0.id();
    let daemon = Command::new(env!("CARGO_BIN_EXE_memprov"))
        .args(["record", "--interval", "1s", "--pid", &pid.to_string()])
        .args(["--set", "access.faults=*", "--state-dir"])
        .arg(&state)
        .arg("--output")
        .arg(&trace)
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(directory.path().join("log")).expect(NEEDED))
        .spawn()
        .expect(NEEDED);
    let mut daemon = Running(daemon);
    let log = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    let again = || std::thread::sleep(Duration::from_millis(200));
    // Its first report: the sources are attached.
    assert!((0..150).any(|_| report(&state, pid).is_some() || (again(), false).1), "{}", log());
    let stdin = program.0.stdin.as_mut().expect(NEEDED);
    stdin.write_all(b"go\n").expect(NEEDED);
    let told = (0..150).find_map(|_| {
        again();
        let report = report(&state, pid)?;
        Some((filler(&report)?, report))
    });
    let (row, report) = told.unwrap_or_else(|| panic!("no such owner: {}", log()));
    let populated = row.sums.populated.clone().expect(NEEDED);
    println!("{}: {populated:?}, lost {:?}", row.name, report.lost);
    let bytes: u64 = populated.nodes.values().map(|filled| filled.bytes).sum();
    let owners = &report.processes[0].owners;
    let owner = owners.iter().find(|owner| owner.id == row.id).expect("its bytes are in a book");
    assert_eq!(Some(bytes), owner.resident.bytes, "{owner:?}");
    if report.host.nodes == Some(1) && report.lost.get("accesses") == Some(&0) {
        assert_eq!(populated.evidence, EvidenceClass::Exact);
    }
    let daemon_pid = Pid::from_raw(i32::try_from(daemon.0.id()).expect(NEEDED)).expect(NEEDED);
    kill_process(daemon_pid, Signal::TERM).expect(NEEDED);
    assert!(daemon.0.wait().expect(NEEDED).success(), "{}", log());
    let replayed = Command::new(env!("CARGO_BIN_EXE_memprov"))
        .arg("replay")
        .arg(&trace)
        .args(["--output", "report-json"])
        .output()
        .expect(NEEDED);
    let replayed: Report = serde_json::from_slice(&replayed.stdout).expect("a report");
    let again = filler(&replayed).expect("the same owner");
    assert_eq!((again.id, again.sums.populated), (row.id, Some(populated)));
}
