#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives to the end of its test"
)]

use std::ops::Range;
use std::sync::Arc;

use echo_analysis::settings::Settings;
use echo_analysis::simulated::durations::{self, Durations};
use echo_analysis::simulated::{Job, Measured, OPS_PER_BLOCK, instant};
use echo_core::clock::ManualClock;
use echo_core::ids::ClusterId;
use echo_core::model::detector_output::{Incident, IncidentState, LostTime};
use echo_core::model::event::{BatchKey, EventBatch, StoredEvent};
use echo_core::policy_table::PolicyTable;
use echo_core::units::{Nanos, Window};
use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;
use fleet_proto::metric;
use fleet_proto::policy::PolicySet;
use prost::Message;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::feedback::health::HealthConfig;
use crate::feedback::refresh::{IDLE_CHECK_INTERVAL, Refresh};

/// Blocks of a job: rank 2 holds back the others in some of them.
const N_BLOCKS: u64 = 140;
const HELD_BACK: Range<u64> = 60..90;

/// A block at which the incident is open.
const OPEN_AT: u64 = 80;

/// Duration of a block, milliseconds.
fn block_ms(number: u64) -> f64 {
    if HELD_BACK.contains(&number) {
        1_000.0
    } else {
        500.0
    }
}

/// Returns the time at which the agents report a block: its end.
fn reported(number: u64) -> Nanos {
    instant((0..=number).map(block_ms).sum())
}

/// Returns the batches of the job, with the sums of operations and the blocks of its agents.
fn batches(blocks: Range<u64>) -> impl Iterator<Item = EventBatch> {
    let durations = |block: u64, rank| Durations {
        inside_ms: if HELD_BACK.contains(&block) && rank != 2 {
            34.25
        } else {
            3.0
        },
        ..Durations::HEALTHY
    };
    let mut events = durations::events(4, blocks.end, block_ms, durations);
    events.extend(Job::with_ranks(4).events(blocks.end, |_, _| Measured::HEALTHY));
    let of_block = move |number: u64| {
        let is_of_block = |event: &&StoredEvent| {
            let seqs = event.event.block.as_ref().and_then(|block| block.seqs);
            let per_block = if event.event.metric.as_str() == metric::DURATION {
                durations::OPERATIONS
            } else {
                OPS_PER_BLOCK
            };
            seqs.is_some_and(|seqs| seqs.first() / per_block == number)
        };
        let of_block = events.iter().filter(is_of_block);
        EventBatch {
            key: BatchKey::Content(u128::from(number)),
            received: reported(number),
            events: of_block.map(|stored| stored.event.clone()).collect(),
        }
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
    let clock = Arc::new(ManualClock::at(instant(0.0)));
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
    let store = store_with(N_BLOCKS).await;
    refresh(&store).await;
    assert_eq!(incidents(&store).await.len(), 1);
}

#[tokio::test]
async fn the_policy_names_a_rank_that_holds_back_others() {
    let store = store_with(OPEN_AT).await;
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
    let store = store_with(N_BLOCKS).await;
    let policies = refresh(&store).await;
    let before = (incidents(&store).await, lost_time(&store).await);
    assert_eq!(refresh(&store).await, policies);
    assert_eq!((incidents(&store).await, lost_time(&store).await), before);
}

#[tokio::test(start_paused = true)]
async fn a_restart_at_any_block_keeps_the_incident_and_its_cost() {
    let unbroken = store_with(N_BLOCKS).await;
    refresh(&unbroken).await;
    let [expected] = incidents(&unbroken).await.try_into().unwrap();
    let lost = lost_time(&unbroken).await;
    for restart in (1..N_BLOCKS).step_by(6) {
        let store = store_with(restart).await;
        refresh(&store).await;
        report(&store, restart..N_BLOCKS).await;
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
    report(&store, 0..OPEN_AT).await;
    refresh(&store).await;
    let [open] = incidents(&store).await.try_into().unwrap();
    database.drop_before(reported(HELD_BACK.start + 6)).await;
    report(&store, OPEN_AT..N_BLOCKS).await;
    refresh(&store).await;
    let [ended] = incidents(&store).await.try_into().unwrap();
    assert_eq!((ended.id, ended.first_seen), (open.id, open.first_seen));
    assert_eq!(ended.state, IncidentState::Cleared);
}

#[tokio::test(start_paused = true)]
async fn an_incident_without_events_ends_when_no_agent_reconnects() {
    let database = Arc::new(DuckDbStore::scratch());
    let store: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&database);
    report(&store, 0..OPEN_AT).await;
    refresh(&store).await;
    database.drop_before(reported(OPEN_AT)).await;
    let clock = Arc::new(ManualClock::at(instant(0.0)));
    let check_again = async {
        assert_eq!(incidents(&store).await[0].state, IncidentState::Open);
        clock.set(instant(280_000.0));
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
    report(&store, 0..OPEN_AT).await;
    refresh(&store).await;
    let [open] = incidents(&store).await.try_into().unwrap();
    database.drop_before(reported(OPEN_AT)).await;
    report(&store, OPEN_AT..N_BLOCKS).await;
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
    let store = store_with(OPEN_AT).await;
    let before = version(&*refresh(&store).await);
    report(&store, OPEN_AT..N_BLOCKS).await;
    let after = version(&*refresh(&store).await);
    assert!(after > before, "{after} after {before}");
}

#[tokio::test(start_paused = true)]
async fn the_incident_of_a_silent_job_is_cleared() {
    let store = store_with(OPEN_AT).await;
    let clock = Arc::new(ManualClock::at(instant(0.0)));
    let check_again = async {
        assert_eq!(incidents(&store).await[0].state, IncidentState::Open);
        clock.set(instant(800_000.0));
        tokio::time::sleep(IDLE_CHECK_INTERVAL * 2).await;
    };
    refresh_until(&store, Arc::clone(&clock), check_again).await;
    assert_eq!(incidents(&store).await[0].state, IncidentState::Cleared);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_could_not_report_during_a_downtime_is_not_silent() {
    let store = store_with(OPEN_AT).await;
    refresh(&store).await;
    let clock = Arc::new(ManualClock::at(instant(3_600_000.0)));
    let check_again = async { tokio::time::sleep(IDLE_CHECK_INTERVAL * 2).await };
    refresh_until(&store, clock, check_again).await;
    assert_eq!(incidents(&store).await[0].state, IncidentState::Open);
}
