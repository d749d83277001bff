//! Zero-copy reader of OTLP protobuf. It accepts, rejects and interprets the same bytes as `prost`
//! with the OTLP messages (`tests/differential.rs` compares both): fields in any order, the last of
//! several wins, split messages are merged, unknown fields and groups are skipped, strings are
//! UTF-8, messages nest at most 100 levels deep. Invariant: no input makes it panic, and its memory
//! is bounded by the longest list of attributes that it accepts, not by the number of messages.

use std::iter;
use std::str;

pub(super) mod attributes;
pub(super) mod logs;
pub(super) mod metrics;
pub(super) mod point;
pub(super) mod spans;
pub(super) mod value;

/// Maximum nesting depth of messages and groups, as in `prost`.
const MAX_DEPTH: u32 = 100;

/// Maximum key of a field: its number has 29 bits.
const MAX_KEY: u64 = 0xffff_ffff;

/// Error in the encoding of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    /// A varint is longer than 64 bits or cut off.
    #[error("a number is too long or cut off")]
    Varint,
    /// The message ends inside a field.
    #[error("a field is longer than its message")]
    CutOff,
    /// A field has the number 0, one of more than 29 bits, or a type that does not exist.
    #[error("a field has no valid key")]
    Key,
    /// A field does not have the wire type of its number.
    #[error("a field is of the wrong type")]
    Type,
    /// A string is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A group has an end without a beginning, or no end.
    #[error("a group has no beginning or no end")]
    Group,
    /// Messages or groups are nested too deeply.
    #[error("messages are nested more than {MAX_DEPTH} deep")]
    Depth,
}

/// Wire type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Varint,
    Fixed64,
    Bytes,
    Group,
    Fixed32,
}

/// Field of a message. A flat struct, because an enum with a payload is copied in pieces, which
/// takes longer than reading the field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    kind: Type,
    value: u64,
    bytes: &'a [u8],
}

/// Remaining fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    /// Number of nesting levels that are still allowed.
    levels: u32,
}

impl<'a> Fields<'a> {
    /// Returns the fields of the outermost message.
    pub(super) const fn new(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            levels: MAX_DEPTH,
        }
    }

    /// Returns the remaining bytes.
    pub(super) const fn bytes(self) -> &'a [u8] {
        self.rest
    }

    /// Returns the rest of the message after `beginning`, if it begins with these bytes.
    pub(super) fn after(self, beginning: &[u8]) -> Option<Self> {
        let rest = self.rest.strip_prefix(beginning)?;
        Some(Self { rest, ..self })
    }

    /// Returns the next field; `None` at the end of the message.
    #[expect(
        clippy::inline_always,
        reason = "all of decoding goes through here, and only inlined the field stays in registers"
    )]
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = key(&mut self.rest)?;
        let mut field = Field {
            number,
            kind: Type::Varint,
            value: 0,
            bytes: &[],
        };
        match wire_type {
            0 => field.value = varint(&mut self.rest)?,
            1 => {
                field.kind = Type::Fixed64;
                field.value = u64::from_le_bytes(fixed(&mut self.rest)?);
            }
            2 => {
                field.kind = Type::Bytes;
                field.bytes = delimited(&mut self.rest)?;
            }
            3 => {
                field.kind = Type::Group;
                self.rest = skip_group(self.rest, number, self.levels)?;
            }
            4 => return Err(WireError::Group),
            5 => {
                field.kind = Type::Fixed32;
                fixed::<4>(&mut self.rest)?;
            }
            _ => return Err(WireError::Key),
        }
        Ok(Some(field))
    }

    /// Returns the message in a field of this one.
    #[inline]
    pub(super) fn enter(&self, field: Field<'a>) -> Result<Self, WireError> {
        Ok(Self {
            rest: field.bytes()?,
            levels: self.levels.checked_sub(1).ok_or(WireError::Depth)?,
        })
    }

    /// Skips an unknown field.
    #[inline]
    pub(super) const fn unknown(&self) -> Result<(), WireError> {
        // `prost` counts a skipped field as a level.
        if self.levels == 0 {
            return Err(WireError::Depth);
        }
        Ok(())
    }

    /// Returns the messages in the fields with this number, up to the first malformed byte. Meant
    /// for messages that have been checked.
    pub(super) fn all(mut self, number: u32) -> impl Iterator<Item = Self> {
        iter::from_fn(move || {
            loop {
                let field = self.next().ok()??;
                if field.number == number {
                    return self.enter(field).ok();
                }
            }
        })
    }
}

