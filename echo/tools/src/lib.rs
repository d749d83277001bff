//! The questions that Echo answers, one file each, and the registry that every transport serves them from.
//!
//! A tool is its input: a struct that JSON is read into, with `call`. Which cluster and window it is about and who reported
//! then is found out once for all of them ([`scope`]). HTTP, the Model Context Protocol and the command
//! line are views of [`registry::Registry`]; none of them knows a tool by name.
//!
//! Answers: times are RFC 3339 in UTC, units are in the names, lists have a stable order, and what is not known is
//! `null` and never zero.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use echo_access::Principal;
use echo_core::clock::Clock;
use echo_core::error::{Code, Coded};
use echo_core::shard::{Other, Shard};
use echo_store::{EventStore, StoreError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::picture::DrawError;
use crate::query_limit::Places;
use crate::rates::Rates;

mod arguments;
pub mod cost_report;
pub mod event_history;
pub mod explain_rank;
pub mod find_outlier_nodes;
pub mod get_cost;
pub mod host_evidence;
pub mod lag_map;
pub mod list_cursor;
mod metric_names;
pub mod outlier;
pub mod picture;
pub mod quality;
pub mod query_limit;
pub mod rates;
pub mod registry;
pub mod run_analysis;
pub mod schemas;
pub mod scope;
pub mod shard_hint;
pub mod time;
pub mod tool;
pub mod views;

#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]
pub mod fixture;

/// What the tools work with. Clones share it.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// Events and conclusions.
    pub store: Arc<dyn EventStore>,
    /// Prices of GPU-hours.
    pub rates: Arc<Rates>,
    /// The present.
    pub clock: Arc<dyn Clock>,
    /// What the operator set.
    pub limits: Limits,
    /// Places for questions that are being answered.
    pub places: Places,
    /// Which of several Echos this one is; nothing where it is the only one.
    pub shard: Option<Arc<Shard>>,
    /// Who asks.
    pub caller: Arc<Principal>,
}

/// Questions that are answered at the same time, where nobody says otherwise.
const PLACES: u32 = 4;

impl ToolContext {
    /// The usual limits.
    pub fn new(store: Arc<dyn EventStore>, rates: Rates, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            rates: Arc::new(rates),
            clock,
            limits: Limits::default(),
            places: Places::new(PLACES),
            shard: None,
            caller: Arc::new(Principal::local()),
        }
    }

    /// Answers when there is a place for one more question, and within the deadline.
    pub async fn bounded<T>(
        &self,
        answer: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        let _place = self.places.take().await?;
        self.in_time(answer).await
    }

    /// Answers beside the places, within the deadline.
    pub async fn beside_places<T>(
        &self,
        answer: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        let _counted = self.places.beside();
        self.in_time(answer).await
    }

    /// Answers within the deadline.
    pub async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        let deadline = self.limits.deadline;
        tokio::time::timeout(deadline, answer)
            .await
            .unwrap_or(Err(ToolError::Timeout { deadline }))
    }
}

/// What the operator can set about answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Smallest share of the expected ranks that must report for a quorum and for a run rate.
    pub min_coverage: f64,
    /// Event time that the run rate looks back on.
    pub horizon: Duration,
    /// A run rate of events older than this is stale.
    pub stale_after: Duration,
    /// Longest time that an answer may take.
    pub deadline: Duration,
    /// How long after its end an hour of costs is closed.
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

/// Why a tool gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No tool has this name.
    #[error("there is no tool {name:?}; the tools are {known}")]
    UnknownTool {
        /// The name as it was asked for.
        name: String,
        /// Names of the tools.
        known: String,
    },
    /// The input cannot be understood: all that is wrong with it.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Violation>),
    /// No event ever came from this cluster.
    #[error("no events of a cluster {name:?} are stored; the clusters are {known}")]
    UnknownCluster {
        /// The name as it was asked for.
        name: String,
        /// Names of the clusters.
        known: String,
    },
    /// No event ever came from this cluster, and another Echo takes those that do.
    #[error("no events of a cluster {name:?} are stored here; it belongs to {other}, ask there")]
    OtherShard {
        /// The name as it was asked for.
        name: String,
        /// Who takes them.
        other: Other,
    },
    /// The rank did not report.
    #[error("rank {rank} did not report in this window; {known}")]
    UnknownRank {
        /// The rank that was asked about.
        rank: u32,
        /// Who did.
        known: String,
    },
    /// A rule turns the question down.
    #[error("{reason}")]
    Refused {
        /// Which rule.
        reason: String,
        /// What to ask instead.
        hint: String,
    },
    /// Others are being answered.
    #[error("{most} questions are being answered, which is as many as at a time; ask again later")]
    Crowded {
        /// Most questions at a time.
        most: u32,
    },
    /// The answer took too long.
    #[error("no answer within {} s; ask for a shorter window", deadline.as_secs_f64())]
    Timeout {
        /// How long it was waited for.
        deadline: Duration,
    },
    /// The store could not answer.
    #[error("the store gave no answer")]
    Store(#[from] StoreError),
    /// The schema of the tool cannot be used, so nothing can be held against it.
    #[error("the schema of the tool's input is not a schema")]
    Unchecked,
    /// The answer cannot be written.
    #[error("the answer cannot be written as JSON")]
    Unwritable(#[source] serde_json::Error),
    /// The answer cannot be written as CSV.
    #[error("the answer cannot be written as CSV")]
    Untabled(#[from] csv::Error),
    /// The picture of the answer cannot be drawn.
    #[error("the picture cannot be drawn")]
    Undrawn(#[from] DrawError),
}

/// One thing that is wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Where in the input, as a JSON pointer; empty for the input as a whole.
    pub pointer: String,
    /// What is wrong there.
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
    /// The input is wrong at `field`; at no field in particular when that is empty.
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

    /// The error as every transport sends it.
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
            | Self::OtherShard { .. }
            | Self::UnknownRank { .. } => Code::NotFound,
            Self::Invalid(_) => Code::Invalid,
            Self::Refused { .. } => Code::Refused,
            Self::Crowded { .. } => Code::Busy,
            Self::Timeout { .. } => Code::Timeout,
            Self::Store(error) => match error.code() {
                // A question cannot be at fault for the state of the file.
                Code::Refused => Code::Internal,
                code => code,
            },
            Self::Unwritable(_) | Self::Untabled(_) | Self::Unchecked | Self::Undrawn(_) => {
                Code::Internal
            }
        }
    }
}

/// The one form of an error.
pub fn error_body(code: Code, message: &str) -> Value {
    json!({ "error": { "code": code.name(), "message": message } })
}
