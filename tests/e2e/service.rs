//! Programs that run beside a test: started on free ports of the loopback, stopped or killed by their own pid.

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than any of them needs to start, or to stop, on a machine under load.
const PATIENCE: Duration = Duration::from_secs(90);

/// Ports below those that connections get (`net.ipv4.ip_local_port_range`, from 32,768).
const FIRST_PORT: u16 = 12_000;
const PORTS_TRIED: u32 = 20_000;

/// Repeats `look` until it finds something.
///
/// # Panics
/// When it finds nothing for a long time; with the last reason.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) if Instant::now() > end => panic!("{what}: not in {PATIENCE:?}: {why}"),
            Err(_) => sleep(Duration::from_millis(200)),
        }
    }
}

/// Ports that nobody has. Not those that the kernel gives to connections: one of them may be gone before it is used.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    // Runs beside this one, whose ids are near, begin far away.
    let begin = std::process::id().wrapping_mul(7919) % PORTS_TRIED;
    let free = |_| loop {
        let number = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(u32::from(number) < PORTS_TRIED, "no port is free");
        let offset = (begin + u32::from(number)) % PORTS_TRIED;
        let port = FIRST_PORT + u16::try_from(offset).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            break port;
        }
    };
    std::array::from_fn(free)
}

/// What is to be run, and how one sees that it works.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Answers 200 once it is ready.
    pub(crate) ready: String,
}

/// A running program, or one that is stopped for a while.
pub(crate) struct Service {
    recipe: Recipe,
    log: PathBuf,
    child: Option<Child>,
}

impl Service {
    /// Starts it, its log in `files`.
    pub(crate) fn start(recipe: Recipe, files: &Path) -> Self {
        let log = files.join(format!("{}.log", recipe.name));
        let mut service = Self { recipe, log, child: None };
        service.resume();
        service
    }

    /// Starts it again as it was.
    pub(crate) fn resume(&mut self) {
        let Recipe { name, program, arguments, environment, ready } = &self.recipe;
        let log = OpenOptions::new().create(true).append(true).open(&self.log).expect("a log");
        let log_too = log.try_clone().expect("the log is shared");
        let child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            .spawn();
        let mut child = child.unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
        until(&format!("{name} is ready"), || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("{name} ended with {status}: {}", self.tail());
            }
            ureq::get(ready).call().map(drop).map_err(|e| format!("{e}; log: {}", self.tail()))
        });
        self.child = Some(child);
    }

    /// Asks it to end, and waits for it.
    pub(crate) fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    fn end(&mut self, signal: Signal) {
        let name = self.recipe.name;
        let Some(mut child) = self.child.take() else { return };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).unwrap_or_else(|e| panic!("end {name}: {e}"));
        until(&format!("{name} ends"), || match child.try_wait() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(format!("it runs on; log: {}", self.tail())),
            Err(e) => Err(e.to_string()),
        });
    }

    /// All it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of what it has logged.
    pub(crate) fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // A test that failed half-way leaves nothing running.
            let killed = child.kill().and_then(|()| child.wait());
            drop(killed);
        }
    }
}