impl<'a> Field<'a> {
    #[inline]
    pub(super) const fn varint(self) -> Result<u64, WireError> {
        match self.kind {
            Type::Varint => Ok(self.value),
            _ => Err(WireError::Type),
        }
    }

    /// Returns a 32-bit number, truncated if the encoded one has more bits.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "protobuf drops the upper bits of a number that is too large"
    )]
    #[inline]
    pub(super) fn uint32(self) -> Result<u32, WireError> {
        self.varint().map(|value| value as u32)
    }

    #[inline]
    pub(super) const fn fixed64(self) -> Result<u64, WireError> {
        match self.kind {
            Type::Fixed64 => Ok(self.value),
            _ => Err(WireError::Type),
        }
    }

    #[inline]
    pub(super) fn double(self) -> Result<f64, WireError> {
        self.fixed64().map(f64::from_bits)
    }

    #[inline]
    pub(super) const fn bytes(self) -> Result<&'a [u8], WireError> {
        match self.kind {
            Type::Bytes => Ok(self.bytes),
            _ => Err(WireError::Type),
        }
    }

    #[inline]
    pub(super) fn text(self) -> Result<&'a str, WireError> {
        str::from_utf8(self.bytes()?).map_err(|_invalid| WireError::Text)
    }

    /// Checks a 32-bit number of fixed length.
    pub(super) const fn fixed32(self) -> Result<(), WireError> {
        match self.kind {
            Type::Fixed32 => Ok(()),
            _ => Err(WireError::Type),
        }
    }

    /// Checks one or more 64-bit numbers of fixed length.
    pub(super) const fn fixed64s(self) -> Result<(), WireError> {
        match self.kind {
            Type::Fixed64 => Ok(()),
            Type::Bytes if self.bytes.len().is_multiple_of(8) => Ok(()),
            Type::Bytes => Err(WireError::CutOff),
            _ => Err(WireError::Type),
        }
    }

    /// Checks one or more varints.
    pub(super) fn varints(self) -> Result<(), WireError> {
        let mut packed = match self.kind {
            Type::Varint => return Ok(()),
            Type::Bytes => self.bytes,
            _ => return Err(WireError::Type),
        };
        while !packed.is_empty() {
            varint(&mut packed)?;
        }
        Ok(())
    }
}

#[inline]
fn key(rest: &mut &[u8]) -> Result<(u32, u64), WireError> {
    let key = varint(rest)?;
    if key > MAX_KEY {
        return Err(WireError::Key);
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let number = key as u32 >> 3;
    if number == 0 {
        return Err(WireError::Key);
    }
    Ok((number, key & 7))
}

#[inline]
fn varint(rest: &mut &[u8]) -> Result<u64, WireError> {
    let (&first, after) = rest.split_first().ok_or(WireError::Varint)?;
    if first < 0x80 {
        *rest = after;
        return Ok(u64::from(first));
    }
    long_varint(rest)
}

fn long_varint(rest: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0;
    for (index, &byte) in rest.iter().take(10).enumerate() {
        // The tenth byte contains only the last of 64 bits.
        if index == 9 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *rest = rest.get(index + 1..).ok_or(WireError::Varint)?;
            return Ok(value);
        }
    }
    Err(WireError::Varint)
}

#[inline]
fn fixed<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], WireError> {
    let (bytes, after) = rest.split_first_chunk().ok_or(WireError::CutOff)?;
    *rest = after;
    Ok(*bytes)
}

#[inline]
fn delimited<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    let length = usize::try_from(varint(rest)?).map_err(|_huge| WireError::CutOff)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or(WireError::CutOff)?;
    *rest = after;
    Ok(bytes)
}

/// Returns the bytes after the group that has just begun.
#[cold]
fn skip_group(rest: &[u8], number: u32, levels: u32) -> Result<&[u8], WireError> {
    let mut levels = levels.checked_sub(1).ok_or(WireError::Depth)?;
    let mut rest = rest;
    let mut open = vec![number];
    while let Some(&innermost) = open.last() {
        let (number, kind) = key(&mut rest)?;
        if kind != 4 && levels == 0 {
            return Err(WireError::Depth);
        }
        match kind {
            0 => {
                varint(&mut rest)?;
            }
            1 => {
                fixed::<8>(&mut rest)?;
            }
            2 => {
                delimited(&mut rest)?;
            }
            3 => {
                open.push(number);
                levels -= 1;
            }
            4 if number == innermost => {
                open.pop();
                levels += 1;
            }
            4 => return Err(WireError::Group),
            5 => {
                fixed::<4>(&mut rest)?;
            }
            _ => return Err(WireError::Key),
        }
    }
    Ok(rest)
}
