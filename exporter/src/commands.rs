//! What each command does, around an [`Engine`] that watches, records and replays.

mod exit;
mod selftest;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use memprov_damon::Undone;

pub use exit::{Exit, Failure};

use crate::cli::{
    Cli, Command, Import, Record, Replay, Report as ReportArgs, ReportOutput, Run, RunOutput,
    Settings, Undo,
};
use crate::config::{Config, Effective, LogLevel, Problem, STATE_DIR};
use crate::encode::{Accumulator, Options};
use crate::logging;
use crate::otlp::Stats;
use crate::report::Report;
use crate::screen::{Screen, Terminal};
use crate::socket::{ClientError, fetch, listener_pid};
use crate::sources::regions::MARK;
use crate::support::{HookProbe, PagesProbe};
use crate::table::{View, render};

mod about;

/// What is watched, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// These processes and all their descendants; none: every process.
    pub pids: Vec<u32>,
    /// Stop by itself after this time.
    pub limit: Option<Duration>,
}

/// Takes the reports of a replay, one after the other.
pub type Sink<'a> = dyn FnMut(&Report) -> Result<(), Failure> + 'a;

/// What watches, records and replays.
pub trait Engine {
    /// The daemon, until SIGTERM, SIGINT or the end of `watch.limit`. It shows each closed report on the screen, and reads
    /// its settings again at SIGHUP.
    ///
    /// # Errors
    /// When it cannot start.
    fn run(
        &self,
        settings: &Effective,
        watch: &Watch,
        screen: Option<&Screen>,
    ) -> Result<(), Failure>;

    /// The same, writing its evidence to `trace`, with hashes for names where it is to be redacted.
    ///
    /// # Errors
    /// When it cannot start, or not write.
    fn record(
        &self,
        settings: &Effective,
        watch: &Watch,
        trace: &Path,
        redact: bool,
    ) -> Result<(), Failure>;

    /// Replays a trace. With an interval the sink gets a report at each, by the trace's clock, and the last as of its
    /// end; without one only that.
    ///
    /// # Errors
    /// When the trace cannot be read, and whatever the sink returns.
    fn replay(
        &self,
        trace: &Path,
        interval: Option<Duration>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure>;

    /// Reads a recording of perf, with `"source": "import"`; otherwise as a trace.
    ///
    /// # Errors
    /// When it cannot be read, and whatever the sink returns.
    fn import(
        &self,
        recording: &Path,
        interval: Option<Duration>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure>;

    /// Sends the series of a recording of perf to `config.export.endpoint`, at its own times, a pane an interval
    /// (`None`: as configured).
    ///
    /// # Errors
    /// When it cannot be read, has no times that others understand, or did not arrive as a whole.
    fn send(
        &self,
        recording: &Path,
        interval: Option<Duration>,
        config: &Config,
    ) -> Result<Stats, Failure>;

    /// Writes a recording of perf to a trace, with hashes for names where it is to be redacted.
    ///
    /// # Errors
    /// When it cannot be read, or the trace not be written.
    fn convert(&self, recording: &Path, trace: &Path, redact: bool) -> Result<(), Failure>;

    /// One reading of `/proc`, with `"source": "snapshot"`.
    ///
    /// # Errors
    /// When nothing can be read.
    fn snapshot(&self, config: &Config, pid: Option<u32>) -> Result<Report, Failure>;

    /// Adds source files and lines to the functions of a report, where debug information is installed.
    ///
    /// # Errors
    /// Never for missing debug information.
    fn lines(&self, report: &mut Report) -> Result<(), Failure>;

    /// What would be sent of a report: OTLP requests as JSON, a line each.
    fn otlp_json(&self, report: &Report, series: &mut Accumulator) -> Vec<String>;

    /// Tries hooks and ways to read pages, and undoes it.
    fn probe(&self, config: &Config) -> (Vec<HookProbe>, PagesProbe);
}

/// Where a command's words go.
pub struct Io<'a> {
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
    /// What standard output is.
    pub terminal: Terminal,
    /// Begins logging.
    pub log: &'a dyn Fn(LogLevel),
}

/// Runs one command on the process' own streams.
pub fn main(
    args: impl IntoIterator<Item = OsString>,
    env: Vec<(OsString, OsString)>,
    engine: &dyn Engine,
) -> ExitCode {
    let terminal = Terminal::detect(&env);
    let mut io = Io {
        // Not locked: the screen of `run` may be written by another thread.
        out: &mut io::stdout(),
        err: &mut io::stderr(),
        terminal,
        log: &logging::at,
    };
    ExitCode::from(dispatch(args, &env, engine, &mut io))
}

/// Runs one command; returns its exit status.
pub fn dispatch(
    args: impl IntoIterator<Item = OsString>,
    env: &[(OsString, OsString)],
    engine: &dyn Engine,
    io: &mut Io<'_>,
) -> u8 {
    let result = match Cli::try_parse_from(args) {
        Ok(cli) => execute(cli.command, env, engine, io),
        Err(error) if error.exit_code() == 0 => {
            write!(io.out, "{}", error.render()).map_err(|error| Failure::output(&error))
        }
        Err(error) => Err(Failure::new(Exit::Usage, error.render().to_string().trim_end())),
    };
    let Err(failure) = result else { return 0 };
    for line in &failure.lines {
        // When even standard error is closed, the status is all that is left to say.
        if writeln!(io.err, "memprov: {line}").is_err() {
            break;
        }
    }
    failure.exit.status()
}

fn execute(
    command: Command,
    env: &[(OsString, OsString)],
    engine: &dyn Engine,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run(&args, env, engine, io),
        Command::Report(args) => report(&args, env, engine, io),
        Command::Record(args) => record(args, env, engine, io),
        Command::Replay(args) => replay(&args, env, engine, io),
        Command::Import(args) => import(&args, env, engine, io),
        Command::Check(args) => about::check(&args, env, engine, io),
        Command::Explain(args) => about::explain(&args, io),
        Command::Selftest(args) => selftest::selftest(&args, env, io),
        Command::Undo(args) => undo(&args, env, io),
        Command::Config(args) => about::config(&args, env, io),
    }
}

