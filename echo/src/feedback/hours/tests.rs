#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives to the end of its test"
)]

use std::sync::Arc;
use std::time::Duration;

use echo_core::clock::ManualClock;
use echo_core::ids::{IncidentId, RankInJob};
use echo_core::model::cost::StoredHour;
use echo_core::model::detector_output::{DetectorOutput, LostTime};
use echo_core::model::event::{BatchKey, Event, EventBatch, Origin, Reading};
use echo_core::units::{Hour, Nanos, Window};
use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;
use echo_store::hours::{Closed, CostHours};
use tokio::sync::watch;

use super::HourCloser;

/// Returns the instant `minutes` after the start of the first hour.
fn at(minutes: i64) -> Nanos {
    Nanos::EARLIEST.offset(minutes * 60_000_000_000)
}

fn origin(rank: i64) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: "prod".parse().unwrap(),
        node: "node-1".parse().unwrap(),
        rank: Some(RankInJob::new(rank, Some(2)).unwrap()),
        job: None,
        gpu_model: Some(Arc::from("H200")),
        gpu_uuid: None,
        namespace: None,
        pod: None,
    })
}

/// Returns the batch of a rank with events at these minutes.
fn reported(rank: i64, minutes: &[i64], received: Nanos) -> EventBatch {
    let event = |minute: &i64| Event {
        timestamp: at(*minute),
        start: None,
        origin: origin(rank),
        metric: "fleet.rank.period_ms".parse().unwrap(),
        unit: Arc::from("ms"),
        reading: Reading::Double(100.0),
        block: None,
        attrs: Arc::from("{}"),
        samples: Vec::new(),
    };
    EventBatch {
        key: BatchKey::Content(received.value().unsigned_abs().into()),
        received,
        events: minutes.iter().map(event).collect(),
    }
}

fn lost(minute: i64, lost_gpu_ms: f64) -> DetectorOutput {
    let lost = LostTime {
        incident: IncidentId::new(1),
        cluster: "prod".parse().unwrap(),
        node: "node-1".parse().unwrap(),
        gpu_model: Some(Arc::from("H200")),
        interval: Window::new(at(minute), at(minute + 1)).unwrap(),
        n_ranks: 2,
        iterations: 10.0,
        lost_gpu_ms,
        peer_wait_gpu_ms: None,
        saved_gpu_ms: 0.0,
    };
    DetectorOutput {
        lost: vec![lost],
        ..DetectorOutput::default()
    }
}

struct Site {
    store: Arc<DuckDbStore>,
    clock: Arc<ManualClock>,
    judged: watch::Sender<u64>,
    closer: HourCloser,
}

impl Site {
    /// Rank 0 reported through the first hour and into the second, and everything is processed.
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = DuckDbStore::scratch_with(Arc::<ManualClock>::clone(&clock));
        let store = Arc::new(store);
        let (judged, judging) = watch::channel(0);
        let shared: Arc<dyn EventStore> = Arc::<DuckDbStore>::clone(&store);
        let closer = HourCloser::new(
            shared,
            Arc::<ManualClock>::clone(&clock),
            Duration::from_mins(15),
            judging,
        );
        let site = Self {
            store,
            clock,
            judged,
            closer,
        };
        site.report(reported(0, &[0, 20, 40, 65], at(65))).await;
        site
    }

    async fn report(&self, batch: EventBatch) {
        self.clock.set(batch.received);
        self.store.append(batch).await.unwrap();
        let committed = *self.store.committed().borrow();
        self.judged.send_replace(committed);
    }

    async fn close_at(&self, minutes: i64) -> Option<Closed> {
        self.clock.set(at(minutes));
        let closed = self.closer.close_next().await.unwrap();
        closed.map(|(_, closed)| closed)
    }

    async fn closed(&self) -> Vec<StoredHour> {
        let window = Window::new(at(0), at(600)).unwrap();
        self.store.cost_hours(None, window, 100).await.unwrap()
    }

    /// Returns revision and allocated minutes of the only row of the first hour.
    async fn first_hour(&self) -> (u64, i64) {
        let rows = self.closed().await;
        assert_eq!(rows[0].row.hour, Hour::containing(at(0)));
        (
            rows[0].revision,
            rows[0].row.allocated.micros() / 60_000_000,
        )
    }
}

#[tokio::test]
async fn an_hour_is_closed_after_the_grace() {
    let site = Site::new().await;
    assert_eq!(site.close_at(74).await, None);
    assert_eq!(site.close_at(80).await, Some(Closed::Revised(1)));
    assert_eq!(site.first_hour().await, (1, 40));
    assert_eq!(
        site.close_at(80).await,
        None,
        "the second hour has not ended"
    );
}

#[tokio::test]
async fn an_hour_with_unprocessed_events_is_not_closed() {
    let site = Site::new().await;
    site.judged.send_replace(3);
    assert_eq!(site.close_at(80).await, None);
    site.judged.send_replace(4);
    assert_eq!(site.close_at(80).await, Some(Closed::Revised(1)));
}

#[tokio::test]
async fn late_data_and_late_verdicts_create_a_revision_and_nothing_else_does() {
    let site = Site::new().await;
    site.close_at(80).await;
    site.report(reported(1, &[0, 30], at(81))).await;
    assert_eq!(site.close_at(90).await, None, "more late data may follow");
    assert_eq!(site.close_at(96).await, Some(Closed::Revised(1)));
    assert_eq!(site.first_hour().await, (2, 70));
    site.report(reported(0, &[10], at(97))).await;
    assert_eq!(site.close_at(112).await, Some(Closed::Same));
    site.store.store_verdicts(lost(30, 250.0)).await.unwrap();
    assert_eq!(site.close_at(126).await, None);
    assert_eq!(site.close_at(127).await, Some(Closed::Revised(1)));
    let rows = site.closed().await;
    assert_eq!((rows[0].revision, rows[0].row.lost.micros()), (3, 250_000));
}

#[tokio::test]
async fn an_hour_with_continuous_late_data_is_closed_eventually() {
    let site = Site::new().await;
    for minute in 70..125 {
        site.report(reported(1, &[5], at(minute))).await;
    }
    assert_eq!(site.close_at(124).await, None);
    assert_eq!(site.close_at(125).await, Some(Closed::Revised(1)));
}

#[tokio::test]
async fn a_closed_hour_survives_its_events_and_late_data_only_adds_to_it() {
    let site = Site::new().await;
    site.close_at(80).await;
    site.store.drop_before(at(66)).await;
    assert_eq!(site.first_hour().await, (1, 40));
    site.report(reported(1, &[50, 55], at(81))).await;
    assert_eq!(
        site.close_at(100).await,
        Some(Closed::Same),
        "four tens are more than one five"
    );
    site.report(reported(0, &[0, 59], at(101))).await;
    assert_eq!(site.close_at(120).await, Some(Closed::Revised(1)));
    assert_eq!(site.first_hour().await.0, 2);
}
