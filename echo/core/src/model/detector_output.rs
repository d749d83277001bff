//! Detector output: incidents, the GPU time they cost, and the published policies. All of it is
//! stored, so that history can be audited.

use std::sync::Arc;

use crate::ids::{ClusterId, IncidentId, JobId, NodeId, Rank};
pub use crate::model::condition::{Condition, ConditionKind};
use crate::model::event::Source;
use crate::model::inputs::Inputs;
use crate::units::{Nanos, Window};

/// Incident: one cause with one start. The store keeps the latest state of each incident.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// Stable identity: the same events always give the same id.
    pub id: IncidentId,
    /// Cluster of the cohort.
    pub cluster: ClusterId,
    /// Job of the cohort, when known.
    pub job: Option<JobId>,
    /// Cohort whose ranks were compared, as the tools print it.
    pub cohort: Arc<str>,
    /// Finding.
    pub finding: Finding,
    /// State: open or cleared.
    pub state: IncidentState,
    /// Beginning of the first affected iteration, event time.
    pub first_seen: Nanos,
    /// End of the last affected iteration so far, event time.
    pub last_seen: Nanos,
    /// Event time at which there was enough evidence to raise it.
    pub raised_at: Nanos,
    /// First iteration affected, counted from the first operation of the communicator.
    pub first_iteration: f64,
    /// Iteration at which it was raised.
    pub raised_iteration: f64,
    /// Iteration at which it was cleared, once it is.
    pub cleared_iteration: Option<f64>,
    /// Event time at which it was cleared, once it is.
    pub cleared_at: Option<Nanos>,
    /// True if raised at once because of its severity, before it had persisted.
    pub is_provisional: bool,
    /// Severity of the damage.
    pub severity: Severity,
    /// Share of the blocks since the beginning that were affected, 0 to 1: 1 when it is always the
    /// same rank.
    pub stability: f64,
    /// Number of occurrences: recurrences after it was cleared, plus one.
    pub occurrences: u32,
    /// Damage: excess duration of the cohort's iteration over a healthy one, as a share of the
    /// healthy period.
    pub effect_ratio: f64,
    /// Duration of an iteration during the incident, milliseconds.
    pub period_ms: f64,
    /// Healthy duration of an iteration, milliseconds, and how it is known.
    pub baseline: Baseline,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// Reason in one sentence.
    pub reason: String,
    /// Inputs of the strongest decision; `None` for incidents stored before inputs were kept.
    pub inputs: Option<Arc<Inputs>>,
}

impl Incident {
    /// Lag of the culprit, milliseconds per iteration; `None` when no rank is named.
    pub const fn culprit_lag_ms(&self) -> Option<f64> {
        match &self.finding {
            Finding::Culprit(culprit) => Some(culprit.lag_ms),
            Finding::Condition(_) => None,
        }
    }
}

/// Subject of an incident.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// One rank holds back its cohort.
    Culprit(Culprit),
    /// The cohort or the job as a whole has a problem.
    Condition(Condition),
}

/// Severity of the damage by its share of the healthy period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Informational.
    Info,
    /// Should be investigated.
    Warn,
    /// Needs immediate action.
    Critical,
}

impl Severity {
    /// Every level, lowest first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warn, Self::Critical];

    /// Name in responses and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Critical => "critical",
        }
    }
}

/// The rank that holds back its cohort.
#[derive(Debug, Clone, PartialEq)]
pub struct Culprit {
    /// Rank within the job.
    pub rank: Rank,
    /// Its node.
    pub node: NodeId,
    /// Its GPU, when known.
    pub gpu_uuid: Option<Arc<str>>,
    /// Class of the cause.
    pub class: CauseClass,
    /// Signal that identified it.
    pub signal: Signal,
    /// Lag behind the median of its peers, milliseconds per iteration.
    pub lag_ms: f64,
    /// Modified z-score of that lag.
    pub z: f64,
    /// Source of the lag measurement.
    pub source: Source,
}

/// Class of a cause. A lag in host signals is never attributed to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CauseClass {
    /// The host was late in submitting work to its GPU.
    Host,
    /// The GPU was late although its host was not.
    Device,
    /// Transfers were slow.
    Network,
    /// The signals do not distinguish host from device.
    Inconclusive,
}

