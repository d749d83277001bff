//! The answer of `get_cost`: single numbers on top for tiles and scripts, lists below.

use schemars::JsonSchema;
use serde::Serialize;

use crate::quality::DataQuality;
use crate::time::AnswerWindow;

/// What was lost in the window, and what is being lost now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Cost {
    /// Cluster that was asked about; null for all.
    pub cluster: Option<String>,
    /// Window of event time.
    pub window: AnswerWindow,
    /// Instant of the last event in the window (or its end), RFC 3339; null without events.
    pub as_of: Option<String>,
    /// Currency of the two numbers below; null when the losses have several (see `by_currency`) or none.
    pub currency: Option<String>,
    /// Money lost to all incidents in the window. Windows that follow one another add up. Null when it is not known:
    /// no events, no price, or several currencies.
    pub window_total: Option<f64>,
    /// Money lost per hour lately: the losses of the `horizon_s` seconds before `as_of`. Not to be added over time.
    /// Null when it is not known: too few ranks report, no price, or several currencies.
    pub run_rate_per_hour: Option<f64>,
    /// Seconds that the run rate looks back on; null without events.
    pub horizon_s: Option<f64>,
    /// Whether `as_of` lies so far before the end of the window that the run rate says nothing about it.
    pub stale: bool,
    /// GPU-hours lost to all incidents in the window because jobs were slower (job delay), the culprits' own among them.
    pub lost_gpu_hours: f64,
    /// GPU-hours lost per hour lately; null when too few ranks report.
    pub lost_gpu_hours_per_hour: Option<f64>,
    /// The part of `lost_gpu_hours` that has no price in the rates file.
    pub unpriced_gpu_hours: f64,
    /// The part of `window_total` that healthy GPUs spent waiting for culprits (peer wait). It is in `window_total` already: never
    /// add them. Null when it is not known: a rank did not tell how long it was blocked, no price, or several currencies.
    pub peer_wait_total: Option<f64>,
    /// The same in GPU-hours, a part of `lost_gpu_hours`.
    pub peer_wait_gpu_hours: Option<f64>,
    /// GPU-hours from each rank's first to its last event, hour by hour.
    pub allocated_gpu_hours: f64,
    /// `lost_gpu_hours` as a share of `allocated_gpu_hours`; null when nothing was allocated.
    pub lost_ratio: Option<f64>,
    /// How much of the cluster the answer rests on.
    pub data_quality: DataQuality,
    /// Both numbers for each currency.
    pub by_currency: Vec<CurrencyCost>,
    /// What kind of incident it was lost to.
    pub by_kind: Vec<KindCost>,
    /// Where it was lost: cluster, largest first.
    pub by_cluster: Vec<ClusterCost>,
    /// Where it was lost: the nodes that waited, the culprit's among them, largest first.
    pub by_node: Vec<NodeCost>,
    /// Where it was lost: model of the GPUs.
    pub by_gpu_model: Vec<ModelCost>,
    /// How the lost GPU-hours were paid for.
    pub by_rate_class: Vec<RateClassCost>,
    /// What it was lost to, largest first.
    pub contributors: Vec<Contributor>,
    /// Number of contributors that `limit` left out.
    pub contributors_left_out: u64,
    /// Whether `limit` shortened a list: of contributors, nodes or clusters. The totals are of everything.
    pub truncated: bool,
}

/// Lost GPU time and its price. The rows of a list that was not shortened add up to the totals exactly.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Amount {
    /// GPU-hours lost.
    pub lost_gpu_hours: f64,
    /// Currency of `cost`; null for GPU-hours without a price.
    pub currency: Option<String>,
    /// Money lost; null for GPU-hours without a price.
    pub cost: Option<f64>,
}

/// Both numbers in one currency.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CurrencyCost {
    /// The currency.
    pub currency: String,
    /// Money lost in the window.
    pub window_total: f64,
    /// Money lost per hour lately; null when it is not known.
    pub run_rate_per_hour: Option<f64>,
    /// GPU-hours lost that have a price in this currency.
    pub lost_gpu_hours: f64,
}

/// A row of `by_kind`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct KindCost {
    /// `culprit`, `uniform_slowdown` or `inconclusive`; null when the incident is no longer stored.
    pub kind: Option<&'static str>,
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A row of `by_cluster`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClusterCost {
    /// Cluster.
    pub cluster: String,
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A row of `by_node`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NodeCost {
    /// Cluster of the node.
    pub cluster: String,
    /// Node.
    pub node_id: String,
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A row of `by_gpu_model`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelCost {
    /// Model as the agents wrote it; null when they did not.
    pub gpu_model: Option<String>,
    /// How much.
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
    /// Money lost per hour lately, as above; null when it is not known.
    pub run_rate_per_hour: Option<f64>,
    /// GPU-hours lost per hour lately, as above; null when too few ranks report.
    pub lost_gpu_hours_per_hour: Option<f64>,
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
}

/// An incident with what it cost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Contributor {
    /// Identity of the incident, 16 hexadecimal digits.
    pub incident_id: String,
    /// Cluster of the incident.
    pub cluster: String,
    /// `culprit`, `uniform_slowdown` or `inconclusive`; null when the incident is no longer stored.
    pub kind: Option<&'static str>,
    /// `open` or `cleared`; null when the incident is no longer stored.
    pub state: Option<&'static str>,
    /// Node of the culprit; null when there is none.
    pub node_id: Option<String>,
    /// Rank of the culprit; null when there is none.
    pub rank: Option<u32>,
    /// Cohort that lost the time.
    pub cohort: Option<String>,
    /// `history` when the healthy period was measured, `none` when it is an estimate.
    pub baseline: Option<&'static str>,
    /// Why, in one sentence.
    pub reason: Option<String>,
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
    /// How sure it is, 0 to 1; null when the incident is no longer stored.
    pub confidence: Option<f64>,
    /// What would not have been lost had this culprit alone been well; null when there is no culprit or no price. `cost` is its
    /// share, which adds up with those of the others: where another rank was late as well, fixing one alone saves less.
    pub if_fixed: Option<f64>,
}
