//! What was found, for people and for programs.

use std::fmt;

use serde_json::{Value, json};

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As it should be.
    Ok,
    /// The agent runs, but sees less.
    Degraded,
    /// The agent cannot run.
    Missing,
}

impl State {
    /// Its name in JSON.
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

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub detail: String,
    /// What to do about it; none where nothing is to be done.
    pub advice: Option<String>,
}

/// All findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// In the order of what rests on what.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether the agent can run on this host, however little it sees.
    pub fn can_run(&self) -> bool {
        self.worst() < State::Missing
    }

    /// The findings as JSON.
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
                State::Ok => "The agent can run here.",
                State::Degraded => "The agent can run here, but sees less than it could.",
                State::Missing => "The agent cannot run here.",
            }
        )
    }
}
