//! Answers of NCCL's RAS subsystem, in JSON (NCCL 2.28 and later) or text.

mod json;
#[cfg(test)]
mod tests;
mod text;

use fleet_agent_core::event::Op;
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
