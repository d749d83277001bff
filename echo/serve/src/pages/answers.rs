//! What the tools answer, as far as pages show it.

use serde::Deserialize;

/// An answer of `find_outlier_nodes`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Outliers {
    pub(super) window: Span,
    pub(super) outliers: Vec<Outlier>,
    pub(super) conditions: Vec<Condition>,
    pub(super) truncated: bool,
    pub(super) data_quality: DataQuality,
}

/// A window.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Span {
    pub(super) from: String,
    pub(super) to: String,
}

/// How much of the cluster an answer rests on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct DataQuality {
    pub(super) ranks_reporting: u64,
    pub(super) ranks_expected: u64,
    pub(super) coverage: Option<f64>,
    pub(super) last_event_age_s: Option<f64>,
    pub(super) quorum_met: bool,
    pub(super) note: Option<String>,
}

/// A rank that stands out.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Outlier {
    pub(super) incident_id: String,
    pub(super) node_id: Option<String>,
    pub(super) rank: u32,
    pub(super) role: String,
    pub(super) victims: Vec<u32>,
    pub(super) victim_count: u64,
    pub(super) victim_of: Vec<u32>,
    pub(super) class: Option<String>,
    pub(super) lag_ms: Option<f64>,
    pub(super) effect_ratio: Option<f64>,
    pub(super) confidence: Option<f64>,
    pub(super) evidence: Vec<Evidence>,
    #[serde(flatten)]
    pub(super) course: Course,
}

/// What is wrong with a whole cohort.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Condition {
    pub(super) incident_id: String,
    pub(super) kind: String,
    pub(super) ranks: Vec<u32>,
    pub(super) rank_count: u64,
    pub(super) detail: String,
    pub(super) effect_ratio: f64,
    pub(super) confidence: f64,
    #[serde(flatten)]
    pub(super) course: Course,
}

/// When an incident was, and how grave.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Course {
    pub(super) state: String,
    pub(super) severity: String,
    pub(super) provisional: bool,
    pub(super) first_seen: String,
    pub(super) last_seen: String,
    pub(super) cleared_at: Option<String>,
    pub(super) occurrences: u32,
    pub(super) job: Option<String>,
    pub(super) baseline: String,
    pub(super) period_ms: f64,
    pub(super) healthy_period_ms: f64,
    pub(super) reason: String,
}

impl Course {
    pub(super) fn is_open(&self) -> bool {
        self.state == "open"
    }
}

impl Outlier {
    pub(super) fn is_culprit(&self) -> bool {
        self.role == "culprit"
    }
}

/// A measurement in words.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Evidence {
    pub(super) sentence: String,
}

/// An answer of `get_cost`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Cost {
    pub(super) as_of: Option<String>,
    pub(super) currency: Option<String>,
    pub(super) window_total: Option<f64>,
    pub(super) run_rate_per_hour: Option<f64>,
    pub(super) stale: bool,
    pub(super) lost_gpu_hours: f64,
    pub(super) lost_gpu_hours_per_hour: Option<f64>,
    pub(super) unpriced_gpu_hours: f64,
    pub(super) lost_ratio: Option<f64>,
    pub(super) by_currency: Vec<CurrencyCost>,
    pub(super) by_rate_class: Vec<RateClassCost>,
    pub(super) contributors: Vec<Contributor>,
}

/// Both numbers in one currency.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct CurrencyCost {
    pub(super) currency: String,
    pub(super) window_total: f64,
    pub(super) run_rate_per_hour: Option<f64>,
}

/// What was lost at one price.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct RateClassCost {
    pub(super) rate_class: Option<String>,
    pub(super) rate_per_gpu_hour: Option<f64>,
    pub(super) lost_gpu_hours: f64,
    pub(super) currency: Option<String>,
    pub(super) cost: Option<f64>,
}

/// What one incident cost.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Contributor {
    pub(super) incident_id: String,
    pub(super) lost_gpu_hours: f64,
    pub(super) currency: Option<String>,
    pub(super) cost: Option<f64>,
}
