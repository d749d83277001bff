//! Diagnoses from the pace of the job and the ranks' waits over time, for jobs with or without
//! iterations.

use std::sync::Arc;

use echo_core::ids::RoleId;
use echo_core::model::detector_output::{Baseline, CauseClass, Signal};

use super::{Cohort, JobView};
use crate::assembly::{CohortBlock, PeriodReading};
use crate::cause::{CauseEvidence, Slowness, class_of};
use crate::finding::{Diagnosis, Subject};
use crate::lag::rank_order::FEW_RANKS;
use crate::lag::{Lag, lags};
use crate::pace::Slow;
use crate::pace::shift::{ShiftEvidence, SlowRank};
use crate::settings::Settings;
use crate::verdict::{Candidate, Doubt, WindowKind};
use crate::window::BlockWindow;

/// Duration of a slowdown before it is reported without a rank, milliseconds.
const NAMELESS_MS: f64 = 10_000.0;

/// Share of the gate for changes of pace that is enough for one that lasts.
const NAMELESS_SHARE: f64 = 0.5;

/// Standard errors by which it must be slow. The number is large because the slow span is chosen
/// where it looks slowest.
const Z_NAMELESS: f64 = 5.0;

/// Confidence of a rank that was found by waits.
const CONFIDENCE: f64 = 0.9;

/// The same of two ranks, where either could be at fault.
const CONFIDENCE_OF_TWO: f64 = 0.7;

impl Cohort {
    /// Returns true if the job has no iterations. An operation then counts as an iteration.
    pub(super) fn has_no_iterations(&self) -> bool {
        self.key.role == RoleId::new(u64::MAX)
    }

    /// Excess duration of a block's operations over healthy ones, milliseconds; `None` while
    /// unknown.
    pub fn excess_ms(&self, block: &CohortBlock) -> Option<f64> {
        let (took_ms, healthy_ms) = self.pace.took_and_healthy_ms(block)?;
        Some(took_ms - healthy_ms)
    }

    /// Adds the excess duration of its operations to a block, and a period if it has none of its
    /// own.
    pub(super) fn measure(&self, block: &mut CohortBlock) {
        let Some((took_ms, healthy_ms)) = self.pace.took_and_healthy_ms(block) else {
            return;
        };
        block.excess_ms = Some(took_ms - healthy_ms);
        if block.period.is_none() && block.iterations > 0.0 {
            block.period = Some(PeriodReading {
                ms: took_ms / block.iterations,
                iterations: block.iterations,
                interval: block.time,
            });
        }
    }

    /// Returns true if the pace of the job confirms the result of a window of iterations. A late
    /// rank costs nothing while the job keeps its pace, and with few ranks each may be the latest
    /// for seconds.
    pub(super) fn is_confirmed(&self, diagnosis: &Diagnosis, view: &JobView) -> bool {
        let is_settled =
            diagnosis.subject.is_structural() || self.faults.is_open(diagnosis.subject);
        if is_settled || !self.pace.is_measured() {
            return true;
        }
        // With two ranks, only their usual alternation shows if one is late by chance, or if both
        // are slow.
        if view.n_ranks <= 2 {
            return false;
        }
        match diagnosis.subject {
            Subject::Rank(_) if view.n_ranks > FEW_RANKS => true,
            _ if !self.pace.is_known() => true,
            Subject::Rank(rank) => self.shift_evidence(view).is_some_and(|shift_evidence| {
                shift_evidence.n_ranks() < 2 || shift_evidence.supports(rank)
            }),
            _ => self.pace.slow().is_some(),
        }
    }

    /// Combined shift evidence of the job's ranks while it is slow.
    pub(super) fn shift_evidence(&self, view: &JobView) -> Option<ShiftEvidence> {
        let slow = self.pace.slow()?;
        let shifts: Vec<_> = slow.shifts.iter().chain(&view.shifts).copied().collect();
        Some(ShiftEvidence::from_shifts(
            &shifts,
            (slow.lost_share(), slow.lasted_ms),
        ))
    }

