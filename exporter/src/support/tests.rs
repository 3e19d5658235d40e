use memprov_damon::{Kdamond, Presence};
use memprov_perfmem::{MemEvent, Verdict};

use super::{
    Cgroup, Class, HookProbe, HookState, Matrix, OwnMonitor, PagesProbe, Probes, SIDEBAND, State,
};

fn hook(id: &str, mechanism: &str, state: HookState, reason: &str) -> HookProbe {
    HookProbe {
        id: id.to_owned(),
        state,
        mechanism: mechanism.to_owned(),
        reason: reason.to_owned(),
    }
}

/// A host on which everything works.
fn full() -> Probes {
    let kinds = ["mapping", "compat", "process", "first_touch", "faults"];
    Probes {
        kernel: "6.18.0".to_owned(),
        hooks: kinds.map(|id| hook(id, "fentry", HookState::Attached, "")).to_vec(),
        held: Some(u64::MAX),
        btf: true,
        pages: PagesProbe { pagemap: true, scan: true, exact_rss: Some(true) },
        frames: true,
        nodes: Some(2),
        initial_pids: Some(true),
        cgroup: Cgroup::V2,
        pmu: Verdict::Absent,
        damon: Presence::Absent,
        damon_own: None,
    }
}

/// A host on which nothing works.
fn bare() -> Probes {
    Probes {
        hooks: Vec::new(),
        held: None,
        btf: false,
        pages: PagesProbe::default(),
        frames: false,
        nodes: None,
        initial_pids: Some(false),
        cgroup: Cgroup::Absent,
        ..full()
    }
}

fn state(probes: &Probes, id: &str) -> State {
    Matrix::of(probes).get(id).unwrap().state
}

#[test]
fn every_capability_is_listed_once_on_every_host() {
    let ids = |probes: &Probes| -> Vec<String> {
        Matrix::of(probes).capabilities.into_iter().map(|capability| capability.id).collect()
    };
    let mut unique = ids(&full());
    assert_eq!(unique, ids(&bare()));
    assert_eq!(unique.len(), 24);
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), 24);
}

#[test]
fn what_is_not_available_says_why_what_it_costs_and_what_helps() {
    for probes in [full(), bare()] {
        for capability in Matrix::of(&probes).capabilities {
            let told = capability.reason.is_some() && capability.loses.is_some();
            let told = told && capability.fix.as_deref().is_some_and(|fix| !fix.is_empty());
            assert!(told || capability.state == State::Available, "{capability:?}");
            assert!(
                capability.class != Class::None
                    || capability.loses.is_some()
                    || capability.id == "btf"
                    || capability.id.starts_with("cap."),
                "{capability:?}"
            );
        }
    }
}

#[test]
fn a_capable_host_lacks_only_what_this_version_does_not_read() {
    let lacking: Vec<String> = Matrix::of(&full())
        .capabilities
        .into_iter()
        .filter(|capability| capability.state != State::Available)
        .map(|capability| capability.id)
        .collect();
    assert_eq!(lacking, ["pmu.mem", "damon"]);
}

#[test]
fn a_hook_is_served_by_what_attached_and_remembers_what_did_not() {
    let mut probes = full();
    probes.hooks = vec![
        hook("mapping", "fentry", HookState::Refused, "EPERM at load"),
        hook("mapping", "tp_btf", HookState::Attached, ""),
        hook("mapping", "tp", HookState::Attached, ""),
        hook("compat", "tp", HookState::Unsupported, "no such tracepoints"),
    ];
    let matrix = Matrix::of(&probes);
    let mapping = matrix.get("mapping.lifecycle").unwrap();
    assert_eq!(mapping.state, State::Available);
    assert_eq!(mapping.mechanism.as_deref(), Some("tp_btf, tp"));
    assert_eq!(mapping.reason.as_deref(), Some("fentry: not permitted by this kernel"));
    let stacks = matrix.get("mapping.stacks").unwrap();
    assert_eq!((stacks.state, stacks.reason.as_deref()), (State::Available, None));
    let compat = matrix.get("mapping.compat").unwrap();
    assert_eq!(compat.state, State::Unavailable);
    assert_eq!(compat.reason.as_deref(), Some("tp: no such tracepoints"));
    assert_eq!(
        matrix.get("first_touch").unwrap().reason.as_deref(),
        Some("no mechanism was tried")
    );
}

/// Side-band as it is probed, by outcome.
fn sideband(state: HookState, reason: &str) -> Vec<HookProbe> {
    ["mapping", "compat", "process"].map(|id| hook(id, SIDEBAND, state, reason)).to_vec()
}

