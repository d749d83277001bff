//! Transcoder from OTLP/JSON, parsed by `opentelemetry-proto`, to the protobuf that the decoder
//! reads. The library is stricter than the JSON mapping of protobuf: it rejects null in place of a
//! list or a number, and empty lists whose values are omitted. A body that it rejects is fixed up
//! and parsed again ([`relax`]), which also gives the path of a remaining error.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::metric::MetricsRequest;
use super::Payload;

mod metric;
#[cfg(test)]
mod tests;

/// By how much a body grows at most when it is transcoded: `0,` becomes eight bytes.
pub const MAX_GROWTH: usize = 4;

/// Longest path and longest reason of an error, in characters: both may quote the body.
const MAX_REASON_CHARS: usize = 200;

/// Most memory that an object takes while it is read, in bytes: the node of its members, and the
/// largest message.
const OBJECT_BYTES: usize = 1_000;

/// Most memory that any other value takes while it is read, in bytes, beside the characters of its
/// text.
const VALUE_BYTES: usize = 128;

/// Error of transcoding a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON, or not an OTLP request in JSON.
    #[error("the body is not an OTLP {} in JSON: {reason}", .payload.message())]
    Malformed {
        /// What it should have been.
        payload: Payload,
        /// What is wrong, and where.
        reason: String,
    },
    /// The same in protobuf is longer than the limit.
    #[error("the request takes more than {limit} bytes in protobuf")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
}

/// Most memory that reading the body takes, in bytes, found without reading it: an empty object of
/// three bytes becomes a message of two hundred.
pub fn memory_estimate(body: &[u8]) -> usize {
    let cost = |byte: &u8| match byte {
        b'{' => OBJECT_BYTES,
        b'[' | b',' => VALUE_BYTES,
        _ => 1,
    };
    body.iter().map(cost).fold(0, usize::saturating_add)
}

/// The request in protobuf, unless that is longer than `limit` bytes.
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

/// Reads what the library refuses although the mapping allows it; an error has the path of the
/// member.
fn parse_relaxed<M: DeserializeOwned>(body: &[u8]) -> Result<M, String> {
    let short = |text: &dyn ToString| text.to_string().chars().take(MAX_REASON_CHARS).collect();
    let mut value: Value = serde_json::from_slice(body).map_err(|error| short(&error))?;
    relax(&mut value);
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, reason): (String, String) = (short(error.path()), short(error.inner()));
        format!("{path}: {reason}")
    })
}

/// Leaves out what is null, what JSON has no number for, and references to entities, which the
/// decoder does not read; adds empty keys and the values of empty lists. Interner of members are
/// those of messages: attributes are pairs.
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
                relax(value);
            }
        }
        _ => {}
    }
}

fn is_not_finite(name: &str, value: &Value) -> bool {
    let is_number = matches!(
        name,
        "sum" | "min" | "max" | "zeroThreshold" | "doubleValue"
    );
    is_number && matches!(value.as_str(), Some("NaN" | "Infinity" | "-Infinity"))
}
