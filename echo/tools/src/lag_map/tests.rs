use std::sync::Arc;

use echo_core::ids::{CommId, RankInJob, RoleId};
use echo_core::model::event::{
    BatchKey, Block, Event, EventBatch, Origin, Reading, SeqRange, Source, Summary,
};
use fleet_proto::metric;

use super::{LagMap, MAX_ROWS, RankKey};
use crate::fixture::{at, empty, origin};
use crate::scope::{Scope, ScopeRequest};
use crate::time::{TimeRange, WindowArg};
use crate::{ToolContext, ToolError};

/// Ten iterations that end at `second`, in which the rank was blocked for that long each.
fn blocked(origin: &Arc<Origin>, second: i64, each_ms: f64) -> Vec<Event> {
    let point = |name: &str, sum| Event {
        timestamp: at(second),
        start: None,
        origin: Arc::clone(origin),
        metric: name.parse().unwrap(),
        unit: Arc::from("ms"),
        reading: Reading::Histogram(Summary {
            count: 10,
            sum,
            min: None,
            max: None,
        }),
        block: Some(Block {
            comm: CommId::new(1),
            op: None,
            seqs: SeqRange::new(1, 10),
            role: Some(RoleId::new(7)),
            iterations: Some(10.0),
            anchor: None,
            source: Source::Host,
        }),
        attrs: Arc::from("{}"),
        samples: Vec::new(),
    };
    let arrival = point(metric::ARRIVAL, 0.0);
    if each_ms > 0.0 {
        vec![point(metric::BLOCKED, each_ms * 10.0), arrival]
    } else {
        vec![arrival]
    }
}

/// The same by the clock of its GPU, on one communicator.
fn device_wait(origin: &Arc<Origin>, (comm, each_ms): (u64, f64)) -> Event {
    let mut event = blocked(origin, 30, each_ms).remove(0);
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
async fn a_rank_that_waits_less_than_its_peers_is_late_in_that_bucket_only() {
    let mut events = Vec::new();
    for rank in 0..4 {
        let late = if rank == 2 { 1.0 } else { 6.0 };
        events.extend(blocked(&origin(rank), 5, 6.0));
        events.extend(blocked(&origin(rank), 305, late));
    }
    let map = map(&context(events).await, &[]).await;
    assert_eq!(map.ranks.len(), 4);
    assert_eq!(known(&map, 2), [(0, 0.0), (59, 5.0)]);
    assert_eq!(known(&map, 1), [(0, 0.0), (59, 0.0)]);
    assert_eq!(map.ranks[2].peak_ms(), Some((59, 5.0)));
    assert_eq!(map.ranks[2].mean_ms(), Some(2.5));
}

#[tokio::test]
async fn a_rank_that_was_not_blocked_lags_by_the_wait_of_its_peers() {
    let mut events = Vec::new();
    for rank in 0..4 {
        events.extend(blocked(&origin(rank), 5, 6.0));
        events.extend(blocked(
            &origin(rank),
            305,
            if rank == 2 { 0.0 } else { 6.0 },
        ));
    }
    let map = map(&context(events).await, &[]).await;
    assert_eq!(known(&map, 2), [(0, 0.0), (59, 6.0)]);
}

#[tokio::test]
async fn a_rank_that_is_never_blocked_cannot_be_compared() {
    let ranks = 0..4;
    let blocked_ms = |rank| if rank == 2 { 0.0 } else { 6.0 };
    let events = ranks.flat_map(|rank| blocked(&origin(rank), 5, blocked_ms(rank)));
    let map = map(&context(events.collect()).await, &[]).await;
    let ranks: Vec<u32> = map.ranks.iter().map(|one| one.rank).collect();
    assert_eq!(ranks, [0, 1, 3]);
}

#[tokio::test]
async fn gpu_waits_take_precedence_and_the_communicator_with_the_largest_lag_counts() {
    let mut events = Vec::new();
    for rank in 0..4 {
        events.extend(blocked(&origin(rank), 30, 6.0));
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
    let late = |rank| if rank == 9_000 { 1.0 } else { 6.0 };
    let first = blocked(&origin_of(0), 5, 6.0);
    let last = (0..10_240).flat_map(|rank| blocked(&origin_of(rank), 305, late(rank)));
    let events = first.into_iter().chain(last);
    let pinned = (Some("llama".to_owned()), 8_000);
    let map = map(&context(events.collect()).await, &[pinned]).await;
    assert_eq!(
        (map.ranks.len(), map.n_omitted),
        (MAX_ROWS, 10_240 - MAX_ROWS)
    );
    let cells = map.ranks.iter().map(|one| one.lags_ms.len());
    assert_eq!(cells.max(), Some(29));
    assert_eq!(known(&map, 9_000), [(28, 5.0)]);
    assert_eq!(known(&map, 8_000), [(28, 0.0)]);
    assert_eq!(map.omitted_peak_ms, Some(0.0));
}

#[tokio::test]
async fn the_window_is_restricted_to_its_events_and_has_the_iteration_time_of_each_job() {
    let mut events = Vec::new();
    for rank in 0..4 {
        let mut period = blocked(&origin(rank), 305, 0.0).remove(0);
        period.metric = metric::PERIOD.parse().unwrap();
        period.reading = Reading::Double(if rank == 0 { 900.0 } else { 100.0 });
        events.extend(blocked(&origin(rank), 301, 6.0));
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
async fn an_empty_window_is_an_empty_map_and_an_unknown_cluster_an_error() {
    let context = context(blocked(&origin(0), 5, 6.0)).await;
    let second = scope(&context, ("prod", 1)).await.unwrap();
    let empty = LagMap::load(&second, &[]).await.unwrap();
    assert!(empty.ranks.is_empty());
    let unknown = scope(&context, ("pord", 1)).await.unwrap_err();
    assert!(unknown.to_string().contains("(known: prod)"));
}