#[test]
fn where_no_hook_loads_side_band_serves_as_inferred_and_says_what_is_lost() {
    let mut probes = full();
    probes.hooks = vec![hook("mapping", "tp_btf", HookState::Refused, "EPERM at load")];
    probes.hooks.extend(sideband(HookState::Attached, ""));
    let matrix = Matrix::of(&probes);
    for id in ["mapping.lifecycle", "mapping.compat", "process.fork_exec_exit"] {
        let row = matrix.get(id).unwrap();
        assert_eq!((row.state, row.class), (State::Degraded, Class::Inferred), "{row:?}");
        assert_eq!(row.mechanism.as_deref(), Some("perf-sideband"));
        let words = [&row.reason, &row.loses, &row.fix];
        assert!(words.iter().all(|text| text.as_ref().is_some_and(|t| !t.is_empty())), "{row:?}");
    }
    let mapping = matrix.get("mapping.lifecycle").unwrap();
    assert!(mapping.reason.as_ref().unwrap().ends_with("tp_btf: EPERM at load"), "{mapping:?}");
    assert!(mapping.loses.as_ref().unwrap().contains("munmap"));
    for id in ["mapping.stacks", "first_touch"] {
        assert_eq!(matrix.get(id).unwrap().state, State::Unavailable, "{id}");
    }
}

#[test]
fn side_band_is_not_named_where_hooks_serve_and_its_refusal_is_where_nothing_does() {
    let mut probes = full();
    probes.hooks.extend(sideband(HookState::Attached, ""));
    let mechanism = |probes: &Probes| {
        Matrix::of(probes).get("mapping.lifecycle").and_then(|row| row.mechanism.clone())
    };
    assert_eq!(mechanism(&probes).as_deref(), Some("fentry"));
    probes.hooks = sideband(HookState::Refused, "EACCES");
    let matrix = Matrix::of(&probes);
    let row = matrix.get("mapping.lifecycle").unwrap();
    assert_eq!(row.state, State::Unavailable);
    assert!(row.reason.as_ref().unwrap().contains("perf-sideband: EACCES"), "{row:?}");
}

#[test]
fn a_log_is_cut_to_a_line_and_said_once() {
    let log = format!("load BPF programs (fentry):\n{}\nR1 invalid mem access\n", "x ".repeat(999));
    let mut probes = full();
    probes.hooks = vec![
        hook("mapping", "fentry", HookState::Unsupported, &log),
        hook("mapping", "tp", HookState::Unsupported, "no tracefs"),
    ];
    let matrix = Matrix::of(&probes);
    let reason = matrix.get("mapping.lifecycle").unwrap().reason.clone().unwrap();
    assert!(reason.chars().count() <= 300 && !reason.contains('\n'), "{reason}");
    assert!(reason.starts_with("fentry: load BPF programs (fentry): x "), "{reason}");
    assert!(reason.contains("R1 invalid mem access; tp: no tracefs"), "{reason}");
    for id in ["mapping.stacks", "mapping.compat", "process.fork_exec_exit", "first_touch"] {
        let row = matrix.get(id).unwrap();
        assert_eq!(row.state, State::Unavailable);
        let reason = row.reason.as_deref().unwrap();
        assert!(reason.contains("mapping.lifecycle") && !reason.contains('x'), "{reason}");
    }
}

#[test]
fn capabilities_are_asked_of_those_only_who_lack_them() {
    let reason = |held| {
        let mut probes = full();
        probes.held = held;
        probes.hooks = vec![hook("mapping", "fentry", HookState::Refused, "load: EPERM")];
        Matrix::of(&probes).get("mapping.lifecycle").unwrap().reason.clone().unwrap()
    };
    assert_eq!(reason(Some(0)), "needs CAP_BPF and CAP_PERFMON; fentry: load: EPERM");
    assert_eq!(reason(None), "needs CAP_BPF and CAP_PERFMON; fentry: load: EPERM");
    let held = Some(1 << 38 | 1 << 39);
    assert_eq!(reason(held), "the kernel's policy refuses it; fentry: load: EPERM");
}

#[test]
fn the_fix_of_a_hook_names_the_first_thing_that_is_missing() {
    let refused = |held, btf| {
        let mut probes = full();
        probes.held = held;
        probes.btf = btf;
        probes.hooks = vec![hook("mapping", "tp_btf", HookState::Refused, "EPERM")];
        Matrix::of(&probes).get("mapping.lifecycle").unwrap().fix.clone().unwrap()
    };
    assert!(refused(Some(0), false).contains("CAP_BPF and CAP_PERFMON"));
    assert!(refused(Some(1 << 39), true).contains("CAP_PERFMON"));
    assert!(refused(Some(1 << 38 | 1 << 39), false).contains("CONFIG_DEBUG_INFO_BTF"));
    assert!(refused(Some(1 << 21), true).contains("lockdown"));
}

