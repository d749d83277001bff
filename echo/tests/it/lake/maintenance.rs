//! Maintenance of a lake by its only instance.

use echo_core::clock::{Clock, SystemClock};
use serde_json::Value;

use super::{EXTENSIONS, Lake, assert_consistent, metric};
use crate::load::{Sent, request, send, sender};
use crate::testbed::{Echo, wait_for};

/// Flags of instances that leave the maintenance to others.
pub(crate) const OFF: [&str; 2] = ["--lake-maintenance-every", "off"];

/// Flags of instances that maintain the lake all the time.
pub(crate) const ALWAYS: [&str; 4] = [
    "--lake-maintenance-every",
    "1s",
    "--lake-snapshot-age",
    "1s",
];

/// Copies a batch, as a slice of its own.
pub(crate) fn append(echo: &Echo, batch: u64) {
    let body = request(batch, 100);
    let copied = || metric(echo, "echo_lake_events_total");
    let before = copied();
    let sent = send(&sender(), &echo.otlp_http, "agent-1", batch, &body);
    assert_eq!(sent, Sent::Acknowledged);
    wait_for("the batch to be copied", || copied() >= before + 100.0);
}

pub(crate) fn runs(echo: &Echo) -> f64 {
    metric(echo, "echo_lake_maintenance_runs_total")
}

pub(crate) fn used_files(lake: &Lake) -> u64 {
    let (_, status): (bool, Value) = lake.command("status");
    status["files"].as_u64().unwrap()
}

#[test]
#[needs(EXTENSIONS)]
fn days_are_deleted_from_the_lake_and_the_rest_is_consistent() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::in_folder(folder.path());
    let db = folder.path().join("fleet.duckdb");
    let now = SystemClock.now().value().unsigned_abs() / 1_000_000_000;
    // The number of a batch is its second after 21 November 2025.
    let today = now - 1_763_700_000;
    let echo = lake.serve_with(&db, &OFF);
    for batch in [1, 90_000, today] {
        append(&echo, batch);
    }
    assert_eq!(echo.terminate(), 0);
    assert_eq!(lake.counted().len(), 3);
    let retention = ["--lake-retention", "30d", "--lake-maintenance-every", "1s"];
    let echo = lake.serve_with(&db, &retention);
    wait_for("two days to be deleted", || {
        metric(&echo, "echo_lake_deleted_events_total") >= 200.0
    });
    append(&echo, today + 1);
    assert_eq!(echo.terminate(), 0);
    let left = [today, today + 1].map(|batch| (batch, (100, 100)));
    assert_eq!(lake.counted(), left.into());
    assert_consistent(&lake, 400);
    let again = lake.serve_with(&db, &retention);
    wait_for("another run", || runs(&again) > 0.0);
    assert!(metric(&again, "echo_lake_deleted_events_total") < 0.1);
}
