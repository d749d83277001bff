//! Small valid requests for tests, which change them.

use echo_core::units::Nanos;
use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

pub mod store;

/// Arrival time of requests.
pub const RECEIVED: Nanos = Nanos::new(1_763_700_000_000_000_000);

/// End of points, a second before the arrival.
pub const END: u64 = 1_763_699_999_000_000_000;

/// Start of points.
pub const START: u64 = END - 2_000_000_000;

/// Returns a string attribute.
pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

/// Returns an integer attribute.
pub fn int(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

/// Returns a floating-point attribute.
pub fn double(key: &str, value: f64) -> KeyValue {
    attribute(key, Value::DoubleValue(value))
}

/// Returns an attribute.
pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// Returns the resource attributes of rank 2 of 4.
pub fn rank_2() -> Vec<KeyValue> {
    vec![
        text("fleet.cluster.id", "prod"),
        text("fleet.node.id", "node-0"),
        int("fleet.rank", 2),
        int("fleet.world_size", 4),
        text("service.name", "trainer"),
    ]
}

/// Returns a gauge point.
pub fn gauge(value: f64) -> NumberDataPoint {
    NumberDataPoint {
        time_unix_nano: END,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

/// Returns a histogram point of a block of 32 waits.
pub fn wait() -> HistogramDataPoint {
    HistogramDataPoint {
        start_time_unix_nano: START,
        time_unix_nano: END,
        count: 32,
        sum: Some(64.0),
        min: Some(0.5),
        max: Some(9.0),
        attributes: vec![
            text(attribute::COMM_ID, "36210ed1bd447fe0"),
            text(attribute::OP, "AllReduce"),
            int(attribute::SEQ_FIRST, 32),
            int(attribute::SEQ_LAST, 63),
            text(attribute::SOURCE, attribute::SOURCE_HOST),
        ],
        ..HistogramDataPoint::default()
    }
}

/// Returns the metric of waits.
pub fn waits(data_points: Vec<HistogramDataPoint>) -> Metric {
    metric(
        metric::WAIT,
        "ms",
        Data::Histogram(Histogram {
            data_points,
            aggregation_temporality: AggregationTemporality::Delta as i32,
        }),
    )
}

/// Returns a metric of gauge points.
pub fn gauges(name: &str, unit: &str, data_points: Vec<NumberDataPoint>) -> Metric {
    metric(name, unit, Data::Gauge(Gauge { data_points }))
}

/// Returns a metric with these points.
pub fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Returns a request with one resource.
pub fn request(resource: Vec<KeyValue>, metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: resource,
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

/// Returns the verdict of a rank about itself, over a block.
pub fn straggler() -> LogRecord {
    LogRecord {
        time_unix_nano: END,
        event_name: metric::STRAGGLER.to_owned(),
        attributes: vec![
            text(attribute::STRAGGLER_STATE, attribute::STATE_RAISED),
            text(attribute::STRAGGLER_MODE, "policy"),
            double(attribute::LAG_MS, 7.5),
            double(attribute::Z, 9.0),
            text(attribute::COMM_ID, "36210ed1bd447fe0"),
            int(attribute::SEQ_FIRST, 32),
            int(attribute::SEQ_LAST, 63),
            text(attribute::ROLE, "1f"),
        ],
        ..LogRecord::default()
    }
}

/// Returns a request of log records with one resource.
pub fn records(resource: Vec<KeyValue>, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: resource,
                ..Resource::default()
            }),
            scope_logs: vec![ScopeLogs {
                log_records,
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    }
}

/// Returns a failed span of two seconds.
pub fn span() -> Span {
    Span {
        trace_id: (1..=16).collect(),
        span_id: vec![0xaa, 0, 0, 0, 0, 0, 0, 1],
        name: "load batch".to_owned(),
        kind: SpanKind::Client as i32,
        start_time_unix_nano: START,
        end_time_unix_nano: END,
        attributes: vec![text("file", "shard-7")],
        status: Some(Status {
            message: "no such file".to_owned(),
            code: StatusCode::Error as i32,
        }),
        ..Span::default()
    }
}

/// Returns a request of spans with one resource.
pub fn spans(resource: Vec<KeyValue>, spans: Vec<Span>) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: resource,
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}
