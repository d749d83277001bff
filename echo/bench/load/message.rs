//! Requests: OTLP metrics in two shapes.

use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// The first cluster.
pub(crate) const CLUSTER: &str = "load-bench";

/// Signals of one block: a distribution each, but the period is a gauge. Arrivals come last, as
/// agents send them.
const SIGNALS: [&str; 5] = [
    metric::BLOCKED,
    metric::HOST_GAP,
    metric::WAIT,
    metric::PERIOD,
    metric::ARRIVAL,
];

/// Operations of a block.
const BLOCK_OPS: u64 = 32;

/// Time from one point or block to the next, nanoseconds.
const STEP_NS: u64 = 10_000_000;

/// Shape of the points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One operation each, as a gauge: the points of Echo's first measurements.
    Operations,
    /// Histograms without buckets over blocks of operations, as Echo's agent sends them.
    Blocks,
}

impl Shape {
    /// Name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Operations => "single operations",
            Self::Blocks => "blocks of an agent",
        }
    }
}

/// Sender and its request size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    /// Shape of the points.
    pub(crate) shape: Shape,
    /// Points of a request.
    pub(crate) points: u32,
    /// The cluster, from 0.
    pub(crate) cluster: u32,
    /// The node of the cluster, from 0.
    pub(crate) node: u32,
    /// Number of nodes of the cluster.
    pub(crate) nodes: u32,
}

impl Sender {
    /// Ranks of the node: the largest number up to 8 that divides the blocks of a request evenly.
    fn ranks(self) -> u32 {
        let blocks = self.points / to_u32(SIGNALS.len());
        match self.shape {
            Shape::Operations => 1,
            Shape::Blocks => (1..=8)
                .rev()
                .find(|ranks| blocks.is_multiple_of(*ranks))
                .unwrap_or(1),
        }
    }

    /// Blocks of each rank in a request.
    fn blocks(self) -> u32 {
        self.points / self.ranks() / to_u32(SIGNALS.len())
    }

    /// Actual points of a request: whole blocks of all ranks.
    pub(crate) fn real_points(self) -> u32 {
        match self.shape {
            Shape::Operations => self.points,
            Shape::Blocks => self.ranks() * self.blocks() * to_u32(SIGNALS.len()),
        }
    }

    /// Sequence numbers that one request covers.
    pub(crate) fn operations(self) -> u64 {
        match self.shape {
            Shape::Operations => self.points.into(),
            Shape::Blocks => u64::from(self.blocks()) * BLOCK_OPS,
        }
    }

    /// Returns the request with the first operation `seq`, sent at `now_ns`.
    pub(crate) fn message(self, seq: u64, now_ns: u64) -> ExportMetricsServiceRequest {
        let resource_metrics = match self.shape {
            Shape::Operations => vec![self.resource(0, vec![self.operations_gauge(seq, now_ns)])],
            Shape::Blocks => (0..self.ranks())
                .map(|rank| self.resource(rank, self.signals(rank, seq, now_ns)))
                .collect(),
        };
        ExportMetricsServiceRequest { resource_metrics }
    }

    fn cluster_name(self) -> String {
        match self.cluster {
            0 => CLUSTER.to_owned(),
            number => format!("{CLUSTER}-{number}"),
        }
    }

    fn rank(self, local: u32) -> u64 {
        u64::from(self.node * self.ranks() + local)
    }

    fn resource(self, local: u32, metrics: Vec<Metric>) -> ResourceMetrics {
        let [cluster, ..] = attribute::CLUSTER_ID;
        let [node, ..] = attribute::NODE_ID;
        let attributes = vec![
            text(cluster, &self.cluster_name()),
            text(node, &format!("gpu-node-{:04}", self.node)),
            int(attribute::FLEET_RANK, self.rank(local)),
            int(
                attribute::FLEET_WORLD_SIZE,
                (self.nodes * self.ranks()).into(),
            ),
            text("service.name", "fleet-agent"),
            int("process.pid", 4_000 + u64::from(local)),
            text("fleet.job.id", "train-7b-0042"),
            text("gpu.model", "NVIDIA H200"),
        ];
        ResourceMetrics {
            resource: Some(Resource {
                attributes,
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "fleet-agent".to_owned(),
                    version: "0.1.0".to_owned(),
                    ..InstrumentationScope::default()
                }),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }
    }

