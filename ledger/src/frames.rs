//! Regions of physical memory laid under the pages that stayed in their frames meanwhile.
//!
//! A monitor of physical memory doesn't say who used what it found. Where a process kept a page in one frame from before the
//! first of some aggregations until after the last, what they found of that frame they found of that page, whoever used it.
//! A region holds frames of others, too: what those can have answered for is proven of nobody, and what nobody whose frames
//! are known has stays unknown.

use crate::activity::{Heat, Segment};
use crate::evidence::{Frames, Run};
use crate::identity::Extent;
use crate::ledger::Ledger;

/// What a monitor of physical memory found while frames stayed, and all frames that are known.
#[derive(Clone, Debug)]
pub struct Laid<'a> {
    /// What it found.
    pub heat: &'a Heat,
    /// Physical memory that processes kept, in order, each frame once.
    owned: Vec<Extent>,
    /// Bytes that moved or went meanwhile.
    pub moved: u64,
}

impl Laid<'_> {
    /// Segments in order of addresses, each with how much of it processes kept.
    pub fn segments(&self) -> impl Iterator<Item = (Segment, u64)> + '_ {
        self.heat.segments().into_iter().map(|segment| {
            let from = self.owned.partition_point(|owned| owned.end <= segment.extent.start);
            let owned = self.owned.iter().skip(from);
            let owned = owned.take_while(|owned| owned.start < segment.extent.end);
            let bytes = owned.map(|owned| owned.intersect(segment.extent).len()).sum();
            (segment, bytes)
        })
    }
}

impl Ledger {
    /// Lays what a monitor found under pages of a process. Of too few aggregations, of a monitor that nobody heard of, and
    /// of a process that is younger it says nothing.
    pub(crate) fn frames(&mut self, seen: &Frames) {
        if seen.fault().is_some() {
            return;
        }
        let Some(heat) = self.physical.get(&seen.monitor).and_then(|heat| heat.within(seen)) else {
            return;
        };
        let space = self.by_tgid.get(&seen.tgid).and_then(|id| self.spaces.get_mut(id));
        if let Some(space) = space.filter(|space| space.born <= seen.when.begin) {
            space.heat.lay(heat);
        }
    }

    /// The newest findings of a monitor of physical memory that were laid under pages, of all processes for which the same
    /// time was chosen.
    #[must_use]
    pub fn laid(&self, monitor: u32) -> Option<Laid<'_>> {
        let known = || {
            let heats = self.spaces.values().filter_map(|space| space.heat.laid());
            let laid = heats.filter_map(|heat| Some((heat, heat.frames()?)));
            laid.filter(|(_, frames)| frames.monitor == monitor)
        };
        let (heat, newest) = known().max_by_key(|(_, frames)| frames.when.end)?;
        let (mut owned, mut moved) = (Vec::new(), 0u64);
        for (_, frames) in known().filter(|(_, frames)| frames.when == newest.when) {
            owned.extend(frames.runs.iter().map(|run| run.physical()));
            moved = moved.saturating_add(frames.moved);
        }
        owned.sort_unstable();
        owned.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Some(Laid { heat, owned, moved })
    }
}

/// Where in a space each segment of physical memory lies, each frame once: one that lies at several addresses counts at one
/// of them. So there are no more places than runs and segments, whatever runs share.
pub(crate) fn under(frames: &Frames, segments: &[Segment]) -> Vec<Vec<Extent>> {
    let mut places = vec![Vec::new(); segments.len()];
    let mut runs: Vec<Run> = frames.runs.to_vec();
    runs.sort_unstable_by_key(|run| (run.at, run.extent.start));
    let mut upto = 0;
    for run in runs {
        let physical = run.physical();
        let fresh = Extent { start: physical.start.max(upto), end: physical.end };
        upto = upto.max(physical.end);
        let from = segments.partition_point(|segment| segment.extent.end <= fresh.start);
        let inside = segments.iter().skip(from).zip(places.iter_mut().skip(from));
        for (segment, places) in inside.take_while(|(s, _)| s.extent.start < fresh.end) {
            let part = segment.extent.intersect(fresh);
            if !part.is_empty() {
                let start = run.extent.start.saturating_add(part.start - physical.start);
                places.push(Extent::new(start, part.len()));
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::under;
    use crate::activity::Segment;
    use crate::evidence::{Frames, Run};
    use crate::identity::Extent;

    #[test]
    fn however_many_runs_share_frames_there_are_no_more_places_than_runs_and_segments() {
        let (number, len) = (500u64, 1000u64);
        let run = |n| Run { extent: Extent::new(n * len, len), at: n };
        let frames = Frames { runs: (0..number).map(run).collect(), ..Frames::default() };
        let segment = |n| Segment { extent: Extent::new(n * 2, 2), hits: 0, checks: 1, region: 2 };
        let segments: Vec<Segment> = (0..number).map(segment).collect();
        let places = under(&frames, &segments).concat();
        assert!(places.len() as u64 <= 2 * number, "{}", places.len());
        assert_eq!(places.iter().map(|place| place.len()).sum::<u64>(), 1000, "and none is missed");
    }
}
