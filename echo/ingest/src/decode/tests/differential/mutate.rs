//! Random changes to requests: to their bytes, and to their fields with corrected lengths.

use prost::bytes::Buf;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Returns the bytes with one change.
pub(super) fn mutated(body: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    if rng.random_bool(0.25) {
        bytes(body, rng)
    } else {
        message(body, rng)
    }
}

fn bytes(body: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut body = body.to_vec();
    let index = rng.random_range(0..=body.len());
    match rng.random_range(0..5) {
        0 => body.truncate(index),
        1 => body.insert(index, rng.random()),
        2 => {
            let end = (index + rng.random_range(0..20)).min(body.len());
            body.drain(index..end);
        }
        3 => {
            let end = (index + rng.random_range(0..20)).min(body.len());
            let piece = body[index..end].to_vec();
            let target = rng.random_range(0..=body.len());
            body.splice(target..target, piece);
        }
        _ => {
            if let Some(byte) = body.get_mut(index) {
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
    let index = rng.random_range(0..fields.len());
    if rng.random_bool(0.8)
        && let Some(inner) = entered(&fields[index])
    {
        let (number, content) = inner;
        fields[index] = delimited(number, &message(content, rng));
        return fields.concat();
    }
    let other = rng.random_range(0..fields.len());
    match rng.random_range(0..8) {
        0 => fields.swap(index, other),
        1 => drop(fields.remove(index)),
        2 | 3 => fields.insert(other, fields[index].clone()),
        4 => fields.insert(index, unknown(rng)),
        5 => fields[index] = renumbered(&fields[index], rng),
        6 => fields.extend(fields.clone()),
        _ => fields[index] = bytes(&fields[index], rng),
    }
    fields.concat()
}

/// Returns the encoded fields of a message, with their keys.
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

/// Encodes a field with a string, bytes or a message.
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

/// Returns a field with a random number and type, which OTLP may define or not.
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
            // A varint that is longer than necessary.
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
