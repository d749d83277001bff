//! State, severity and times of incidents in answers.

use echo_core::model::detector_output::{Baseline, Finding, Incident, IncidentState};
use echo_core::units::Window;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ToolContext;

/// Names of the states in answers.
const OPEN: &str = "open";
const CLEARED: &str = "cleared";

/// State, severity and times of an incident.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Lifecycle {
    /// `open` or `cleared`, at the end of the window.
    pub state: &'static str,
    /// Severity of the effect: `info`, `warn` or `critical`.
    pub severity: &'static str,
    /// True when the incident was raised at once because it is severe, before it had persisted.
    pub provisional: bool,
    /// Share of the blocks since the start that were affected, 0 to 1; 1 when it is always the same
    /// rank.
    pub stability: f64,
    /// Start of the first affected iteration, RFC 3339.
    pub first_seen: String,
    /// End of the last affected iteration so far, RFC 3339.
    pub last_seen: String,
    /// Time at which there was enough evidence to raise the incident, RFC 3339.
    pub raised_at: String,
    /// Time at which it was cleared, RFC 3339; null while it is open, or when unknown.
    pub cleared_at: Option<String>,
    /// First affected iteration.
    pub first_iteration: f64,
    /// Iteration at which it was raised.
    pub raised_iteration: f64,
    /// Iteration at which it was cleared; null while it is open.
    pub cleared_iteration: Option<f64>,
    /// Number of times it occurred; 1 when it never recurred.
    pub occurrences: u32,
    /// Cohort of ranks that were compared.
    pub cohort: String,
    /// Job of the cohort; null when unknown.
    pub job: Option<String>,
    /// `history`: the healthy iteration time was measured. `none`: it is an estimate, because no
    /// healthy iteration was ever seen.
    pub baseline: &'static str,
    /// True when the lag, the effect and the cost are lower bounds: of a culprit without a measured
    /// healthy iteration time, only what its peers waited for it is known.
    pub lower_bound: bool,
    /// Iteration time during the incident, milliseconds.
    pub period_ms: f64,
    /// Healthy iteration time, milliseconds.
    pub healthy_period_ms: f64,
}

/// Returns the incident in its state at the end of the window; `None` when it had not been raised
/// yet. A window that ends now or later shows the latest state: clocks of nodes may be ahead of the
/// clock of Echo.
pub fn as_of(mut incident: Incident, context: &ToolContext, window: Window) -> Option<Incident> {
    let end = window.to();
    if end >= context.clock.now() {
        return Some(incident);
    }
    if incident.raised_at >= end {
        return None;
    }
    if incident.cleared_at.is_some_and(|cleared| cleared >= end) {
        incident.state = IncidentState::Open;
        incident.cleared_at = None;
        incident.cleared_iteration = None;
    }
    incident.last_seen = incident.last_seen.min(end);
    Some(incident)
}

/// Returns true if what an incident costs is a lower bound. A hang costs all of the time of its ranks, and
/// needs no healthy past.
pub const fn is_lower_bound(incident: &Incident) -> bool {
    matches!(
        (&incident.finding, &incident.baseline),
        (Finding::Culprit(_), Baseline::None { .. })
    )
}

impl Lifecycle {
    /// Converts the lifecycle of an incident.
    pub fn from_incident(incident: &Incident) -> Self {
        Self {
            state: state_name(incident.state),
            severity: incident.severity.name(),
            provisional: incident.is_provisional,
            stability: incident.stability,
            first_seen: incident.first_seen.to_string(),
            last_seen: incident.last_seen.to_string(),
            raised_at: incident.raised_at.to_string(),
            cleared_at: incident.cleared_at.map(|instant| instant.to_string()),
            first_iteration: incident.first_iteration,
            raised_iteration: incident.raised_iteration,
            cleared_iteration: incident.cleared_iteration,
            occurrences: incident.occurrences,
            cohort: incident.cohort.as_ref().to_owned(),
            job: incident.job.as_ref().map(ToString::to_string),
            baseline: incident.baseline.name(),
            lower_bound: is_lower_bound(incident),
            period_ms: incident.period_ms,
            healthy_period_ms: incident.baseline.period_ms(),
        }
    }

    /// True when the incident was open at the end of the window.
    pub fn is_open(&self) -> bool {
        self.state == OPEN
    }
}

/// Name of a state in answers.
pub const fn state_name(state: IncidentState) -> &'static str {
    match state {
        IncidentState::Open => OPEN,
        IncidentState::Cleared => CLEARED,
    }
}
