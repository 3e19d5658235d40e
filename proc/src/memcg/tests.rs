use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use memprov_ledger::charge::{Charged, Mapped, close};
use proptest::prelude::{any, proptest};

use super::{Memcg, keyed, told, upwards};
use crate::procfs::Proc;

/// A machine of files.
fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Option<Memcg>) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let memcg = Memcg::find(&Proc::at(dir.path()));
    (dir, memcg)
}

const CPUS: (&str, &str) = ("sys/devices/system/cpu/online", "0-1\n");
const V2: (&str, &str) = ("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");

#[test]
fn a_cgroup_of_v2_is_told_without_what_lies_below_it() {
    let (_dir, memcg) = machine(&[
        CPUS,
        V2,
        ("sys/fs/cgroup/a/memory.current", "9000\n"),
        ("sys/fs/cgroup/a/memory.stat", "anon 4096\nfile 100\nbroken\nnew_line 7\n"),
        ("sys/fs/cgroup/a/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.high", "8192\n"),
        ("sys/fs/cgroup/a/memory.events", "low 0\noom_kill 3\n"),
        ("sys/fs/cgroup/a/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n"),
        ("sys/fs/cgroup/a/cgroup.procs", "12\n0\n"),
        ("sys/fs/cgroup/a/b/memory.current", "5000\n"),
        ("sys/fs/cgroup/a/b/memory.stat", "anon 4000\n"),
        ("sys/fs/cgroup/a/c/no.controller", ""),
    ]);
    let charge = memcg.unwrap().charge("/a").unwrap().unwrap();
    assert_eq!((charge.before, charge.whole.current, charge.below.current), (9000, 9000, 5000));
    assert_eq!((charge.children, charge.processes), (1, Some(2)));
    assert_eq!(charge.whole.stat.get("new_line"), Some(&7));
    let facts: Vec<_> = charge.facts.iter().map(|(k, v)| (&**k, *v)).collect();
    let wanted =
        [("events.low", 0), ("events.oom_kill", 3), ("high", 8192), ("pressure.some.total", 17)];
    assert_eq!(facts, wanted);
    assert_eq!((charge.stock, charge.lag), (512 << 10, 1 << 20));
    let book = close(&charge, &Mapped::default());
    assert_eq!(book.current, 4000);
}

#[test]
fn what_is_not_there_is_not_zero() {
    let (_dir, memcg) = machine(&[V2, ("sys/fs/cgroup/memory.stat", "anon 1\n")]);
    let memcg = memcg.unwrap();
    assert_eq!(memcg.charge("/").unwrap(), None, "the root of v2 has no memory.current");
    assert_eq!(memcg.charge("/../other").unwrap(), None);
    assert!(memcg.charge("/gone").unwrap_err().vanished());
    let (_dir, memcg) = machine(&[("sys/fs/cgroup/cgroup.controllers", "cpu\n")]);
    assert!(memcg.is_none());
}

#[test]
fn v1_is_told_by_its_lines_for_the_whole_or_alone() {
    let stat = "cache 1\nrss 2\nmapped_file 3\nhierarchical_memory_limit 9\ntotal_cache 10\ntotal_rss 20\n";
    let files = |hierarchy| {
        [
            CPUS,
            ("sys/fs/cgroup/memory/memory.stat", stat),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100\n"),
            ("sys/fs/cgroup/memory/a/memory.stat", stat),
            ("sys/fs/cgroup/memory/a/memory.use_hierarchy", hierarchy),
            ("sys/fs/cgroup/memory/a/memory.kmem.usage_in_bytes", "40\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.failcnt", "4\n"),
        ]
    };
    let read = |hierarchy| machine(&files(hierarchy)).1.unwrap();
    let (_dir, memcg) = machine(&files("1\n"));
    let charge = memcg.unwrap().charge("/a").unwrap().unwrap();
    let line = |key| charge.whole.stat.get(key).copied();
    assert_eq!((line("file"), line("anon"), line("kernel")), (Some(10), Some(20), Some(40)));
    assert_eq!(charge.facts.get("failcnt"), Some(&4));
    assert!(!charge.facts.contains_key("max"), "no limit");
    let (_dir, memcg) = machine(&files("0\n"));
    let charge = memcg.unwrap().charge("/a").unwrap().unwrap();
    assert_eq!(charge.whole.stat.get("file_mapped"), Some(&3));
    assert_eq!(charge.whole.stat.get("file"), Some(&1));
    assert_eq!(read("1\n").charge("/").unwrap(), None, "a sum of lines is no total");
}

