//! The messages of OTLP: names in JSON, numbers and types of their fields (a test holds them to the official ones).

use std::fmt;

use crate::decode::Payload;

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) repeated: bool,
    pub(super) kind: Kind,
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Scalar(Scalar),
    Message(&'static Message),
}

/// A single value, named as protobuf names it; enumerations are `Int32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Bool,
    Int32,
    Sint32,
    Int64,
    Uint32,
    Uint64,
    Fixed32,
    Fixed64,
    Sfixed64,
    Double,
    Text,
    /// Bytes that JSON shows as hexadecimal digits.
    Hex,
    /// Bytes that JSON shows as base64.
    Base64,
}

impl Kind {
    pub(super) fn expecting(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar(scalar) => scalar.expected(),
            Self::Message(_) => "an object",
        })
    }
}

impl Scalar {
    /// What JSON should have there.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Int32 | Self::Sint32 | Self::Int64 | Self::Sfixed64 => "a whole number",
            Self::Uint32 | Self::Uint64 | Self::Fixed32 | Self::Fixed64 => {
                "a whole number that is not negative"
            }
            Self::Double => "a number",
            Self::Text => "a text",
            Self::Hex => "a text of hexadecimal digits",
            Self::Base64 => "a text in base64",
        }
    }
}

/// The message that a request is.
pub(super) const fn request(payload: Payload) -> &'static Message {
    match payload {
        Payload::Metrics => &METRICS_REQUEST,
        Payload::Logs => &LOGS_REQUEST,
        Payload::Traces => &TRACES_REQUEST,
    }
}

const fn one(number: u32, name: &'static str, scalar: Scalar) -> Field {
    Field {
        name,
        number,
        repeated: false,
        kind: Kind::Scalar(scalar),
    }
}

const fn message(number: u32, name: &'static str, of: &'static Message) -> Field {
    Field {
        name,
        number,
        repeated: false,
        kind: Kind::Message(of),
    }
}

const fn all(field: Field) -> Field {
    Field {
        repeated: true,
        ..field
    }
}

const fn of(fields: &'static [Field]) -> Message {
    Message { fields }
}

use Scalar::{
    Base64, Bool, Double, Fixed32, Fixed64, Hex, Int32, Int64, Sfixed64, Sint32, Text, Uint32,
    Uint64,
};

static METRICS_REQUEST: Message = of(&[all(message(1, "resourceMetrics", &RESOURCE_METRICS))]);
static RESOURCE_METRICS: Message = of(&[
    message(1, "resource", &RESOURCE),
    all(message(2, "scopeMetrics", &SCOPE_METRICS)),
    one(3, "schemaUrl", Text),
]);
static SCOPE_METRICS: Message = of(&[
    message(1, "scope", &SCOPE),
    all(message(2, "metrics", &METRIC)),
    one(3, "schemaUrl", Text),
]);

static LOGS_REQUEST: Message = of(&[all(message(1, "resourceLogs", &RESOURCE_LOGS))]);
static RESOURCE_LOGS: Message = of(&[
    message(1, "resource", &RESOURCE),
    all(message(2, "scopeLogs", &SCOPE_LOGS)),
    one(3, "schemaUrl", Text),
]);
static SCOPE_LOGS: Message = of(&[
    message(1, "scope", &SCOPE),
    all(message(2, "logRecords", &LOG_RECORD)),
    one(3, "schemaUrl", Text),
]);

static RESOURCE: Message = of(&[
    all(message(1, "attributes", &KEY_VALUE)),
    one(2, "droppedAttributesCount", Uint32),
    all(message(3, "entityRefs", &ENTITY_REF)),
]);
static ENTITY_REF: Message = of(&[
    one(1, "schemaUrl", Text),
    one(2, "type", Text),
    all(one(3, "idKeys", Text)),
    all(one(4, "descriptionKeys", Text)),
]);
static SCOPE: Message = of(&[
    one(1, "name", Text),
    one(2, "version", Text),
    all(message(3, "attributes", &KEY_VALUE)),
    one(4, "droppedAttributesCount", Uint32),
]);

static KEY_VALUE: Message = of(&[
    one(1, "key", Text),
    message(2, "value", &ANY_VALUE),
    one(3, "keyStrindex", Int32),
]);
static ANY_VALUE: Message = of(&[
    one(1, "stringValue", Text),
    one(2, "boolValue", Bool),
    one(3, "intValue", Int64),
    one(4, "doubleValue", Double),
    message(5, "arrayValue", &ARRAY_VALUE),
    message(6, "kvlistValue", &KEY_VALUE_LIST),
    one(7, "bytesValue", Base64),
    one(8, "stringValueStrindex", Int32),
]);
static ARRAY_VALUE: Message = of(&[all(message(1, "values", &ANY_VALUE))]);
static KEY_VALUE_LIST: Message = of(&[all(message(1, "values", &KEY_VALUE))]);

static METRIC: Message = of(&[
    one(1, "name", Text),
    one(2, "description", Text),
    one(3, "unit", Text),
    message(5, "gauge", &GAUGE),
    message(7, "sum", &SUM),
    message(9, "histogram", &HISTOGRAM),
    message(10, "exponentialHistogram", &EXPONENTIAL_HISTOGRAM),
    message(11, "summary", &SUMMARY),
    all(message(12, "metadata", &KEY_VALUE)),
]);
static GAUGE: Message = of(&[all(message(1, "dataPoints", &NUMBER_POINT))]);
static SUM: Message = of(&[
    all(message(1, "dataPoints", &NUMBER_POINT)),
    one(2, "aggregationTemporality", Int32),
    one(3, "isMonotonic", Bool),
]);
static HISTOGRAM: Message = of(&[
    all(message(1, "dataPoints", &HISTOGRAM_POINT)),
    one(2, "aggregationTemporality", Int32),
]);
static EXPONENTIAL_HISTOGRAM: Message = of(&[
    all(message(1, "dataPoints", &EXPONENTIAL_POINT)),
    one(2, "aggregationTemporality", Int32),
]);
static SUMMARY: Message = of(&[all(message(1, "dataPoints", &SUMMARY_POINT))]);

