//! Answer of `get_cost`: scalar values first, for dashboards and scripts, then lists.

use schemars::JsonSchema;
use serde::Serialize;

use crate::quality::DataQuality;
use crate::time::AnswerWindow;

/// Losses in the window, and the current loss per hour.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the answer"
)]
pub struct Cost {
    /// Requested cluster, or that of the requested job; null for all clusters.
    pub cluster: Option<String>,
    /// Requested job; null for all jobs.
    pub job: Option<String>,
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// Time of the last event in the window, RFC 3339; null without events.
    pub as_of: Option<String>,
    /// Currency of `window_total`, `run_rate_per_hour` and `peer_wait_total`; null when the losses
    /// have no currency or several (see `by_currency`).
    pub currency: Option<String>,
    /// Money lost to all incidents in the window. Totals of adjacent windows add up. Null when
    /// unknown: no events, no price, or several currencies.
    pub window_total: Option<f64>,
    /// Current loss of money per hour of the open incidents: the loss of each since it began, in the
    /// last `horizon_s` seconds before `as_of`, by that time. A job whose last event is older than a
    /// minute adds nothing. A rate: do not sum it over time. Null when unknown: too few ranks report,
    /// no price, or several currencies.
    pub run_rate_per_hour: Option<f64>,
    /// True when `window_total`, `run_rate_per_hour` and the lost GPU-hours are lower bounds, as are
    /// those of contributors with `lower_bound`.
    pub lower_bound: bool,
    /// Span from which the run rate is computed, seconds; null without events.
    pub horizon_s: Option<f64>,
    /// True when `as_of` is so long before the end of the window that nothing is known about its end.
    pub stale: bool,
    /// GPU-hours lost to all incidents in the window because jobs were slower (job delay),
    /// including those of the culprits.
    pub lost_gpu_hours: f64,
    /// Current loss of GPU-hours per hour; null when too few ranks report.
    pub lost_gpu_hours_per_hour: Option<f64>,
    /// Part of `lost_gpu_hours` that has no price in the rates file.
    pub unpriced_gpu_hours: f64,
    /// Part of `window_total` that healthy GPUs spent waiting for culprits (peer wait). It is
    /// included in `window_total`: never add the two. Null when unknown: a rank did not report its
    /// blocked time, no price, or several currencies.
    pub peer_wait_total: Option<f64>,
    /// Peer wait in GPU-hours, a part of `lost_gpu_hours`; null when unknown.
    pub peer_wait_gpu_hours: Option<f64>,
    /// Allocated GPU-hours: from the first to the last event of each rank, hour by hour; of one job over
    /// the whole window, so a name that was used again later counts the time between.
    pub allocated_gpu_hours: f64,
    /// `lost_gpu_hours` as a share of `allocated_gpu_hours`; null when nothing was allocated.
    pub lost_ratio: Option<f64>,
    /// Coverage and recency of the data behind the answer.
    pub data_quality: DataQuality,
    /// Total and run rate per currency.
    pub by_currency: Vec<CurrencyCost>,
    /// Losses by kind of incident.
    pub by_kind: Vec<KindCost>,
    /// Losses by cluster, largest first.
    pub by_cluster: Vec<ClusterCost>,
    /// Losses by node, largest first: the nodes that waited, and that of the culprit.
    pub by_node: Vec<NodeCost>,
    /// Losses by job and Kubernetes namespace, largest first.
    pub by_job: Vec<JobCost>,
    /// Losses by GPU model.
    pub by_gpu_model: Vec<ModelCost>,
    /// Losses by rate class.
    pub by_rate_class: Vec<RateClassCost>,
    /// Losses by incident, largest first.
    pub contributors: Vec<Contributor>,
    /// Number of contributors omitted because of `limit`.
    pub contributors_left_out: u64,
    /// True when `limit` shortened the list of contributors, nodes, jobs or clusters. The totals
    /// always cover everything.
    pub truncated: bool,
}

