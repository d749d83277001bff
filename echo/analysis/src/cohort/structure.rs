//! Structural properties of a job that are no faults: uneven stages, uneven data.

use echo_core::model::detector_output::{Baseline, Condition, ConditionKind};
use echo_core::text::decimal;

use super::{Cohort, JobView};
use crate::finding::{Diagnosis, Subject};
use crate::imbalance::{DataImbalance, data_imbalance};
use crate::settings::Settings;
use crate::verdict::Evidence;
use crate::window::BlockWindow;

/// Iterations over which the structure of the job is evaluated.
const TURN_ITERATIONS: f64 = 32.0;

impl Cohort {
    /// Structural diagnoses: uneven stages, uneven data. One that is already open stays open down
    /// to half of its gate.
    pub(super) fn uneven(
        &self,
        evidence: &Evidence<'_>,
        view: &JobView,
        settings: &Settings,
    ) -> Vec<Diagnosis> {
        let window = BlockWindow::latest(&self.blocks, TURN_ITERATIONS, 2);
        let period_ms = evidence.period_ms;
        let matters = |subject: Subject, ms: f64, gate: f64| {
            let gate = if self.structure.is_open(subject) {
                gate / 2.0
            } else {
                gate
            };
            window.iterations >= TURN_ITERATIONS && ms >= gate * period_ms
        };
        let mut diagnoses = Vec::new();
        if matters(Subject::Stage, view.stage_excess_ms, settings.stage_gate) {
            diagnoses.push(stage_diagnosis(&window, view.stage_excess_ms, period_ms));
        }
        let imbalance = data_imbalance(&window.blocks);
        let data_gate = imbalance.map_or(0.0, |found| settings.data_gate * found.margin());
        if let Some(found) = imbalance.filter(|one| matters(Subject::Data, one.skew_ms, data_gate))
        {
            diagnoses.push(data_diagnosis(&found, period_ms));
        }
        diagnoses
    }
}

fn stage_diagnosis(window: &BlockWindow<'_>, excess_ms: f64, period_ms: f64) -> Diagnosis {
    let ranks = window.blocks.first().map_or_else(Vec::new, |block| {
        block.members.iter().map(|member| member.rank).collect()
    });
    let detail = format!(
        "each GPU of this role computes {} ms longer per iteration than is typical of the job ({} % of the period)",
        decimal(excess_ms, 1),
        decimal(100.0 * excess_ms / period_ms, 0),
    );
    let condition = Condition {
        ranks,
        detail,
        ..Condition::new(ConditionKind::StageImbalance)
    };
    Diagnosis {
        baseline: Some(Baseline::None { period_ms }),
        ..Diagnosis::new(Subject::Stage, condition)
    }
}

fn data_diagnosis(imbalance: &DataImbalance, period_ms: f64) -> Diagnosis {
    let detail = format!(
        "the last rank arrives {} ms after the typical one ({} % of the period), and the last rank changes from operation to operation (entropy {:.2}): the work is distributed unevenly",
        decimal(imbalance.skew_ms, 1),
        decimal(100.0 * imbalance.skew_ms / period_ms, 1),
        imbalance.entropy,
    );
    let condition = Condition {
        detail,
        ..Condition::new(ConditionKind::DataImbalance)
    };
    Diagnosis {
        baseline: Some(Baseline::None { period_ms }),
        ..Diagnosis::new(Subject::Data, condition)
    }
}

/// Compute time of each rank's GPU, milliseconds per iteration in the order of the ranks; empty
/// unless all report it.
pub(super) fn busy_ms(window: &BlockWindow<'_>) -> Vec<f64> {
    let Some(latest) = window.blocks.first() else {
        return Vec::new();
    };
    let n = latest.members.len();
    let full = window
        .blocks
        .iter()
        .filter(|block| block.members.len() == n);
    let busy = (0..n).map(|index| {
        let (mut sum, mut iterations) = (0.0, 0.0);
        for block in full.clone() {
            sum += block.members.get(index)?.busy?.sum;
            iterations += block.iterations;
        }
        Some(sum / iterations)
    });
    busy.collect::<Option<Vec<f64>>>().unwrap_or_default()
}
