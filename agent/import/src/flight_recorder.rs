//! Dumps of `PyTorch`'s Flight Recorder, one per rank: pickle or JSON.
//!
//! A dump lists the operations that a rank enqueued, by process group. Its `time_created_ns` is the
//! host's enqueue time, and its `time_discovered_*` are polling times of the watchdog: neither is a
//! time of the GPU, and neither is compared across ranks. `duration_ms` exists with
//! `TORCH_NCCL_ENABLE_TIMING` only.

use std::collections::{BTreeMap, BTreeSet};

use fleet_hang::State;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::pickle::{self, PickleError};
use crate::rank_name::{named_rank, trailing_number};
use crate::trace::{Collective, RankTrace, parse_op};

/// Error of a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The pickle cannot be read.
    #[error("invalid pickle: {0}")]
    Pickle(#[from] PickleError),
    /// The content is not a dump.
    #[error("not a Flight Recorder dump: {0}")]
    Content(#[from] serde_json::Error),
}

/// Dump of one rank.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Dump {
    /// Process groups of the rank, by name.
    #[serde(default)]
    pub pg_config: BTreeMap<String, GroupConfig>,
    /// Progress by local id of the process group.
    #[serde(default)]
    pg_status: BTreeMap<String, GroupStatus>,
    /// Operations.
    pub entries: Vec<Entry>,
}

/// Process group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GroupConfig {
    /// Purpose, such as `DATA_PARALLEL_GROUP`.
    #[serde(default)]
    pub desc: String,
    /// Ranks as text, such as `[0, 1]`.
    #[serde(default)]
    ranks: String,
}

impl GroupConfig {
    /// Returns the ranks of the group in its order.
    pub fn ranks(&self) -> Vec<u32> {
        parse_ranks(&self.ranks)
    }
}

/// Progress of a rank in a process group. A negative number stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupStatus {
    #[serde(default = "none", deserialize_with = "number")]
    last_enqueued_collective: i64,
    #[serde(default = "none", deserialize_with = "number")]
    last_started_collective: i64,
    #[serde(default = "none", deserialize_with = "number")]
    last_completed_collective: i64,
}

const fn none() -> i64 {
    -1
}

/// Reads a number, which dumps also write as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_i64().unwrap_or(-1),
        Value::String(text) => text.parse().unwrap_or(-1),
        _ => -1,
    })
}

/// Reads the data types, which dumps write as a list or as one text.
fn dtypes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        Value::Array(all) => {
            let names = all.iter().filter_map(Value::as_str);
            names.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    })
}

impl GroupStatus {
    /// Last collective that was enqueued.
    pub(crate) fn enqueued(self) -> Option<u64> {
        u64::try_from(self.last_enqueued_collective).ok()
    }

    /// Last collective that has begun.
    pub(crate) fn started(self) -> Option<u64> {
        u64::try_from(self.last_started_collective).ok()
    }

    /// Last collective that has ended.
    pub(crate) fn completed(self) -> Option<u64> {
        u64::try_from(self.last_completed_collective).ok()
    }
}

/// Operation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Entry {
    /// Number of the record within the rank, in order of the enqueues.
    #[serde(default)]
    pub record_id: u64,
    #[serde(default, deserialize_with = "number")]
    pg_id: i64,
    /// Name and purpose of the process group, which dumps of `PyTorch` 2.2 lack.
    #[serde(default)]
    process_group: (String, String),
    /// Number among the collectives of the group.
    #[serde(default, alias = "seq_id", deserialize_with = "number")]
    pub collective_seq_id: i64,
    /// Number among the transfers that the rank enqueued in the group; one per batch.
    #[serde(default, deserialize_with = "number")]
    pub p2p_seq_id: i64,
    /// Operation, such as `nccl:all_reduce` or `nccl:send 0->3`.
    pub profiling_name: String,
    /// Enqueue time on the host, Unix nanoseconds.
    #[serde(default)]
    pub time_created_ns: u64,
    /// Sizes of the inputs, elements per dimension.
    #[serde(default)]
    pub input_sizes: Vec<Vec<u64>>,
    /// Data types of the inputs.
    #[serde(default, deserialize_with = "dtypes")]
    pub input_dtypes: String,
    #[serde(default)]
    state: String,
    /// Set for point-to-point transfers.
    #[serde(default)]
    pub is_p2p: bool,
    /// Time on the GPU, milliseconds.
    #[serde(default)]
    pub duration_ms: Option<f64>,
}

