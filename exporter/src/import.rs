//! A recording of perf as a trace: a header from what it says of its machine, then evidence in the order of time.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use memprov_ledger::evidence::{Evidence, EvidenceClass};
use memprov_ledger::time::MonoTime;
use memprov_perfmem::file::{About, FileError, Recording, Tally};

use crate::config::Export;
use crate::fuse::{end, unwatched};
use crate::report::{Host, Identity};
use crate::support::SIDEBAND;
use crate::trace::{Clock, Header, Line, Scope, Support};

/// `CLOCK_MONOTONIC`.
const MONOTONIC: u32 = 1;

/// A recording that is read line by line. Evidence that no recording of perf holds is told as a gap: calls, stacks, first
/// touches.
pub struct Import {
    recording: Recording,
    header: Header,
    waiting: VecDeque<Line>,
    batch: Vec<Evidence>,
    newest: MonoTime,
    more: bool,
    ended: bool,
    until: Until,
    cut: bool,
}

/// What ends the reading of a recording before its end.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Set once nothing more is to be read.
    pub stop: Arc<AtomicBool>,
    /// Set once what is read ends too early.
    pub cut: Arc<AtomicBool>,
    /// Why it does, where it cannot be read any more.
    pub failed: Arc<OnceLock<io::Error>>,
}

impl Import {
    /// Opens a recording.
    ///
    /// # Errors
    /// When it does not open, or is none.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::until(path, Until::default())
    }

    /// The same, of as much as is read until then.
    ///
    /// # Errors
    /// When it does not open, or is none.
    pub fn until(path: &Path, until: Until) -> Result<Self, FileError> {
        let recording = Recording::open(path)?;
        let header = header(recording.about());
        let (waiting, batch, newest) = (VecDeque::new(), Vec::new(), MonoTime(0));
        let (more, ended, cut) = (true, false, false);
        let mut import =
            Self { recording, header, waiting, batch, newest, more, ended, until, cut };
        import.read();
        // What it found when it began is older than the first event.
        let list = |line: &&Line| !matches!(line, Line::Evidence(Evidence::Residency(_)));
        let first = import.waiting.iter().find(list).or(import.waiting.back());
        if let Some(Line::Evidence(evidence)) = first {
            import.header.watching_since = end(evidence);
        }
        let gaps = unwatched(import.header.watching_since).map(Evidence::Gap);
        gaps.into_iter().for_each(|gap| import.waiting.push_front(Line::Evidence(gap)));
        Ok(import)
    }

    /// What holds for all lines.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// With what the user says of the host and of the agent.
    pub fn named(&mut self, export: &Export) {
        let identity = std::mem::take(&mut self.header.identity);
        self.header.identity = identity.named(export);
    }

    /// Whether the recording says what the wall clock showed. Else its times are those of its own clock.
    #[must_use]
    pub fn has_wall_time(&self) -> bool {
        self.header.clock.known()
    }

    /// What was read so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.recording.tally()
    }

    /// Whether reading ended before the recording did.
    #[must_use]
    pub fn cut(&self) -> bool {
        self.cut
    }

    /// Why it did, where that is no signal.
    #[must_use]
    pub fn failed(&self) -> Option<&io::Error> {
        self.until.failed.get()
    }

    fn read(&mut self) {
        if self.more {
            let more = self.recording.next(&mut self.batch);
            self.more = more && !self.until.stop.load(Ordering::Relaxed);
            self.cut = !self.more && self.until.cut.load(Ordering::Relaxed);
        }
        for evidence in self.batch.drain(..) {
            self.newest = self.newest.max(end(&evidence));
            self.waiting.push_back(Line::Evidence(evidence));
        }
    }
}

impl Iterator for Import {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while self.waiting.is_empty() && self.more {
            self.read();
        }
        if let Some(line) = self.waiting.pop_front() {
            return Some(line);
        }
        let over = std::mem::replace(&mut self.ended, true);
        (!over).then_some(Line::End { when: self.newest })
    }
}

/// What is wrong with a recording as a whole, a line each; none where it was read to its end.
#[must_use]
pub fn problems(tally: &Tally) -> Vec<String> {
    struct Counted<'a>(u64, &'a str);
    impl fmt::Display for Counted<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {}", self.0, self.1)
        }
    }
    let mut lines = Vec::new();
    for (offset, error) in &tally.places {
        lines.push(format!("byte {offset}: {error}"));
    }
    let counts = [
        Counted(tally.broken, "broken records in all; the report rests on the others"),
        Counted(tally.unidentified, "records of events that the recording does not describe"),
        Counted(tally.timeless, "samples without a time"),
        Counted(tally.crowded, "mappings more than there is room for"),
        Counted(
            tally.features.into(),
            "descriptions of the recording (header features) cannot be read, as where a file is cut",
        ),
    ];
    lines.extend(counts.iter().filter(|count| count.0 > 0).map(ToString::to_string));
    if let Some(error) = &tally.stopped {
        lines.push(format!("{}; what follows is not read", crate::logging::chain(error)));
    }
    lines
}

fn header(about: &About) -> Header {
    let wall = |clock: &memprov_perfmem::file::ClockData| {
        i64::try_from(i128::from(clock.wall) - i128::from(clock.time)).ok()
    };
    let wall_at_zero = about.clock.as_ref().and_then(wall).unwrap_or(0);
    // Where perf's records come from; they say nothing of ends and of who asked.
    let support = Support {
        id: "mapping.lifecycle".to_owned(),
        state: "degraded".to_owned(),
        mechanism: Some(SIDEBAND.to_owned()),
        class: Some(EvidenceClass::Inferred),
    };
    let monotonic = about.clock.is_some_and(|clock| clock.id == MONOTONIC);
    Header {
        host: Host {
            kernel: about.release.clone(),
            nodes: about.node_count,
            no_pmu: None,
            numa: Vec::new(),
        },
        scope: Scope { all: false, pids: Vec::new() },
        identity: Identity {
            host_name: about.hostname.clone().unwrap_or_default(),
            // The monotonic clock begins at boot.
            boot: monotonic.then(|| u64::try_from(wall_at_zero).ok()).flatten(),
            ..Identity::default()
        },
        support: vec![support],
        ..Header::new(Clock { wall_at_zero }, MonoTime(0))
    }
}
