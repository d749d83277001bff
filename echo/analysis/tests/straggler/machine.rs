//! A model of hosts, GPUs and communicators: what a rank's operations look like when ranks wait for
//! one another. Nothing in it knows the detector.

use std::collections::BTreeMap;

use echo_analysis::straggler::block::{
    BlockSum, Heartbeat, Lead, Membership, NodeKey, Operation, ProcessKey,
};
use echo_core::ids::CommId;
use echo_core::model::event::Source;

use crate::recording::{Item, at, operations};

/// Family of communicators of the same kind: each group of ranks is one.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    pub(crate) groups: Vec<Vec<usize>>,
    /// Sends and receives.
    pub(crate) is_transfer: bool,
    /// Exponent of the block length.
    pub(crate) k: u32,
}

/// One operation of a step on a family of communicators.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    pub(crate) family: usize,
    /// GPU time before it, seconds.
    pub(crate) compute: f64,
    /// Duration without waiting, seconds.
    pub(crate) transfer: f64,
    /// Runs beside the computation until the end of the step.
    pub(crate) overlaps: bool,
    /// A grouped send and receive, whose duration lacks the waiting.
    pub(crate) is_fused: bool,
    /// Only this group of the family, or all.
    pub(crate) group: Option<usize>,
}

/// Speed of each rank in one step.
#[derive(Debug, Clone)]
pub(crate) struct Speed {
    /// Factor of the GPU time, by rank.
    pub(crate) gpu: Vec<f64>,
    /// Host time per operation, seconds, by rank.
    pub(crate) host: Vec<f64>,
    /// Host pause at the beginning of the step, seconds, by rank.
    pub(crate) pause: Vec<f64>,
    /// Factor of the transfers.
    pub(crate) transfer: f64,
}

#[derive(Debug)]
struct Open {
    seq: u64,
    block: BlockSum,
}

/// State of all ranks.
#[derive(Debug)]
pub(crate) struct Machine {
    families: Vec<Family>,
    per_node: usize,
    gpu: Vec<f64>,
    comm: Vec<f64>,
    host: Vec<f64>,
    /// Ends of the last steps by rank, for the limit of how far hosts run ahead.
    ends: Vec<Vec<f64>>,
    ahead: usize,
    seqs: BTreeMap<(usize, usize), u64>,
    open: BTreeMap<(usize, usize, usize), Open>,
    pub(crate) items: Vec<Item>,
    next_beat: f64,
}

impl Machine {
    pub(crate) fn new(families: Vec<Family>, n: usize, per_node: usize, ahead: usize) -> Self {
        Self {
            families,
            per_node,
            gpu: vec![0.0; n],
            comm: vec![0.0; n],
            host: vec![0.0; n],
            ends: Vec::new(),
            ahead,
            seqs: BTreeMap::new(),
            open: BTreeMap::new(),
            items: Vec::new(),
            next_beat: 0.0,
        }
    }

    /// Time of the slowest GPU, seconds.
    pub(crate) fn now(&self) -> f64 {
        self.gpu.iter().copied().fold(0.0, f64::max)
    }

    /// Runs one step.
    pub(crate) fn step(&mut self, ops: &[Op], speed: &Speed) {
        let limit = self.ends.len().checked_sub(self.ahead);
        for rank in 0..self.gpu.len() {
            if let Some(end) = limit.and_then(|limit| self.ends.get(limit)) {
                self.host[rank] = self.host[rank].max(end[rank]);
            }
            self.host[rank] += speed.pause[rank];
        }
        for op in ops {
            self.operation(*op, speed);
        }
        for rank in 0..self.gpu.len() {
            self.gpu[rank] = self.gpu[rank].max(self.comm[rank]);
        }
        self.ends.push(self.gpu.clone());
        while self.now() > self.next_beat {
            for ((family, group, _), open) in &self.open {
                self.items.push(Item::Beat(Heartbeat {
                    process: open.block.process,
                    member: open.block.member,
                    source: open.block.source,
                    enqueued: self.seqs[&(*family, *group)],
                    at: at(self.next_beat),
                }));
            }
            self.next_beat += 1.0;
        }
    }

    fn operation(&mut self, op: Op, speed: &Speed) {
        let groups = self.families[op.family].groups.clone();
        for (index, group) in groups.iter().enumerate() {
            if op.group.is_some_and(|only| only != index) {
                continue;
            }
            let mut starts = Vec::with_capacity(group.len());
            for rank in group.iter().copied() {
                self.host[rank] += speed.host[rank];
                let begin = self.gpu[rank].max(self.host[rank]);
                self.gpu[rank] = begin + op.compute * speed.gpu[rank];
                let stream = if op.overlaps { self.comm[rank] } else { 0.0 };
                starts.push(self.gpu[rank].max(stream));
            }
            let transfer = op.transfer * speed.transfer;
            let end = starts.iter().copied().fold(0.0, f64::max) + transfer;
            let seq = self.seqs.entry((op.family, index)).or_default();
            let number = *seq;
            *seq += 1;
            for (rank, start) in group.iter().copied().zip(starts) {
                if op.overlaps {
                    self.comm[rank] = end;
                } else {
                    self.gpu[rank] = end;
                }
                let duration = if op.is_fused { transfer } else { end - start };
                let lead = start - self.host[rank];
                self.record((op.family, index, rank), number, (duration, lead, end));
            }
        }
    }

    fn record(
        &mut self,
        key: (usize, usize, usize),
        seq: u64,
        (duration, lead, end): (f64, f64, f64),
    ) {
        let (family, group, rank) = key;
        let members = &self.families[family];
        let k = members.k;
        let ranks = &members.groups[group];
        let own = ranks.iter().position(|one| *one == rank).unwrap();
        let fresh = || BlockSum {
            process: ProcessKey(rank as u64),
            node: NodeKey((rank / self.per_node) as u64),
            member: Membership {
                comm: CommId::new((family as u64) << 32 | group as u64),
                size: ranks.len() as u32,
                rank: own as u32,
            },
            operation: if members.is_transfer {
                Operation::Transfer {
                    peer: Some(1 - own as u32),
                }
            } else {
                Operation::Collective
            },
            source: Source::Device,
            seqs: operations(seq >> k << k, k),
            count: 0,
            sum_ms: 0.0,
            min_ms: f64::INFINITY,
            lead: Some(Lead {
                sum_ms: 0.0,
                min_ms: f64::INFINITY,
            }),
            end: at(end),
        };
        let open = self.open.entry(key).or_insert_with(|| Open {
            seq: seq >> k,
            block: fresh(),
        });
        if open.seq != seq >> k {
            self.items.push(Item::Block(open.block));
            *open = Open {
                seq: seq >> k,
                block: fresh(),
            };
        }
        let block = &mut open.block;
        block.count += 1;
        block.sum_ms += 1e3 * duration;
        block.min_ms = block.min_ms.min(1e3 * duration);
        block.end = at(end);
        if let Some(own) = &mut block.lead {
            own.sum_ms += 1e3 * lead;
            own.min_ms = own.min_ms.min(1e3 * lead);
        }
    }

    /// Reports of the run in order of time.
    pub(crate) fn finish(mut self) -> Vec<Item> {
        self.items.sort_by_key(Item::at);
        self.items
    }
}
