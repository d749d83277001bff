//! Hangs, stalls and crashes: the ranks for which the others wait, with their nodes.

use serde_json::Value;

use crate::cli::connection::ConnectionArgs;
use crate::cli::view::{list, text};
use crate::cli::{ToolInput, call_tool, view};

/// Maximum number of ranks whose node is looked up, and of ranks named in a row.
const MAX_NAMED: usize = 4;

/// Returns whether a condition stops its job, so that no slowdown of iterations can be measured.
pub(super) fn stops_job(condition: &Value) -> bool {
    matches!(text(condition, "kind").as_str(), "hang" | "stall" | "crash")
}

/// Slowdown of a condition; a job that hangs has none, it does not progress.
pub(super) fn slowdown(condition: &Value) -> String {
    if stops_job(condition) {
        return "no progress".to_owned();
    }
    view::percent(condition, "effect_ratio")
}

/// Names the ranks that hangs wait for, with their nodes, and removes the slowdown of a job that makes
/// no progress. Other conditions are unchanged.
pub(super) fn named(answer: &Value, connection: &ConnectionArgs) -> Vec<Value> {
    let window = answer.get("window").unwrap_or(&Value::Null);
    let conditions = list(answer, "conditions").iter().cloned();
    let named = conditions.map(|mut row| {
        let is_unknown = stops_job(&row);
        if let Some(fields) = row.as_object_mut().filter(|_| is_unknown) {
            fields.insert("effect_ratio".to_owned(), Value::Null);
        }
        let missing = stops_job(&row)
            .then(|| missing(&row, |rank| node(rank, &row, window, connection)))
            .flatten();
        let reason = text(&row, "reason");
        if let Some((missing, fields)) = missing.zip(row.as_object_mut()) {
            let sentence = format!("{missing}: {reason}");
            fields.insert("reason".to_owned(), sentence.into());
            fields.insert("missing".to_owned(), missing.into());
        }
        row
    });
    named.collect()
}

/// Says what the named ranks did, with their nodes; `None` if no rank is named.
fn missing(row: &Value, node_of: impl Fn(u64) -> Option<String>) -> Option<String> {
    let ranks: Vec<u64> = list(row, "ranks")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    if ranks.is_empty() {
        return None;
    }
    let named = ranks
        .iter()
        .take(MAX_NAMED)
        .map(|rank| match node_of(*rank) {
            Some(node) => format!("rank {rank} on {node}"),
            None => format!("rank {rank}"),
        });
    let mut who = named.collect::<Vec<_>>().join(", ");
    let count = row.get("rank_count").and_then(Value::as_u64);
    let count = count.and_then(|count| usize::try_from(count).ok());
    let more = count.unwrap_or(ranks.len()).saturating_sub(MAX_NAMED);
    if more > 0 {
        who = format!("{who} and {more} more");
    }
    Some(if text(row, "kind") == "crash" {
        format!("{who} ended")
    } else if row.get("standstill") == Some(&Value::Bool(true)) {
        let verb = if ranks.len() == 1 {
            "differs"
        } else {
            "differ"
        };
        format!("{who} {verb} from the other ranks")
    } else {
        format!("{who} did not enter a collective")
    })
}

/// Looks up the node of a rank; `None` if it did not report or may not be queried.
fn node(rank: u64, row: &Value, window: &Value, connection: &ConnectionArgs) -> Option<String> {
    let field =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let input = ToolInput::default()
        .with("cluster", field(row, "cluster"))
        .with("rank", Some(rank))
        .with("job", field(row, "job"))
        .with("from", field(row, "first_seen"))
        .with("to", field(window, "to"));
    let (_, answer) = call_tool(connection, "fleet.cluster.explain_rank", input).ok()?;
    let answer = view::sanitize(answer);
    field(answer.get("who")?, "node_id")
}
