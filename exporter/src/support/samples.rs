//! The rules of what perf samples.

use memprov_perfmem::Verdict;

use super::rules::{available, short, unavailable};
use super::{Capability, Class, FAULTS, HookProbe, HookState, PMU, Probes, State};

fn tried<'a>(probes: &'a Probes, id: &str) -> Option<&'a HookProbe> {
    probes.hooks.iter().find(|hook| hook.id == id)
}

/// Memory accesses by the PMU. An event that opens is there; whether it is sampled is asked for.
pub(super) fn pmu(probes: &Probes) -> Capability {
    let id = "pmu.mem";
    let loses = "access latency and which NUMA node served it; residency and first touch remain";
    let verdict = &probes.pmu;
    let event = match verdict {
        Verdict::Available(event) if event.is_read() => event,
        verdict => {
            let (reason, fix) = lacking(verdict);
            return Capability {
                mechanism: verdict.event().map(ToString::to_string),
                ..unavailable(id, [&reason, loses, fix])
            };
        }
    };
    let hook = tried(probes, PMU);
    let mechanism = Some(event.to_string());
    match hook.map(|hook| (hook.state, hook)) {
        Some((HookState::Attached, hook)) => Capability {
            reason: Some("no live PMU has confirmed yet what is told of it".to_owned()),
            ..available(id, Some(&hook.mechanism), Class::Sampled)
        },
        Some((HookState::Refused, hook)) => {
            let fix = "see the reason; `memprov selftest pmu` tries it alone";
            Capability { mechanism, ..unavailable(id, [&hook.reason, loses, fix]) }
        }
        Some((HookState::Unsupported, _)) | None => {
            let why = format!("{event} opens, and access.pmu is off");
            let texts = [why.as_str(), loses, "access.pmu = true"];
            Capability { mechanism, ..short(id, State::Degraded, Class::Sampled, texts) }
        }
    }
}

/// Why there is no PMU, and what helps.
fn lacking(verdict: &Verdict) -> (String, &'static str) {
    let fix = match verdict {
        Verdict::Available(_) => "none in this version; residency and first touch do not need it",
        Verdict::Untried(_) => "try it on the host itself: `memprov check` without another --root",
        Verdict::Absent | Verdict::NotSupported(_) => {
            "bare metal, or a virtual machine with a virtual PMU that samples (PEBS, IBS or SPE)"
        }
        Verdict::Paranoid { .. } => "run as root, or grant CAP_PERFMON",
        Verdict::Locked(_) => {
            "allow perf_event_open: boot without lockdown=confidentiality, or change the seccomp profile"
        }
        Verdict::Busy(_) => {
            "end the other profiler, or free the counter that the NMI watchdog holds"
        }
        Verdict::Ungrouped(_) | Verdict::Failed { .. } => {
            "see the error; report it if the host has such a PMU"
        }
    };
    let reason = match verdict {
        Verdict::Available(event) => {
            format!("{event} opens, and its packets are read in recordings only")
        }
        other => other.to_string(),
    };
    (reason, fix)
}

/// Page faults with the frames that they got.
pub(super) fn faults(probes: &Probes) -> Capability {
    let id = "faults.frames";
    let loses = "bytes populated by owner and node, fault by fault; scans and first touch remain";
    match tried(probes, FAULTS).map(|hook| (hook.state, hook)) {
        Some((HookState::Attached, hook)) => available(id, Some(&hook.mechanism), Class::Exact),
        Some((HookState::Refused, hook)) => {
            let fix = "run as root, or grant CAP_PERFMON";
            unavailable(id, [&hook.reason, loses, fix])
        }
        Some((HookState::Unsupported, hook)) => {
            let fix = "access.faults = \"comm=NAME\" or another term";
            short(id, State::Degraded, Class::Exact, [&hook.reason, loses, fix])
        }
        None => {
            let fix = "try it on the host itself: `memprov check` without another --root";
            unavailable(id, ["no mechanism was tried", loses, fix])
        }
    }
}
