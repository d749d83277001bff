//! Requests with split messages, and values with the maximum nesting depth.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use prost::Message;
use prost::encoding::{WireType, encode_key};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::made::{gauge_point, key_value, metric, record, resource, scope, several, span, value};
use super::mutate::delimited;
use crate::decode::Payload;
use crate::fixture::{gauge, gauges, rank_2, request, text};

/// Concatenates encoded messages, which protobuf merges into one.
fn joined<M: Message>(rng: &mut ChaCha8Rng, make: fn(&mut ChaCha8Rng) -> M) -> Vec<u8> {
    let pieces = several(rng, make);
    pieces.iter().flat_map(Message::encode_to_vec).collect()
}

/// Returns a random value, mostly a list.
fn lists(rng: &mut ChaCha8Rng) -> AnyValue {
    let list = match rng.random_range(0..3) {
        0 => Value::ArrayValue(ArrayValue {
            values: several(rng, value),
        }),
        1 => Value::KvlistValue(KeyValueList {
            values: several(rng, key_value),
        }),
        _ => return value(rng),
    };
    AnyValue { value: Some(list) }
}

/// Returns an attribute in several parts, with a value in several parts, which may be a list.
fn attribute(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut value = joined(rng, lists);
    if rng.random() {
        let items = several(rng, |rng| delimited(1, &joined(rng, lists))).concat();
        value.extend(delimited(5, &items));
    }
    let mut attribute = joined(rng, key_value);
    attribute.extend(delimited(2, &value));
    attribute.extend(delimited(2, &joined(rng, lists)));
    attribute
}

/// Returns a request in which every message is split.
pub(super) fn broken_up(rng: &mut ChaCha8Rng) -> (Payload, Vec<u8>) {
    let payload = match rng.random_range(0..3) {
        0 => Payload::Metrics,
        1 => Payload::Logs,
        _ => Payload::Traces,
    };
    let content = match payload {
        Payload::Metrics => {
            let mut point = joined(rng, gauge_point);
            point.extend(delimited(7, &attribute(rng)));
            let mut content = joined(rng, metric);
            content.extend(delimited(5, &delimited(1, &point)));
            if rng.random() {
                content.extend(joined(rng, metric));
            }
            content
        }
        Payload::Logs => {
            let mut content = joined(rng, record);
            content.extend(delimited(6, &attribute(rng)));
            content
        }
        Payload::Traces => {
            let mut content = joined(rng, span);
            content.extend(delimited(9, &attribute(rng)));
            content
        }
    };
    let mut scopes = several(rng, |rng| delimited(1, &joined(rng, scope))).concat();
    scopes.extend(delimited(2, &content));
    let mut resources = delimited(2, &scopes);
    resources.extend(several(rng, |rng| delimited(1, &joined(rng, resource))).concat());
    resources.extend(delimited(1, &delimited(1, &attribute(rng))));
    (payload, delimited(1, &resources))
}

fn with_value(value: AnyValue) -> Vec<u8> {
    let mut point = gauge(1.0);
    point.attributes = vec![KeyValue {
        key: "deep".to_owned(),
        value: Some(value),
        ..KeyValue::default()
    }];
    request(rank_2(), vec![gauges("m", "", vec![point])]).encode_to_vec()
}

/// Returns a value inside `arrays` arrays inside `lists` key-value lists.
pub(super) fn nested(arrays: u32, lists: u32) -> Vec<u8> {
    let innermost = text("", "x").value.unwrap();
    let within = (0..arrays).fold(innermost, |inner, _| AnyValue {
        value: Some(Value::ArrayValue(ArrayValue {
            values: vec![inner],
        })),
    });
    with_value((0..lists).fold(within, |inner, _| AnyValue {
        value: Some(Value::KvlistValue(KeyValueList {
            values: vec![KeyValue {
                key: "k".to_owned(),
                value: Some(inner),
                ..KeyValue::default()
            }],
        })),
    }))
}

/// Returns the same with an unknown field instead of the value.
pub(super) fn unknown_inside(arrays: u32, lists: u32) -> Vec<u8> {
    let mut body = nested(arrays, lists);
    let mut values = body.windows(3);
    let index = values.rposition(|bytes| bytes == b"\x0a\x01x").unwrap();
    body[index] = (15 << 3) | 2;
    body
}

/// Returns an unknown group with this number of nested groups.
pub(super) fn groups(levels: u32) -> Vec<u8> {
    let mut body = with_value(AnyValue { value: None });
    for kind in [WireType::StartGroup, WireType::EndGroup] {
        for _ in 0..levels {
            encode_key(99, kind, &mut body);
        }
    }
    body
}
