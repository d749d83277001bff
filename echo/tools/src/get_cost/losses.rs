//! Losses in a window, and the incidents to which they belong.

use std::collections::BTreeMap;

use echo_core::ids::{ClusterId, IncidentId};
use echo_core::model::detector_output::{Incident, LostTime};
use echo_core::units::{Nanos, Window};

use crate::lifecycle::as_of;
use crate::quality::JobKey;
use crate::scope::Scope;
use crate::{ToolContext, ToolError};

/// Loads the losses, of one job or of all, and the incidents to which they belong.
pub(super) async fn losses(
    scope: &Scope<'_>,
    job: Option<&JobKey>,
) -> Result<(Vec<LostTime>, BTreeMap<IncidentId, Incident>), ToolError> {
    let store = &scope.context.store;
    let mut rows = store
        .lost_time(scope.cluster.as_ref(), scope.window)
        .await?;
    let incidents = incidents_of(scope, &rows).await?;
    if let Some(job) = job {
        rows.retain(|row| incidents.get(&row.incident).map(super::job).as_ref() == Some(job));
    }
    Ok((rows, incidents))
}

/// Loads the incidents to which time was lost, as they were at the end of the window.
async fn incidents_of(
    scope: &Scope<'_>,
    rows: &[LostTime],
) -> Result<BTreeMap<IncidentId, Incident>, ToolError> {
    let cluster = scope.cluster.as_ref();
    let mut incidents = latest_incidents(scope.context, cluster, scope.window, rows).await?;
    for incident in incidents.values_mut() {
        // Time is lost before there is enough evidence to raise an incident.
        if let Some(earlier) = as_of(incident.clone(), scope.context, scope.window) {
            *incident = earlier;
        }
    }
    Ok(incidents)
}

/// Loads the incidents to which time was lost, as they are. Time is still attributed to an incident
/// between its last affected iteration and its clearing, so its own times may end before the window.
pub(super) async fn latest_incidents(
    context: &ToolContext,
    cluster: Option<&ClusterId>,
    window: Window,
    rows: &[LostTime],
) -> Result<BTreeMap<IncidentId, Incident>, ToolError> {
    let by_id = |found: Vec<Incident>| -> BTreeMap<IncidentId, Incident> {
        let found = found.into_iter();
        found.map(|incident| (incident.id, incident)).collect()
    };
    let incidents = by_id(context.store.incidents(cluster, window).await?);
    let all_known = rows.iter().all(|row| incidents.contains_key(&row.incident));
    match Window::new(Nanos::EARLIEST, window.to()) {
        Some(ever) if !all_known => Ok(by_id(context.store.incidents(cluster, ever).await?)),
        _ => Ok(incidents),
    }
}
