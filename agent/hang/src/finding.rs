//! Result of the analysis: conditions with their ranks, and the operations that wait.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Ranks that a sentence lists; more are only counted.
const LISTED: usize = 16;

/// Reason why operations do not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The process ended by a signal or an error.
    Crashed,
    /// The process does not answer.
    ProcessDead,
    /// The process is stopped by a signal or a debugger.
    Stopped,
    /// The ranks did not enqueue an operation for which their peers wait.
    DidNotJoin,
    /// Nothing is known of the ranks, and an operation waits for them alone.
    NotObserved,
    /// The ranks enqueued an operation that most of their peers did not enqueue.
    Ahead,
    /// The ranks use communicators in another order than their peers.
    OtherOrder,
    /// The ranks enqueued another operation, size or type than their peers.
    Mismatch,
    /// The GPUs of the ranks have not begun an operation in which their peers are.
    NotBegun,
    /// All ranks joined the operation, and the cause is not known.
    DoesNotEnd,
}

/// Condition of a job, with the ranks that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Reason.
    pub kind: Kind,
    /// Ranks that are named; empty if none is.
    pub ranks: Vec<u32>,
    /// The reason in one sentence. It may contain names from the input.
    pub sentence: String,
}

/// Operation that waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Blocked {
    /// Name of the group.
    pub group: String,
    /// Purpose of the group.
    pub purpose: String,
    /// Name of the operation; empty if it is not known.
    pub op: String,
    /// Number of the operation in the group; of a transfer, among those of the rank that waits.
    pub seq: u64,
    /// Ranks that have enqueued it and wait.
    pub waiting: Vec<u32>,
    /// Ranks that have not enqueued it.
    pub behind: Vec<u32>,
    /// Ranks of the group that were not observed.
    #[serde(rename = "without_dump")]
    pub unobserved: Vec<u32>,
    /// Ranks whose observation is too old to tell.
    #[serde(default)]
    pub unknown: Vec<u32>,
    /// Set for a send or receive, of which `behind` is the peer.
    #[serde(default)]
    pub is_transfer: bool,
}

/// Result of the analysis.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hang {
    /// Conditions, the most certain first.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Ranks that did not join and do not themselves wait for others.
    pub missing: Vec<u32>,
    /// Ranks that were not observed, for which others wait.
    #[serde(rename = "without_dump")]
    pub unobserved: Vec<u32>,
    /// Ranks that are behind because they wait for a missing rank, or for another one of these.
    pub links: Vec<u32>,
    /// Operations that wait, those of the missing ranks first.
    pub blocked: Vec<Blocked>,
    /// Proof that the observations are of different moments of a job that advances, so that they
    /// show no hang; a sentence.
    #[serde(default)]
    pub advance: Option<String>,
}

impl Hang {
    /// Returns whether operations do not end.
    pub fn is_found(&self) -> bool {
        !self.findings.is_empty()
    }
}

impl Blocked {
    /// Returns the operation with its group, as sentences name it.
    pub fn operation(&self) -> Place<'_> {
        Place(self)
    }
}

/// Operation with its number and group, as text.
#[derive(Debug, Clone, Copy)]
pub struct Place<'b>(&'b Blocked);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = if self.0.op.is_empty() {
            "operation"
        } else {
            self.0.op.as_str()
        };
        write!(f, "{op} {} of communicator {}", self.0.seq, self.0.group)?;
        if self.0.purpose.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.0.purpose)
        }
    }
}

/// Formats ranks with their noun.
pub fn noun(ranks: &[u32]) -> String {
    match ranks {
        [] => "no rank".to_owned(),
        [one] => format!("rank {one}"),
        _ => format!("ranks {}", list(ranks)),
    }
}

/// Formats ranks, of which only the first ones are listed.
pub fn list(ranks: &[u32]) -> String {
    let named: Vec<String> = ranks.iter().take(LISTED).map(u32::to_string).collect();
    let more = ranks.len().saturating_sub(LISTED);
    if more > 0 {
        format!("{} and {more} more", named.join(", "))
    } else {
        named.join(", ")
    }
}
