//! The names thread: looks up what functions are called, off the path of events.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use memprov_ledger::identity::ModuleId;
use memprov_proc::clock;

use super::Input;
use crate::logging::chain;
use crate::symbols::{ModuleSource, Namer};
use crate::tables::Function;
use crate::trace::Line;

/// Time that the thread rests for after work, in times of that work: a table of symbols is read as a whole for every
/// batch of functions, and a compiler's has millions. What is wanted meanwhile makes up the next batch.
const REST: u32 = 9;
/// Modules whose place is remembered, the newest: more than one table of modules can have.
const KNOWN: usize = 32_768;
/// The longest rest: reports wait for names.
const LONGEST: Duration = Duration::from_secs(1);

/// Starts the thread. `sources` tells where modules can be read; it is told before a function of it is wanted.
///
/// # Errors
/// When the thread cannot be made.
pub fn start(
    root: PathBuf,
    wanted: Receiver<Vec<Function>>,
    sources: Receiver<(ModuleId, ModuleSource)>,
    inbox: SyncSender<Input>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("names".to_owned()).spawn(move || {
        let namer = Namer::new(root);
        let mut known: BTreeMap<ModuleId, ModuleSource> = BTreeMap::new();
        while let Ok(mut functions) = wanted.recv() {
            functions.extend(wanted.try_iter().flatten());
            let begun = clock::thread_cpu();
            known.extend(sources.try_iter());
            while known.len() > KNOWN {
                known.pop_first();
            }
            let mut by_module: BTreeMap<ModuleId, Vec<u64>> = BTreeMap::new();
            for (module, function) in functions {
                by_module.entry(module).or_default().push(function);
            }
            for (module, functions) in by_module {
                let names = match known.get(&module) {
                    Some(source) => namer.names(source, &functions).unwrap_or_else(|error| {
                        tracing::debug!(error = chain(&error), "a module cannot be read for names");
                        vec![None; functions.len()]
                    }),
                    None => vec![None; functions.len()],
                };
                let lines = functions
                    .into_iter()
                    .zip(names)
                    .map(|(function, name)| Line::Name { module, function, name })
                    .collect();
                if inbox.send(Input::Names(lines)).is_err() {
                    return;
                }
            }
            let worked = clock::thread_cpu().saturating_sub(begun);
            std::thread::sleep(LONGEST.min(worked * REST));
        }
    })
}
