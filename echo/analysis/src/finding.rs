//! Diagnoses of one subject each, in the form in which they become incidents.

use std::sync::Arc;

use echo_core::ids::{NodeId, Rank};
use echo_core::model::detector_output::{
    Baseline, CauseClass, Condition, ConditionKind, Culprit, Finding, Signal,
};
use echo_core::model::event::Source;
use echo_core::model::inputs::Inputs;

use crate::verdict::{Candidate, Doubt, WindowKind};

/// Confidence of a condition that was measured against the cohort's own history.
const CONDITION_CONFIDENCE: f64 = 0.9;

/// Subject of an incident of a cohort; each has at most one open incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// One rank holds back the others.
    Rank(Rank),
    /// All ranks are slow.
    Uniform,
    /// Transfers are slow.
    Network,
    /// The cause is unclear.
    Unclear(Doubt),
    /// This role has more to do than the others.
    Stage,
    /// The work is distributed unevenly among the ranks.
    Data,
    /// An operation does not end.
    Hang,
    /// Two nodes report the same rank.
    Identity,
}

impl Subject {
    /// Returns the subject of a finding; `None` for a finding that is not about a cohort, or by
    /// rules that no longer exist.
    pub fn from_finding(finding: &Finding) -> Option<Self> {
        let condition = match finding {
            Finding::Culprit(culprit) => return Some(Self::Rank(culprit.rank)),
            Finding::Condition(condition) => condition,
        };
        Some(match condition.kind {
            ConditionKind::UniformSlowdown => Self::Uniform,
            ConditionKind::Network => Self::Network,
            ConditionKind::StageImbalance => Self::Stage,
            ConditionKind::DataImbalance => Self::Data,
            ConditionKind::Stall | ConditionKind::Hang => Self::Hang,
            ConditionKind::IdentityConflict => Self::Identity,
            ConditionKind::LateNode | ConditionKind::UnhealthyNode => return None,
            ConditionKind::Inconclusive => {
                let mut doubts = Doubt::ALL.into_iter();
                Self::Unclear(doubts.find(|doubt| doubt.reason() == condition.detail)?)
            }
        })
    }

    /// Returns true if it names no cause: only that the cohort is slow.
    pub const fn is_unexplained(self) -> bool {
        matches!(self, Self::Uniform | Self::Unclear(_))
    }

    /// Returns true if it is a property of the job rather than a fault. The healthy history has it
    /// too, so it costs nothing.
    pub const fn is_structural(self) -> bool {
        matches!(self, Self::Stage | Self::Data)
    }
}

/// Diagnosis: a finding about one subject, with its evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// The subject.
    pub subject: Subject,
    /// The finding, as it would be reported.
    pub finding: Finding,
    /// Healthy period that the damage was measured against, if the finding has its own.
    pub baseline: Option<Baseline>,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// Inputs of the decision.
    pub inputs: Option<Arc<Inputs>>,
    /// Kind of the window that shows it.
    pub window_kind: WindowKind,
    /// True if the GPU of the rank is late but its host is not.
    pub disagrees: bool,
    /// True to raise it at once, before it has persisted.
    pub is_provisional: bool,
    /// Iterations before it began, where the diagnosis defines it.
    pub since: Option<f64>,
}

impl Diagnosis {
    /// Creates the diagnosis of a late rank.
    pub fn for_rank(candidate: &Candidate, class: CauseClass, inputs: Option<Arc<Inputs>>) -> Self {
        let lag = &candidate.lag;
        let source = match lag.signal {
            Signal::DeviceWait => Source::Device,
            Signal::HostGap | Signal::Wait | Signal::Arrival => Source::Host,
        };
        Self {
            subject: Subject::Rank(lag.rank),
            finding: Finding::Culprit(Culprit {
                rank: lag.rank,
                node: NodeId::clone(&lag.origin.node),
                gpu_uuid: lag.origin.gpu_uuid.clone(),
                class,
                signal: lag.signal,
                lag_ms: lag.mean_ms,
                z: candidate.z,
                source,
                victims: Vec::new(),
            }),
            baseline: Some(candidate.baseline),
            confidence: candidate.confidence,
            inputs,
            window_kind: WindowKind::Short,
            disagrees: false,
            is_provisional: false,
            since: None,
        }
    }

    /// Creates a diagnosis without a rank.
    pub fn new(subject: Subject, condition: Condition) -> Self {
        Self {
            subject,
            finding: Finding::Condition(condition),
            baseline: None,
            confidence: CONDITION_CONFIDENCE,
            inputs: None,
            window_kind: WindowKind::Short,
            disagrees: false,
            is_provisional: false,
            since: None,
        }
    }

    /// All ranks are slow.
    pub fn uniform() -> Self {
        let condition = Condition::new(ConditionKind::UniformSlowdown);
        Self::new(Subject::Uniform, condition)
    }

    /// The cause is unclear.
    pub fn unclear(doubt: Doubt) -> Self {
        let condition = Condition {
            detail: doubt.reason().to_owned(),
            ..Condition::new(ConditionKind::Inconclusive)
        };
        Self::new(Subject::Unclear(doubt), condition)
    }
}
