//! Input of the published rules: sums of the last blocks per communicator and rank, from the same
//! events that the detector gets.

use std::collections::{BTreeMap, VecDeque};

use echo_core::ids::CommId;
use echo_core::model::event::{Event, Reading, Source, StoredEvent, Summary};
use fleet_proto::metric;

/// Window of a rule in steps, the same as the detector's.
const WINDOW_STEPS: f64 = 16.0;

/// One rank in one communicator over the window. Means per step or per operation, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankWindow {
    /// Rank within the job.
    pub rank: u32,
    /// Lateness: the host gap, or the negative wait.
    pub late: f64,
    /// Time in the communicator's operations, or blocked in synchronisation.
    pub wait: f64,
    /// Duration of a step less the time blocked.
    pub own: f64,
    /// Duration of a step.
    pub period: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    gap: (f64, f64),
    wait: (f64, f64),
    blocked: (f64, f64),
    period: (f64, f64),
}

type Block = BTreeMap<(CommId, u32), Sums>;

/// The last blocks.
#[derive(Debug, Default)]
pub struct RecentBlocks {
    blocks: VecDeque<(f64, Block)>,
}

impl RecentBlocks {
    /// Adds the events that arrived with a block.
    pub fn add(&mut self, events: &[StoredEvent]) {
        let mut block = Block::new();
        let mut steps = 0.0_f64;
        for stored in events {
            let event = &stored.event;
            let (Some(about), Some(rank)) = (&event.block, event.origin.rank) else {
                continue;
            };
            steps = steps.max(about.iterations.unwrap_or(0.0));
            let sums = block.entry((about.comm, rank.rank().value())).or_default();
            sums.add(event, about.source);
        }
        self.blocks.push_back((steps, block));
        let mut covered: f64 = self.blocks.iter().map(|(steps, _)| steps).sum();
        while let Some((oldest, _)) = self.blocks.front()
            && covered - oldest >= WINDOW_STEPS
        {
            covered -= oldest;
            self.blocks.pop_front();
        }
    }

    /// Returns the ranks of each communicator; empty until the window is full.
    pub fn cohorts(&self) -> Vec<Vec<RankWindow>> {
        let covered: f64 = self.blocks.iter().map(|(steps, _)| steps).sum();
        if covered < WINDOW_STEPS {
            return Vec::new();
        }
        let mut sums: BTreeMap<CommId, BTreeMap<u32, Sums>> = BTreeMap::new();
        let mut rest: BTreeMap<u32, Sums> = BTreeMap::new();
        for (_, block) in &self.blocks {
            for ((comm, rank), part) in block {
                sums.entry(*comm)
                    .or_default()
                    .entry(*rank)
                    .or_default()
                    .join(part);
                rest.entry(*rank).or_default().join(part);
            }
        }
        let cohort = |ranks: BTreeMap<u32, Sums>| -> Vec<RankWindow> {
            let seen = |(rank, own): (u32, Sums)| own.seen(rank, rest.get(&rank)?);
            ranks.into_iter().filter_map(seen).collect()
        };
        sums.into_values().map(cohort).collect()
    }
}

impl Sums {
    fn add(&mut self, event: &Event, source: Source) {
        let (sum, count) = match event.reading {
            Reading::Histogram(Summary { count, sum, .. }) => (sum, as_f64(count)),
            Reading::Double(value) => (value, 1.0),
            Reading::Int(_) => return,
        };
        let slot = match event.metric.as_str() {
            metric::HOST_GAP => &mut self.gap,
            metric::WAIT if source == Source::Device => &mut self.wait,
            metric::BLOCKED => &mut self.blocked,
            metric::PERIOD => &mut self.period,
            _ => return,
        };
        slot.0 += sum;
        slot.1 += count;
    }

    fn join(&mut self, other: &Self) {
        for (slot, part) in [
            (&mut self.gap, other.gap),
            (&mut self.wait, other.wait),
            (&mut self.blocked, other.blocked),
            (&mut self.period, other.period),
        ] {
            slot.0 += part.0;
            slot.1 += part.1;
        }
    }

    /// Values of one rank: from GPU timestamps where there are any, from host gaps otherwise.
    fn seen(&self, rank: u32, job: &Self) -> Option<RankWindow> {
        let mean = |(sum, count): (f64, f64)| (count > 0.0).then(|| sum / count);
        let period = mean(job.period)?;
        let blocked = mean(job.blocked)?;
        let (late, wait) = match (mean(self.wait), mean(self.gap)) {
            (Some(wait), _) => (-wait, wait),
            (None, Some(gap)) if job.wait.1 == 0.0 => (gap, blocked),
            _ => return None,
        };
        Some(RankWindow {
            rank,
            late,
            wait,
            own: period - blocked,
            period,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "operations of a few steps")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}
