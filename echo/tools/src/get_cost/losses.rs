//! Losses in a window, and the incidents to which they belong.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_analysis::cost::within;
use echo_core::ids::{ClusterId, IncidentId};
use echo_core::model::detector_output::{Incident, LostTime};
use echo_core::units::{Nanos, Window};

use crate::lifecycle::as_of;
use crate::quality::JobKey;
use crate::scope::Scope;
use crate::{ToolContext, ToolError};

/// Length of the longest interval of lost time that begins before a window and reaches into it.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);

/// Loads the losses, of one job or of all, and the incidents to which they belong, as they were at
/// the end of the window.
pub(super) async fn losses(
    scope: &Scope<'_>,
    job: Option<&JobKey>,
) -> Result<(Vec<LostTime>, BTreeMap<IncidentId, Incident>), ToolError> {
    let (mut rows, mut incidents) =
        latest_losses(scope.context, scope.cluster.as_ref(), scope.window).await?;
    if let Some(job) = job {
        rows.retain(|row| incidents.get(&row.incident).map(super::job).as_ref() == Some(job));
    }
    for incident in incidents.values_mut() {
        // Time is lost before there is enough evidence to raise an incident.
        if let Some(earlier) = as_of(incident.clone(), scope.context, scope.window) {
            *incident = earlier;
        }
    }
    Ok((rows, incidents))
}

/// Loads the losses of a window and the incidents to which they belong, as they are.
pub(super) async fn latest_losses(
    context: &ToolContext,
    cluster: Option<&ClusterId>,
    window: Window,
) -> Result<(Vec<LostTime>, BTreeMap<IncidentId, Incident>), ToolError> {
    let wider = Window::new(window.from().before(LONGEST_INTERVAL), window.to());
    let mut rows = context
        .store
        .lost_time(cluster, wider.unwrap_or(window))
        .await?;
    rows.retain(|row| row.interval.to() > window.from());
    let incidents = latest_incidents(context, cluster, window, &rows).await?;
    let spans = incidents.iter().filter_map(|(id, incident)| {
        Some((*id, Window::new(incident.first_seen, incident.last_seen)?))
    });
    let rows = within(&rows, window, &spans.collect());
    Ok((rows, incidents))
}

/// Loads the incidents to which time was lost, as they are. Time is still attributed to an incident
/// between its last affected iteration and its clearing, so its own times may end before the window.
async fn latest_incidents(
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

#[cfg(test)]
mod tests {
    use echo_core::model::detector_output::{DetectorOutput, Incident};

    use crate::fixture::{at, batch, culprit, empty, lost};
    use crate::get_cost::GetCost;
    use crate::tool::Tool as _;

    #[tokio::test]
    async fn a_window_from_the_beginning_of_a_fault_has_all_of_its_cost() {
        let context = empty();
        context.store.append(batch(0..4, 0..=600)).await.unwrap();
        // The first interval of the incident begins three seconds before the incident.
        let late = Incident {
            first_seen: at(293),
            ..culprit()
        };
        let output = DetectorOutput {
            lost: [290, 295]
                .map(|second| lost(&late, "node-1", None, second))
                .to_vec(),
            incidents: vec![late],
            ..DetectorOutput::default()
        };
        context.store.store_verdicts(output).await.unwrap();
        for (from, lost_gpu_s) in [("now-600s", 2.0), ("now-307s", 2.0), ("now-306s", 1.5)] {
            let tool = GetCost {
                from: Some(from.parse().unwrap()),
                ..GetCost::default()
            };
            let found = tool.run(&context).await.unwrap().lost_gpu_hours * 3600.0;
            assert!((found - lost_gpu_s).abs() < 1e-3, "{from}: {found}");
        }
    }
}
