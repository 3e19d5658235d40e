//! The fuser: owns the ledger, takes in lines (live or replayed), and says what is claimed.
//!
//! No clock, no randomness: the same lines give the same report.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use memprov_ledger::book::Sharing;
use memprov_ledger::evidence::{Evidence, Gap, StackRef, Stream};
use memprov_ledger::identity::{SpaceId, Tgid};
use memprov_ledger::ledger::Ledger;
use memprov_ledger::recall::Recall;
use memprov_ledger::space::Space;
use memprov_ledger::time::{MonoTime, Span};

use crate::access::locality::Topology;
use crate::access::populated::proven;
use crate::access::section::section;
use crate::access::tally::Tally;
use crate::compose::{Composer, Snapshot};
use crate::histogram::Histogram;
use crate::report::{About, Report};
use crate::tables::{Function, Tables};
use crate::trace::{Header, Line};

/// Over how long growth is told.
const WINDOW: Duration = Duration::from_secs(300);

/// The fuser.
#[derive(Debug)]
pub struct Fuser {
    header: Header,
    source: &'static str,
    interval: Duration,
    ledger: Ledger,
    tables: Tables,
    accesses: Tally,
    history: BTreeMap<SpaceId, VecDeque<Snapshot>>,
    scan_seconds: Histogram,
    about: Arc<About>,
    /// End of the pane that is open.
    pane: MonoTime,
    now: MonoTime,
}

impl Fuser {
    /// A fuser of evidence that `header` describes. `source` is the report's: `daemon`, `replay`, `import`, `snapshot`.
    #[must_use]
    pub fn new(header: Header, source: &'static str, interval: Duration) -> Self {
        let ledger =
            Ledger::new(header.watching_since, header.sample).with_start(header.watching_ticks);
        let since = header.watching_since;
        let (identity, support) = (header.identity.clone(), header.support.clone());
        Self {
            scan_seconds: Histogram::default(),
            about: Arc::new(About { identity, support }),
            source,
            interval,
            ledger,
            tables: Tables::default(),
            accesses: Tally::of(Topology::of(&header.host.numa)),
            history: BTreeMap::new(),
            pane: since.after(interval),
            now: since,
            header,
        }
    }

    /// Closes a pane this often from now on.
    pub fn every(&mut self, interval: Duration) {
        self.pane = self.pane.min(self.now.after(interval));
        self.interval = interval;
    }

    /// Takes in a line. Returns functions whose names are wanted.
    pub fn apply(&mut self, line: Line) -> Vec<Function> {
        match line {
            Line::Stack { id, stack } => return self.tables.stack(id, stack),
            Line::Module { id, module } => self.tables.module(id, module),
            Line::Name { module, function, name } => self.tables.name((module, function), name),
            Line::Evidence(evidence) => {
                self.advance(end(&evidence));
                // A list that is told as of one instant took nobody's time.
                if let Evidence::Residency(seen) = &evidence
                    && seen.when.begin < seen.when.end
                {
                    self.scan_seconds
                        .record(seen.when.end.since(seen.when.begin).as_secs_f64(), 1.0);
                }
                self.ledger.apply(&evidence);
                if let Evidence::Access(access) = &evidence {
                    self.accesses.add(access, &self.ledger);
                }
            }
            Line::Forget { stacks, modules } => {
                let mut named = self.ledger.stacks();
                named.extend(self.accesses.stacks());
                self.tables.forget(stacks, modules, &named);
            }
            Line::Watermark { when } | Line::End { when } => {
                self.advance(when);
            }
        }
        Vec::new()
    }

    /// Time has come to `now`: closes the panes that ended. Returns whether one did.
    pub fn advance(&mut self, now: MonoTime) -> bool {
        self.now = self.now.max(now);
        // At the end of time no pane ends any more.
        if !self.pane_ends_by(self.now) {
            return false;
        }
        let interval = self.interval.max(Duration::from_millis(1));
        let length = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let over = self.now.since(self.pane).as_nanos() / u128::from(length);
        let over = u64::try_from(over).unwrap_or(u64::MAX);
        self.pane =
            MonoTime(self.pane.0.saturating_add(length.saturating_mul(over.saturating_add(1))));
        self.close_pane();
        true
    }

    /// Whether `line` lies behind the end of the pane that is open.
    #[must_use]
    pub fn pane_ends_with(&self, line: &Line) -> bool {
        match line {
            Line::Evidence(evidence) => self.pane_ends_by(end(evidence)),
            Line::Watermark { when } | Line::End { when } => self.pane_ends_by(*when),
            Line::Module { .. } | Line::Stack { .. } | Line::Name { .. } | Line::Forget { .. } => {
                false
            }
        }
    }

    /// Whether the pane that is open ends at `now` or before.
    #[must_use]
    pub fn pane_ends_by(&self, now: MonoTime) -> bool {
        now >= self.pane && self.pane < MonoTime(u64::MAX)
    }

    /// The end of the pane that is open.
    #[must_use]
    pub fn pane_end(&self) -> MonoTime {
        self.pane
    }

