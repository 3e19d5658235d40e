//! `memprov check`: probes the host, and prints the support matrix.

use std::path::Path;

use memprov_ledger::identity::Tgid;
use memprov_proc::cgroup::{container_id, memory_path};
use memprov_proc::{Proc, lossless};

use crate::config::{Config, DamonMode, Detail, Watched};
use crate::encode::{Estimate, Options, estimate};
use crate::logging::chain;
use crate::sources::chosen;
use crate::sources::regions::MARK;
use crate::support::{
    Capability, Cgroup, HookProbe, Matrix, OwnMonitor, PagesProbe, Probes, State,
};
use crate::table::text::{Paint, clean, elide, fit};

/// Inode of the initial pid namespace (kernel `include/linux/proc_ns.h`, PROC_PID_INIT_INO).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Probes everything but the hooks and the pages, which the caller has probed. Changes nothing.
#[must_use]
pub fn probe(config: &Config, hooks: Vec<HookProbe>, pages: PagesProbe) -> Probes {
    let root = config.root.as_path();
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let nodes = text("sys/devices/system/node/has_memory")
        .or_else(|| text("sys/devices/system/node/online"));
    Probes {
        kernel: text("proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        hooks,
        held: text("proc/self/status").as_deref().and_then(effective),
        btf: root.join("sys/kernel/btf/vmlinux").exists(),
        pages,
        frames: root == Path::new("/") && frames().unwrap_or(false),
        nodes: nodes.as_deref().and_then(count),
        initial_pids: std::fs::read_link(root.join("proc/self/ns/pid"))
            .ok()
            .map(|link| link.as_os_str() == INITIAL_PID_NAMESPACE),
        cgroup: cgroup(&root.join("sys/fs/cgroup")),
        pmu: memprov_perfmem::judge(&memprov_perfmem::probe(root)),
        damon: memprov_damon::probe(root),
        damon_own: (config.damon.mode == DamonMode::Active).then(|| own_monitor(config)),
    }
}

fn own_monitor(config: &Config) -> OwnMonitor {
    if memprov_damon::is_ours(&config.root, &config.state_dir.join(MARK)) {
        return OwnMonitor::There;
    }
    let hidden = || match config.damon.watch {
        Watched::Paddr => Proc::at(&config.root).system_ram().err().map(|e| chain(&e)),
        Watched::Auto | Watched::Fvaddr | Watched::Vaddr => None,
    };
    let refused = memprov_damon::writable(&config.root).err().map(|e| e.to_string());
    refused.or_else(hidden).map_or(OwnMonitor::Possible, OwnMonitor::Refused)
}

/// The mask of effective capabilities in `/proc/self/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// How many numbers a list such as `0-1,4` has.
fn count(list: &str) -> Option<u32> {
    let numbers = memprov_proc::id_list(list.as_bytes())?;
    u32::try_from(numbers.len()).ok()
}

/// Whether the kernel shows the frame of a page of our own. It shows 0 without CAP_SYS_ADMIN.
fn frames() -> std::io::Result<bool> {
    use std::os::unix::fs::FileExt;

    let here = 1u8;
    let page = std::ptr::from_ref(&here).addr() as u64 / memprov_ledger::identity::PAGE;
    let mut entry = [0; 8];
    std::fs::File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, page * 8)?;
    let frame = u64::from_ne_bytes(entry) & ((1 << 55) - 1);
    Ok(frame != 0)
}

fn cgroup(mounted: &Path) -> Cgroup {
    let controllers = |path: &str| std::fs::read_to_string(mounted.join(path)).ok();
    if mounted.join("memory/memory.usage_in_bytes").exists() {
        let unified =
            controllers("unified/cgroup.controllers").or_else(|| controllers("cgroup.controllers"));
        return if unified.is_some() { Cgroup::Hybrid } else { Cgroup::V1 };
    }
    match controllers("cgroup.controllers") {
        Some(_) => Cgroup::V2,
        None if mounted.join("memory").is_dir() => Cgroup::V1,
        None => Cgroup::Absent,
    }
}

/// Columns of what is said below a row; the document has it whole.
const DETAIL: usize = 160;

/// Text of one column of a capability's row.
type Cell = fn(&Capability) -> String;