#[test]
fn a_cgroup_lies_in_its_parents() {
    assert_eq!(upwards("/a/b.slice/c").collect::<Vec<_>>(), ["/a/b.slice/c", "/a/b.slice", "/a"]);
    assert_eq!(upwards("/").collect::<Vec<_>>(), ["/"], "perhaps the root of a namespace");
}

proptest! {
    #[test]
    fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        assert!(keyed(&text).len() <= text.len());
        assert!(told("events", &text).len() <= text.len());
    }
}

/// A cgroup of the machine's own hierarchy, gone when dropped.
struct Group {
    dir: PathBuf,
    path: String,
    child: Option<Child>,
}

impl Group {
    fn make(memcg: &Memcg) -> Option<Self> {
        let path = format!("/memprov-test-{}", std::process::id());
        let dir = memcg.dir.join(path.trim_start_matches('/'));
        if let Err(error) = fs::create_dir(&dir) {
            println!("skipped: no cgroup can be made: {error}");
            return None;
        }
        Some(Self { dir, path, child: None })
    }

    /// Runs `script` in the cgroup until it says `ready`.
    fn run(&mut self, script: &str) {
        let procs = self.dir.join("cgroup.procs");
        let script = format!("echo 0 > {} && {script} && echo ready && exec cat", procs.display());
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        assert_eq!(&line, b"ready\n");
        self.child = Some(child);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.stdin.take();
            child.wait().unwrap();
        }
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} could not be removed", self.dir.display());
    }
}

#[test]
fn files_that_are_written_and_tmpfs_are_told_by_the_machines_own_kernel() {
    let Some(memcg) = Memcg::find(&Proc::at(Path::new("/"))) else {
        println!("skipped: no hierarchy charges memory");
        return;
    };
    let Some(mut group) = Group::make(&memcg) else { return };
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let (file, tmpfs) = (dir.path().join("f"), shm.path().join("f"));
    let dd = |to: &Path, mib| {
        format!("dd if=/dev/zero of={} bs=1M count={mib} 2>/dev/null", to.display())
    };
    let open = format!("exec 3<>{}", file.display());
    group.run(&format!("{} && {} && {open}", dd(&file, 24), dd(&tmpfs, 16)));
    let charge = memcg.charge(&group.path).unwrap().unwrap();
    let book = close(&charge, &Mapped::default());
    let slack = book.slack;
    let row = |charged| book.rows.iter().find(|row| row.charged == charged).unwrap().bytes;
    let near = |have: u64, want: u64| have.abs_diff(want) <= slack + (1 << 20);
    let (cache, shmem) = (row(Charged::Cache), row(Charged::Tmpfs));
    let on_tmpfs = |path: &Path| {
        // TMPFS_MAGIC (kernel include/uapi/linux/magic.h).
        rustix::fs::statfs(path).unwrap().f_type == 0x0102_1994
    };
    if on_tmpfs(shm.path()) && !on_tmpfs(dir.path()) {
        assert!(near(cache.bytes, 24 << 20), "cache {cache:?} slack {slack}");
        assert!(near(shmem.bytes, 16 << 20), "tmpfs {shmem:?} slack {slack}");
        assert!(cache.lo <= 24 << 20 && 24 << 20 <= cache.hi + (1 << 20));
    } else {
        println!("skipped: /dev/shm is no tmpfs, or /var/tmp is one");
    }
    let told: u64 = book.rows.iter().map(|row| row.bytes.bytes).sum();
    let sum = i128::from(told) + i128::from(book.unattributed) + i128::from(book.skew);
    assert_eq!(sum, i128::from(book.current));
    assert!(!book.bug, "{book:?}");
    if charge.files.is_empty() {
        println!("skipped: no cachestat");
    } else {
        let named = book.files.iter().find(|f| *f.path == *file.to_str().unwrap()).unwrap();
        assert!(near(named.bytes.bytes, 24 << 20), "{named:?}");
    }
    std::io::stdout().flush().unwrap();
}
