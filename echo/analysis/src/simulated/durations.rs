//! Simulated job whose ranks report the durations of their operations on the GPU, or the waits of
//! their hosts.

use echo_core::model::event::{Event, Reading, SeqRange, Source, StoredEvent, Summary};
use fleet_proto::{attribute, metric};

use super::{Job, instant};

/// Operations of a block of 500 ms while the job is healthy.
pub const OPERATIONS: u64 = 16;

/// Measurements of one rank in one block.
#[derive(Debug, Clone, Copy)]
pub struct Durations {
    /// Time in each operation, milliseconds.
    pub inside_ms: f64,
    /// Mean time from the enqueue of an operation to its start, milliseconds.
    pub lead_ms: f64,
}

impl Durations {
    /// A healthy rank.
    pub const HEALTHY: Self = Self {
        inside_ms: 3.0,
        lead_ms: 20.0,
    };
}

/// Events of a job of `n_ranks` ranks. `block_ms` is the duration of a block on all ranks. The
/// events of a block are received at its end.
pub fn events(
    n_ranks: u32,
    n_blocks: u64,
    block_ms: impl Fn(u64) -> f64,
    measure: impl Fn(u64, u32) -> Durations,
) -> Vec<StoredEvent> {
    let job = Job::with_ranks(n_ranks);
    let mut begin_ms = 0.0;
    let mut stored = Vec::new();
    for block in 0..n_blocks {
        let end_ms = begin_ms + block_ms(block);
        for rank in 0..n_ranks {
            let event = event(&job, rank, block, (begin_ms, end_ms), measure(block, rank));
            stored.push(StoredEvent {
                id: stored.len() as u64 + 1,
                received: instant(end_ms),
                event,
            });
        }
        begin_ms = end_ms;
    }
    stored
}

/// The same without GPU times: what each rank waits in its operations is the wait of its host, and
/// leads are the times from the enqueues to the end of the block.
pub fn host_events(
    n_ranks: u32,
    n_blocks: u64,
    block_ms: impl Fn(u64) -> f64,
    measure: impl Fn(u64, u32) -> Durations,
) -> Vec<StoredEvent> {
    let mut events = events(n_ranks, n_blocks, block_ms, measure);
    for StoredEvent { event, .. } in &mut events {
        if let Some(block) = &mut event.block {
            block.source = Source::Host;
        }
    }
    events
}

fn event(job: &Job, rank: u32, block: u64, span: (f64, f64), durations: Durations) -> Event {
    let summary = Summary {
        count: OPERATIONS,
        sum: durations.inside_ms * OPERATIONS as f64,
        min: Some(durations.inside_ms),
        max: Some(durations.inside_ms),
    };
    let seqs = SeqRange::new(block * OPERATIONS, (block + 1) * OPERATIONS - 1);
    let reading = Reading::Histogram(summary);
    let mut event = job.event(rank, (metric::DURATION, reading), seqs, span);
    if let Some(block) = &mut event.block {
        (block.source, block.role, block.iterations) = (Source::Device, None, None);
    }
    let numbers = [
        (attribute::COMM_RANK, f64::from(rank)),
        (attribute::COMM_SIZE, f64::from(job.n_ranks)),
        (
            attribute::LEAD_SUM_MS,
            durations.lead_ms * OPERATIONS as f64,
        ),
        // The first operation of a block finds nothing queued.
        (attribute::LEAD_MIN_MS, 0.0),
    ];
    let members = numbers.map(|(name, number)| format!("\"{name}\":{number}"));
    event.attrs = format!("{{{}}}", members.join(",")).into();
    event
}
