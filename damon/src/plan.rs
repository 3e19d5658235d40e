//! What a monitor of our own is to watch, and the writes that set it up. Pure.
//!
//! Files and their meaning: kernel `Documentation/admin-guide/mm/damon/usage.rst`. Nothing is ever done to memory: where
//! findings come by the tracepoint there is no scheme, and where they are asked for schemes have the action `stat`, which
//! only counts.

use std::time::Duration;

use memprov_ledger::identity::{Extent, Tgid};

use crate::monitor::Operations;

/// How often the kernel looks for new mappings of processes whose ranges it finds itself. Its own default is a minute.
const UPDATE: Duration = Duration::from_secs(1);

/// Of the most regions of physical memory so manieth a part is the least. The kernel's own least is 10 whatever the most: a
/// region of a tenth of a host has more memory in it than its checks of single pages find in any time.
const LEAST: u32 = 10;

/// A monitor of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is watched.
    pub operations: Operations,
    /// Between two checks of a region.
    pub sample: Duration,
    /// Between two tellings.
    pub aggregation: Duration,
    /// Regions at most, over all targets: with `sample` they bound what it costs.
    pub regions: u32,
    /// Where the kernel can, it stretches both intervals by one factor until about this many hits come in, in 1/10,000 of
    /// all checks.
    pub goal: Option<Goal>,
    /// How its findings are had.
    pub findings: Findings,
    /// Who is watched, or for physical memory a target without a process.
    pub targets: Vec<Target>,
}

/// How findings of a monitor are had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Findings {
    /// Its thread tells all of them at a tracepoint.
    Tracepoint,
    /// It is asked for some of them, and tells by files (Linux 6.2; of several targets Linux 6.6). Intervals aren't tuned
    /// then: no file would say what they are by now.
    TriedRegions,
}

/// How intervals are tuned (Linux 6.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Hits to be had, in 1/10,000 of all checks.
    pub access_bp: u32,
    /// Over how many aggregations.
    pub aggregations: u32,
    /// The longest that a sampling interval may become.
    pub longest: Duration,
}

/// What one target is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The process; `None` for physical memory.
    pub tgid: Option<Tgid>,
    /// Its ranges, in order, none overlapping. Empty: the kernel finds them (`vaddr` only).
    pub ranges: Vec<Extent>,
}

/// A write: path below the directory of all monitors, and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file.
    pub path: String,
    /// What is written.
    pub value: String,
}

impl Plan {
    /// The writes that set the monitor up, in order, the one that starts it not among them. `tunes`: the kernel can tune
    /// intervals.
    #[must_use]
    pub fn writes(&self, tunes: bool) -> Vec<Write> {
        let mut out = Vec::new();
        let mut write = |path: String, value: String| out.push(Write { path, value });
        let context = |file: &str| format!("0/contexts/0/{file}");
        let attribute = |file: &str| format!("0/contexts/0/monitoring_attrs/{file}");
        let micros = |time: Duration| time.as_micros().to_string();
        write("nr_kdamonds".to_owned(), "1".to_owned());
        write("0/contexts/nr_contexts".to_owned(), "1".to_owned());
        write(context("operations"), self.operations.id().to_owned());
        write(attribute("intervals/sample_us"), micros(self.sample));
        write(attribute("intervals/aggr_us"), micros(self.aggregation));
        write(attribute("intervals/update_us"), micros(UPDATE));
        let tunes = tunes && self.findings == Findings::Tracepoint;
        if let Some(goal) = self.goal.filter(|_| tunes) {
            let of = |file: &str| attribute(&format!("intervals/intervals_goal/{file}"));
            write(of("min_sample_us"), micros(self.sample));
            write(of("max_sample_us"), micros(goal.longest));
            write(of("access_bp"), goal.access_bp.to_string());
            write(of("aggrs"), goal.aggregations.to_string());
        }
        if self.operations == Operations::Paddr {
            // No region is larger than that part of what is watched (kernel `mm/damon/core.c`, `damon_region_sz_limit`).
            write(attribute("nr_regions/min"), (self.regions / LEAST).max(3).to_string());
        }
        write(attribute("nr_regions/max"), self.regions.to_string());
        write(context("targets/nr_targets"), self.targets.len().to_string());
        for (number, target) in self.targets.iter().enumerate() {
            let of = |file: &str| context(&format!("targets/{number}/{file}"));
            if let Some(tgid) = target.tgid {
                write(of("pid_target"), tgid.0.to_string());
            }
            if target.ranges.is_empty() {
                continue;
            }
            write(of("regions/nr_regions"), target.ranges.len().to_string());
            for (number, range) in target.ranges.iter().enumerate() {
                write(of(&format!("regions/{number}/start")), range.start.to_string());
                write(of(&format!("regions/{number}/end")), range.end.to_string());
            }
        }
        if self.findings == Findings::TriedRegions {
            out.extend(self.schemes());
        }
        out
    }

