//! Cost of a data point from bytes to event, compared with `prost` alone.
//!
//! Requests look like those of the agent: a resource with 8 attributes for each process, a scope,
//! five metrics of a block with 9 to 11 attributes. Small requests carry one block of each process,
//! large ones several.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use echo_core::units::Nanos;
use echo_ingest::decode::json::to_protobuf;
use echo_ingest::decode::{Payload, decode_body};
use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

const RECEIVED: Nanos = Nanos::new(1_763_700_000_000_000_000);
const END: u64 = 1_763_699_999_000_000_000;

/// Signals of one block: a distribution each, but the last is a gauge.
const SIGNALS: [&str; 5] = [
    metric::WAIT,
    metric::HOST_GAP,
    metric::BLOCKED,
    metric::ARRIVAL,
    metric::PERIOD,
];

/// Processes and blocks of each, which make 5 points.
const SHAPES: [(u64, u64); 4] = [(2, 1), (8, 1), (4, 5), (8, 25)];

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

fn int(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(value.cast_signed()))
}

fn double(key: &str, value: f64) -> KeyValue {
    attribute(key, Value::DoubleValue(value))
}

fn block(rank: u64, block: u64) -> Vec<KeyValue> {
    vec![
        text(attribute::COMM_ID, "36210ed1bd447fe0"),
        int(attribute::COMM_RANK, rank),
        int(attribute::COMM_SIZE, 64),
        text(attribute::OP, "AllReduce"),
        int(attribute::SEQ_FIRST, 100_000 + block * 32),
        int(attribute::SEQ_LAST, 100_031 + block * 32),
        text(attribute::SOURCE, attribute::SOURCE_HOST),
        double(attribute::ITERATIONS, 4.0),
        text(attribute::ROLE, "9c5e1d0b7a3f2468"),
    ]
}

fn distribution(signal: &str, rank: u64, number: u64) -> HistogramDataPoint {
    let mut attributes = block(rank, number);
    if signal == metric::ARRIVAL {
        attributes.push(int(attribute::ANCHOR_SEQ, 99_999 + number * 32));
        attributes.push(double(attribute::ANCHOR_OFFSET_MS, 0.25));
    }
    HistogramDataPoint {
        attributes,
        start_time_unix_nano: END - 1_000_000_000,
        time_unix_nano: END,
        count: 32,
        sum: Some(64.0),
        min: Some(0.5),
        max: Some(9.0),
        ..HistogramDataPoint::default()
    }
}

fn gauge(rank: u64, number: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: block(rank, number),
        start_time_unix_nano: END - 1_000_000_000,
        time_unix_nano: END,
        value: Some(number_data_point::Value::AsDouble(45.5)),
        ..NumberDataPoint::default()
    }
}

fn signal(name: &str, rank: u64, blocks: u64) -> Metric {
    let data = if name == metric::PERIOD {
        Data::Gauge(Gauge {
            data_points: (0..blocks).map(|number| gauge(rank, number)).collect(),
        })
    } else {
        Data::Histogram(Histogram {
            data_points: (0..blocks)
                .map(|number| distribution(name, rank, number))
                .collect(),
            aggregation_temporality: AggregationTemporality::Delta as i32,
        })
    };
    Metric {
        name: name.to_owned(),
        unit: "ms".to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn process(rank: u64, blocks: u64) -> ResourceMetrics {
    let metrics = SIGNALS.iter().map(|name| signal(name, rank, blocks));
    ResourceMetrics {
        resource: Some(Resource {
            attributes: vec![
                text("fleet.cluster.id", "prod"),
                text("fleet.node.id", "gpu-node-0017"),
                int(attribute::FLEET_RANK, rank),
                int(attribute::FLEET_WORLD_SIZE, 64),
                text("service.name", "fleet-agent"),
                int("process.pid", 4_000 + rank),
                text("fleet.job.id", "train-7b-0042"),
                text("gpu.model", "NVIDIA H200"),
            ],
            ..Resource::default()
        }),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(InstrumentationScope {
                name: "fleet-agent".to_owned(),
                version: "0.1.0".to_owned(),
                ..InstrumentationScope::default()
            }),
            metrics: metrics.collect(),
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    }
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for (processes, blocks) in SHAPES {
        let request = ExportMetricsServiceRequest {
            resource_metrics: (0..processes).map(|rank| process(rank, blocks)).collect(),
        };
        let body = request.encode_to_vec();
        let points = processes * blocks * SIGNALS.len() as u64;
        group.throughput(Throughput::Elements(points));
        let name = |what| BenchmarkId::new(what, points);
        group.bench_with_input(name("prost alone"), &body[..], |bencher, body| {
            bencher.iter_with_large_drop(|| black_box(ExportMetricsServiceRequest::decode(body)));
        });
        group.bench_with_input(name("to events"), &body[..], |bencher, body| {
            bencher.iter_with_large_drop(|| {
                black_box(decode_body(Payload::Metrics, body, RECEIVED, None))
            });
        });
        group.bench_with_input(name("to events and away"), &body[..], |bencher, body| {
            bencher.iter(|| black_box(decode_body(Payload::Metrics, body, RECEIVED, None)));
        });
        let json = serde_json::to_vec(&request).unwrap_or_default();
        group.bench_with_input(name("from JSON to protobuf"), &json[..], |bencher, json| {
            bencher.iter(|| black_box(to_protobuf(Payload::Metrics, json, usize::MAX)));
        });
    }
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
