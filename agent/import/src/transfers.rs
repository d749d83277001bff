//! Sends and receives for which no peer has enqueued the other half, from Flight Recorder dumps.
//!
//! NCCL runs the transfers of a pair of ranks in their order, and both halves end together. So of
//! the transfers that are pending on both sides, the first ones belong together, and those that one
//! side has in addition wait for the other side.
//!
//! The operations of a batch have no state of their own: it is that of the record `coalesced`, which
//! has their number.

use std::collections::{BTreeMap, BTreeSet};

use fleet_hang::Transfer;

use crate::flight_recorder::{Dump, Entry, GroupConfig};

/// Name of the record of a batch.
const BATCH: &str = "coalesced";
const SEND: &str = "send";
const RECV: &str = "recv";

/// One direction between two ranks of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Direction<'d> {
    group: &'d str,
    from: u32,
    to: u32,
}

impl Direction<'_> {
    const fn peer(&self, rank: u32) -> u32 {
        if self.from == rank {
            self.to
        } else {
            self.from
        }
    }
}

/// Pending halves of one rank by direction, in the order in which they were enqueued.
type Pending<'d> = BTreeMap<Direction<'d>, Vec<&'d Entry>>;

/// Returns the first transfer of each direction that waits for the other side.
pub(crate) fn waiting_transfers(dumps: &BTreeMap<u32, Dump>) -> Vec<Transfer> {
    let halves = |op: &'static str| -> BTreeMap<u32, Pending<'_>> {
        let of_rank = |(rank, dump): (&u32, _)| (*rank, pending(dump, op));
        dumps.iter().map(of_rank).collect()
    };
    let (sends, receives) = (halves(SEND), halves(RECV));
    let mut waiting = Vec::new();
    for (own, others) in [(&sends, &receives), (&receives, &sends)] {
        for (rank, by_direction) in own {
            let Some(dump) = dumps.get(rank) else {
                continue;
            };
            let last = dump.entries.iter().max_by_key(|entry| entry.record_id);
            for (direction, entries) in by_direction {
                let peer = direction.peer(*rank);
                let matched = others.get(&peer).and_then(|halves| halves.get(direction));
                let Some(entry) = entries.get(matched.map_or(0, Vec::len)) else {
                    continue;
                };
                let config = dump.pg_config.get(direction.group);
                waiting.push(Transfer {
                    group: direction.group.to_owned(),
                    purpose: config.map_or_else(String::new, |config| config.desc.clone()),
                    op: entry.op_name().to_owned(),
                    seq: u64::try_from(entry.p2p_seq_id).unwrap_or(0),
                    rank: *rank,
                    peer,
                    is_peer_observed: dumps.contains_key(&peer),
                    is_last: last.is_some_and(|last| is_of_batch(entry, last)),
                });
            }
        }
    }
    waiting
}

/// Returns whether a rank has enqueued sends or receives that have not ended.
pub(crate) fn has_pending_transfers(dump: &Dump) -> bool {
    [SEND, RECV].iter().any(|op| !pending(dump, op).is_empty())
}

/// Returns the pending halves of a rank.
fn pending<'d>(dump: &'d Dump, op: &str) -> Pending<'d> {
    let batches: BTreeSet<(&str, i64)> = dump
        .entries
        .iter()
        .filter(|entry| entry.op_name() == BATCH && !entry.is_pending())
        .map(|entry| (entry.group(), entry.p2p_seq_id))
        .collect();
    let is_pending = |entry: &&Entry| {
        entry.is_pending() && !batches.contains(&(entry.group(), entry.p2p_seq_id))
    };
    let halves = dump.entries.iter().filter(|entry| entry.op_name() == op);
    let mut ranks: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let mut pending = Pending::new();
    for entry in halves.filter(is_pending) {
        let group = entry.group();
        let ranks = ranks.entry(group).or_insert_with(|| {
            let config = dump.pg_config.get(group);
            config.map_or_else(Vec::new, GroupConfig::ranks)
        });
        let rank = |index: usize| ranks.get(index).copied();
        let peers = entry.peers();
        if let Some((Some(own), Some(other))) = peers.map(|(own, other)| (rank(own), rank(other))) {
            let (from, to) = if op == SEND {
                (own, other)
            } else {
                (other, own)
            };
            let direction = Direction { group, from, to };
            pending.entry(direction).or_default().push(entry);
        }
    }
    for entries in pending.values_mut() {
        entries.sort_by_key(|entry| entry.record_id);
    }
    pending
}

