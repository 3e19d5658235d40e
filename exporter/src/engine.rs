//! What the commands run: the daemon, the recorder, the replay, the snapshot.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use memprov_ledger::evidence::Evidence;
use memprov_ledger::identity::Tgid;
use memprov_proc::budget::Budget;
use memprov_proc::{Proc, ScanOptions, Scanner, clock};

use crate::commands::{Engine, Exit, Failure, Sink, Watch};
use crate::config::{Config, Effective};
use crate::encode::{Accumulator, Window};
use crate::ending::Ending;
use crate::fuse::{Fuser, unwatched};
use crate::import::{self, Import};
use crate::otlp::Stats;
use crate::recorder::Recorder;
use crate::report::{About, Report};
use crate::screen::Screen;
use crate::sending::Sending;
use crate::setup::{DaemonError, Setup};
use crate::sources::charging::Charging;
use crate::sources::placing::Placing;
use crate::sources::{Outcome, Places};
use crate::support::{HookProbe, PMU, PagesProbe};
use crate::trace::{Line, Problem, Reader, TraceError};
use crate::{daemon, host, probing, symbols};

/// Panes in a row that are told though nothing happened in them; a trace that is silent for longer goes on behind them.
const SILENT: u32 = 1000;

/// How long a pane is where no interval is asked for.
const PANE: Duration = Duration::from_secs(60);

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::of(Exit::Failed, error)
}

/// The same, and what is left of a trace that was to be written.
fn unwritten(error: &DaemonError) -> Failure {
    let mut failure = failed(error);
    if let DaemonError::Trace(TraceError { path, problem: Problem::Write(_), .. }) = error {
        let kept = path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0);
        let trace = path.display();
        failure.lines.push(match kept {
            true => {
                format!("{trace} is cut there: `memprov replay {trace}` tells what came before")
            }
            false => format!("{trace} holds nothing"),
        });
    }
    failure
}

/// Whether both names are of one file, as far as both are there.
fn same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Applies a line; with an interval, tells the panes that end before it.
fn play(
    fuser: &mut Fuser,
    line: Line,
    interval: Option<Duration>,
    sink: &mut Sink<'_>,
) -> Result<(), Failure> {
    let mut panes = 0;
    while interval.is_some() && fuser.pane_ends_with(&line) && panes < SILENT {
        let end = fuser.pane_end();
        sink(&fuser.report(None, end))?;
        fuser.advance(end);
        panes += 1;
    }
    drop(fuser.apply(line));
    Ok(())
}

/// A recording that is read until its end, or a signal.
fn opened(recording: &Path) -> Result<Import, Failure> {
    let Ending { path, until } = Ending::of(recording)
        .map_err(|error| Failure::new(Exit::Failed, format!("prepare to be ended: {error}")))?;
    Import::until(&path, until.clone()).map_err(|error| {
        let mut failure = failed(&error);
        if until.cut.load(Ordering::Relaxed) {
            failure.lines.insert(0, "ended by a signal before the recording began".to_owned());
        }
        failure.lines.extend(until.failed.get().map(unread));
        failure
    })
}

/// Reads a recording to its end. With an interval the sink gets a report at each.
fn read(
    import: &mut Import,
    interval: Option<Duration>,
    sink: &mut Sink<'_>,
) -> Result<(), Failure> {
    let panes = interval.unwrap_or(PANE);
    let mut fuser = Fuser::new(import.header().clone(), "import", panes);
    for line in import {
        play(&mut fuser, line, interval, sink)?;
    }
    sink(&fuser.report(None, fuser.now()))
}

/// Writes a recording to a trace.
fn copy(import: &mut Import, trace: &Path, redact: bool) -> Result<(), DaemonError> {
    let mut recorder = Recorder::create(trace, import.header(), redact)?;
    for line in import {
        match line {
            Line::End { when } => return recorder.finish(when),
            line => recorder.write(&line)?,
        }
    }
    Ok(())
}

/// Says what a recording does not tell; fails where it was not read as a whole.
fn whole(import: &Import) -> Result<(), Failure> {
    let tally = import.tally();
    if !import.has_wall_time() {
        tracing::warn!(
            "the recording has no wall time: its times are seconds of its own clock, in documents as if \
             that had begun in 1970; with `perf record -k CLOCK_MONOTONIC` it has one"
        );
    }
    if tally.accesses == 0 {
        let others = tally.other_samples;
        tracing::warn!(
            others,
            "no sample is of an access: record with perf mem, or perf record -d"
        );
    }
    let mut lines = import::problems(tally);
    if import.cut() {
        let line = "ended by a signal before the recording was: what came until then is told";
        lines.insert(0, line.to_owned());
    }
    lines.extend(import.failed().map(unread));
    if lines.is_empty() { Ok(()) } else { Err(Failure { exit: Exit::Failed, lines }) }
}

