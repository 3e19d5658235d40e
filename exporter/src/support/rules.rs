//! The rules, one function a capability or a family of them.

use memprov_damon::{Kdamond, Presence};

use super::calls::{hook, with};
use super::samples::{faults, pmu};
use super::{Capability, Cgroup, Class, HookState, OwnMonitor, Probes, State};

/// Numbers of kernel capabilities (`include/uapi/linux/capability.h`).
const DAC_OVERRIDE: u8 = 1;
const DAC_READ_SEARCH: u8 = 2;
const SYS_PTRACE: u8 = 19;
const SYS_ADMIN: u8 = 21;
pub(super) const PERFMON: u8 = 38;
pub(super) const BPF: u8 = 39;
const CHECKPOINT_RESTORE: u8 = 40;

/// All capabilities, in the order in which they are shown.
pub(super) fn capabilities(probes: &Probes) -> Vec<Capability> {
    let lifecycle = hook(
        probes,
        "mapping.lifecycle",
        "mapping",
        Class::Exact,
        "who mapped memory: new mappings are found by the next scan and have no owner by call site",
    );
    let other = |id, kind, class, loses| {
        let alone = lifecycle.state == State::Available
            || probes.hooks.is_empty()
            || probes.hooks.iter().any(|hook| hook.id == kind);
        if alone { hook(probes, id, kind, class, loses) } else { with(&lifecycle, id, loses) }
    };
    let stacks = with(
        &lifecycle,
        "mapping.stacks",
        "the call stacks of mappings: memory is told by file and kind only",
    );
    let compat = other(
        "mapping.compat",
        "compat",
        Class::Exact,
        "mappings that 32-bit programs make: they are found by the next scan",
    );
    let process = other(
        "process.fork_exec_exit",
        "process",
        Class::Exact,
        "new processes: they are found by the next scan, and short-lived ones are missed",
    );
    let first_touch = other(
        "first_touch",
        "first_touch",
        Class::Sampled,
        "who uses the pages that an allocator mapped: arenas are not divided by function",
    );
    let mut out = vec![
        lifecycle,
        stacks,
        compat,
        process,
        scan(probes),
        exclusive(probes),
        exact_rss(probes),
        first_touch,
        available("faults.totals", Some("/proc/PID/stat"), Class::Exact),
        names(probes),
        pmu(probes),
        faults(probes),
        damon(probes),
        frames(probes),
        nodes(probes.nodes),
        pids(probes.initial_pids),
        btf(probes),
        cgroup(probes.cgroup),
    ];
    out.extend(held(probes));
    out
}

pub(super) fn available(id: &str, mechanism: Option<&str>, class: Class) -> Capability {
    Capability {
        id: id.to_owned(),
        state: State::Available,
        mechanism: mechanism.map(str::to_owned),
        class,
        reason: None,
        loses: None,
        fix: None,
    }
}

/// Less than available: why, what it costs, what helps.
pub(super) fn short(
    id: &str,
    state: State,
    class: Class,
    [reason, loses, fix]: [&str; 3],
) -> Capability {
    Capability {
        state,
        reason: Some(reason.to_owned()),
        loses: Some(loses.to_owned()),
        fix: Some(fix.to_owned()),
        ..available(id, None, class)
    }
}

pub(super) fn unavailable(id: &str, texts: [&str; 3]) -> Capability {
    short(id, State::Unavailable, Class::None, texts)
}

/// Whether a kernel capability is effective. CAP_SYS_ADMIN stands for the two that were split off from it.
pub(super) fn holds(probes: &Probes, number: u8) -> bool {
    let bit = |number: u8| probes.held.is_some_and(|held| held >> number & 1 == 1);
    match number {
        BPF | PERFMON | CHECKPOINT_RESTORE => bit(number) || bit(SYS_ADMIN),
        DAC_READ_SEARCH => bit(number) || bit(DAC_OVERRIDE),
        _ => bit(number),
    }
}

fn scan(probes: &Probes) -> Capability {
    let id = "residency.scan";
    let pages = &probes.pages;
    if !pages.pagemap {
        return unavailable(
            id,
            [
                "/proc/self/pagemap does not open",
                "resident bytes of owners: only reserved bytes and the kernel's totals are known",
                "mount /proc into the container, and a kernel with CONFIG_PROC_PAGE_MONITOR=y",
            ],
        );
    }
    if !holds(probes, SYS_PTRACE) && !holds(probes, PERFMON) || !holds(probes, DAC_READ_SEARCH) {
        let own = "resident bytes of owners in processes of other users: only reserved bytes and the kernel's totals are known";
        let fix = "run as root, or grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";
        return Capability {
            mechanism: Some("pagemap of own processes".to_owned()),
            ..short(
                id,
                State::Degraded,
                Class::Exact,
                ["/proc/PID/pagemap opens for its owner only", own, fix],
            )
        };
    }
    if pages.scan {
        return available(id, Some("PAGEMAP_SCAN"), Class::Exact);
    }
    let (class, loses) = if probes.frames {
        (Class::Exact, "the size of pages; and every page is read, present or not")
    } else {
        let zeros = "exactness: pages that were only read and hold zeros count as resident";
        (Class::Inferred, zeros)
    };
    Capability {
        mechanism: Some("pagemap".to_owned()),
        ..short(
            id,
            State::Degraded,
            class,
            ["this kernel has no PAGEMAP_SCAN", loses, "Linux 6.7 or newer"],
        )
    }
}

