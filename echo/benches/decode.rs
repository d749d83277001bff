//! What a data point costs from its bytes to an event: the share of protobuf, and all of it.
//!
//! One request holds 1,000 waits of 8 ranks, as one node sends them.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fleet_echo::ingest::decode::{Payload, decode_body};
use fleet_echo::units::Nanos;
use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Histogram, HistogramDataPoint, Metric, ResourceMetrics, ScopeMetrics,
    metric::Data,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

const RANKS: i64 = 8;
const POINTS_PER_RANK: i64 = 125;
const POINTS: u64 = 1_000;
const RECEIVED: Nanos = Nanos::new(1_763_700_000_000_000_000);
const END: u64 = 1_763_699_999_000_000_000;

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn int(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn wait(block: i64) -> HistogramDataPoint {
    HistogramDataPoint {
        start_time_unix_nano: END - 1_000_000_000,
        time_unix_nano: END,
        count: 32,
        sum: Some(64.0),
        min: Some(0.5),
        max: Some(9.0),
        attributes: vec![
            text(attribute::COMM_ID, "36210ed1bd447fe0"),
            text(attribute::OP, "AllReduce"),
            int(attribute::SEQ_FIRST, block * 32),
            int(attribute::SEQ_LAST, block * 32 + 31),
            text(attribute::SOURCE, attribute::SOURCE_HOST),
        ],
        ..HistogramDataPoint::default()
    }
}

fn resource(rank: i64) -> ResourceMetrics {
    let waits = Metric {
        name: metric::WAIT.to_owned(),
        unit: "ms".to_owned(),
        data: Some(Data::Histogram(Histogram {
            data_points: (0..POINTS_PER_RANK).map(wait).collect(),
            aggregation_temporality: AggregationTemporality::Delta as i32,
        })),
        ..Metric::default()
    };
    ResourceMetrics {
        resource: Some(Resource {
            attributes: vec![
                text("fleet.cluster.id", "prod"),
                text("fleet.node.id", "gpu-node-0017"),
                int(attribute::FLEET_RANK, rank),
                int(attribute::FLEET_WORLD_SIZE, RANKS),
                text(attribute::POD, "trainer-17"),
                text("service.name", "trainer"),
            ],
            ..Resource::default()
        }),
        scope_metrics: vec![ScopeMetrics {
            metrics: vec![waits],
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    }
}

fn decode(criterion: &mut Criterion) {
    let request = ExportMetricsServiceRequest {
        resource_metrics: (0..RANKS).map(resource).collect(),
    };
    let body = Bytes::from(request.encode_to_vec());
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(POINTS));
    group.bench_function("protobuf only", |bencher| {
        bencher.iter_batched(
            || body.clone(),
            |body| black_box(ExportMetricsServiceRequest::decode(body)),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("to events", |bencher| {
        bencher.iter_batched(
            || body.clone(),
            |body| black_box(decode_body(Payload::Metrics, body, RECEIVED)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
