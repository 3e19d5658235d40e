//! The regions thread: listens to what monitors of memory find, whoever runs them, and changes nothing of them. On request
//! it runs one of our own, and where nobody can listen asks it what it found.

mod laying;
mod own;
#[cfg(test)]
mod tests;
mod told;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use memprov_bpf::{HookError, LoadError, Regions};
use memprov_damon::{Monitor, Snapshot, Unusable, activity, monitors};
use memprov_ledger::evidence::{Evidence, Gap, Stream};
use memprov_ledger::time::Span;
use memprov_proc::clock;

use self::own::Own;
pub use self::own::{MARK, clean};
use self::told::Told;
use super::Input;
use crate::config::Config;

/// Why nobody listens.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The thread cannot be made, or ended at once.
    #[error("start the regions thread")]
    Thread(#[source] std::io::Error),
}

/// The thread that runs.
pub struct Started {
    /// It ends with the others.
    pub thread: JoinHandle<()>,
    /// Why it does not listen, but only asks a monitor of our own; `None`: it listens.
    pub deaf: Option<LoadError>,
}

/// Starts the thread and waits until it listens, or is ready to ask.
///
/// # Errors
/// It cannot listen, and no monitor of our own is wanted that could be asked.
pub fn start(
    config: &Config,
    inbox: SyncSender<Input>,
    stop: Arc<AtomicBool>,
) -> Result<Started, StartError> {
    let (root, mut own) = (config.root.clone(), Own::of(config));
    let (ready, listening) = sync_channel(1);
    let run = move || {
        let (told, deaf) = match Regions::listen() {
            Ok(regions) => (Told::heard(regions), None),
            Err(error) => match &mut own {
                Some(own) => {
                    own.is_asked();
                    (Told::asked(), Some(error))
                }
                // The receiver waits for exactly this.
                None => return drop(ready.send(Err(error))),
            },
        };
        let awaited = ready.send(Ok(deaf));
        let pumped = pump(told, &root, own.as_mut(), &inbox, &stop);
        own.iter_mut().for_each(Own::end);
        if awaited.is_ok()
            && let Err(error) = pumped
        {
            tracing::error!(
                error = crate::logging::chain(&error),
                "nobody listens to monitors of memory any more"
            );
        }
    };
    let thread = std::thread::Builder::new()
        .name("regions".to_owned())
        .spawn(run)
        .map_err(StartError::Thread)?;
    let ended = |_| StartError::Thread(std::io::ErrorKind::BrokenPipe.into());
    let deaf = listening.recv().map_err(ended)??;
    Ok(Started { thread, deaf })
}

fn pump(
    mut told: Told,
    root: &Path,
    mut own: Option<&mut Own>,
    inbox: &SyncSender<Input>,
    stop: &AtomicBool,
) -> Result<(), HookError> {
    let (mut since, mut unusable, mut counted) = (clock::now(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        own.iter_mut().for_each(|own| own.turn(clock::now()));
        let whole = told.snapshots(own.as_deref_mut())?;
        let mut found = Vec::new();
        if !whole.is_empty() {
            // Whoever runs the monitor may have set it anew since.
            let known = monitors(root).unwrap_or_default();
            for snapshot in &whole {
                match said(snapshot, &known) {
                    Ok(evidence) => found.extend(evidence),
                    Err(error) => {
                        tracing::debug!(monitor = snapshot.thread, %error, "regions say nothing");
                        unusable += 1;
                    }
                }
            }
        }
        own.iter_mut().for_each(|own| own.lay(&mut found));
        let (now, lost) = (clock::now(), told.lost() + unusable);
        if lost > counted {
            let (when, stream) = (Span { begin: since, end: now }, Stream::Regions);
            found.push(Evidence::Gap(Gap { when, stream, lost: lost - counted, whose: None }));
            counted = lost;
        }
        since = now;
        if !found.is_empty() && inbox.send(Input::Regions(found)).is_err() {
            break;
        }
    }
    Ok(())
}

/// What a snapshot says. Of a monitor that no file tells of (a module of the kernel runs it) the number of checks is not
/// known, so it says nothing, and nothing is lost.
fn said(snapshot: &Snapshot, known: &[Monitor]) -> Result<Option<Evidence>, Unusable> {
    let monitor = known.iter().find(|monitor| monitor.thread == snapshot.thread);
    let said = monitor.map(|monitor| activity(snapshot, monitor)).transpose()?;
    Ok(said.map(|activity| Evidence::Activity(Box::new(activity))))
}
