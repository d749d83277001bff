#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives to the end of its test"
)]

use std::ops::Range;
use std::sync::Arc;

use echo_analysis::settings::Settings;
use echo_analysis::simulated::{Job, Measured};
use echo_core::clock::ManualClock;
use echo_core::ids::ClusterId;
use echo_core::model::detector_output::{Incident, IncidentState, LostTime};
use echo_core::model::event::{BatchKey, EventBatch};
use echo_core::policy_table::PolicyTable;
use echo_core::units::{Nanos, Window};
use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;
use fleet_proto::policy::PolicySet;
use prost::Message;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::feedback::health::HealthConfig;
use crate::feedback::refresh::{IDLE_CHECK_INTERVAL, Refresh};

/// Returns the time at which the agents report block `number`; each block takes 200 ms.
fn reported(number: u64) -> Nanos {
    let nanos = i64::try_from(number * 200_000_000).unwrap();
    Nanos::EARLIEST.offset(nanos)
}

/// Returns the batches of a job whose rank 2 sleeps.
fn batches(blocks: Range<u64>) -> impl Iterator<Item = EventBatch> {
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
    let events = Job::with_ranks(4).events(blocks.end, sleeping);
    let per_block = events.len() / usize::try_from(blocks.end).unwrap();
    let of_block = move |number: u64| EventBatch {
        key: BatchKey::Content(u128::from(number)),
        received: reported(number),
        events: events
            .iter()
            .skip(usize::try_from(number).unwrap() * per_block)
            .take(per_block)
            .map(|stored| stored.event.clone())
            .collect(),
    };
    blocks.map(of_block)
}

/// Stores the batches concurrently, so that they share commits. The runtime starts tasks in spawn
/// order.
async fn report(store: &Arc<dyn EventStore>, blocks: Range<u64>) {
    let mut appends = JoinSet::new();
    for batch in batches(blocks) {
        let store = Arc::clone(store);
        appends.spawn(async move { store.append(batch).await.unwrap() });
    }
    appends.join_all().await;
}

/// Returns a store with the first blocks.
async fn store_with(n_blocks: u64) -> Arc<dyn EventStore> {
    let store: Arc<dyn EventStore> = Arc::new(DuckDbStore::scratch());
    report(&store, 0..n_blocks).await;
    store
}

/// Processes all stored events and returns the policy table.
async fn refresh(store: &Arc<dyn EventStore>) -> Arc<PolicyTable> {
    let clock = Arc::new(ManualClock::at(Nanos::EARLIEST));
    refresh_until(store, clock, async {}).await
}

