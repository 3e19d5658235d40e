//! What a daemon tells that has no more than CAP_BPF and CAP_PERFMON, of a process of another user.

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

/// A daemon that ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("end the daemon");
    }
}

/// Starts a daemon with two capabilities that watches us; `None`, with the reason printed, where it cannot be.
fn start(state: &Path) -> Option<Daemon> {
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
    let daemon = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["--bounding-set", "-all,+bpf,+perfmon"])
        .args(["--inh-caps", "+bpf,+perfmon", "--ambient-caps", "+bpf,+perfmon"])
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
    if told(state).contains("no hooks") {
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

#[test]
fn live_two_capabilities_tell_call_sites_and_totals_of_another_user() {
    let home = tempfile::tempdir().expect("make a directory");
    // Others must be able to pass.
    chown(home.path(), Some(NOBODY), Some(NOBODY)).expect("give the directory away");
    let state = home.path().join("state");
    std::fs::create_dir(&state).expect("make a directory");
    let Some(_daemon) = start(&state) else { return };
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), LEN, prot, flags) }.expect("map");
    // SAFETY: the mapping is ours, and as long.
    unsafe { memory.cast::<u8>().write_bytes(1, LEN) };
    let process = about_us(&state);
    // SAFETY: nothing refers to it any more.
    unsafe { munmap(memory, LEN) }.expect("unmap");

    assert!(process.pages_unread);
    let ours = |row: &&OwnerRow| row.reserved.bytes >= Some(LEN as u64) && row.kind == "mapping";
    let ours = process.owners.iter().find(ours);
    let ours = ours.unwrap_or_else(|| panic!("who mapped it is not told: {:?}", process.owners));
    assert_eq!(ours.reserved.evidence, EvidenceClass::Exact, "it was seen to be made");
    assert!(ours.stack.len() > 3, "our own file is read by its path: {ours:?}");
    assert!(process.owners.iter().all(|row| row.resident.bytes.is_none()), "nobody saw pages");
    let anon = process.books.get("anon").expect("the kernel tells a total");
    assert!(anon.control.lo >= LEN as u64, "{anon:?}");
    assert_eq!((anon.owned, anon.joint, anon.skew), (0, 0, 0));
    assert!((anon.control.lo..=anon.control.hi).contains(&anon.unattributed), "{anon:?}");
    assert!(process.faults.minor > 0);
    assert!(told(&state).contains("capabilities"), "{}", told(&state));
}
