//! From what the adapters found by trying to the support matrix.

use std::path::Path;

use memprov_bpf::HookStatus;
use memprov_ledger::evidence::EvidenceClass;
use memprov_proc::{RssAccuracy, Scanner};

use crate::support::{Class, HookProbe, HookState, Matrix, PagesProbe, State};
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
