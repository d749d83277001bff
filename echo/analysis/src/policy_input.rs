//! What agents need to classify themselves: the usual signal of their peers, and its scatter.

use std::collections::{BTreeMap, VecDeque};

use echo_core::ids::Rank;
use echo_core::model::detector_output::Signal;
use echo_core::stats::{late_sigma, mean};
use echo_core::units::Nanos;

use crate::assembly::{CohortBlock, CohortKey};
use crate::lag::{Lags, lags, suited_signal};
use crate::settings::Settings;

/// Fewest blocks that are compared.
const LEAST_BLOCKS: usize = 2;

/// Maximum number of blocks kept: iterations that are much longer than blocks would never fill a
/// window.
const MAX_BLOCKS: usize = 64;

/// Smallest scale, milliseconds: exact ties must not divide by zero.
const FLOOR_MS: f64 = 0.05;

/// Smallest scale as a share of the iteration.
const FLOOR_SHARE: f64 = 0.0025;

/// Statistics of a cohort that its agents need to classify themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyInput {
    /// End of the block at which it was computed, event time.
    pub computed_at: Nanos,
    /// Signal of the center and the scale.
    pub signal: Signal,
    /// Median of the members' signal, milliseconds per iteration.
    pub center_ms: f64,
    /// Scale that lags are measured against, milliseconds.
    pub sigma_ms: f64,
    /// Usual duration of an iteration, milliseconds, when known.
    pub healthy_ms: Option<f64>,
    /// True if enough ranks report for a verdict.
    pub quorum_met: bool,
    /// Number of ranks compared.
    pub n_ranks: usize,
    /// Ranks named now, also those that a hang waits for.
    pub outliers: Vec<Rank>,
    /// Ranks of a job that hangs while no rank is named, to be examined.
    pub examined: Vec<Rank>,
}

impl PolicyInput {
    /// Input of ranks whose signals are not compared: agents do not classify themselves by it.
    pub(crate) const fn without_signal(computed_at: Nanos) -> Self {
        Self {
            computed_at,
            signal: Signal::DeviceWait,
            center_ms: 0.0,
            sigma_ms: 0.0,
            healthy_ms: None,
            quorum_met: false,
            n_ranks: 0,
            outliers: Vec::new(),
            examined: Vec::new(),
        }
    }
}

/// Policy inputs of all cohorts, with the blocks from which they are computed.
#[derive(Debug, Default)]
pub(crate) struct PolicyInputs(BTreeMap<CohortKey, Cohort>);

#[derive(Debug, Default)]
struct Cohort {
    /// Latest blocks, oldest first.
    blocks: VecDeque<CohortBlock>,
    input: Option<PolicyInput>,
}

impl PolicyInputs {
    /// Takes in the next block of a cohort.
    pub(crate) fn observe(&mut self, key: CohortKey, block: CohortBlock, settings: &Settings) {
        if block.iterations > 0.0 {
            self.0.entry(key).or_default().observe(block, settings);
        }
    }

    /// Removes the cohorts that do not exist any more.
    pub(crate) fn retain(&mut self, exists: impl Fn(&CohortKey) -> bool) {
        self.0.retain(|key, _| exists(key));
    }

    /// The inputs that are known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&CohortKey, &PolicyInput)> {
        let cohorts = self.0.iter();
        cohorts.filter_map(|(key, cohort)| Some((key, cohort.input.as_ref()?)))
    }
}

impl Cohort {
    fn observe(&mut self, block: CohortBlock, settings: &Settings) {
        self.blocks.push_back(block);
        let iterations = |blocks: &VecDeque<CohortBlock>| -> f64 {
            blocks.iter().map(|block| block.iterations).sum()
        };
        let wanted = settings.window_iterations;
        while self.blocks.len() > LEAST_BLOCKS
            && (self.blocks.len() > MAX_BLOCKS
                || iterations(&self.blocks) - first_iterations(&self.blocks) >= wanted)
        {
            self.blocks.pop_front();
        }
        let is_full = iterations(&self.blocks) >= wanted || self.blocks.len() >= MAX_BLOCKS;
        if is_full && let Some(input) = self.compute(settings) {
            self.input = Some(input);
        }
    }

    fn compute(&self, settings: &Settings) -> Option<PolicyInput> {
        // Latest first.
        let blocks: Vec<&CohortBlock> = self.blocks.iter().rev().collect();
        let lags = lags(suited_signal(&blocks), &blocks)?;
        let periods = blocks.iter().filter_map(|block| Some(block.period?.ms));
        let period_ms = mean(&periods.collect::<Vec<f64>>())?;
        Some(PolicyInput {
            computed_at: blocks.first()?.time.to(),
            signal: lags.signal,
            center_ms: lags.center_ms,
            sigma_ms: sigma_ms(&lags, period_ms),
            healthy_ms: None,
            quorum_met: coverage(&blocks) >= settings.min_coverage && lags.ranks.len() >= 2,
            n_ranks: lags.ranks.len(),
            outliers: Vec::new(),
            examined: Vec::new(),
        })
    }
}

fn first_iterations(blocks: &VecDeque<CohortBlock>) -> f64 {
    blocks.front().map_or(0.0, |block| block.iterations)
}

/// Scale that lags are measured against: the robust standard deviation of the late side, with a
/// floor.
fn sigma_ms(lags: &Lags, period_ms: f64) -> f64 {
    let means: Vec<f64> = lags.ranks.iter().map(|lag| lag.mean_ms).collect();
    let floor = FLOOR_MS.max(FLOOR_SHARE * period_ms);
    late_sigma(&means).unwrap_or(0.0).hypot(floor)
}

/// Share of the expected ranks that reported, on average over the blocks.
#[expect(
    clippy::cast_precision_loss,
    reason = "the number of ranks is far below 2^53"
)]
fn coverage(blocks: &[&CohortBlock]) -> f64 {
    let of_block =
        |block: &&CohortBlock| block.members.len() as f64 / block.n_expected.max(1) as f64;
    mean(&blocks.iter().map(of_block).collect::<Vec<f64>>()).unwrap_or(0.0)
}
