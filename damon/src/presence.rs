//! Whether DAMON is there, and who uses it. Only reads: the one tree of the machine may be somebody else's.
//!
//! Files: `/sys/kernel/mm/damon/admin` (kernel `Documentation/admin-guide/mm/damon/usage.rst`) and the parameters of the
//! modules that run DAMON by themselves.

use std::io;
use std::path::Path;

use crate::monitor::KDAMONDS;
use crate::retry::read;

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The kernel has no DAMON sysfs.
    Absent,
    /// It could not be read: the error's text, with the file.
    Unreadable(String),
    /// It is there.
    Present {
        /// One per directory that somebody made.
        kdamonds: Vec<Kdamond>,
        /// Modules of the kernel that run DAMON now: `damon_stat`, `damon_reclaim`, `damon_lru_sort`.
        modules: Vec<String>,
    },
}

/// One DAMON thread, or the place for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kdamond {
    /// Its number in sysfs.
    pub index: u32,
    /// Whether it runs; `None` when the kernel was too busy to say.
    pub running: Option<bool>,
    /// Thread id, while it runs.
    pub pid: Option<u32>,
    /// What it watches: `vaddr`, `fvaddr` or `paddr`.
    pub operations: Option<String>,
    /// What this kernel could watch.
    pub available: Vec<String>,
}

const MODULES: [&str; 3] = ["damon_stat", "damon_reclaim", "damon_lru_sort"];

/// Looks below `root`. May wait some tenths of a second for another reader of sysfs.
#[must_use]
pub fn probe(root: &Path) -> Presence {
    let kdamonds = root.join(KDAMONDS);
    let number = match read(&kdamonds.join("nr_kdamonds")) {
        Ok(text) => text.parse::<u32>().unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Presence::Absent,
        Err(error) => {
            let file = kdamonds.join("nr_kdamonds");
            return Presence::Unreadable(format!("{}: {error}", file.display()));
        }
    };
    let enabled = |module: &&&str| {
        let parameter = root.join("sys/module").join(module).join("parameters/enabled");
        read(&parameter).is_ok_and(|text| text == "Y")
    };
    Presence::Present {
        // The kernel makes as many directories as it says; a hundred is more than any user of DAMON has.
        kdamonds: (0..number.min(100)).map(|index| kdamond(&kdamonds, index)).collect(),
        modules: MODULES.iter().filter(enabled).map(|name| (*name).to_owned()).collect(),
    }
}

/// Whether a monitor of our own could be set up below `root`, as far as rights tell. Writes nothing.
///
/// # Errors
/// What keeps us from it: the rights of its files (0600, of root), or a read-only mount.
pub fn writable(root: &Path) -> io::Result<()> {
    let file = root.join(KDAMONDS).join("nr_kdamonds");
    std::fs::OpenOptions::new().write(true).open(file).map(drop)
}

fn kdamond(kdamonds: &Path, index: u32) -> Kdamond {
    let directory = kdamonds.join(index.to_string());
    let context = directory.join("contexts/0");
    Kdamond {
        index,
        running: read(&directory.join("state")).ok().map(|state| state == "on"),
        // -1 while it does not run.
        pid: read(&directory.join("pid")).ok().and_then(|text| text.parse().ok()),
        operations: read(&context.join("operations")).ok().filter(|text| !text.is_empty()),
        available: read(&context.join("avail_operations"))
            .map(|text| text.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Kdamond, Presence, probe};

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_kernel_without_damon_has_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(probe(root.path()), Presence::Absent);
    }

    #[test]
    fn somebody_elses_thread_is_seen_with_what_it_watches() {
        let root = tempfile::tempdir().unwrap();
        let base = "sys/kernel/mm/damon/admin/kdamonds";
        write(root.path(), &format!("{base}/nr_kdamonds"), "2\n");
        write(root.path(), &format!("{base}/0/state"), "on\n");
        write(root.path(), &format!("{base}/0/pid"), "71\n");
        write(root.path(), &format!("{base}/0/contexts/0/operations"), "paddr\n");
        write(
            root.path(),
            &format!("{base}/0/contexts/0/avail_operations"),
            "vaddr\nfvaddr\npaddr\n",
        );
        write(root.path(), &format!("{base}/1/state"), "off\n");
        write(root.path(), &format!("{base}/1/pid"), "-1\n");
        write(root.path(), "sys/module/damon_stat/parameters/enabled", "Y\n");
        write(root.path(), "sys/module/damon_reclaim/parameters/enabled", "N\n");
        let first = Kdamond {
            index: 0,
            running: Some(true),
            pid: Some(71),
            operations: Some("paddr".to_owned()),
            available: ["vaddr", "fvaddr", "paddr"].map(str::to_owned).to_vec(),
        };
        let second = Kdamond {
            index: 1,
            running: Some(false),
            pid: None,
            operations: None,
            available: Vec::new(),
        };
        assert_eq!(
            probe(root.path()),
            Presence::Present {
                kdamonds: vec![first, second],
                modules: vec!["damon_stat".to_owned()]
            }
        );
    }

    #[test]
    fn a_tree_that_cannot_be_read_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
        std::fs::create_dir_all(root.path().join(file)).unwrap();
        let Presence::Unreadable(why) = probe(root.path()) else { panic!("it was read") };
        assert!(why.contains(file), "{why}");
    }

    #[test]
    fn the_real_host_is_only_read() {
        let presence = probe(Path::new("/"));
        println!("this host: {presence:?}");
        if let Presence::Present { kdamonds, .. } = &presence {
            for kdamond in kdamonds {
                assert!(kdamond.running != Some(true) || kdamond.pid.is_some());
            }
        }
        assert_eq!(probe(Path::new("/")), presence);
    }
}
