//! Conversion of the fields read from a request to OTLP messages.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    self as v1, Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, exemplar, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};

use crate::decode::attributes::empty_list;
use crate::decode::wire::attributes::Attributes;
use crate::decode::wire::logs::Record;
use crate::decode::wire::metrics::{Metric, Scope, attributes, contents, resources, scopes};
use crate::decode::wire::point::{self, Kind, Lists, Number, Point};
use crate::decode::wire::spans::Span;
use crate::decode::wire::value::{Member, Value};
use crate::decode::wire::{Fields, WireError};

pub(super) fn metrics(body: &[u8]) -> Result<ExportMetricsServiceRequest, WireError> {
    let mut request = ExportMetricsServiceRequest::default();
    // Shared by all resources and points, as in the decoder.
    let (mut of_resource, mut of_point, mut exemplars) = (empty_list(), empty_list(), Vec::new());
    resources(Fields::new(body), |fields| {
        let mut resource = ResourceMetrics {
            resource: Some(resource(fields, &mut of_resource)?),
            ..ResourceMetrics::default()
        };
        for fields in scopes(fields) {
            let mut scope = ScopeMetrics {
                scope: Some(scope(fields)?),
                ..ScopeMetrics::default()
            };
            for fields in contents(fields) {
                let lists = Lists {
                    attributes: &mut of_point,
                    exemplars: &mut exemplars,
                };
                scope.metrics.push(metric(fields, lists)?);
            }
            resource.scope_metrics.push(scope);
        }
        request.resource_metrics.push(resource);
        Ok(())
    })?;
    Ok(request)
}

pub(super) fn logs(body: &[u8]) -> Result<ExportLogsServiceRequest, WireError> {
    let mut request = ExportLogsServiceRequest::default();
    let (mut of_resource, mut of_record) = (empty_list(), empty_list());
    resources(Fields::new(body), |fields| {
        let mut resource = ResourceLogs {
            resource: Some(resource(fields, &mut of_resource)?),
            ..ResourceLogs::default()
        };
        for fields in scopes(fields) {
            let mut scope = ScopeLogs {
                scope: Some(scope(fields)?),
                ..ScopeLogs::default()
            };
            for fields in contents(fields) {
                let record = Record::read(fields, &mut of_record)?;
                scope.log_records.push(LogRecord {
                    time_unix_nano: record.time,
                    observed_time_unix_nano: record.observed,
                    event_name: record.event_name.to_owned(),
                    attributes: key_values(&of_record),
                    ..LogRecord::default()
                });
            }
            resource.scope_logs.push(scope);
        }
        request.resource_logs.push(resource);
        Ok(())
    })?;
    Ok(request)
}

pub(super) fn traces(body: &[u8]) -> Result<ExportTraceServiceRequest, WireError> {
    let mut request = ExportTraceServiceRequest::default();
    let (mut of_resource, mut of_span) = (empty_list(), empty_list());
    resources(Fields::new(body), |fields| {
        let mut resource = ResourceSpans {
            resource: Some(resource(fields, &mut of_resource)?),
            ..ResourceSpans::default()
        };
        for fields in scopes(fields) {
            let mut scope = ScopeSpans {
                scope: Some(scope(fields)?),
                ..ScopeSpans::default()
            };
            for fields in contents(fields) {
                let span = Span::read(fields, &mut of_span)?;
                scope.spans.push(trace::v1::Span {
                    trace_id: span.trace_id.to_owned(),
                    span_id: span.span_id.to_owned(),
                    parent_span_id: span.parent_span_id.to_owned(),
                    name: span.name.to_owned(),
                    kind: span.kind,
                    start_time_unix_nano: span.start,
                    end_time_unix_nano: span.end,
                    attributes: key_values(&of_span),
                    status: Some(trace::v1::Status {
                        message: span.status.message.to_owned(),
                        code: span.status.code,
                    }),
                    ..trace::v1::Span::default()
                });
            }
            resource.scope_spans.push(scope);
        }
        request.resource_spans.push(resource);
        Ok(())
    })?;
    Ok(request)
}

fn resource<'a>(fields: Fields<'a>, list: &mut Attributes<'a>) -> Result<Resource, WireError> {
    attributes(fields, list)?;
    Ok(Resource {
        attributes: key_values(list),
        ..Resource::default()
    })
}

fn scope(fields: Fields<'_>) -> Result<InstrumentationScope, WireError> {
    let scope = Scope::read(fields, empty_list())?;
    Ok(InstrumentationScope {
        name: scope.name.to_owned(),
        attributes: key_values(&scope.attributes),
        ..InstrumentationScope::default()
    })
}

