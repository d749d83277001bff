//! Check of one cluster against its limits.

use echo_core::error::Code;
use serde_json::Value;

use crate::cli::CliError;
use crate::cli::view::number;

/// Part of the error message for a cluster of another shard.
const OTHER_SHARD: &str = "send the request there";

/// Result of a check. The overall result is the first variant that applies to any cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// A limit is exceeded.
    Exceeded,
    /// The flags or the request are invalid.
    InvalidRequest,
    /// The request failed.
    Failed,
    /// Not enough data.
    Missing,
    /// Not enough data, which is allowed.
    Skipped,
    /// Everything is within the limits.
    Passed,
}

/// Checks of one cluster.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) cluster: String,
    /// Window of the result.
    pub(super) window: Value,
    /// Data quality of the result.
    pub(super) quality: Value,
    pub(super) checks: Vec<Check>,
    /// Reasons why the data is not enough.
    pub(super) missing: Vec<String>,
    /// Error, if the request failed.
    pub(super) failure: Option<Failure>,
    allow_missing: bool,
}

/// A number and its limit.
#[derive(Debug)]
pub(super) struct Check {
    /// Name of the number.
    pub(super) name: &'static str,
    pub(super) value: Option<f64>,
    pub(super) limit: f64,
    /// Whether the number is within the limit; `None` if unknown.
    pub(super) within: Option<bool>,
    /// Number and limit as text.
    pub(super) message: String,
}

/// Failed request.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    outcome: Outcome,
    pub(super) message: String,
}

impl Outcome {
    /// Returns the exit code.
    pub(super) const fn exit_code(self) -> u8 {
        match self {
            Self::Passed | Self::Skipped => 0,
            Self::Exceeded => 1,
            Self::InvalidRequest => 2,
            Self::Failed => 3,
            Self::Missing => 4,
        }
    }

    /// Returns the name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped",
            Self::Exceeded => "exceeded",
            Self::InvalidRequest => "invalid_request",
            Self::Failed => "failed",
            Self::Missing => "not_enough_data",
        }
    }

    /// Returns the first word of the line.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Passed => "PASS",
            Self::Skipped => "SKIP",
            Self::Exceeded => "FAIL",
            Self::InvalidRequest | Self::Failed => "ERROR",
            Self::Missing => "NO DATA",
        }
    }
}

impl Failure {
    /// Classifies the error of a tool call. An unknown cluster means missing data, which may still
    /// arrive; an unknown tool means that the token does not allow it.
    pub(super) fn from_tool(error: CliError, tool: &str) -> Self {
        let mut failure = Self::from(error);
        if failure.outcome == Outcome::Missing && failure.message.contains(tool) {
            failure.outcome = Outcome::Failed;
        }
        // Otherwise --allow-missing would always pass when the wrong shard is queried.
        if failure.outcome == Outcome::Missing && failure.message.contains(OTHER_SHARD) {
            failure.outcome = Outcome::InvalidRequest;
        }
        failure
    }
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        let is = |code: &str, kinds: &[Code]| kinds.iter().any(|kind| kind.name() == code);
        let outcome = match &error {
            CliError::Api { code, .. } if is(code, &[Code::NotFound]) => Outcome::Missing,
            CliError::Api { code, .. } if is(code, &[Code::Invalid]) => Outcome::InvalidRequest,
            CliError::Usage(_) | CliError::InvalidServer { .. } => Outcome::InvalidRequest,
            _ => Outcome::Failed,
        };
        Self {
            outcome,
            message: error.to_string(),
        }
    }
}

impl Case {
    /// Returns an empty check of a cluster.
    pub(super) fn new(cluster: &str, allow_missing: bool) -> Self {
        Self {
            cluster: cluster.to_owned(),
            window: Value::Null,
            quality: Value::Null,
            checks: Vec::new(),
            missing: Vec::new(),
            failure: None,
            allow_missing,
        }
    }

    /// Records a failed request.
    pub(super) fn record_failure(&mut self, failure: Failure) {
        if failure.outcome == Outcome::Missing {
            self.missing.push(failure.message);
        } else {
            self.failure = Some(failure);
        }
    }

