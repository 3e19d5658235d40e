//! What a test needs of the host: the binary under test, a C compiler, privileges. What is missing is said aloud.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Says why a test was not run: on standard error, and in the file that `TEST_SKIPS` names.
///
/// # Panics
/// When that file can't be written: a skip must not go unseen.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(path) = std::env::var_os("TEST_SKIPS") {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .expect("the file of TEST_SKIPS opens");
        file.write_all(format!("{test}: {why}\n").as_bytes()).expect("a skip is noted");
    }
}

/// Why live tests can't run here, if so.
pub fn no_live_tests() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        Some("live tests need root (CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE)")
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Some("live tests need a kernel with BTF (/sys/kernel/btf/vmlinux)")
    } else {
        None
    }
}

/// The binary under test: `TESTED_MEMPROV`, else the newest build in the target directory that holds this test.
///
/// # Panics
/// When there is none: a test of nothing must not pass.
pub fn memprov() -> PathBuf {
    if let Some(path) = std::env::var_os("TESTED_MEMPROV") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "TESTED_MEMPROV names {}, which is no file", path.display());
        return path;
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let target = test.ancestors().nth(3).expect("a test lies in target/PROFILE/deps");
    let built = |profile: &str| {
        let path = target.join(profile).join("memprov");
        let when: SystemTime = path.metadata().ok()?.modified().ok()?;
        Some((when, path))
    };
    let newest = ["release", "debug"].into_iter().filter_map(built).max();
    let Some((_, path)) = newest else {
        panic!(
            "no memprov in {}/release or debug: run `cargo build --release -p memprov` first, or set TESTED_MEMPROV",
            target.display()
        )
    };
    path
}

/// A command of `memprov` that reads no configuration from this test's environment.
pub fn command(memprov: &Path) -> Command {
    let mut command = Command::new(memprov);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MEMPROV_") {
            command.env_remove(name);
        }
    }
    command
}

/// Compiles C sources into `program`, optimised and without frame pointers, as distributions do.
///
/// # Errors
/// What the compiler says.
pub fn compile_c(sources: &Path, program: &Path, flags: &[&str]) -> Result<(), String> {
    let mut files: Vec<_> = sources
        .read_dir()
        .map_err(|e| format!("list {}: {e}", sources.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    files.sort();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-fomit-frame-pointer", "-Wall", "-Wextra", "-Werror"])
        .args(["-pthread", "-o"])
        .arg(program)
        .args(flags)
        .args(files);
    let done = cc.output().map_err(|e| format!("{cc:?}: {e}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!("{cc:?}: {}", String::from_utf8_lossy(&done.stderr)))
    }
}

/// The first of these programs that is installed.
pub fn program(candidates: &[&str]) -> Option<PathBuf> {
    candidates.iter().map(PathBuf::from).find(|p| p.is_file())
}
