//! Random valid requests with all fields of OTLP.

use fleet_proto::attribute;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, exemplar, exponential_histogram_data_point::Buckets, number_data_point,
    summary_data_point::ValueAtQuantile,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

pub(super) use self::spans::span;
pub(in crate::decode) use self::spans::traces;
use crate::fixture::{END, START, int, rank_2, straggler, wait};

mod spans;

const KEYS: [&str; 14] = [
    "fleet.cluster.id",
    "k8s.cluster.name",
    "host.name",
    "nccl.rank",
    "fleet.rank",
    "nccl.nranks",
    attribute::COMM_ID,
    attribute::OP,
    attribute::SEQ_FIRST,
    attribute::SEQ_LAST,
    attribute::ROLE,
    attribute::LAG_MS,
    "event.name",
    "note",
];

const TEXTS: [&str; 8] = [
    "",
    "a",
    "prod",
    "1f",
    "7",
    "host",
    "fleet.straggler",
    "\u{e9}\u{1f600}",
];

pub(super) fn several<T>(rng: &mut ChaCha8Rng, make: fn(&mut ChaCha8Rng) -> T) -> Vec<T> {
    (0..rng.random_range(0..4)).map(|_| make(rng)).collect()
}

fn perhaps<T>(rng: &mut ChaCha8Rng, make: fn(&mut ChaCha8Rng) -> T) -> Option<T> {
    rng.random_bool(0.7).then(|| make(rng))
}

fn words(rng: &mut ChaCha8Rng) -> String {
    (*TEXTS.choose(rng).unwrap()).to_owned()
}

fn number(rng: &mut ChaCha8Rng) -> f64 {
    *[0.0, 1.0, 64.0, -1.0, f64::NAN, f64::INFINITY]
        .choose(rng)
        .unwrap()
}

fn time(rng: &mut ChaCha8Rng) -> u64 {
    *[0, START, END, END, u64::MAX].choose(rng).unwrap()
}

pub(super) fn value(rng: &mut ChaCha8Rng) -> AnyValue {
    let value = match rng.random_range(0..16) {
        0 => Value::BoolValue(rng.random()),
        1 => Value::BytesValue(vec![0, 255]),
        2 => Value::StringValueStrindex(rng.random()),
        3 => Value::ArrayValue(ArrayValue {
            values: several(rng, value),
        }),
        4 => Value::KvlistValue(KeyValueList {
            values: several(rng, key_value),
        }),
        5 => return AnyValue { value: None },
        6 | 7 => Value::DoubleValue(number(rng)),
        8..11 => Value::IntValue(rng.random_range(-1..70)),
        _ => Value::StringValue(words(rng)),
    };
    AnyValue { value: Some(value) }
}

pub(super) fn key_value(rng: &mut ChaCha8Rng) -> KeyValue {
    KeyValue {
        key: (*KEYS.choose(rng).unwrap()).to_owned(),
        value: perhaps(rng, value),
        key_strindex: rng.random_range(-1..2),
    }
}

fn attributes(rng: &mut ChaCha8Rng, usual: Vec<KeyValue>) -> Vec<KeyValue> {
    let mut attributes = if rng.random_bool(0.8) {
        usual
    } else {
        Vec::new()
    };
    attributes.extend(several(rng, key_value));
    attributes
}

fn exemplar(rng: &mut ChaCha8Rng) -> Exemplar {
    let seq = rng.random_range(0..99);
    Exemplar {
        filtered_attributes: attributes(rng, vec![int(attribute::SEQ, seq)]),
        time_unix_nano: time(rng),
        span_id: vec![1; 8],
        trace_id: vec![2; 16],
        value: perhaps(rng, number).map(exemplar::Value::AsDouble),
    }
}

pub(super) fn resource(rng: &mut ChaCha8Rng) -> Resource {
    Resource {
        attributes: attributes(rng, rank_2()),
        dropped_attributes_count: rng.random(),
        entity_refs: several(rng, |rng| EntityRef {
            schema_url: words(rng),
            r#type: words(rng),
            id_keys: several(rng, words),
            description_keys: several(rng, words),
        }),
    }
}

pub(super) fn scope(rng: &mut ChaCha8Rng) -> InstrumentationScope {
    InstrumentationScope {
        name: words(rng),
        version: words(rng),
        attributes: several(rng, key_value),
        dropped_attributes_count: rng.random(),
    }
}

pub(super) fn gauge_point(rng: &mut ChaCha8Rng) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(rng, wait().attributes),
        start_time_unix_nano: time(rng),
        time_unix_nano: time(rng),
        exemplars: several(rng, exemplar),
        flags: u32::from(rng.random_bool(0.1)),
        value: perhaps(rng, |rng| {
            if rng.random() {
                number_data_point::Value::AsDouble(number(rng))
            } else {
                number_data_point::Value::AsInt(rng.random_range(-1..9))
            }
        }),
    }
}

