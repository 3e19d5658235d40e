//! What a daemon tells with few capabilities, of a process of another user: the table of docs/SUPPORT.md.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memprov::report::{OwnerRow, Process, Report};
use memprov_ledger::evidence::EvidenceClass;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// `nobody`.
const NOBODY: u32 = 65_534;
/// Of a size that nothing else maps.
const LEN: usize = 97 << 20;

/// The least with which hooks attach.
const TWO: [&str; 2] = ["bpf", "perfmon"];

/// A daemon that ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("end the daemon");
    }
}

/// Starts a daemon with these capabilities that watches us; `None`, with the reason printed, where it cannot be.
fn start(state: &Path, capabilities: &[&str]) -> Option<Daemon> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: root is needed");
        return None;
    }
    if Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: setpriv is needed");
        return None;
    }
    chown(state, Some(NOBODY), Some(NOBODY)).expect("give the state directory away");
    let log = std::fs::File::create(state.with_extension("log")).expect("make a log");
    let set: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let set = format!("-all{set}");
    let daemon = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["--bounding-set", &set, "--inh-caps", &set, "--ambient-caps", &set])
        .args([env!("CARGO_BIN_EXE_memprov"), "run", "--output", "none", "--interval", "1s"])
        .args(["--pid", &std::process::id().to_string()])
        .arg("--state-dir")
        .arg(state)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("start a daemon");
    let daemon = Daemon(daemon);
    let until = Instant::now() + Duration::from_secs(30);
    while !state.join("memprov.sock").exists() {
        assert!(Instant::now() < until, "{}", told(state));
        std::thread::sleep(Duration::from_millis(50));
    }
    if capabilities.starts_with(&TWO) && told(state).contains("no hooks") {
        eprintln!("skipped: no hooks with CAP_BPF and CAP_PERFMON here");
        return None;
    }
    Some(daemon)
}

/// The daemon's log.
fn told(state: &Path) -> String {
    std::fs::read_to_string(state.with_extension("log")).unwrap_or_default()
}

fn about_us(state: &Path) -> Process {
    let pid = std::process::id();
    let asked = Command::new(env!("CARGO_BIN_EXE_memprov"))
        .args(["report", "--output", "json", "--pid", &pid.to_string(), "--state-dir"])
        .arg(state)
        .output()
        .expect("ask for a report");
    assert!(asked.status.success(), "{asked:?}: {}", told(state));
    let report: Report = serde_json::from_slice(&asked.stdout).expect("a report");
    report.processes.into_iter().find(|p| p.pid == pid).expect("it speaks of us")
}

/// What such a daemon says of us while we hold [`LEN`] bytes that it could see us map; `None` where it cannot be started.
fn said_of_us(capabilities: &[&str]) -> Option<Process> {
    let home = tempfile::tempdir().expect("make a directory");
    // Others must be able to pass.
    chown(home.path(), Some(NOBODY), Some(NOBODY)).expect("give the directory away");
    let state = home.path().join("state");
    std::fs::create_dir(&state).expect("make a directory");
    let _daemon = start(&state, capabilities)?;
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), LEN, prot, flags) }.expect("map");
    // SAFETY: the mapping is ours, and as long.
    unsafe { memory.cast::<u8>().write_bytes(1, LEN) };
    let process = about_us(&state);
    // SAFETY: nothing refers to it any more.
    unsafe { munmap(memory, LEN) }.expect("unmap");
    assert!(told(&state).contains("capabilities"), "{}", told(&state));
    Some(process)
}

/// The owner of what was mapped, known by its call site.
fn mapper(process: &Process) -> &OwnerRow {
    let ours = |row: &&OwnerRow| row.reserved.bytes >= Some(LEN as u64) && row.kind == "mapping";
    let ours = process.owners.iter().find(ours);
    let ours = ours.unwrap_or_else(|| panic!("who mapped it is not told: {:?}", process.owners));
    assert_eq!(ours.reserved.evidence, EvidenceClass::Exact, "it was seen to be made");
    assert!(ours.stack.len() > 3, "our own file is read by its path: {ours:?}");
    ours
}

/// Pages were not read: all that is known is the kernel's total.
fn only_totals(process: &Process) {
    assert!(process.pages_unread);
    assert!(process.owners.iter().all(|row| row.resident.bytes.is_none()), "nobody saw pages");
    let anon = process.books.get("anon").expect("the kernel tells a total");
    assert!(anon.control.lo >= LEN as u64, "{anon:?}");
    assert_eq!((anon.owned, anon.joint, anon.skew), (0, 0, 0));
    assert!((anon.control.lo..=anon.control.hi).contains(&anon.unattributed), "{anon:?}");
    assert!(process.faults.as_ref().is_some_and(|faults| faults.minor > 0));
}

#[test]
fn live_no_capability_tells_totals_of_another_user() {
    let Some(process) = said_of_us(&[]) else { return };
    only_totals(&process);
    let sites = process.owners.iter().filter(|row| !row.stack.is_empty());
    assert_eq!(sites.count(), 0, "nobody saw calls: {:?}", process.owners);
}

#[test]
fn live_two_capabilities_tell_call_sites_and_totals_of_another_user() {
    let Some(process) = said_of_us(&TWO) else { return };
    only_totals(&process);
    mapper(&process);
}

#[test]
fn live_reading_past_file_permissions_tells_pages_of_another_user() {
    let [bpf, perfmon] = TWO;
    // Where CAP_PERFMON doesn't let read what another process has, CAP_SYS_PTRACE does.
    let Some(process) = said_of_us(&[bpf, perfmon, "sys_ptrace", "dac_read_search"]) else {
        return;
    };
    assert!(!process.pages_unread);
    let resident = mapper(&process).resident.bytes;
    assert!(resident >= Some(LEN as u64), "{resident:?}");
    let anon = process.books.get("anon").expect("a book");
    assert!(anon.owned >= LEN as u64 && anon.unattributed < LEN as u64, "{anon:?}");
}
