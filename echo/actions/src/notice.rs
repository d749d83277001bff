//! Facts about an incident that consumers receive.

use echo_core::model::detector_output::{CauseClass, Severity};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

/// Why a rank is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Its host is late.
    Host,
    /// Its GPU is late.
    Device,
    /// It did not join an operation, which therefore does not end.
    Hang,
    /// Its process ended by a signal or with an error.
    Crash,
    /// It is late, and nothing tells why.
    Unknown,
}

impl Blame {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Host,
        Self::Device,
        Self::Hang,
        Self::Crash,
        Self::Unknown,
    ];

    /// Those for which a rule without `classes` acts.
    pub const USUAL: [Self; 3] = [Self::Host, Self::Device, Self::Hang];

    /// Name in policies and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
            Self::Hang => "hang",
            Self::Crash => "crash",
            Self::Unknown => CauseClass::Inconclusive.name(),
        }
    }

    /// Blame of a late rank; `None` for causes that are outside of it.
    pub const fn of_culprit(class: CauseClass) -> Option<Self> {
        match class {
            CauseClass::Host => Some(Self::Host),
            CauseClass::Device => Some(Self::Device),
            CauseClass::Inconclusive => Some(Self::Unknown),
            CauseClass::Network => None,
        }
    }
}

/// Facts about an incident with a rank to blame, as sent. Names are a contract with consumers.
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
    /// Class of the cause, or `hang`.
    pub class: String,
    /// Severity of the damage.
    pub severity: String,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// Lag behind the median of its peers, milliseconds per iteration; 0 for a hang.
    pub lag_ms: f64,
    /// Slowdown of the cohort as a share of its healthy iteration time; 0 for a hang.
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

    /// Address of the incident's page on a server with this address.
    pub fn page(&self, server: Option<&str>) -> Option<String> {
        let server = server?.trim_end_matches('/');
        let cluster = utf8_percent_encode(&self.cluster, NON_ALPHANUMERIC);
        Some(format!(
            "{server}/clusters/{cluster}/incidents/{}",
            self.incident_id
        ))
    }

    /// Address of the runbook for its class on a server with this address.
    pub fn runbook(&self, server: Option<&str>) -> Option<String> {
        let server = server?.trim_end_matches('/');
        Some(format!("{server}/runbook#{}", self.class))
    }

    /// Describes the culprit in one line, for messages of consumers.
    pub fn summary(&self) -> String {
        let (rank, incident) = (self.rank, &self.incident_id);
        if self.class == Blame::Hang.name() {
            return format!("hang: rank {rank} holds back its job, incident {incident}");
        }
        if self.class == Blame::Crash.name() {
            return format!("crash: the process of rank {rank} ended, incident {incident}");
        }
        format!(
            "straggler: rank {rank}, {:.1} ms late, incident {incident}",
            self.lag_ms
        )
    }
}

/// An open incident with a rank to blame.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Why the rank is to blame.
    pub blame: Blame,
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
