//! Ends of processes, as agents report them.

use std::fmt;

use echo_core::units::Nanos;
use fleet_proto::attribute;

use crate::attributes;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Killed by the signal of this number.
    Signal(u32),
    /// Returned this number.
    Code(u32),
}

impl Exit {
    /// Reads it from the attributes of a point; `None` if the process had not ended.
    pub(crate) fn from_attributes(attrs: &str) -> Option<Self> {
        let number = |name| attributes::number(attrs, name).and_then(attributes::whole);
        let signal = number(attribute::EXIT_SIGNAL).map(Self::Signal);
        signal.or_else(|| number(attribute::EXIT_CODE).map(Self::Code))
    }

    /// Returns the signal that ended it, also where a shell or a handler returned its number.
    const fn signal(self) -> Option<u32> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::Code(code @ 129..=192) => Some(code - 128),
            Self::Code(_) => None,
        }
    }

    /// Returns whether the process failed: it neither returned 0 nor ended by a signal that requests the
    /// end of a process.
    pub fn is_failure(self) -> bool {
        /// `SIGHUP`, `SIGINT`, `SIGUSR1`, `SIGUSR2` and `SIGTERM`.
        const REQUESTS: [u32; 5] = [1, 2, 10, 12, 15];
        match self.signal() {
            Some(signal) => !REQUESTS.contains(&signal),
            None => self != Self::Code(0),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::Code(code) => return write!(f, "with exit code {code}"),
            Self::Signal(1) => "SIGHUP",
            Self::Signal(2) => "SIGINT",
            Self::Signal(3) => "SIGQUIT",
            Self::Signal(4) => "SIGILL",
            Self::Signal(6) => "SIGABRT",
            Self::Signal(7) => "SIGBUS",
            Self::Signal(8) => "SIGFPE",
            Self::Signal(9) => "SIGKILL",
            Self::Signal(11) => "SIGSEGV",
            Self::Signal(15) => "SIGTERM",
            Self::Signal(number) => return write!(f, "by signal {number}"),
        };
        write!(f, "by {name}")
    }
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// How it ended.
    pub exit: Exit,
    /// Time, on the clock of its host.
    pub at: Nanos,
    /// Arrival time of the report.
    pub received: Nanos,
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn a_process_that_was_asked_to_end_has_not_failed() {
        let ends = [
            (r#"{"fleet.exit_signal":9}"#, Some(("by SIGKILL", true))),
            (r#"{"fleet.exit_signal":11}"#, Some(("by SIGSEGV", true))),
            (r#"{"fleet.exit_signal":35}"#, Some(("by signal 35", true))),
            (r#"{"fleet.exit_signal":15}"#, Some(("by SIGTERM", false))),
            (r#"{"fleet.exit_code":1}"#, Some(("with exit code 1", true))),
            (
                r#"{"fleet.exit_code":137}"#,
                Some(("with exit code 137", true)),
            ),
            (
                r#"{"fleet.exit_code":130}"#,
                Some(("with exit code 130", false)),
            ),
            (
                r#"{"fleet.exit_code":0}"#,
                Some(("with exit code 0", false)),
            ),
            (r#"{"fleet.exit_code":-1}"#, None),
            (r#"{"fleet.waiting_ms":0.0}"#, None),
        ];
        for (attrs, expected) in ends {
            let exit = Exit::from_attributes(attrs);
            let found = exit.map(|exit| (exit.to_string(), exit.is_failure()));
            let expected = expected.map(|(text, is_failure)| (text.to_owned(), is_failure));
            assert_eq!(found, expected, "{attrs}");
        }
    }
}
