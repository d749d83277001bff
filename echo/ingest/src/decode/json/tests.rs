use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, number_data_point};
use prost::Message;

use super::{JsonError, MAX_GROWTH, MAX_REASON_CHARS, memory_estimate, to_protobuf};
use crate::decode::Payload;

mod against_protobuf;
mod fuzz;

const LIMIT: usize = 1_000_000;

fn metrics(json: &str) -> Result<ExportMetricsServiceRequest, JsonError> {
    let body = to_protobuf(Payload::Metrics, json.as_bytes(), LIMIT)?;
    Ok(ExportMetricsServiceRequest::decode(&*body).unwrap())
}

/// Returns a request with this text as the point of a gauge.
fn with_point(point: &str) -> String {
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"gauge":{{"dataPoints":[{point}]}}}}]}}]}}]}}"#
    )
}

fn point(json: &str) -> NumberDataPoint {
    let mut request = metrics(&with_point(json)).unwrap();
    let mut resource = request.resource_metrics.remove(0);
    let metric = resource.scope_metrics.remove(0).metrics.remove(0);
    match metric.data {
        Some(Data::Gauge(mut gauge)) => gauge.data_points.remove(0),
        other => panic!("{other:?}"),
    }
}

fn attribute(value: &str) -> Option<Value> {
    let json = format!(r#"{{"attributes":[{{"key":"k","value":{value}}}]}}"#);
    let mut point = point(&json);
    point.attributes.remove(0).value.unwrap().value
}

fn reason(json: &str) -> String {
    match metrics(json) {
        Err(error @ JsonError::Malformed { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_may_be_strings() {
    for json in [
        r#"{"timeUnixNano":1544712660300000000,"asInt":-3,"flags":1}"#,
        r#"{"timeUnixNano":"1544712660300000000","asInt":"-3","flags":1}"#,
    ] {
        let point = point(json);
        assert_eq!(point.time_unix_nano, 1_544_712_660_300_000_000, "{json}");
        assert_eq!(point.value, Some(number_data_point::Value::AsInt(-3)));
        assert_eq!(point.flags, 1);
    }
}

#[test]
fn a_point_value_that_is_not_finite_is_absent() {
    for value in [r#""asDouble":"NaN""#, r#""asInt":"one""#, r#""asInt":null"#] {
        assert_eq!(point(&format!("{{{value}}}")).value, None, "{value}");
    }
}

#[test]
fn statistics_that_are_not_finite_are_absent() {
    let json = with_point(r#"{"count":"2","sum":"NaN","max":"Infinity","min":0.5}"#);
    let request = metrics(&json.replace("gauge", "histogram")).unwrap();
    let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
    let Some(Data::Histogram(histogram)) = &metric.data else {
        panic!("{metric:?}");
    };
    let point = &histogram.data_points[0];
    assert_eq!((point.sum, point.min, point.max), (None, Some(0.5), None));
    assert_eq!(attribute(r#"{"doubleValue":"NaN"}"#), None);
}

#[test]
fn enumerations_may_be_names() {
    let with = |temporality: &str| {
        let point = with_point(r#"{"asInt":1}"#).replace("gauge", "sum");
        let member = format!(r#""aggregationTemporality":{temporality},"dataPoints""#);
        metrics(&point.replace(r#""dataPoints""#, &member))
    };
    let numbered = with("1");
    assert!(numbered.is_ok(), "{numbered:?}");
    assert_eq!(with(r#""AGGREGATION_TEMPORALITY_DELTA""#), numbered);
    let unknown = with(r#""DELTA""#).unwrap_err().to_string();
    assert!(unknown.contains("aggregationTemporality"), "{unknown}");
}

#[test]
fn null_and_unknown_members_are_absent() {
    let point = point(
        r#"{"asDouble":1,"exemplars":null,"timeUnixNano":null,"new":{"deep":[{"x":[null,1.5,"y"]}]},
            "attributes":[{"key":"k","value":{"newValue":{"a":1}},"more":[]}]}"#,
    );
    assert_eq!(point.value, Some(number_data_point::Value::AsDouble(1.0)));
    assert_eq!(point.attributes[0].key, "k");
    assert_eq!(point.attributes[0].value.as_ref().unwrap().value, None);
    assert_eq!(metrics("{}"), Ok(ExportMetricsServiceRequest::default()));
    assert_eq!(metrics(r#"{"resource_metrics":[1]}"#), metrics("{}"));
}

#[test]
fn attribute_values_of_all_types_are_read() {
    let list = attribute(r#"{"arrayValue":{"values":[{"intValue":"1"},{}]}}"#);
    assert!(matches!(list, Some(Value::ArrayValue(list)) if list.values.len() == 2));
    let empty = attribute(r#"{"arrayValue":{}}"#);
    assert!(matches!(empty, Some(Value::ArrayValue(list)) if list.values.is_empty()));
    let pairs = attribute(r#"{"kvlistValue":{"values":[{"key":"a","value":{"boolValue":true}}]}}"#);
    assert!(matches!(pairs, Some(Value::KvlistValue(list)) if list.values.len() == 1));
    let no_key = attribute(r#"{"kvlistValue":{"values":[{"value":{"boolValue":true}}]}}"#);
    assert!(matches!(no_key, Some(Value::KvlistValue(list)) if list.values.len() == 1));
    let bytes = attribute(r#"{"bytesValue":"+/8="}"#);
    assert_eq!(bytes, Some(Value::BytesValue(vec![0xfb, 0xff])));
    let text = attribute(r#"{"stringValue":"a\u00e9\ud83d\ude00\n"}"#);
    assert_eq!(
        text,
        Some(Value::StringValue("a\u{e9}\u{1f600}\n".to_owned()))
    );
}

#[test]
fn trace_ids_are_hexadecimal() {
    let exemplar = |id: &str| with_point(&format!(r#"{{"exemplars":[{{"traceId":"{id}"}}]}}"#));
    let request = metrics(&exemplar("00fFa1")).unwrap();
    let found = request.encode_to_vec();
    assert!(found.windows(3).any(|bytes| bytes == [0x00, 0xff, 0xa1]));
    for id in ["0", "0g", "\u{e9}"] {
        let message = reason(&exemplar(id));
        assert!(message.contains("exemplars[0]"), "{message}");
    }
}

#[test]
fn an_error_has_a_path_and_a_reason() {
    let point = with_point(r#"{"asInt":1},{"timeUnixNano":"now"}"#);
    for (json, found) in [
        (
            &*point,
            "resourceMetrics[0].scopeMetrics[0].metrics[0].gauge.dataPoints[1].timeUnixNano: \
             invalid digit",
        ),
        (&with_point(r#"{"flags":-1}"#), "flags: invalid value"),
        (&with_point(r#"{"attributes":{}}"#), "expected a sequence"),
        (&with_point("[]"), "dataPoints[0]: invalid type"),
        (&with_point("null"), "dataPoints[0]: invalid type"),
        (r#"{"resourceMetrics":7}"#, "resourceMetrics: invalid type"),
        ("", "EOF"),
        ("{} {}", "trailing characters at line 1 column 4"),
        ("{", "EOF"),
        ("\u{feff}{}", "line 1 column 1"),
    ] {
        let reason = reason(json);
        assert!(reason.starts_with("the body is not an OTLP ExportMetricsServiceRequest in JSON"));
        assert!(reason.contains(found), "{reason}");
    }
}

#[test]
fn an_error_in_one_point_does_not_drop_its_metric() {
    let point = with_point(r#"{"asInt":1},{"asInt":2,"flags":-1}"#);
    assert!(reason(&point).contains("dataPoints[1].flags"));
}

#[test]
fn an_error_does_not_repeat_the_body() {
    let long = "x".repeat(100_000);
    let message = reason(&with_point(&format!(r#"{{"exemplars":"{long}"}}"#)));
    assert!(
        message.len() < 2 * MAX_REASON_CHARS + 100,
        "{}",
        message.len()
    );
}

#[test]
fn deep_nesting_is_rejected_before_the_stack_overflows() {
    let nested = |levels: usize| {
        let (begin, end) = (r#"{"arrayValue":{"values":["#, "]}}");
        let value = format!("{}{{}}{}", begin.repeat(levels), end.repeat(levels));
        metrics(&with_point(&format!(
            r#"{{"attributes":[{{"key":"k","value":{value}}}]}}"#
        )))
    };
    assert!(nested(30).is_ok());
    for levels in [50, 100_000] {
        let error = nested(levels).unwrap_err().to_string();
        assert!(error.contains("recursion limit"), "{error}");
    }
    let unknown = "[".repeat(100_000);
    assert!(metrics(&format!(r#"{{"new":{unknown}"#)).is_err());
}

#[test]
fn a_transcoded_body_stays_below_the_growth_factor_and_the_limit() {
    let numbers = vec!["0"; 10_000].join(",");
    let json = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"histogram":{{"dataPoints":[
            {{"explicitBounds":[{numbers}]}}]}}}}]}}]}}]}}"#
    );
    let body = to_protobuf(Payload::Metrics, json.as_bytes(), LIMIT).unwrap();
    assert!((3 * json.len()..MAX_GROWTH * json.len()).contains(&body.len()));
    let limit = body.len() - 1;
    let refused = to_protobuf(Payload::Metrics, json.as_bytes(), limit);
    assert_eq!(refused, Err(JsonError::TooLarge { limit }));
    assert!(to_protobuf(Payload::Metrics, json.as_bytes(), body.len()).is_ok());
}

#[test]
fn the_memory_estimate_counts_objects_and_values() {
    let empty = format!("[{}]", vec!["{}"; 1_000].join(","));
    assert!((1_000_000..1_200_000).contains(&memory_estimate(empty.as_bytes())));
    let text = format!(r#"{{"name":"{}"}}"#, "x".repeat(1_000_000));
    assert!(memory_estimate(text.as_bytes()) < 1_002_000);
}

#[test]
fn references_to_entities_may_lack_fields() {
    let body = r#"{"resourceMetrics":[{"resource":{"entityRefs":[{"type":"service"}]}}]}"#;
    assert_eq!(metrics(body).unwrap().resource_metrics.len(), 1);
}

#[test]
fn the_last_of_several_members_with_one_name_wins() {
    let point = point(r#"{"timeUnixNano":4,"timeUnixNano":5}"#);
    assert_eq!(point.time_unix_nano, 5);
}
