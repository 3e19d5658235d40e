//! A memprov that runs beside a test: started, asked and stopped through its command line.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::report::Report;
use crate::{host, otlp};

/// How long a test waits for books that are closed again; many times what a machine under load needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// `EX_UNAVAILABLE`: no daemon, or nothing to say yet.
const UNAVAILABLE: i32 = 69;

/// A running `memprov run` or `memprov record`.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    memprov: PathBuf,
    home: TempDir,
    /// Its command line after the state directory.
    arguments: Vec<OsString>,
}

impl Agent {
    /// Watches `pid` and its descendants.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn watching(pid: u32) -> Result<Self, String> {
        Self::watching_all(&[pid])
    }

    /// Watches all of them and their descendants.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn watching_all(pids: &[u32]) -> Result<Self, String> {
        Self::start("run", pids, &[])
    }

    /// The same with settings changed by `--set key=value`.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn watching_with(pid: u32, settings: &[&str]) -> Result<Self, String> {
        Self::start("run", &[pid], &set(settings))
    }

    /// The same of several processes, as a host of another name: with a machine id of its own.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn elsewhere(pids: &[u32], settings: &[&str], machine: &str) -> Result<Self, String> {
        let home = home()?;
        // The id is bound over that of this host, where nobody else sees it; the process stays the same one.
        let (id, memprov) = (home.path().join("machine-id"), home.path().join("memprov"));
        let script = format!(
            "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {id} /etc/machine-id && exec {memprov} \"$@\"' sh \"$@\"\n",
            id = id.display(),
            memprov = host::memprov().display(),
        );
        let written = fs::write(&id, format!("{machine}\n"))
            .and_then(|()| fs::write(&memprov, script))
            .and_then(|()| fs::set_permissions(&memprov, fs::Permissions::from_mode(0o755)));
        written.map_err(|e| format!("write {}: {e}", memprov.display()))?;
        Self::start_in(home, memprov, "run", pids, &set(settings))
    }

    /// Records the evidence about `pids` and their descendants into `trace`.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn recording(pids: &[u32], trace: &Path) -> Result<Self, String> {
        Self::start("record", pids, &["--output".as_ref(), trace])
    }

    fn start(command: &str, pids: &[u32], more: &[&Path]) -> Result<Self, String> {
        Self::start_in(home()?, host::memprov(), command, pids, more)
    }

    fn start_in(
        home: TempDir,
        memprov: PathBuf,
        command: &str,
        pids: &[u32],
        more: &[&Path],
    ) -> Result<Self, String> {
        let state = home.path().join("state");
        fs::create_dir(&state).map_err(|e| format!("make {}: {e}", state.display()))?;
        let mut arguments: Vec<OsString> = [command, "--interval", "1s"].map(OsString::from).into();
        arguments.extend(pids.iter().flat_map(|pid| ["--pid".into(), pid.to_string().into()]));
        arguments.extend(more.iter().map(|one| one.as_os_str().to_owned()));
        let child = spawn(&memprov, home.path(), &arguments)?;
        Ok(Self { child, memprov, home, arguments })
    }

    /// Asks it to stop, and starts it again as it was, with the same state directory.
    ///
    /// # Errors
    /// When it doesn't end with status 0, or can't be started.
    pub fn again(&mut self) -> Result<(), String> {
        self.ask_to_stop()?;
        self.child = spawn(&self.memprov, self.home.path(), &self.arguments)?;
        Ok(())
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// The end of what it logged.
    pub fn log(&self) -> String {
        let text = fs::read(self.home.path().join("log")).unwrap_or_default();
        let from = text.len().saturating_sub(2000);
        String::from_utf8_lossy(text.get(from..).unwrap_or_default()).into_owned()
    }

    /// One report about `pid`; `None` while there is nothing to say.
    ///
    /// # Errors
    /// When the answer is neither a report nor a refusal with status 69.
    pub fn report(&self, pid: u32) -> Result<Option<Report>, String> {
        self.asked(pid, &["--output", "json"])?.map(|told| Report::parse(&told)).transpose()
    }

    /// What it would send about `pid` now, held against the registry; `None` while there is nothing to say.
    ///
    /// # Errors
    /// When the answer is neither OTLP that keeps to the registry nor a refusal with status 69.
    pub fn otlp(&self, pid: u32) -> Result<Option<otlp::Kept>, String> {
        let told = self.asked(pid, &["--output", "otlp-json"])?;
        told.map(|told| otlp::kept(&told[..], &[])).transpose()
    }

    /// The bytes of one report about `pid` asked for with flags; `None` while there is nothing to say.
    ///
    /// # Errors
    /// When the answer is neither a report nor a refusal with status 69.
    pub fn asked(&self, pid: u32, flags: &[&str]) -> Result<Option<Vec<u8>>, String> {
        let done = host::command(&self.memprov)
            .args(["report", "--pid", &pid.to_string(), "--state-dir"])
            .arg(self.state())
            .args(flags)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("run memprov report: {e}"))?;
        match done.status.code() {
            Some(0) => Ok(Some(done.stdout)),
            Some(UNAVAILABLE) => Ok(None),
            _ => Err(format!(
                "memprov report: {}: {}",
                done.status,
                String::from_utf8_lossy(&done.stderr)
            )),
        }
    }

    /// The first report about `pid` in which every one of `all` holds as of a reading begun at `since` or later.
    ///
    /// # Errors
    /// When none comes in time; with the daemon's log.
    pub fn fresh(&self, pid: u32, all: &[u32], since: SystemTime) -> Result<Report, String> {
        let until = Instant::now() + PATIENCE;
        let mut lacking = "no report at all".to_owned();
        while Instant::now() < until {
            if let Some(report) = self.report(pid)? {
                let late = |pid: &u32| match report.process(*pid) {
                    None => Some(format!("{pid} is not reported")),
                    Some(p) => since
                        .duration_since(p.as_of)
                        .ok()
                        .filter(|behind| !behind.is_zero())
                        .map(|behind| format!("{pid} is {behind:?} behind")),
                };
                let others = all.iter().filter(|other| **other != pid);
                let all: Vec<_> = [pid].iter().chain(others).filter_map(late).collect();
                if all.is_empty() {
                    return Ok(report);
                }
                lacking = all.join(", ");
            }
            sleep(Duration::from_millis(200));
        }
        Err(format!("no fresh books in {PATIENCE:?}: {lacking}; log: {}", self.log()))
    }

    /// Asks it to stop.
    ///
    /// # Errors
    /// When it doesn't end with status 0, or leaves more than a checkpoint in its state directory.
    pub fn stop(mut self) -> Result<(), String> {
        self.ask_to_stop()?;
        let left: Vec<_> = fs::read_dir(self.state())
            .map_err(|e| format!("list the state directory: {e}"))?
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| name != "checkpoint")
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("memprov left {left:?} in its state directory"))
        }
    }

    fn ask_to_stop(&mut self) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("no pid")?, Signal::TERM)
            .map_err(|e| format!("stop memprov: {e}"))?;
        let status = self.ended()?;
        let good = status.success();
        good.then_some(())
            .ok_or_else(|| format!("memprov ended with {status}; log: {}", self.log()))
    }

    fn ended(&mut self) -> Result<ExitStatus, String> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().map_err(|e| format!("wait: {e}"))? {
                return Ok(status);
            }
            sleep(Duration::from_millis(50));
        }
        Err(format!("memprov doesn't stop; log: {}", self.log()))
    }
}

