//! Report of a check, as text and as JSON.

use std::fmt;

use fleet_agent_core::printable::printable;
use serde_json::{Value, json};

/// Maximum length of a text, characters; paths and names of processes are those of other users.
const MAX_TEXT: usize = 4_096;

/// State of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No limitation.
    Ok,
    /// The agent runs, but collects less.
    Degraded,
    /// The agent cannot run.
    Missing,
}

impl State {
    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "OK",
            Self::Degraded => "DEGRADED",
            Self::Missing => "MISSING",
        })
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub name: &'static str,
    /// State of the host in this respect.
    pub state: State,
    /// Description of what was found.
    pub detail: String,
    /// Advice; none when nothing needs to be done.
    pub advice: Option<String>,
}

/// All findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Findings, prerequisites first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns true when the agent can run on this host, even if it collects less.
    pub fn can_run(&self) -> bool {
        self.worst() < State::Missing
    }

    /// Returns the findings as JSON.
    pub fn to_json(&self) -> Value {
        let findings = self.findings.iter().map(|finding| {
            json!({
                "name": finding.name,
                "state": finding.state.name(),
                "detail": finding.detail,
                "advice": finding.advice,
            })
        });
        json!({
            "can_run": self.can_run(),
            "state": self.worst().name(),
            "findings": findings.collect::<Vec<Value>>(),
        })
    }

    fn worst(&self) -> State {
        let states = self.findings.iter().map(|finding| finding.state);
        states.max().unwrap_or(State::Ok)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let Finding {
                name,
                state,
                detail,
                advice,
            } = finding;
            let detail = printable(detail, MAX_TEXT);
            writeln!(f, "{state:<8}  {name:<22}  {detail}")?;
            if let Some(advice) = advice {
                let advice = printable(advice, MAX_TEXT);
                writeln!(f, "{:<8}  {:<22}  -> {advice}", "", "")?;
            }
        }
        writeln!(
            f,
            "{}",
            match self.worst() {
                State::Ok => "The agent can run on this host.",
                State::Degraded =>
                    "The agent can run on this host, but collects less than it could.",
                State::Missing => "The agent cannot run on this host.",
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_users_do_not_control_the_terminal() {
        let hostile = "/tmp/\u{1b}]0;x\u{7}\r\u{202e}/libnccl.so.2: 9 functions";
        let report = Report {
            findings: vec![Finding {
                name: "library",
                state: State::Degraded,
                detail: hostile.to_owned(),
                advice: Some(hostile.to_owned()),
            }],
        };
        let text = report.to_string();
        let is_hostile =
            |letter: char| letter == '\u{202e}' || letter.is_control() && letter != '\n';
        assert!(!text.contains(is_hostile), "{text:?}");
        assert_eq!(text.lines().count(), 3, "{text:?}");
        assert!(text.contains("libnccl.so.2: 9 functions"), "{text:?}");
    }
}
