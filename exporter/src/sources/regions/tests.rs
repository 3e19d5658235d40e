//! A monitor of ours that is asked, below a root of plain files: one process, and DAMON's tree, which nobody fills but the
//! test.

use std::fs;
use std::path::Path;
use std::time::Duration;

use memprov_damon::{Findings, Operations, Plan, Region, Target};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;

use super::own::Own;
use super::told::Told;
use crate::config::{Config, Damon, DamonMode, Watched};

const TREE: &str = "sys/kernel/mm/damon/admin/kdamonds";
const TRIED: &str = "0/contexts/0/schemes/0/tried_regions";

struct Host {
    root: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Self { root: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() };
        host.put("proc/sys/kernel/random/boot_id", "b007");
        host.put("proc/7/stat", &format!("7 (hot) S 1 7 7 0 -1 4194304{}\n", " 1".repeat(43)));
        let plan = Plan {
            operations: Operations::Vaddr,
            sample: Duration::from_millis(5),
            aggregation: Duration::from_millis(100),
            regions: 1000,
            goal: None,
            findings: Findings::TriedRegions,
            targets: vec![Target { tgid: Some(Tgid(7)), ranges: Vec::new() }],
        };
        plan.writes(false).iter().for_each(|write| host.tree(&write.path, ""));
        for (path, text) in [("nr_kdamonds", "0"), ("0/state", ""), ("0/pid", "71")] {
            host.tree(path, text);
        }
        host
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tree(&self, path: &str, text: &str) {
        self.put(&Path::new(TREE).join(path).to_string_lossy(), text);
    }

    /// What the kernel does when it is told to tell.
    fn tell(&self, total: &str) {
        self.tree(&format!("{TRIED}/total_bytes"), total);
        let fields = [("start", "4096"), ("end", "8192"), ("nr_accesses", "20"), ("age", "2")];
        for (field, text) in fields {
            self.tree(&format!("{TRIED}/31/{field}"), text);
        }
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(TREE).join(path)).unwrap()
    }

    /// A monitor of the process, of such aggregations.
    fn own(&self, aggregation: Duration) -> Own {
        let config = Config {
            root: self.root.path().to_owned(),
            state_dir: self.state.path().to_owned(),
            damon: Damon {
                mode: DamonMode::Active,
                watch: Watched::Vaddr,
                allow: "comm=hot".to_owned().try_into().unwrap(),
                aggregation,
                ..Damon::default()
            },
            ..Config::default()
        };
        let mut own = Own::of(&config).unwrap();
        own.is_asked();
        own.turn(MonoTime(1));
        own
    }
}

#[test]
fn what_is_asked_is_told_whole_or_counts_as_lost() {
    let host = Host::new();
    let mut own = host.own(Duration::from_millis(100));
    assert_eq!((host.read("0/state").as_str(), host.read("nr_kdamonds").as_str()), ("on", "1"));
    host.tell("8192");
    let mut told = Told::asked();
    assert_eq!((told.snapshots(Some(&mut own)).unwrap(), told.lost()), (vec![], 1), "cut short");
    assert_eq!(told.snapshots(Some(&mut own)).unwrap(), [], "it is not asked at once again");
    assert_eq!(told.lost(), 1);
    host.tell("4096");
    let found = Told::asked().snapshots(Some(&mut own)).unwrap();
    assert_eq!(host.read("0/state"), "update_schemes_tried_regions");
    let of: Vec<_> = found.iter().map(|s| (s.thread, s.target, s.regions.clone())).collect();
    let region = Region { start: 4096, end: 8192, accesses: 20, age: 2 };
    assert_eq!(of, [(71, 0, vec![region])]);
    // What does not run any more has lost nothing.
    host.tree("0/pid", "-1");
    host.tell("8192");
    let mut told = Told::asked();
    assert_eq!((told.snapshots(Some(&mut own)).unwrap(), told.lost()), (vec![], 0));
    host.tree("0/pid", "71");
    own.end();
    // A plain file keeps what is longer than what was written over it.
    assert!(host.read("0/state").starts_with("off") && host.read("nr_kdamonds") == "0");
}

#[test]
fn an_aggregation_that_is_too_long_to_wait_for_is_not_begun() {
    let host = Host::new();
    let mut own = host.own(Duration::from_secs(11));
    assert_eq!(host.read("nr_kdamonds"), "0");
    assert_eq!(Told::asked().snapshots(Some(&mut own)).unwrap(), []);
}
