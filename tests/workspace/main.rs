//! The shape of the workspace: who may name whom, which lints hold, how long a file may be.
#![forbid(unsafe_code)]

mod dashboards;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Who names whom. `memprov-tests` may name everybody, and nobody names it.
const ARROWS: [(&str, &[&str]); 7] = [
    ("memprov-ledger", &[]),
    ("memprov-semconv", &[]),
    ("memprov-bpf", &["memprov-ledger"]),
    ("memprov-damon", &["memprov-ledger"]),
    ("memprov-perfmem", &["memprov-ledger"]),
    ("memprov-proc", &["memprov-ledger"]),
    (
        "memprov",
        &[
            "memprov-bpf",
            "memprov-damon",
            "memprov-ledger",
            "memprov-perfmem",
            "memprov-proc",
            "memprov-semconv",
        ],
    ),
];

/// Families of crates, and the members that may name them.
const RESERVED: [(&str, &[&str]); 6] = [
    ("libbpf", &["memprov-bpf"]),
    ("perf-event", &["memprov-perfmem"]),
    ("opentelemetry", &["memprov", "memprov-tests"]),
    ("tonic", &["memprov", "memprov-tests"]),
    ("tokio", &["memprov", "memprov-tests"]),
    ("blazesym", &["memprov"]),
];

/// Members whose library may hold `unsafe`, and in how many files. Live tests of the adapters may too: they make the
/// processes and mappings that they look at.
const UNSAFE: [(&str, usize); 3] =
    [("memprov-bpf", usize::MAX), ("memprov-perfmem", 1), ("memprov-proc", 3)];

const LONGEST: usize = 500;
/// Files that are longer for a reason: what is made from a registry is as long as the registry.
const LONGER: [&str; 1] = ["semconv/src/generated.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace exists")
}

/// The packages of `cargo metadata`, by name.
fn members() -> BTreeMap<String, Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let metadata: Value = serde_json::from_slice(&done.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages").iter();
    packages.map(|p| (text(&p["name"]), p.clone())).collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// Names of what a package depends on, for building and for tests alike.
fn dependencies(package: &Value, keep: impl Fn(&Value) -> bool) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().expect("dependencies").iter();
    all.filter(|d| keep(d)).map(|d| text(&d["name"])).collect()
}

fn folder(package: &Value) -> PathBuf {
    let manifest = PathBuf::from(text(&package["manifest_path"]));
    manifest.parent().expect("a manifest lies in a folder").to_owned()
}

