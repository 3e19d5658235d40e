//! Kernels under which memprov is tested, each in one guest that plays all cases and leaves what it saw.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, Once, OnceLock};
use std::thread;
use std::time::Instant;

use memprov_tests::host;
use serde::de::DeserializeOwned;

use crate::{EARLY, KERNELS, LATE, RECORDED};

/// What the scripts of this folder use.
const TOOLS: [&str; 9] =
    ["qemu-system-x86_64", "busybox", "cpio", "xz", "zstd", "lz4", "mke2fs", "apt-get", "dpkg-deb"];
/// Chooses kernels by name, such as `6.1,6.12`; all when unset.
const CHOICE: &str = "TESTED_KERNELS";

/// A kernel, and what is asked of it.
pub(crate) struct Kernel {
    /// Series, for people.
    pub(crate) name: &'static str,
    /// Debian's suite that has it.
    suite: &'static str,
    /// What is wrong there fails the test; else it is a line in the list of what was skipped.
    pub(crate) required: bool,
    guest: OnceLock<Result<Guest, Absent>>,
}

/// Why there are no results.
enum Absent {
    /// The host can't have such a guest, or it isn't chosen.
    Cannot(String),
    /// It should have worked.
    Failed(String),
}

/// A guest that has ended, and left its results.
pub(crate) struct Guest {
    results: PathBuf,
}

impl Kernel {
    pub(crate) const fn new(name: &'static str, suite: &'static str, required: bool) -> Self {
        Self { name, suite, required, guest: OnceLock::new() }
    }

    /// Judges the results of this kernel's guest: every sentence of `wrong` fails the test `what`.
    pub(crate) fn judge(
        &'static self,
        what: &str,
        wrong: impl FnOnce(&Guest) -> Result<(), Vec<String>>,
    ) {
        start_all();
        let what = format!("kernels {} {what}", self.name);
        let wrong = match self.guest.wait() {
            Ok(guest) => wrong(guest),
            Err(Absent::Cannot(why)) => return host::skip(&what, why),
            Err(Absent::Failed(why)) => Err(vec![why.clone()]),
        };
        match wrong {
            Ok(()) => {}
            Err(wrong) if self.required => panic!("{what}:\n  {}", wrong.join("\n  ")),
            Err(wrong) => host::skip(&what, &format!("not asked of it: {}", wrong.join("; "))),
        }
    }

    fn boot(&self) -> Result<Guest, Absent> {
        let chosen = std::env::var(CHOICE);
        if chosen.is_ok_and(|chosen| !chosen.split(',').any(|name| name == self.name)) {
            return Err(Absent::Cannot(format!("{CHOICE} doesn't name it")));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = |tool: &&&str| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file());
        let missing: Vec<_> = TOOLS.iter().filter(|tool| !there(tool)).copied().collect();
        if !missing.is_empty() {
            return Err(Absent::Cannot(format!("not installed: {}", missing.join(", "))));
        }
        let began = Instant::now();
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let unpacked = run(script("get").arg(self.suite).arg(tmp.join("kernels")))
            .map_err(|why| Absent::Failed(format!("get the kernel of {}: {why}", self.suite)))?;
        let kernel = PathBuf::from(unpacked.trim());
        let results = tmp.join("guests").join(self.name);
        drop(fs::remove_dir_all(&results));
        let booted = run(script("boot")
            .env("TIMEOUT", "1200")
            .arg(&kernel)
            .arg(&results)
            .arg(programme())
            .args(programs())
            .arg(script("charge").get_program())
            .arg(host::memprov())
            .arg(env!("CARGO_BIN_EXE_perform")));
        let release = kernel.file_name().unwrap_or_default().to_string_lossy();
        say(&format!("{release}: {} s", began.elapsed().as_secs()));
        booted.map_err(|why| Absent::Failed(format!("boot {release}: {why}")))?;
        Ok(Guest { results })
    }
}

impl Guest {
    /// A file that the guest left.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.results.join(name)
    }

    /// A document that the guest left.
    ///
    /// # Errors
    /// When there is none of that shape; with what the guest last said.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, Vec<String>> {
        let path = self.path(name);
        let text = fs::read(&path).map_err(|e| e.to_string());
        text.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string())).map_err(
            |why| {
                let console = fs::read_to_string(self.path("console")).unwrap_or_default();
                vec![format!("read {}: {why}; console: {}", path.display(), console.trim())]
            },
        )
    }
}

/// What the guest does: all in one boot.
fn programme() -> String {
    let perform = |way: &str, cases: &[&str]| {
        format!("perform {way} /t /disk /out/{way} {}\n", cases.join(" "))
    };
    [
        // What khugepaged fills by itself, no case can state.
        "echo 0 >/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none\n",
        // Under TCG a scan takes eight times as long as on the machine that it models.
        "mkdir -p /etc/memprov && printf '[scan]\\nbudget = 0.08\\n' >/etc/memprov/memprov.toml\n",
        "export TESTED_MEMPROV=/t/memprov\nmemprov check --output json >/out/check.json\n",
        &perform("early", EARLY),
        &perform("late", LATE),
        &perform("recorded", RECORDED),
        include_str!("once.sh"),
        include_str!("nodes.sh"),
        "charge /out/charge\n",
        include_str!("damon.sh"),
    ]
    .concat()
}

/// The workload, as distributions build and at fixed addresses, what holds memory in cgroups, what uses some of it, what
/// takes rights away, what knows on which nodes it has its memory, and what touches so many pages.
fn programs() -> &'static [PathBuf; 7] {
    static BUILT: OnceLock<[PathBuf; 7]> = OnceLock::new();
    BUILT.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
        fs::create_dir_all(&out).expect("a directory for programs");
        [
            ("groundtruth", "truth", &[][..]),
            ("groundtruth", "truth-fixed", &["-no-pie"][..]),
            ("kernels", "hold", &[][..]),
            ("kernels/hot", "hot", &[][..]),
            ("kernels/lesser", "lesser", &[][..]),
            ("kernels/placed", "placed", &[][..]),
            ("kernels/touched", "touched", &[][..]),
        ]
        .map(|(from, name, flags)| {
            let program = out.join(name);
            host::compile_c(&sources.join(from), &program, flags).expect("the workload compiles");
            program
        })
    })
}

/// Starts the guests, as many at a time as there are CPUs: a guest is one busy thread.
fn start_all() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let waiting = &*Box::leak(Box::new(Mutex::new(KERNELS.iter())));
        let next = || waiting.lock().expect("nobody panics here").next();
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(KERNELS.len()) {
            thread::spawn(move || {
                while let Some(kernel) = next() {
                    kernel.guest.get_or_init(|| kernel.boot());
                }
            });
        }
    });
}

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels").join(name))
}

/// Standard output of a command, or the end of what it said instead.
fn run(command: &mut Command) -> Result<String, String> {
    let done = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim()))
    }
}

/// A line past the capture of the test's output: how long a guest took is of interest when all is well, too.
fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
