//! Evaluation of a window of iterations.

use echo_core::model::detector_output::{DetectorOutput, Signal};

use super::{Cohort, CohortState, JobEvidence, JobView, MAX_BLOCKS, PolicyInput};
use crate::finding::Diagnosis;
use crate::lag::{Lags, lags, rank_order, suited_signal};
use crate::settings::Settings;
use crate::window::BlockWindow;

/// Result of evaluating one window.
pub(super) struct WindowDecision {
    pub(super) signal: Signal,
    diagnoses: Vec<Diagnosis>,
    cohort_state: CohortState,
    policy_input: Option<PolicyInput>,
    /// Number of blocks of the window and its lags, if they may count as healthy.
    healthy_window: Option<(usize, Option<Lags>)>,
}

impl Default for WindowDecision {
    fn default() -> Self {
        Self {
            signal: Signal::HostGap,
            diagnoses: Vec::new(),
            cohort_state: CohortState::default(),
            policy_input: None,
            healthy_window: None,
        }
    }
}

impl Cohort {
    /// Evaluates the latest window; `None` while the window is not full.
    pub(super) fn evaluate_window(
        &self,
        view: &JobView,
        settings: &Settings,
    ) -> Option<WindowDecision> {
        let window = BlockWindow::latest(&self.blocks, settings.window_iterations, 2);
        // Iterations that are much longer than blocks would never fill a window.
        if window.iterations < settings.window_iterations && self.blocks.len() < MAX_BLOCKS {
            return None;
        }
        let signal = suited_signal(&window.blocks);
        let mut lags = lags(signal, &window.blocks);
        if let Some(lags) = &mut lags {
            // While the usual scatter is unknown, all blocks so far may be needed to establish the
            // rank order.
            let all = f64::INFINITY;
            let spans = if self.history.scatter(signal).is_some() {
                &[2.0][..]
            } else {
                &[2.0, all]
            };
            for windows in spans {
                let wider =
                    BlockWindow::latest(&self.blocks, windows * settings.window_iterations, 2);
                rank_order::assign(signal, &wider.blocks, &mut lags.ranks);
            }
        }
        let found = self.diagnose(&window, lags.as_ref(), view, settings);
        let policy_input = self.compute_policy_input(&window, lags.as_ref(), settings);
        Some(WindowDecision {
            signal,
            diagnoses: found.diagnoses,
            cohort_state: found.cohort_state,
            policy_input,
            healthy_window: (!found.is_damaged || (found.is_healthy && !view.is_disturbed))
                .then_some((window.blocks.len(), lags)),
        })
    }

    /// Updates incidents from the evaluation, and records healthy blocks in the history.
    pub(super) fn update_incidents(
        &mut self,
        decision: WindowDecision,
        view: &JobView,
        settings: &Settings,
    ) -> DetectorOutput {
        let mut diagnoses = decision.diagnoses;
        diagnoses.retain(|diagnosis| self.is_confirmed(diagnosis, view));
        diagnoses.extend(self.slow.iter().cloned());
        self.cohort_state = decision.cohort_state;
        let mut victims = self.cohort_state.victims.clone();
        victims.extend(view.victims.iter().copied());
        let shift_evidence = self.shift_evidence(view);
        let evidence = JobEvidence {
            victims: &victims,
            is_explained: view.is_explained,
            shift_evidence: shift_evidence.as_ref(),
        };
        let output = self.decide(decision.signal, &diagnoses, &evidence, settings);
        self.cohort_state.explains = self.faults.explains();
        self.cohort_state.is_disturbed = !self.faults.is_empty();
        self.cohort_state.shifts = self
            .pace
            .slow()
            .map_or_else(Vec::new, |slow| slow.shifts.clone());
        // A slowdown caused by another cohort, or not explained yet, must not count as healthy.
        let healthy_window = decision
            .healthy_window
            .filter(|_| self.pace.slow().is_none());
        if let Some((n_window, lags)) = healthy_window {
            self.record_healthy(n_window, lags.as_ref(), settings);
        }
        let policy_input = decision.policy_input.or_else(|| self.policy_input.take());
        self.policy_input = policy_input.map(|policy_input| PolicyInput {
            outliers: self.faults.named_ranks(),
            ..policy_input
        });
        output
    }
}
