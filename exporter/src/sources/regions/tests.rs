//! A monitor of ours that is asked, below a root of plain files: one process, and DAMON's tree, which nobody fills but the
//! test.

use std::fs;
use std::path::Path;
use std::time::Duration;

use memprov_damon::{Findings, Operations, Plan, Region, Target};
use memprov_ledger::activity::POOLED;
use memprov_ledger::evidence::{Activity, Evidence, Run};
use memprov_ledger::identity::{Extent, PAGE, Tgid};
use memprov_ledger::time::{MonoTime, Span};
use memprov_proc::clock;

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
        // Files of all that is written here, whatever is watched.
        let target = Target { tgid: Some(Tgid(7)), ranges: vec![Extent::new(0, PAGE)] };
        let plan = Plan {
            operations: Operations::Paddr,
            sample: Duration::from_millis(5),
            aggregation: Duration::from_millis(100),
            regions: 1000,
            goal: None,
            findings: Findings::TriedRegions,
            targets: vec![target],
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

    /// Where the pages of the process lie, from address 16 MiB on.
    fn lie(&self, frames: impl Iterator<Item = u64>) {
        let before = std::iter::repeat_n(0, 4096);
        let entries = before.chain(frames.map(|frame| 1 << 63 | frame));
        let text: Vec<u8> = entries.flat_map(u64::to_ne_bytes).collect();
        fs::write(self.root.path().join("proc/7/pagemap"), text).unwrap();
    }

    /// A monitor of the process, of such aggregations.
    fn own(&self, aggregation: Duration) -> Own {
        self.watched(Watched::Vaddr, aggregation)
    }

    fn watched(&self, watch: Watched, aggregation: Duration) -> Own {
        let config = Config {
            root: self.root.path().to_owned(),
            state_dir: self.state.path().to_owned(),
            damon: Damon {
                mode: DamonMode::Active,
                watch,
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

/// A frame beyond all memory: none of them is the kernel's zero page.
const HIGH: u64 = 1 << 36;

/// What our monitor, thread 71, finds of some physical memory from now on.
fn found(times: usize) -> Vec<Evidence> {
    let seen = || Activity { when: Span::at(clock::now()), monitor: 71, ..Activity::default() };
    std::iter::repeat_with(|| Evidence::Activity(Box::new(seen()))).take(times).collect()
}

#[test]
fn what_stays_in_its_frames_while_physical_memory_is_watched_is_told_once_enough_was_found() {
    let host = Host::new();
    host.put("proc/iomem", "00001000-0009fbff : System RAM\n00100000-6ffd6fff : System RAM\n");
    host.put("proc/7/maps", "1000000-1200000 rw-p 00000000 00:00 0 \n");
    host.lie(HIGH..HIGH + 512);
    let mut own = host.watched(Watched::Paddr, Duration::from_millis(100));
    let target = |file: &str| host.read(&format!("0/contexts/0/targets/0/{file}"));
    assert_eq!(host.read("0/contexts/0/operations"), "paddr");
    assert_eq!((target("pid_target").as_str(), target("regions/nr_regions").as_str()), ("", "1"));
    assert_eq!(target("regions/0/start"), 0x10_0000.to_string());
    assert_eq!(target("regions/0/end"), 0x6ffd_7000.to_string());

    let early = found(POOLED);
    let mut told = Vec::new();
    own.lay(&mut told);
    told.extend(early);
    own.lay(&mut told);
    assert_eq!(told.len(), POOLED, "what was found before the first reading is not in between");
    // One page moves.
    host.lie((HIGH..HIGH + 100).chain([HIGH * 2]).chain(HIGH + 101..HIGH + 512));
    let mut told = found(POOLED);
    own.lay(&mut told);
    let Some(Evidence::Frames(frames)) = told.get(POOLED) else { panic!("{told:?}") };
    let run = |page: u64, pages, frame: u64| Run {
        extent: Extent::new((4096 + page) * PAGE, pages * PAGE),
        at: frame * PAGE,
    };
    assert_eq!(frames.runs[..], [run(0, 100, HIGH), run(101, 411, HIGH + 101)]);
    assert_eq!((frames.tgid, frames.monitor, frames.moved), (Tgid(7), 71, PAGE));
    let inside = |evidence: &Evidence| match evidence {
        Evidence::Activity(seen) => frames.when.begin <= seen.when.begin,
        _ => true,
    };
    assert!(told.iter().all(inside));
    let mut told = found(POOLED);
    own.lay(&mut told);
    assert_eq!(told.len(), POOLED, "no round begins at once again");
    own.end();
    assert!(host.read("nr_kdamonds") == "0");
}

#[test]
fn where_physical_addresses_are_hidden_nothing_is_begun() {
    let host = Host::new();
    host.put("proc/iomem", "00000000-00000000 : System RAM\n");
    let mut own = host.watched(Watched::Paddr, Duration::from_millis(100));
    let mut told = found(POOLED);
    own.lay(&mut told);
    assert_eq!((host.read("nr_kdamonds").as_str(), told.len()), ("0", POOLED));
}