fn exclusive(probes: &Probes) -> Capability {
    let id = "residency.exclusive";
    if probes.pages.pagemap {
        // Bit 56 needs no right beyond that to open the file.
        return available(id, Some("pagemap bit 56"), Class::Exact);
    }
    unavailable(
        id,
        [
            "/proc/self/pagemap does not open",
            "which pages parent and child still share after fork",
            "mount /proc into the container, and a kernel with CONFIG_PROC_PAGE_MONITOR=y",
        ],
    )
}

fn exact_rss(probes: &Probes) -> Capability {
    let id = "residency.exact_rss";
    let loses = "a control total to the byte: it has bounds, and books close within them";
    match probes.pages.exact_rss {
        Some(true) => available(id, Some("/proc/PID/status"), Class::Exact),
        Some(false) => {
            let why = "this kernel batches its Rss counters per thread or CPU";
            let large = "a control total to the byte above 100 MiB of Rss: it has bounds, and books close within them";
            Capability {
                mechanism: Some("/proc/PID/smaps".to_owned()),
                ..short(
                    id,
                    State::Degraded,
                    Class::Exact,
                    [why, large, "a newer kernel (6.18 sums them exactly)"],
                )
            }
        }
        None => short(
            id,
            State::Degraded,
            Class::Inferred,
            [
                "it was not measured",
                loses,
                "the daemon measures it at its start; a report says `exact` where it holds",
            ],
        ),
    }
}

fn names(probes: &Probes) -> Capability {
    let id = "names";
    if holds(probes, CHECKPOINT_RESTORE) {
        return available(id, Some("/proc/PID/map_files"), Class::Exact);
    }
    Capability {
        mechanism: Some("/proc/PID/root".to_owned()),
        ..short(
            id,
            State::Degraded,
            Class::Exact,
            [
                "without CAP_CHECKPOINT_RESTORE, mapped files are opened by their path",
                "function names in programs and libraries that were deleted or replaced (upgrades)",
                "run as root, or grant CAP_CHECKPOINT_RESTORE",
            ],
        )
    }
}

/// Regions of a monitor: of somebody else's, which is listened to, or of ours. Only one that was set up by files tells how
/// many checks its counts are of.
fn damon(probes: &Probes) -> Capability {
    let id = "damon";
    let loses = "which memory is used";
    let (kdamonds, modules) = match &probes.damon {
        Presence::Absent => {
            let fix = "a kernel built with CONFIG_DAMON_SYSFS=y and CONFIG_DAMON_VADDR=y";
            return unavailable(id, ["the kernel has no DAMON sysfs", loses, fix]);
        }
        Presence::Unreadable(error) => {
            return unavailable(id, [error, loses, "run as root, or grant CAP_DAC_READ_SEARCH"]);
        }
        Presence::Present { kdamonds, modules } => (kdamonds, modules),
    };
    let running: Vec<_> = kdamonds.iter().filter(|k| k.running != Some(false)).collect();
    let named = |kdamond: &&Kdamond| {
        let pid = kdamond.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        let what = kdamond.operations.as_deref().unwrap_or("?");
        format!("kdamond {} (pid {pid}, {what})", kdamond.index)
    };
    let users: Vec<String> = running.iter().map(named).chain(modules.iter().cloned()).collect();
    let who = match users.as_slice() {
        [] => "nobody uses it".to_owned(),
        users => format!("in use: {}", users.join(", ")),
    };
    let listener = probes.hooks.iter().find(|hook| hook.id == "regions");
    let heard = listener.filter(|hook| hook.state == HookState::Attached);
    let deaf = listener.map_or("nobody listens", |hook| &hook.reason);
    let free = kdamonds.is_empty() && modules.is_empty();
    let own = probes.damon_own.as_ref().filter(|own| free || **own == OwnMonitor::There);
    match (heard, own) {
        (_, Some(OwnMonitor::Refused(error))) => {
            let why = format!("{who}; damon.mode = active, but its files: {error}");
            let fix = "run as root, or with what active-damon.conf of the package adds to the unit";
            unavailable(id, [&why, loses, fix])
        }
        (heard, Some(own)) => {
            let mechanism = heard.map_or("tried_regions", |hook| &hook.mechanism);
            let ours = match own {
                OwnMonitor::There => format!("{who}, which is ours"),
                _ => "one of ours where damon.allow finds somebody".to_owned(),
            };
            let why = if heard.is_some() { ours } else { format!("{ours}; {deaf}") };
            Capability { reason: Some(why), ..available(id, Some(mechanism), Class::Sampled) }
        }
        (None, None) => {
            let fix = "damon.mode = passive, and rights to load BPF tracing programs";
            unavailable(id, [&format!("{who}; {deaf}"), loses, fix])
        }
        (Some(heard), None) => others(&running, modules, who, &heard.mechanism),
    }
}