static NUMBER_POINT: Message = of(&[
    one(2, "startTimeUnixNano", Fixed64),
    one(3, "timeUnixNano", Fixed64),
    one(4, "asDouble", Double),
    all(message(5, "exemplars", &EXEMPLAR)),
    one(6, "asInt", Sfixed64),
    all(message(7, "attributes", &KEY_VALUE)),
    one(8, "flags", Uint32),
]);
static HISTOGRAM_POINT: Message = of(&[
    one(2, "startTimeUnixNano", Fixed64),
    one(3, "timeUnixNano", Fixed64),
    one(4, "count", Fixed64),
    one(5, "sum", Double),
    all(one(6, "bucketCounts", Fixed64)),
    all(one(7, "explicitBounds", Double)),
    all(message(8, "exemplars", &EXEMPLAR)),
    all(message(9, "attributes", &KEY_VALUE)),
    one(10, "flags", Uint32),
    one(11, "min", Double),
    one(12, "max", Double),
]);
static EXPONENTIAL_POINT: Message = of(&[
    all(message(1, "attributes", &KEY_VALUE)),
    one(2, "startTimeUnixNano", Fixed64),
    one(3, "timeUnixNano", Fixed64),
    one(4, "count", Fixed64),
    one(5, "sum", Double),
    one(6, "scale", Sint32),
    one(7, "zeroCount", Fixed64),
    message(8, "positive", &BUCKETS),
    message(9, "negative", &BUCKETS),
    one(10, "flags", Uint32),
    all(message(11, "exemplars", &EXEMPLAR)),
    one(12, "min", Double),
    one(13, "max", Double),
    one(14, "zeroThreshold", Double),
]);
static BUCKETS: Message = of(&[
    one(1, "offset", Sint32),
    all(one(2, "bucketCounts", Uint64)),
]);
static SUMMARY_POINT: Message = of(&[
    one(2, "startTimeUnixNano", Fixed64),
    one(3, "timeUnixNano", Fixed64),
    one(4, "count", Fixed64),
    one(5, "sum", Double),
    all(message(6, "quantileValues", &VALUE_AT_QUANTILE)),
    all(message(7, "attributes", &KEY_VALUE)),
    one(8, "flags", Uint32),
]);
static VALUE_AT_QUANTILE: Message = of(&[one(1, "quantile", Double), one(2, "value", Double)]);
static EXEMPLAR: Message = of(&[
    one(2, "timeUnixNano", Fixed64),
    one(3, "asDouble", Double),
    one(4, "spanId", Hex),
    one(5, "traceId", Hex),
    one(6, "asInt", Sfixed64),
    all(message(7, "filteredAttributes", &KEY_VALUE)),
]);

static LOG_RECORD: Message = of(&[
    one(1, "timeUnixNano", Fixed64),
    one(2, "severityNumber", Int32),
    one(3, "severityText", Text),
    message(5, "body", &ANY_VALUE),
    all(message(6, "attributes", &KEY_VALUE)),
    one(7, "droppedAttributesCount", Uint32),
    one(8, "flags", Fixed32),
    one(9, "traceId", Hex),
    one(10, "spanId", Hex),
    one(11, "observedTimeUnixNano", Fixed64),
    one(12, "eventName", Text),
]);

static TRACES_REQUEST: Message = of(&[all(message(1, "resourceSpans", &RESOURCE_SPANS))]);
static RESOURCE_SPANS: Message = of(&[
    message(1, "resource", &RESOURCE),
    all(message(2, "scopeSpans", &SCOPE_SPANS)),
    one(3, "schemaUrl", Text),
]);
static SCOPE_SPANS: Message = of(&[
    message(1, "scope", &SCOPE),
    all(message(2, "spans", &SPAN)),
    one(3, "schemaUrl", Text),
]);
static SPAN: Message = of(&[
    one(1, "traceId", Hex),
    one(2, "spanId", Hex),
    one(3, "traceState", Text),
    one(4, "parentSpanId", Hex),
    one(5, "name", Text),
    one(6, "kind", Int32),
    one(7, "startTimeUnixNano", Fixed64),
    one(8, "endTimeUnixNano", Fixed64),
    all(message(9, "attributes", &KEY_VALUE)),
    one(10, "droppedAttributesCount", Uint32),
    all(message(11, "events", &SPAN_EVENT)),
    one(12, "droppedEventsCount", Uint32),
    all(message(13, "links", &SPAN_LINK)),
    one(14, "droppedLinksCount", Uint32),
    message(15, "status", &SPAN_STATUS),
    one(16, "flags", Fixed32),
]);
static SPAN_EVENT: Message = of(&[
    one(1, "timeUnixNano", Fixed64),
    one(2, "name", Text),
    all(message(3, "attributes", &KEY_VALUE)),
    one(4, "droppedAttributesCount", Uint32),
]);
static SPAN_LINK: Message = of(&[
    one(1, "traceId", Hex),
    one(2, "spanId", Hex),
    one(3, "traceState", Text),
    all(message(4, "attributes", &KEY_VALUE)),
    one(5, "droppedAttributesCount", Uint32),
    one(6, "flags", Fixed32),
]);
static SPAN_STATUS: Message = of(&[one(2, "message", Text), one(3, "code", Int32)]);
