//! What `dashboards/` ships: rules by Prometheus' own tests of rules, dashboards by Grafana's schema.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memprov_tests::host;

use crate::programs::{built, root};

/// The files of a folder below `dashboards/`.
fn files(folder: &str) -> Vec<PathBuf> {
    let listed = fs::read_dir(root().join("dashboards").join(folder)).expect("a folder");
    let mut files: Vec<_> = listed.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Fails with what the program said unless it is content.
fn run(program: &Path, arguments: &[&str], files: &[PathBuf]) {
    let mut command = Command::new(program);
    let done = command.args(arguments).args(files).stdin(Stdio::null()).output();
    let done = done.unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn incidents_that_must_be_told_are_told_and_others_are_not() {
    let promtool = match built("prometheus") {
        Ok(programs) => programs.join("promtool"),
        Err(why) => return host::skip("e2e rules", &why),
    };
    run(&promtool, &["check", "rules", "--lint=all", "--lint-fatal"], &files("rules"));
    run(&promtool, &["test", "rules"], &files("tests"));
}

#[test]
fn every_rule_file_has_a_test_file() {
    let names = |folder: &str| {
        files(folder).iter().map(|path| path.file_name().map(ToOwned::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(names("rules"), names("tests"));
}

#[test]
fn dashboards_are_what_their_descriptions_make_and_keep_to_grafanas_schema() {
    let generator = match built("dashboards") {
        Ok(programs) => programs.join("dashboards"),
        Err(why) => return host::skip("e2e dashboards", &why),
    };
    let folder = root().join("dashboards").display().to_string();
    run(&generator, &[&folder, "check"], &[]);
}