fn unread(error: &io::Error) -> String {
    format!("read what comes through the pipe: {error}; what follows is not read")
}

/// The engine of this host.
#[derive(Debug, Default)]
pub struct Local;

impl Engine for Local {
    fn run(
        &self,
        settings: &Effective,
        watch: &Watch,
        screen: Option<&Screen>,
    ) -> Result<(), Failure> {
        self.daemon(settings, watch, screen, None, false)
    }

    fn record(
        &self,
        settings: &Effective,
        watch: &Watch,
        trace: &Path,
        redact: bool,
    ) -> Result<(), Failure> {
        self.daemon(settings, watch, None, Some(trace), redact)
    }

    fn replay(
        &self,
        trace: &Path,
        interval: Option<Duration>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        let mut reader = Reader::open(trace).map_err(|e| failed(&e))?;
        let panes = interval.unwrap_or(PANE);
        let mut fuser = Fuser::new(reader.header().clone(), "replay", panes);
        let mut broken = 0u64;
        let mut first = None;
        for line in reader.by_ref() {
            match line {
                Ok(line) => play(&mut fuser, line, interval, sink)?,
                Err(error) => {
                    broken += 1;
                    tracing::warn!("{}", crate::logging::chain(&error));
                    first.get_or_insert(error);
                }
            }
        }
        if reader.unknown() > 0 {
            tracing::warn!(lines = reader.unknown(), "lines of an unknown kind were left out");
        }
        sink(&fuser.report(None, fuser.now()))?;
        match first {
            None => Ok(()),
            Some(error) => {
                let mut failure = failed(&error);
                failure
                    .lines
                    .push(format!("{broken} broken lines in all; the report rests on the others"));
                Err(failure)
            }
        }
    }

    fn import(
        &self,
        recording: &Path,
        interval: Option<Duration>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        let mut import = opened(recording)?;
        read(&mut import, interval, sink)?;
        whole(&import)
    }

    fn send(
        &self,
        recording: &Path,
        interval: Option<Duration>,
        config: &Config,
    ) -> Result<Stats, Failure> {
        let mut import = opened(recording)?;
        if !import.has_wall_time() {
            let path = recording.display();
            let line = format!(
                "{path}: no wall time in it, without which no point has a time: record with -k mono"
            );
            return Err(Failure::new(Exit::Failed, line));
        }
        import.named(&config.export);
        let mut sending =
            Sending::start(config, import.header()).map_err(|e| Failure::of(Exit::Usage, &e))?;
        let interval = interval.unwrap_or(config.export.interval);
        read(&mut import, Some(interval), &mut |report| {
            sending.pane(report).map_err(|e| failed(&e))
        })?;
        let stats = sending.finish().map_err(|e| failed(&e))?;
        whole(&import)?;
        Ok(stats)
    }

    fn convert(&self, recording: &Path, trace: &Path, redact: bool) -> Result<(), Failure> {
        let mut import = opened(recording)?;
        if same_file(recording, trace) {
            let line = format!("--trace {}: this is the recording itself", trace.display());
            return Err(Failure::new(Exit::Usage, line));
        }
        copy(&mut import, trace, redact).map_err(|error| unwritten(&error))?;
        whole(&import)
    }