fn load(
    settings: &Settings,
    interval: Option<&str>,
    env: &[(OsString, OsString)],
) -> Result<Effective, Failure> {
    Effective::load(&settings.sources(interval, env)).map_err(|problems| Failure {
        exit: Exit::Usage,
        lines: problems.iter().map(Problem::to_string).collect(),
    })
}

/// The state directory as suggested commands have to name it.
fn place(config: &Config) -> Option<String> {
    let other = config.state_dir != Path::new(STATE_DIR);
    other.then(|| config.state_dir.display().to_string())
}

fn run(
    args: &Run,
    env: &[(OsString, OsString)],
    engine: &dyn Engine,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let effective = load(&args.settings, args.interval.as_deref(), env)?;
    let config = &effective.config;
    let shown = match args.output {
        Some(RunOutput::Table) => true,
        Some(RunOutput::None) => false,
        None => io.terminal.interactive,
    };
    // Lines between the tables of a terminal are for what a human has to know, unless more was asked for.
    let quiet = shown && io.terminal.interactive && !effective.origins.contains_key("log");
    (io.log)(if quiet { LogLevel::Warn } else { config.log });
    let screen = shown.then(|| Screen::new(io.terminal, place(config)));
    let watch = Watch { pids: args.pid.clone(), limit: args.limit };
    engine.run(&effective, &watch, screen.as_ref())
}

fn record(
    args: Record,
    env: &[(OsString, OsString)],
    engine: &dyn Engine,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let effective = load(&args.settings, args.interval.as_deref(), env)?;
    (io.log)(effective.config.log);
    let watch = Watch { pids: args.pid, limit: args.limit };
    engine.record(&effective, &watch, &args.output, args.redact)
}

fn replay(
    args: &Replay,
    env: &[(OsString, OsString)],
    engine: &dyn Engine,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let config = load(&args.settings, None, env)?.config;
    (io.log)(LogLevel::Warn);
    let trace = args.trace.to_str().map(str::to_owned);
    let view = View { all: args.all, trace, ..view(io.terminal) };
    let mut printer = Printer::new(form(args.output, io.terminal), view, &config, engine);
    engine.replay(&args.trace, args.interval, &mut |report| printer.print(report, io.out))
}

fn import(
    args: &Import,
    env: &[(OsString, OsString)],
    engine: &dyn Engine,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let mut config = load(&args.settings, None, env)?.config;
    (io.log)(LogLevel::Warn);
    if let Some(trace) = &args.trace {
        return engine.convert(&args.recording, trace, args.redact);
    }
    if let Some(endpoint) = &args.endpoint {
        config.export.endpoint.clone_from(endpoint);
        let Stats { sent, delivered_points, .. } =
            engine.send(&args.recording, args.interval, &config)?;
        let line = format!("{delivered_points} points in {sent} requests to {endpoint}");
        return writeln!(io.out, "{line}").map_err(|error| Failure::output(&error));
    }
    // What came through a pipe does not come again.
    let trace = args.recording.to_str().filter(|name| *name != "-").map(str::to_owned);
    let view = View { all: args.all, trace, ..view(io.terminal) };
    let mut printer = Printer::new(form(args.output, io.terminal), view, &config, engine);
    engine.import(&args.recording, args.interval, &mut |report| printer.print(report, io.out))
}