impl Entry {
    /// Name of the process group.
    pub fn group(&self) -> &str {
        &self.process_group.0
    }

    /// Name of the operation without backend and peers, such as `all_reduce`.
    pub fn op_name(&self) -> &str {
        let name = self.profiling_name.as_str();
        let name = name.split_once(':').map_or(name, |(_, name)| name);
        name.split(' ').next().unwrap_or(name)
    }

    /// Returns whether the operation has not completed.
    pub fn is_pending(&self) -> bool {
        self.state() != State::Completed
    }

    /// State on the GPU.
    pub(crate) fn state(&self) -> State {
        match self.state.as_str() {
            "completed" => State::Completed,
            "started" => State::Started,
            _ => State::Scheduled,
        }
    }

    /// Number of elements of the inputs.
    pub(crate) fn elements(&self) -> u64 {
        let of_input =
            |sizes: &Vec<u64>| sizes.iter().fold(1, |n: u64, size| n.saturating_mul(*size));
        let inputs = self.input_sizes.iter().map(of_input);
        inputs.fold(0, u64::saturating_add)
    }

    /// Numbers of the own and the other rank in the group, which transfers name: `send 0->3`,
    /// `recv 3<-0`.
    pub fn peers(&self) -> Option<(usize, usize)> {
        let (own, other) = self
            .profiling_name
            .split(' ')
            .nth(1)?
            .split_once(['-', '<'])?;
        Some((own.parse().ok()?, other.get(1..)?.parse().ok()?))
    }
}

impl Dump {
    /// Reads a pickle or JSON.
    pub fn read(bytes: &[u8]) -> Result<Self, DumpError> {
        if !pickle::is_pickle(bytes) {
            return Ok(serde_json::from_slice(bytes)?);
        }
        match pickle::read(bytes)? {
            Value::Array(entries) => Self::from_list(Value::Array(entries)),
            dump => Ok(serde_json::from_value(dump)?),
        }
    }

    /// Reads the dump of `PyTorch` 2.2 or before: a list of operations, of groups without names.
    fn from_list(entries: Value) -> Result<Self, DumpError> {
        let mut entries: Vec<Entry> = serde_json::from_value(entries)?;
        for (record_id, entry) in (0..).zip(&mut entries) {
            entry.record_id = record_id;
            entry.process_group = (entry.pg_id.to_string(), String::new());
        }
        Ok(Self {
            pg_config: BTreeMap::new(),
            pg_status: BTreeMap::new(),
            entries,
        })
    }

    /// Returns the rank, by its content where that is unique, else by the number that ends the name
    /// of the file; `None` if they do not tell.
    ///
    /// A rank is in each of its groups, and its transfers contain its number in their group.
    pub fn rank(&self, file_name: &str) -> Option<u32> {
        let groups = self.pg_config.values().map(GroupConfig::ranks);
        let groups = groups.filter(|ranks| !ranks.is_empty());
        let groups = groups.map(|ranks| ranks.into_iter().collect::<BTreeSet<u32>>());
        let mut possible = groups.reduce(|one, other| &one & &other);
        for entry in self.entries.iter().filter(|entry| entry.is_p2p) {
            let ranks = self.pg_config.get(entry.group()).map(GroupConfig::ranks);
            let own = entry.peers().zip(ranks);
            let own = own.and_then(|((index, _), ranks)| ranks.get(index).copied());
            if let (Some(own), Some(possible)) = (own, &mut possible) {
                possible.retain(|rank| *rank == own);
            }
        }
        let by_name = named_rank(file_name).or_else(|| trailing_number(file_name));
        match possible {
            Some(ranks) if ranks.len() == 1 => ranks.first().copied(),
            Some(ranks) if !ranks.is_empty() => by_name.filter(|rank| ranks.contains(rank)),
            _ => by_name,
        }
    }

    /// Returns the status of a group. It is kept by the local id of a group, which only entries
    /// relate to its name, and does not tell collectives from transfers.
    ///
    /// A dump with completed operations has the last ones of each group, so the status is used only
    /// if it agrees with them.
    pub(crate) fn status(&self, group: &str) -> Option<GroupStatus> {
        let mut last = None;
        for entry in self.entries.iter().filter(|entry| entry.group() == group) {
            if entry.is_p2p {
                return None;
            }
            last = last.max(Some((entry.collective_seq_id, entry.pg_id)));
        }
        let (seq, id) = last?;
        let status = *self.pg_status.get(&id.to_string())?;
        let is_whole = self.entries.iter().any(|entry| !entry.is_pending());
        let enqueued = status.last_enqueued_collective;
        (enqueued == seq || (!is_whole && enqueued > seq)).then_some(status)
    }
}

