//! Trace of a rank beside one of its peers, for <https://ui.perfetto.dev>: the blocks of both, the
//! evidence of their hosts, and the incidents.
//!
//! An instance stores blocks of operations, not each operation: a slice is one block, from the end
//! of the previous one to its own.

mod layout;

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use self::layout::{Lane, incidents, lane, shift_us};
use super::{ExplainArgs, TOOL, input};
use crate::cli::view::{list, text};
use crate::cli::{CliError, ToolInput, call_tool};

/// Name of the tool that lists events.
const HISTORY: &str = "fleet.cluster.event_history";

/// Maximum number of pages of events per rank.
const MAX_PAGES: usize = 20;

/// Events per page, the maximum.
const PAGE: u32 = 1000;

/// Writes the trace.
pub(super) fn write(args: &ExplainArgs, file: &Path) -> Result<(), CliError> {
    let (_, answer) = call_tool(&args.client.connection, TOOL, input(args))?;
    let job = answer.pointer("/who/job");
    let own = events(args, u64::from(args.rank), job)?;
    let peer = peer(&answer, args.rank);
    let others = events(args, peer, job)?;
    let trace = trace(&answer, (args.rank, &own), (peer, &others));
    let unwritten = |error: io::Error| {
        let message = format!("{}: {error}", file.display());
        io::Error::new(error.kind(), message)
    };
    Ok(fs::write(file, trace.to_string()).map_err(unwritten)?)
}

/// Returns a rank to compare with: the first victim, else the culprit, else the first other rank.
fn peer(answer: &Value, rank: u32) -> u64 {
    let of_first = |list: &str, field: &str| {
        let found = answer.pointer(&format!("/{list}/0/{field}/0"));
        found.and_then(Value::as_u64)
    };
    of_first("incidents", "victims")
        .or_else(|| of_first("victim_of", "victim_of"))
        .unwrap_or_else(|| u64::from(rank == 0))
}

/// Returns the events of a rank in the job, oldest first; of very many the latest.
fn events(args: &ExplainArgs, rank: u64, job: Option<&Value>) -> Result<Vec<Value>, CliError> {
    let mut found = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        // A cursor contains the window of the first page.
        let input = match cursor {
            None => ToolInput::from_scope(&args.scope),
            Some(_) => ToolInput::default().with("cluster", args.scope.cluster.clone()),
        };
        let input = input
            .with("rank", Some(rank))
            .with("limit", Some(PAGE))
            .with("cursor", cursor.take());
        let (_, answer) = call_tool(&args.client.connection, HISTORY, input)?;
        let of_job = |event: &&Value| event.get("job") == job;
        found.extend(list(&answer, "events").iter().filter(of_job).cloned());
        cursor = answer
            .get("next_cursor")
            .and_then(Value::as_str)
            .map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    found.reverse();
    Ok(found)
}

/// Returns the trace of a rank and its peer, by the clock of the rank.
fn trace(answer: &Value, (rank, own): (u32, &[Value]), (peer, others): (u64, &[Value])) -> Value {
    let who = answer.get("who").unwrap_or(&Value::Null);
    let name = format!("rank {rank} on {}", text(who, "node_id"));
    let mut events = lane(
        &Lane {
            pid: 1,
            name,
            shift_us: 0.0,
        },
        own,
    );
    let node = others
        .last()
        .map_or_else(String::new, |event| text(event, "node_id"));
    events.extend(lane(
        &Lane {
            pid: 2,
            name: format!("rank {peer} on {node}"),
            shift_us: shift_us(own, others),
        },
        others,
    ));
    events.extend(incidents(answer));
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

#[cfg(test)]
mod tests;
