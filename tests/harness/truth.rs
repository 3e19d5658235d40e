//! A workload that states what is true of its own memory, and stands still while it is scored.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

/// Status of a case that can't be played on this host.
const CANNOT: i32 = 77;

/// What is true in one phase.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Phase {
    /// Its name.
    pub phase: String,
    /// A thread goes on while the others stand still.
    #[serde(default)]
    pub busy: bool,
    /// The statements.
    pub owners: Vec<Statement>,
}

impl Phase {
    /// The processes that it speaks of.
    pub fn pids(&self) -> Vec<u32> {
        self.owners.iter().filter_map(|s| s.pid).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether anybody has any memory in it.
    pub fn holds_anything(&self) -> bool {
        self.owners.iter().any(|said| said.resident > 0)
    }
}

/// One statement. A row matches by `site` (a function of its stack) or by a part of its `name`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Statement {
    /// What it speaks of.
    pub about: About,
    /// The process.
    pub pid: Option<u32>,
    /// Call site.
    pub site: Option<String>,
    /// A part of the owner's name, in any case.
    pub name: Option<String>,
    /// Kind of book or of rows.
    pub kind: Option<String>,
    /// Bytes mapped.
    pub reserved: Option<u64>,
    /// Upper bound of `reserved`, where it comes and goes.
    pub reserved_hi: Option<u64>,
    /// Bytes in memory.
    pub resident: u64,
    /// Upper bound of `resident`, where it is one.
    pub resident_hi: Option<u64>,
    /// Bytes in swap.
    pub swapped: Option<u64>,
    /// Spaces that map a shared object.
    pub sharers: Option<u64>,
    /// Bounds that hold the truth are enough for `resident`.
    #[serde(default)]
    pub inferred: bool,
    /// And however far apart they are.
    #[serde(default)]
    pub wide: bool,
}

impl Statement {
    /// Bytes mapped, at most.
    pub fn most_reserved(&self) -> u64 {
        self.reserved_hi.or(self.reserved).unwrap_or(0)
    }
}

/// What a statement speaks of.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum About {
    /// A call site in a process.
    Owner,
    /// An object that several spaces map.
    Shared,
    /// Bytes of a book that others own.
    Joint,
    /// All rows of a kind in a process.
    Kind,
}

/// How a workload ended.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum End {
    /// Its oracle agreed with the kernel all along.
    Good,
    /// The host doesn't have what the case needs.
    Cannot(String),
    /// Anything else, with what it said.
    Bad(String),
}

/// A running workload.
#[derive(Debug)]
pub struct Workload {
    child: Child,
    orders: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts one case; its files are made in `files`.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(program: &Path, case: &str, files: &Path) -> Result<Self, String> {
        Self::start_with(Command::new(program).arg(case).env("TRUTH_DIR", files))
    }

    /// Starts a prepared command.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start_with(command: &mut Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("start {command:?}: {e}"))?;
        let orders = child.stdin.take();
        let says = child.stdout.take().ok_or("no standard output")?;
        Ok(Self { child, orders, says: BufReader::new(says) })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next phase; `None` when it has ended.
    ///
    /// # Errors
    /// When it says something else.
    pub fn phase(&mut self) -> Result<Option<Phase>, String> {
        let mut line = String::new();
        match self.says.read_line(&mut line).map_err(|e| format!("read the oracle: {e}"))? {
            0 => Ok(None),
            _ => serde_json::from_str(&line)
                .map(Some)
                .map_err(|e| format!("the oracle says {line:?}: {e}")),
        }
    }

    /// Lets it go on.
    pub fn go(&mut self) {
        // A workload that has ended can't be told so; `end` tells how it ended.
        let told = self.orders.as_mut().map(|orders| orders.write_all(b"\n"));
        drop(told);
    }

    /// Lets it end where it stands, and says how it did.
    pub fn end(mut self) -> End {
        self.orders = None;
        let mut said = String::new();
        if let Some(mut from) = self.child.stderr.take() {
            use std::io::Read;
            if let Err(e) = from.read_to_string(&mut said) {
                return End::Bad(format!("read its standard error: {e}"));
            }
        }
        match self.child.wait() {
            Ok(status) if status.success() => End::Good,
            Ok(status) if status.code() == Some(CANNOT) => {
                End::Cannot(said.trim().trim_start_matches("truth: ").to_owned())
            }
            Ok(status) => End::Bad(format!("{status}: {}", said.trim())),
            Err(e) => End::Bad(format!("wait: {e}")),
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // Ended already after `end`; a test that failed half-way leaves nothing running.
        let killed = self.child.kill().and_then(|()| self.child.wait());
        drop(killed);
    }
}
