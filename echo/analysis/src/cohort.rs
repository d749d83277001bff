//! One cohort over time: its window, its history, and the incidents that are open.

use std::collections::{BTreeSet, VecDeque};

use echo_core::ids::Rank;
use echo_core::model::detector_output::{Baseline, DetectorOutput, Incident, LostTime, Signal};
use echo_core::units::Nanos;

use crate::assembly::{CohortBlock, CohortKey, PeriodReading};
use crate::baseline::History;
use crate::finding::{Diagnosis, Subject};
use crate::incident_tracker::{IncidentTracker, TrackerContext};
use crate::lag::Lags;
use crate::loss_accounting::{Account, LossAccounting, LossCause, blocked_ms};
use crate::pace::Pace;
use crate::pace::shift::ShiftEvidence;
use crate::settings::Settings;
use crate::verdict::sigma_ms;
use crate::window::BlockWindow;

mod evaluation;
mod root_cause;
mod slowdown;
mod structure;
mod view;

pub use view::{CohortState, JobView};

/// Maximum number of blocks kept to find the start of an incident.
const MAX_BLOCKS: usize = 64;

/// Minimum event time for which blocks are kept, milliseconds, up to a maximum number of blocks.
const KEPT_MS: f64 = 40_000.0;
const MOST_BLOCKS: usize = 256;

/// One cohort over time.
#[derive(Debug, Clone)]
pub struct Cohort {
    key: CohortKey,
    blocks: VecDeque<CohortBlock>,
    history: History,
    started: bool,
    last_periods: Option<LastPeriods>,
    /// Start of a fault of the job that is known although no incident is open here yet.
    known_bad_since: Option<Nanos>,
    /// Incidents about faults.
    faults: IncidentTracker,
    /// Incidents about the structure of the job.
    structure: IncidentTracker,
    loss_accounting: LossAccounting,
    pace: Pace,
    /// Diagnoses derived from the pace.
    slow: Vec<Diagnosis>,
    iterations_since_lags: f64,
    cohort_state: CohortState,
    policy_input: Option<PolicyInput>,
}

/// Cohort statistics that agents need to classify themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyInput {
    /// End of the block at which it was computed, event time.
    pub computed_at: Nanos,
    /// Signal of the centre and the scale.
    pub signal: Signal,
    /// Median of the members' signal, milliseconds per iteration.
    pub center_ms: f64,
    /// Scale that lags are measured against, milliseconds.
    pub sigma_ms: f64,
    /// Healthy period, milliseconds, when known.
    pub healthy_ms: Option<f64>,
    /// True if enough ranks report for a verdict.
    pub quorum_met: bool,
    /// Number of ranks compared.
    pub n_ranks: usize,
    /// Ranks named now.
    pub outliers: Vec<Rank>,
}

/// Evidence from all cohorts of a job for the incidents of one.
struct JobEvidence<'a> {
    victims: &'a BTreeSet<Rank>,
    is_explained: bool,
    shift_evidence: Option<&'a ShiftEvidence>,
}

/// The last two readings of the period; equal if there was only one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LastPeriods {
    before: PeriodReading,
    latest: PeriodReading,
}

impl Cohort {
    /// Creates a cohort without history.
    pub fn new(key: CohortKey) -> Self {
        Self {
            key,
            blocks: VecDeque::new(),
            history: History::default(),
            started: false,
            last_periods: None,
            known_bad_since: None,
            faults: IncidentTracker::default(),
            structure: IncidentTracker::default(),
            loss_accounting: LossAccounting::default(),
            pace: Pace::default(),
            slow: Vec::new(),
            iterations_since_lags: 0.0,
            cohort_state: CohortState::default(),
            policy_input: None,
        }
    }

    /// Creates a cohort of a job with an incident that began at `since` and is yet to be restored:
    /// nothing since then counts as healthy.
    pub fn known_bad(key: CohortKey, since: Nanos) -> Self {
        Self {
            known_bad_since: Some(since),
            ..Self::new(key)
        }
    }

    /// Policy input for the agents, once available.
    pub const fn policy_input(&self) -> Option<&PolicyInput> {
        self.policy_input.as_ref()
    }

    /// State that the other cohorts of the job need.
    pub const fn cohort_state(&self) -> &CohortState {
        &self.cohort_state
    }

