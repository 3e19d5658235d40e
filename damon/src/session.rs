//! A monitor of our own: begun in an empty tree only, marked in a file before the first write, ended without a trace.
//!
//! There is one tree for the machine, and to write `nr_kdamonds` deletes whatever is in it (kernel `mm/damon/sysfs.c`), so
//! a tree with anything in it is somebody else's and is left alone. Agents of ours keep each other out by a lock on the
//! tree's directory. Nobody else takes that lock: who makes a monitor between our look and our first write loses what he
//! had set up, as he would to any other tool.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use memprov_ledger::time::{MonoTime, Span};
use rustix::fs::{FlockOperation, flock};

use crate::aggregate::Snapshot;
use crate::monitor::KDAMONDS;
use crate::plan::{Plan, Write};
use crate::presence::{Presence, probe};
use crate::retry::{patiently, read, seed};
use crate::tried::{TriedError, tried};

/// A monitor of our own that runs.
#[derive(Debug)]
pub struct Session {
    tree: Tree,
    mark: PathBuf,
    thread: u32,
    targets: usize,
    /// Held while it lives: no other agent begins one.
    _lock: File,
}

/// Why there is no monitor of our own, or why one could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The kernel has no DAMON.
    #[error("this kernel has no DAMON sysfs")]
    Absent,
    /// Somebody has set up monitors.
    #[error("{0} monitors of somebody else are set up in {KDAMONDS}")]
    Others(usize),
    /// A part of the kernel runs DAMON for itself alone.
    #[error("{0} has DAMON for itself alone")]
    Exclusive(String),
    /// Another agent has it.
    #[error("another agent runs a monitor")]
    Locked,
    /// What it found could not be read.
    #[error("what our monitor found")]
    Findings(#[from] TriedError),
    /// A file could not be read or written.
    #[error("{doing} {}", path.display())]
    File {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// What came of undoing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// Nothing was marked.
    Nothing,
    /// What was marked is gone by itself.
    Gone,
    /// What was there is somebody else's.
    NotOurs,
    /// It was ended.
    Ended,
}

impl Session {
    /// Begins what `plan` says below `root`, and marks it in the file `mark` (not below `root`).
    ///
    /// # Errors
    /// The tree is not there, not empty, or not to be had; a file refused. Then nothing of ours is left in it.
    pub fn begin(root: &Path, mark: &Path, plan: &Plan) -> Result<Self, SessionError> {
        let (kdamonds, modules) = match probe(root) {
            Presence::Absent => return Err(SessionError::Absent),
            Presence::Unreadable(_) => (Vec::new(), Vec::new()),
            Presence::Present { kdamonds, modules } => (kdamonds, modules),
        };
        let tree = Tree { kdamonds: root.join(KDAMONDS), boot: boot(root) };
        let lock = tree.lock()?;
        if !kdamonds.is_empty() {
            return Err(SessionError::Others(kdamonds.len()));
        }
        if let Some(module) = modules.into_iter().next() {
            return Err(SessionError::Exclusive(module));
        }
        let goal = "0/contexts/0/monitoring_attrs/intervals/intervals_goal";
        // The directory tells what the kernel can only once there is a monitor.
        let writes = plan.writes(true);
        let (made, rest) = writes.split_at(2.min(writes.len()));
        tree.mark(mark, plan, None)?;
        let begun = made.iter().try_for_each(|write| tree.write(write)).and_then(|()| {
            let tunes = tree.kdamonds.join(goal).is_dir();
            let rest = if tunes { rest.to_vec() } else { plan.writes(false).split_off(made.len()) };
            rest.iter().try_for_each(|write| tree.write(write))?;
            tree.state("on")?;
            tree.thread()
        });
        match begun.and_then(|thread| tree.mark(mark, plan, Some(thread)).map(|()| thread)) {
            Ok(thread) => {
                let targets = plan.targets.len();
                Ok(Self { tree, mark: mark.to_owned(), thread, targets, _lock: lock })
            }
            Err(error) => {
                tree.end()?;
                forget(mark)?;
                Err(error)
            }
        }
    }

    /// Its thread, by which its findings are told from others'.
    #[must_use]
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Whether it still runs: it ends by itself with the last of its processes.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.tree.thread().is_ok_and(|thread| thread == self.thread)
    }

    /// What it finds at the end of the aggregation that runs, target by target, of those that have regions by then; waits
    /// for it. Only of one whose plan has [`Findings::TriedRegions`](crate::Findings::TriedRegions). `clock` is of
    /// evidence.
    ///
    /// # Errors
    /// It runs no more, or what it tells is not whole: then nothing of it is told.
    pub fn findings(&self, clock: fn() -> MonoTime) -> Result<Vec<Snapshot>, SessionError> {
        let begin = clock();
        self.tree.state("update_schemes_tried_regions")?;
        let when = Span { begin, end: clock() };
        let mut found = Vec::new();
        for target in 0..self.targets {
            let schemes = self.tree.kdamonds.join("0/contexts/0/schemes");
            let regions = tried(&schemes.join(target.to_string()).join("tried_regions"))?;
            if !regions.is_empty() {
                let target = u32::try_from(target).unwrap_or(u32::MAX);
                let thread = self.thread;
                found.push(Snapshot { thread, target, when, since: None, regions });
            }
        }
        Ok(found)
    }

    /// Ends it and leaves the tree as it was: empty. What somebody else made in its place stays.
    ///
    /// # Errors
    /// A file refused; the mark stays for [`undo`].
    pub fn end(self) -> Result<Undone, SessionError> {
        self.tree.undo(&self.mark)
    }
}

