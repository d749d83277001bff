//! Root-cause diagnosis of a window: over a few iterations, over many, and immediate.

use std::sync::Arc;

use echo_core::model::detector_output::{CauseClass, Condition, ConditionKind, Signal};
use echo_core::model::event::SeqRange;
use echo_core::model::inputs::{Inputs, RankLag};
use echo_core::stats::series::change_point;

use super::{Cohort, CohortState, JobView, MAX_BLOCKS, structure};
use crate::cause::{CauseEvidence, Slowness, class_of, is_hidden_from_host};
use crate::finding::{Diagnosis, Subject};
use crate::lag::rank_order::least_lag_ms;
use crate::lag::{Lag, Lags, lags, suited_signal};
use crate::settings::Settings;
use crate::verdict::{Candidate, Decision, Evidence, Scale, Verdict, WindowKind, decide};
use crate::window::BlockWindow;

/// Minimum number of iterations behind a diagnosis that is raised at once.
const FAST_ITERATIONS: f64 = 5.0;

/// Smallest z-score for a diagnosis that is raised at once.
const FAST_Z: f64 = 8.0;

/// Smallest lag at every single operation of such a diagnosis, as a share of the gate for its mean.
const ALWAYS_SHARE: f64 = 0.5;

/// Iterations on either side of a change of pace before it is reported (Greyhound's verification:
/// 10 periods).
const PACE_ITERATIONS: f64 = 10.0;

/// Largest reduction of blocked time compared with its peers, as a share of its lag, of a rank that
/// is late only because it waits.
const VICTIM_SHARE: f64 = 0.5;

/// Minimum number of blocks in a window for rare stalls.
const LONG_BLOCKS: usize = 8;

/// Diagnoses from one window, with the state that the other cohorts need.
pub(super) struct WindowDiagnosis {
    pub(super) diagnoses: Vec<Diagnosis>,
    pub(super) cohort_state: CohortState,
    /// True if the decision found no fault and no late rank.
    pub(super) is_healthy: bool,
    /// True if the window has a significant loss against the history.
    pub(super) is_damaged: bool,
}

/// Lag of the latest rank that is blocked as long as its peers, milliseconds per iteration; 0 for
/// none. The cause of such a lag is elsewhere.
fn victim_lag_ms(lags: &Lags) -> f64 {
    let waits = |lag: &&Lag| {
        lag.signal == Signal::DeviceWait
            && lag
                .own_ms
                .is_some_and(|own| own < VICTIM_SHARE * lag.mean_ms)
    };
    let victims = lags.ranks.iter().filter(waits);
    victims.map(|lag| lag.mean_ms).fold(0.0, f64::max)
}

impl Cohort {
    /// Diagnoses the latest window.
    pub(super) fn diagnose(
        &self,
        window: &BlockWindow<'_>,
        lags: Option<&Lags>,
        view: &JobView,
        settings: &Settings,
    ) -> WindowDiagnosis {
        let mut cohort_state = CohortState {
            busy_ms: structure::busy_ms(window),
            ..CohortState::default()
        };
        let Some(evidence) = self.evidence(window, lags, view, WindowKind::Short) else {
            let diagnoses = Vec::new();
            return WindowDiagnosis {
                diagnoses,
                cohort_state,
                is_healthy: true,
                is_damaged: false,
            };
        };
        let evidence = self.with_transfers(window, evidence, settings);
        let decision = decide(&evidence, settings);
        cohort_state.root_own_ms = decision.root_own_ms;
        cohort_state.victim_lag_ms = lags.map_or(0.0, victim_lag_ms);
        cohort_state.victims = decision.victims.iter().copied().collect();
        let mut diagnoses = self.diagnoses(&decision, window, &evidence, settings);
        // A named rank is better than an unexplained slowdown: a rank that this window cannot
        // identify may be identified by a shorter or longer one. In the long window, the lag of an
        // incident that is still open would count towards another one.
        if !names_somebody(&diagnoses) {
            let at_once = self.at_once(view, settings);
            if names_somebody(&at_once) {
                diagnoses = at_once;
            } else if self.faults.is_empty() {
                let rare = self.rare_stalls(view, settings);
                diagnoses = if names_somebody(&rare) {
                    rare
                } else {
                    diagnoses
                };
            }
        }
        diagnoses.extend(self.uneven(&evidence, view, settings));
        WindowDiagnosis {
            diagnoses,
            cohort_state,
            is_healthy: decision.verdict == Verdict::Healthy && !decision.is_doubtful,
            is_damaged: !evidence.is_undamaged(settings),
        }
    }