    /// A scheme for each target, that finds all regions of it. Directories of regions don't say whose they are.
    fn schemes(&self) -> Vec<Write> {
        let context = |file: &str| format!("0/contexts/0/schemes/{file}");
        let mut out = vec![(context("nr_schemes"), self.targets.len().to_string())];
        for number in 0..self.targets.len() {
            let mut write = |file: &str, value: &dyn ToString| {
                out.push((context(&format!("{number}/{file}")), value.to_string()));
            };
            write("action", &"stat");
            write("access_pattern/sz/max", &u64::MAX);
            write("access_pattern/nr_accesses/max", &u32::MAX);
            write("access_pattern/age/max", &u32::MAX);
            if self.targets.len() > 1 {
                // N: what does not match is left out.
                write("filters/nr_filters", &1);
                write("filters/0/type", &"target");
                write("filters/0/matching", &"N");
                write("filters/0/damon_target_idx", &number);
            }
        }
        out.into_iter().map(|(path, value)| Write { path, value }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memprov_ledger::identity::{Extent, Tgid};

    use super::{Findings, Goal, Plan, Target};
    use crate::monitor::Operations;

    fn plan(operations: Operations, targets: Vec<Target>) -> Plan {
        Plan {
            operations,
            sample: Duration::from_millis(5),
            aggregation: Duration::from_millis(100),
            regions: 1000,
            goal: None,
            findings: Findings::Tracepoint,
            targets,
        }
    }

    fn log(plan: &Plan, tunes: bool) -> String {
        let line = |write: super::Write| format!("{}={}\n", write.path, write.value);
        plan.writes(tunes).into_iter().map(line).collect()
    }

    #[test]
    fn ranges_of_a_process_are_written_in_this_order() {
        let ranges = vec![Extent { start: 4096, end: 8192 }, Extent { start: 12288, end: 16384 }];
        let target = Target { tgid: Some(Tgid(7)), ranges };
        let golden = "\
nr_kdamonds=1
0/contexts/nr_contexts=1
0/contexts/0/operations=fvaddr
0/contexts/0/monitoring_attrs/intervals/sample_us=5000
0/contexts/0/monitoring_attrs/intervals/aggr_us=100000
0/contexts/0/monitoring_attrs/intervals/update_us=1000000
0/contexts/0/monitoring_attrs/nr_regions/max=1000
0/contexts/0/targets/nr_targets=1
0/contexts/0/targets/0/pid_target=7
0/contexts/0/targets/0/regions/nr_regions=2
0/contexts/0/targets/0/regions/0/start=4096
0/contexts/0/targets/0/regions/0/end=8192
0/contexts/0/targets/0/regions/1/start=12288
0/contexts/0/targets/0/regions/1/end=16384
";
        assert_eq!(log(&plan(Operations::Fvaddr, vec![target]), true), golden);
    }

    #[test]
    fn a_goal_is_written_where_the_kernel_has_one() {
        let targets = [7, 9].map(|pid| Target { tgid: Some(Tgid(pid)), ranges: Vec::new() });
        let goal = Goal { access_bp: 400, aggregations: 3, longest: Duration::from_millis(100) };
        let plan = Plan { goal: Some(goal), ..plan(Operations::Vaddr, targets.to_vec()) };
        let golden = "\
nr_kdamonds=1
0/contexts/nr_contexts=1
0/contexts/0/operations=vaddr
0/contexts/0/monitoring_attrs/intervals/sample_us=5000
0/contexts/0/monitoring_attrs/intervals/aggr_us=100000
0/contexts/0/monitoring_attrs/intervals/update_us=1000000
0/contexts/0/monitoring_attrs/intervals/intervals_goal/min_sample_us=5000
0/contexts/0/monitoring_attrs/intervals/intervals_goal/max_sample_us=100000
0/contexts/0/monitoring_attrs/intervals/intervals_goal/access_bp=400
0/contexts/0/monitoring_attrs/intervals/intervals_goal/aggrs=3
0/contexts/0/monitoring_attrs/nr_regions/max=1000
0/contexts/0/targets/nr_targets=2
0/contexts/0/targets/0/pid_target=7
0/contexts/0/targets/1/pid_target=9
";
        assert_eq!(log(&plan, true), golden);
        let goalless: String =
            golden.lines().filter(|l| !l.contains("goal")).map(|l| format!("{l}\n")).collect();
        assert_eq!(log(&plan, false), goalless);
    }

    #[test]
    fn who_asks_has_a_scheme_for_each_target_that_only_counts_and_tunes_nothing() {
        let one = Target { tgid: Some(Tgid(7)), ranges: Vec::new() };
        let goal = Goal { access_bp: 400, aggregations: 3, longest: Duration::from_millis(100) };
        let (goal, findings) = (Some(goal), Findings::TriedRegions);
        let schemes = |targets: &[Target]| {
            let plan = Plan { goal, findings, ..plan(Operations::Vaddr, targets.to_vec()) };
            let log = log(&plan, true);
            assert!(!log.contains("goal"), "{log}");
            let lines = log.lines().filter_map(|line| line.strip_prefix("0/contexts/0/schemes/"));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        let golden = "\
nr_schemes=1
0/action=stat
0/access_pattern/sz/max=18446744073709551615
0/access_pattern/nr_accesses/max=4294967295
0/access_pattern/age/max=4294967295
";
        assert_eq!(schemes(std::slice::from_ref(&one)), golden);
        let two = schemes(&[one.clone(), one]);
        let filter = "\
1/filters/nr_filters=1
1/filters/0/type=target
1/filters/0/matching=N
1/filters/0/damon_target_idx=1
";
        assert!(two.starts_with("nr_schemes=2\n") && two.ends_with(filter), "{two}");
    }

    #[test]
    fn physical_memory_names_no_process() {
        let target = Target { tgid: None, ranges: vec![Extent { start: 4096, end: 8192 }] };
        let log = log(&plan(Operations::Paddr, vec![target]), true);
        assert!(log.contains("operations=paddr\n") && !log.contains("pid_target"), "{log}");
        assert!(log.ends_with("targets/0/regions/0/end=8192\n"), "{log}");
        assert!(log.contains("nr_regions/min=100\n"), "{log}");
    }
}