#[test]
fn the_four_ways_to_have_no_pmu_have_four_reasons_and_fixes() {
    let event = || MemEvent { device: "cpu".to_owned(), event: Some("mem-loads") };
    let verdicts = [
        (Verdict::Absent, "ENOENT", "bare metal"),
        (Verdict::NotSupported(event()), "EOPNOTSUPP", "virtual PMU"),
        (Verdict::Paranoid { event: event(), level: Some(2) }, "paranoid is 2", "CAP_PERFMON"),
        (Verdict::Locked(event()), "EPERM", "lockdown"),
    ];
    for (verdict, reason, fix) in verdicts {
        let matrix = Matrix::of(&Probes { pmu: verdict, ..full() });
        let pmu = matrix.get("pmu.mem").unwrap();
        assert_eq!((pmu.state, pmu.class), (State::Unavailable, Class::None));
        assert!(pmu.reason.as_deref().unwrap().contains(reason), "{pmu:?}");
        assert!(pmu.fix.as_deref().unwrap().contains(fix), "{pmu:?}");
    }
}

#[test]
fn a_pmu_is_there_once_it_is_sampled_and_degraded_while_nobody_asks_for_it() {
    let judged = |device: &str, tried: Option<HookProbe>| {
        let event = MemEvent { device: device.to_owned(), event: None };
        let mut probes = Probes { pmu: Verdict::Available(event), ..full() };
        probes.hooks.extend(tried);
        let pmu = Matrix::of(&probes).get("pmu.mem").unwrap().clone();
        (pmu.state, pmu.class, pmu.reason.unwrap())
    };
    let off = hook("pmu", "", HookState::Unsupported, "access.pmu is off");
    let (state, class, reason) = judged("ibs_op", Some(off));
    assert_eq!((state, class), (State::Degraded, Class::Sampled));
    assert!(reason.contains("access.pmu is off"), "{reason}");
    let on = hook("pmu", "ibs_op//", HookState::Attached, "");
    let (state, class, reason) = judged("ibs_op", Some(on));
    assert_eq!((state, class), (State::Available, Class::Sampled));
    assert!(reason.contains("no live PMU"), "{reason}");
    let (state, _, reason) = judged("ibs_op", Some(hook("pmu", "", HookState::Refused, "EBUSY")));
    assert_eq!((state, reason.as_str()), (State::Unavailable, "EBUSY"));
    let (state, _, reason) = judged("arm_spe_0", None);
    assert!(state == State::Unavailable && reason.contains("packets"), "{reason}");
}

#[test]
fn faults_are_told_of_whom_somebody_names_or_it_is_said_what_it_takes() {
    let judged = |tried: Option<HookProbe>| {
        let mut probes = full();
        probes.hooks.retain(|hook| hook.id != "faults");
        probes.hooks.extend(tried);
        Matrix::of(&probes).get("faults.frames").unwrap().clone()
    };
    let off =
        judged(Some(hook("faults", "", HookState::Unsupported, "access.faults names nobody")));
    assert_eq!((off.state, off.class), (State::Degraded, Class::Exact));
    assert!(off.fix.unwrap().contains("access.faults"));
    let refused = judged(Some(hook("faults", "", HookState::Refused, "EACCES")));
    assert_eq!((refused.state, refused.reason.as_deref()), (State::Unavailable, Some("EACCES")));
    assert_eq!(judged(None).state, State::Unavailable);
}

#[test]
fn scanning_degrades_with_the_kernel_and_with_rights() {
    let mut probes = full();
    probes.pages.scan = false;
    let judged = |probes: &Probes, id: &str| {
        let matrix = Matrix::of(probes);
        let found = matrix.get(id).unwrap();
        (found.state, found.class)
    };
    assert_eq!(judged(&probes, "residency.scan"), (State::Degraded, Class::Exact));
    probes.frames = false;
    assert_eq!(judged(&probes, "residency.scan"), (State::Degraded, Class::Inferred));

    probes = full();
    probes.held = Some(1 << 38 | 1 << 39);
    assert_eq!(state(&probes, "residency.scan"), State::Degraded);
    probes.held = Some(1 << 38 | 1 << 39 | 1 << 2);
    assert_eq!(state(&probes, "residency.scan"), State::Available);
    assert_eq!(state(&probes, "cap.sys_admin"), State::Unavailable);
    assert_eq!(state(&probes, "names"), State::Degraded);

    probes = full();
    probes.pages.exact_rss = Some(false);
    assert_eq!(judged(&probes, "residency.exact_rss"), (State::Degraded, Class::Exact));
}

fn kdamond(operations: &str) -> Kdamond {
    Kdamond {
        index: 0,
        running: Some(true),
        pid: Some(71),
        operations: Some(operations.to_owned()),
        available: Vec::new(),
    }
}

