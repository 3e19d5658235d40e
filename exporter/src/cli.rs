//! The command line: what can be asked for, and how it becomes settings.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Flag, Sources, parse_duration};

/// Read when it is there and no other file is named.
const DEFAULT_FILE: &str = "/etc/memprov/memprov.toml";

/// Tells which mapping, file or call site owns the memory that processes hold, and how sure that is.
#[derive(Debug, Parser)]
#[command(name = "memprov", version, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 success, 1 failure, 64 wrong usage or configuration, \
                        69 no daemon or nothing to say.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What memprov can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch in the foreground until SIGTERM or Ctrl-C, answer `memprov report`, and export
    Run(Run),
    /// Ask the daemon who owns what now
    Report(Report),
    /// Write the evidence to a trace, to be replayed anywhere
    Record(Record),
    /// Make the report of a trace
    Replay(Replay),
    /// Make the report of a recording of perf (perf mem, perf c2c, perf record -d)
    Import(Import),
    /// Say what this host can tell, what is missing, what that costs and how to get it
    Check(Check),
    /// Say what the code of an exemplar (`support.code`) tells of the host that sent it
    Explain(Explain),
    /// Try what only this host can try: whether its PMU tells the truth of loads that are known
    Selftest(Selftest),
    /// End what a killed memprov left in the kernel: a DAMON monitor of its own
    Undo(Undo),
    /// Print the configuration in effect, with the origin of each value that is no default
    Config(ConfigArgs),
}

/// Settings that several commands take.
#[derive(Clone, Debug, Default, Args)]
pub struct Settings {
    /// Configuration file [default: /etc/memprov/memprov.toml if it exists; variable MEMPROV_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where socket and kill switch live, for one memprov at a time [default: /run/memprov]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<String>,
    /// Read /proc and /sys below this directory
    #[arg(long, value_name = "DIR")]
    pub root: Option<String>,
    /// Set any key of the configuration file: --set scan.budget=0.02
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
}

/// `memprov run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// How often books are closed and exported [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
    /// Watch this process and all its descendants, living and future; repeatable [default: all processes]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Print the report at each interval [default: table on a terminal, else none]
    #[arg(long, value_name = "FORM")]
    pub output: Option<RunOutput>,
    /// Stop by itself after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub limit: Option<Duration>,
}

/// What `run` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunOutput {
    /// The table.
    Table,
    /// Nothing.
    None,
}

/// `memprov report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Only this process, its observed descendants and the shared objects that they map
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Form of the report [default: table on a terminal, else report-json]
    #[arg(long, value_name = "FORM")]
    pub output: Option<ReportOutput>,
    /// Ask no daemon: read /proc once; that tells no call sites
    #[arg(long)]
    pub snapshot: bool,
    /// Look up source files and lines, where debug information is installed
    #[arg(long)]
    pub lines: bool,
    /// Every process and owner in the table, instead of the largest
    #[arg(long)]
    pub all: bool,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportOutput {
    /// For people.
    Table,
    /// The document memprov.report/1.
    #[value(alias = "json")]
    ReportJson,
    /// The OTLP request that would be sent, as JSON.
    OtlpJson,
}

/// `memprov record`.
#[derive(Debug, Args)]
pub struct Record {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// How often books are closed [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
    /// Watch this process and all its descendants, living and future; repeatable [default: all processes]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// The trace to write; compressed when the name ends in .zst
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Write hashes in place of names and move addresses, so that the trace can be given away
    #[arg(long)]
    pub redact: bool,
    /// Stop by itself after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub limit: Option<Duration>,
}

/// `memprov replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// The trace
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,
    /// Form of the report [default: table on a terminal, else report-json]
    #[arg(long, value_name = "FORM")]
    pub output: Option<ReportOutput>,
    /// Close books as often as this, by the trace's own clock [default: once, at its end]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// Every process and owner in the table, instead of the largest
    #[arg(long)]
    pub all: bool,
}

/// `memprov import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// The recording: a file of perf record or a pipe; - is standard input
    #[arg(value_name = "FILE")]
    pub recording: PathBuf,
    /// Form of the report [default: table on a terminal, else report-json]
    #[arg(long, value_name = "FORM")]
    pub output: Option<ReportOutput>,
    /// Close books as often as this, by the recording's own clock [default: once, at its end]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// Every process and owner in the table, instead of the largest
    #[arg(long)]
    pub all: bool,
    /// Write a trace to be replayed, and no report; compressed when the name ends in .zst
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "interval", "all"])]
    pub trace: Option<PathBuf>,
    /// Send the series, at the recording's own times, to this OTLP receiver, and print no report; books are closed as
    /// often as --interval or export.interval says
    #[arg(long, value_name = "URL", conflicts_with_all = ["output", "trace", "all"])]
    pub endpoint: Option<String>,
    /// Write hashes in place of names and move addresses, so that the trace can be given away
    #[arg(long, requires = "trace")]
    pub redact: bool,
}

/// `memprov check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Form of the answer
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub output: CheckOutput,
    /// Fail with status 1 unless this capability is there (degraded passes, with a warning); repeatable
    #[arg(long, value_name = "CAPABILITY")]
    pub require: Vec<String>,
}

/// Forms of the support matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckOutput {
    /// For people.
    Text,
    /// The document memprov.check/1.
    Json,
}

/// `memprov explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The code
    #[arg(value_name = "CODE")]
    pub code: String,
}

/// `memprov selftest`.
#[derive(Debug, Args)]
pub struct Selftest {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// What is tested: pmu makes loads of a known mix for ten seconds. Status 0 when the share that is found holds the
    /// truth, 1 when not, 69 when there is no PMU that samples
    #[arg(value_name = "WHAT")]
    pub what: SelftestOf,
    /// Write what was sampled to a trace, with hashes for names and moved addresses, to be sent to whoever asks for it;
    /// compressed when the name ends in .zst
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What can be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SelftestOf {
    /// Sampled memory accesses.
    Pmu,
}

/// `memprov undo`.
#[derive(Debug, Args)]
pub struct Undo {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
}

/// `memprov config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Print nothing; only say what is wrong
    #[arg(long)]
    pub check: bool,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("this is no KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl Settings {
    /// The sources of settings of one call. A flag of its own wins over `--set`.
    #[must_use]
    pub fn sources(&self, interval: Option<&str>, env: &[(OsString, OsString)]) -> Sources {
        let flag = |flag: &str, key: &str, value: &str| Flag {
            flag: flag.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let mut flags: Vec<Flag> =
            self.set.iter().map(|(key, value)| flag("--set", key, value)).collect();
        let own = [
            ("--state-dir", "state_dir", self.state_dir.as_deref()),
            ("--root", "root", self.root.as_deref()),
            ("--interval", "export.interval", interval),
        ];
        flags.extend(own.iter().filter_map(|(name, key, value)| Some(flag(name, key, (*value)?))));
        let named = self.config.clone().or_else(|| {
            let variable = env.iter().find(|(name, _)| name == "MEMPROV_CONFIG");
            variable
                .map(|(_, value)| PathBuf::from(value))
                .filter(|path| !path.as_os_str().is_empty())
        });
        let default = PathBuf::from(DEFAULT_FILE);
        let file = named.or_else(|| default.exists().then_some(default));
        Sources { file, env: env.to_vec(), flags }
    }
}
