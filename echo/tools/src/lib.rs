//! Tools that answer queries about a cluster, one file each, and the registry from which every
//! transport serves them.
//!
//! A tool is its input: a struct that is deserialized from JSON and has a method `call`. The
//! cluster, the window and the ranks that reported in it are resolved once for all tools
//! ([`scope`]). HTTP, the Model Context Protocol and the command line are views of
//! [`registry::Registry`]; none of them names a tool.
//!
//! Answers: times are RFC 3339 in UTC, units are part of the field names, lists have a stable
//! order, and an unknown value is `null`, never zero.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use echo_access::Principal;
use echo_core::clock::Clock;
use echo_core::error::{Code, Coded};
use echo_core::shard::{OtherShard, Shard};
use echo_store::{EventStore, StoreError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::picture::DrawError;
use crate::query_limit::QueryLimit;
use crate::rates::Rates;

mod arguments;
mod cluster_names;
pub mod cost_report;
pub mod event_history;
pub mod explain_rank;
pub mod find_outlier_nodes;
pub mod get_cost;
pub mod host;
pub mod host_evidence;
pub mod incident_bundle;
pub mod lag_map;
pub mod lifecycle;
pub mod list_cursor;
mod lost_times;
mod names;
mod operations;
pub mod outlier;
pub mod picture;
pub mod quality;
pub mod query_limit;
pub mod rank_trace;
pub mod rates;
pub mod recurrence;
pub mod registry;
pub mod rounding;
pub mod run_analysis;
pub mod schemas;
pub mod scope;
pub mod shard_hint;
pub mod time;
pub mod tool;
mod unknown_comms;
mod unseen_operations;
pub mod views;

#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "used by tests only"
)]
pub mod fixture;

/// Dependencies and settings of the tools. Clones share them.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// Stored events and verdicts.
    pub store: Arc<dyn EventStore>,
    /// Prices of GPU-hours.
    pub rates: Arc<Rates>,
    /// Current time.
    pub clock: Arc<dyn Clock>,
    /// Limits set by the operator.
    pub limits: Limits,
    /// Limit on concurrent queries.
    pub query_limit: QueryLimit,
    /// Shard that this instance serves; absent when it is the only instance.
    pub shard: Option<Arc<Shard>>,
    /// Principal that made the request.
    pub caller: Arc<Principal>,
}

/// Default limit on concurrent queries.
const DEFAULT_QUERY_LIMIT: u32 = 4;

impl ToolContext {
    /// Creates a context with default limits, for the local principal.
    pub fn new(store: Arc<dyn EventStore>, rates: Rates, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            rates: Arc::new(rates),
            clock,
            limits: Limits::default(),
            query_limit: QueryLimit::new(DEFAULT_QUERY_LIMIT),
            shard: None,
            caller: Arc::new(Principal::local()),
        }
    }

    /// Runs a query under the limit on concurrent queries and within the deadline.
    pub async fn run_limited<T>(
        &self,
        answer: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        let _permit = self.query_limit.acquire().await?;
        self.run_with_deadline(answer).await
    }

    /// Runs a query within the deadline, outside of the limit on concurrent queries.
    pub async fn run_unlimited<T>(
        &self,
        answer: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        let _count = self.query_limit.count_unlimited();
        self.run_with_deadline(answer).await
    }

    /// Runs a query within the deadline.
    pub async fn run_with_deadline<T>(
        &self,
        answer: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        let deadline = self.limits.deadline;
        tokio::time::timeout(deadline, answer)
            .await
            .unwrap_or(Err(ToolError::Timeout { deadline }))
    }
}

/// Limits on queries and answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Minimum share of the expected ranks that must report for a quorum and for a run rate.
    pub min_coverage: f64,
    /// Span of event time from which the run rate is computed.
    pub horizon: Duration,
    /// Age of the last event above which the run rate is stale.
    pub stale_after: Duration,
    /// Maximum duration of a query.
    pub deadline: Duration,
    /// Delay between the end of an hour and the closing of its costs.
    pub cost_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_coverage: 0.8,
            horizon: Duration::from_mins(5),
            stale_after: Duration::from_mins(1),
            deadline: Duration::from_secs(10),
            cost_grace: Duration::from_mins(15),
        }
    }
}

