use std::sync::Arc;

use echo_core::ids::{CommId, Rank, RankInJob, RoleId};
use echo_core::model::detector_output::{
    Condition, ConditionKind, DetectorOutput, Finding, IncidentState,
};
use echo_core::model::event::{Anchor, BatchKey, Event, EventBatch, Origin, Reading, Source};
use fleet_proto::metric;

use super::{LagMap, MAX_ROWS, RankKey};
use crate::fixture::{at, empty, iterations, origin, uniform};
use crate::scope::{Scope, ScopeRequest};
use crate::time::{TimeRange, WindowArg};
use crate::{ToolContext, ToolError};

/// The same for a job that hardly synchronises: entries of its collectives after a completion.
fn arrivals(origin: &Arc<Origin>, second: i64, offset_ms: f64) -> Vec<Event> {
    let mut event = iterations(origin, second, 0.0).remove(1);
    if let Some(block) = &mut event.block {
        block.anchor = Some(Anchor { seq: 1, offset_ms });
    }
    vec![event]
}

/// The time of its GPU inside the collectives of one communicator.
fn device_wait(origin: &Arc<Origin>, (comm, each_ms): (u64, f64)) -> Event {
    let mut event = iterations(origin, 30, each_ms).remove(0);
    event.metric = metric::WAIT.parse().unwrap();
    if let Some(block) = &mut event.block {
        block.source = Source::Device;
        block.comm = CommId::new(comm);
    }
    event
}

async fn context(events: Vec<Event>) -> ToolContext {
    let context = empty();
    let batch = EventBatch {
        key: BatchKey::Content(1),
        received: at(600),
        events,
    };
    context.store.append(batch).await.unwrap();
    context
}

/// Scope of the last `seconds` of a cluster.
async fn scope<'a>(
    context: &'a ToolContext,
    (cluster, seconds): (&str, i64),
) -> Result<Scope<'a>, ToolError> {
    let request = ScopeRequest {
        cluster: Some(cluster.to_owned()),
        time: TimeRange {
            window: Some(WindowArg::Last(seconds * 1_000_000_000)),
            ..TimeRange::default()
        },
        page_window: None,
    };
    Scope::resolve(context, request).await
}

async fn map(context: &ToolContext, pinned: &[RankKey]) -> LagMap {
    let scope = scope(context, ("prod", 600)).await.unwrap();
    LagMap::load(&scope, pinned).await.unwrap()
}

fn known(map: &LagMap, rank: u32) -> Vec<(usize, f64)> {
    let lags = map.ranks.iter().find(|one| one.rank == rank).unwrap();
    let cells = lags.lags_ms.iter().enumerate();
    cells.filter_map(|(at, lag)| Some((at, (*lag)?))).collect()
}

#[tokio::test]
async fn a_rank_that_is_late_is_late_in_that_bucket_only() {
    for late in [iterations, arrivals] {
        let mut events = Vec::new();
        for rank in 0..4 {
            let late_ms = if rank == 2 { 6.0 } else { 1.0 };
            events.extend(late(&origin(rank), 5, 1.0));
            events.extend(late(&origin(rank), 305, late_ms));
        }
        let map = map(&context(events).await, &[]).await;
        assert_eq!(map.ranks.len(), 4);
        assert_eq!(known(&map, 2), [(0, 0.0), (59, 5.0)]);
        assert_eq!(known(&map, 1), [(0, 0.0), (59, 0.0)]);
    }
}

#[tokio::test]
async fn ranks_of_different_roles_are_not_compared() {
    let of_role = |rank: u32| {
        let mut events = iterations(&origin(rank), 5, f64::from(rank));
        for block in events.iter_mut().filter_map(|event| event.block.as_mut()) {
            block.role = Some(RoleId::new(u64::from(rank)));
        }
        events
    };
    let map = map(&context((0..4).flat_map(of_role).collect()).await, &[]).await;
    assert!(map.ranks.is_empty());
}

