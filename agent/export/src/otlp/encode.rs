//! Encoding of points as OTLP messages.

mod report;

use std::collections::BTreeMap;

use fleet_agent_core::batch::{AgentCounters, Batch, Resource, ResourcePoints};
use fleet_agent_core::event::ExitStatus;
use fleet_agent_core::signal::{Anchor, Block, Exemplar, Lead, Point, Source, Value};
use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar as OtlpExemplar, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource as OtlpResource;

const SERVICE: &str = "fleet-agent";

/// Encodes the request that delivers a batch.
pub(super) fn encode(batch: &Batch) -> ExportMetricsServiceRequest {
    let processes = batch.resources.iter().map(resource_metrics);
    let resource_metrics = processes
        .chain(batch.reports.iter().map(report::resource_metrics))
        .chain(batch.agent_counters.as_ref().map(self_metrics))
        .collect();
    ExportMetricsServiceRequest { resource_metrics }
}

fn resource_metrics(points: &ResourcePoints) -> ResourceMetrics {
    // Arrivals last: the collector takes an arrival as the sign that the block is complete.
    let mut by_metric: BTreeMap<(bool, &str), Vec<&Point>> = BTreeMap::new();
    for point in &points.points {
        let is_arrival = point.metric == metric::ARRIVAL;
        by_metric
            .entry((is_arrival, point.metric))
            .or_default()
            .push(point);
    }
    let metrics = by_metric
        .into_iter()
        .filter_map(|((_, name), points)| otlp_metric(name, &points))
        .collect();
    ResourceMetrics {
        resource: Some(resource(&points.resource)),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(scope()),
            metrics,
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    }
}

fn self_metrics(counters: &AgentCounters) -> ResourceMetrics {
    let [cluster, ..] = attribute::CLUSTER_ID;
    let [node, ..] = attribute::NODE_ID;
    let attributes = vec![
        text(cluster, &counters.cluster),
        text(node, &counters.node),
        text("service.name", SERVICE),
    ];
    let count = |(name, rise): &(&str, u64)| Metric {
        name: (*name).to_owned(),
        unit: "1".to_owned(),
        data: Some(Data::Sum(Sum {
            data_points: vec![NumberDataPoint {
                start_time_unix_nano: counters.start_ns,
                time_unix_nano: counters.time_ns,
                value: Some(number_data_point::Value::AsInt(
                    i64::try_from(*rise).unwrap_or(i64::MAX),
                )),
                ..NumberDataPoint::default()
            }],
            aggregation_temporality: AggregationTemporality::Delta.into(),
            is_monotonic: true,
        })),
        ..Metric::default()
    };
    ResourceMetrics {
        resource: Some(OtlpResource {
            attributes,
            ..OtlpResource::default()
        }),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(scope()),
            metrics: counters.counts.iter().map(count).collect(),
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    }
}

/// Instrumentation scope of points and records.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: SERVICE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// Resource attributes of the process.
pub(super) fn resource(resource: &Resource) -> OtlpResource {
    let [cluster, ..] = attribute::CLUSTER_ID;
    let [node, ..] = attribute::NODE_ID;
    let [job, ..] = attribute::JOB;
    let [gpu_model, ..] = attribute::GPU_MODEL;
    let mut attributes = vec![
        text(cluster, &resource.cluster),
        text(node, &resource.node),
        text("service.name", SERVICE),
        int(attribute::PID, resource.pid.into()),
    ];
    let numbers = [
        (attribute::FLEET_RANK, resource.rank),
        (attribute::FLEET_WORLD_SIZE, resource.world_size),
    ];
    for (key, number) in numbers {
        attributes.extend(number.map(|number| int(key, number.into())));
    }
    let known = [
        (job, &resource.job),
        (gpu_model, &resource.gpu_model),
        (attribute::GPU_UUID, &resource.gpu_uuid),
        (attribute::POD, &resource.pod),
        (attribute::NAMESPACE, &resource.namespace),
    ];
    for (key, value) in known {
        attributes.extend(value.as_deref().map(|value| text(key, value)));
    }
    OtlpResource {
        attributes,
        ..OtlpResource::default()
    }
}

