//! One cluster held against its limits.

use echo_core::error::Code;
use serde_json::Value;

use crate::cli::CliError;
use crate::cli::view::number;

/// Part of the error about a cluster that belongs to another shard.
const ASK_THERE: &str = "send the request there";

/// How it went. The first that applies to any cluster is the outcome of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// A limit is exceeded.
    Exceeded,
    /// The question is wrong.
    Misused,
    /// No answer came.
    Failed,
    /// Too little is known.
    Missing,
    /// Too little is known, which was allowed.
    Skipped,
    /// Everything is within the limits.
    Passed,
}

/// A cluster, and what became of it.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) cluster: String,
    /// The window that the answer is about.
    pub(super) window: Value,
    /// What the answer rests on.
    pub(super) quality: Value,
    pub(super) checks: Vec<Check>,
    /// Why too little is known, a reason each.
    pub(super) missing: Vec<String>,
    /// Why there is no answer.
    pub(super) broken: Option<Broken>,
    may_be_missing: bool,
}

/// A number held against its limit.
#[derive(Debug)]
pub(super) struct Check {
    /// Name of the number.
    pub(super) name: &'static str,
    pub(super) value: Option<f64>,
    pub(super) limit: f64,
    /// Whether the number is within the limit; nothing when that is not known.
    pub(super) within: Option<bool>,
    /// Both of them in words.
    pub(super) told: String,
}

/// That there is no answer, and why.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    outcome: Outcome,
    pub(super) message: String,
}

impl Outcome {
    /// The exit code.
    pub(super) const fn exit_code(self) -> u8 {
        match self {
            Self::Passed | Self::Skipped => 0,
            Self::Exceeded => 1,
            Self::Misused => 2,
            Self::Failed => 3,
            Self::Missing => 4,
        }
    }

    /// The name that JSON carries.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped",
            Self::Exceeded => "exceeded",
            Self::Misused => "wrong_question",
            Self::Failed => "failed",
            Self::Missing => "not_enough_data",
        }
    }

    /// The word that a line begins with.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Passed => "PASS",
            Self::Skipped => "SKIP",
            Self::Exceeded => "FAIL",
            Self::Misused | Self::Failed => "ERROR",
            Self::Missing => "NO DATA",
        }
    }
}

impl Broken {
    /// What an error in the answer of a tool means. Of a cluster that nobody knows there are no data, which may come; a tool
    /// that nobody knows is one that the token does not allow.
    pub(super) fn of(error: CliError, tool: &str) -> Self {
        let mut broken = Self::from(error);
        if broken.outcome == Outcome::Missing && broken.message.contains(tool) {
            broken.outcome = Outcome::Failed;
        }
        // Else --allow-missing would pass for ever where the wrong one of several Echos is asked.
        if broken.outcome == Outcome::Missing && broken.message.contains(ASK_THERE) {
            broken.outcome = Outcome::Misused;
        }
        broken
    }
}

impl From<CliError> for Broken {
    fn from(error: CliError) -> Self {
        let is = |code: &str, kinds: &[Code]| kinds.iter().any(|kind| kind.name() == code);
        let outcome = match &error {
            CliError::Answered { code, .. } if is(code, &[Code::NotFound]) => Outcome::Missing,
            CliError::Answered { code, .. } if is(code, &[Code::Invalid]) => Outcome::Misused,
            CliError::Usage(_) | CliError::Server { .. } => Outcome::Misused,
            _ => Outcome::Failed,
        };
        Self {
            outcome,
            message: error.to_string(),
        }
    }
}

impl Case {
    /// A cluster of which nothing is known yet.
    pub(super) fn of(cluster: &str, may_be_missing: bool) -> Self {
        Self {
            cluster: cluster.to_owned(),
            window: Value::Null,
            quality: Value::Null,
            checks: Vec::new(),
            missing: Vec::new(),
            broken: None,
            may_be_missing,
        }
    }

    /// Nothing was answered.
    pub(super) fn broke(&mut self, broken: Broken) {
        if broken.outcome == Outcome::Missing {
            self.missing.push(broken.message);
        } else {
            self.broken = Some(broken);
        }
    }

    /// Notes what an answer rests on, and why that may be too little.
    pub(super) fn rests_on(&mut self, answer: &Value, min_coverage: f64) {
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
                "{} of the expected ranks report, at least {} have to",
                percent(coverage),
                percent(min_coverage)
            ));
        } else if coverage.is_none() || !has_quorum {
            let what = format!("too few ranks report to compare them{note}");
            self.missing.push(what);
        }
        if answer.get("truncated") != Some(&Value::Bool(false)) {
            let what = "the answer is cut off: ask about a shorter window".to_owned();
            self.missing.push(what);
        }
    }

    /// Holds a number against its limit. One that is not known is neither within nor beyond it; `unknown` says why.
    pub(super) fn hold(&mut self, check: Check, unknown: Option<String>) {
        self.missing.extend(unknown);
        self.checks.push(check);
    }

    /// How it went.
    pub(super) fn outcome(&self) -> Outcome {
        let is_beyond = |check: &Check| check.within == Some(false);
        if self.checks.iter().any(is_beyond) {
            return Outcome::Exceeded;
        }
        if let Some(broken) = &self.broken {
            return broken.outcome;
        }
        let is_known = |check: &Check| check.within == Some(true);
        match self.missing.is_empty() && self.checks.iter().all(is_known) {
            // A case without a check has not been asked anything.
            true if !self.checks.is_empty() => Outcome::Passed,
            _ if self.may_be_missing => Outcome::Skipped,
            _ => Outcome::Missing,
        }
    }

    /// The numbers, then what is missing, in one line.
    pub(super) fn told(&self) -> String {
        let beyond = self.checks.iter().filter(|one| one.within == Some(false));
        let others = self.checks.iter().filter(|one| one.within != Some(false));
        let checks = beyond.chain(others).map(|check| check.told.as_str());
        let broken = self.broken.iter().map(|broken| broken.message.as_str());
        let missing = self.missing.iter().map(String::as_str);
        let parts: Vec<&str> = match self.outcome() {
            Outcome::Missing | Outcome::Skipped => missing.chain(checks).collect(),
            _ => broken.chain(checks).chain(missing).collect(),
        };
        parts.join("; ").replace('\n', " ")
    }
}

impl Check {
    /// A number that is known, or not, beside its limit.
    pub(super) fn of(name: &'static str, value: Option<f64>, limit: f64) -> Self {
        Self {
            name,
            value,
            limit,
            within: value.map(|value| value <= limit),
            told: String::new(),
        }
    }

    /// Both of them in words: what stands before the number, and after it.
    pub(super) fn told(
        mut self,
        (before, after): (&str, &str),
        in_words: impl Fn(f64) -> String,
    ) -> Self {
        let value = self.value.map_or_else(|| "unknown".to_owned(), &in_words);
        let limit = in_words(self.limit);
        self.told = format!("{before} {value}{after}, at most {limit}");
        self
    }

    /// A number that is not enough to say that the limit is kept. If it is beyond the limit, it is all the same.
    pub(super) fn at_least(mut self) -> Self {
        self.within = self.within.filter(|within| !within);
        self
    }
}

/// A number with as many decimals as it needs, at most six.
pub(super) fn plain(number: f64) -> String {
    let digits = format!("{number:.6}");
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

/// A share as a percentage.
pub(super) fn percent(share: f64) -> String {
    let digits = format!("{:.4}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}
