//! Servers of a distribution, started, loaded, frozen and ended.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use memprov_tests::{host, physical};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longer than any of them needs to start, save or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that the tests know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    Nginx,
    Python,
    Go,
}

/// A running server with a directory and a unix socket of its own.
pub(crate) struct Server {
    kind: Kind,
    child: Child,
    dir: TempDir,
}

impl Server {
    /// Starts a shell that becomes the server at [`Server::go`].
    ///
    /// # Errors
    /// Why this host has no such server.
    pub(crate) fn wait(kind: Kind) -> Result<Self, String> {
        let dir = TempDir::with_prefix("memprov-server-")
            .map_err(|e| format!("make a directory: {e}"))?;
        let command = command(kind, dir.path())?;
        let child = Command::new("sh")
            .args(["-c", "read -r go && exec \"$@\"", "server"])
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("start a shell: {e}"))?;
        Ok(Self { kind, child, dir })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Lets the shell become the server, and waits until it listens.
    pub(crate) fn go(&mut self) {
        let orders = self.child.stdin.as_mut().expect("a pipe to the shell");
        orders.write_all(b"\n").expect("the shell is told to go on");
        until("the server listens", || UnixStream::connect(self.socket()).ok());
    }

    /// Some tens of megabytes of its usual work.
    ///
    /// # Errors
    /// When it doesn't answer as it should.
    pub(crate) fn load(&self) -> Result<(), String> {
        match self.kind {
            Kind::Redis => self.redis_benchmark(),
            Kind::Nginx => (0..2000).try_for_each(|_| self.get()),
            Kind::Python | Kind::Go => self.fill(),
        }
    }

    fn redis_benchmark(&self) -> Result<(), String> {
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(self.socket());
        command.args(["-q", "-t", "set", "-n", "150000", "-r", "150000", "-d", "300", "-P", "16"]);
        succeed(&mut command).map(drop)
    }

    fn get(&self) -> Result<(), String> {
        let failed = |e| format!("GET / of nginx: {e}");
        let mut peer = UnixStream::connect(self.socket()).map_err(failed)?;
        peer.write_all(b"GET / HTTP/1.0\r\n\r\n").map_err(failed)?;
        let mut answer = String::new();
        peer.read_to_string(&mut answer).map_err(failed)?;
        if answer.ends_with("memprov\n") {
            Ok(())
        } else {
            Err(format!("nginx answers {answer:?}"))
        }
    }

    fn fill(&self) -> Result<(), String> {
        let failed = |e| format!("fill the cache: {e}");
        let mut peer = UnixStream::connect(self.socket()).map_err(failed)?;
        let mut answers = BufReader::new(peer.try_clone().map_err(failed)?);
        for _ in 0..20 {
            peer.write_all(b"1000\n").map_err(failed)?;
            let mut answer = String::new();
            answers.read_line(&mut answer).map_err(failed)?;
            if answer != "ok\n" {
                return Err(format!("the cache answers {answer:?}"));
            }
        }
        Ok(())
    }

    /// Starts a save that takes long enough to be looked at; its process.
    ///
    /// # Errors
    /// When redis refuses.
    pub(crate) fn redis_save_slowly(&self) -> Result<u32, String> {
        let cli = |args: &[&str]| {
            succeed(Command::new("redis-cli").arg("-s").arg(self.socket()).args(args))
        };
        cli(&["config", "set", "rdb-key-save-delay", "500"])?;
        cli(&["bgsave"])?;
        Ok(until("redis forks", || {
            physical::family(self.pid()).into_iter().find(|p| *p != self.pid())
        }))
    }

    /// Stops every process of the server where it stands; those processes.
    pub(crate) fn freeze(&self) -> Vec<u32> {
        let pids = physical::family(self.pid());
        pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
        until("the server stands still", || pids.iter().all(|pid| stopped(*pid)).then_some(()));
        pids
    }

    /// Lets them go on.
    pub(crate) fn thaw(&self) {
        physical::family(self.pid()).into_iter().for_each(|pid| signal(pid, Signal::CONT));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        physical::family(self.pid()).into_iter().for_each(|pid| signal(pid, Signal::KILL));
        let waited = self.child.wait();
        drop(waited);
    }
}

fn command(kind: Kind, dir: &Path) -> Result<Vec<String>, String> {
    let socket = dir.join("socket").display().to_string();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers");
    let need = |name: &str, at: &[&str]| {
        host::program(at)
            .map(|p| p.display().to_string())
            .ok_or_else(|| format!("{name} is not installed"))
    };
    let words = match kind {
        Kind::Redis => {
            need("redis-benchmark", &["/usr/bin/redis-benchmark"])?;
            let server = need("redis-server", &["/usr/bin/redis-server"])?;
            let dir = dir.display().to_string();
            vec![server, "--port".into(), "0".into(), "--unixsocket".into(), socket]
                .into_iter()
                .chain(["--save".into(), String::new(), "--dir".into(), dir])
                .collect()
        }
        Kind::Nginx => {
            let server = need("nginx", &["/usr/sbin/nginx"])?;
            let config = fs::read_to_string(own.join("nginx.conf")).map_err(|e| e.to_string())?;
            let at = dir.join("nginx.conf");
            fs::write(&at, config.replace("DIR", &dir.display().to_string()))
                .map_err(|e| e.to_string())?;
            vec![server, "-c".into(), at.display().to_string()]
        }
        Kind::Python => {
            vec![
                need("python3", &["/usr/bin/python3"])?,
                own.join("serve.py").display().to_string(),
                socket,
            ]
        }
        Kind::Go => {
            let server = dir.join("serve");
            let go = need("go", &["/usr/local/go/bin/go", "/usr/bin/go", "/usr/lib/go/bin/go"])?;
            let mut build = Command::new(go);
            build
                .arg("build")
                .arg("-o")
                .arg(&server)
                .arg(own.join("serve.go"))
                .env("GOFLAGS", "-mod=mod");
            succeed(&mut build)?;
            vec![server.display().to_string(), socket]
        }
    };
    Ok(words)
}

fn succeed(command: &mut Command) -> Result<String, String> {
    let done = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr)))
    }
}

fn until<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(value) = there() {
            return value;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("{what}: not within {PATIENCE:?}")
}

/// A process may have gone by itself: then there is nobody to signal.
fn signal(pid: u32, signal: Signal) {
    let sent = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
    if let Some(Err(why)) = sent
        && why != Errno::SRCH
    {
        eprintln!("signal {pid}: {why}");
    }
}

/// Every thread is stopped.
fn stopped(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    tasks.flatten().all(|task| {
        fs::read_to_string(task.path().join("stat")).is_ok_and(|stat| {
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'Z']))
        })
    })
}
