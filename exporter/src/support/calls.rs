//! The rules of what hooks serve, and perf side-band where they do not load.

use super::rules::{BPF, PERFMON, available, holds, short, unavailable};
use super::{Capability, Class, HookProbe, HookState, Probes, SIDEBAND, State};
use crate::table::text::elide;

const RIGHTS: &str = "run as root, or grant CAP_BPF and CAP_PERFMON \
                      (AmbientCapabilities= of the unit, or setcap cap_bpf,cap_perfmon+ep); \
                      CAP_PERFMON alone gives side-band";

/// Characters of a reason: what libbpf and the verifier log is cut to its ends.
const REASON: usize = 300;

/// A capability that hooks of one kind serve, or side-band in their place.
pub(super) fn hook(probes: &Probes, id: &str, kind: &str, class: Class, loses: &str) -> Capability {
    let tried: Vec<_> = probes.hooks.iter().filter(|hook| hook.id == kind).collect();
    let (mut attached, failed): (Vec<_>, Vec<_>) =
        tried.iter().copied().partition(|hook| hook.state == HookState::Attached);
    let fallback = attached.iter().any(|hook| hook.mechanism == SIDEBAND);
    attached.retain(|hook| hook.mechanism != SIDEBAND);
    if !attached.is_empty() {
        let served: Vec<&str> = attached.iter().map(|hook| hook.mechanism.as_str()).collect();
        let failed = failed.iter().filter(|hook| hook.mechanism != SIDEBAND);
        let without = failed.map(|hook| format!("{}: {}", hook.mechanism, refusal(hook)));
        let without: Vec<String> = without.collect();
        return Capability {
            reason: (!without.is_empty()).then(|| without.join("; ")),
            ..available(id, Some(&served.join(", ")), class)
        };
    }
    let permitted = holds(probes, BPF) && holds(probes, PERFMON);
    let refused = failed.iter().any(|hook| hook.state == HookState::Refused);
    let fix = if tried.is_empty() {
        "try it on the host itself: `memprov check` without another --root"
    } else if !permitted {
        RIGHTS
    } else if !probes.btf {
        "a kernel built with CONFIG_DEBUG_INFO_BTF=y"
    } else if refused {
        "allow BPF tracing programs on this host: a security module, lockdown or the hypervisor forbids them"
    } else {
        "a newer kernel, or one built with the tracepoints that are named here"
    };
    let mut why: Vec<String> = match (refused, permitted) {
        _ if tried.is_empty() => vec!["no mechanism was tried".to_owned()],
        (true, true) => vec!["the kernel's policy refuses it".to_owned()],
        (true, false) => vec!["needs CAP_BPF and CAP_PERFMON".to_owned()],
        (false, _) => Vec::new(),
    };
    let room = REASON.saturating_sub(why.iter().map(String::len).sum()) / failed.len().max(1);
    why.extend(failed.iter().map(|hook| {
        let words = hook.reason.split_whitespace().collect::<Vec<_>>().join(" ");
        elide(&format!("{}: {words}", hook.mechanism), room.saturating_sub(2))
    }));
    let why = why.join("; ");
    if fallback {
        let why =
            if why.is_empty() { "no BPF program sees these calls here".to_owned() } else { why };
        let texts = [why.as_str(), without_calls(kind), fix];
        let mechanism = Some(SIDEBAND.to_owned());
        return Capability { mechanism, ..short(id, State::Degraded, Class::Inferred, texts) };
    }
    unavailable(id, [&why, loses, fix])
}

/// What side-band does not tell.
fn without_calls(kind: &str) -> &'static str {
    match kind {
        "process" => {
            "which processes share an address space, and at once when one ends that was there before"
        }
        _ => {
            "who mapped memory; what munmap, mremap and failed calls did is found by the next scan"
        }
    }
}

/// Why a mechanism does not serve, where another one does.
fn refusal(hook: &HookProbe) -> &'static str {
    match hook.state {
        HookState::Refused => "not permitted by this kernel",
        HookState::Attached | HookState::Unsupported => "not available on this host",
    }
}

/// What has no probe of its own, or none where the hooks of calls do not load: they are loaded together.
pub(super) fn with(lifecycle: &Capability, id: &str, loses: &str) -> Capability {
    if lifecycle.state == State::Available {
        return available(id, lifecycle.mechanism.as_deref(), lifecycle.class);
    }
    unavailable(
        id,
        [
            "as of mapping.lifecycle, with which it is loaded",
            loses,
            "what makes that one available",
        ],
    )
}
