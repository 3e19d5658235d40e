//! The ledger: every address space, and what evidence does to it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::activity::Heat;
use crate::charge::Charge;
use crate::evidence::{Change, Evidence, Gap, Lifecycle, Residency, Stream, Total};
use crate::identity::{SpaceId, StackId, StartTicks, Tgid};
use crate::placement::Placement;
use crate::scan::{Differences, Scan, inherit};
use crate::space::Space;
use crate::time::{MonoTime, Span};
use crate::touch::{Sample, Touches};

/// Ended spaces kept for late observations at most.
const ENDED: usize = 4096;
/// Cgroups whose newest reading is kept at most; the one read longest ago goes first.
const CGROUPS: usize = 1024;

/// A space that no process lives in any more.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) space: Space,
    pub(crate) tgid: Tgid,
    pub(crate) died: Span,
}

/// All address spaces that are observed.
#[derive(Clone, Debug)]
pub struct Ledger {
    watching_since: MonoTime,
    /// The same on the clock of start times.
    watching_ticks: Option<StartTicks>,
    sample: Sample,
    next: u64,
    pub(crate) spaces: BTreeMap<SpaceId, Space>,
    pub(crate) by_tgid: HashMap<Tgid, SpaceId>,
    pub(crate) ended: VecDeque<Ended>,
    /// Processes that left a space, and when: a gap that is told later reaches back.
    left: VecDeque<(Tgid, SpaceId, MonoTime)>,
    /// When a space last ended, by families that live.
    departures: BTreeMap<SpaceId, MonoTime>,
    lost: BTreeMap<Stream, u64>,
    /// Streams with a gap that nobody counted.
    uncounted: BTreeSet<Stream>,
    differences: Differences,
    charges: BTreeMap<Arc<str>, Box<Charge>>,
    /// What monitors of physical memory found, by their threads.
    pub(crate) physical: BTreeMap<u32, Heat>,
}

impl Ledger {
    /// A ledger that sees events from `watching_since` on; mappings that are older predate it.
    #[must_use]
    pub fn new(watching_since: MonoTime, sample: Sample) -> Self {
        Self {
            watching_since,
            watching_ticks: None,
            sample,
            next: 0,
            spaces: BTreeMap::new(),
            by_tgid: HashMap::new(),
            ended: VecDeque::new(),
            left: VecDeque::new(),
            departures: BTreeMap::new(),
            lost: BTreeMap::new(),
            uncounted: BTreeSet::new(),
            differences: Differences::default(),
            charges: BTreeMap::new(),
            physical: BTreeMap::new(),
        }
    }

    /// The same ledger, which knows by its start that a process is younger than the watch although nobody told so.
    /// `ticks`: when the watch began, on the clock of start times.
    #[must_use]
    pub fn with_start(self, ticks: Option<StartTicks>) -> Self {
        Self { watching_ticks: ticks, ..self }
    }

    /// Takes in one piece of evidence. Evidence comes in order of its end; lifecycle before observation.
    pub fn apply(&mut self, evidence: &Evidence) {
        match evidence {
            Evidence::Lifecycle(event) => self.lifecycle(event),
            Evidence::Fault(fault) => {
                let sample = self.sample;
                self.space_of(fault.tgid).fault(fault, sample);
            }
            // It changes nothing; whose it was, `owner_of` answers.
            Evidence::Access(_) => {}
            Evidence::Activity(seen) => self.activity(seen),
            Evidence::Frames(seen) => self.frames(seen),
            Evidence::Placed(seen) => self.placed(seen),
            Evidence::Residency(seen) => self.residency(seen),
            Evidence::Total(total) => self.total(total),
            Evidence::Recall(known) => self.recall(known),
            Evidence::Charge(charge) => self.charge(charge),
            Evidence::Gap(gap) => self.gap(gap),
        }
    }

    /// Since when events are seen.
    #[must_use]
    pub fn watching_since(&self) -> MonoTime {
        self.watching_since
    }

    /// How first touch is sampled.
    #[must_use]
    pub fn sample(&self) -> Sample {
        self.sample
    }