    fn evidence<'e>(
        &self,
        window: &BlockWindow<'_>,
        lags: Option<&'e Lags>,
        view: &JobView,
        window_kind: WindowKind,
    ) -> Option<Evidence<'e>> {
        let last = self.last_periods?;
        #[expect(clippy::cast_precision_loss, reason = "readings of one window are few")]
        let n_readings = window.n_periods().max(1) as f64;
        let sigma = self.history.period_sigma_ms();
        Some(Evidence {
            lags,
            period_ms: window.period_ms().unwrap_or(last.latest.ms),
            steady_period_ms: window
                .typical_period_ms()
                .unwrap_or_else(|| last.before.ms.min(last.latest.ms)),
            healthy_ms: self.history.period_ms(),
            period_error_ms: sigma.map(|sigma| sigma / n_readings.sqrt()),
            usual: lags.and_then(|lags| self.history.scatter(lags.signal)),
            coverage: window.coverage(),
            transfers_are_slow: false,
            window_kind,
            n_tests: view.n_ranks,
            rival_own_ms: view.rival_own_ms,
            victim_lag_ms: view.victim_lag_ms,
            is_explained: view.is_explained,
        })
    }

    /// Adds the evidence of transfers, if time was lost: otherwise it is not worth computing.
    fn with_transfers<'e>(
        &self,
        window: &BlockWindow<'_>,
        evidence: Evidence<'e>,
        settings: &Settings,
    ) -> Evidence<'e> {
        let is_slow = || {
            Slowness::from_blocks(&window.blocks, &self.history).is_some_and(Slowness::is_network)
        };
        Evidence {
            transfers_are_slow: !evidence.is_undamaged(settings) && is_slow(),
            ..evidence
        }
    }

    /// Returns true if a window has a significant loss. Most windows have none and need no further
    /// evaluation.
    fn is_undamaged(&self, window: &BlockWindow<'_>, view: &JobView, settings: &Settings) -> bool {
        self.evidence(window, None, view, WindowKind::Short)
            .is_none_or(|evidence| evidence.is_undamaged(settings))
    }

    /// Diagnoses of a decision, most severe first.
    fn diagnoses(
        &self,
        decision: &Decision,
        window: &BlockWindow<'_>,
        evidence: &Evidence<'_>,
        settings: &Settings,
    ) -> Vec<Diagnosis> {
        match &decision.verdict {
            Verdict::Healthy => Vec::new(),
            Verdict::Uniform => self.slow(window, evidence, settings).into_iter().collect(),
            Verdict::Inconclusive(doubt) => vec![Diagnosis::unclear(*doubt)],
            Verdict::Culprits(candidates) => {
                let inputs = inputs(window, evidence, settings).map(Arc::new);
                let gaps = lags(Signal::HostGap, &window.blocks);
                let cause_evidence = CauseEvidence {
                    gaps: gaps.as_ref(),
                    gap_rates: &window.gap_rates(),
                    queues: &window.queue_ms(),
                    slowness: Slowness::from_blocks(&window.blocks, &self.history),
                    damage_ms: evidence
                        .healthy_ms
                        .map(|healthy| evidence.period_ms - healthy),
                };
                let against = |candidate: &Candidate| {
                    let class = class_of(&candidate.lag, &cause_evidence);
                    Diagnosis {
                        window_kind: evidence.window_kind,
                        disagrees: class != CauseClass::Host
                            && is_hidden_from_host(&candidate.lag, &cause_evidence),
                        ..Diagnosis::for_rank(candidate, class, inputs.clone())
                    }
                };
                candidates.iter().map(against).collect()
            }
        }
    }

    /// Diagnosis that all ranks are slow: because of the network, when transfers show it, and only
    /// if the pace has really changed.
    fn slow(
        &self,
        window: &BlockWindow<'_>,
        evidence: &Evidence<'_>,
        settings: &Settings,
    ) -> Option<Diagnosis> {
        if !self.changed_pace(evidence.pace_gate(settings)) {
            return None;
        }
        let slowness = Slowness::from_blocks(&window.blocks, &self.history);
        let mut diagnosis = match slowness.filter(|slowness| slowness.is_network()) {
            Some(slowness) => {
                let detail = format!(
                    "collectives take {:.1} times as long as usual although no rank is late: the network is slow",
                    slowness.transfer_ratio
                );
                let condition = Condition {
                    detail,
                    ..Condition::new(ConditionKind::Network)
                };
                Diagnosis::new(Subject::Network, condition)
            }
            None => Diagnosis::uniform(),
        };
        diagnosis.inputs = inputs(window, evidence, settings).map(Arc::new);
        Some(diagnosis)
    }

    /// Returns true if the period has changed by `gate`, between two levels that each held for
    /// several iterations.
    fn changed_pace(&self, gate: f64) -> bool {
        let readings: Vec<_> = self
            .blocks
            .iter()
            .filter_map(|block| block.period)
            .collect();
        let per_reading = readings
            .iter()
            .map(|reading| reading.iterations)
            .fold(f64::MAX, f64::min);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and 10"
        )]
        let least = (PACE_ITERATIONS / per_reading)
            .ceil()
            .clamp(1.0, PACE_ITERATIONS) as usize;
        let series: Vec<f64> = readings.iter().map(|reading| reading.ms).collect();
        // A change that lies too far back to be seen was verified when it was new.
        let healthy = self.history.period_ms();
        let before = |found_before: f64| healthy.map_or(found_before, |ms| ms.min(found_before));
        change_point(&series, least).is_some_and(|found| {
            let reference = before(found.before);
            let latest = if found.after >= found.before {
                found.after
            } else {
                found.before
            };
            latest >= reference * (1.0 + gate)
        })
    }

    /// Finds a rank that is so late that it is named at once: by a fifth of the period and, among
    /// few ranks, last in all recent rounds.
    fn at_once(&self, view: &JobView, settings: &Settings) -> Vec<Diagnosis> {
        let window = BlockWindow::latest(&self.blocks, FAST_ITERATIONS, 1);
        if self.is_undamaged(&window, view, settings) {
            return Vec::new();
        }
        let signal = suited_signal(&window.blocks);
        let lags = lags(signal, &window.blocks);
        let Some(evidence) = self.evidence(&window, lags.as_ref(), view, WindowKind::Short) else {
            return Vec::new();
        };
        let Some(healthy) = evidence.healthy_ms else {
            return Vec::new();
        };
        let decision = decide(&evidence, settings);
        let mut diagnoses = self.diagnoses(&decision, &window, &evidence, settings);
        let is_last = |lag: &Lag| {
            lag.place
                .is_none_or(|place| place.last_share >= 1.0 && place.rounds >= FAST_ITERATIONS)
        };
        let gate = settings.fast_gate * healthy;
        let is_always_late = |lag: &Lag| {
            let least = least_lag_ms(lag.signal, &window.blocks, lag.rank);
            least.is_none_or(|ms| ms >= gate * ALWAYS_SHARE)
        };
        let is_severe = |candidate: &Candidate| {
            candidate.z >= FAST_Z
                && candidate.lag.steady_ms >= gate
                && is_last(&candidate.lag)
                && is_always_late(&candidate.lag)
        };
        let Verdict::Culprits(candidates) = &decision.verdict else {
            return Vec::new();
        };
        let mut severe = candidates.iter().map(is_severe);
        diagnoses.retain(|_| severe.next() == Some(true));
        for diagnosis in &mut diagnoses {
            diagnosis.is_provisional = true;
        }
        diagnoses
    }

    /// Finds stalls that are too rare for a short window but add up over a long one.
    fn rare_stalls(&self, view: &JobView, settings: &Settings) -> Vec<Diagnosis> {
        let window =
            BlockWindow::latest(&self.blocks, settings.long_window_iterations, LONG_BLOCKS);
        let is_long = window.iterations >= settings.long_window_iterations
            || window.blocks.len() >= MAX_BLOCKS;
        if !is_long || self.is_undamaged(&window, view, settings) {
            return Vec::new();
        }
        let lags = lags(suited_signal(&window.blocks), &window.blocks);
        let evidence = self.evidence(&window, lags.as_ref(), view, WindowKind::Long);
        evidence.map_or_else(Vec::new, |evidence| {
            let decision = decide(&evidence, settings);
            self.diagnoses(&decision, &window, &evidence, settings)
        })
    }
}

