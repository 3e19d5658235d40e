//! The side-band thread: reads the rings of perf, keeps what is about processes that are watched.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use memprov_ledger::evidence::{Change, Evidence, Lifecycle};
use memprov_ledger::identity::Tgid;
use memprov_ledger::time::MonoTime;
use memprov_perfmem::{OpenError, ReadError, Sideband};
use memprov_proc::Proc;

use super::Input;
use crate::trace::Line;

/// How long records may wait to be read when few come.
const POLL: Duration = Duration::from_millis(50);

/// What is watched, and with how much room.
#[derive(Debug)]
pub struct Options {
    /// Where `/proc` and `/sys` are found.
    pub root: PathBuf,
    /// Bytes of all rings together.
    pub room: u32,
    /// These processes and their descendants; all without any.
    pub pids: Vec<Tgid>,
}

/// Why there is no side-band.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The thread cannot be made, or ended at once.
    #[error("start the side-band thread")]
    Thread(#[source] std::io::Error),
}

/// Starts the thread and waits until all rings are open. Everything later than the instant that it returns is seen.
///
/// # Errors
/// When they cannot be opened.
pub fn start(
    options: Options,
    inbox: SyncSender<Input>,
    stop: Arc<AtomicBool>,
) -> Result<(MonoTime, JoinHandle<()>), StartError> {
    let (ready, opened) = sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("sideband".to_owned())
        .spawn(move || {
            let sideband = match Sideband::open(&options.root, options.room) {
                Ok(sideband) => sideband,
                Err(error) => {
                    // The receiver waits for exactly this.
                    drop(ready.send(Err(error)));
                    return;
                }
            };
            let watched = Watched::new(&options);
            if ready.send(Ok(sideband.since())).is_err() {
                return;
            }
            if let Err(error) = pump(sideband, watched, &inbox, &stop) {
                drop(inbox.send(Input::HooksEnded(crate::logging::chain(&error))));
            }
        })
        .map_err(StartError::Thread)?;
    let ended = |_| StartError::Thread(std::io::ErrorKind::BrokenPipe.into());
    Ok((opened.recv().map_err(ended)??, thread))
}

fn pump(
    mut sideband: Sideband,
    mut watched: Watched,
    inbox: &SyncSender<Input>,
    stop: &AtomicBool,
) -> Result<(), ReadError> {
    let mut evidence = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let upto = sideband.poll(POLL, &mut evidence)?;
        let lines = evidence.drain(..).filter(|e| watched.keeps(e)).map(Line::Evidence).collect();
        if inbox.send(Input::Hooks { lines, upto }).is_err() {
            break;
        }
    }
    Ok(())
}

/// Which processes are watched. Forks add their children, exits take away.
#[derive(Debug)]
struct Watched {
    own: Tgid,
    /// `None`: all but ourselves.
    only: Option<BTreeSet<Tgid>>,
}

impl Watched {
    /// Rings are open before the families are listed: who is forked meanwhile is in one of both.
    fn new(options: &Options) -> Self {
        let own = Tgid(std::process::id());
        let proc = Proc::at(&options.root);
        let family = options.pids.iter().flat_map(|root| proc.family(*root));
        let only = (!options.pids.is_empty()).then(|| family.filter(|pid| *pid != own).collect());
        Self { own, only }
    }

    fn keeps(&mut self, evidence: &Evidence) -> bool {
        let Evidence::Lifecycle(Lifecycle { tgid, change, .. }) = evidence else { return true };
        let Some(only) = &mut self.only else { return *tgid != self.own };
        match change {
            Change::Fork { child, .. } if only.contains(tgid) => only.insert(*child),
            // The pid of one that ended unnoticed is another's now.
            Change::Fork { child, .. } => {
                only.remove(child);
                false
            }
            Change::Exit => only.remove(tgid),
            _ => only.contains(tgid),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use memprov_ledger::evidence::{Change, Evidence, Gap, Lifecycle, Stream};
    use memprov_ledger::identity::{StartTicks, Tgid};
    use memprov_ledger::time::{MonoTime, Span};

    use super::{Options, Watched};

    fn event(tgid: u32, change: Change) -> Evidence {
        let when = Span::at(MonoTime(1));
        Evidence::Lifecycle(Lifecycle { when, tgid: Tgid(tgid), change })
    }

    fn fork(parent: u32, child: u32) -> Evidence {
        let (child, child_start) = (Tgid(child), StartTicks(1));
        event(parent, Change::Fork { child, child_start, shares: false })
    }

    fn watched(only: &[u32]) -> Watched {
        let only = (!only.is_empty()).then(|| only.iter().copied().map(Tgid).collect());
        Watched { own: Tgid(1), only }
    }

    #[test]
    fn a_selection_follows_forks_and_forgets_who_ended() {
        let mut watched = watched(&[7]);
        assert!(!watched.keeps(&event(8, Change::Exec)));
        assert!(watched.keeps(&fork(7, 8)) && watched.keeps(&fork(8, 9)));
        assert!(watched.keeps(&event(9, Change::Exec)));
        assert!(watched.keeps(&event(9, Change::Exit)));
        assert!(!watched.keeps(&event(9, Change::Exec)), "the pid is another's now");
        assert!(!watched.keeps(&fork(5, 8)) && !watched.keeps(&event(8, Change::Exec)));
        let when = Span::at(MonoTime(1));
        let gap = Gap { when, stream: Stream::Sideband, lost: 1, whose: None };
        assert!(watched.keeps(&Evidence::Gap(gap)), "a loss may be anybody's");
    }

    #[test]
    fn all_are_watched_but_ourselves() {
        let mut watched = watched(&[]);
        assert!(watched.keeps(&event(7, Change::Exec)) && watched.keeps(&fork(7, 8)));
        assert!(!watched.keeps(&event(1, Change::Exec)));
        let (root, own) = (PathBuf::from("/"), Tgid(std::process::id()));
        let selected = Watched::new(&Options { root, room: 0, pids: vec![own] });
        assert_eq!(selected.only, Some([].into()), "not even when we are asked to");
    }
}
