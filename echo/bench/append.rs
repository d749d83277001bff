//! Cost of a durable append: from events to the commit, one batch after the other and with
//! concurrent batches.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails may stop")]

use std::future::poll_fn;
use std::hint::black_box;
use std::sync::Arc;
use std::task::Poll;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use echo_core::clock::SystemClock;
use echo_core::ids::{CommId, MetricName, Op, RankInJob};
use echo_core::model::event::{
    BatchKey, Block, Event, EventBatch, Origin, Reading, SeqRange, Source, Summary,
};
use echo_core::units::Nanos;
use echo_store::EventStore;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const START: i64 = 1_763_683_200_000_000_000;

fn origins() -> Vec<Arc<Origin>> {
    let origin = |rank: i64| {
        Arc::new(Origin {
            cluster: "prod".parse().unwrap(),
            node: format!("node-{}", rank / 8).parse().unwrap(),
            rank: RankInJob::new(rank, Some(64)).ok(),
            job: "llama".parse().ok(),
            gpu_model: Some(Arc::from("H200")),
            gpu_uuid: Some(Arc::from(format!("GPU-{rank}"))),
            namespace: None,
            pod: None,
        })
    };
    (0..64).map(origin).collect()
}

/// Blocks of one communicator, as agents send them.
fn batch(origins: &[Arc<Origin>], number: u64, events: u64) -> EventBatch {
    let (attrs, unit): (Arc<str>, Arc<str>) =
        (Arc::from(r#"{"fleet.source":"host"}"#), Arc::from("ms"));
    let metric: MetricName = "nccl.collective.wait_ms".parse().unwrap();
    let op: Op = "AllReduce".parse().unwrap();
    let event = |(seq, origin): (u64, &Arc<Origin>)| Event {
        timestamp: Nanos::new(START).offset(i64::try_from(number * 1_000_000 + seq).unwrap()),
        start: Some(Nanos::new(START)),
        origin: Arc::clone(origin),
        metric: metric.clone(),
        unit: Arc::clone(&unit),
        reading: Reading::Histogram(Summary {
            count: 32,
            sum: 176.5,
            min: Some(0.25),
            max: Some(11.75),
        }),
        block: Some(Block {
            comm: CommId::new(7),
            op: Some(op.clone()),
            seqs: SeqRange::new(seq * 32, seq * 32 + 31),
            role: None,
            iterations: Some(32.0),
            anchor: None,
            source: Source::Host,
        }),
        attrs: Arc::clone(&attrs),
        samples: Vec::new(),
    };
    EventBatch {
        key: BatchKey::Numbered {
            agent: "agent-1".parse().unwrap(),
            number,
        },
        received: Nanos::new(START),
        events: (0..events).zip(origins.iter().cycle()).map(event).collect(),
    }
}

fn store() -> (DuckDbStore, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = DuckDbConfig::new(folder.path().join("echo.db"));
    let store = DuckDbStore::open(&config, Arc::new(SystemClock)).unwrap();
    (store, folder)
}

fn append(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let origins = origins();
    let mut group = criterion.benchmark_group("append");
    for events in [1_000, 10_000] {
        let (store, _folder) = store();
        let mut number = 0;
        group.throughput(Throughput::Elements(events));
        group.bench_function(BenchmarkId::new("durable", events), |bencher| {
            bencher.iter_batched(
                || {
                    number += 1;
                    batch(&origins, number, events)
                },
                |batch| black_box(runtime.block_on(store.append(batch))).unwrap(),
                BatchSize::PerIteration,
            );
        });
    }
    let (store, _folder) = store();
    let mut number = 0;
    group.throughput(Throughput::Elements(16_000));
    group.bench_function("durable/16 senders of 1000", |bencher| {
        bencher.iter_batched(
            || {
                let first = number;
                number += 16;
                let batches = (1..=16).map(|next| batch(&origins, first + next, 1_000));
                batches.collect::<Vec<_>>()
            },
            |batches| {
                runtime.block_on(async {
                    let store = &store;
                    let appends = batches.into_iter().map(|batch| store.append(batch));
                    for appended in all_at_once(appends).await {
                        black_box(appended).unwrap();
                    }
                });
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// Polls all futures concurrently, so that they wait for the same commit.
async fn all_at_once<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in &mut waiting {
            if output.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *output = Some(value);
            }
        }
        if waiting.iter().all(|(_, output)| output.is_some()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    waiting
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}

criterion_group!(benches, append);
criterion_main!(benches);
