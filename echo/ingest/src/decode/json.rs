//! Transcoder from OTLP/JSON, parsed by `opentelemetry-proto`, to the protobuf that the decoder
//! reads. The library is stricter than the JSON mapping of protobuf: it rejects null in place of a
//! list or a number, names of enumerations, and empty lists whose values are omitted. A body that it rejects is fixed up
//! and parsed again ([`relax`]), which also gives the path of a remaining error.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::SeverityNumber;
use opentelemetry_proto::tonic::metrics::v1::AggregationTemporality;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::metric::MetricsRequest;
use super::Payload;

mod metric;
#[cfg(test)]
mod tests;

/// Maximum growth factor of a body by transcoding: `0,` becomes eight bytes.
pub const MAX_GROWTH: usize = 4;

/// Maximum length of the path and of the reason in an error, in characters: both may quote the
/// body.
const MAX_REASON_CHARS: usize = 200;

/// Maximum memory of an object while it is read, in bytes: the map of its members and the largest
/// message.
const OBJECT_BYTES: usize = 1_000;

/// Maximum memory of any other value while it is read, in bytes, without the characters of its
/// text.
const VALUE_BYTES: usize = 128;

/// Error of transcoding a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The body is not JSON, or not an OTLP request in JSON.
    #[error("the body is not an OTLP {} in JSON: {reason}", .payload.message())]
    Malformed {
        /// Expected kind of request.
        payload: Payload,
        /// Path and message of the error.
        reason: String,
    },
    /// The request is larger than the limit in protobuf.
    #[error("the request takes more than {limit} bytes in protobuf")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
}

/// Returns the maximum memory needed to parse the body, in bytes, without parsing it: an empty
/// object of three bytes becomes a message of two hundred.
pub fn memory_estimate(body: &[u8]) -> usize {
    let cost = |byte: &u8| match byte {
        b'{' => OBJECT_BYTES,
        b'[' | b',' => VALUE_BYTES,
        _ => 1,
    };
    body.iter().map(cost).fold(0, usize::saturating_add)
}

/// Transcodes the request to protobuf, of at most `limit` bytes.
pub fn to_protobuf(payload: Payload, body: &[u8], limit: usize) -> Result<Vec<u8>, JsonError> {
    let transcoded = match payload {
        Payload::Metrics => transcode::<MetricsRequest>(body, limit),
        Payload::Logs => transcode::<ExportLogsServiceRequest>(body, limit),
        Payload::Traces => transcode::<ExportTraceServiceRequest>(body, limit),
    };
    let transcoded = transcoded.map_err(|reason| JsonError::Malformed { payload, reason })?;
    transcoded.ok_or(JsonError::TooLarge { limit })
}

fn transcode<M>(body: &[u8], limit: usize) -> Result<Option<Vec<u8>>, String>
where
    M: Message + DeserializeOwned,
{
    let message = match serde_json::from_slice::<M>(body) {
        Ok(message) => message,
        Err(_too_strict) => parse_relaxed(body)?,
    };
    Ok((message.encoded_len() <= limit).then(|| message.encode_to_vec()))
}

/// Parses a body that the library rejects although the JSON mapping allows it. An error includes
/// the path of the member.
fn parse_relaxed<M: DeserializeOwned>(body: &[u8]) -> Result<M, String> {
    let short = |text: &dyn ToString| text.to_string().chars().take(MAX_REASON_CHARS).collect();
    let mut value: Value = serde_json::from_slice(body).map_err(|error| short(&error))?;
    relax(&mut value);
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, reason): (String, String) = (short(error.path()), short(error.inner()));
        format!("{path}: {reason}")
    })
}

/// Removes nulls, NaN and infinities, and references to entities, which the decoder does not read;
/// adds empty keys and the values of empty lists; turns names of enumerations into numbers. Attributes are key-value pairs in OTLP, so a
/// member name is always the name of a field.
fn relax(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(relax),
        Value::Object(members) => {
            members.retain(|name, value| {
                !value.is_null() && !is_not_finite(name, value) && name != "entityRefs"
            });
            if members.contains_key("value") {
                members.entry("key").or_insert_with(|| json!(""));
            }
            for (name, value) in members {
                if let ("arrayValue" | "kvlistValue", Value::Object(list)) = (&**name, &mut *value)
                {
                    list.entry("values").or_insert_with(|| json!([]));
                }
                if let Some(number) = value.as_str().and_then(|text| enum_number(name, text)) {
                    *value = json!(number);
                }
                relax(value);
            }
        }
        _ => {}
    }
}

/// Returns the number of a value of an enumeration.
fn enum_number(member: &str, value: &str) -> Option<i32> {
    match member {
        "aggregationTemporality" => {
            AggregationTemporality::from_str_name(value).map(|one| one as i32)
        }
        "severityNumber" => SeverityNumber::from_str_name(value).map(|one| one as i32),
        "kind" => SpanKind::from_str_name(value).map(|one| one as i32),
        "code" => StatusCode::from_str_name(value).map(|one| one as i32),
        _ => None,
    }
}

fn is_not_finite(name: &str, value: &Value) -> bool {
    let is_number = matches!(
        name,
        "sum" | "min" | "max" | "zeroThreshold" | "doubleValue"
    );
    is_number && matches!(value.as_str(), Some("NaN" | "Infinity" | "-Infinity"))
}
