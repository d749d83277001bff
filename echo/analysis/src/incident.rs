//! What incidents of all kinds have in common.

use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{Incident, IncidentState, Severity};

use crate::assembly::CohortKey;

/// Damage, as a share of the usual duration of an iteration, from which an incident has severity
/// `warn`.
const WARN: f64 = 0.05;

/// Damage from which it has severity `critical`.
const CRITICAL: f64 = 0.10;

/// Severity of the damage by its share of the usual duration of an iteration.
pub(crate) fn severity(effect_ratio: f64) -> Severity {
    if effect_ratio >= CRITICAL {
        Severity::Critical
    } else if effect_ratio >= WARN {
        Severity::Warn
    } else {
        Severity::Info
    }
}

/// Identifier of an incident about a subject that began with an operation, or at a time. The same
/// events always give the same identifier.
pub(crate) fn incident_id(cohort: &CohortKey, subject: &str, begun: u64) -> IncidentId {
    let text = format!("{}|{cohort}|{subject}|{begun}", cohort.cluster);
    IncidentId::from_description(&text)
}

/// Ends the incident at its last observation, because nothing is left to continue it.
pub fn abandoned(mut incident: Incident) -> Incident {
    incident.state = IncidentState::Cleared;
    incident.cleared_at = Some(incident.last_seen.offset(1));
    incident
}
