//! Changes to requests: of their bytes, and of their fields with all lengths put right.

use prost::bytes::Buf;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// The bytes with one change.
pub(super) fn mutated(body: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    if rng.random_bool(0.25) {
        bytes(body, rng)
    } else {
        message(body, rng)
    }
}

fn bytes(body: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut body = body.to_vec();
    let place = rng.random_range(0..=body.len());
    match rng.random_range(0..5) {
        0 => body.truncate(place),
        1 => body.insert(place, rng.random()),
        2 => {
            let end = (place + rng.random_range(0..20)).min(body.len());
            body.drain(place..end);
        }
        3 => {
            let end = (place + rng.random_range(0..20)).min(body.len());
            let piece = body[place..end].to_vec();
            let target = rng.random_range(0..=body.len());
            body.splice(target..target, piece);
        }
        _ => {
            if let Some(byte) = body.get_mut(place) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
    }
    body
}

/// Changes a field of the message, or of a message inside it.
fn message(body: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let Some(mut fields) = fields(body).filter(|fields| !fields.is_empty()) else {
        return bytes(body, rng);
    };
    let place = rng.random_range(0..fields.len());
    if rng.random_bool(0.8)
        && let Some(inner) = entered(&fields[place])
    {
        let (number, content) = inner;
        fields[place] = delimited(number, &message(content, rng));
        return fields.concat();
    }
    let other = rng.random_range(0..fields.len());
    match rng.random_range(0..8) {
        0 => fields.swap(place, other),
        1 => drop(fields.remove(place)),
        2 | 3 => fields.insert(other, fields[place].clone()),
        4 => fields.insert(place, unknown(rng)),
        5 => fields[place] = renumbered(&fields[place], rng),
        6 => fields.extend(fields.clone()),
        _ => fields[place] = bytes(&fields[place], rng),
    }
    fields.concat()
}

/// The fields of a message, each with its key.
fn fields(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = body;
    let mut fields = Vec::new();
    while rest.has_remaining() {
        let before = rest;
        let (tag, wire_type) = decode_key(&mut rest).ok()?;
        skip_field(wire_type, tag, &mut rest, DecodeContext::default()).ok()?;
        fields.push(before[..before.len() - rest.len()].to_vec());
    }
    Some(fields)
}

fn entered(field: &[u8]) -> Option<(u32, &[u8])> {
    let mut rest = field;
    let (tag, wire_type) = decode_key(&mut rest).ok()?;
    decode_varint(&mut rest).ok()?;
    (wire_type == WireType::LengthDelimited).then_some((tag, rest))
}

/// A field with a text, bytes or a message.
pub(super) fn delimited(number: u32, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut field);
    encode_varint(content.len() as u64, &mut field);
    field.extend(content);
    field
}

fn renumbered(field: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut rest = field;
    let Ok((_, wire_type)) = decode_key(&mut rest) else {
        return field.to_vec();
    };
    let mut renumbered = Vec::new();
    encode_key(rng.random_range(1..16), wire_type, &mut renumbered);
    renumbered.extend(rest);
    renumbered
}

/// A field that OTLP may know by its number or not, of any type.
fn unknown(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let number = match rng.random_range(0..4) {
        0 => rng.random_range(1..1 << 29),
        1 => (1 << 29) - 1,
        _ => rng.random_range(1..20),
    };
    let mut field = Vec::new();
    match rng.random_range(0..6) {
        0 => {
            encode_key(number, WireType::Varint, &mut field);
            encode_varint(rng.random(), &mut field);
        }
        1 => {
            encode_key(number, WireType::SixtyFourBit, &mut field);
            field.extend(rng.random::<[u8; 8]>());
        }
        2 => {
            encode_key(number, WireType::ThirtyTwoBit, &mut field);
            field.extend(rng.random::<[u8; 4]>());
        }
        3 => {
            encode_key(number, WireType::StartGroup, &mut field);
            field.extend(unknown(rng));
            encode_key(number, WireType::EndGroup, &mut field);
        }
        4 => {
            // A number that is longer than it has to be.
            encode_key(number, WireType::Varint, &mut field);
            let longer = rng.random_range(0..10);
            field.extend(std::iter::repeat_n(0x80 | rng.random::<u8>(), longer));
            field.push(rng.random_range(0..4));
        }
        _ => {
            let length = rng.random_range(0..9);
            let content: Vec<u8> = (0..length).map(|_| rng.random()).collect();
            field = delimited(number, &content);
        }
    }
    field
}
