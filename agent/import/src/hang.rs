//! Progress of the ranks of a job in their process groups, from Flight Recorder dumps.
//!
//! Clocks are not compared: only numbers and states of operations are. The records of coalesced
//! operations have one number, and the state of all is that of the last of them.

use std::collections::{BTreeMap, BTreeSet};

use fleet_hang::{Group, Job, LastOperation, Operation, Progress, State};

use crate::flight_recorder::{Dump, Entry, GroupConfig, GroupStatus};
use crate::trace::parse_op;
use crate::transfers::waiting_transfers;

/// Name and ranks of a process group. Several groups may have one name.
type GroupKey = (String, BTreeSet<u32>);

/// Returns the progress of the ranks, by their dumps.
pub fn job(dumps: &BTreeMap<u32, Dump>) -> Job {
    let mut groups: BTreeMap<GroupKey, Group> = BTreeMap::new();
    for (rank, dump) in dumps {
        for (name, entries) in collectives(dump) {
            let group = groups.entry(key(dump, name)).or_default();
            name.clone_into(&mut group.name);
            let config = dump.pg_config.get(name);
            if let Some(config) = config.filter(|_| group.purpose.is_empty()) {
                config.desc.clone_into(&mut group.purpose);
            }
            group.members.insert(*rank);
            group
                .progress
                .insert(*rank, progress(&entries, dump.status(name)));
        }
    }
    for ((_, ranks), group) in &mut groups {
        group.members.extend(ranks);
        // The dump of a member may have no operation of the group.
        for rank in group.members.iter().filter(|rank| dumps.contains_key(rank)) {
            group.progress.entry(*rank).or_default();
        }
    }
    let keys: Vec<&GroupKey> = groups.keys().collect();
    let last = |(rank, dump): (&u32, &Dump)| Some((*rank, last_operation(dump, &keys)?));
    Job {
        last: dumps.iter().filter_map(last).collect(),
        transfers: waiting_transfers(dumps),
        processes: BTreeMap::new(),
        groups: groups.into_values().collect(),
    }
}

/// Returns the collectives of a rank by process group.
fn collectives(dump: &Dump) -> BTreeMap<&str, Vec<&Entry>> {
    let mut by_group: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in dump.entries.iter().filter(|entry| !entry.is_p2p) {
        by_group.entry(entry.group()).or_default().push(entry);
    }
    by_group
}

fn key(dump: &Dump, name: &str) -> GroupKey {
    let ranks = dump.pg_config.get(name).map(GroupConfig::ranks);
    (name.to_owned(), ranks.into_iter().flatten().collect())
}

fn progress(entries: &[&Entry], status: Option<GroupStatus>) -> Progress {
    let mut latest: BTreeMap<u64, &Entry> = BTreeMap::new();
    for entry in entries {
        if let Ok(number) = u64::try_from(entry.collective_seq_id) {
            let known = latest.entry(number).or_insert(entry);
            if known.record_id <= entry.record_id {
                *known = entry;
            }
        }
    }
    let completed = status.and_then(GroupStatus::completed);
    let started = status.and_then(GroupStatus::started);
    let operations: BTreeMap<u64, Operation> = latest
        .into_iter()
        .map(|(number, entry)| {
            let state = match entry.state() {
                State::Scheduled if started >= Some(number) => State::Started,
                state => state,
            };
            (number, operation(entry, state))
        })
        .collect();
    let ended = operations
        .iter()
        .filter(|(_, own)| own.state == State::Completed);
    // A dump lists the last operations, or those that are pending, so those before have ended.
    let first = operations.keys().next();
    let before = first.and_then(|first| first.checked_sub(1));
    Progress {
        enqueued: operations
            .keys()
            .next_back()
            .copied()
            .max(status.and_then(GroupStatus::enqueued)),
        completed: ended
            .map(|(number, _)| *number)
            .max()
            .max(completed)
            .max(before),
        operations,
        ..Progress::default()
    }
}

fn operation(entry: &Entry, state: State) -> Operation {
    let name = entry.op_name();
    // The inputs of these may differ in size.
    let is_uneven = ["all_to_all", "alltoall", "gather", "scatter", "barrier"]
        .iter()
        .any(|uneven| name.starts_with(uneven));
    let is_compared = !is_uneven && parse_op(name).is_some() && !entry.input_sizes.is_empty();
    Operation {
        name: name.to_owned(),
        elements: is_compared.then(|| entry.elements()),
        dtype: Some(entry.input_dtypes.clone()).filter(|dtype| !dtype.is_empty()),
        state,
        position: Some(entry.record_id),
    }
}

/// Returns the last operation that a rank enqueued.
fn last_operation(dump: &Dump, keys: &[&GroupKey]) -> Option<LastOperation> {
    let last = dump.entries.iter().max_by_key(|entry| entry.record_id)?;
    let own = key(dump, last.group());
    let group = keys.iter().position(|key| **key == own);
    Some(LastOperation {
        group: group.filter(|_| !last.is_p2p),
        is_pending: last.is_pending(),
    })
}

#[cfg(test)]
mod tests;
