//! Where a table goes: a terminal that is redrawn, or a stream that is appended to.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use crate::report::Report;
use crate::table::{View, render};

/// What is known of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// It is a terminal.
    pub interactive: bool,
    /// Colours are welcome: a terminal, and neither `NO_COLOR` nor `TERM=dumb`.
    pub color: bool,
}

impl Terminal {
    /// Looks at standard output.
    #[must_use]
    pub fn detect(env: &[(OsString, OsString)]) -> Self {
        let interactive = io::stdout().is_terminal();
        let refused = env.iter().any(|(name, value)| {
            name == "NO_COLOR" && !value.is_empty() || name == "TERM" && value == "dumb"
        });
        Self { interactive, color: interactive && !refused }
    }

    /// Columns now; those of [`View::default`] where it is no terminal.
    #[must_use]
    pub fn width(self) -> usize {
        let usual = View::default().width;
        if !self.interactive {
            return usual;
        }
        rustix::termios::tcgetwinsize(io::stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
            // A terminal that does not know says 0.
            .filter(|columns| *columns > 0)
            .unwrap_or(usual)
    }
}

/// The table of a running daemon.
#[derive(Clone, Debug)]
pub struct Screen {
    terminal: Terminal,
    state_dir: Option<String>,
}

impl Screen {
    /// A screen on standard output. `state_dir` is written into the suggested commands.
    #[must_use]
    pub fn new(terminal: Terminal, state_dir: Option<String>) -> Self {
        Self { terminal, state_dir }
    }

    /// Shows a report: in place of the last one on a terminal, else after it and an empty line.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn show(&self, report: &Report) -> io::Result<()> {
        let view = View {
            width: self.terminal.width(),
            color: self.terminal.color,
            all: false,
            state_dir: self.state_dir.clone(),
            daemon: true,
            trace: None,
        };
        let text = render(report, &view);
        let mut out = io::stdout().lock();
        if self.terminal.interactive {
            // Home, and clear from there: no flicker of an empty screen between two reports.
            write!(out, "\x1b[H\x1b[J{text}")?;
        } else {
            writeln!(out, "{text}")?;
        }
        out.flush()
    }
}