    /// Live spaces, oldest first.
    pub fn spaces(&self) -> impl Iterator<Item = &Space> + '_ {
        self.spaces.values()
    }

    /// The space that a process lives in.
    #[must_use]
    pub fn space(&self, tgid: Tgid) -> Option<&Space> {
        self.spaces.get(self.by_tgid.get(&tgid)?)
    }

    /// Live spaces of a family (copies by fork since the last exec), oldest first.
    pub fn family(&self, family: SpaceId) -> impl Iterator<Item = &Space> + '_ {
        self.spaces.values().filter(move |s| s.family == family)
    }

    /// Whether what the scan of a space tells of common pages may no longer be so: something happened in another space of
    /// its family since, a call, a fault or an end, which its own totals do not tell. What the oldest one has is its own
    /// anyway.
    #[must_use]
    pub fn doubts(&self, space: &Space) -> bool {
        let oldest = self.family(space.family).next().is_some_and(|first| first.id == space.id);
        !oldest && self.disturbed(space)
    }

    /// Whether it is to be scanned again for that reason. Of three and more the oldest one's pages tell whose those of
    /// the others are.
    #[must_use]
    pub fn doubted(&self, space: &Space) -> bool {
        let several = || self.family(space.family).nth(2).is_some();
        self.doubts(space) || several() && self.disturbed(space)
    }

    fn disturbed(&self, space: &Space) -> bool {
        let Some(scan) = &space.scan else { return false };
        let others = self.family(space.family).filter(|other| other.id != space.id);
        let moved = others.map(|other| other.changed.max(other.stirred)).max();
        let left = self.departures.get(&space.family).copied();
        moved.max(left).is_some_and(|at| at >= scan.when.begin)
    }

    /// Whether a scan of `tgid` has to read which pages are mapped exclusively: a relative lives.
    #[must_use]
    pub fn has_relative(&self, tgid: Tgid) -> bool {
        self.space(tgid).is_some_and(|s| self.family(s.family).nth(1).is_some())
    }

    /// How much each stream lost so far: 0 where it lost nothing. A stream that once lost what nobody counted is not
    /// among them: its number is unknown.
    pub fn lost(&self) -> impl Iterator<Item = (Stream, u64)> + '_ {
        let counted = |stream: &Stream| !self.uncounted.contains(stream);
        let told = |stream| (stream, self.lost.get(&stream).copied().unwrap_or(0));
        Stream::ALL.into_iter().filter(counted).map(told)
    }

    /// How lists of mappings differed from the ledger so far.
    #[must_use]
    pub fn differences(&self) -> Differences {
        self.differences
    }

    /// The newest reading of what each cgroup is charged for, by path. Some of them may have gone.
    pub fn charges(&self) -> impl Iterator<Item = &Charge> + '_ {
        self.charges.values().map(AsRef::as_ref)
    }

    /// Every stack that an answer may name: all others can be forgotten, if no evidence will name them again.
    #[must_use]
    pub fn stacks(&self) -> HashSet<StackId> {
        let ended = self.ended.iter().map(|ended| &ended.space);
        self.spaces.values().chain(ended).flat_map(Space::stacks).collect()
    }

    /// The process `tgid` is gone, and no event said so.
    pub fn vanished(&mut self, tgid: Tgid, when: Span) {
        self.leave(tgid, when, None);
    }

    /// Forgets what ended before `t`: observations older than that come too late.
    pub fn forget_before(&mut self, t: MonoTime) {
        while self.ended.front().is_some_and(|e| e.died.end < t) || self.ended.len() > ENDED {
            self.ended.pop_front();
        }
        self.left.retain(|(_, _, when)| *when >= t);
        for space in self.spaces.values_mut() {
            space.forget_before(t);
        }
    }

    fn mint(&mut self) -> SpaceId {
        self.next += 1;
        SpaceId(self.next)
    }

    /// These ids are taken.
    pub(crate) fn minted(&mut self, ids: impl Iterator<Item = SpaceId>) {
        self.next = ids.fold(self.next, |next, id| next.max(id.0));
    }

    /// Lets the processes of a space live in it.
    pub(crate) fn house(&mut self, space: Space) {
        self.by_tgid.extend(space.tgids.iter().map(|tgid| (*tgid, space.id)));
        self.spaces.insert(space.id, space);
    }

    fn settle(&mut self, tgid: Tgid, space: Space) -> &mut Space {
        self.by_tgid.insert(tgid, space.id);
        self.spaces.entry(space.id).or_insert(space)
    }

    /// The space of a process; one that was there before the watch when nobody spoke of it yet.
    fn space_of(&mut self, tgid: Tgid) -> &mut Space {
        match self.by_tgid.get(&tgid).copied() {
            Some(id) => self.spaces.entry(id).or_insert_with(|| Space::new(id, tgid, MonoTime(0))),
            None => {
                let id = self.mint();
                self.settle(tgid, Space::new(id, tgid, MonoTime(0)))
            }
        }
    }

    fn lifecycle(&mut self, event: &Lifecycle) {
        match event.change {
            Change::Fork { child, child_start, shares } => {
                self.fork(event.tgid, child, child_start, shares, event.when);
            }
            Change::Exec => self.exec(event.tgid, event.when),
            Change::Exit => self.leave(event.tgid, event.when, None),
            _ => self.change(event),
        }
    }

    /// A change inside one space. Copies that fork made while the call ran may have it or not.
    fn change(&mut self, event: &Lifecycle) {
        let extents = event.change.extents();
        if extents.iter().any(|e| e.end < e.start) {
            return;
        }
        let space = self.space_of(event.tgid);
        space.apply(event);
        let made_since = |(_, made): &&(SpaceId, MonoTime)| *made >= event.when.begin;
        let mut copies: Vec<SpaceId> =
            space.forks.iter().rev().take_while(made_since).map(|(id, _)| *id).collect();
        while let Some(id) = copies.pop() {
            let Some(copy) = self.spaces.get_mut(&id).filter(|s| s.read < s.born) else { continue };
            for extent in extents {
                copy.unsettle(extent, event.when);
            }
            copy.bound();
            copies.extend(copy.forks.iter().map(|(id, _)| *id));
        }
    }

    fn fork(&mut self, parent: Tgid, child: Tgid, start: StartTicks, shares: bool, when: Span) {
        let same = |s: &Space| s.starts.get(&child) == Some(&start);
        if self.space(child).is_some_and(same) || parent == child {
            return;
        }
        self.leave(child, when, None);
        let space = self.space_of(parent).id;
        let id = self.mint();
        let Some(space) = self.spaces.get_mut(&space) else { return };
        if shares {
            space.tgids.insert(child);
            space.starts.insert(child, start);
            self.by_tgid.insert(child, space.id);
        } else {
            let copy = space.fork(id, child, start, when);
            space.forks.push_back((id, when.end));
            self.settle(child, copy);
        }
    }

    fn exec(&mut self, tgid: Tgid, when: Span) {
        let id = self.mint();
        let mut space = Space::new(id, tgid, when.begin);
        let old = self.space_of(tgid);
        // After vfork the space is the parent's, which goes on in it.
        space.parent = if old.tgids.len() > 1 { Some(old.id) } else { old.parent };
        space.starts.extend(old.starts.get_key_value(&tgid));
        space.changed = when.end;
        self.leave(tgid, when, Some(id));
        self.settle(tgid, space);
    }

    /// A process leaves its space; children of a space that ends so become those of `heir`, or of its parent.
    fn leave(&mut self, tgid: Tgid, when: Span, heir: Option<SpaceId>) {
        let Some(id) = self.by_tgid.remove(&tgid) else { return };
        let Some(space) = self.spaces.get_mut(&id) else { return };
        space.tgids.remove(&tgid);
        space.starts.remove(&tgid);
        self.left.push_back((tgid, id, when.end));
        if self.left.len() > ENDED {
            self.left.pop_front();
        }
        if space.tgids.is_empty()
            && let Some(mut space) = self.spaces.remove(&id)
        {
            space.scan = None;
            space.touches = Touches::default();
            space.heat = Heat::default();
            space.placement = Placement::default();
            let heir = heir.or(space.parent);
            for child in self.spaces.values_mut().filter(|s| s.parent == Some(id)) {
                child.parent = heir;
            }
            if self.family(space.family).next().is_some() {
                self.departures.insert(space.family, when.end);
            } else {
                self.departures.remove(&space.family);
            }
            self.ended.push_back(Ended { space, tgid, died: when });
            if self.ended.len() > ENDED {
                self.ended.pop_front();
            }
        }
    }

    /// The space of a process that was read with this start time, where it is known; a reused pid is another process.
    fn read_space(&mut self, tgid: Tgid, start: Option<StartTicks>, when: Span) -> &mut Space {
        let Some(start) = start else { return self.space_of(tgid) };
        // Both are rounded to ticks, not by the same clock.
        let differs = |known: &StartTicks| known.0.abs_diff(start.0) > 1;
        let other = self.space(tgid).and_then(|s| s.starts.get(&tgid)).is_some_and(differs);
        if other {
            self.leave(tgid, when, None);
        }
        let (since, ticks) = (self.watching_since, self.watching_ticks);
        let space = self.space_of(tgid);
        space.starts.entry(tgid).or_insert(start);
        // In the tick in which the watch began it may have been there before.
        if ticks.is_some_and(|ticks| start > ticks) {
            space.began(since);
        }
        space
    }

    fn total(&mut self, total: &Total) {
        let space = self.read_space(total.tgid, Some(total.start), total.when);
        space.totals(total.when, total.counters);
        let unmoved = space.scan.as_ref().filter(|scan| scan.after == total.counters);
        let (id, still) = (space.id, unmoved.is_some() && space.still_since_scan());
        let sure = |space: &Space| !self.doubts(space);
        if still
            && self.spaces.get(&id).is_some_and(sure)
            && let Some(space) = self.spaces.get_mut(&id)
        {
            space.confirmed = Some(total.when.begin);
        }
    }

    fn charge(&mut self, charge: &Charge) {
        self.charges.insert(Arc::clone(&charge.cgroup), Box::new(charge.clone()));
        if self.charges.len() > CGROUPS {
            let oldest = self.charges.values().min_by_key(|c| c.when.end);
            let oldest = oldest.map(|c| Arc::clone(&c.cgroup));
            oldest.and_then(|cgroup| self.charges.remove(&cgroup));
        }
    }

    fn residency(&mut self, seen: &Residency) {
        let since = self.watching_since;
        let parent = self.space(seen.parent).map(|s| s.id);
        let space = self.read_space(seen.tgid, seen.start, seen.when);
        let before = space.scan.as_ref().and_then(|scan| scan.layout).or(space.layout);
        if before.is_some() && seen.layout.is_some() && before != seen.layout {
            // The record of an exec was lost.
            let when = Span { begin: space.read, end: seen.when.end };
            self.exec(seen.tgid, when);
        }
        let space = self.space_of(seen.tgid);
        let id = space.id;
        if space.parent.is_none() && space.scan.is_none() {
            space.parent = parent.filter(|parent| *parent != id);
        }
        let d = space.scanned(seen, since);
        self.differences.adopted += d.adopted;
        self.differences.vanished += d.vanished;
        self.differences.replaced += d.replaced;
        self.link(id);
    }

    /// Joins a space to the family of a parent that has the same randomised layout, and its children to it: forks
    /// that happened before the watch.
    fn link(&mut self, id: SpaceId) {
        let related = |a: &Scan, b: &Scan| a.layout.is_some() && a.layout == b.layout;
        let Some(space) = self.spaces.get(&id) else { return };
        let Some(scan) = space.scan.clone() else { return };
        let tgids: BTreeSet<Tgid> = space.tgids.clone();
        let mut pairs = Vec::new();
        if space.family == id
            && let Some(parent) = self.space(scan.parent)
            && parent.scan.as_deref().is_some_and(|p| related(p, &scan))
            && parent.id != id
        {
            pairs.push((parent.id, id));
        }
        pairs.extend(
            self.spaces
                .values()
                .filter(|s| s.family == s.id && s.id != id)
                .filter(|s| {
                    s.scan
                        .as_deref()
                        .is_some_and(|c| tgids.contains(&c.parent) && related(c, &scan))
                })
                .map(|s| (id, s.id)),
        );
        for (parent, child) in pairs {
            let Some(parent) = self.spaces.get(&parent) else { continue };
            let (family, pieces) = (parent.family, parent.pieces.clone());
            if family == child {
                continue;
            }
            for space in self.spaces.values_mut().filter(|s| s.family == child) {
                space.family = family;
                inherit(&mut space.pieces, &pieces);
                if let Some(scan) = &mut space.scan {
                    inherit(&mut Arc::make_mut(scan).pieces, &pieces);
                }
            }
        }
    }

    fn gap(&mut self, gap: &Gap) {
        if gap.lost == 0 {
            self.uncounted.insert(gap.stream);
        }
        let lost = self.lost.entry(gap.stream).or_default();
        *lost = lost.saturating_add(gap.lost);
        match gap.stream {
            Stream::Lifecycle | Stream::Sideband | Stream::Queue => match gap.whose {
                Some(tgid) => self.lose(tgid, gap.when),
                None => {
                    self.spaces.values_mut().for_each(|s| s.lose(gap.when.end));
                    let recent = self.ended.iter_mut().filter(|e| e.died.end >= gap.when.begin);
                    recent.for_each(|e| e.space.lose(gap.when.end));
                }
            },
            Stream::Stacks
            | Stream::Faults
            | Stream::Accesses
            | Stream::Regions
            | Stream::Scans => {}
        }
    }

    /// Events of a process were lost: in its space, in those that it left in that time, and in what was copied from
    /// them meanwhile.
    fn lose(&mut self, tgid: Tgid, when: Span) {
        let mut spaces = BTreeSet::from([self.space_of(tgid).id]);
        let left = self.left.iter().filter(|(who, _, at)| *who == tgid && *at >= when.begin);
        spaces.extend(left.map(|(_, id, _)| *id));
        let ended = self.ended.iter_mut().map(|e| &mut e.space);
        let mut all: Vec<&mut Space> = self.spaces.values_mut().chain(ended).collect();
        let families: BTreeSet<SpaceId> =
            all.iter().filter(|s| spaces.contains(&s.id)).map(|s| s.family).collect();
        let copied = |s: &Space| s.born >= when.begin && families.contains(&s.family);
        for space in all.iter_mut().filter(|s| spaces.contains(&s.id) || copied(s)) {
            space.lose(when.end);
        }
    }
}