/// A directory for one agent.
fn home() -> Result<TempDir, String> {
    TempDir::with_prefix("memprov-test-").map_err(|e| format!("make a directory: {e}"))
}

/// Settings as arguments.
fn set<'a>(settings: &[&'a str]) -> Vec<&'a Path> {
    settings.iter().flat_map(|set| ["--set", *set]).map(Path::new).collect()
}

/// Starts memprov; its log goes on where an earlier one ended.
fn spawn(memprov: &Path, home: &Path, arguments: &[OsString]) -> Result<Child, String> {
    let open = OpenOptions::new().create(true).append(true).open(home.join("log"));
    let log = open.map_err(|e| format!("open a log: {e}"))?;
    let log_too = log.try_clone().map_err(|e| format!("share the log: {e}"))?;
    let mut command = host::command(memprov);
    command.args(arguments).arg("--state-dir").arg(home.join("state"));
    command.stdin(Stdio::null()).stdout(log).stderr(log_too);
    command.spawn().map_err(|e| format!("start {command:?}: {e}"))
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Ended already after `stop`; a test that failed half-way leaves no daemon.
        let killed = self.child.kill().and_then(|()| self.child.wait());
        drop(killed);
    }
}

/// The report that a trace replays to; the same one twice, to the byte. Its OTLP is held against the registry.
///
/// # Errors
/// When replay fails, gives two different answers, or OTLP that doesn't keep to the registry.
pub fn replayed(trace: &Path) -> Result<Report, String> {
    let once = |output: &str| {
        let done = host::command(&host::memprov())
            .arg("replay")
            .arg(trace)
            .args(["--output", output])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("run memprov replay: {e}"))?;
        if done.status.success() {
            Ok(done.stdout)
        } else {
            Err(format!(
                "memprov replay: {}: {}",
                done.status,
                String::from_utf8_lossy(&done.stderr)
            ))
        }
    };
    let (first, second) = (once("report-json")?, once("report-json")?);
    if first != second {
        return Err("two replays of one trace differ".to_owned());
    }
    otlp::kept(&once("otlp-json")?[..], &[])?;
    Report::parse(&first)
}