    /// Records the data quality of a result, and reasons why the data is not enough.
    pub(super) fn record_quality(&mut self, answer: &Value, min_coverage: f64) {
        let part = |name: &str| answer.get(name).cloned().unwrap_or_default();
        (self.window, self.quality) = (part("window"), part("data_quality"));
        let note = self.quality.get("note").and_then(Value::as_str);
        let note = note.map_or_else(String::new, |note| format!(" ({note})"));
        let coverage = number(&self.quality, "coverage");
        let has_quorum = self.quality.get("quorum_met") == Some(&Value::Bool(true));
        if number(&self.quality, "last_event_age_s").is_none() {
            self.missing.push(format!("no events in the window{note}"));
        } else if let Some(coverage) = coverage.filter(|coverage| *coverage < min_coverage) {
            self.missing.push(format!(
                "{} of the expected ranks report, below the minimum of {}",
                percent(coverage),
                percent(min_coverage)
            ));
        } else if coverage.is_none() || !has_quorum {
            let reason = format!("too few ranks report to compare them{note}");
            self.missing.push(reason);
        }
        if answer.get("truncated") != Some(&Value::Bool(false)) {
            let reason = "the result is truncated: query a shorter window".to_owned();
            self.missing.push(reason);
        }
    }

    /// Adds the check of a number. An unknown number is neither within nor above its limit;
    /// `unknown` gives the reason.
    pub(super) fn add_check(&mut self, check: Check, unknown: Option<String>) {
        self.missing.extend(unknown);
        self.checks.push(check);
    }

    /// Returns the outcome.
    pub(super) fn outcome(&self) -> Outcome {
        let is_exceeded = |check: &Check| check.within == Some(false);
        if self.checks.iter().any(is_exceeded) {
            return Outcome::Exceeded;
        }
        if let Some(failure) = &self.failure {
            return failure.outcome;
        }
        let is_known = |check: &Check| check.within == Some(true);
        match self.missing.is_empty() && self.checks.iter().all(is_known) {
            // A case without a check has checked nothing.
            true if !self.checks.is_empty() => Outcome::Passed,
            _ if self.allow_missing => Outcome::Skipped,
            _ => Outcome::Missing,
        }
    }

    /// Formats the numbers and the missing data in one line.
    pub(super) fn summary(&self) -> String {
        let exceeded = self.checks.iter().filter(|one| one.within == Some(false));
        let others = self.checks.iter().filter(|one| one.within != Some(false));
        let checks = exceeded.chain(others).map(|check| check.message.as_str());
        let failure = self.failure.iter().map(|failure| failure.message.as_str());
        let missing = self.missing.iter().map(String::as_str);
        let parts: Vec<&str> = match self.outcome() {
            Outcome::Missing | Outcome::Skipped => missing.chain(checks).collect(),
            _ => failure.chain(checks).chain(missing).collect(),
        };
        parts.join("; ").replace('\n', " ")
    }
}

impl Check {
    /// Compares a number, if known, with its limit.
    pub(super) fn new(name: &'static str, value: Option<f64>, limit: f64) -> Self {
        Self {
            name,
            value,
            limit,
            within: value.map(|value| value <= limit),
            message: String::new(),
        }
    }

    /// Sets the message, with text before and after the number.
    pub(super) fn with_message(
        mut self,
        before: &str,
        after: &str,
        format: impl Fn(f64) -> String,
    ) -> Self {
        let value = self.value.map_or_else(|| "unknown".to_owned(), &format);
        let limit = format(self.limit);
        self.message = format!("{before} {value}{after}, at most {limit}");
        self
    }

    /// Marks the number as a lower bound, which can exceed the limit but not confirm it.
    pub(super) fn into_lower_bound(mut self) -> Self {
        self.within = self.within.filter(|within| !within);
        self
    }
}

/// Formats a number with as few decimals as needed, at most six.
pub(super) fn plain(number: f64) -> String {
    let digits = format!("{number:.6}");
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

/// Formats a share as a percentage.
pub(super) fn percent(share: f64) -> String {
    let digits = format!("{:.4}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}
