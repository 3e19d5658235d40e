//! The checkpoint: what the ledger knows of live processes, kept for the next run.
//!
//! It is a trace of tables and `recall` lines, replaced as a whole by `rename(2)`. Whoever reads it trusts none of it: it
//! must be of this boot, a process must have begun when it says, what it tells counts as inferred, and the next list of
//! mappings ends what it contradicts.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use memprov_ledger::evidence::Evidence;
use memprov_ledger::identity::{ModuleId, StackId, StartTicks, Tgid};
use memprov_ledger::recall::Recall;
use memprov_ledger::time::Span;

use crate::trace::{Form, Header, Line, Reader, TraceError, Writer};

/// Its name in the state directory.
pub const FILE: &str = "checkpoint";
/// Under this name it is written.
const DRAFT: &str = ".checkpoint";
/// A larger file is not read: a host of a million mappings needs about 200 MiB.
const LARGEST: u64 = 512 << 20;

/// Why there is no checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be made, or put in its place.
    #[error("{what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its lines cannot be written or read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It was written on another boot, or by a recorder that does not say on which.
    #[error("{} is of another boot", .0.display())]
    OtherBoot(std::path::PathBuf),
    /// Nobody writes such a large one.
    #[error("{} is larger than {LARGEST} bytes", .0.display())]
    TooLarge(std::path::PathBuf),
}

/// What a checkpoint says of processes that still live.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// Tables that the recalls refer to.
    pub tables: Vec<Line>,
    /// What was known of each space.
    pub recalls: Vec<Recall>,
    /// The newest ids of stacks and modules that it uses.
    pub taken: (StackId, ModuleId),
}

/// Puts a checkpoint of `lines` into `dir`, readable by its owner only.
///
/// # Errors
/// When it cannot be written; an older checkpoint then stays.
pub fn write(dir: &Path, header: &Header, lines: &[Line]) -> Result<(), CheckpointError> {
    let draft = dir.join(DRAFT);
    let written = draw_up(&draft, header, lines).and_then(|()| {
        let path = dir.join(FILE);
        fs::rename(&draft, &path).map_err(failed("put in place", &path))
    });
    if written.is_err() {
        // What is left of a draft is of no use; that it cannot be removed changes nothing.
        drop(fs::remove_file(&draft));
    }
    written
}

fn draw_up(draft: &Path, header: &Header, lines: &[Line]) -> Result<(), CheckpointError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(NOFOLLOW)
        .open(draft)
        .map_err(failed("create", draft))?;
    let mut writer = Writer::new(file, Form::Plain, draft, header)?;
    for line in lines {
        writer.write(line)?;
    }
    writer.write(&Line::End { when: header.watching_since })?;
    let file: File = writer.finish()?;
    file.sync_all().map_err(failed("write", draft))
}

const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_owned();
    move |source| CheckpointError::File { what, path, source }
}

/// What tells whether a process is still the one that was known.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// When it began.
    pub start: StartTicks,
    /// Where the kernel put stack and code: elsewhere after an exec. `None` where that is hidden.
    pub layout: Option<(u64, u64)>,
}

