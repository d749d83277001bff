//! Facts about an incident that consumers receive.

use echo_core::model::detector_output::{CauseClass, Severity};
use serde::{Deserialize, Serialize};

/// Facts about an incident with a culprit, as sent. Names are a contract with consumers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Notice {
    /// Incident id, 16 hexadecimal digits.
    pub incident_id: String,
    /// Number of its occurrences: recurrences after it was cleared, plus one.
    pub occurrence: u32,
    /// Cluster.
    pub cluster: String,
    /// Job, when known.
    pub job: Option<String>,
    /// Node of the culprit.
    pub node: String,
    /// Rank of the culprit within the job.
    pub rank: u32,
    /// Its GPU, when known.
    pub gpu_uuid: Option<String>,
    /// Class of the cause.
    pub class: String,
    /// Severity of the damage.
    pub severity: String,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// Lag behind the median of its peers, milliseconds per iteration.
    pub lag_ms: f64,
    /// Slowdown of the cohort as a share of its healthy iteration time.
    pub effect_ratio: f64,
    /// Reason, in one sentence.
    pub reason: String,
    /// What to do about it, most important first.
    pub advice: Vec<String>,
    /// Earlier incidents of its GPU and node, as a sentence; `None` for the first.
    pub recurrence: Option<String>,
    /// Event time of the first affected iteration, RFC 3339.
    pub first_seen: String,
    /// Event time at which it was raised, RFC 3339.
    pub raised_at: String,
}

impl Notice {
    /// Returns what has to differ for a change to be reported.
    pub fn fingerprint(&self) -> String {
        format!(
            "{} {} {} {}",
            self.incident_id, self.node, self.severity, self.class
        )
    }

    /// Describes the culprit in one line, for messages of consumers.
    pub fn summary(&self) -> String {
        format!(
            "straggler: rank {}, {:.1} ms late, incident {}",
            self.rank, self.lag_ms, self.incident_id
        )
    }
}

/// An open incident whose culprit is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Class of the cause.
    pub class: CauseClass,
    /// Severity of the damage.
    pub severity: Severity,
    /// What consumers receive.
    pub notice: Notice,
}

/// What happened to the incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It is open, and was not reported before.
    Raised,
    /// Its severity, class or node has changed.
    Changed,
    /// It is still open; for consumers that forget without it.
    Refreshed,
    /// It is cleared.
    Cleared,
}

impl Phase {
    /// Name in messages, metrics and the audit log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Changed => "changed",
            Self::Refreshed => "refreshed",
            Self::Cleared => "cleared",
        }
    }
}
