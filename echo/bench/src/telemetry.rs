//! Delivery of batches between agent and detector, with faults. A batch is what one node sends
//! about one block.

use std::collections::BTreeSet;

use echo_core::ids::NodeId;
use echo_core::model::event::StoredEvent;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::case::{Case, Sources, Telemetry};
use super::random::{Purpose, stream};

/// Number of blocks that a restarted agent misses.
const AWAY_BLOCKS: u32 = 5;

/// Network between the agents and the detector.
#[derive(Debug)]
pub struct Network {
    telemetry: Telemetry,
    sources: Sources,
    rng: ChaCha8Rng,
    block: u32,
    /// Batches in transit, and the block with which they arrive.
    held: Vec<(u32, Vec<StoredEvent>)>,
}

impl Network {
    /// Creates the network of a job.
    pub fn new(case: &Case) -> Self {
        Self {
            telemetry: case.telemetry,
            sources: case.sources,
            rng: stream(case.seed, Purpose::Telemetry),
            block: 0,
            held: Vec::new(),
        }
    }

    /// Returns the events that arrive once the agents have sent `events` about the next block.
    pub fn pass(&mut self, events: Vec<StoredEvent>) -> Vec<StoredEvent> {
        if self.telemetry == Telemetry::CLEAN {
            return events;
        }
        let Some(received) = events.first().map(|event| event.received) else {
            return events;
        };
        let nodes: BTreeSet<NodeId> = events
            .iter()
            .map(|stored| stored.event.origin.node.clone())
            .collect();
        let mut fates: Vec<(NodeId, BatchFate)> = Vec::new();
        for (node, number) in nodes.into_iter().zip(0..) {
            let fate = self.fate(number);
            fates.push((node, fate));
        }
        let (arriving, waiting) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(at, _)| *at <= self.block);
        self.held = waiting;
        let mut arrived: Vec<StoredEvent> = Vec::new();
        for (_, batch) in arriving {
            arrived.extend(batch);
        }
        for (node, fate) in fates {
            let batch = events
                .iter()
                .filter(|stored| stored.event.origin.node == node)
                .cloned();
            match fate {
                BatchFate::Arrives => arrived.extend(batch),
                BatchFate::Late(blocks) => self.held.push((self.block + blocks, batch.collect())),
                BatchFate::Lost => {}
                BatchFate::Unnumbered => arrived.extend(batch.map(without_numbers)),
            }
        }
        self.block += 1;
        for stored in &mut arrived {
            stored.received = received;
        }
        arrived
    }

    fn fate(&mut self, node: u32) -> BatchFate {
        let draw: f64 = self.rng.random();
        let delay = self.rng.random_range(1..=3);
        let restart = self.telemetry.restart.filter(|_| node == 0);
        match restart {
            Some(at) if (at..at + AWAY_BLOCKS).contains(&self.block) => return BatchFate::Lost,
            // A restarted agent did not see the communicators being created; only NCCL knows the
            // sequence numbers.
            Some(at) if self.block >= at + AWAY_BLOCKS && self.sources == Sources::Host => {
                return BatchFate::Unnumbered;
            }
            _ => {}
        }
        if draw < self.telemetry.lost {
            BatchFate::Lost
        } else if draw < self.telemetry.lost + self.telemetry.late {
            BatchFate::Late(delay)
        } else {
            BatchFate::Arrives
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum BatchFate {
    Arrives,
    Late(u32),
    Lost,
    Unnumbered,
}

fn without_numbers(mut stored: StoredEvent) -> StoredEvent {
    if let Some(block) = &mut stored.event.block {
        block.seqs = None;
    }
    stored
}
