//! Removal of the fields that Echo does not read.

use fleet_proto::attribute;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogramDataPoint, HistogramDataPoint, Metric, NumberDataPoint,
    SummaryDataPoint,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;

pub(super) fn metrics(mut request: ExportMetricsServiceRequest) -> ExportMetricsServiceRequest {
    for sent in &mut request.resource_metrics {
        sent.schema_url.clear();
        sent.resource = Some(resource(sent.resource.take()));
        for sent in &mut sent.scope_metrics {
            sent.schema_url.clear();
            sent.scope = Some(scope(sent.scope.take()));
            sent.metrics.iter_mut().for_each(metric);
        }
    }
    request
}

pub(super) fn logs(mut request: ExportLogsServiceRequest) -> ExportLogsServiceRequest {
    for sent in &mut request.resource_logs {
        sent.schema_url.clear();
        sent.resource = Some(resource(sent.resource.take()));
        for sent in &mut sent.scope_logs {
            sent.schema_url.clear();
            sent.scope = Some(scope(sent.scope.take()));
            for record in &mut sent.log_records {
                *record = LogRecord {
                    time_unix_nano: record.time_unix_nano,
                    observed_time_unix_nano: record.observed_time_unix_nano,
                    event_name: record.event_name.clone(),
                    attributes: attributes(&record.attributes),
                    ..LogRecord::default()
                };
            }
        }
    }
    request
}

pub(super) fn traces(mut request: ExportTraceServiceRequest) -> ExportTraceServiceRequest {
    for sent in &mut request.resource_spans {
        sent.schema_url.clear();
        sent.resource = Some(resource(sent.resource.take()));
        for sent in &mut sent.scope_spans {
            sent.schema_url.clear();
            sent.scope = Some(scope(sent.scope.take()));
            for span in &mut sent.spans {
                *span = Span {
                    trace_id: span.trace_id.clone(),
                    span_id: span.span_id.clone(),
                    parent_span_id: span.parent_span_id.clone(),
                    name: span.name.clone(),
                    kind: span.kind,
                    start_time_unix_nano: span.start_time_unix_nano,
                    end_time_unix_nano: span.end_time_unix_nano,
                    attributes: attributes(&span.attributes),
                    status: Some(span.status.take().unwrap_or_default()),
                    ..Span::default()
                };
            }
        }
    }
    request
}

fn resource(sent: Option<Resource>) -> Resource {
    Resource {
        attributes: attributes(&sent.unwrap_or_default().attributes),
        ..Resource::default()
    }
}

fn scope(sent: Option<InstrumentationScope>) -> InstrumentationScope {
    let sent = sent.unwrap_or_default();
    InstrumentationScope {
        attributes: attributes(&sent.attributes),
        name: sent.name,
        ..InstrumentationScope::default()
    }
}

fn metric(metric: &mut Metric) {
    metric.description.clear();
    metric.metadata.clear();
    match &mut metric.data {
        None => {}
        Some(Data::Gauge(gauge)) => gauge.data_points.iter_mut().for_each(number),
        Some(Data::Sum(sum)) => {
            sum.is_monotonic = false;
            sum.data_points.iter_mut().for_each(number);
        }
        Some(Data::Histogram(data)) => {
            for point in &mut data.data_points {
                *point = HistogramDataPoint {
                    attributes: attributes(&point.attributes),
                    exemplars: exemplars(&point.exemplars),
                    bucket_counts: Vec::new(),
                    explicit_bounds: Vec::new(),
                    ..*point
                };
            }
        }
        Some(Data::ExponentialHistogram(data)) => {
            for point in &mut data.data_points {
                *point = ExponentialHistogramDataPoint {
                    attributes: attributes(&point.attributes),
                    exemplars: exemplars(&point.exemplars),
                    scale: 0,
                    zero_count: 0,
                    zero_threshold: 0.0,
                    positive: None,
                    negative: None,
                    ..*point
                };
            }
        }
        Some(Data::Summary(data)) => {
            for point in &mut data.data_points {
                *point = SummaryDataPoint {
                    attributes: attributes(&point.attributes),
                    quantile_values: Vec::new(),
                    ..*point
                };
            }
        }
    }
}

fn number(point: &mut NumberDataPoint) {
    point.attributes = attributes(&point.attributes);
    point.exemplars = exemplars(&point.exemplars);
}

/// Returns the exemplars with a sequence number, reduced to the fields that are read.
fn exemplars(sent: &[Exemplar]) -> Vec<Exemplar> {
    let kept = sent.iter().filter_map(|exemplar| {
        let mut attributes = exemplar.filtered_attributes.iter();
        let seq = attributes.find(|one| one.key == attribute::SEQ)?;
        seq.value.as_ref()?.value.as_ref()?;
        Some(Exemplar {
            filtered_attributes: vec![key_value(seq)],
            span_id: Vec::new(),
            trace_id: Vec::new(),
            ..exemplar.clone()
        })
    });
    kept.collect()
}

fn attributes(sent: &[KeyValue]) -> Vec<KeyValue> {
    sent.iter().map(key_value).collect()
}

fn key_value(sent: &KeyValue) -> KeyValue {
    let value = sent.value.as_ref().filter(|any| any.value.is_some());
    KeyValue {
        key: sent.key.clone(),
        value: value.map(any),
        ..KeyValue::default()
    }
}

fn any(sent: &AnyValue) -> AnyValue {
    let mut any = sent.clone();
    match &mut any.value {
        Some(Value::ArrayValue(array)) => {
            for value in &mut array.values {
                *value = self::any(value);
            }
        }
        Some(Value::KvlistValue(list)) => list.values = attributes(&list.values),
        _ => {}
    }
    any
}
