//! The memprov binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use memprov::commands;
use memprov::engine::Local;

fn main() -> ExitCode {
    commands::main(std::env::args_os(), std::env::vars_os().collect(), &Local)
}
