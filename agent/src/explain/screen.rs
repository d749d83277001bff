//! Output of `trace`: a screen per period on a terminal, blocks of text or JSON lines otherwise.

use std::io::{self, IsTerminal, Write, stdout};

use fleet_agent_core::explain::ProcessReport;

use crate::explain::json;
use crate::explain::text::Period;

/// Control sequence that clears a terminal.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(super) struct Screen {
    json: bool,
    is_terminal: bool,
    pids: Vec<u32>,
    shown: usize,
}

impl Screen {
    /// Creates the output for these processes, or for all of them.
    pub(super) fn new(json: bool, pids: Vec<u32>) -> Self {
        Self {
            json,
            is_terminal: stdout().is_terminal(),
            pids,
            shown: 0,
        }
    }

    /// Returns the number of reports shown so far.
    pub(super) const fn n_shown(&self) -> usize {
        self.shown
    }

    /// Shows the reports of a period.
    pub(super) fn show(&mut self, reports: &[ProcessReport]) -> io::Result<()> {
        let is_selected =
            |own: &&ProcessReport| self.pids.is_empty() || self.pids.contains(&own.pid);
        let selected: Vec<&ProcessReport> = reports.iter().filter(is_selected).collect();
        if selected.is_empty() {
            return Ok(());
        }
        self.shown += selected.len();
        let mut out = stdout().lock();
        if self.is_terminal && !self.json {
            out.write_all(CLEAR.as_bytes())?;
        }
        for report in selected {
            if self.json {
                writeln!(out, "{}", json::report(report))?;
            } else {
                writeln!(out, "{}", Period(report))?;
            }
        }
        out.flush()
    }
}