    fn operations_gauge(self, seq: u64, now_ns: u64) -> Metric {
        let point = |index: u32| {
            let end = now_ns - u64::from(self.points - index) * 1_000;
            NumberDataPoint {
                attributes: vec![
                    int("rank", self.rank(0)),
                    int("nranks", self.nodes.into()),
                    text("comm_id", "36210ed1"),
                    text("op", "AllReduce"),
                    int("seq", seq + u64::from(index)),
                    text("dtype", "bf16"),
                    int("bytes", 33_554_432),
                ],
                start_time_unix_nano: end - 1_000,
                time_unix_nano: end,
                value: Some(number_data_point::Value::AsDouble(
                    0.5 + spread(self.rank(0), index),
                )),
                ..NumberDataPoint::default()
            }
        };
        Metric {
            name: metric::WAIT.to_owned(),
            unit: "ms".to_owned(),
            data: Some(Data::Gauge(Gauge {
                data_points: (0..self.points).map(point).collect(),
            })),
            ..Metric::default()
        }
    }

    fn signals(self, local: u32, seq: u64, now_ns: u64) -> Vec<Metric> {
        let block = |number: u32| Block {
            rank: self.rank(local),
            comm: format!("36210ed1bd447f{local:02x}"),
            comm_rank: self.node.into(),
            comm_size: self.nodes.into(),
            seq: seq + u64::from(number) * BLOCK_OPS,
            number,
            end_ns: now_ns - u64::from(self.blocks() - number) * STEP_NS,
        };
        let blocks: Vec<Block> = (0..self.blocks()).map(block).collect();
        SIGNALS.iter().map(|name| signal(name, &blocks)).collect()
    }
}

struct Block {
    rank: u64,
    comm: String,
    comm_rank: u64,
    comm_size: u64,
    seq: u64,
    number: u32,
    end_ns: u64,
}

impl Block {
    fn attributes(&self) -> Vec<KeyValue> {
        vec![
            text(attribute::COMM_ID, &self.comm),
            int(attribute::COMM_RANK, self.comm_rank),
            int(attribute::COMM_SIZE, self.comm_size),
            text(attribute::OP, "AllReduce"),
            int(attribute::SEQ_FIRST, self.seq),
            int(attribute::SEQ_LAST, self.seq + BLOCK_OPS - 1),
            text(attribute::SOURCE, attribute::SOURCE_HOST),
            double(attribute::ITERATIONS, 4.0),
            text(attribute::ROLE, "9c5e1d0b7a3f2468"),
        ]
    }

    fn distribution(&self, name: &str) -> HistogramDataPoint {
        let mut attributes = self.attributes();
        if name == metric::ARRIVAL {
            attributes.push(int(attribute::ANCHOR_SEQ, self.seq - 1));
            attributes.push(double(attribute::ANCHOR_OFFSET_MS, 0.25));
        }
        let mean = 2.0 + spread(self.rank, self.number);
        HistogramDataPoint {
            attributes,
            start_time_unix_nano: self.end_ns - STEP_NS,
            time_unix_nano: self.end_ns,
            count: BLOCK_OPS,
            sum: Some(32.0 * mean),
            min: Some(mean - 1.5),
            max: Some(mean + 7.0),
            ..HistogramDataPoint::default()
        }
    }

    fn gauge(&self) -> NumberDataPoint {
        NumberDataPoint {
            attributes: self.attributes(),
            start_time_unix_nano: self.end_ns - STEP_NS,
            time_unix_nano: self.end_ns,
            value: Some(number_data_point::Value::AsDouble(45.5)),
            ..NumberDataPoint::default()
        }
    }
}

fn signal(name: &str, blocks: &[Block]) -> Metric {
    let data = if name == metric::PERIOD {
        Data::Gauge(Gauge {
            data_points: blocks.iter().map(Block::gauge).collect(),
        })
    } else {
        let points = blocks.iter().map(|block| block.distribution(name));
        Data::Histogram(Histogram {
            data_points: points.collect(),
            aggregation_temporality: AggregationTemporality::Delta.into(),
        })
    };
    Metric {
        name: name.to_owned(),
        unit: "ms".to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Returns a value up to 1 that varies with rank and index.
fn spread(rank: u64, index: u32) -> f64 {
    let mixed = (rank * 7 + u64::from(index) * 3) % 32;
    f64::from(u8::try_from(mixed).unwrap_or(0)) / 32.0
}

fn text(key: &str, value: &str) -> KeyValue {
    key_value(key, Value::StringValue(value.to_owned()))
}

fn int(key: &str, value: u64) -> KeyValue {
    key_value(key, Value::IntValue(value.cast_signed()))
}

fn double(key: &str, value: f64) -> KeyValue {
    key_value(key, Value::DoubleValue(value))
}

fn key_value(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