    /// Diagnosis of a job that has been slow for some time: the rank that it waits for, else the
    /// slowdown itself.
    pub(super) fn slow_diagnoses(&self, view: &JobView, settings: &Settings) -> Vec<Diagnosis> {
        let Some((slow, shift_evidence)) = self.pace.slow().zip(self.shift_evidence(view)) else {
            return Vec::new();
        };
        let is_own =
            |slow_rank: &SlowRank| slow.shifts.iter().any(|own| own.rank == slow_rank.rank);
        if let Some(slow_rank) = shift_evidence.slow_rank().filter(|_| !slow.is_pause) {
            let diagnosis =
                is_own(&slow_rank).then(|| self.held_back_by(&slow_rank, slow, &shift_evidence));
            let diagnosis = diagnosis.flatten();
            let is_known = diagnosis
                .as_ref()
                .is_some_and(|diagnosis| self.faults.is_open(diagnosis.subject));
            return if is_known || !(self.faults.explains() || view.is_explained) {
                diagnosis.into_iter().collect()
            } else {
                Vec::new()
            };
        }
        let gate = (settings.uniform_gate * NAMELESS_SHARE).max(Z_NAMELESS * slow.error);
        let is_reported = slow.lasted_ms >= NAMELESS_MS && slow.ratio >= 1.0 + gate;
        if !is_reported || view.is_explained {
            return Vec::new();
        }
        let diagnosis = if slow.is_pause {
            Diagnosis::unclear(Doubt::OnePause)
        } else if shift_evidence.n_ranks() < 2 {
            Diagnosis::unclear(Doubt::NoPeers)
        } else if shift_evidence.candidate().is_some() {
            Diagnosis::unclear(Doubt::NotSignificant)
        } else {
            Diagnosis::uniform()
        };
        vec![Diagnosis {
            window_kind: WindowKind::SinceSlow,
            since: Some(slow.since),
            baseline: self
                .healthy_by_pace_ms()
                .map(|period_ms| Baseline::History { period_ms }),
            ..diagnosis
        }]
    }

    /// Healthy duration of an iteration of the latest block, predicted from its operations,
    /// milliseconds.
    fn healthy_by_pace_ms(&self) -> Option<f64> {
        self.blocks.iter().rev().find_map(|block| {
            let (took_ms, usual_ms) = self.pace.took_and_healthy_ms(block)?;
            // A block in which the job made no progress has no duration left.
            (took_ms > 0.0).then_some(block.period?.ms * usual_ms / took_ms)
        })
    }

    /// Diagnosis of the rank that the job waits for.
    fn held_back_by(
        &self,
        slow_rank: &SlowRank,
        slow: &Slow,
        shift_evidence: &ShiftEvidence,
    ) -> Option<Diagnosis> {
        let members = self.blocks.iter().rev().flat_map(|block| &block.members);
        let member = members
            .into_iter()
            .find(|member| member.rank == slow_rank.rank)?;
        let healthy_ms = self.healthy_by_pace_ms()?;
        let lag = Lag {
            rank: slow_rank.rank,
            origin: Arc::clone(&member.origin),
            signal: if slow_rank.by_device {
                Signal::DeviceWait
            } else {
                Signal::Wait
            },
            mean_ms: slow_rank.rise * slow.ratio * healthy_ms,
            steady_ms: slow_rank.rise * slow.ratio * healthy_ms,
            operations: 1.0,
            largest_at_one_ms: None,
            error_ms: None,
            own_ms: None,
            waits_for_ms: None,
            place: None,
            series: Vec::new(),
        };
        let candidate = Candidate {
            z: slow_rank.z,
            confidence: if shift_evidence.n_ranks() > 2 {
                CONFIDENCE
            } else {
                CONFIDENCE_OF_TWO
            },
            baseline: Baseline::History {
                period_ms: healthy_ms,
            },
            lag,
        };
        let class = self.class_of_slow_rank(slow_rank, &candidate.lag, slow, healthy_ms);
        Some(Diagnosis {
            window_kind: WindowKind::SinceSlow,
            since: Some(slow.since),
            ..Diagnosis::for_rank(&candidate, class, None)
        })
    }

    /// Returns true if the rank is late on its host or on its GPU.
    fn class_of_slow_rank(
        &self,
        slow_rank: &SlowRank,
        lag: &Lag,
        slow: &Slow,
        healthy_ms: f64,
    ) -> CauseClass {
        if slow_rank.by_host {
            // Its host is hardly blocked any more, unlike its peers: the host is busy.
            return CauseClass::Host;
        }
        let lately = |block: &&CohortBlock| block.first_iteration() >= slow.since;
        let span = BlockWindow {
            blocks: self.blocks.iter().rev().take_while(lately).collect(),
            iterations: 0.0,
        };
        let gaps = lags(Signal::HostGap, &span.blocks);
        let cause_evidence = CauseEvidence {
            gaps: gaps.as_ref(),
            gap_rates: &span.gap_rates(),
            queues: &span.queue_ms(),
            slowness: Slowness::from_blocks(&span.blocks, &self.history),
            damage_ms: Some((slow.ratio - 1.0) * healthy_ms),
        };
        class_of(lag, &cause_evidence)
    }
}
