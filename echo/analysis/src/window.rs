//! The last blocks of a cohort and their measurements.

use std::collections::{BTreeMap, VecDeque};

use echo_core::ids::Rank;
use echo_core::model::detector_output::Signal;
use echo_core::stats::{mean, weighted_median};

use crate::assembly::CohortBlock;
use crate::finding::Subject;
use crate::lag::lags;
use crate::settings::Settings;

/// The last blocks of a cohort with their measurements.
#[derive(Debug)]
pub struct BlockWindow<'a> {
    /// The blocks, latest first.
    pub blocks: Vec<&'a CohortBlock>,
    /// Iterations that they cover.
    pub iterations: f64,
}

impl<'a> BlockWindow<'a> {
    /// Selects the latest blocks that hold at least `iterations`, and at least `min_blocks` blocks.
    pub fn latest(blocks: &'a VecDeque<CohortBlock>, iterations: f64, min_blocks: usize) -> Self {
        let mut taken = Self {
            blocks: Vec::new(),
            iterations: 0.0,
        };
        for block in blocks.iter().rev() {
            if taken.iterations >= iterations && taken.blocks.len() >= min_blocks {
                break;
            }
            taken.iterations += block.iterations;
            taken.blocks.push(block);
        }
        taken
    }

    /// Mean period of the readings in the window, milliseconds.
    pub fn period_ms(&self) -> Option<f64> {
        let readings = || self.blocks.iter().filter_map(|block| block.period);
        let iterations: f64 = readings().map(|reading| reading.iterations).sum();
        let total: f64 = readings()
            .map(|reading| reading.ms * reading.iterations)
            .sum();
        (iterations > 0.0).then(|| total / iterations)
    }

    /// Median period of the iterations in the window, milliseconds; `None` below two readings.
    pub fn typical_period_ms(&self) -> Option<f64> {
        let readings = self.blocks.iter().filter_map(|block| block.period);
        let weighted: Vec<(f64, f64)> = readings
            .map(|reading| (reading.ms, reading.iterations))
            .collect();
        (weighted.len() >= 2)
            .then(|| weighted_median(&weighted))
            .flatten()
    }

    /// Readings of the period in the window.
    pub fn n_periods(&self) -> usize {
        self.blocks
            .iter()
            .filter(|block| block.period.is_some())
            .count()
    }

    /// Host gaps of each rank, per iteration.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of one window stay far below 2^53"
    )]
    pub fn gap_rates(&self) -> BTreeMap<Rank, f64> {
        let mut counts: BTreeMap<Rank, (f64, f64)> = BTreeMap::new();
        for block in &self.blocks {
            for member in &block.members {
                let (gaps, iterations) = counts.entry(member.rank).or_default();
                *gaps += member.gap.map_or(0.0, |gap| gap.count as f64);
                *iterations += block.iterations;
            }
        }
        let known = counts
            .into_iter()
            .filter(|(_, (_, iterations))| *iterations > 0.0);
        known
            .map(|(rank, (gaps, iterations))| (rank, gaps / iterations))
            .collect()
    }

    /// Time that work waited in the queue of each rank's GPU, milliseconds per operation; only
    /// ranks that report it.
    pub fn queue_ms(&self) -> BTreeMap<Rank, f64> {
        let mut sums: BTreeMap<Rank, (f64, f64)> = BTreeMap::new();
        for member in self.blocks.iter().flat_map(|block| &block.members) {
            if let Some(mean) = member.queue.and_then(|queue| queue.mean()) {
                let (sum, n) = sums.entry(member.rank).or_default();
                *sum += mean;
                *n += 1.0;
            }
        }
        let means = sums.into_iter().map(|(rank, (sum, n))| (rank, sum / n));
        means.collect()
    }

    /// Share of the expected ranks that reported, on average over the blocks.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the number of ranks is far below 2^53"
    )]
    pub fn coverage(&self) -> f64 {
        let shares: Vec<f64> = self
            .blocks
            .iter()
            .map(|block| block.members.len() as f64 / block.n_expected.max(1) as f64)
            .collect();
        mean(&shares).unwrap_or(0.0)
    }
}

/// Test for blocks affected by an incident, at half of the gates that raise it.
#[derive(Debug)]
pub struct Affected<'a> {
    /// Signal from which lags are measured.
    pub signal: Signal,
    /// Subject of the incident.
    pub subject: Subject,
    /// Healthy duration of an iteration, milliseconds.
    pub healthy_ms: f64,
    /// Gates.
    pub settings: &'a Settings,
}

impl Affected<'_> {
    /// Returns true if the blocks are affected; `None` if the rank of the incident does not report
    /// in them.
    pub fn holds(&self, blocks: &[&CohortBlock]) -> Option<bool> {
        let recent = BlockWindow {
            blocks: blocks.to_vec(),
            iterations: 0.0,
        };
        let slowdown = recent
            .period_ms()
            .map(|period| period / self.healthy_ms - 1.0);
        match self.subject {
            Subject::Rank(_) => {
                let gate = self.settings.effect_gate / 2.0;
                let is_late = self.lag_ms(blocks)? >= gate * self.healthy_ms;
                Some(is_late && slowdown.is_none_or(|slowdown| slowdown >= gate))
            }
            Subject::Uniform | Subject::Network | Subject::Unclear(_) => {
                let gate = self.settings.uniform_gate / 2.0;
                Some(slowdown.is_none_or(|slowdown| slowdown >= gate))
            }
            // These only show in an evaluation, not in a single block.
            Subject::Stage | Subject::Data | Subject::Hang | Subject::Identity => None,
        }
    }

    /// Lag of the rank that the incident is about, milliseconds; `None` when it is about no rank.
    pub fn lag_ms(&self, blocks: &[&CohortBlock]) -> Option<f64> {
        let Subject::Rank(rank) = self.subject else {
            return None;
        };
        let lags = lags(self.signal, blocks)?;
        lags.ranks
            .iter()
            .find(|lag| lag.rank == rank)
            .map(|lag| lag.mean_ms)
    }
}
