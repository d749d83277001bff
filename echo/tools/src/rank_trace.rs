//! Trace of a rank beside one of its peers, for <https://ui.perfetto.dev>: the blocks of both, the
//! evidence of their hosts, and the incidents.
//!
//! An instance stores blocks of operations, not each operation: a slice is one block, from the end
//! of the previous one to its own.

mod layout;

use serde::Deserialize;
use serde_json::{Value, json};

use self::layout::{Lane, incidents, lane, shift_us};
use crate::event_history::{EventHistory, History, HistoryEvent, PageCursor};
use crate::explain_rank::{ExplainRank, Explanation};
use crate::registry::Registry;
use crate::rounding::{Precision, to_json};
use crate::time::{TimeArg, WindowArg};
use crate::tool::Tool;
use crate::{ToolContext, ToolError};

/// Maximum number of pages of events per rank.
const MAX_PAGES: usize = 20;

/// Events per page, the maximum.
const PAGE: usize = 1_000;

/// Request for the trace of a rank.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankTrace {
    /// Cluster. Default: the only cluster.
    #[serde(default)]
    pub cluster: Option<String>,
    /// Rank within its job.
    pub rank: u32,
    /// Job; required only when the rank reported in several jobs.
    #[serde(default)]
    pub job: Option<String>,
    /// Start. Default: 1h before `to`.
    #[serde(default)]
    pub from: Option<TimeArg>,
    /// End, exclusive. Default: now.
    #[serde(default)]
    pub to: Option<TimeArg>,
    /// Instead of `from`, `to`: `all`, or a duration.
    #[serde(default)]
    pub window: Option<WindowArg>,
}

/// A rank with its events, oldest first.
#[derive(Debug)]
struct Reported<'a> {
    rank: u32,
    events: &'a [HistoryEvent],
}

impl RankTrace {
    /// Returns an error if the caller may not use a tool from which the trace is made.
    pub fn check_permission(registry: &Registry, context: &ToolContext) -> Result<(), ToolError> {
        for tool in [ExplainRank::NAME, EventHistory::NAME] {
            registry.find(&context.caller, tool)?;
        }
        Ok(())
    }

    /// Returns the trace as JSON in the trace event format of Chrome. The queries have the
    /// permissions and the limits of the tools.
    pub async fn json(
        &self,
        registry: &Registry,
        context: &ToolContext,
    ) -> Result<String, ToolError> {
        Self::check_permission(registry, context)?;
        if self.cluster.as_deref() == Some("") {
            return Err(ToolError::invalid("cluster", "is empty"));
        }
        let explain = ExplainRank {
            cluster: self.cluster.clone().unwrap_or_default(),
            rank: self.rank,
            job: self.job.clone(),
            from: self.from,
            to: self.to,
            window: self.window,
            plot: None,
        };
        let answer = Box::pin(registry.call(context, explain)).await?;
        let answer = permitted::<ExplainRank>(answer)?;
        let own = events(registry, context, &answer, self.rank).await?;
        // The first other rank: all of them wait for a late one.
        let peer = u32::from(self.rank == 0);
        let others = events(registry, context, &answer, peer).await?;
        let own = Reported {
            rank: self.rank,
            events: &own,
        };
        let others = Reported {
            rank: peer,
            events: &others,
        };
        let trace = trace(&answer, &own, &others);
        to_json(&trace, Precision::Rounded).map_err(ToolError::Json)
    }
}

/// Returns the answer of a tool that the caller may use.
fn permitted<T: Tool>(answer: Option<T::Answer>) -> Result<T::Answer, ToolError> {
    answer.ok_or_else(|| ToolError::UnknownTool {
        name: T::NAME.to_owned(),
        known: String::new(),
    })
}

/// Returns the events of a rank in the job and the window of the answer, oldest first; of very many
/// the latest.
async fn events(
    registry: &Registry,
    context: &ToolContext,
    answer: &Explanation,
    rank: u32,
) -> Result<Vec<HistoryEvent>, ToolError> {
    let wrong = |message| ToolError::invalid("window", message);
    let mut request = EventHistory {
        cluster: Some(answer.cluster.clone()),
        rank: Some(rank),
        from: Some(answer.window.from.parse().map_err(wrong)?),
        to: Some(answer.window.to.parse().map_err(wrong)?),
        limit: Some(PAGE),
        ..EventHistory::default()
    };
    let mut found = Vec::new();
    for _ in 0..MAX_PAGES {
        let page = registry.call(context, request.clone()).await?;
        let page: History = permitted::<EventHistory>(page)?;
        let of_job = |event: &HistoryEvent| event.job == answer.who.job;
        found.extend(page.events.into_iter().filter(of_job));
        let Some(cursor) = page.next_cursor else {
            break;
        };
        let cursor: PageCursor = cursor
            .parse()
            .map_err(|message: String| ToolError::invalid("cursor", message))?;
        // A cursor contains the window of the first page.
        (request.from, request.to, request.cursor) = (None, None, Some(cursor));
    }
    found.reverse();
    Ok(found)
}

/// Returns the trace of a rank and its peer, by the clock of the rank.
fn trace(answer: &Explanation, own: &Reported<'_>, others: &Reported<'_>) -> Value {
    let node = others.events.last().map(|event| event.node_id.as_str());
    let lanes = [
        Lane {
            pid: 1,
            name: format!("rank {} on {}", own.rank, answer.who.node_id),
            shift_us: 0.0,
        },
        Lane {
            pid: 2,
            name: format!("rank {} on {}", others.rank, node.unwrap_or("-")),
            shift_us: shift_us(own.events, others.events),
        },
    ];
    let mut events = Vec::new();
    for (one, reported) in lanes.iter().zip([own, others]) {
        events.extend(lane(one, reported.events));
    }
    events.extend(incidents(answer));
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

#[cfg(test)]
mod tests;
