//! Commands that watch nothing: what this host can tell, what a code means, what is set.

use std::ffi::OsString;

use super::{Engine, Exit, Failure, Io, line, load, say};
use crate::check;
use crate::cli::{Check, CheckOutput, ConfigArgs, Explain};
use crate::config::{Config, LogLevel, at_reload};
use crate::encode::Estimate;
use crate::logging::chain;
use crate::otlp::{Settings, StartError};
use crate::report::Identity;
use crate::support::{Matrix, code};

/// The document of `memprov check`.
#[derive(serde::Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    matrix: &'a Matrix,
    /// Series that would be exported, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Estimate>,
}

pub(super) fn check(
    args: &Check,
    env: &[(OsString, OsString)],
    engine: &dyn Engine,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let config = load(&args.settings, None, env)?.config;
    (io.log)(LogLevel::Warn);
    let (hooks, pages) = engine.probe(&config);
    let matrix = Matrix::of(&check::probe(&config, hooks, pages));
    let series = check::series(&config);
    let text = match args.output {
        CheckOutput::Json => line(&Checked { matrix: &matrix, series })?,
        CheckOutput::Text => {
            let series = check::render_series(series, &config.export.detail);
            let reload = at_reload().map(|line| line + "\n").concat();
            check::render(&matrix, io.terminal.color) + &series + &reload
        }
    };
    io.out.write_all(text.as_bytes()).map_err(|error| Failure::output(&error))?;
    advise(&config, io);
    for line in check::idle(&config) {
        say(io, &format!("warning: {line}"));
    }
    match check::demand(&matrix, &args.require) {
        check::Demand::Met(warnings) => {
            for warning in warnings {
                say(io, &format!("warning: {warning}"));
            }
            Ok(())
        }
        check::Demand::Failed(lines) => Err(Failure { exit: Exit::Failed, lines }),
        check::Demand::Unknown(ids) => Err(Failure {
            exit: Exit::Usage,
            lines: ids
                .iter()
                .map(|id| format!("--require {id}: no such capability; `memprov check` lists all"))
                .collect(),
        }),
    }
}

pub(super) fn explain(args: &Explain, io: &mut Io<'_>) -> Result<(), Failure> {
    let told = code::decode(&args.code).map_err(|error| {
        let line = format!("{:?} is no support code: {error}", args.code);
        Failure::new(Exit::Usage, line)
    })?;
    let width = told.iter().map(|(id, _)| id.len()).max().unwrap_or(0);
    let lines: String = told.iter().map(|(id, state)| format!("{id:width$}  {state}\n")).collect();
    io.out.write_all(lines.as_bytes()).map_err(|error| Failure::output(&error))
}

pub(super) fn config(
    args: &ConfigArgs,
    env: &[(OsString, OsString)],
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let effective = load(&args.settings, None, env)?;
    advise(&effective.config, io);
    if args.check {
        return usable(&effective.config);
    }
    let text = effective.to_toml();
    io.out.write_all(text.as_bytes()).map_err(|error| Failure::output(&error))
}

/// Whether the files that settings name for TLS can be used, where something is sent by TLS; all that cannot.
fn usable(config: &Config) -> Result<(), Failure> {
    let wrong = |error: StartError| chain(&error);
    let lines: Vec<String> = match Settings::both(config, &Identity::default()) {
        Ok(both) => {
            both.into_iter().flatten().filter_map(|s| s.proved().err()).map(wrong).collect()
        }
        Err(error) => vec![wrong(error)],
    };
    if lines.is_empty() { Ok(()) } else { Err(Failure { exit: Exit::Usage, lines }) }
}

/// Says what of the settings does not do what it seems to be there for.
fn advise(config: &Config, io: &mut Io<'_>) {
    for line in config.advice() {
        say(io, &format!("warning: {line}"));
    }
}