fn names_somebody(diagnoses: &[Diagnosis]) -> bool {
    let is_rank = |diagnosis: &Diagnosis| matches!(diagnosis.subject, Subject::Rank(_));
    diagnoses.iter().any(is_rank)
}

/// Inputs of a decision, stored for audit.
fn inputs(
    window: &BlockWindow<'_>,
    evidence: &Evidence<'_>,
    settings: &Settings,
) -> Option<Inputs> {
    let (last, first) = (window.blocks.first()?, window.blocks.last()?);
    let lags = evidence.lags?;
    let scale = Scale::from_lags(lags, evidence, settings);
    let mut latest: Vec<&Lag> = lags.ranks.iter().collect();
    latest.sort_by(|a, b| b.mean_ms.total_cmp(&a.mean_ms));
    let rank_lag = |lag: &Lag| RankLag {
        rank: lag.rank,
        lag_ms: lag.mean_ms,
        z: scale.z(lag),
        own_ms: lag.own_ms,
    };
    Some(Inputs {
        seqs: SeqRange::new(first.seqs.first(), last.seqs.last())?,
        iterations: window.iterations,
        period_ms: evidence.period_ms,
        healthy_ms: evidence.healthy_ms,
        center_ms: lags.center_ms,
        sigma_ms: scale.sigma_ms,
        critical_z: scale.critical_z,
        effect_gate: settings.effect_gate,
        coverage: evidence.coverage,
        n_ranks: u32::try_from(lags.ranks.len()).unwrap_or(u32::MAX),
        lags: latest
            .into_iter()
            .take(Inputs::MAX_LAGS)
            .map(rank_lag)
            .collect(),
    })
}
