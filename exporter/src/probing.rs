//! From what the adapters found by trying to the support matrix.

use std::path::Path;

use memprov_bpf::HookStatus;
use memprov_ledger::evidence::EvidenceClass;
use memprov_proc::{RssAccuracy, Scanner};

use crate::config::Access;
use crate::logging::chain;
use crate::sources::accesses::{StartError, Started};
use crate::support::{
    Class, FAULTS, HookProbe, HookState, Matrix, PMU, PagesProbe, SIDEBAND, State,
};
use crate::trace::Support;

/// What came of the hooks.
#[must_use]
pub fn hooks(statuses: &[HookStatus]) -> Vec<HookProbe> {
    let probe = |status: &HookStatus| HookProbe {
        id: status.capability.id().to_owned(),
        state: match status.state {
            memprov_bpf::HookState::Attached => HookState::Attached,
            memprov_bpf::HookState::Refused => HookState::Refused,
            memprov_bpf::HookState::Unsupported => HookState::Unsupported,
        },
        mechanism: status.mechanism.id().to_owned(),
        reason: status.reason.clone(),
    };
    statuses.iter().map(probe).collect()
}

/// What came of hooks that were not tried one by one: none loads, for one reason.
#[must_use]
pub fn without_hooks(state: HookState, reason: &str) -> [HookProbe; 3] {
    rows("bpf", state, reason)
}

/// What came of side-band, which serves several kinds of hook or none.
#[must_use]
pub fn sideband<E: std::error::Error>(tried: &Result<(), E>) -> [HookProbe; 3] {
    match tried {
        Ok(()) => rows(SIDEBAND, HookState::Attached, ""),
        Err(error) => rows(SIDEBAND, HookState::Refused, &chain(error)),
    }
}

fn rows(mechanism: &str, state: HookState, reason: &str) -> [HookProbe; 3] {
    ["mapping", "compat", "process"].map(|id| HookProbe {
        id: id.to_owned(),
        state,
        mechanism: mechanism.to_owned(),
        reason: reason.to_owned(),
    })
}

/// What came of listening to DAMON: what refused it, if anything.
#[must_use]
pub fn regions<E: std::error::Error>(refused: Option<&E>) -> HookProbe {
    let (state, reason) = match refused {
        None => (HookState::Attached, String::new()),
        Some(error) => (HookState::Refused, chain(error)),
    };
    let (id, mechanism) = ("regions".to_owned(), "damon_aggregated".to_owned());
    HookProbe { id, state, mechanism, reason }
}

/// What is sampled by the PMU, and whose faults are.
#[must_use]
pub fn sampled(access: &Access, tried: &Result<Started, StartError>) -> Vec<HookProbe> {
    let of = |id: &str, state, mechanism: &str, reason: String| HookProbe {
        id: id.to_owned(),
        state,
        mechanism: mechanism.to_owned(),
        reason,
    };
    let refused = |error: &StartError| (HookState::Refused, String::new(), chain(error));
    let mut rows = unsampled(access);
    if access.pmu {
        let (state, events, reason) = match tried {
            Ok(Started { pmu: Some(Ok(events)), .. }) => {
                (HookState::Attached, events.join(", "), String::new())
            }
            Ok(Started { pmu: Some(Err(error)), .. }) | Err(error) => refused(error),
            Ok(Started { pmu: None, .. }) => return rows,
        };
        rows.push(of(PMU, state, &events, reason));
    }
    if !access.faults.0.is_empty() {
        let (state, reason) = match tried {
            Ok(_) => (HookState::Attached, String::new()),
            Err(error) => (HookState::Refused, chain(error)),
        };
        rows.push(of(FAULTS, state, EVENTS, reason));
    }
    rows
}

/// What is not sampled because nobody asks for it.
#[must_use]
pub fn unsampled(access: &Access) -> Vec<HookProbe> {
    let off = |id: &str, reason: &str| HookProbe {
        id: id.to_owned(),
        state: HookState::Unsupported,
        mechanism: String::new(),
        reason: reason.to_owned(),
    };
    let pmu = (!access.pmu).then(|| off(PMU, "access.pmu is off"));
    let faults = access.faults.0.is_empty().then(|| off(FAULTS, "access.faults names nobody"));
    pmu.into_iter().chain(faults).collect()
}

/// What came of a trial to be told a page fault.
#[must_use]
pub fn faults<E: std::error::Error>(tried: &Result<(), E>) -> HookProbe {
    let (state, reason) = match tried {
        Ok(()) => (HookState::Attached, String::new()),
        Err(error) => (HookState::Refused, chain(error)),
    };
    let (id, mechanism) = (FAULTS.to_owned(), EVENTS.to_owned());
    HookProbe { id, state, mechanism, reason }
}

/// The events that page faults are told by.
const EVENTS: &str = "minor-faults, major-faults";

/// How pages can be read below `root`.
#[must_use]
pub fn pages(root: &Path, scanner: &Scanner) -> PagesProbe {
    PagesProbe {
        pagemap: std::fs::File::open(root.join("proc/self/pagemap")).is_ok(),
        scan: scanner.can_scan(),
        exact_rss: Some(scanner.accuracy() == RssAccuracy::Exact),
    }
}

/// The matrix as a trace keeps it.
#[must_use]
pub fn support(matrix: &Matrix) -> Vec<Support> {
    let row = |c: &crate::support::Capability| Support {
        id: c.id.clone(),
        state: match c.state {
            State::Available => "available",
            State::Degraded => "degraded",
            State::Unavailable => "unavailable",
        }
        .to_owned(),
        mechanism: c.mechanism.clone(),
        class: match c.class {
            Class::Exact => Some(EvidenceClass::Exact),
            Class::Inferred => Some(EvidenceClass::Inferred),
            Class::Sampled => Some(EvidenceClass::Sampled),
            Class::None => None,
        },
    };
    matrix.capabilities.iter().map(row).collect()
}
