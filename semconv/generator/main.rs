//! Writes what is made of the registry: `semconv/src/generated.rs` and `docs/METRICS.md`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod files;
mod markdown;
mod prometheus;
mod registry;
mod rules;
mod rust;
#[cfg(test)]
mod tests;

/// What keeps the registry from being written down.
#[derive(Debug, thiserror::Error)]
enum Problem {
    /// A file or folder can't be read.
    #[error("read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file is not of weaver's format.
    #[error("{file}:{line}: {message}")]
    Form { file: String, line: u64, message: String },
    /// A rule of names does not hold.
    #[error("{file}:{line}: {what}")]
    Rule { file: String, line: u64, what: String },
    /// What was made can't be written.
    #[error("write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// What was made can't be put together.
    #[error("format a line")]
    Format(#[from] fmt::Error),
}

fn main() -> ExitCode {
    let written = made().and_then(|made| {
        let write = |(path, text): (PathBuf, String)| {
            std::fs::write(&path, text).map_err(|source| Problem::Write { path, source })
        };
        let problems: Vec<_> = made.into_iter().filter_map(|one| write(one).err()).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("{}", chain(problem)));
            ExitCode::FAILURE
        }
    }
}

/// An error and its sources, on one line.
fn chain(problem: &Problem) -> String {
    let mut text = problem.to_string();
    let mut source = problem.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

/// Every file that is made, with what belongs into it.
fn made() -> Result<[(PathBuf, String); 2], Vec<Problem>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let registry = registry::resolve(&files::read(&here.join("registry"))?)?;
    let one = |problem: fmt::Error| vec![Problem::from(problem)];
    Ok([
        (here.join("src/generated.rs"), rust::write(&registry).map_err(one)?),
        (here.join("../docs/METRICS.md"), markdown::write(&registry).map_err(one)?),
    ])
}
