//! The Go programs under test, built by `otel-collector/build` once for each content.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};

use memprov_tests::host;

/// Status of the build when there is no Go that is new enough.
const NO_GO: i32 = 69;

/// The root of the tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder with what `otel-collector/build PROGRAM` makes.
///
/// # Errors
/// Why this host can't build it.
pub(crate) fn built(program: &'static str) -> Result<PathBuf, String> {
    static BUILT: LazyLock<Mutex<BTreeMap<&str, Result<PathBuf, String>>>> =
        LazyLock::new(Mutex::default);
    let mut built = BUILT.lock().expect("no build panicked");
    built.entry(program).or_insert_with(|| build(program)).clone()
}

fn build(program: &str) -> Result<PathBuf, String> {
    // Beside the binary under test: where all that is built lies.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let done = Command::new(root().join("otel-collector/build"))
        .arg(program)
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null())
        .output()
        .expect("the build script starts");
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(NO_GO) {
        return Err(said.trim().to_owned());
    }
    assert!(done.status.success(), "otel-collector/build {program}: {}: {said}", done.status);
    Ok(PathBuf::from(String::from_utf8_lossy(&done.stdout).trim()))
}

/// The workload of the ground truth.
pub(crate) fn truth() -> PathBuf {
    static TRUTH: LazyLock<PathBuf> = LazyLock::new(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("truth-e2e");
        host::compile_c(&root().join("tests/groundtruth"), &program, &[])
            .expect("the workload compiles");
        program
    });
    TRUTH.clone()
}