/// The matrix as text: a line each, and below what is not available why, what it costs and what helps.
#[must_use]
pub fn render(matrix: &Matrix, color: bool) -> String {
    let paint = Paint(color);
    let column = |part: Cell, title: &str| {
        let longest = matrix.capabilities.iter().map(|c| part(c).chars().count()).max();
        longest.unwrap_or_default().max(title.chars().count())
    };
    let columns: [(&str, Cell); 4] = [
        ("CAPABILITY", |c| clean(&c.id)),
        ("STATE", |c| word(c.state).to_owned()),
        ("CLASS", |c| word(c.class).to_owned()),
        ("MECHANISM", |c| c.mechanism.as_deref().map_or_else(|| "-".to_owned(), clean)),
    ];
    let widths = columns.map(|(title, part)| column(part, title));
    let line = |cells: [String; 4]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| fit(cell, width)).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut out = vec![paint.bold(&line(columns.map(|(title, _)| title.to_owned())))];
    for capability in &matrix.capabilities {
        let row = line(columns.map(|(_, part)| part(capability)));
        let whole = capability.state == State::Available;
        out.push(if whole { row } else { paint.alarm(&row) });
        let details =
            [("why", &capability.reason), ("loses", &capability.loses), ("fix", &capability.fix)];
        for (name, text) in details {
            if let Some(text) = text {
                let text = elide(&clean(text), DETAIL);
                out.push(paint.dim(&format!("    {}  {text}", fit(name, 5))));
            }
        }
    }
    let lacking = |state| matrix.capabilities.iter().filter(|c| c.state == state).count();
    out.push(String::new());
    out.push(format!(
        "{} available, {} degraded, {} unavailable",
        lacking(State::Available),
        lacking(State::Degraded),
        lacking(State::Unavailable)
    ));
    let mut text = out.join("\n");
    text.push('\n');
    text
}

/// Series that the live processes of this host make, at most; `None` where that isn't known beforehand, or nobody lives
/// that can be read.
#[must_use]
pub fn series(config: &Config) -> Option<Estimate> {
    let proc = Proc::at(&config.root);
    let live = |pid: &Tgid| proc.stat(*pid).is_ok_and(|stat| !stat.kernel_thread());
    let pids = proc.pids().ok()?.into_iter().filter(live);
    let cgroups: Vec<Option<String>> = pids
        .map(|pid| proc.cgroups(pid).ok().as_deref().and_then(memory_path).map(lossless))
        .collect();
    let places =
        cgroups.iter().map(|path| (path.as_deref().and_then(container_id), path.as_deref()));
    estimate(&Options::of(config), places)
}

/// What settings that are in force name and this host does not have: a sentence each.
#[must_use]
pub fn idle(config: &Config) -> Vec<String> {
    let proc = Proc::at(&config.root);
    let active = config.damon.mode == DamonMode::Active;
    let damon = active.then_some(("damon.allow", &config.damon.allow));
    let named = damon.into_iter().chain([("access.faults", &config.access.faults)]);
    let lines = named.flat_map(|(setting, allow)| {
        let terms = chosen::idle(&proc, allow).into_iter();
        terms.map(move |term| format!("{setting}: {term} finds no process now"))
    });
    lines.collect()
}

/// The estimate as text.
#[must_use]
pub fn render_series(estimate: Option<Estimate>, detail: &Detail) -> String {
    let level = String::from(detail.clone());
    match estimate {
        Some(estimate) => {
            let Estimate { resources, each, host, touched, accesses, places } = estimate;
            let mut text = format!(
                "export.detail = {level}: at most {} series ({each} of each of {resources} containers, units or \
                 processes, {host} of the host)\n",
                estimate.total()
            );
            let further = [
                (touched, "DAMON watches"),
                (accesses, "accesses are sampled"),
                (places, "several NUMA nodes hold memory"),
            ];
            for (more, why) in further {
                if more > 0 {
                    text.push_str(&format!(
                        "    where {why}, at most {more} more of each, and of the host\n"
                    ));
                }
            }
            text
        }
        None => {
            format!("export.detail = {level}: a series for every owner, as many as there are\n")
        }
    }
}

/// The word that the document has for it.
fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "?".to_owned(),
    }
}

/// What a demand for capabilities gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// All are there; those that are degraded, each with its reason.
    Met(Vec<String>),
    /// Some are not there, each with its reason.
    Failed(Vec<String>),
    /// Some do not exist.
    Unknown(Vec<String>),
}

