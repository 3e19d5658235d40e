//! What tests on real programs share: building them, stopping them, keeping tables.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use memprov_ledger::identity::{ModuleId, StackId, Tgid};
use memprov_ledger::stack::{Frame, Module, Stack};
use memprov_ledger::time::MonoTime;

use super::{
    Attribution, Call, Limits, Name, Namer, RawUserStack, Table, Unwinder, attribute, needs, place,
};

const SOURCES: [(&str, &str); 6] = [
    ("trace.c", include_str!("testdata/trace.c")),
    ("program.c", include_str!("testdata/program.c")),
    ("program.cc", include_str!("testdata/program.cc")),
    ("program.rs", include_str!("testdata/program.rs")),
    ("program.go", include_str!("testdata/program.go")),
    ("cgo.go", include_str!("testdata/cgo.go")),
];

/// A folder with the programs built in it.
pub(super) struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// `None`, with a printed reason, where a compiler is missing.
    pub(super) fn new(compilers: &[&str]) -> Option<Self> {
        for compiler in ["gcc"].iter().chain(compilers) {
            let version = if *compiler == "go" { "version" } else { "--version" };
            let run = Command::new(compiler).arg(version).stdout(Stdio::null()).status();
            if !run.is_ok_and(|s| s.success()) {
                eprintln!("skipped: {compiler} does not run here");
                return None;
            }
        }
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        bench.build("gcc", &["-O2"], "trace.c", "trace");
        Some(bench)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn build(&self, compiler: &str, flags: &[&str], source: &str, name: &str) {
        let text = SOURCES.iter().find(|(name, _)| *name == source).unwrap().1;
        std::fs::write(self.path(source), text).unwrap();
        let mut command = Command::new(compiler);
        if compiler == "go" {
            command.env("GO111MODULE", "off").env("GOFLAGS", "").arg("build");
        }
        let command = command.args(flags).arg("-o").arg(self.path(name)).arg(self.path(source));
        assert!(command.status().unwrap().success(), "{command:?}");
    }

    /// Runs a program until it enters a call, and copies at most `len` bytes of its stack.
    pub(super) fn stop(&self, call: [&str; 2], len: usize, program: &[&str]) -> Stopped {
        let len = len.to_string();
        let mut child = Command::new(self.path("trace"))
            .args([call[0], call[1], &len])
            .arg(self.path(program[0]))
            .args(&program[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut fields = line.split_ascii_whitespace();
        let tgid = Tgid(fields.next().expect("the program enters the call").parse().unwrap());
        let mut hex = || u64::from_str_radix(fields.next().unwrap(), 16).unwrap();
        let (ip, sp, bp) = (hex(), hex(), hex());
        let text = fields.next().unwrap();
        let byte = |n| u8::from_str_radix(&text[n..n + 2], 16).unwrap();
        let bytes = (0..text.len()).step_by(2).map(byte).collect();
        Stopped { child, tgid, ip, sp, bp, bytes }
    }
}

/// A program that stands at a system call until this is dropped.
pub(super) struct Stopped {
    child: Child,
    pub(super) tgid: Tgid,
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
    pub(super) bytes: Vec<u8>,
}

impl Stopped {
    pub(super) fn raw(&self) -> RawUserStack<'_> {
        RawUserStack {
            tgid: self.tgid,
            when: MonoTime(u64::MAX / 2),
            ip: self.ip,
            sp: self.sp,
            bp: self.bp,
            bytes: &self.bytes,
            complete: false,
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
        std::fs::remove_file(format!("/tmp/perf-{}.map", self.tgid.0)).unwrap_or_default();
    }
}

/// What a consumer of tables keeps.
pub(super) struct World {
    pub(super) unwinder: Unwinder,
    pub(super) modules: HashMap<ModuleId, Module>,
    stacks: HashMap<StackId, Arc<Stack>>,
    names: HashMap<(ModuleId, u64), Option<String>>,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            unwinder: Unwinder::new("/".into(), Limits::default(), Default::default()),
            modules: HashMap::new(),
            stacks: HashMap::new(),
            names: HashMap::new(),
        }
    }

    pub(super) fn unwind(&mut self, raw: &RawUserStack<'_>) -> Arc<Stack> {
        let unwound = self.unwinder.unwind(raw).unwrap();
        for entry in unwound.new {
            match entry {
                Table::Module(id, module) => {
                    assert!(self.modules.insert(id, module).is_none(), "told twice");
                }
                Table::Stack(id, stack) => {
                    for module in stack.frames.iter().filter_map(|f| f.module) {
                        assert!(self.modules.contains_key(&module), "used before it was told");
                    }
                    assert!(self.stacks.insert(id, stack).is_none(), "told twice");
                }
            }
        }
        let stack = self.stacks[&unwound.id].clone();
        for (module, function) in needs(&stack) {
            if !self.names.contains_key(&(module, function)) {
                let source = self.unwinder.source(module).unwrap();
                let name = Namer::new("/".into()).names(&source, &[function]).unwrap().remove(0);
                self.names.insert((module, function), name);
            }
        }
        stack
    }

    /// Names of the frames, leaf first; `?` without a name.
    pub(super) fn chain(&self, stack: &Stack) -> Vec<&str> {
        let name = |f: &Frame| {
            let name = f.module.and_then(|m| self.names[&(m, place(f))].as_deref());
            name.unwrap_or("?")
        };
        stack.frames.iter().map(name).collect()
    }

    pub(super) fn attribute(&self, stack: &Stack, call: Call) -> Attribution {
        let names = |m, f| match self.names.get(&(m, f)) {
            Some(Some(name)) => Name::Known(name),
            Some(None) => Name::Nameless,
            None => Name::Pending,
        };
        attribute(stack, call, |id| self.modules.get(&id), names).unwrap()
    }
}
