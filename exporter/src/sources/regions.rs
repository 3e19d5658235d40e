//! The regions thread: listens to what monitors of memory find, whoever runs them, and changes nothing of them. On request
//! it runs one of our own.

mod own;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use memprov_bpf::{HookError, LoadError, Regions};
use memprov_damon::{Assembler, Event, Monitor, Region, Snapshot, Unusable, activity, monitors};
use memprov_ledger::evidence::{Evidence, Gap, Stream};
use memprov_ledger::time::Span;
use memprov_proc::clock;

use self::own::Own;
pub use self::own::{MARK, clean};
use super::Input;
use crate::config::Config;

/// How long regions may wait to be read: the ring holds a dozen snapshots of the kernel's default size.
const POLL: Duration = Duration::from_millis(200);

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

/// Starts the thread and waits until it listens.
///
/// # Errors
/// When it cannot.
pub fn start(
    config: &Config,
    inbox: SyncSender<Input>,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<()>, StartError> {
    let (root, mut own) = (config.root.clone(), Own::of(config));
    let (ready, listening) = sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("regions".to_owned())
        .spawn(move || match Regions::listen() {
            Ok(regions) => {
                let told = ready.send(Ok(()));
                let pumped = pump(regions, &root, own.as_mut(), &inbox, &stop);
                own.iter_mut().for_each(Own::end);
                if told.is_ok()
                    && let Err(error) = pumped
                {
                    tracing::error!(
                        error = super::scans::chain(&error),
                        "nobody listens to monitors of memory any more"
                    );
                }
            }
            // The receiver waits for exactly this.
            Err(error) => drop(ready.send(Err(error))),
        })
        .map_err(StartError::Thread)?;
    let ended = |_| StartError::Thread(std::io::ErrorKind::BrokenPipe.into());
    listening.recv().map_err(ended)??;
    Ok(thread)
}

fn pump(
    mut regions: Regions,
    root: &Path,
    mut own: Option<&mut Own>,
    inbox: &SyncSender<Input>,
    stop: &AtomicBool,
) -> Result<(), HookError> {
    let mut assembler = Assembler::default();
    let (mut since, mut unusable, mut told) = (clock::now(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        own.iter_mut().for_each(|own| own.turn(clock::now()));
        let mut whole = Vec::new();
        regions.poll(POLL, |region| whole.extend(assembler.take(&event(&region))))?;
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
        let (now, lost) = (clock::now(), assembler.truncated() + unusable);
        if lost > told {
            let (when, stream) = (Span { begin: since, end: now }, Stream::Regions);
            found.push(Evidence::Gap(Gap { when, stream, lost: lost - told, whose: None }));
            told = lost;
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

fn event(region: &memprov_bpf::Region) -> Event {
    let memprov_bpf::Region { when, thread, target, regions, start, end, accesses, age } = *region;
    Event { when, thread, target, regions, region: Region { start, end, accesses, age } }
}