impl CauseClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Host, Self::Device, Self::Network, Self::Inconclusive];

    /// Name in responses and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
            Self::Network => "network",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// Signal by which ranks are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// From the return of a rank's blocking synchronisation to its next collective.
    HostGap,
    /// Time blocked in synchronisation; the last to arrive waits least.
    Wait,
    /// Arrival at the same operations, clocks aligned at the last common completion.
    Arrival,
    /// Time the rank's GPU spent inside collectives; the last to arrive spends least.
    DeviceWait,
}

impl Signal {
    /// Every signal.
    pub const ALL: [Self; 4] = [Self::HostGap, Self::Wait, Self::Arrival, Self::DeviceWait];

    /// Name in responses, policies and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostGap => "host_gap",
            Self::Wait => "wait",
            Self::Arrival => "arrival",
            Self::DeviceWait => "device_wait",
        }
    }

    /// Description of the measurement.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::HostGap => "from its synchronisation to its next collective",
            Self::Wait => "its peers wait for it in their calls",
            Self::Arrival => "at the same collectives, counted from the last common completion",
            Self::DeviceWait => "the GPUs of its peers wait for its GPU inside collectives",
        }
    }
}

/// State of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IncidentState {
    /// Open.
    Open,
    /// Cleared.
    Cleared,
}

/// The healthy duration of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Baseline {
    /// Median of the cohort's own healthy iterations, milliseconds.
    History {
        /// The median.
        period_ms: f64,
    },
    /// No healthy iteration was observed: estimated as the period less the culprit's lag,
    /// milliseconds. If the lag does not show the loss, it is the period itself, and no loss is
    /// reported.
    None {
        /// The estimate.
        period_ms: f64,
    },
}

impl Baseline {
    /// Healthy duration of an iteration, milliseconds.
    pub const fn period_ms(self) -> f64 {
        match self {
            Self::History { period_ms } | Self::None { period_ms } => period_ms,
        }
    }

    /// Name in responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::History { .. } => "history",
            Self::None { .. } => "none",
        }
    }
}

/// GPU time that one node lost to one incident in one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct LostTime {
    /// Incident that caused the loss.
    pub incident: IncidentId,
    /// Cluster of the node.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Model of the node's GPUs that took part, when known.
    pub gpu_model: Option<Arc<str>>,
    /// Event time of the interval.
    pub interval: Window,
    /// GPUs of this node and model that took part.
    pub n_ranks: u32,
    /// Iterations in the interval; 0 where none ends, as in a hang.
    pub iterations: f64,
    /// GPU time lost by all of them together because the job was slower, milliseconds, including
    /// the culprit's own (job delay). Noise makes single intervals negative; sums are clipped at
    /// zero per incident and hour.
    pub lost_gpu_ms: f64,
    /// Part of it spent blocked, beyond the usual time, because other ranks were late (peer wait),
    /// milliseconds; never negative. `None` when a rank does not report its blocked time.
    pub peer_wait_gpu_ms: Option<f64>,
    /// Part of it that fixing this culprit alone would have saved, milliseconds; 0 where no rank is
    /// named.
    pub saved_gpu_ms: f64,
}

/// Published policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRecord {
    /// Cluster of the agents that received it.
    pub cluster: ClusterId,
    /// Version of the set.
    pub version: u64,
    /// Event time at which it was computed.
    pub computed_at: Nanos,
    /// The encoded `PolicySet`.
    pub encoded: Vec<u8>,
}

/// Output of one detector step, as stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DetectorOutput {
    /// New states of incidents; the latest state of an id replaces the earlier one.
    pub incidents: Vec<Incident>,
    /// Lost GPU time; a row with the same incident, node, model and interval replaces the earlier
    /// one.
    pub lost: Vec<LostTime>,
    /// Policies published.
    pub policies: Vec<PolicyRecord>,
    /// Number of the last event covered by this output; after a restart the detector continues
    /// after it.
    pub judged: Option<u64>,
}

impl DetectorOutput {
    /// Appends the output of a later step.
    pub fn append(&mut self, mut later: Self) {
        self.incidents.append(&mut later.incidents);
        self.lost.append(&mut later.lost);
        self.policies.append(&mut later.policies);
        self.judged = self.judged.max(later.judged);
    }

    /// Returns true if there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.incidents.is_empty()
            && self.lost.is_empty()
            && self.policies.is_empty()
            && self.judged.is_none()
    }
}
