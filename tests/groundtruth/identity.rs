//! An owner has the same id wherever and whenever its program runs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use memprov_tests::agent::Agent;
use memprov_tests::host;
use tempfile::TempDir;

/// Maps, allocates and starts a thread, each in a function of its own; then waits.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((noinline)) static char *load_index(size_t size)
{
	char *index = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memset(index, 1, size);
}

__attribute__((noinline)) static char *read_table(const char *path)
{
	int fd = open(path, O_RDONLY);
	char *table = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	return table[0] ? table : NULL;
}

__attribute__((noinline)) static char *keep_block(void)
{
	return memset(malloc(5000000), 1, 5000000);
}

static void *wait_for_ever(void *nothing)
{
	pause();
	return nothing;
}

int main(int argc, char **argv)
{
	char *volatile kept[3] = { load_index(3 << 20), read_table(argv[argc - 1]), keep_block() };
	pthread_t thread;

	pthread_create(&thread, NULL, wait_for_ever, NULL);
	puts("ready");
	fflush(stdout);
	getchar();
	return kept[0] == kept[1];
}
"#;

/// Kind, name and id of every owner of a run of `program`, watched from before its start.
fn owners(program: &Path) -> Result<BTreeSet<(String, String, String)>, String> {
    let mut child = Command::new("sh")
        .args(["-c", "read line; exec \"$0\" \"$0\""])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("start a shell: {e}"))?;
    let agent = Agent::watching(child.id())?;
    agent.fresh(child.id(), &[], SystemTime::now())?;
    let mut input = child.stdin.take().ok_or("no input")?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    input.write_all(b"\n").map_err(|e| format!("begin: {e}"))?;
    output.read_line(&mut line).map_err(|e| format!("wait: {e}"))?;
    let report = agent.fresh(child.id(), &[], SystemTime::now())?;
    let process = report.process(child.id()).ok_or("the program is not reported")?;
    let rows = process.owners.iter();
    let owners = rows.map(|row| (row.kind.clone(), row.name.clone(), row.id.clone())).collect();
    drop(input);
    child.wait().map_err(|e| format!("end: {e}"))?;
    agent.stop()?;
    Ok(owners)
}

#[test]
fn an_owner_keeps_its_id_over_restarts_and_rebuilds_with_shifted_lines() {
    if let Some(why) = host::no_live_tests() {
        host::skip("groundtruth identity", why);
        return;
    }
    let folder = TempDir::with_prefix("memprov-identity-").expect("a directory");
    let (source, program) = (folder.path().join("keeper.c"), folder.path().join("keeper"));
    let mut runs = Vec::new();
    let other = "__attribute__((used)) static int other(int n)\n{\n\treturn n * 3 + 1;\n}\n";
    let rebuilt = format!("{other}{PROGRAM}");
    for text in [PROGRAM, PROGRAM, &rebuilt] {
        if fs::read_to_string(&source).ok().as_deref() != Some(text) {
            fs::write(&source, text).expect("the source is written");
            host::compile_c(folder.path(), &program, &["-pthread"]).expect("it compiles");
        }
        runs.push(owners(&program).expect("a run"));
    }
    for (kind, part) in [
        ("mapping", "load_index"),
        ("mapping", "keep_block"),
        ("file", "keeper"),
        ("stack", "thread stack"),
    ] {
        let found = runs[0].iter().any(|(k, name, _)| k == kind && name.contains(part));
        assert!(found, "no {kind} {part}: {:#?}", runs[0]);
    }
    assert_eq!(runs[0], runs[1], "after a restart, at other addresses");
    assert_eq!(runs[0], runs[2], "after a rebuild");
}