    /// Remembers what each owner has, for growth.
    fn close_pane(&mut self) {
        let sharing = self.ledger.sharing();
        let composer = Composer {
            header: &self.header,
            ledger: &self.ledger,
            tables: &self.tables,
            sharing: &sharing,
        };
        for space in self.ledger.spaces() {
            let Some(scan) = &space.scan else { continue };
            let history = self.history.entry(space.id).or_default();
            let as_of = space.confirmed.unwrap_or(scan.when.begin);
            let resident = match history.back() {
                Some((when, _)) if *when >= as_of => continue,
                // Found unmoved since.
                Some((when, same)) if *when >= scan.when.begin => Arc::clone(same),
                _ => Arc::new(composer.resident(space)),
            };
            history.push_back((as_of, resident));
            while history.len() > 2 && history[1].0.after(WINDOW) <= as_of {
                history.pop_front();
            }
        }
        let live: Vec<SpaceId> = self.ledger.spaces().map(|s| s.id).collect();
        self.history.retain(|id, _| live.binary_search(id).is_ok());
        self.accesses.close(&self.ledger, self.now);
    }

    /// What holds for the whole run.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The newest instant that evidence spoke of.
    #[must_use]
    pub fn now(&self) -> MonoTime {
        self.now
    }

    /// Names that were asked for and are not there yet.
    #[must_use]
    pub fn names_waiting(&self) -> usize {
        self.tables.waiting()
    }

    /// What a later run can be told of the processes that live now: tables, then what is known of each space.
    #[must_use]
    pub fn remembered(&self, when: Span) -> Vec<Line> {
        let known: Vec<Recall> = self.ledger.remembered(when).collect();
        let pieces = known.iter().flat_map(|known| known.pieces.iter());
        let stacks = pieces.filter_map(|piece| match piece.stack {
            StackRef::Known(id) => Some(id),
            StackRef::Lost | StackRef::None => None,
        });
        let tables = self.tables.told(&stacks.collect());
        let recall = |known| Line::Evidence(Evidence::Recall(Box::new(known)));
        tables.into_iter().chain(known.into_iter().map(recall)).collect()
    }

    /// Forgets what ended before `t`.
    pub fn forget_before(&mut self, t: MonoTime) {
        self.ledger.forget_before(t);
    }

    /// Spaces that a report about `pid` speaks of: its own and those of its observed descendants, oldest first; all
    /// without a pid.
    #[must_use]
    pub fn subjects(&self, pid: Option<Tgid>) -> Vec<&Space> {
        let Some(pid) = pid else { return self.ledger.spaces().collect() };
        let Some(first) = self.ledger.space(pid) else { return Vec::new() };
        let mut chosen = vec![first.id];
        // A parent that was there before the watch may have been met after its child: repeat until nothing is added.
        loop {
            let mut grown = false;
            for space in
                self.ledger.spaces().filter(|s| !chosen.contains(&s.id)).collect::<Vec<_>>()
            {
                let parent = space.parent;
                if parent.is_some_and(|p| chosen.contains(&p)) {
                    chosen.push(space.id);
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        self.ledger.spaces().filter(|s| chosen.contains(&s.id)).collect()
    }

    fn composer<'a>(&'a self, sharing: &'a Sharing<'a>) -> Composer<'a> {
        let Self { header, ledger, tables, .. } = self;
        Composer { header, ledger, tables, sharing }
    }

    /// The report about `pid` and its observed descendants, or about all. `at` is when it is made.
    #[must_use]
    pub fn report(&self, pid: Option<Tgid>, at: MonoTime) -> Report {
        let sharing = self.ledger.sharing();
        let composer = self.composer(&sharing);
        let subjects = self.subjects(pid);
        let now = (&self.header.host, at, self.header.clock);
        let told = pid.map(|_| subjects.iter().map(|space| space.id).collect());
        let report = composer.report(&subjects, &self.history, self.source, at);
        let accesses = section(&self.accesses, &self.ledger, &self.tables, told.as_ref(), now);
        Report {
            accesses: accesses.map(|accesses| proven(accesses, &report.processes)),
            scan_seconds: self.scan_seconds.clone(),
            about: Some(Arc::clone(&self.about)),
            ..report
        }
    }
}

/// What stands for hooks that are not there: of each stream of theirs nobody counts what is lost.
#[must_use]
pub fn unwatched(now: MonoTime) -> [Gap; 3] {
    let gap = |stream| Gap { when: Span::at(now), stream, lost: 0, whose: None };
    [Stream::Lifecycle, Stream::Stacks, Stream::Faults].map(gap)
}

/// The instant at which evidence ends.
pub(crate) fn end(evidence: &Evidence) -> MonoTime {
    match evidence {
        Evidence::Lifecycle(e) => e.when.end,
        Evidence::Fault(e) => e.when.end,
        Evidence::Access(e) => e.when.end,
        Evidence::Activity(e) => e.when.end,
        Evidence::Frames(e) => e.when.end,
        Evidence::Placed(e) => e.when.end,
        Evidence::Residency(e) => e.when.end,
        Evidence::Total(e) => e.when.end,
        Evidence::Recall(e) => e.when.end,
        Evidence::Charge(e) => e.when.end,
        Evidence::Gap(e) => e.when.end,
    }
}