/// Lost GPU time and its cost. The rows of a complete list add up to the totals exactly.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Amount {
    /// GPU-hours lost.
    pub lost_gpu_hours: f64,
    /// Currency of `cost`; null for GPU-hours without a price.
    pub currency: Option<String>,
    /// Money lost; null for GPU-hours without a price.
    pub cost: Option<f64>,
}

/// Total and run rate in one currency.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CurrencyCost {
    /// ISO 4217 currency code.
    pub currency: String,
    /// Money lost in the window.
    pub window_total: f64,
    /// Current loss of money per hour; null when unknown.
    pub run_rate_per_hour: Option<f64>,
    /// GPU-hours lost that have a price in this currency.
    pub lost_gpu_hours: f64,
}

/// A row of `by_kind`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct KindCost {
    /// `culprit`, or the kind of condition such as `uniform_slowdown` or `hang`; null when the
    /// incident is no longer stored.
    pub kind: Option<&'static str>,
    /// Lost GPU time and its cost.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A row of `by_cluster`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClusterCost {
    /// Cluster name.
    pub cluster: String,
    /// Lost GPU time and its cost.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A row of `by_node`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NodeCost {
    /// Cluster of the node.
    pub cluster: String,
    /// Node name.
    pub node_id: String,
    /// Lost GPU time and its cost.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A row of `by_job`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JobCost {
    /// Cluster of the job.
    pub cluster: String,
    /// Job whose ranks lost the time; null when unknown.
    pub job: Option<String>,
    /// Kubernetes namespace of the job's ranks; null when unknown, or when its ranks on one node
    /// are in several.
    pub namespace: Option<String>,
    /// Lost GPU time and its cost.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A row of `by_gpu_model`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelCost {
    /// GPU model as reported by the agents; null when not reported.
    pub gpu_model: Option<String>,
    /// Lost GPU time and its cost.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A row of `by_rate_class`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RateClassCost {
    /// `on_demand`, `reserved`, `spot`, `owned` or `internal`; null without a price.
    pub rate_class: Option<&'static str>,
    /// Price of one GPU for one hour; null without a price.
    pub rate_per_gpu_hour: Option<f64>,
    /// Current loss of money per hour; null when unknown.
    pub run_rate_per_hour: Option<f64>,
    /// Current loss of GPU-hours per hour; null when too few ranks report.
    pub lost_gpu_hours_per_hour: Option<f64>,
    /// Lost GPU time and its cost.
    #[serde(flatten)]
    pub amount: Amount,
}

/// An incident with its cost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Contributor {
    /// Incident id, 16 hexadecimal digits.
    pub incident_id: String,
    /// Cluster of the incident.
    pub cluster: String,
    /// `culprit`, or the kind of condition such as `uniform_slowdown` or `hang`; null when the
    /// incident is no longer stored.
    pub kind: Option<&'static str>,
    /// `open` or `cleared`; null when the incident is no longer stored.
    pub state: Option<&'static str>,
    /// Node of that rank; null when there is none, or it is unknown.
    pub node_id: Option<String>,
    /// Rank of the culprit, or the only rank that a hang waits for; null when there is none.
    pub rank: Option<u32>,
    /// Cohort that lost the time.
    pub cohort: Option<String>,
    /// `history`: the healthy iteration time was measured. `none`: it is an estimate.
    pub baseline: Option<&'static str>,
    /// True when the loss is a lower bound: of a culprit without a measured healthy iteration time, only
    /// what its peers waited for it is known.
    pub lower_bound: bool,
    /// Reason, in one sentence.
    pub reason: Option<String>,
    /// Lost GPU time and its cost.
    #[serde(flatten)]
    pub amount: Amount,
    /// Confidence, 0 to 1; null when the incident is no longer stored.
    pub confidence: Option<f64>,
    /// Current loss of money per hour; null without a price, when the incident is not open at the
    /// end of the window, when its job no longer reports, or when the run rate of the answer is unknown
    /// or stale.
    pub run_rate_per_hour: Option<f64>,
    /// Money that would have been saved had this culprit alone been healthy; null without a culprit
    /// or a price. `cost` is the share of this incident, which adds up with those of the others;
    /// where another rank was late as well, fixing one alone saves less.
    pub if_fixed: Option<f64>,
}