#[tokio::test]
async fn a_rank_missing_from_a_hang_is_late_by_the_time_for_which_others_waited() {
    let events = (0..4).flat_map(|rank| {
        let mut events = iterations(&origin(rank), 5, 1.0);
        events.extend(iterations(&origin(rank), 305, 1.0));
        events
    });
    let context = context(events.collect()).await;
    let mut hang = uniform();
    hang.finding = Finding::Condition(Condition {
        ranks: vec![Rank::new(3)],
        ..Condition::new(ConditionKind::Hang)
    });
    (hang.first_seen, hang.cleared_at) = (at(103), Some(at(123)));
    hang.state = IncidentState::Cleared;
    let output = DetectorOutput {
        incidents: vec![hang],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let map = map(&context, &[]).await;
    let late = map.ranks.iter().find(|one| one.rank == 3).unwrap();
    let waited = late.missing_ms.iter().flatten().copied();
    let waited: Vec<f64> = waited.collect();
    assert!(waited.is_sorted(), "{waited:?}");
    assert_eq!(waited.last(), Some(&20_000.0));
    assert_eq!(late.mean_ms(), Some(0.0));
    assert_eq!(late.peak_ms().map(|(_, lag_ms)| lag_ms), Some(20_000.0));
    let others = map.ranks.iter().filter(|one| one.rank != 3);
    assert_eq!(
        others
            .flat_map(|one| one.missing_ms.iter().flatten())
            .count(),
        0
    );
}

#[tokio::test]
async fn gpu_waits_take_precedence_and_the_communicator_with_the_largest_lag_counts() {
    let mut events = Vec::new();
    for rank in 0..4 {
        events.extend(iterations(&origin(rank), 30, 6.0));
        events.push(device_wait(&origin(rank), (1, 3.0)));
        let late = if rank == 3 { 2.0 } else { 9.0 };
        events.push(device_wait(&origin(rank), (2, late)));
    }
    let map = map(&context(events).await, &[]).await;
    assert_eq!(known(&map, 3), [(0, 7.0)]);
    assert_eq!(known(&map, 0), [(0, 0.0)]);
}

#[tokio::test]
async fn among_many_ranks_the_pinned_and_the_latest_are_listed_and_the_others_counted() {
    let origin_of = |rank: u32| {
        let mut origin = (*origin(0)).clone();
        origin.rank = Some(RankInJob::new(i64::from(rank), Some(10_240)).unwrap());
        Arc::new(origin)
    };
    let late = |rank| if rank == 9_000 { 6.0 } else { 1.0 };
    let first = iterations(&origin_of(0), 5, 1.0);
    let last = (0..10_240).flat_map(|rank| iterations(&origin_of(rank), 305, late(rank)));
    let events = first.into_iter().chain(last);
    let pinned = (Some("llama".to_owned()), 8_000);
    let map = map(&context(events.collect()).await, &[pinned]).await;
    assert_eq!(
        (map.ranks.len(), map.n_omitted),
        (MAX_ROWS, 10_240 - MAX_ROWS)
    );
    let cells = map.ranks.iter().map(|one| one.lags_ms.len());
    assert_eq!(cells.max(), Some(24));
    assert_eq!(known(&map, 9_000), [(23, 5.0)]);
    assert_eq!(known(&map, 8_000), [(23, 0.0)]);
    assert_eq!(map.omitted_peak_ms, Some(0.0));
}

#[tokio::test]
async fn the_window_is_restricted_to_its_events_and_has_the_iteration_time_of_each_job() {
    let mut events = Vec::new();
    for rank in 0..4 {
        let mut period = iterations(&origin(rank), 305, 0.0).remove(0);
        period.metric = metric::PERIOD.parse().unwrap();
        period.reading = Reading::Double(if rank == 0 { 900.0 } else { 100.0 });
        events.extend(iterations(&origin(rank), 301, 6.0));
        events.push(period);
    }
    let map = map(&context(events).await, &[]).await;
    assert_eq!(
        (map.window.from, map.window.to),
        (at(301).to_string(), at(305).offset(1).to_string())
    );
    let job = Some("llama".to_owned());
    assert_eq!(
        map.iteration_ms.into_iter().collect::<Vec<_>>(),
        [(job, 100.0)]
    );
}

#[tokio::test]
async fn steps_are_not_shorter_than_the_reports_of_the_ranks() {
    for (interval, longest) in [(5, 5.1), (10, 15.1), (60, 80.0)] {
        let reported = (0..=10).flat_map(|number| {
            let second = 5 + number * interval;
            (0..4).flat_map(move |rank| iterations(&origin(rank), second, 1.0))
        });
        let map = map(&context(reported.collect()).await, &[]).await;
        // The last step may be cut short before its report.
        let of_rank = &map.ranks.first().unwrap().lags_ms;
        let (_, whole) = of_rank.split_last().unwrap();
        assert!(whole.len() > 4, "{interval} s: {of_rank:?}");
        assert!(
            whole.iter().all(Option::is_some),
            "{interval} s: {of_rank:?}"
        );
        assert!(map.bucket_s <= longest, "{interval} s: {}", map.bucket_s);
    }
}

#[tokio::test]
async fn a_pause_of_all_ranks_does_not_make_steps_longer() {
    let seconds = (0..10).chain(100..110).map(|number| 5 + number * 5);
    let reported = seconds
        .flat_map(|second| (0..4).flat_map(move |rank| iterations(&origin(rank), second, 1.0)));
    let map = map(&context(reported.collect()).await, &[]).await;
    assert!(map.bucket_s < 12.0, "{}", map.bucket_s);
}

#[tokio::test]
async fn an_empty_window_is_an_empty_map_and_an_unknown_cluster_an_error() {
    let context = context(iterations(&origin(0), 5, 6.0)).await;
    let second = scope(&context, ("prod", 1)).await.unwrap();
    let empty = LagMap::load(&second, &[]).await.unwrap();
    assert!(empty.ranks.is_empty());
    let unknown = scope(&context, ("pord", 1)).await.unwrap_err();
    assert!(unknown.to_string().contains("(known: prod)"));
}

#[tokio::test]
async fn a_collective_of_one_iteration_does_not_count_as_a_lag_of_all() {
    let events = (0..4).flat_map(|rank| {
        let mut events = iterations(&origin(rank), 30, 1.0);
        events.push(device_wait(&origin(rank), (1, 6.0)));
        let mut once = device_wait(&origin(rank), (2, if rank == 3 { 1.0 } else { 8.0 }));
        once.block.as_mut().unwrap().iterations = Some(1.0);
        events.push(once);
        events
    });
    let map = map(&context(events.collect()).await, &[]).await;
    // Ten operations in one of ten iterations, 7 ms each.
    assert_eq!(known(&map, 3), [(0, 7.0)]);
}
