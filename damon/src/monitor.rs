//! What a monitor is set to, as its files say. Only reads.
//!
//! The files are those of kernel `Documentation/admin-guide/mm/damon/usage.rst`. They say what is staged: who changes them
//! without telling the monitor (`commit`) makes them wrong, and nothing tells. Where intervals are tuned (Linux 6.15)
//! the monitor's own differ from the files', by one factor for both, so the number of checks stays.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memprov_ledger::identity::Tgid;

use crate::retry::read;

/// The tree of all monitors that were set up by files.
pub(crate) const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";
/// More monitors, and more targets of one, than anybody has.
const MOST: u32 = 1024;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// All that a process maps, in three large ranges.
    Vaddr,
    /// Given ranges of a process.
    Fvaddr,
    /// Physical memory.
    Paddr,
}

/// A monitor that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Its number in the tree.
    pub index: u32,
    /// Its thread.
    pub thread: u32,
    /// What it watches.
    pub operations: Operations,
    /// Between two checks of a region.
    pub sample: Duration,
    /// Between two tellings.
    pub aggregation: Duration,
    /// The kernel tunes both.
    pub tuned: bool,
    /// Bytes of one unit of its addresses (Linux 6.18, physical ones only).
    pub unit: u64,
    /// Its targets: processes, or `None` for physical memory.
    pub targets: Vec<Option<Tgid>>,
}

impl Operations {
    /// Its name in the files.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Vaddr => "vaddr",
            Self::Fvaddr => "fvaddr",
            Self::Paddr => "paddr",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn of(id: &str) -> Option<Self> {
        [Self::Vaddr, Self::Fvaddr, Self::Paddr].into_iter().find(|known| known.id() == id)
    }
}

impl Monitor {
    /// Checks of each region in one aggregation (kernel `mm/damon/core.c`: the integer quotient of the intervals).
    #[must_use]
    pub fn checks(&self) -> u32 {
        let quotient = self.aggregation.as_micros() / self.sample.as_micros().max(1);
        u32::try_from(quotient).unwrap_or(u32::MAX).max(1)
    }
}

/// The monitors that run below `root`, of those that were set up by files. One whose files change or go while they are
/// read, or hold what is not understood, is left out.
///
/// # Errors
/// The tree cannot be read. One that is not there is empty.
pub fn monitors(root: &Path) -> io::Result<Vec<Monitor>> {
    let kdamonds = root.join(KDAMONDS);
    let number = match read(&kdamonds.join("nr_kdamonds")) {
        Ok(text) => text.parse::<u32>().unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok((0..number.min(MOST)).filter_map(|index| monitor(&kdamonds, index)).collect())
}

fn monitor(kdamonds: &Path, index: u32) -> Option<Monitor> {
    let at = kdamonds.join(index.to_string());
    // -1 while it does not run.
    let thread = read(&at.join("pid")).ok()?.parse().ok()?;
    let context = at.join("contexts/0");
    let attributes = context.join("monitoring_attrs/intervals");
    let number = |path: PathBuf| read(&path).ok()?.parse::<u64>().ok();
    let operations = Operations::of(&read(&context.join("operations")).ok()?)?;
    Some(Monitor {
        index,
        thread,
        operations,
        sample: Duration::from_micros(number(attributes.join("sample_us"))?),
        aggregation: Duration::from_micros(number(attributes.join("aggr_us"))?),
        tuned: number(attributes.join("intervals_goal/aggrs")).is_some_and(|aggrs| aggrs > 0),
        unit: match operations {
            Operations::Paddr => number(context.join("addr_unit")).unwrap_or(1).max(1),
            Operations::Vaddr | Operations::Fvaddr => 1,
        },
        targets: targets(&context.join("targets"), operations)?,
    })
}

fn targets(at: &Path, operations: Operations) -> Option<Vec<Option<Tgid>>> {
    let number: u32 = read(&at.join("nr_targets")).ok()?.parse().ok()?;
    let target = |index: u32| match operations {
        Operations::Paddr => Some(None),
        Operations::Vaddr | Operations::Fvaddr => {
            let pid = read(&at.join(index.to_string()).join("pid_target")).ok()?;
            Some(Some(Tgid(pid.parse().ok()?)))
        }
    };
    (0..number.min(MOST)).map(target).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use memprov_ledger::identity::Tgid;

    use super::{Monitor, Operations, monitors};

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join("sys/kernel/mm/damon/admin/kdamonds").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn tree(operations: &str, targets: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let intervals = "0/contexts/0/monitoring_attrs/intervals";
        write(root.path(), "nr_kdamonds", "1");
        write(root.path(), "0/pid", "71");
        write(root.path(), "0/contexts/0/operations", operations);
        write(root.path(), &format!("{intervals}/sample_us"), "5000");
        write(root.path(), &format!("{intervals}/aggr_us"), "104000");
        write(root.path(), "0/contexts/0/targets/nr_targets", &targets.len().to_string());
        for (index, pid) in targets.iter().enumerate() {
            write(root.path(), &format!("0/contexts/0/targets/{index}/pid_target"), pid);
        }
        root
    }

    #[test]
    fn a_monitor_of_processes_names_them_in_order() {
        let root = tree("fvaddr", &["7", "9"]);
        let monitor = Monitor {
            index: 0,
            thread: 71,
            operations: Operations::Fvaddr,
            sample: Duration::from_millis(5),
            aggregation: Duration::from_millis(104),
            tuned: false,
            unit: 1,
            targets: vec![Some(Tgid(7)), Some(Tgid(9))],
        };
        assert_eq!(monitor.checks(), 20, "the remainder has no check");
        assert_eq!(monitors(root.path()).unwrap(), [monitor]);
    }

    #[test]
    fn newer_kernels_count_physical_addresses_in_units_and_tune_intervals() {
        let root = tree("paddr", &["0"]);
        write(root.path(), "0/contexts/0/addr_unit", "4096");
        let goal = "0/contexts/0/monitoring_attrs/intervals/intervals_goal/aggrs";
        write(root.path(), goal, "3");
        let found = monitors(root.path()).unwrap();
        assert_eq!((found[0].unit, found[0].tuned), (4096, true));
        assert_eq!(found[0].targets, [None]);
    }

    #[test]
    fn one_that_does_not_run_or_watches_what_nobody_knows_is_left_out() {
        let root = tree("paddr", &["0"]);
        write(root.path(), "0/pid", "-1");
        assert_eq!(monitors(root.path()).unwrap(), []);
        let root = tree("xaddr", &["0"]);
        assert_eq!(monitors(root.path()).unwrap(), []);
        assert_eq!(monitors(tempfile::tempdir().unwrap().path()).unwrap(), []);
    }
}