fn histogram_point(rng: &mut ChaCha8Rng) -> HistogramDataPoint {
    let usual = wait();
    HistogramDataPoint {
        attributes: attributes(rng, usual.attributes),
        time_unix_nano: time(rng),
        bucket_counts: vec![1, 2, u64::MAX],
        explicit_bounds: vec![1.0, 2.0],
        exemplars: several(rng, exemplar),
        flags: u32::from(rng.random_bool(0.1)),
        sum: perhaps(rng, |_| 64.0),
        min: perhaps(rng, |_| 0.5),
        max: perhaps(rng, number),
        ..usual
    }
}

fn exponential_point(rng: &mut ChaCha8Rng) -> ExponentialHistogramDataPoint {
    let buckets = |rng: &mut ChaCha8Rng| Buckets {
        offset: rng.random(),
        bucket_counts: vec![0, 300, u64::MAX],
    };
    ExponentialHistogramDataPoint {
        attributes: attributes(rng, wait().attributes),
        start_time_unix_nano: START,
        time_unix_nano: time(rng),
        count: rng.random_range(0..3),
        sum: perhaps(rng, number),
        scale: rng.random(),
        zero_count: rng.random(),
        positive: perhaps(rng, buckets),
        negative: perhaps(rng, buckets),
        flags: 0,
        exemplars: several(rng, exemplar),
        min: perhaps(rng, number),
        max: perhaps(rng, number),
        zero_threshold: 0.5,
    }
}

fn summary_point(rng: &mut ChaCha8Rng) -> SummaryDataPoint {
    SummaryDataPoint {
        attributes: attributes(rng, Vec::new()),
        start_time_unix_nano: 0,
        time_unix_nano: time(rng),
        count: rng.random_range(0..3),
        sum: number(rng),
        quantile_values: vec![ValueAtQuantile::default(); 2],
        flags: 0,
    }
}

fn data(rng: &mut ChaCha8Rng) -> Data {
    let aggregation_temporality = rng.random_range(-1..4);
    match rng.random_range(0..5) {
        0 => Data::Gauge(Gauge {
            data_points: several(rng, gauge_point),
        }),
        1 => Data::Sum(Sum {
            data_points: several(rng, gauge_point),
            aggregation_temporality,
            is_monotonic: true,
        }),
        2 => Data::Histogram(Histogram {
            data_points: several(rng, histogram_point),
            aggregation_temporality,
        }),
        3 => Data::ExponentialHistogram(ExponentialHistogram {
            data_points: several(rng, exponential_point),
            aggregation_temporality,
        }),
        _ => Data::Summary(Summary {
            data_points: several(rng, summary_point),
        }),
    }
}

pub(super) fn metric(rng: &mut ChaCha8Rng) -> Metric {
    Metric {
        name: words(rng),
        description: words(rng),
        unit: words(rng),
        metadata: several(rng, key_value),
        data: perhaps(rng, data),
    }
}

pub(in crate::decode) fn metrics(rng: &mut ChaCha8Rng) -> ExportMetricsServiceRequest {
    let scopes = |rng: &mut ChaCha8Rng| ScopeMetrics {
        scope: perhaps(rng, scope),
        metrics: several(rng, metric),
        schema_url: words(rng),
    };
    let resources = several(rng, resource);
    let resource_metrics = resources.into_iter().map(|resource| ResourceMetrics {
        resource: rng.random_bool(0.9).then_some(resource),
        scope_metrics: several(rng, scopes),
        schema_url: words(rng),
    });
    ExportMetricsServiceRequest {
        resource_metrics: resource_metrics.collect(),
    }
}

pub(super) fn record(rng: &mut ChaCha8Rng) -> LogRecord {
    let usual = straggler();
    LogRecord {
        time_unix_nano: time(rng),
        observed_time_unix_nano: time(rng),
        severity_number: rng.random_range(-1..25),
        severity_text: words(rng),
        body: perhaps(rng, value),
        attributes: attributes(rng, usual.attributes),
        dropped_attributes_count: rng.random(),
        flags: rng.random(),
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        event_name: perhaps(rng, |_| usual_name()).unwrap_or_else(|| words(rng)),
    }
}

fn usual_name() -> String {
    straggler().event_name
}

pub(in crate::decode) fn logs(rng: &mut ChaCha8Rng) -> ExportLogsServiceRequest {
    let scopes = |rng: &mut ChaCha8Rng| ScopeLogs {
        scope: perhaps(rng, scope),
        log_records: several(rng, record),
        schema_url: words(rng),
    };
    ExportLogsServiceRequest {
        resource_logs: several(rng, resource)
            .into_iter()
            .map(|resource| ResourceLogs {
                resource: Some(resource),
                scope_logs: several(rng, scopes),
                schema_url: words(rng),
            })
            .collect(),
    }
}