/// What monitors of others tell, who are `who`.
fn others(running: &[&Kdamond], modules: &[String], who: String, mechanism: &str) -> Capability {
    let id = "damon";
    let fix = "damon.mode = active with damon.allow, or somebody's monitor of these processes";
    if running.is_empty() {
        let why = if modules.is_empty() { who } else { format!("{who}, of unknown checks") };
        return unavailable(id, [&why, "which memory is used", fix]);
    }
    if running.iter().all(|kdamond| kdamond.operations.as_deref() == Some("paddr")) {
        let loses = "whose memory is used: physical memory is watched, whoever uses it";
        let told = short(id, State::Degraded, Class::Sampled, [&who, loses, fix]);
        return Capability { mechanism: Some(mechanism.to_owned()), ..told };
    }
    Capability { reason: Some(who), ..available(id, Some(mechanism), Class::Sampled) }
}

fn frames(probes: &Probes) -> Capability {
    if probes.frames {
        return available("frames.pfn", Some("pagemap"), Class::Exact);
    }
    unavailable(
        "frames.pfn",
        [
            "pagemap shows no frame numbers",
            "zero pages told from others where PAGEMAP_SCAN is missing, and pages under migration told from swapped ones",
            "run as root, or grant CAP_SYS_ADMIN",
        ],
    )
}

fn nodes(nodes: Option<u32>) -> Capability {
    let id = "numa.nodes";
    match nodes {
        Some(1) => Capability {
            reason: Some("with one node nothing can be remote".to_owned()),
            ..available(id, Some("1 node"), Class::Exact)
        },
        Some(count) => available(id, Some(&format!("{count} nodes")), Class::Exact),
        None => unavailable(
            id,
            [
                "/sys/devices/system/node/has_memory cannot be read",
                "on which node memory lies",
                "mount /sys into the container",
            ],
        ),
    }
}

fn pids(initial: Option<bool>) -> Capability {
    let id = "pid.namespace";
    let loses =
        "processes: the kernel's events name pids of the host, and /proc here shows others or none";
    let fix = "run in the host's pid namespace (hostPID: true, --pid=host)";
    match initial {
        Some(true) => available(id, Some("initial"), Class::Exact),
        Some(false) => unavailable(id, ["memprov runs in another pid namespace", loses, fix]),
        None => {
            let why = "the pid namespace cannot be told: /proc/self/ns/pid is unreadable";
            short(id, State::Degraded, Class::None, [why, loses, fix])
        }
    }
}

fn btf(probes: &Probes) -> Capability {
    if probes.btf {
        return available("btf", Some("/sys/kernel/btf/vmlinux"), Class::None);
    }
    unavailable(
        "btf",
        [
            "/sys/kernel/btf/vmlinux is not there",
            "all kernel hooks",
            "a kernel built with CONFIG_DEBUG_INFO_BTF=y, with /sys mounted",
        ],
    )
}

fn cgroup(cgroup: Cgroup) -> Capability {
    let id = "cgroup.version";
    match cgroup {
        Cgroup::V2 => available(id, Some("2"), Class::Exact),
        Cgroup::Hybrid => available(id, Some("2 beside 1"), Class::Exact),
        Cgroup::V1 => available(id, Some("1"), Class::Exact),
        Cgroup::Absent => unavailable(
            id,
            [
                "no cgroup file system is mounted at /sys/fs/cgroup",
                "which container a process belongs to, where its path does not tell",
                "mount /sys/fs/cgroup into the container",
            ],
        ),
    }
}

/// Capabilities of this process.
fn held(probes: &Probes) -> Vec<Capability> {
    let known = [
        (BPF, "cap.bpf", "CAP_BPF", "all kernel hooks"),
        (
            PERFMON,
            "cap.perfmon",
            "CAP_PERFMON",
            "all kernel hooks, side-band, and maps of other users' processes",
        ),
        (
            SYS_PTRACE,
            "cap.sys_ptrace",
            "CAP_SYS_PTRACE",
            "pages and files of other users' processes",
        ),
        (
            DAC_READ_SEARCH,
            "cap.dac_read_search",
            "CAP_DAC_READ_SEARCH",
            "pagemap of other users' processes",
        ),
        (SYS_ADMIN, "cap.sys_admin", "CAP_SYS_ADMIN", "what frames.pfn serves, and nothing else"),
        (
            CHECKPOINT_RESTORE,
            "cap.checkpoint_restore",
            "CAP_CHECKPOINT_RESTORE",
            "programs and libraries that were deleted or replaced",
        ),
    ];
    known
        .into_iter()
        .map(|(number, id, name, loses)| {
            if holds(probes, number) {
                return available(id, Some("effective"), Class::None);
            }
            let why = match probes.held {
                Some(_) => "not among the effective capabilities of this process",
                None => "/proc/self/status cannot be read",
            };
            unavailable(id, [why, loses, &format!("run as root, or grant {name}")])
        })
        .collect()
}