    fn snapshot(&self, config: &Config, pid: Option<u32>) -> Result<Report, Failure> {
        let proc = Proc::at(&config.root);
        let mut scanner = Scanner::new(proc.clone(), ScanOptions::default());
        let header = host::header(config, pid.as_slice());
        let mut fuser = Fuser::new(header, "snapshot", config.export.interval);
        for gap in unwatched(fuser.now()) {
            drop(fuser.apply(Line::Evidence(Evidence::Gap(gap))));
        }
        let pids = match pid {
            Some(pid) => proc.family(Tgid(pid)),
            None => proc.pids().map_err(|e| Failure::of(Exit::NoDaemon, &e))?,
        };
        // Relatives are known by their layout once all are read: then sharing after fork can be asked for.
        let family = pids.len() > 1;
        let (mut charging, mut placing) = (Charging::new(&proc), Placing::new(&proc));
        let mut unlimited = Budget::new(1.0, Duration::MAX, clock::now());
        let mut first_error = None;
        for tgid in pids {
            match scanner.scan(tgid, family) {
                Ok(seen) => {
                    let outcome = Outcome::Seen(Box::new(seen));
                    let placed = placing.of(tgid, &outcome, true, &mut unlimited);
                    if let Outcome::Seen(seen) = outcome {
                        drop(fuser.apply(Line::Evidence(Evidence::Residency(seen))));
                    }
                    if let Places::Read(placed) = placed {
                        drop(fuser.apply(Line::Evidence(Evidence::Placed(placed))));
                    }
                    for charge in charging.of(tgid, false, &mut unlimited) {
                        drop(fuser.apply(Line::Evidence(Evidence::Charge(Box::new(charge)))));
                    }
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        let report = fuser.report(pid.map(Tgid), clock::now());
        match first_error {
            Some(error) if report.processes.is_empty() => Err(Failure::of(Exit::NoDaemon, &error)),
            _ => Ok(report),
        }
    }

    fn lines(&self, report: &mut Report) -> Result<(), Failure> {
        for process in &mut report.processes {
            let modules = mapped_files(process.pid);
            let stacks = process.owners.iter_mut().map(|row| &mut row.stack);
            for frame in stacks.flatten() {
                let Some(path) = frame.module.as_ref().and_then(|name| modules.get(name)) else {
                    continue;
                };
                frame.line = symbols::lines(Path::new(path), &[frame.offset])
                    .ok()
                    .and_then(|found| found.into_iter().next().flatten())
                    .map(|line| match line.line {
                        Some(number) => format!("{}:{number}", line.file),
                        None => line.file,
                    });
            }
        }
        Ok(())
    }

    fn otlp_json(&self, report: &Report, series: &mut Accumulator) -> Vec<String> {
        let window = Window::of(report);
        if report.about.is_some() {
            return series.json(report, window);
        }
        // A report that came over the socket is of this host.
        let identity = host::identity(Path::new("/"));
        let about = Some(Arc::new(About { identity, support: Vec::new() }));
        series.json(&Report { about, ..report.clone() }, window)
    }

    fn probe(&self, config: &Config) -> (Vec<HookProbe>, PagesProbe) {
        let mut hooks = probing::hooks(&memprov_bpf::probe());
        hooks.extend(probing::sideband(&memprov_perfmem::probe_sideband(&config.root)));
        hooks.push(probing::regions(memprov_bpf::Regions::listen().err().as_ref()));
        let of_pmu = |row: &HookProbe| row.id == PMU;
        hooks.extend(probing::unsampled(&config.access).into_iter().filter(of_pmu));
        hooks.push(probing::faults(&memprov_perfmem::probe_faults(&config.root)));
        let scanner = Scanner::new(Proc::at(&config.root), ScanOptions::default());
        let pages = probing::pages(&config.root, &scanner);
        (hooks, pages)
    }
}

impl Local {
    fn daemon(
        &self,
        settings: &Effective,
        watch: &Watch,
        screen: Option<&Screen>,
        record: Option<&Path>,
        redact: bool,
    ) -> Result<(), Failure> {
        let setup = Setup {
            config: settings.config.clone(),
            sources: settings.sources.clone(),
            pids: watch.pids.iter().copied().map(Tgid).collect(),
            record: record.map(Path::to_path_buf),
            redact,
            limit: watch.limit,
            screen,
        };
        daemon::run(setup).map_err(|error| unwritten(&error))
    }
}

/// Files that a process maps executable, by file name: where a client can read them.
fn mapped_files(pid: u32) -> BTreeMap<String, String> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut files = BTreeMap::new();
    for line in memprov_proc::maps::lines(&maps).flatten() {
        let path = String::from_utf8_lossy(&line.name()).into_owned();
        if let (true, Some(name)) = (path.starts_with('/'), path.rsplit('/').next()) {
            files.insert(name.to_owned(), format!("/proc/{pid}/root{path}"));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::path::Path;

    use super::unwritten;
    use crate::setup::DaemonError;
    use crate::trace::{Problem, TraceError};

    #[test]
    fn a_trace_that_meets_a_full_disk_is_named_with_what_it_is_good_for() {
        let full = |path: &Path| {
            let problem = Problem::Write(Error::from(ErrorKind::StorageFull));
            unwritten(&DaemonError::Trace(TraceError { path: path.to_owned(), line: 7, problem }))
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = file.path().display();
        let empty = full(file.path());
        assert_eq!(empty.exit.status(), 1);
        assert!(empty.lines[0].contains("line 7") && empty.lines[1].contains("holds nothing"));
        std::fs::write(file.path(), "{}").unwrap();
        let half = full(file.path());
        assert!(half.lines[1].contains(&format!("`memprov replay {name}`")), "{:?}", half.lines);
    }
}
