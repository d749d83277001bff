use std::sync::Arc;

use fleet_proto::policy::PolicySet;
use prost::Message;
use tokio::sync::watch;

use crate::analysis::settings::Settings;
use crate::analysis::simulated::{Job, Measured};
use crate::clock::ManualClock;
use crate::feedback::health::HealthConfig;
use crate::feedback::refresh::Refresh;
use crate::feedback::table::PolicyTable;
use crate::ids::ClusterId;
use crate::model::conclusion::{Incident, IncidentState};
use crate::model::event::{BatchKey, EventBatch};
use crate::store::EventStore;
use crate::store::memory::MemoryStore;
use crate::units::{Nanos, Window};

/// A store with what the agents of a job with a sleeping rank 2 reported.
async fn store_with(n_blocks: u64) -> Arc<dyn EventStore> {
    let sleeping = |block, rank| Measured {
        gap_ms: if (10..20).contains(&block) && rank == 2 {
            12.0
        } else {
            4.0
        },
        period_ms: if (10..20).contains(&block) {
            58.0
        } else {
            50.0
        },
        ..Measured::HEALTHY
    };
    let events = Job::of(4).events(n_blocks, sleeping);
    let store: Arc<dyn EventStore> = Arc::new(MemoryStore::new());
    let batch = EventBatch {
        key: BatchKey::Content(1),
        received: Nanos::EARLIEST,
        events: events.into_iter().map(|stored| stored.event).collect(),
    };
    store.append(batch).await.unwrap();
    store
}

/// Judges all that is stored and returns the policy table.
async fn refresh(store: &Arc<dyn EventStore>) -> Arc<PolicyTable> {
    refresh_at(store, Nanos::EARLIEST).await
}

/// The same when the clock shows `now`.
async fn refresh_at(store: &Arc<dyn EventStore>, now: Nanos) -> Arc<PolicyTable> {
    let (table, policies) = watch::channel(Arc::new(PolicyTable::default()));
    let (progress, mut judged) = watch::channel(0);
    let (stop, stopped) = watch::channel(false);
    let refresh = Refresh::new(
        (Arc::clone(store), Arc::new(ManualClock::at(now))),
        (Settings::default(), HealthConfig::default()),
        table,
        progress,
    )
    .unwrap();
    let committed = *store.committed().borrow();
    let stop_when_judged = async {
        judged.wait_for(|id| *id >= committed).await.unwrap();
        stop.send_replace(true);
    };
    tokio::join!(refresh.run(stopped), stop_when_judged);
    let table = policies.borrow();
    Arc::clone(&table)
}

async fn incidents(store: &Arc<dyn EventStore>) -> Vec<Incident> {
    let ever = Window::new(Nanos::EARLIEST, Nanos::LATEST).unwrap();
    store.incidents(None, ever).await.unwrap()
}

#[tokio::test]
async fn what_is_committed_is_judged() {
    let store = store_with(40).await;
    refresh(&store).await;
    assert_eq!(incidents(&store).await.len(), 1);
}

#[tokio::test]
async fn while_a_rank_holds_the_others_back_the_policy_names_it() {
    let store = store_with(18).await;
    let table = refresh(&store).await;
    let cluster: ClusterId = "test".parse().unwrap();
    let set = PolicySet::decode(table.of(&cluster).unwrap().encoded.clone()).unwrap();
    assert_eq!(set.cohorts[0].outlier_ranks, [2]);
    assert!(set.cohorts[0].quorum_met);
}

#[tokio::test]
async fn judging_history_again_after_a_restart_changes_nothing() {
    let store = store_with(40).await;
    refresh(&store).await;
    let before = incidents(&store).await;
    let policies = refresh(&store).await;
    assert_eq!(incidents(&store).await, before);
    assert_eq!(refresh(&store).await, policies);
}

#[tokio::test]
async fn the_incident_of_a_job_that_stopped_reporting_is_cleared() {
    let store = store_with(18).await;
    refresh(&store).await;
    assert_eq!(incidents(&store).await[0].state, IncidentState::Open);
    refresh_at(&store, Nanos::EARLIEST.offset(601_000_000_000)).await;
    assert_eq!(incidents(&store).await[0].state, IncidentState::Cleared);
}