/// Error of a tool call.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No tool has this name.
    #[error("no such tool: {name:?} (known: {known})")]
    UnknownTool {
        /// Requested name.
        name: String,
        /// Names of the known tools.
        known: String,
    },
    /// The input is invalid; lists every violation.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Violation>),
    /// The store has no events of this cluster.
    #[error("no such cluster: {name:?}{suggestion} (known: {known})")]
    UnknownCluster {
        /// Requested name.
        name: String,
        /// Question about the cluster with the most similar name; may be empty.
        suggestion: String,
        /// Names of the known clusters.
        known: String,
    },
    /// The store has no events of this cluster, and another shard owns it.
    #[error(
        "no such cluster on this shard: {name:?} (it belongs to {other}; send the request there)"
    )]
    OtherShard {
        /// Requested name.
        name: String,
        /// Shard that owns the cluster.
        other: OtherShard,
    },
    /// The cluster has no incident with this id.
    #[error("no such incident of this cluster: {id:?}")]
    UnknownIncident {
        /// Requested id.
        id: String,
    },
    /// The rank did not report in the window.
    #[error("rank {rank} did not report in this window; {known}")]
    UnknownRank {
        /// Requested rank.
        rank: u32,
        /// Ranks that did report.
        known: String,
    },
    /// The job did not report in the window.
    #[error("job {job:?} did not report in this window; {known}")]
    UnknownJob {
        /// Requested job.
        job: String,
        /// Ranks and jobs that did report.
        known: String,
    },
    /// The node did not report in the window.
    #[error("node {node:?} did not report in this window (known: {known})")]
    UnknownNode {
        /// Requested node.
        node: String,
        /// Nodes that did report.
        known: String,
    },
    /// The process did not report in the window.
    #[error("process {pid} did not report in this window (known: {known})")]
    UnknownProcess {
        /// Requested process id.
        pid: u32,
        /// Processes that did report.
        known: String,
    },
    /// A rule refuses the request.
    #[error("{reason}")]
    Refused {
        /// Reason of the refusal.
        reason: String,
        /// Suggestion for a valid request.
        hint: String,
    },
    /// The limit on concurrent queries is reached.
    #[error("too many concurrent queries (limit {limit}); retry later")]
    Overloaded {
        /// Maximum number of concurrent queries.
        limit: u32,
    },
    /// The query was stopped so that the database file could be written.
    #[error("the query was stopped so that the database file could be written; retry it")]
    Overtaken,
    /// The query exceeded its deadline.
    #[error("the query exceeded its deadline of {} s; use a shorter window", deadline.as_secs_f64())]
    Timeout {
        /// The deadline.
        deadline: Duration,
    },
    /// The task that answers was ended.
    #[error("the task that answers was ended")]
    Unfinished,
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The input schema of the tool is not a valid schema, so inputs cannot be validated.
    #[error("the input schema of the tool is invalid")]
    InvalidSchema,
    /// The answer cannot be serialized as JSON.
    #[error("the answer cannot be serialized as JSON")]
    Json(#[source] serde_json::Error),
    /// The answer cannot be serialized as CSV.
    #[error("the answer cannot be serialized as CSV")]
    Csv(#[from] csv::Error),
    /// The files cannot be packed.
    #[error("the files cannot be packed")]
    Archive(#[source] std::io::Error),
    /// The plot of the answer cannot be drawn.
    #[error("the plot cannot be drawn")]
    Draw(#[from] DrawError),
}

/// One violation of an input schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// JSON pointer to the invalid part of the input; empty for the input as a whole.
    pub pointer: String,
    /// Description of the violation.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.strip_prefix('/') {
            Some(field) => write!(f, "{field}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl ToolError {
    /// Error about an invalid `field`; an empty `field` means the input as a whole.
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        let pointer = match field {
            "" => String::new(),
            field => format!("/{}", field.replace('.', "/")),
        };
        Self::Invalid(vec![Violation {
            pointer,
            message: message.into(),
        }])
    }

    /// JSON body of the error, identical on every transport.
    pub fn body(&self) -> Value {
        let message = match (self.code(), self) {
            // Internal details belong in the log of the operator, not in the response.
            (Code::Internal, _) => "internal error; see the log of Echo for the cause".to_owned(),
            (_, Self::Store(error)) => error.to_string(),
            (_, error) => error.to_string(),
        };
        let mut body = error_body(self.code(), &message);
        let detail = match self {
            Self::Invalid(violations) => Some(("details", json!(violations))),
            Self::Refused { hint, .. } => Some(("hint", json!(hint))),
            _ => None,
        };
        let error = body.pointer_mut("/error").and_then(Value::as_object_mut);
        if let Some(((name, value), error)) = detail.zip(error) {
            error.insert(name.to_owned(), value);
        }
        body
    }
}

impl Coded for ToolError {
    fn code(&self) -> Code {
        match self {
            Self::UnknownTool { .. }
            | Self::UnknownCluster { .. }
            | Self::UnknownIncident { .. }
            | Self::OtherShard { .. }
            | Self::UnknownRank { .. }
            | Self::UnknownJob { .. }
            | Self::UnknownNode { .. }
            | Self::UnknownProcess { .. } => Code::NotFound,
            Self::Invalid(_) => Code::Invalid,
            Self::Refused { .. } => Code::Refused,
            Self::Overloaded { .. } | Self::Overtaken => Code::Busy,
            Self::Timeout { .. } => Code::Timeout,
            Self::Store(error) => match error.code() {
                // The state of the database file is not an error of the query.
                Code::Refused => Code::Internal,
                code => code,
            },
            Self::Unfinished
            | Self::Json(_)
            | Self::Csv(_)
            | Self::InvalidSchema
            | Self::Archive(_)
            | Self::Draw(_) => Code::Internal,
        }
    }
}

/// Builds the JSON body of an error.
pub fn error_body(code: Code, message: &str) -> Value {
    json!({ "error": { "code": code.name(), "message": message } })
}