#[test]
fn regions_are_told_of_whoever_runs_a_monitor_and_nothing_without_a_listener() {
    let judged = |kdamonds: &[Kdamond], modules: &[&str], listener: Option<HookState>| {
        let modules = modules.iter().map(|module| (*module).to_owned()).collect();
        let damon = Presence::Present { kdamonds: kdamonds.to_vec(), modules };
        let mut probes = Probes { damon, ..full() };
        let listen = |state| hook("regions", "damon_aggregated", state, "no BPF");
        probes.hooks.extend(listener.map(listen));
        Matrix::of(&probes).get("damon").unwrap().clone()
    };
    let (attached, refused) = (Some(HookState::Attached), Some(HookState::Refused));
    let processes = judged(&[kdamond("vaddr")], &[], attached);
    assert_eq!((processes.state, processes.class), (State::Available, Class::Sampled));
    let reason = processes.reason.unwrap();
    assert_eq!(reason, "in use: kdamond 0 (pid 71, vaddr)");
    let memory = judged(&[kdamond("paddr")], &["damon_stat"], attached);
    assert_eq!((memory.state, memory.class), (State::Degraded, Class::Sampled));
    assert_eq!(memory.mechanism.as_deref(), Some("damon_aggregated"));
    for (kdamonds, modules, listener, why) in [
        (vec![kdamond("vaddr")], vec![], refused, "in use: kdamond 0 (pid 71, vaddr); no BPF"),
        (vec![kdamond("vaddr")], vec![], None, "in use: kdamond 0 (pid 71, vaddr); nobody listens"),
        (vec![], vec!["damon_stat"], attached, "in use: damon_stat, of unknown checks"),
        (vec![], vec![], attached, "nobody uses it"),
    ] {
        let lacking = judged(&kdamonds, &modules, listener);
        assert_eq!((lacking.state, lacking.reason.as_deref()), (State::Unavailable, Some(why)));
    }
}

#[test]
fn a_monitor_of_ours_is_heard_or_asked_where_its_files_can_be_written() {
    let judged = |kdamonds: &[Kdamond], modules: &[&str], own: OwnMonitor, listener| {
        let modules = modules.iter().map(|module| (*module).to_owned()).collect();
        let damon = Presence::Present { kdamonds: kdamonds.to_vec(), modules };
        let mut probes = Probes { damon, damon_own: Some(own), ..full() };
        probes.hooks.push(hook("regions", "damon_aggregated", listener, "no BPF"));
        Matrix::of(&probes).get("damon").unwrap().clone()
    };
    let heard = judged(&[], &[], OwnMonitor::Possible, HookState::Attached);
    let told = (heard.state, heard.mechanism.as_deref());
    assert_eq!(told, (State::Available, Some("damon_aggregated")));
    let ours = kdamond("fvaddr");
    for (kdamonds, own) in [(vec![], OwnMonitor::Possible), (vec![ours], OwnMonitor::There)] {
        let asked = judged(&kdamonds, &[], own, HookState::Refused);
        let told = (asked.state, asked.mechanism.as_deref());
        assert_eq!(told, (State::Available, Some("tried_regions")));
        assert!(asked.reason.unwrap().ends_with("no BPF"));
    }
    for listener in [HookState::Attached, HookState::Refused] {
        let why = OwnMonitor::Refused("Read-only file system (os error 30)".to_owned());
        let refused = judged(&[], &[], why, listener);
        assert_eq!(refused.state, State::Unavailable);
        assert!(refused.reason.unwrap().contains("Read-only file system"));
        assert!(refused.fix.unwrap().contains("active-damon.conf"));
    }
    // What is in use is not ours to have, and without BPF nobody hears of it.
    let taken = judged(&[], &["damon_stat"], OwnMonitor::Possible, HookState::Refused);
    assert_eq!(taken.reason.as_deref(), Some("in use: damon_stat; no BPF"));
}

#[test]
fn another_pid_namespace_is_said_loudly() {
    let matrix = Matrix::of(&bare());
    let pids = matrix.get("pid.namespace").unwrap();
    assert_eq!(pids.state, State::Unavailable);
    assert!(pids.fix.as_deref().unwrap().contains("hostPID"));
}

#[test]
fn the_document_has_the_documented_fields() {
    let json = serde_json::to_value(Matrix::of(&bare())).unwrap();
    assert_eq!(json["schema"], "memprov.check/1");
    for capability in json["capabilities"].as_array().unwrap() {
        let keys: Vec<&String> = capability.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 7);
        for key in ["id", "state", "mechanism", "class", "reason", "loses", "fix"] {
            assert!(capability.get(key).is_some(), "{key}");
        }
    }
}

#[test]
fn every_capability_of_a_code_exists() {
    let matrix = Matrix::of(&full());
    for id in super::code::CODED {
        assert!(matrix.get(id).is_some(), "{id}");
    }
}