/// Files of the tree that people write, below `from`.
fn written(from: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![from.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).expect("a folder is listed").map(|e| e.expect("an entry")) {
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().expect("a type");
            let made = ["target", ".git", "corpus", "artifacts", "node_modules"];
            if kind.is_dir() && !made.iter().any(|m| name == *m) {
                folders.push(path);
            } else if kind.is_file() && name != "Cargo.lock" {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn sources(from: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let kinds = ["rs", "c", "h", "py", "go", "sh"];
    written(from)
        .into_iter()
        .filter(move |p| p.extension().and_then(|e| e.to_str()).is_some_and(|e| kinds.contains(&e)))
        .map(|p| (p.clone(), fs::read_to_string(&p).expect("a source file is UTF-8")))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("a path of the workspace").display().to_string()
}

#[test]
fn crates_name_each_other_as_the_design_draws_it() {
    let members = members();
    let mut expected: BTreeSet<_> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    expected.insert("memprov-tests".to_owned());
    assert_eq!(members.keys().cloned().collect::<BTreeSet<_>>(), expected);
    let ours = |d: &Value| expected.contains(d["name"].as_str().unwrap_or_default());
    for (name, named) in ARROWS {
        let named: BTreeSet<_> = named.iter().map(|n| (*n).to_owned()).collect();
        assert_eq!(dependencies(&members[name], ours), named, "{name} names");
    }
}

#[test]
fn the_domain_and_the_names_depend_on_no_system_and_no_runtime() {
    let members = members();
    let built_with = |name: &str| dependencies(&members[name], |d| d["kind"].is_null());
    assert!(built_with("memprov-ledger").is_subset(&BTreeSet::from(["serde".to_owned()])));
    assert!(built_with("memprov-semconv").is_subset(&BTreeSet::from(["serde_json".to_owned()])));
}

#[test]
fn the_kernels_and_opentelemetrys_crates_stay_where_they_belong() {
    for (name, package) in members() {
        for dependency in dependencies(&package, |_| true) {
            for (family, allowed) in RESERVED {
                assert!(
                    !dependency.starts_with(family) || allowed.contains(&name.as_str()),
                    "{name} names {dependency}, only {allowed:?} may"
                );
            }
        }
    }
}

#[test]
fn every_member_takes_the_workspaces_lints() {
    for (name, package) in members() {
        let manifest = fs::read_to_string(text(&package["manifest_path"])).expect("a manifest");
        let lines: Vec<_> = manifest.lines().map(str::trim).collect();
        let takes = lines.windows(2).any(|w| w == ["[lints]", "workspace = true"]);
        assert!(takes, "{name} has no [lints] workspace = true");
    }
}

#[test]
fn unsafe_code_is_at_the_kernels_boundary_only() {
    for (name, package) in members() {
        let allowed = UNSAFE.iter().find(|(n, _)| *n == name).map_or(0, |(_, files)| *files);
        let holds = |code: &str| {
            let code: Vec<_> = code.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
                .iter()
                .any(|form| code.iter().any(|line| line.contains(form) && !line.contains('"')))
        };
        let library = Some(folder(&package).join("src")).filter(|src| src.is_dir());
        let files: Vec<_> = sources(&library.unwrap_or_else(|| folder(&package)))
            .filter(|(path, code)| path.extension().is_some_and(|e| e == "rs") && holds(code))
            .map(|(path, _)| relative(&path))
            .collect();
        assert!(files.len() <= allowed, "{name} holds unsafe code in {files:?}");
        if allowed == 0 {
            for target in package["targets"].as_array().expect("targets") {
                let kind = target["kind"][0].as_str().unwrap_or_default();
                let root = PathBuf::from(text(&target["src_path"]));
                let code = fs::read_to_string(&root).expect("a root");
                let library_or_program = kind == "lib" || kind == "bin";
                assert!(
                    !library_or_program || code.contains("#![forbid(unsafe_code)]"),
                    "{} doesn't forbid unsafe code",
                    relative(&root)
                );
            }
        }
    }
}

#[test]
fn a_source_file_is_one_idea_and_no_longer() {
    let long: Vec<_> = sources(&root())
        .map(|(path, code)| (relative(&path), code.lines().count()))
        .filter(|(path, lines)| *lines > LONGEST && !LONGER.contains(&path.as_str()))
        .collect();
    assert!(long.is_empty(), "over {LONGEST} lines: {long:?}");
}

/// Words of a workplace, not of a program. They are put together here, so that this file is no hit.
#[test]
fn the_tree_speaks_of_nothing_but_the_program() {
    let words = [
        ["/wo", "rk/"],
        ["bash_", "jobs"],
        ["sub", "agent"],
        ["/tmp/", "brief"],
        ["todo", "!("],
        ["unimplemented", "!("],
        ["dbg", "!("],
    ]
    .map(|halves| halves.concat());
    let shared = ["../", "shared"].concat();
    let mut hits = Vec::new();
    for path in written(&root()) {
        let Ok(bytes) = fs::read(&path) else { continue };
        let Ok(content) = std::str::from_utf8(&bytes) else { continue };
        let name = relative(&path);
        let may_name_shared = name == "Makefile"
            || ["tests", "benches"].iter().any(|of| name.contains(of))
            || content.contains("#[cfg(test)]");
        for (number, line) in content.lines().enumerate() {
            let word = words.iter().find(|w| line.contains(w.as_str()));
            let word =
                word.or_else(|| (!may_name_shared && line.contains(&shared)).then_some(&shared));
            if let Some(word) = word {
                hits.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    assert!(hits.is_empty(), "{}", hits.join("\n"));
}
