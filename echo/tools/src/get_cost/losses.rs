//! Losses in a window, and the incidents to which they belong.

use std::collections::BTreeMap;

use echo_analysis::cost::{INTERVAL_NS, within};
use echo_core::ids::{ClusterId, IncidentId};
use echo_core::model::detector_output::{Incident, LostTime};
use echo_core::units::{Nanos, Window};

use crate::lifecycle::as_of;
use crate::quality::JobKey;
use crate::scope::Scope;
use crate::{ToolContext, ToolError};

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

/// Loads the losses of a window and the incidents to which they belong, as they are. Intervals of
/// slow ranks are divided at its borders. Those of hangs and crashes, of any length, belong to the
/// window in which they begin, as in the reports of closed hours.
pub(super) async fn latest_losses(
    context: &ToolContext,
    cluster: Option<&ClusterId>,
    window: Window,
) -> Result<(Vec<LostTime>, BTreeMap<IncidentId, Incident>), ToolError> {
    let wider = Window::new(window.from().offset(-INTERVAL_NS), window.to());
    let mut rows = context
        .store
        .lost_time(cluster, wider.unwrap_or(window))
        .await?;
    let is_divided = |row: &LostTime| row.interval.from().offset(INTERVAL_NS) == row.interval.to();
    let begins = |row: &LostTime| row.interval.from() >= window.from();
    let reaches = |row: &LostTime| row.interval.to() > window.from();
    rows.retain(|row| begins(row) || is_divided(row) && reaches(row));
    let incidents = latest_incidents(context, cluster, window, &rows).await?;
    let spans = incidents.iter().filter_map(|(id, incident)| {
        Some((*id, Window::new(incident.first_seen, incident.last_seen)?))
    });
    let (divided, whole): (Vec<LostTime>, _) = rows.into_iter().partition(is_divided);
    let mut rows = within(&divided, window, &spans.collect());
    rows.extend(whole);
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
    use echo_core::model::detector_output::{DetectorOutput, Incident, LostTime};
    use echo_core::units::Window;

    use crate::fixture::{at, batch, culprit, empty, lost};
    use crate::get_cost::GetCost;
    use crate::tool::Tool as _;

    #[tokio::test]
    async fn a_window_from_the_beginning_of_a_fault_has_all_of_its_cost() {
        let context = empty();
        context.store.append(batch(0..4, 0..=600)).await.unwrap();
        // The first interval of the incident begins four seconds before the incident.
        let late = Incident {
            first_seen: at(294),
            ..culprit()
        };
        let interval = |from, to| LostTime {
            interval: Window::new(at(from), at(to)).unwrap(),
            ..lost(&late, "node-1", None, from)
        };
        let output = DetectorOutput {
            lost: vec![interval(290, 300), interval(300, 310)],
            incidents: vec![late.clone()],
            ..DetectorOutput::default()
        };
        context.store.store_verdicts(output).await.unwrap();
        for (from, lost_gpu_s) in [("now-600s", 2.0), ("now-306s", 2.0), ("now-303s", 1.5)] {
            let tool = GetCost {
                from: Some(from.parse().unwrap()),
                ..GetCost::default()
            };
            let found = tool.run(&context).await.unwrap().lost_gpu_hours * 3600.0;
            assert!((found - lost_gpu_s).abs() < 1e-3, "{from}: {found}");
        }
    }

    #[tokio::test]
    async fn an_interval_of_a_hang_belongs_to_the_window_in_which_it_begins() {
        let context = empty();
        context.store.append(batch(0..4, 0..=600)).await.unwrap();
        let hang = LostTime {
            interval: Window::new(at(290), at(390)).unwrap(),
            ..lost(&culprit(), "node-1", None, 290)
        };
        let output = DetectorOutput {
            lost: vec![hang],
            incidents: vec![culprit()],
            ..DetectorOutput::default()
        };
        context.store.store_verdicts(output).await.unwrap();
        for ((from, to), lost_gpu_s) in
            [(("now-600s", "now-300s"), 1.0), (("now-300s", "now"), 0.0)]
        {
            let tool = GetCost {
                from: Some(from.parse().unwrap()),
                to: Some(to.parse().unwrap()),
                ..GetCost::default()
            };
            let found = tool.run(&context).await.unwrap().lost_gpu_hours * 3600.0;
            assert!((found - lost_gpu_s).abs() < 1e-3, "{from}: {found}");
        }
    }
}
