//! What a monitor of our own is to watch, and the writes that set it up. Pure.
//!
//! Files and their meaning: kernel `Documentation/admin-guide/mm/damon/usage.rst`. Findings come by the tracepoint, so
//! there is no scheme: nothing is ever done to memory.

use std::time::Duration;

use memprov_ledger::identity::{Extent, Tgid};

use crate::monitor::Operations;

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
    /// Who is watched, or for physical memory a target without a process.
    pub targets: Vec<Target>,
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
        if let Some(goal) = self.goal.filter(|_| tunes) {
            let of = |file: &str| attribute(&format!("intervals/intervals_goal/{file}"));
            write(of("min_sample_us"), micros(self.sample));
            write(of("max_sample_us"), micros(goal.longest));
            write(of("access_bp"), goal.access_bp.to_string());
            write(of("aggrs"), goal.aggregations.to_string());
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
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memprov_ledger::identity::{Extent, Tgid};

    use super::{Goal, Plan, Target};
    use crate::monitor::Operations;

    fn plan(operations: Operations, targets: Vec<Target>) -> Plan {
        Plan {
            operations,
            sample: Duration::from_millis(5),
            aggregation: Duration::from_millis(100),
            regions: 1000,
            goal: None,
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
    fn physical_memory_names_no_process() {
        let target = Target { tgid: None, ranges: vec![Extent { start: 4096, end: 8192 }] };
        let log = log(&plan(Operations::Paddr, vec![target]), true);
        assert!(log.contains("operations=paddr\n") && !log.contains("pid_target"), "{log}");
        assert!(log.ends_with("targets/0/regions/0/end=8192\n"), "{log}");
    }
}
