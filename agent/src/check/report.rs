//! Report of a check, as text and as JSON.

use std::fmt;

use serde_json::{Value, json};

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
            writeln!(f, "{state:<8}  {name:<22}  {detail}")?;
            if let Some(advice) = advice {
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
