//! OTLP in JSON, translated into the protobuf that the decoder reads.
//!
//! The mapping is that of protobuf with the exceptions of OTLP: names in lowerCamelCase, numbers as numbers or as
//! texts, bytes in base64 but identities of traces and spans in hexadecimal digits, enumerations as numbers; what is
//! null is absent, and unknown names are passed over. Of a name that occurs twice the last value counts, as in
//! protobuf.
//!
//! Invariant: nothing is built but the bytes that come out, at most `limit` of them and at most [`MOST_GROWTH`] times as
//! many as came in. (Messages in memory would take a hundred times the bytes of a made-up body.)

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer as Json;
use serde_json::de::SliceRead;

use self::output::Output;
use self::scalar::ScalarOf;
use self::schema::{Field, Kind, Message};
use super::Payload;

mod output;
mod scalar;
mod schema;
#[cfg(test)]
mod tests;

/// By how much a body grows at most when it is translated: `0,` becomes a key and eight bytes.
pub const MOST_GROWTH: usize = 5;

/// Longest place and longest explanation of an error, in characters: both may quote the body.
const MAX_REASON_CHARS: usize = 200;

/// Why a body was not translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
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

/// The request in protobuf, unless that is longer than `limit` bytes.
pub fn to_protobuf(payload: Payload, body: &[u8], limit: usize) -> Result<Vec<u8>, Untranslatable> {
    let mut output = Output::new(limit);
    let mut json = Json::from_slice(body);
    let read = Whole::of(payload, &mut output).deserialize(&mut json);
    match read.and_then(|()| json.end()) {
        Ok(()) => Ok(output.into_bytes()),
        Err(_too_large) if output.is_full() => Err(Untranslatable::TooLarge { limit }),
        Err(error) => Err(Untranslatable::Malformed {
            payload,
            reason: explained(payload, body, limit, &error),
        }),
    }
}

/// The error, with the place in the request: found by reading it again, because following the place costs more than
/// reading.
fn explained(payload: Payload, body: &[u8], limit: usize, error: &serde_json::Error) -> String {
    let mut output = Output::new(limit);
    let mut json: Json<SliceRead<'_>> = Json::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let again = Whole::of(payload, &mut output).deserialize(tracked);
    let short = |text: String| text.chars().take(MAX_REASON_CHARS).collect::<String>();
    match again {
        Ok(()) => short(error.to_string()),
        Err(error) => {
            let place = short(track.path().to_string());
            format!("{place}: {}", short(error.to_string()))
        }
    }
}

/// Reads a message; its fields are written one after the other.
struct Whole<'o> {
    message: &'static Message,
    output: &'o mut Output,
}

impl<'o> Whole<'o> {
    const fn of(payload: Payload, output: &'o mut Output) -> Self {
        Self {
            message: schema::request(payload),
            output,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Name(self.message))? {
            match field {
                Some(field) => map.next_value_seed(FieldOf {
                    field,
                    output: self.output,
                })?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Finds the field of a name.
struct Name(&'static Message);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static Field>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.iter().find(|field| field.name == v))
    }
}

/// Reads all values of a field; null is none.
struct FieldOf<'o> {
    field: &'static Field,
    output: &'o mut Output,
}

impl<'de> DeserializeSeed<'de> for FieldOf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for FieldOf<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.repeated {
            formatter.write_str("an array")
        } else {
            self.field.kind.expecting(formatter)
        }
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.field.repeated {
            deserializer.deserialize_seq(self)
        } else {
            let Self { field, output } = self;
            One { field, output }.deserialize(deserializer)
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { field, output } = self;
        while seq.next_element_seed(One { field, output })?.is_some() {}
        Ok(())
    }
}

/// Reads one value of a field.
struct One<'o> {
    field: &'static Field,
    output: &'o mut Output,
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { field, output } = self;
        match field.kind {
            Kind::Message(message) => {
                let start = output.begin(field.number)?;
                Whole { message, output }.deserialize(deserializer)?;
                output.end(start)
            }
            Kind::Scalar(scalar) => {
                deserializer.deserialize_any(ScalarOf::new(field.number, scalar, output))
            }
        }
    }
}
