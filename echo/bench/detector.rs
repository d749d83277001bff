//! One step of the detector: ingests a block of every rank of a cohort and judges the window.
//!
//! The time per iteration is the time for one block of the whole cohort.

#![expect(
    clippy::unwrap_used,
    clippy::suboptimal_flops,
    reason = "made-up input, known to be right"
)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use echo_analysis::detector::Detector;
use echo_analysis::settings::Settings;
use echo_core::ids::{CommId, RankInJob, RoleId};
use echo_core::model::event::{
    Anchor, Block, Event, Origin, Reading, SeqRange, Source, StoredEvent, Summary,
};
use echo_core::units::Nanos;
use fleet_proto::{attribute, metric};

const OPS_PER_BLOCK: u64 = 32;
const WARM_BLOCKS: u64 = 24;

fn origins(n_ranks: u32) -> Vec<Arc<Origin>> {
    let origin = |rank: u32| Origin {
        cluster: "bench".parse().unwrap(),
        node: format!("node-{}", rank / 8).parse().unwrap(),
        rank: Some(RankInJob::new(i64::from(rank), Some(i64::from(n_ranks))).unwrap()),
        job: Some("job".parse().unwrap()),
        gpu_model: Some(Arc::from("NVIDIA H200")),
        gpu_uuid: None,
        namespace: None,
        pod: None,
    };
    (0..n_ranks).map(|rank| Arc::new(origin(rank))).collect()
}

/// Makes a point one about the durations of operations on the GPU of a rank.
fn durations(mut event: Event, rank: u64, n_ranks: usize) -> Event {
    let attrs = serde_json::json!({
        attribute::COMM_RANK: rank,
        attribute::COMM_SIZE: n_ranks,
        attribute::LEAD_SUM_MS: 80.0,
        attribute::LEAD_MIN_MS: 0.0,
    });
    event.attrs = Arc::from(attrs.to_string());
    if let Some(block) = &mut event.block {
        block.source = Source::Device;
    }
    event
}

/// Points of each rank about one block.
const POINTS: u32 = 5;

/// Reports of all ranks about one block.
fn block(origins: &[Arc<Origin>], number: u64) -> Vec<StoredEvent> {
    let seqs = SeqRange::new(number * OPS_PER_BLOCK, (number + 1) * OPS_PER_BLOCK - 1);
    let begin =
        Nanos::new(1_790_000_000_000_000_000 + i64::try_from(number).unwrap() * 200_000_000);
    let summary = |mean: f64| {
        Reading::Histogram(Summary {
            count: 4,
            sum: mean * 4.0,
            min: Some(mean),
            max: Some(mean),
        })
    };
    let point = |origin: &Arc<Origin>, name: &str, reading| Event {
        timestamp: begin.offset(199_000_000),
        start: Some(begin),
        origin: Arc::clone(origin),
        metric: name.parse().unwrap(),
        unit: Arc::from("ms"),
        reading,
        block: Some(Block {
            comm: CommId::new(1),
            op: None,
            seqs,
            role: Some(RoleId::new(7)),
            iterations: Some(4.0),
            anchor: Some(Anchor {
                seq: number * OPS_PER_BLOCK,
                offset_ms: 1.0,
            }),
            source: Source::Host,
        }),
        attrs: Arc::from("{}"),
        samples: Vec::new(),
    };
    let n_ranks = origins.len();
    let mut events = Vec::new();
    for (origin, rank) in origins.iter().zip(0_u64..) {
        let wobble = 0.1 * f64::from(u8::try_from((rank * 7 + number * 3) % 11).unwrap());
        for event in [
            point(origin, metric::BLOCKED, summary(30.0 - wobble)),
            point(origin, metric::HOST_GAP, summary(4.0 + wobble)),
            point(
                origin,
                metric::PERIOD,
                Reading::Double(50.0 + 0.01 * wobble),
            ),
            point(origin, metric::ARRIVAL, summary(80.0 + wobble)),
            durations(
                point(origin, metric::DURATION, summary(3.0 + wobble)),
                rank,
                n_ranks,
            ),
        ] {
            events.push(StoredEvent {
                id: 0,
                received: begin,
                event,
            });
        }
    }
    events
}

fn detector_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("detector_step");
    for n_ranks in [8_u32, 64, 1_024] {
        let origins = origins(n_ranks);
        group.throughput(Throughput::Elements(u64::from(n_ranks) * u64::from(POINTS)));
        group.bench_function(BenchmarkId::from_parameter(n_ranks), |bencher| {
            let mut detector = Detector::new(Settings::default());
            for number in 0..WARM_BLOCKS {
                detector.observe(&block(&origins, number));
            }
            let mut number = WARM_BLOCKS;
            bencher.iter_batched(
                || {
                    number += 1;
                    block(&origins, number)
                },
                |events| black_box(detector.observe(&events)),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// The same block as sent by the nodes of one large job: a request for each node of 8 ranks,
/// received one after the other. The cost of a request must not grow with the job.
fn requests_of_nodes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("requests_of_nodes");
    group.sample_size(10);
    for n_ranks in [1_024_u32, 10_240] {
        let origins = origins(n_ranks);
        let arriving = |number: u64| {
            let mut events = block(&origins, number);
            let per_node = 8 * i64::from(POINTS);
            for (index, event) in (0..).zip(&mut events) {
                event.received = event.received.offset(index / per_node * 100_000);
            }
            events
        };
        group.throughput(Throughput::Elements(u64::from(n_ranks) * u64::from(POINTS)));
        group.bench_function(BenchmarkId::from_parameter(n_ranks), |bencher| {
            let mut detector = Detector::new(Settings::default());
            for number in 0..WARM_BLOCKS {
                detector.observe(&arriving(number));
            }
            let mut number = WARM_BLOCKS;
            bencher.iter_batched(
                || {
                    number += 1;
                    arriving(number)
                },
                |events| black_box(detector.observe(&events)),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, detector_step, requests_of_nodes);
criterion_main!(benches);
