use std::sync::Arc;

use echo_core::ids::{IncidentId, RankInJob};
use echo_core::model::cost::ReportSpan;
use echo_core::model::detector_output::LostTime;
use echo_core::model::event::Origin;
use echo_core::units::{GpuTime, Hour, Nanos, Window};
use proptest::prelude::{prop_assert_eq, proptest};

use super::{allocated, kept, node_hours};

const SECOND: i64 = 1_000_000_000;

fn at(second: i64) -> Nanos {
    Nanos::EARLIEST.offset(second * SECOND)
}

fn window(from: i64, to: i64) -> Window {
    Window::new(at(from), at(to)).unwrap()
}

fn hour() -> Hour {
    Hour::containing(at(0))
}

/// A rank of a job of eight, two to a node.
fn seen(rank: i64, (first, last): (i64, i64)) -> ReportSpan {
    ReportSpan {
        origin: Arc::new(Origin {
            cluster: "c".parse().unwrap(),
            node: format!("n{}", rank / 2).parse().unwrap(),
            rank: Some(RankInJob::new(rank, Some(8)).unwrap()),
            job: Some("j".parse().unwrap()),
            gpu_model: Some(Arc::from("H200")),
            gpu_uuid: None,
            namespace: None,
            pod: None,
        }),
        first: at(first),
        last: at(last),
    }
}

fn lost(node: &str, second: i64, lost_gpu_ms: f64) -> LostTime {
    LostTime {
        incident: IncidentId::new(1),
        cluster: "c".parse().unwrap(),
        node: node.parse().unwrap(),
        gpu_model: Some(Arc::from("H200")),
        interval: window(second, second + 5),
        n_ranks: 2,
        iterations: 1.0,
        lost_gpu_ms,
        peer_wait_gpu_ms: None,
        saved_gpu_ms: 0.0,
    }
}

#[test]
fn a_rank_that_reports_every_few_seconds_is_allocated_for_the_whole_hour() {
    let rows = node_hours(hour(), &[seen(0, (4, 3_597)), seen(1, (0, 3_599))], &[]);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].allocated.hours().to_string(), "2");
    assert_eq!((rows[0].gpus, rows[0].ranks_reporting), (2, 2));
    assert_eq!(rows[0].ranks_expected, 8);
}

#[test]
fn a_job_that_begins_or_ends_within_the_hour_is_allocated_from_its_first_to_its_last_event() {
    let sum = allocated(hour().window(), &[seen(0, (600, 1_200))]);
    assert_eq!(sum, GpuTime::from_millis(600_000.0));
    let until_the_end = allocated(hour().window(), &[seen(0, (3_000, 3_590))]);
    assert_eq!(until_the_end, GpuTime::from_millis(600_000.0));
    let cut_elsewhere = allocated(window(0, 3_000), &[seen(0, (0, 2_990))]);
    assert_eq!(
        cut_elsewhere,
        GpuTime::from_millis(2_990_000.0),
        "only the border of an hour is reached"
    );
}

#[test]
fn a_node_without_rank_has_no_gpu() {
    let mut bare = seen(0, (0, 10));
    let mut origin = Origin::clone(&bare.origin);
    origin.rank = None;
    bare.origin = Arc::new(origin);
    assert_eq!(node_hours(hour(), &[bare], &[]), []);
}

#[test]
fn lost_time_is_listed_with_allocated_time() {
    let ranks = [seen(0, (0, 3_599)), seen(2, (0, 3_599))];
    let lost = [
        lost("n0", 10, 500.0),
        lost("n1", 10, -100.0),
        lost("gone", 10, 100.0),
    ];
    let rows = node_hours(hour(), &ranks, &lost);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.node.as_str(), row.gpus, row.lost.micros()))
        .collect();
    let expected = [("gone", 0, 83_333), ("n0", 1, 416_667), ("n1", 1, 0)];
    assert_eq!(found, expected);
}

#[test]
fn an_hour_whose_events_are_deleted_keeps_its_values() {
    let before = node_hours(
        hour(),
        &[seen(0, (0, 3_599)), seen(2, (0, 1_800))],
        &[lost("n0", 10, 500.0)],
    );
    let late = node_hours(
        hour(),
        &[seen(2, (0, 3_599)), seen(4, (0, 60))],
        &[lost("n0", 10, 700.0)],
    );
    let found: Vec<_> = kept(before, late)
        .iter()
        .map(|row| {
            (
                row.node.to_string(),
                row.allocated.micros(),
                row.lost.micros(),
            )
        })
        .collect();
    let expected = [
        ("n0".to_owned(), 3_600_000_000, 700_000),
        ("n1".to_owned(), 3_600_000_000, 0),
        ("n2".to_owned(), 60_000_000, 0),
    ];
    assert_eq!(found, expected);
}

proptest! {
    #[test]
    fn rows_add_up_to_allocated_and_lost_time(
        ranks in proptest::collection::vec((0..8_i64, 0..3_600_i64, 0..3_600_i64), 0..20),
        losses in proptest::collection::vec((0..4_usize, 0..3_600_i64, -1e4..1e5_f64), 0..20),
    ) {
        let ranks: Vec<ReportSpan> = ranks
            .into_iter()
            .map(|(rank, a, b)| seen(rank, (a.min(b), a.max(b))))
            .collect();
        let losses: Vec<LostTime> = losses
            .into_iter()
            .map(|(node, second, ms)| lost(["n0", "n1", "n2", "n3"][node], second, ms))
            .collect();
        let rows = node_hours(hour(), &ranks, &losses);
        let there: GpuTime = rows.iter().map(|row| row.allocated).sum();
        prop_assert_eq!(there, allocated(hour().window(), &ranks));
        let raw: GpuTime = losses.iter().map(|row| GpuTime::from_millis(row.lost_gpu_ms)).sum();
        let lost: GpuTime = rows.iter().map(|row| row.lost).sum();
        prop_assert_eq!(lost, raw.max(GpuTime::ZERO));
    }
}