/// Encodes one metric. All its points have the type of the first one.
fn otlp_metric(name: &str, points: &[&Point]) -> Option<Metric> {
    let numbers = || points.iter().filter_map(|point| number(point)).collect();
    let data = match points.first()?.value {
        Value::Gauge(_) | Value::Elapsed { .. } => Data::Gauge(Gauge {
            data_points: numbers(),
        }),
        Value::Increase(_) | Value::TaskTime { .. } => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: AggregationTemporality::Delta.into(),
            is_monotonic: false,
        }),
        Value::Issued { .. } => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        Value::Summary { .. } | Value::Durations { .. } => Data::Histogram(Histogram {
            data_points: points.iter().filter_map(|point| histogram(point)).collect(),
            aggregation_temporality: AggregationTemporality::Delta.into(),
        }),
    };
    Some(Metric {
        name: name.to_owned(),
        unit: unit(name).to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

/// UCUM unit of a metric, from the suffix of its name.
fn unit(name: &str) -> &'static str {
    if name.ends_with("_ms") {
        "ms"
    } else if name.ends_with("_bytes") {
        "By"
    } else {
        "1"
    }
}

fn number(point: &Point) -> Option<NumberDataPoint> {
    let mut attributes = block(&point.block);
    let value = match &point.value {
        Value::Gauge(value) | Value::Increase(value) => number_data_point::Value::AsDouble(*value),
        Value::Elapsed { ms, mix } => {
            attributes.push(text(attribute::MIX, &mix.to_string()));
            number_data_point::Value::AsDouble(*ms)
        }
        Value::TaskTime { ms, task, cpu } => {
            attributes.push(text(attribute::TASK, task));
            attributes.extend(cpu.map(|cpu| int(attribute::CPU, cpu.into())));
            number_data_point::Value::AsDouble(*ms)
        }
        Value::Issued {
            total,
            age_ms,
            waiting_ms,
            is_stopped,
            running,
            exit,
        } => {
            attributes.extend(age_ms.map(|ms| double(attribute::AGE_MS, ms)));
            attributes.push(double(attribute::WAITING_MS, *waiting_ms));
            if *is_stopped {
                attributes.push(key_value(attribute::STOPPED, Any::BoolValue(true)));
            }
            let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            attributes.extend(running.map(|n| int(attribute::RUNNING, number(n))));
            attributes.extend(exit.map(|exit| match exit {
                ExitStatus::Signal(signal) => int(attribute::EXIT_SIGNAL, signal.into()),
                ExitStatus::Code(code) => int(attribute::EXIT_CODE, code.into()),
            }));
            number_data_point::Value::AsInt(i64::try_from(*total).unwrap_or(i64::MAX))
        }
        Value::Summary { .. } | Value::Durations { .. } => return None,
    };
    Some(NumberDataPoint {
        attributes,
        start_time_unix_nano: point.start_ns,
        time_unix_nano: point.time_ns,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram(point: &Point) -> Option<HistogramDataPoint> {
    let mut attributes = block(&point.block);
    let (summary, exemplars) = match &point.value {
        Value::Summary {
            summary,
            exemplars,
            anchor,
        } => {
            if let Some(Anchor { seq, offset_ms }) = *anchor {
                attributes.push(seq_attribute(attribute::ANCHOR_SEQ, seq));
                attributes.push(double(attribute::ANCHOR_OFFSET_MS, offset_ms));
            }
            (summary, exemplars.as_slice())
        }
        Value::Durations { summary, lead } => {
            if let Some(Lead { sum_ms, min_ms }) = *lead {
                attributes.push(double(attribute::LEAD_SUM_MS, sum_ms));
                attributes.push(double(attribute::LEAD_MIN_MS, min_ms));
            }
            (summary, [].as_slice())
        }
        Value::Gauge(_)
        | Value::Elapsed { .. }
        | Value::Increase(_)
        | Value::TaskTime { .. }
        | Value::Issued { .. } => return None,
    };
    Some(HistogramDataPoint {
        attributes,
        start_time_unix_nano: point.start_ns,
        time_unix_nano: point.time_ns,
        count: summary.count,
        sum: Some(summary.sum_ms),
        min: Some(summary.min_ms),
        max: Some(summary.max_ms),
        exemplars: exemplars.iter().map(otlp_exemplar).collect(),
        ..HistogramDataPoint::default()
    })
}

fn otlp_exemplar(sample: &Exemplar) -> OtlpExemplar {
    OtlpExemplar {
        filtered_attributes: vec![seq_attribute(attribute::SEQ, sample.seq)],
        time_unix_nano: sample.time_ns,
        value: Some(exemplar::Value::AsDouble(sample.wait_ms)),
        ..OtlpExemplar::default()
    }
}

fn block(block: &Block) -> Vec<KeyValue> {
    let mut attributes = vec![
        text(attribute::COMM_ID, &block.comm.to_string()),
        int(attribute::COMM_RANK, block.comm_rank.into()),
        int(attribute::COMM_SIZE, block.comm_nranks.into()),
        text(attribute::OP, block.op.name()),
        seq_attribute(attribute::SEQ_FIRST, block.seq_first),
        seq_attribute(attribute::SEQ_LAST, block.seq_last),
        text(attribute::SOURCE, source(block.source)),
    ];
    let reported_by = match block.source {
        Source::Host | Source::Device => None,
        Source::Ras => Some(attribute::REPORTED_BY_RAS),
        Source::FlightRecorder => Some(attribute::REPORTED_BY_FLIGHT_RECORDER),
    };
    attributes.extend(reported_by.map(|by| text(attribute::REPORTED_BY, by)));
    attributes.extend(block.iterations.map(|n| double(attribute::ITERATIONS, n)));
    attributes.extend(
        block
            .role
            .map(|role| text(attribute::ROLE, &role.to_string())),
    );
    attributes
}

fn source(source: Source) -> &'static str {
    match source {
        // These count launches on the host as well.
        Source::Host | Source::Ras | Source::FlightRecorder => attribute::SOURCE_HOST,
        Source::Device => attribute::SOURCE_DEVICE,
    }
}

pub(super) fn text(key: &str, value: &str) -> KeyValue {
    key_value(key, Any::StringValue(value.to_owned()))
}

pub(super) fn int(key: &str, value: i64) -> KeyValue {
    key_value(key, Any::IntValue(value))
}

pub(super) fn seq_attribute(key: &str, seq: u64) -> KeyValue {
    int(key, i64::try_from(seq).unwrap_or(i64::MAX))
}

pub(super) fn double(key: &str, value: f64) -> KeyValue {
    key_value(key, Any::DoubleValue(value))
}

pub(super) fn key_value(key: &str, value: Any) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue {
        key: key.to_owned(),
        value,
        ..KeyValue::default()
    }
}

#[cfg(test)]
mod tests;
