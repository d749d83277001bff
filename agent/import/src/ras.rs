//! Answers of NCCL's RAS subsystem, in JSON (NCCL 2.28 and later) or text.
//!
//! A file may hold the lines before the answer, in which the server accepts the requests.

mod json;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use fleet_agent_core::event::Op;
use fleet_agent_core::ras::{CommProgress, Status, progress};
use fleet_hang::{Group, Job, Process, Progress};
use thiserror::Error;

pub use crate::ras::json::parse_json;
pub use crate::ras::text::parse_text;

/// Error of an answer that cannot be used.
#[derive(Debug, Error)]
pub enum RasFormatError {
    /// The answer is not JSON of the expected structure.
    #[error("the answer is not a RAS status in JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The answer is not the text of a status.
    #[error("the answer is not a RAS status in text")]
    Text,
}

/// Begin of the communicators of an answer in text.
const TEXT_MARK: &str = "Communicators...";

/// Returns the answer in a file; `None` if it has none.
fn answer(bytes: &[u8]) -> Option<&str> {
    let mut text = std::str::from_utf8(bytes).ok()?;
    while let Some((line, rest)) = text.split_once('\n')
        && (line.starts_with("SERVER PROTOCOL") || line.trim_end() == "OK")
    {
        text = rest;
    }
    Some(text)
}

/// Returns whether a file holds an answer.
pub(crate) fn is_answer(bytes: &[u8]) -> bool {
    let has = |key: &str| memchr::memmem::find(bytes, key.as_bytes()).is_some();
    let is_json = answer(bytes).is_some_and(|text| text.trim_start().starts_with('{'));
    (is_json && has("\"communicators\"") && has("\"hash\""))
        || (has("NCCL version ") && has(TEXT_MARK))
}

/// Reads the answer in a file.
pub(crate) fn read(bytes: &[u8]) -> Result<Status, RasFormatError> {
    let text = answer(bytes).ok_or(RasFormatError::Text)?;
    if text.trim_start().starts_with('{') {
        parse_json(text)
    } else {
        parse_text(text)
    }
}

/// Returns the progress of the ranks, in the numbers of operations that they have launched.
pub(crate) fn job(status: &Status) -> Job {
    let (mut groups, mut processes) = (Vec::new(), BTreeMap::new());
    for CommProgress {
        comm,
        launched,
        silent,
    } in progress(status)
    {
        processes.extend(silent.iter().map(|rank| (*rank, Process::Dead)));
        let own = |(rank, launched): (&u32, &u64)| {
            let own = Progress {
                enqueued: launched.checked_sub(1),
                ..Progress::default()
            };
            (*rank, own)
        };
        groups.push(Group {
            name: comm.to_string(),
            members: launched.keys().copied().collect(),
            progress: launched.iter().map(own).collect(),
            ..Group::default()
        });
    }
    Job {
        groups,
        processes,
        ..Job::default()
    }
}

/// Returns the operation that NCCL calls so, if it is a collective that NCCL counts.
fn op(name: &str) -> Option<Op> {
    const COUNTED: [Op; 5] = [
        Op::AllReduce,
        Op::AllGather,
        Op::ReduceScatter,
        Op::Broadcast,
        Op::Reduce,
    ];
    COUNTED.into_iter().find(|op| op.name() == name)
}
