//! Contract tests of the history of incidents.

use std::sync::Arc;

use echo_core::model::detector_output::{
    Condition, ConditionKind, Finding, Incident, IncidentState,
};

use crate::EventStore;
use crate::contract::sample::{at, incident, incidents, window};
use crate::duckdb::DuckDbStore;
use crate::incident_history::{IncidentHistory, PastCulprit};

/// Incident of GPU-17 that was raised at this time.
fn raised(id: u64, cluster: &str, millis: i64) -> Incident {
    Incident {
        raised_at: at(millis),
        ..incident(id, cluster, millis - 5, millis + 5)
    }
}

fn past(incident: &Incident, until: i64) -> PastCulprit {
    PastCulprit {
        incident: incident.id,
        cluster: incident.cluster.clone(),
        job: incident.job.clone(),
        node: "node-2".parse().unwrap(),
        gpu_uuid: Some(Arc::from("GPU-17")),
        raised_at: incident.raised_at,
        first_seen: incident.first_seen,
        until: at(until),
    }
}

#[tokio::test]
async fn culprits_are_found_by_when_they_were_raised() {
    let store = DuckDbStore::scratch();
    let before = raised(1, "prod", 99);
    let first = raised(2, "prod", 100);
    let last = raised(3, "prod", 199);
    let after = raised(4, "prod", 200);
    let elsewhere = raised(5, "lab", 150);
    let all = [before, last.clone(), first.clone(), after, elsewhere];
    store.store_verdicts(incidents(all)).await.unwrap();
    let prod = "prod".parse().unwrap();
    let found = store.past_culprits(Some(&prod), window(100, 200)).await;
    assert_eq!(found.unwrap(), [past(&first, 105), past(&last, 204)]);
    let found = store.past_culprits(None, window(100, 200)).await;
    assert_eq!(found.unwrap().len(), 3);
}

#[tokio::test]
async fn the_latest_state_of_an_incident_decides_about_its_culprit() {
    let store = DuckDbStore::scratch();
    let open = raised(1, "prod", 100);
    let mut cleared = open.clone();
    cleared.state = IncidentState::Cleared;
    cleared.cleared_at = Some(at(150));
    let retracted = raised(2, "prod", 100);
    let mut uniform = retracted.clone();
    uniform.finding = Finding::Condition(Condition::new(ConditionKind::UniformSlowdown));
    for states in [[open, retracted], [cleared.clone(), uniform]] {
        store.store_verdicts(incidents(states)).await.unwrap();
    }
    let found = store.past_culprits(None, window(0, 1_000)).await;
    assert_eq!(found.unwrap(), [past(&cleared, 150)]);
}
