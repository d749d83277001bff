//! Verdicts of the agent of a rank on itself, issued between two policies.

use echo_core::ids::IdError;
use echo_core::model::event::{Event, Reading};
use echo_store::EventQuery;
use fleet_proto::{attribute, metric};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::subject::Subject;
use crate::ToolError;
use crate::scope::Scope;

/// Maximum number of verdicts per answer, latest first.
const MAX_VERDICTS: usize = 100;

/// A verdict of the agent of a rank on that rank.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SelfVerdict {
    /// Time on its own clock, RFC 3339.
    pub time: String,
    /// `raised` or `cleared`; null when not reported.
    pub state: Option<String>,
    /// Mode of the judgement, such as by a policy in force; null when not reported.
    pub mode: Option<String>,
    /// Lag behind the centre of its policy, milliseconds per iteration.
    pub lag_ms: Option<f64>,
    /// Modified z-score of the lag, by the scale of the policy.
    pub z: Option<f64>,
}

/// Loads the verdicts in the window.
pub(super) async fn load(
    scope: &Scope<'_>,
    subject: &Subject,
) -> Result<Vec<SelfVerdict>, ToolError> {
    let metric = metric::STRAGGLER.parse();
    let query = EventQuery {
        window: scope.window,
        cluster: scope.cluster.clone(),
        node: None,
        rank: Some(subject.rank),
        op: None,
        metric: Some(
            metric.map_err(|error: IdError| ToolError::invalid("metric", error.to_string()))?,
        ),
        limit: MAX_VERDICTS,
        cursor: None,
    };
    let page = scope.context.store.events(query).await?;
    let events = page.events.iter().map(|stored| &stored.event);
    let incidents_of_job = events.filter(|event| event.origin.job.as_ref() == subject.job());
    Ok(incidents_of_job.map(SelfVerdict::from).collect())
}

impl From<&Event> for SelfVerdict {
    fn from(event: &Event) -> Self {
        let attrs: Value = serde_json::from_str(&event.attrs).unwrap_or_default();
        let text = |name| attrs.get(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            time: event.timestamp.to_string(),
            state: text(attribute::STRAGGLER_STATE),
            mode: text(attribute::STRAGGLER_MODE),
            lag_ms: match event.reading {
                Reading::Double(lag_ms) => Some(lag_ms),
                Reading::Int(_) | Reading::Histogram(_) => None,
            },
            z: attrs.get(attribute::Z).and_then(Value::as_f64),
        }
    }
}
