//! Frames: where in physical memory the pages of a process lay, and stayed.

use std::sync::Arc;

use crate::identity::{Extent, Tgid};
use crate::time::Span;

/// Pages that were in the same frames before and after what a monitor of physical memory found in between. Its class is
/// always `inferred`: that no page left and came back meanwhile is not proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Frames {
    /// From the end of the first reading to the begin of the second.
    pub when: Span,
    /// Whose pages.
    pub tgid: Tgid,
    /// The monitor whose findings they bracket: its thread.
    pub monitor: u32,
    /// In order of addresses, without overlap.
    pub runs: Arc<[Run]>,
    /// Bytes that the first reading found elsewhere than the second, or the second no more.
    pub moved: u64,
}

/// Pages that lie side by side both in addresses and in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Run {
    /// Their addresses.
    pub extent: Extent,
    /// The physical address of the first.
    #[cfg_attr(feature = "serde", serde(with = "crate::identity::hex"))]
    pub at: u64,
}

impl Run {
    /// Their physical addresses.
    #[must_use]
    pub fn physical(&self) -> Extent {
        Extent::new(self.at, self.extent.len())
    }
}

impl Frames {
    /// What is wrong with it, if anything.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        if self.runs.iter().any(|run| run.extent.is_empty()) {
            return Some("an empty run");
        }
        if !self.runs.is_sorted_by(|a, b| a.extent.end <= b.extent.start) {
            return Some("runs overlap");
        }
        let beyond = |run: &Run| run.at.checked_add(run.extent.len()).is_none();
        self.runs.iter().any(beyond).then_some("a frame beyond 64 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::{Frames, Run};
    use crate::identity::Extent;

    #[test]
    fn what_contradicts_itself_is_named() {
        let run = |start, len, at| Run { extent: Extent::new(start, len), at };
        let fault = |runs: &[Run]| Frames { runs: runs.into(), ..Frames::default() }.fault();
        // Frames come in any order, and one may lie at two addresses.
        assert_eq!(fault(&[run(0, 8, 80), run(8, 8, 0), run(24, 8, 0)]), None);
        assert_eq!(fault(&[run(8, 0, 80)]), Some("an empty run"));
        assert_eq!(fault(&[run(0, 9, 80), run(8, 8, 0)]), Some("runs overlap"));
        assert_eq!(fault(&[run(0, 8, u64::MAX - 6)]), Some("a frame beyond 64 bits"));
    }
}
