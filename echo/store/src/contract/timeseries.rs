//! Contract tests of sums of signals over time.

use std::sync::Arc;

use echo_core::ids::RankInJob;
use echo_core::model::event::{Anchor, Event, Origin, Reading, Source, Summary};

use crate::EventStore;
use crate::contract::sample::{batch, device_wait, evidence, origin, wait, window, with_seqs};
use crate::duckdb::DuckDbStore;
use crate::timeseries::{TimeBuckets, TimeseriesPoint, TimeseriesQuery};

const WAIT_MS: &str = "nccl.collective.wait_ms";
const BLOCKED_MS: &str = "fleet.rank.blocked_ms";
const ARRIVAL_MS: &str = "nccl.collective.arrival_ms";

/// Signals of two ranks with different clocks, and events that must not be counted.
fn signals(first: &Arc<Origin>, second: &Arc<Origin>) -> Vec<Event> {
    let summary = wait(first, 0).reading;
    let blocked = |origin, millis| evidence(origin, BLOCKED_MS, millis, summary);
    let mut endless = blocked(first, 30);
    if let Some(block) = &mut endless.block {
        block.iterations = None;
    }
    vec![
        // The clocks of two ranks may differ: the mean time of both reports of the block is 20.
        with_seqs(blocked(first, 10), 0, 31),
        with_seqs(blocked(second, 30), 0, 31),
        with_seqs(blocked(first, 23), 32, 63),
        with_seqs(blocked(second, 50), 64, 95),
        device_wait(second, 51),
        // None of these matches: outside of the window, in the part that is not sampled, another
        // cluster, a host wait, another signal, no distribution, no iterations.
        blocked(first, 9),
        blocked(first, 70),
        with_seqs(blocked(first, 45), 96, 127),
        blocked(&origin("test", "node-1", 0), 30),
        wait(first, 30),
        evidence(first, "fleet.rank.busy_ms", 30, summary),
        evidence(first, BLOCKED_MS, 30, Reading::Double(1.0)),
        endless,
    ]
}

#[tokio::test]
async fn signals_are_summed_per_rank_and_bucket_despite_clock_differences() {
    let store = DuckDbStore::scratch();
    let (first, second) = (origin("prod", "node-1", 0), origin("prod", "node-1", 1));
    let events = signals(&first, &second);
    store.append(batch(1, events)).await.unwrap();
    let buckets = TimeBuckets::new(window(10, 70), 40 * 1_000_000, 30 * 1_000_000);
    let query = TimeseriesQuery {
        cluster: "prod".parse().unwrap(),
        metrics: vec![WAIT_MS.parse().unwrap(), BLOCKED_MS.parse().unwrap()],
        buckets: buckets.unwrap(),
    };
    let mut found = store.timeseries(query).await.unwrap();
    found.sort_by_key(|point| {
        let rank = point.origin.rank.map(RankInJob::rank);
        (rank, point.metric.clone(), point.bucket)
    });
    let block = wait(&first, 0).block.unwrap();
    let point = |origin: &Arc<Origin>, metric: &str, (bucket, n): (i64, f64)| TimeseriesPoint {
        origin: Arc::clone(origin),
        metric: metric.parse().unwrap(),
        source: Source::Host,
        role: block.role,
        comm: block.comm,
        op: block.op.clone(),
        bucket,
        count: 32.0 * n,
        sum: 176.5 * n,
        iterations: 1.5 * n,
        arrivals: None,
    };
    let by_gpu = TimeseriesPoint {
        source: Source::Device,
        ..point(&second, WAIT_MS, (1, 1.0))
    };
    assert_eq!(
        found,
        [
            point(&first, BLOCKED_MS, (0, 2.0)),
            point(&second, BLOCKED_MS, (0, 1.0)),
            point(&second, BLOCKED_MS, (1, 1.0)),
            by_gpu
        ]
    );
}

#[tokio::test]
async fn arrivals_are_compared_block_by_block_among_ranks_whose_clocks_start_together() {
    let store = DuckDbStore::scratch();
    let entry = Reading::Histogram(Summary {
        count: 1,
        sum: 0.0,
        min: None,
        max: None,
    });
    let arrival = |rank, (anchor, offset_ms)| {
        let mut event = evidence(&origin("prod", "node-1", rank), ARRIVAL_MS, 20, entry);
        if let Some(block) = &mut event.block {
            block.anchor = Some(Anchor {
                seq: anchor,
                offset_ms,
            });
        }
        event
    };
    let events = [
        arrival(0, (63, 4.0)),
        arrival(1, (63, 9.0)),
        arrival(2, (63, 4.5)),
        // Counted from another completion.
        arrival(3, (60, 500.0)),
    ];
    let next = events.iter().map(|event| with_seqs(event.clone(), 96, 127));
    let events = next.chain(events.iter().cloned()).collect();
    store.append(batch(1, events)).await.unwrap();
    let query = TimeseriesQuery {
        cluster: "prod".parse().unwrap(),
        metrics: vec![ARRIVAL_MS.parse().unwrap()],
        buckets: TimeBuckets::new(window(10, 70), 60 * 1_000_000, 60 * 1_000_000).unwrap(),
    };
    let mut found = store.timeseries(query).await.unwrap();
    found.sort_by_key(|point| point.origin.rank.map(RankInJob::rank));
    let late_ms: Vec<Option<(f64, f64)>> = found
        .iter()
        .map(|point| point.arrivals.map(|all| (all.blocks, all.late_ms)))
        .collect();
    assert_eq!(
        late_ms,
        [Some((2.0, -1.0)), Some((2.0, 9.0)), Some((2.0, 0.0)), None]
    );
}

/// Only the first 20 s of each minute are read. Of a block in that part all reports count, also of ranks
/// whose clocks place them outside of it.
#[tokio::test]
async fn a_sampled_part_has_all_reports_of_its_blocks() {
    let store = DuckDbStore::scratch();
    let (first, second) = (origin("prod", "node-1", 0), origin("prod", "node-1", 1));
    let summary = wait(&first, 0).reading;
    let block = |number: u64, millis: [i64; 2]| {
        let origins = [&first, &second].into_iter().zip(millis);
        let reports = origins.map(|(origin, millis)| {
            let event = evidence(origin, BLOCKED_MS, millis, summary);
            with_seqs(event, 32 * number, 32 * number + 31)
        });
        reports.collect::<Vec<Event>>()
    };
    let blocks = [
        block(0, [18_000, 21_000]),
        // Their mean times are outside, that of the last one is within.
        block(1, [19_000, 24_000]),
        block(2, [40_000, 40_000]),
        block(3, [58_000, 62_500]),
    ];
    store.append(batch(1, blocks.concat())).await.unwrap();
    let query = TimeseriesQuery {
        cluster: "prod".parse().unwrap(),
        metrics: vec![BLOCKED_MS.parse().unwrap()],
        buckets: TimeBuckets::new(window(0, 120_000), 60_000 * 1_000_000, 20_000 * 1_000_000)
            .unwrap(),
    };
    let found = store.timeseries(query).await.unwrap();
    let mut found: Vec<_> = found
        .iter()
        .map(|point| {
            (
                point.origin.rank.map(RankInJob::rank),
                point.bucket,
                point.count,
            )
        })
        .collect();
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let ranks = [&first, &second].map(|origin| origin.rank.map(RankInJob::rank));
    let expected = ranks.map(|rank| [(rank, 0, 32.0), (rank, 1, 32.0)]);
    assert_eq!(found, expected.concat());
}