/// Whether what is in the tree is what the file `mark` says that an agent made. Writes nothing.
#[must_use]
pub fn is_ours(root: &Path, mark: &Path) -> bool {
    let tree = Tree { kdamonds: root.join(KDAMONDS), boot: boot(root) };
    let text = std::fs::read_to_string(mark);
    text.is_ok_and(|text| tree.is_ours(&text).is_ok_and(|ours| ours))
}

/// Ends what the file `mark` says that an agent left behind. Called at the next start, and by who cleans up after one.
///
/// # Errors
/// An agent still runs it, or a file refused; the mark stays.
pub fn undo(root: &Path, mark: &Path) -> Result<Undone, SessionError> {
    if !mark.exists() {
        return Ok(Undone::Nothing);
    }
    let tree = Tree { kdamonds: root.join(KDAMONDS), boot: boot(root) };
    if !tree.kdamonds.is_dir() {
        forget(mark)?;
        return Ok(Undone::Gone);
    }
    let _lock = tree.lock()?;
    tree.undo(mark)
}

/// The kernel's id of this boot: a mark of another one speaks of nothing that is there.
fn boot(root: &Path) -> String {
    read(&root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default()
}

fn forget(mark: &Path) -> Result<(), SessionError> {
    std::fs::remove_file(mark).map_err(file("remove", mark))
}

fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SessionError {
    move |source| SessionError::File { doing, path: path.to_owned(), source }
}

#[derive(Debug)]
struct Tree {
    kdamonds: PathBuf,
    boot: String,
}

impl Tree {
    fn lock(&self) -> Result<File, SessionError> {
        let lock = File::open(&self.kdamonds).map_err(file("open", &self.kdamonds))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(lock),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(SessionError::Locked),
            Err(errno) => Err(file("lock", &self.kdamonds)(errno.into())),
        }
    }

    fn write(&self, write: &Write) -> Result<(), SessionError> {
        let path = self.kdamonds.join(&write.path);
        let put = || std::fs::OpenOptions::new().write(true).open(&path);
        patiently(seed(), || io::Write::write_all(&mut put()?, write.value.as_bytes()))
            .map_err(file("write", &path))
    }

    fn state(&self, command: &str) -> Result<(), SessionError> {
        self.write(&Write { path: "0/state".to_owned(), value: command.to_owned() })
    }

    fn text(&self, path: &str) -> Result<String, SessionError> {
        let path = self.kdamonds.join(path);
        read(&path).map_err(file("read", &path))
    }

    fn thread(&self) -> Result<u32, SessionError> {
        let text = self.text("0/pid")?;
        let none = |_| io::Error::from(io::ErrorKind::NotFound);
        text.parse().map_err(none).map_err(file("find a thread in", &self.kdamonds.join("0/pid")))
    }

    /// Says in the file `mark` what is being made: a line each for boot and thread, then the writes.
    fn mark(&self, mark: &Path, plan: &Plan, thread: Option<u32>) -> Result<(), SessionError> {
        let thread = thread.map_or_else(|| "none".to_owned(), |thread| thread.to_string());
        let mut text = format!("boot {}\nthread {thread}\n", self.boot);
        text.extend(plan.writes(false).iter().map(|w| format!("{} {}\n", w.path, w.value)));
        let beside = mark.with_extension("new");
        std::fs::write(&beside, text).map_err(file("write", &beside))?;
        std::fs::rename(&beside, mark).map_err(file("write", mark))
    }

    /// Whether what is in the tree is what the text of a mark says. While it was made only some of it may be there.
    fn is_ours(&self, text: &str) -> Result<bool, SessionError> {
        let mut lines = text.lines();
        let boot = lines.next().and_then(|line| line.strip_prefix("boot "));
        let thread = lines.next().and_then(|line| line.strip_prefix("thread "));
        if boot != Some(self.boot.as_str()) || self.text("nr_kdamonds")? != "1" {
            return Ok(false);
        }
        let made = thread.and_then(|thread| thread.parse::<u32>().ok());
        let running = self.thread().ok();
        if let (Some(made), Some(running)) = (made, running) {
            return Ok(made == running);
        }
        // Whose one without a thread is, its files say. One that was being made and does not run may have any part of them.
        let whole = made.is_some() || running.is_some();
        let matches = |(path, value): (&str, &str)| {
            read(&self.kdamonds.join(path)).is_ok_and(|there| there == value)
        };
        Ok(!whole || lines.filter_map(|line| line.split_once(' ')).all(matches))
    }

    fn undo(&self, mark: &Path) -> Result<Undone, SessionError> {
        let text = match std::fs::read_to_string(mark) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Undone::Nothing),
            Err(error) => return Err(file("read", mark)(error)),
        };
        let undone = if self.text("nr_kdamonds")? == "0" {
            Undone::Gone
        } else if self.is_ours(&text)? {
            self.end()?;
            Undone::Ended
        } else {
            Undone::NotOurs
        };
        forget(mark)?;
        Ok(undone)
    }

    /// Stops what runs and empties the tree.
    fn end(&self) -> Result<(), SessionError> {
        if self.text("nr_kdamonds")? == "0" {
            return Ok(());
        }
        if self.thread().is_ok()
            && let Err(error) = self.state("off")
        {
            // It may have ended by itself meanwhile, which some kernels call an error.
            if self.thread().is_ok() {
                return Err(error);
            }
        }
        self.write(&Write { path: "nr_kdamonds".to_owned(), value: "0".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use memprov_ledger::identity::Tgid;
    use memprov_ledger::time::{MonoTime, Span};

    use super::{Session, SessionError, Undone, is_ours, undo};
    use crate::aggregate::{Region, Snapshot};
    use crate::monitor::{KDAMONDS, Operations};
    use crate::plan::{Findings, Plan, Target};

    fn plan() -> Plan {
        Plan {
            operations: Operations::Vaddr,
            sample: Duration::from_millis(5),
            aggregation: Duration::from_millis(100),
            regions: 1000,
            goal: None,
            findings: Findings::Tracepoint,
            targets: vec![Target { tgid: Some(Tgid(7)), ranges: Vec::new() }],
        }
    }

    /// A tree of plain files, in which every file that a plan writes is there; with `nr_kdamonds` of them set up.
    fn tree(nr_kdamonds: &str) -> tempfile::TempDir {
        tree_of(&plan(), nr_kdamonds)
    }

    fn tree_of(plan: &Plan, nr_kdamonds: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for write in plan.writes(false) {
            put(&format!("{KDAMONDS}/{}", write.path), "");
        }
        put(&format!("{KDAMONDS}/nr_kdamonds"), nr_kdamonds);
        put(&format!("{KDAMONDS}/0/state"), "");
        put(&format!("{KDAMONDS}/0/pid"), "71");
        put("proc/sys/kernel/random/boot_id", "b007");
        root
    }

    /// Every file below a tree, with what is in it and when it was written.
    fn files(root: &Path) -> BTreeMap<String, (String, SystemTime)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![root.join(KDAMONDS)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                    continue;
                }
                let path = entry.path();
                let name = path.strip_prefix(root.join(KDAMONDS)).unwrap().display().to_string();
                let written = fs::metadata(&path).unwrap().modified().unwrap();
                found.insert(name, (fs::read_to_string(&path).unwrap(), written));
            }
        }
        found
    }

    fn text(root: &Path, path: &str) -> String {
        fs::read_to_string(root.join(KDAMONDS).join(path)).unwrap()
    }

    #[test]
    fn a_session_writes_its_plan_marks_it_and_leaves_an_empty_tree() {
        let (root, state) = (tree("0"), tempfile::tempdir().unwrap());
        let mark = state.path().join("damon");
        let session = Session::begin(root.path(), &mark, &plan()).unwrap();
        for write in plan().writes(false) {
            assert_eq!(text(root.path(), &write.path), write.value, "{}", write.path);
        }
        assert_eq!((text(root.path(), "0/state").as_str(), session.thread()), ("on", 71));
        assert!(fs::read_to_string(&mark).unwrap().starts_with("boot b007\nthread 71\n"));
        assert!(matches!(undo(root.path(), &mark), Err(SessionError::Locked)), "it is in use");
        assert!(is_ours(root.path(), &mark) && !is_ours(root.path(), &state.path().join("none")));
        assert_eq!(session.end().unwrap(), Undone::Ended);
        assert_eq!(text(root.path(), "0/state"), "off");
        assert_eq!(text(root.path(), "nr_kdamonds"), "0");
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    }

    #[test]
    fn who_asks_gets_the_regions_of_each_target_or_none_at_all() {
        let target = Target { tgid: Some(Tgid(9)), ranges: Vec::new() };
        let findings = Findings::TriedRegions;
        let plan = Plan { findings, targets: vec![target.clone(), target], ..plan() };
        let (root, state) = (tree_of(&plan, "0"), tempfile::tempdir().unwrap());
        let put = |target: u32, region: &str, field: &str, value: &str| {
            let regions = format!("0/contexts/0/schemes/{target}/tried_regions");
            let path = root.path().join(KDAMONDS).join(regions).join(region);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(field), value).unwrap();
        };
        put(0, "", "total_bytes", "0");
        put(1, "", "total_bytes", "4096");
        for (field, value) in [("start", "4096"), ("end", "8192"), ("nr_accesses", "20")] {
            put(1, "31", field, value);
        }
        let session = Session::begin(root.path(), &state.path().join("damon"), &plan).unwrap();
        let refused = session.findings(|| MonoTime(5));
        assert!(matches!(refused, Err(SessionError::Findings(_))), "no age is there: {refused:?}");
        put(1, "31", "age", "2");
        let found = session.findings(|| MonoTime(5)).unwrap();
        assert_eq!(text(root.path(), "0/state"), "update_schemes_tried_regions");
        let regions = vec![Region { start: 4096, end: 8192, accesses: 20, age: 2 }];
        let when = Span::at(MonoTime(5));
        assert_eq!(found, [Snapshot { thread: 71, target: 1, when, since: None, regions }]);
    }

    #[test]
    fn what_somebody_set_up_is_not_touched() {
        let (root, state) = (tree("1"), tempfile::tempdir().unwrap());
        let (mark, before) = (state.path().join("damon"), files(root.path()));
        let refused = Session::begin(root.path(), &mark, &plan());
        assert!(matches!(refused, Err(SessionError::Others(1))), "{refused:?}");
        assert_eq!(files(root.path()), before);
        assert!(!mark.exists());
    }

    #[test]
    fn a_module_that_has_damon_for_itself_is_a_state_and_nothing_is_written() {
        let (root, state) = (tree("0"), tempfile::tempdir().unwrap());
        let parameter = root.path().join("sys/module/damon_stat/parameters/enabled");
        fs::create_dir_all(parameter.parent().unwrap()).unwrap();
        fs::write(parameter, "Y").unwrap();
        let before = files(root.path());
        let refused = Session::begin(root.path(), &state.path().join("damon"), &plan());
        assert!(matches!(refused, Err(SessionError::Exclusive(m)) if m == "damon_stat"));
        assert_eq!(files(root.path()), before);
    }

    #[test]
    fn what_a_killed_agent_left_is_undone_and_what_is_not_its_own_stays() {
        let (root, state) = (tree("0"), tempfile::tempdir().unwrap());
        let mark = state.path().join("damon");
        assert_eq!(undo(root.path(), &mark).unwrap(), Undone::Nothing);
        // Dropping is what a kill does: the lock goes, all else stays.
        drop(Session::begin(root.path(), &mark, &plan()).unwrap());
        assert_eq!(undo(root.path(), &mark).unwrap(), Undone::Ended);
        assert_eq!((text(root.path(), "nr_kdamonds").as_str(), mark.exists()), ("0", false));

        type Change = (&'static str, &'static str);
        let foreign: [Change; 3] = [
            ("0/pid", "72"),
            ("nr_kdamonds", "2"),
            ("../../../../../../proc/sys/kernel/random/boot_id", "b008"),
        ];
        for (path, value) in foreign {
            let (root, state) = (tree("0"), tempfile::tempdir().unwrap());
            let mark = state.path().join("damon");
            drop(Session::begin(root.path(), &mark, &plan()).unwrap());
            fs::write(root.path().join(KDAMONDS).join(path), value).unwrap();
            let before = files(root.path());
            assert_eq!(undo(root.path(), &mark).unwrap(), Undone::NotOurs, "{path}");
            assert_eq!(files(root.path()), before, "{path}");
            assert!(!mark.exists());
        }
        // Ours ended by itself, and somebody else set another one up that does not run yet.
        let (root, state) = (tree("0"), tempfile::tempdir().unwrap());
        let mark = state.path().join("damon");
        drop(Session::begin(root.path(), &mark, &plan()).unwrap());
        for (path, value) in [("0/pid", "-1"), ("0/contexts/0/operations", "paddr")] {
            fs::write(root.path().join(KDAMONDS).join(path), value).unwrap();
        }
        assert_eq!(undo(root.path(), &mark).unwrap(), Undone::NotOurs);
    }

    #[test]
    fn a_refused_write_leaves_nothing_behind() {
        let (root, state) = (tree("0"), tempfile::tempdir().unwrap());
        let file = root.path().join(KDAMONDS).join("0/contexts/0/operations");
        fs::remove_file(&file).unwrap();
        let refused = Session::begin(root.path(), &state.path().join("damon"), &plan());
        assert!(matches!(&refused, Err(SessionError::File { path, .. }) if *path == file));
        assert_eq!(text(root.path(), "nr_kdamonds"), "0");
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    }
}