/// Returns whether the other operation is this one, or of its batch.
fn is_of_batch(entry: &Entry, other: &Entry) -> bool {
    other.is_p2p && other.group() == entry.group() && other.p2p_seq_id == entry.p2p_seq_id
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet_hang::Hang;
    use serde_json::json;

    use crate::flight_recorder::Dump;
    use crate::hang::job;

    fn analyse(dumps: &BTreeMap<u32, Dump>) -> Hang {
        fleet_hang::analyse(&job(dumps))
    }

    /// Transfers of one rank of a pipeline of four: name, number, state.
    fn dump(ops: &[(&str, i64, &str)]) -> Dump {
        let entry = |(record, (name, seq, state)): (usize, &(&str, i64, &str))| {
            json!({"record_id": record, "pg_id": 3, "process_group": ["5", "PIPELINE"],
                   "collective_seq_id": 0, "p2p_seq_id": seq, "op_id": record,
                   "profiling_name": format!("nccl:{name}"), "state": state, "is_p2p": true,
                   "input_sizes": [[4, 8]], "time_created_ns": 1_000 + record})
        };
        let entries: Vec<_> = ops.iter().enumerate().map(entry).collect();
        let config = json!({"5": {"name": "5", "desc": "PIPELINE", "ranks": "[0, 2, 4, 6]"}});
        let text = json!({"version": "2.10", "pg_config": config, "entries": entries}).to_string();
        Dump::read(text.as_bytes()).unwrap()
    }

    fn hang(dumps: [Dump; 4]) -> Hang {
        analyse(&[0, 2, 4, 6].into_iter().zip(dumps).collect())
    }

    #[test]
    fn the_stage_that_does_not_send_is_missing_and_the_stages_behind_it_are_links() {
        let hang = hang([
            dump(&[("send 0->1", 1, "completed"), ("recv 0<-1", 2, "completed")]),
            dump(&[
                ("recv 1<-0", 1, "completed"),
                ("send 1->2", 2, "completed"),
                ("send 1->0", 3, "completed"),
                ("recv 1<-0", 4, "started"),
            ]),
            dump(&[("recv 2<-1", 1, "completed"), ("recv 2<-1", 2, "scheduled")]),
            dump(&[("recv 3<-2", 1, "scheduled")]),
        ]);
        assert_eq!(
            (&hang.missing[..], &hang.links[..]),
            (&[0][..], &[2, 4][..])
        );
        let first = &hang.blocked[0];
        assert_eq!((first.op.as_str(), first.seq), ("recv", 4));
        assert_eq!(
            (&first.waiting[..], &first.behind[..]),
            (&[2][..], &[0][..])
        );
        assert!(first.is_transfer && hang.unobserved.is_empty());
    }

    #[test]
    fn a_transfer_that_both_sides_have_enqueued_waits_for_no_rank() {
        let hang = hang([
            dump(&[("send 0->1", 1, "started"), ("send 0->1", 2, "scheduled")]),
            dump(&[("recv 1<-0", 1, "scheduled")]),
            dump(&[]),
            dump(&[]),
        ]);
        assert_eq!((hang.missing, hang.blocked.len()), (vec![2], 1));
        assert_eq!(hang.blocked[0].seq, 2);
    }

    #[test]
    fn the_operations_of_a_batch_have_the_state_of_its_record() {
        let batch = |state| {
            dump(&[
                ("send 0->1", 7, "scheduled"),
                ("recv 0<-3", 7, "scheduled"),
                ("coalesced", 7, state),
            ])
        };
        let done = hang([batch("completed"), dump(&[]), dump(&[]), dump(&[])]);
        assert_eq!(done, Hang::default());
        let waits = hang([batch("started"), dump(&[]), dump(&[]), dump(&[])]);
        assert_eq!(waits.missing, [2, 6]);
    }

    #[test]
    fn a_peer_without_a_dump_is_listed() {
        let alone = dump(&[("recv 0<-3", 1, "scheduled")]);
        let hang = analyse(&[(0, alone)].into());
        assert_eq!((hang.missing, hang.unobserved), (vec![], vec![6]));
    }
}
