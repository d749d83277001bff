//! Answers in JSON.

use std::collections::BTreeMap;

use fleet_agent_core::ras::{CommStatus, Member, MemberProcess, RankStatus, Status};
use serde::Deserialize;
use serde_json::Value;

use crate::ras::{RasFormatError, op};

/// Host of a rank whose process NCCL does not know.
const UNKNOWN_HOST: &str = "unknown";

/// Parses an answer. Commas that NCCL 2.28.9 omits are inserted.
pub fn parse_json(answer: &str) -> Result<Status, RasFormatError> {
    let document: Document =
        serde_json::from_str(answer).or_else(|_| serde_json::from_str(&with_commas(answer)))?;
    let comms = document.communicators.into_iter().map(comm_status);
    Ok(Status {
        comms: comms.collect(),
    })
}

#[derive(Deserialize)]
struct Document {
    communicators: Vec<Comm>,
}

#[derive(Deserialize)]
struct Comm {
    hash: String,
    #[serde(default)]
    secondary_hash: String,
    size: u32,
    #[serde(default)]
    ranks: Vec<Rank>,
    #[serde(default)]
    missing_ranks: Vec<Rank>,
}

#[derive(Deserialize)]
struct Rank {
    rank: u32,
    #[serde(default)]
    host: String,
    #[serde(default)]
    pid: i64,
    #[serde(default)]
    cuda_dev: i64,
    /// Null while NCCL creates the communicator.
    #[serde(default)]
    status: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    collective_counts: Option<BTreeMap<String, u64>>,
}

impl Rank {
    /// Returns whether a field of the status is true.
    fn is_set(&self, name: &str) -> bool {
        let status = self.status.as_ref();
        status.and_then(|own| own.get(name)?.as_bool()) == Some(true)
    }

    /// Returns whether it has joined the communicator: 0 is `ncclSuccess`.
    fn has_joined(&self) -> bool {
        let status = self.status.as_ref();
        status
            .and_then(|own| own.get("init_state")?.as_i64())
            .unwrap_or(0)
            == 0
    }
}

fn comm_status(comm: Comm) -> CommStatus {
    let creator = comm.secondary_hash.split(':').map(hash);
    // A rank that answered, but not about this communicator, has left it.
    let is_silent = |rank: &Rank| rank.is_set("unresponsive") || rank.is_set("considered_dead");
    let missing = comm.missing_ranks.into_iter().filter(is_silent);
    CommStatus {
        hash: hash(&comm.hash),
        creator: creator.fold(0, |sum: u64, part| sum.rotate_left(1) ^ part),
        size: comm.size,
        ranks: comm.ranks.into_iter().map(rank_status).collect(),
        missing: missing.map(|rank| member(&rank)).collect(),
    }
}

fn rank_status(rank: Rank) -> RankStatus {
    let leaves = ["finalize_called", "destroy_flag", "abort_flag"];
    let counts = rank.collective_counts.iter().flatten();
    RankStatus {
        member: member(&rank),
        launched: counts
            .filter_map(|(name, launched)| Some((op(name)?, *launched)))
            .collect(),
        is_leaving: !rank.has_joined() || leaves.iter().any(|name| rank.is_set(name)),
    }
}

fn member(rank: &Rank) -> Member {
    let is_known = !rank.host.is_empty() && rank.host != UNKNOWN_HOST;
    let process = is_known.then(|| {
        Some(MemberProcess {
            host: rank.host.clone(),
            pid: u32::try_from(rank.pid).ok()?,
            device: u32::try_from(rank.cuda_dev).unwrap_or(0),
        })
    });
    Member {
        rank: rank.rank,
        process: process.flatten(),
    }
}

/// Parses `0x12ab`; 0 if it is something else.
fn hash(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).unwrap_or(0)
}

/// Inserts a comma wherever a value or a name follows a value without one.
fn with_commas(answer: &str) -> String {
    let mut repaired = String::with_capacity(answer.len() + 64);
    let (mut in_string, mut is_escaped) = (false, false);
    let (mut after_value, mut after_space) = (false, false);
    for letter in answer.chars() {
        if in_string {
            (in_string, is_escaped) = match (letter, is_escaped) {
                ('"', false) => (false, false),
                ('\\', false) => (true, true),
                _ => (true, false),
            };
        } else if letter.is_whitespace() {
            after_space = true;
        } else {
            let opens = matches!(letter, '"' | '{' | '[');
            let continues = !opens && !after_space;
            let separates = matches!(letter, ',' | ':' | '}' | ']');
            if after_value && !separates && !continues {
                repaired.push(',');
            }
            after_value = !matches!(letter, ',' | ':' | '{' | '[');
            after_space = false;
            in_string = letter == '"';
        }
        repaired.push(letter);
    }
    repaired
}

#[cfg(test)]
mod tests;