    /// Returns true if it has received a block.
    pub fn has_begun(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Healthy duration of an iteration, milliseconds, when known.
    pub fn healthy_ms(&self) -> Option<f64> {
        self.history.period_ms()
    }

    /// Open incidents that the loss of the job can be attributed to.
    pub fn loss_causes(&self) -> Vec<LossCause> {
        self.faults.loss_causes(&self.key)
    }

    /// Returns its lost time that has not been attributed yet.
    pub fn account_losses(&mut self, causes: &[LossCause]) -> Vec<LostTime> {
        let account = Account {
            key: &self.key,
            blocks: &self.blocks,
            healthy_ms: self.history.period_ms(),
            healthy_blocked_ms: self.history.blocked_ms(),
        };
        self.loss_accounting.account_losses(&account, causes)
    }

    /// Records the next block and returns the resulting detector output.
    pub fn observe(
        &mut self,
        block: CohortBlock,
        view: &JobView,
        settings: &Settings,
    ) -> DetectorOutput {
        let mut block = block;
        let has_ticked = self.pace.push(&block);
        self.measure(&mut block);
        // Blocks before the first measured iteration belong to the start-up: compilation,
        // allocation, first connections.
        self.started |= block.period.is_some();
        if !self.started {
            self.pace.learn(view.is_disturbed);
            return DetectorOutput::default();
        }
        let compares_iterations = block.iterations > 0.0 && !self.has_no_iterations();
        if block.iterations > 0.0 {
            self.keep(block);
        }
        if has_ticked {
            self.slow = self.slow_diagnoses(view, settings);
        }
        let decision = if compares_iterations {
            self.evaluate_window(view, settings)
        } else {
            None
        };
        let decision = decision.unwrap_or_default();
        let output = self.update_incidents(decision, view, settings);
        self.pace
            .learn(view.is_disturbed || !self.faults.is_empty());
        output
    }

    fn keep(&mut self, block: CohortBlock) {
        self.last_periods = block.period.map_or(self.last_periods, |latest| {
            let before = self.last_periods.map_or(latest, |last| last.latest);
            Some(LastPeriods { before, latest })
        });
        self.iterations_since_lags += block.iterations;
        self.blocks.push_back(block);
        let latest = self
            .blocks
            .back()
            .map_or(Nanos::EARLIEST, |block| block.time.to());
        // More blocks are kept if they are short, so that a fault of some duration is still covered
        // when it is named.
        let is_old = |block: &mut CohortBlock| latest.millis_since(block.time.to()) > KEPT_MS;
        while self.blocks.len() > MOST_BLOCKS
            || self.blocks.len() > MAX_BLOCKS && self.blocks.front_mut().is_some_and(is_old)
        {
            self.blocks.pop_front();
        }
    }

    /// Raises, updates and clears incidents from diagnoses.
    fn decide(
        &mut self,
        signal: Signal,
        diagnoses: &[Diagnosis],
        evidence: &JobEvidence<'_>,
        settings: &Settings,
    ) -> DetectorOutput {
        let (structure, faults): (Vec<Diagnosis>, Vec<Diagnosis>) = diagnoses
            .iter()
            .cloned()
            .partition(|diagnosis| diagnosis.subject.is_structural());
        let context = TrackerContext {
            key: &self.key,
            blocks: &self.blocks,
            signal,
            healthy_ms: self.history.period_ms(),
            victims: evidence.victims,
            is_explained: evidence.is_explained,
            shift_evidence: evidence.shift_evidence,
            settings,
        };
        let (mut output, _) = self.structure.follow(&context, &structure);
        output.append(self.structure.raise(&context, &structure));
        let (followed, ended) = self.faults.follow(&context, &faults);
        output.append(followed);
        if ended && self.faults.is_empty() {
            self.drop_incident_blocks(settings);
        } else {
            output.append(self.faults.raise(&context, &faults));
        }
        output
    }

    /// Drops the blocks of incidents that have ended, so that they neither count for another
    /// incident nor are attributed twice.
    fn drop_incident_blocks(&mut self, settings: &Settings) {
        let calm = BlockWindow::latest(&self.blocks, settings.window_iterations / 2.0, 1);
        let n_gone = self.blocks.len().saturating_sub(calm.blocks.len());
        self.blocks.drain(..n_gone);
        self.faults.reset_streaks();
        let latest = self.blocks.iter().rev().find_map(|block| block.period);
        self.last_periods = latest.map(|latest| LastPeriods {
            before: latest,
            latest,
        });
    }

    /// Restores incidents from an earlier detector; returns those that it cannot continue.
    pub fn restore(&mut self, known: Vec<Incident>) -> Vec<Incident> {
        self.known_bad_since = None;
        let Some(now) = self.blocks.back() else {
            return known;
        };
        let healthy = known.iter().find_map(|incident| match incident.baseline {
            Baseline::History { period_ms } => Some(period_ms),
            Baseline::None { .. } => None,
        });
        if let Some(period_ms) = healthy {
            self.history.record_known_period(period_ms);
        }
        let (mut faults, mut structure, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for incident in known {
            match Subject::from_finding(&incident.finding) {
                Some(subject) if subject.is_structural() => structure.push((subject, incident)),
                Some(subject) => faults.push((subject, incident)),
                None => unknown.push(incident),
            }
        }
        self.faults.restore(faults, now);
        self.structure.restore(structure, now);
        self.cohort_state.explains = self.faults.explains();
        self.cohort_state.is_disturbed = !self.faults.is_empty();
        if let Some(policy_input) = &mut self.policy_input {
            policy_input.outliers = self.faults.named_ranks();
        }
        unknown
    }

    /// Attributes losses after this iteration again, and leaves earlier ones as the previous
    /// detector attributed them.
    pub fn settle(&mut self, until: f64) {
        self.loss_accounting.restart(until);
    }

    /// Clears open incidents, because the job does not report any more.
    pub fn end(&mut self) -> DetectorOutput {
        let mut output = self.faults.end(self.blocks.back());
        output.append(self.structure.end(self.blocks.back()));
        output
    }

    /// Adds healthy blocks to the history. A block is added only once it has left the window, so
    /// that a fault that is not yet raised does not count as healthy.
    fn record_healthy(&mut self, n_window: usize, lags: Option<&Lags>, settings: &Settings) {
        let latest = self.blocks.back().map(|block| block.time.to());
        let is_known_bad = self.known_bad_since.is_some() && latest >= self.known_bad_since;
        if is_known_bad || !self.faults.is_clean() {
            self.iterations_since_lags = 0.0;
            return;
        }
        let left = self.blocks.len().checked_sub(n_window + 1);
        if let Some(block) = left.and_then(|index| self.blocks.get(index)) {
            if let Some(reading) = &block.period {
                self.history.record_period(reading);
            }
            let blocked = block.members.iter();
            let blocked: Vec<f64> = blocked
                .filter_map(|member| blocked_ms(member, block))
                .collect();
            self.history.record_blocked(&blocked);
            for transfer in &block.transfers {
                self.history.record_transfer(transfer);
            }
        }
        if let Some(lags) = lags
            && self.iterations_since_lags >= settings.window_iterations
        {
            self.iterations_since_lags = 0.0;
            self.history.record_lags(lags.signal, scatter_of(lags));
        }
    }

    /// Policy input for the agents from the window.
    fn compute_policy_input(
        &self,
        window: &BlockWindow<'_>,
        lags: Option<&Lags>,
        settings: &Settings,
    ) -> Option<PolicyInput> {
        let (lags, last) = lags.zip(window.blocks.first())?;
        let period_ms = window
            .period_ms()
            .or_else(|| self.last_periods.map(|last| last.latest.ms))?;
        Some(PolicyInput {
            computed_at: last.time.to(),
            signal: lags.signal,
            center_ms: lags.center_ms,
            sigma_ms: sigma_ms(lags, period_ms, self.history.scatter(lags.signal)),
            healthy_ms: self.history.period_ms(),
            quorum_met: window.coverage() >= settings.min_coverage && lags.ranks.len() >= 2,
            n_ranks: lags.ranks.len(),
            outliers: Vec::new(),
        })
    }
}

/// Returns the lags from which the usual scatter is estimated. With two ranks, one lag is always 0
/// and the other never negative, so their difference is used in both directions.
fn scatter_of(lags: &Lags) -> Vec<f64> {
    match lags.ranks.as_slice() {
        [one, other] => {
            let difference = one.mean_ms - other.mean_ms;
            vec![difference, -difference]
        }
        many => many.iter().map(|lag| lag.mean_ms).collect(),
    }
}

#[cfg(test)]
mod tests;
