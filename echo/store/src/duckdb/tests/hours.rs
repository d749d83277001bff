use std::fs;
use std::sync::Arc;
use std::time::Duration;

use echo_core::model::cost::NodeHour;
use echo_core::model::event::Reading;
use echo_core::units::{GpuTime, Hour};
use tempfile::TempDir;

use super::{column, config, open, store};
use crate::EventStore;
use crate::contract::sample::{at, batch, gauge, losses, lost, origin};
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::hours::{Closed, ClosingHour, CostHours, DueHour};

const HOUR_MS: i64 = 3_600_000;

fn node_hour(lost_us: i64) -> NodeHour {
    NodeHour {
        hour: Hour::containing(at(0)),
        cluster: "prod".parse().unwrap(),
        node: "node-1".parse().unwrap(),
        gpu_model: Some(Arc::from("H200")),
        gpus: 8,
        allocated: GpuTime::new(4 * GpuTime::MICROS_PER_HOUR),
        lost: GpuTime::new(lost_us),
        ranks_reporting: 8,
        ranks_expected: 8,
    }
}

async fn report(store: &DuckDbStore, number: u64, millis: i64) {
    let event = gauge(
        &origin("prod", "node-1", 0),
        "fleet.rank.period_ms",
        millis,
        Reading::Int(1),
    );
    store.append(batch(number, vec![event])).await.unwrap();
}

async fn close(store: &DuckDbStore, rows: Vec<NodeHour>) -> Closed {
    let due = store.due_hours()[0];
    store.close_hour(ClosingHour { due, rows }).await.unwrap()
}

/// Copy of the database as a killed process would leave it.
fn killed(config: &DuckDbConfig) -> (TempDir, DuckDbConfig) {
    let copy = tempfile::tempdir().unwrap();
    for ending in ["", ".wal"] {
        let name = format!("echo.db{ending}");
        let _no_log = fs::copy(config.path.with_file_name(&name), copy.path().join(name));
    }
    let config = DuckDbConfig::new(copy.path().join("echo.db"));
    (copy, config)
}

#[tokio::test]
async fn due_and_closed_hours_survive_a_kill_at_any_point() {
    let folder = tempfile::tempdir().unwrap();
    // No checkpoint runs between the copies of the two files.
    let config = DuckDbConfig {
        checkpoint_every: Duration::from_hours(1),
        ..config(&folder)
    };
    let store = open(&config);
    report(&store, 1, 10).await;
    let (_before, before) = killed(&config);
    assert_eq!(close(&store, vec![node_hour(5)]).await, Closed::Revised(1));
    let (_after, after) = killed(&config);
    report(&store, 2, 20).await;
    let (_late, late) = killed(&config);

    let not_yet = open(&before);
    assert_eq!(not_yet.due_hours().len(), 1);
    assert!(!not_yet.due_hours()[0].was_closed);
    assert_eq!(
        close(&not_yet, vec![node_hour(5)]).await,
        Closed::Revised(1)
    );
    assert_eq!(open(&after).due_hours(), []);
    let again = open(&late);
    assert!(again.due_hours()[0].was_closed);
    assert_eq!(
        close(&again, vec![node_hour(5)]).await,
        Closed::Same,
        "once, not twice"
    );
}

#[tokio::test]
async fn the_view_shows_the_latest_revision_and_open_hours() {
    let (store, _folder) = store();
    let mut open_hour = lost(1, "prod", "node-1", (HOUR_MS, HOUR_MS + 10));
    open_hour.lost_gpu_ms = 1_800_000.0;
    store.store_verdicts(losses([open_hour])).await.unwrap();
    report(&store, 1, 10).await;
    close(&store, vec![node_hour(5)]).await;
    report(&store, 2, 20).await;
    close(&store, vec![node_hour(GpuTime::MICROS_PER_HOUR)]).await;
    let rows: Vec<String> = column(
        &store,
        "SELECT concat_ws(' ', node_id, lost_gpu_hours, coalesce(allocated_gpu_hours::VARCHAR, '-'), coalesce(revision::VARCHAR, '-'))
         FROM cost_hours ORDER BY hour_ns",
    )
    .await;
    assert_eq!(rows, ["node-1 1.0 4.0 2", "node-1 0.5 - -"]);
    let history: Vec<i64> = column(
        &store,
        "SELECT lost_us FROM cost_hour_history ORDER BY revision",
    )
    .await;
    assert_eq!(history, [5, GpuTime::MICROS_PER_HOUR]);
}

#[tokio::test]
async fn closed_hours_have_their_own_maximum_age() {
    let (store, _folder) = store();
    report(&store, 1, 10).await;
    close(&store, vec![node_hour(5)]).await;
    let window = Hour::containing(at(0)).window();
    for (cutoff, left) in [(at(0), 1), (at(HOUR_MS), 0)] {
        let tasks = store.writer.maintenance_queue();
        let clean_up = move || tasks.clean_up(at(0), None, Some(cutoff));
        tokio::task::spawn_blocking(clean_up)
            .await
            .unwrap()
            .unwrap();
        // Requests are handled in order, so the next one is answered after the task.
        let due = DueHour {
            hour: Hour::containing(at(0)),
            was_closed: true,
            since: at(0),
            until: at(0),
            last_event: 0,
            version: 0,
        };
        let closing = ClosingHour {
            due,
            rows: Vec::new(),
        };
        assert_eq!(store.close_hour(closing).await.unwrap(), Closed::Touched);
        let kept = store.cost_hours(None, window, 100).await.unwrap();
        assert_eq!(kept.len(), left);
    }
}