fn report(
    args: &ReportArgs,
    env: &[(OsString, OsString)],
    engine: &dyn Engine,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let effective = load(&args.settings, None, env)?;
    let config = &effective.config;
    (io.log)(LogLevel::Warn);
    let form = form(args.output, io.terminal);
    let named = effective.origins.contains_key("state_dir");
    let answer = if args.snapshot { None } else { Some(fetch(&config.state_dir, args.pid)) };
    let mut report = match answer {
        None => engine.snapshot(config, args.pid)?,
        Some(Err(ClientError::NoDaemon { socket })) if !named => {
            let place = socket.display();
            say(io, &format!("no daemon on {place}: a snapshot of /proc, without call sites"));
            engine.snapshot(config, args.pid)?
        }
        Some(Err(error)) => {
            let exit = match &error {
                ClientError::Malformed { .. } => Exit::Failed,
                _ => Exit::NoDaemon,
            };
            return Err(Failure::of(exit, &error));
        }
        // As the daemon wrote it, fields of a newer one included.
        Some(Ok(body)) if form == ReportOutput::ReportJson && !args.lines => {
            let written = io.out.write_all(&body).and_then(|()| io.out.write_all(b"\n"));
            return written.map_err(|error| Failure::output(&error));
        }
        Some(Ok(body)) => serde_json::from_slice(&body)
            .map_err(|error| Failure::new(Exit::Failed, format!("read the report: {error}")))?,
    };
    if args.lines {
        engine.lines(&mut report)?;
    }
    let daemon = report.source == "daemon" || listener_pid(&config.state_dir).is_some();
    let state_dir = place(config);
    let view = View { all: args.all, state_dir, daemon, ..view(io.terminal) };
    Printer::new(form, view, config, engine).print(&report, io.out)
}

/// One line on standard error. That it is closed is no reason to keep an answer from standard output.
fn say(io: &mut Io<'_>, line: &str) {
    drop(writeln!(io.err, "memprov: {line}"));
}

fn form(wanted: Option<ReportOutput>, terminal: Terminal) -> ReportOutput {
    let usual = if terminal.interactive { ReportOutput::Table } else { ReportOutput::ReportJson };
    wanted.unwrap_or(usual)
}

fn view(terminal: Terminal) -> View {
    View { width: terminal.width(), color: terminal.color, ..View::default() }
}

/// Prints reports in one form; JSON is one line, so that several are JSON lines.
struct Printer<'a> {
    form: ReportOutput,
    view: View,
    /// The series of all reports so far.
    series: Accumulator,
    engine: &'a dyn Engine,
}

impl<'a> Printer<'a> {
    fn new(form: ReportOutput, view: View, config: &Config, engine: &'a dyn Engine) -> Self {
        Self { form, view, series: Accumulator::new(Options::of(config)), engine }
    }

    fn print(&mut self, report: &Report, out: &mut dyn Write) -> Result<(), Failure> {
        let text = match self.form {
            ReportOutput::Table => render(report, &self.view),
            ReportOutput::ReportJson => line(report)?,
            ReportOutput::OtlpJson => {
                let lines = self.engine.otlp_json(report, &mut self.series);
                lines.into_iter().map(|line| line + "\n").collect()
            }
        };
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| Failure::output(&error))
    }
}

fn line(document: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(document)
        .map(|text| text + "\n")
        .map_err(|error| Failure::of(Exit::Failed, &error))
}

fn undo(args: &Undo, env: &[(OsString, OsString)], io: &mut Io<'_>) -> Result<(), Failure> {
    let config = load(&args.settings, None, env)?.config;
    let undone = memprov_damon::undo(&config.root, &config.state_dir.join(MARK))
        .map_err(|error| Failure::of(Exit::Failed, &error))?;
    let line = match undone {
        Undone::Nothing => "no monitor of memprov's own in DAMON is known in this state directory",
        Undone::Gone => "memprov's monitor of DAMON was gone already",
        Undone::NotOurs => "what is in DAMON's tree is somebody else's, and left alone",
        Undone::Ended => "memprov's monitor of DAMON is ended",
    };
    writeln!(io.out, "{line}").map_err(|error| Failure::output(&error))
}

#[cfg(test)]
mod tests;