fn metric<'a>(fields: Fields<'a>, lists: Lists<'_, 'a>) -> Result<v1::Metric, WireError> {
    let metric = Metric::read(fields)?;
    let mut points = Vec::new();
    metric.points(lists, |point, lists| {
        let exemplars: Vec<_> = lists.exemplars.iter().map(sample).collect();
        points.push((*point, key_values(lists.attributes), exemplars));
    })?;
    let data = metric.data.map(|data| {
        let aggregation_temporality = data.temporality;
        match data.kind {
            Kind::Gauge => Data::Gauge(Gauge {
                data_points: all(points, number),
            }),
            Kind::Sum => Data::Sum(Sum {
                data_points: all(points, number),
                aggregation_temporality,
                is_monotonic: false,
            }),
            Kind::Histogram => Data::Histogram(Histogram {
                data_points: all(points, histogram),
                aggregation_temporality,
            }),
            Kind::Exponential => Data::ExponentialHistogram(ExponentialHistogram {
                data_points: all(points, exponential),
                aggregation_temporality,
            }),
            Kind::Summary => Data::Summary(Summary {
                data_points: all(points, summary),
            }),
        }
    });
    Ok(v1::Metric {
        name: metric.name.to_owned(),
        unit: metric.unit.to_owned(),
        data,
        ..v1::Metric::default()
    })
}

type Whole = (Point, Vec<KeyValue>, Vec<Exemplar>);

fn all<T>(points: Vec<Whole>, convert: fn(Whole) -> T) -> Vec<T> {
    points.into_iter().map(convert).collect()
}

fn number((point, attributes, exemplars): Whole) -> NumberDataPoint {
    NumberDataPoint {
        attributes,
        start_time_unix_nano: point.start,
        time_unix_nano: point.end,
        exemplars,
        flags: point.flags,
        value: point.value.map(|value| match value {
            Number::Double(value) => number_data_point::Value::AsDouble(value),
            Number::Int(value) => number_data_point::Value::AsInt(value),
        }),
    }
}

fn histogram((point, attributes, exemplars): Whole) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes,
        start_time_unix_nano: point.start,
        time_unix_nano: point.end,
        count: point.count,
        sum: point.sum,
        exemplars,
        flags: point.flags,
        min: point.min,
        max: point.max,
        ..HistogramDataPoint::default()
    }
}

fn exponential((point, attributes, exemplars): Whole) -> ExponentialHistogramDataPoint {
    ExponentialHistogramDataPoint {
        attributes,
        start_time_unix_nano: point.start,
        time_unix_nano: point.end,
        count: point.count,
        sum: point.sum,
        exemplars,
        flags: point.flags,
        min: point.min,
        max: point.max,
        ..ExponentialHistogramDataPoint::default()
    }
}

fn summary((point, attributes, _exemplars): Whole) -> SummaryDataPoint {
    SummaryDataPoint {
        attributes,
        start_time_unix_nano: point.start,
        time_unix_nano: point.end,
        count: point.count,
        sum: point.sum.unwrap(),
        flags: point.flags,
        ..SummaryDataPoint::default()
    }
}

fn sample(exemplar: &point::Exemplar<'_>) -> Exemplar {
    Exemplar {
        filtered_attributes: vec![KeyValue {
            key: fleet_proto::attribute::SEQ.to_owned(),
            value: Some(any(Some(exemplar.seq))),
            ..KeyValue::default()
        }],
        time_unix_nano: exemplar.time,
        value: exemplar.value.map(|value| match value {
            Number::Double(value) => exemplar::Value::AsDouble(value),
            Number::Int(value) => exemplar::Value::AsInt(value),
        }),
        ..Exemplar::default()
    }
}

fn key_values(list: &Attributes<'_>) -> Vec<KeyValue> {
    let members = list.present().iter();
    members.map(|one| key_value(one.key, one.value)).collect()
}

fn key_value(key: &str, value: Option<Value<'_>>) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        // The decoder does not distinguish a value without a variant from no value.
        value: value.map(|value| any(Some(value))),
        ..KeyValue::default()
    }
}

fn any(value: Option<Value<'_>>) -> AnyValue {
    let value = value.map(|value| match value {
        Value::Text(text) => Any::StringValue(text.to_owned()),
        Value::Bool(value) => Any::BoolValue(value),
        Value::Int(value) => Any::IntValue(value),
        Value::Double(value) => Any::DoubleValue(value),
        Value::Bytes(bytes) => Any::BytesValue(bytes.to_owned()),
        Value::Array(array) => Any::ArrayValue(ArrayValue {
            values: array.values().map(any).collect(),
        }),
        Value::List(list) => Any::KvlistValue(KeyValueList {
            values: list
                .members()
                .map(|Member { key, value }| key_value(key, value))
                .collect(),
        }),
        Value::Index(index) => Any::StringValueStrindex(index),
    });
    AnyValue { value }
}
