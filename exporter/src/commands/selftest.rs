//! `memprov selftest`.

use std::ffi::OsString;

use super::{Exit, Failure, Io, load};
use crate::cli::{Selftest, SelftestOf};
use crate::selftest::{self, SelftestError};

/// Tests what is asked for: 0 where the truth is found, 1 where it is not, 69 where there is nothing to be tested.
pub(super) fn selftest(
    args: &Selftest,
    env: &[(OsString, OsString)],
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let config = load(&args.settings, None, env)?.config;
    let found = match args.what {
        SelftestOf::Pmu => selftest::pmu(&config, args.output.as_deref()),
    };
    let found = found.map_err(|error| match error {
        SelftestError::NoPmu(_) | SelftestError::Unread(_) => {
            let mut failure = Failure::of(Exit::NoDaemon, &error);
            failure.lines.push("`memprov check` says at pmu.mem what would give one".to_owned());
            failure
        }
        other => Failure::of(Exit::Failed, &other),
    })?;
    let written = args.output.iter().map(|path| format!("written: {}", path.display()));
    for line in found.lines().into_iter().chain(written) {
        writeln!(io.out, "{line}").map_err(|error| Failure::output(&error))?;
    }
    if found.holds() {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, "the PMU did not tell the share that is true"))
}