/// Reads the checkpoint in `dir`; `None` where there is none. `lives` tells what a process is that is to be watched,
/// `when` stands for the time of the recall.
///
/// # Errors
/// When there is one and it cannot be used. A broken line costs only itself.
pub fn read(
    dir: &Path,
    boot_id: Option<&str>,
    lives: impl Fn(Tgid) -> Option<Life>,
    when: Span,
) -> Result<Option<Checkpoint>, CheckpointError> {
    let path = dir.join(FILE);
    let size = match fs::symlink_metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", &path)(source)),
    };
    if size > LARGEST {
        return Err(CheckpointError::TooLarge(path));
    }
    let reader = Reader::open(&path)?;
    if boot_id.is_none() || reader.header().boot_id.as_deref() != boot_id {
        return Err(CheckpointError::OtherBoot(path));
    }
    let mut found = Checkpoint::default();
    for line in reader {
        match line {
            Ok(Line::Evidence(Evidence::Recall(mut known))) => {
                let layout = known.layout;
                known.tgids.retain(|(tgid, start)| {
                    lives(*tgid).is_some_and(|now| {
                        let same = layout.is_none() || now.layout.is_none() || layout == now.layout;
                        same && now.start.0.abs_diff(start.0) <= 1
                    })
                });
                if !known.tgids.is_empty() {
                    found.recalls.push(Recall { when, ..*known });
                }
            }
            Ok(line @ (Line::Module { .. } | Line::Stack { .. } | Line::Name { .. })) => {
                found.taken = match &line {
                    Line::Stack { id, .. } => (found.taken.0.max(*id), found.taken.1),
                    Line::Module { id, .. } => (found.taken.0, found.taken.1.max(*id)),
                    _ => found.taken,
                };
                found.tables.push(line);
            }
            Ok(
                Line::Evidence(_) | Line::Forget { .. } | Line::Watermark { .. } | Line::End { .. },
            ) => {}
            Err(error) => tracing::warn!(%error, "a part of the checkpoint is lost"),
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memprov_ledger::evidence::StackRef;
    use memprov_ledger::identity::{Extent, Generation, IntervalId, SpaceId};
    use memprov_ledger::pieces::Traits;
    use memprov_ledger::recall::Remembered;
    use memprov_ledger::stack::{Stack, StackEnd};
    use memprov_ledger::time::MonoTime;

    use super::*;
    use crate::trace::SCHEMA;

    const BOOT: &str = "8f14e45f-ceea-467f-a0e6-4b5b0d1f8a11";

    fn header() -> Header {
        let text = format!(
            r#"{{"schema":"{SCHEMA}","version":"0","clock":{{"wall_at_zero":"0"}},"watching_since":5,
                "host":{{"kernel":"6","nodes":1,"no_pmu":null}},"scope":{{"all":true}},"boot_id":"{BOOT}"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn known(tgid: u32) -> Recall {
        let id = IntervalId { space: SpaceId(3), generation: Generation(1) };
        let piece = Remembered {
            extent: Extent::new(0x1000, 0x2000),
            id,
            born: Span::at(MonoTime(7)),
            traits: Traits(Traits::ANONYMOUS),
            offset: 0x1000,
            stack: StackRef::Known(StackId(9)),
            backing: None,
        };
        Recall {
            when: Span::at(MonoTime(50)),
            space: SpaceId(3),
            family: SpaceId(3),
            parent: None,
            newest: Generation(1),
            tgids: vec![(Tgid(tgid), StartTicks(100))],
            layout: Some((1, 2)),
            pieces: Arc::from([piece]),
        }
    }

    fn kept(dir: &Path) -> Vec<Line> {
        let stack = Arc::new(Stack { frames: Vec::new(), end: StackEnd::Root });
        let recall = |tgid| Line::Evidence(Evidence::Recall(Box::new(known(tgid))));
        let lines = vec![Line::Stack { id: StackId(9), stack }, recall(1), recall(2), recall(3)];
        write(dir, &header(), &lines).unwrap();
        lines
    }

    /// Process 1 is the one that was known; 2 runs another program, 3 is another process.
    fn lives(tgid: Tgid) -> Option<Life> {
        match tgid.0 {
            1 => Some(Life { start: StartTicks(101), layout: Some((1, 2)) }),
            2 => Some(Life { start: StartTicks(100), layout: Some((8, 9)) }),
            _ => Some(Life { start: StartTicks(900), layout: Some((1, 2)) }),
        }
    }

    #[test]
    fn what_still_lives_is_recalled_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let when = Span::at(MonoTime(77));
        assert!(read(dir.path(), Some(BOOT), lives, when).unwrap().is_none());
        let lines = kept(dir.path());
        let found = read(dir.path(), Some(BOOT), lives, when).unwrap().unwrap();
        assert_eq!(found.recalls, [Recall { when, ..known(1) }]);
        assert_eq!((found.tables, found.taken), (lines[..1].to_vec(), (StackId(9), ModuleId(0))));
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&names[0].metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn another_boot_has_other_processes() {
        let dir = tempfile::tempdir().unwrap();
        kept(dir.path());
        for boot in [Some("another"), None] {
            let error = read(dir.path(), boot, lives, Span::default()).unwrap_err();
            assert!(matches!(error, CheckpointError::OtherBoot(_)), "{error}");
        }
    }

    #[test]
    fn a_damaged_checkpoint_costs_what_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        kept(dir.path());
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("\"kind\":\"stack\"", "\"kind\":\"stack\",{", 1)).unwrap();
        let found = read(dir.path(), Some(BOOT), lives, Span::default()).unwrap().unwrap();
        assert_eq!((found.recalls.len(), found.tables.len()), (1, 0));
        for cut in [0, 10, text.len() / 2] {
            fs::write(&path, &text[..cut]).unwrap();
            let read = read(dir.path(), Some(BOOT), lives, Span::default());
            assert!(cut > 100 || read.is_err());
        }
    }

    #[test]
    fn a_checkpoint_that_cannot_be_put_in_place_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(FILE)).unwrap();
        let error = write(dir.path(), &header(), &[]).unwrap_err();
        assert!(error.to_string().contains("put in place"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
