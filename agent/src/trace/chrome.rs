//! Writer of Chrome traces: a JSON object with an array of events.

use std::io::{self, Write};

use serde_json::Value;

/// Converts nanoseconds to the microseconds of a trace.
#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days, more than a clock that starts at boot usually shows"
)]
pub(super) fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Trace that is being written.
pub(super) struct ChromeTrace<'w> {
    output: &'w mut dyn Write,
    has_events: bool,
}

impl<'w> ChromeTrace<'w> {
    /// Begins a trace. Viewers show its times in milliseconds.
    pub(super) fn begin(output: &'w mut dyn Write) -> io::Result<Self> {
        output.write_all(b"{\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[")?;
        Ok(Self {
            output,
            has_events: false,
        })
    }

    /// Writes an event, on a line of its own.
    pub(super) fn event(&mut self, event: &Value) -> io::Result<()> {
        let separator: &[u8] = if self.has_events { b",\n" } else { b"\n" };
        self.has_events = true;
        self.output.write_all(separator)?;
        serde_json::to_writer(&mut *self.output, event)?;
        Ok(())
    }

    /// Ends the trace.
    pub(super) fn end(self) -> io::Result<()> {
        self.output.write_all(b"\n]}\n")
    }
}