/// Whether the capabilities that are demanded are there. Degraded ones pass, with a warning.
#[must_use]
pub fn demand(matrix: &Matrix, wanted: &[String]) -> Demand {
    let unknown: Vec<String> =
        wanted.iter().filter(|id| matrix.get(id).is_none()).cloned().collect();
    if !unknown.is_empty() {
        return Demand::Unknown(unknown);
    }
    let of = |state| -> Vec<String> {
        wanted
            .iter()
            .filter_map(|id| matrix.get(id))
            .filter(|capability| capability.state == state)
            .map(|capability| {
                let reason = capability.reason.as_deref().unwrap_or("for no known reason");
                format!("{} is {}: {}", capability.id, word(capability.state), clean(reason))
            })
            .collect()
    };
    let failed = of(State::Unavailable);
    if failed.is_empty() { Demand::Met(of(State::Degraded)) } else { Demand::Failed(failed) }
}

#[cfg(test)]
mod tests {
    use super::{Demand, cgroup, demand, effective, probe, render};
    use crate::config::Config;
    use crate::support::{Cgroup, Matrix, PagesProbe, State};

    fn this_host() -> Matrix {
        let pages = PagesProbe { pagemap: true, scan: true, exact_rss: None };
        Matrix::of(&probe(&Config::default(), Vec::new(), pages))
    }

    #[test]
    fn this_host_is_described_in_aligned_text_without_colour() {
        let matrix = this_host();
        let text = render(&matrix, false);
        println!("{text}");
        assert!(!text.contains('\x1b'));
        for capability in &matrix.capabilities {
            assert!(text.lines().any(|line| line.starts_with(&capability.id)), "{}", capability.id);
        }
        let state = text.lines().next().unwrap().find("STATE").unwrap();
        for line in text.lines().skip(1).take_while(|line| !line.is_empty()) {
            let before = line.as_bytes().get(state - 1);
            assert!(line.starts_with("    ") || before == Some(&b' '), "{line}");
        }
        assert!(render(&matrix, true).contains('\x1b'));
    }

    #[test]
    fn a_demand_is_met_by_degraded_and_not_by_unavailable() {
        let matrix = this_host();
        let want = |ids: &[&str]| {
            demand(&matrix, &ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(want(&["faults.totals"]), Demand::Met(Vec::new()));
        assert_eq!(matrix.get("residency.exact_rss").unwrap().state, State::Degraded);
        let Demand::Met(warnings) = want(&["residency.exact_rss", "faults.totals"]) else {
            panic!()
        };
        assert_eq!(warnings, ["residency.exact_rss is degraded: it was not measured"]);
        let Demand::Failed(failed) = want(&["first_touch", "faults.totals"]) else { panic!() };
        assert_eq!(failed, ["first_touch is unavailable: no mechanism was tried"]);
        assert_eq!(want(&["telepathy"]), Demand::Unknown(vec!["telepathy".to_owned()]));
    }

    #[test]
    fn capabilities_are_read_from_status() {
        assert_eq!(effective("Name:\tx\nCapEff:\t000001fffeffffff\n"), Some(0x1ff_feff_ffff));
        assert_eq!(effective("CapEff:\tx\n"), None);
        assert_eq!(effective(""), None);
    }

    #[test]
    fn hierarchies_are_told_apart_by_what_is_mounted() {
        let root = tempfile::tempdir().unwrap();
        let touch = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "memory\n").unwrap();
        };
        assert_eq!(cgroup(root.path()), Cgroup::Absent);
        touch("cgroup.controllers");
        assert_eq!(cgroup(root.path()), Cgroup::V2);
        touch("memory/memory.usage_in_bytes");
        assert_eq!(cgroup(root.path()), Cgroup::Hybrid);
        std::fs::remove_file(root.path().join("cgroup.controllers")).unwrap();
        assert_eq!(cgroup(root.path()), Cgroup::V1);
    }

    #[test]
    fn another_root_is_probed_without_touching_this_host() {
        let root = tempfile::tempdir().unwrap();
        let config = Config { root: root.path().to_owned(), ..Config::default() };
        let matrix = Matrix::of(&probe(&config, Vec::new(), PagesProbe::default()));
        let available: Vec<&str> = matrix
            .capabilities
            .iter()
            .filter(|capability| capability.state == State::Available)
            .map(|capability| capability.id.as_str())
            .collect();
        assert_eq!(available, ["faults.totals"]);
    }
}