/// Processes all stored events, continues until `until`, and returns the policy table.
async fn refresh_until(
    store: &Arc<dyn EventStore>,
    clock: Arc<ManualClock>,
    until: impl Future<Output = ()>,
) -> Arc<PolicyTable> {
    let (table, policies) = watch::channel(Arc::new(PolicyTable::default()));
    let (progress, mut judged) = watch::channel(0);
    let (stop, stopped) = watch::channel(false);
    let refresh = Refresh::new(
        (Arc::clone(store), clock),
        (Settings::default(), HealthConfig::default()),
        table,
        progress,
    )
    .unwrap();
    let committed = *store.committed().borrow();
    let stop_when_judged = async {
        judged.wait_for(|id| *id >= committed).await.unwrap();
        until.await;
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
async fn committed_events_are_processed() {
    let store = store_with(40).await;
    refresh(&store).await;
    assert_eq!(incidents(&store).await.len(), 1);
}

#[tokio::test]
async fn the_policy_names_a_rank_that_holds_back_others() {
    let store = store_with(18).await;
    let table = refresh(&store).await;
    let cluster: ClusterId = "test".parse().unwrap();
    let set = PolicySet::decode(table.for_cluster(&cluster).unwrap().encoded.clone()).unwrap();
    assert_eq!(set.cohorts[0].outlier_ranks, [2]);
    assert!(set.cohorts[0].quorum_met);
}

async fn lost_time(store: &Arc<dyn EventStore>) -> Vec<LostTime> {
    let ever = Window::new(Nanos::EARLIEST, Nanos::LATEST).unwrap();
    store.lost_time(None, ever).await.unwrap()
}

#[tokio::test]
async fn a_restart_does_not_change_stored_output() {
    let store = store_with(40).await;
    let policies = refresh(&store).await;
    let before = (incidents(&store).await, lost_time(&store).await);
    assert_eq!(refresh(&store).await, policies);
    assert_eq!((incidents(&store).await, lost_time(&store).await), before);
}

#[tokio::test(start_paused = true)]
async fn a_restart_at_any_block_keeps_the_incident_and_its_cost() {
    let unbroken = store_with(40).await;
    refresh(&unbroken).await;
    let [expected] = incidents(&unbroken).await.try_into().unwrap();
    let lost = lost_time(&unbroken).await;
    for restart in 1..40 {
        let store = store_with(restart).await;
        refresh(&store).await;
        report(&store, restart..40).await;
        refresh(&store).await;
        let [incident] = incidents(&store).await.try_into().unwrap();
        assert_eq!(incident.id, expected.id, "restart before block {restart}");
        let outcome = |incident: &Incident| {
            let spans = (incident.first_seen, incident.last_seen, incident.raised_at);
            (spans, incident.state, incident.occurrences)
        };
        assert_eq!(
            outcome(&incident),
            outcome(&expected),
            "before block {restart}"
        );
        let off = (incident.effect_ratio / expected.effect_ratio - 1.0).abs();
        assert!(off < 0.02, "before block {restart}: {off}");
        assert!(lost_time(&store).await == lost, "before block {restart}");
    }
}

#[tokio::test]
async fn an_incident_whose_first_events_were_deleted_continues_and_ends() {
    let database = Arc::new(DuckDbStore::scratch());
    let store: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&database);
    report(&store, 0..18).await;
    refresh(&store).await;
    let [open] = incidents(&store).await.try_into().unwrap();
    database.drop_before(reported(14)).await;
    report(&store, 18..40).await;
    refresh(&store).await;
    let [ended] = incidents(&store).await.try_into().unwrap();
    assert_eq!((ended.id, ended.first_seen), (open.id, open.first_seen));
    assert_eq!(ended.state, IncidentState::Cleared);
}

#[tokio::test(start_paused = true)]
async fn an_incident_without_events_ends_when_no_agent_reconnects() {
    let database = Arc::new(DuckDbStore::scratch());
    let store: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&database);
    report(&store, 0..18).await;
    refresh(&store).await;
    database.drop_before(reported(18)).await;
    let clock = Arc::new(ManualClock::at(Nanos::EARLIEST));
    let check_again = async {
        assert_eq!(incidents(&store).await[0].state, IncidentState::Open);
        clock.set(Nanos::EARLIEST.offset(180_000_000_000));
        tokio::time::sleep(IDLE_CHECK_INTERVAL * 2).await;
    };
    refresh_until(&store, Arc::clone(&clock), check_again).await;
    let [ended] = incidents(&store).await.try_into().unwrap();
    assert_eq!(ended.state, IncidentState::Cleared);
    assert_eq!(ended.cleared_at, Some(ended.last_seen.offset(1)));
}

#[tokio::test]
async fn an_incident_waits_for_agents_that_reconnect_later() {
    let database = Arc::new(DuckDbStore::scratch());
    let store: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&database);
    report(&store, 0..18).await;
    refresh(&store).await;
    let [open] = incidents(&store).await.try_into().unwrap();
    database.drop_before(reported(18)).await;
    report(&store, 18..40).await;
    refresh(&store).await;
    let [ended] = incidents(&store).await.try_into().unwrap();
    assert_eq!((ended.id, ended.occurrences), (open.id, 1));
    assert_eq!(ended.state, IncidentState::Cleared);
}

#[tokio::test]
async fn policy_versions_only_grow() {
    let version = |table: &PolicyTable| {
        let cluster: ClusterId = "test".parse().unwrap();
        table.for_cluster(&cluster).unwrap().version
    };
    let store = store_with(18).await;
    let before = version(&*refresh(&store).await);
    report(&store, 18..40).await;
    let after = version(&*refresh(&store).await);
    assert!(after > before, "{after} after {before}");
}

#[tokio::test(start_paused = true)]
async fn the_incident_of_a_silent_job_is_cleared() {
    let store = store_with(18).await;
    let clock = Arc::new(ManualClock::at(Nanos::EARLIEST));
    let check_again = async {
        assert_eq!(incidents(&store).await[0].state, IncidentState::Open);
        clock.set(Nanos::EARLIEST.offset(700_000_000_000));
        tokio::time::sleep(IDLE_CHECK_INTERVAL * 2).await;
    };
    refresh_until(&store, Arc::clone(&clock), check_again).await;
    assert_eq!(incidents(&store).await[0].state, IncidentState::Cleared);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_could_not_report_during_a_downtime_is_not_silent() {
    let store = store_with(18).await;
    refresh(&store).await;
    let clock = Arc::new(ManualClock::at(Nanos::EARLIEST.offset(3_600_000_000_000)));
    let check_again = async { tokio::time::sleep(IDLE_CHECK_INTERVAL * 2).await };
    refresh_until(&store, clock, check_again).await;
    assert_eq!(incidents(&store).await[0].state, IncidentState::Open);
}