impl Dump {
    /// Returns the completed operations that have a duration.
    pub fn timed(&self, rank: u32) -> RankTrace {
        let completed = self.entries.iter().filter(|entry| !entry.is_pending());
        let collective = |entry: &Entry| {
            Some(Collective {
                group: entry.group().to_owned(),
                seq: u64::try_from(entry.collective_seq_id).ok(),
                op: parse_op(entry.op_name())?,
                size: entry.elements(),
                // The enqueue time is not the start.
                start_ns: None,
                duration_ns: nanos(entry.duration_ms?),
            })
        };
        let groups = self.pg_config.iter();
        RankTrace {
            rank: Some(rank),
            groups: groups
                .map(|(name, config)| (name.clone(), config.ranks()))
                .collect(),
            collectives: completed.filter_map(collective).collect(),
            ..RankTrace::default()
        }
    }
}

/// Converts milliseconds; what is not a time becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
pub(crate) fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// Parses `[0, 1, 2]`. A list that is abbreviated with dots yields nothing.
pub(crate) fn parse_ranks(text: &str) -> Vec<u32> {
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    let numbers = inner.split(',').map(|number| number.trim().parse().ok());
    numbers.collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dump(groups: &[&str], ops: &[(&str, &str)]) -> Dump {
        let config = |(number, ranks): (usize, &&str)| {
            (number.to_string(), json!({"desc": "group", "ranks": ranks}))
        };
        let config: serde_json::Map<_, _> = groups.iter().enumerate().map(config).collect();
        let entry = |(group, name): &(&str, &str)| json!({"process_group": [group, "group"], "profiling_name": name, "is_p2p": true});
        let entries: Vec<_> = ops.iter().map(entry).collect();
        let text = json!({"pg_config": config, "entries": entries}).to_string();
        Dump::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_rank_comes_from_the_content_where_that_is_unique() {
        let alone = dump(&["[0, 1, 2, 3]", "[2]"], &[]);
        assert_eq!(alone.rank("_dump_0"), Some(2));
        let sends = dump(&["[4, 6]"], &[("0", "nccl:recv 1<-0")]);
        assert_eq!(sends.rank("host-a_0"), Some(6));
    }

    #[test]
    fn the_rank_comes_from_the_name_where_the_content_allows_several() {
        let any = dump(&["[0, 1, 2, 3]"], &[]);
        let names = [
            "_dump_3",
            "nccl_trace_rank_3",
            "comm_lib_trace_rank_3.json",
            "node7_3.json.gz",
        ];
        for name in names {
            assert_eq!(any.rank(name), Some(3), "{name}");
        }
        assert_eq!(any.rank("nccl_trace_rank_9"), None);
        assert_eq!(any.rank("dump"), None);
    }

    #[test]
    fn names_of_operations_lose_backend_and_peers() {
        for (name, op) in [
            ("nccl:all_reduce", "all_reduce"),
            ("nccl2:send 0->3", "send"),
            ("xccl:_allgather_base", "_allgather_base"),
            ("broadcast", "broadcast"),
        ] {
            let own = dump(&[], &[("0", name)]);
            assert_eq!(own.entries[0].op_name(), op);
        }
    }

    #[test]
    fn the_status_of_a_group_may_be_text_and_counts_what_the_entries_lack() {
        for last in ["9", "\"9\""] {
            let text = format!(
                r#"{{"pg_status":{{"0":{{"last_enqueued_collective":{last}}}}},"entries":[{{"pg_id":0,"process_group":["a",""],"collective_seq_id":7,"profiling_name":"nccl:all_reduce"}}]}}"#
            );
            let dump = Dump::read(text.as_bytes()).unwrap();
            assert_eq!(dump.status("a").unwrap().enqueued(), Some(9));
        }
    }

    #[test]
    fn an_abbreviated_list_of_ranks_yields_none() {
        assert_eq!(parse_ranks("[0, 1]"), [0, 1]);
        assert!(parse_ranks("[0, 1, ..., 1023]").is_empty());
    }
}
