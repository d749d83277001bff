//! Reader of attribute lists, which reuses the previous list: most neighbours have the same
//! attributes in the same order.

use super::value::{Member, Value, attribute, attribute_with_key};
use super::{Fields, WireError};

/// Protobuf key of the first field of an attribute: its name, a string.
const KEY: u8 = 0x0a;

/// Attribute.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Attribute<'a> {
    raw: &'a [u8],
    /// End of the name in `raw`; 0 if the name is not the first field.
    key_end: usize,
    pub(in super::super) key: &'a str,
    pub(in super::super) value: Option<Value<'a>>,
}

/// Attributes of the current resource, point or record. The list is reused: attributes that equal
/// the previous ones at the same index are neither checked nor copied again, and their keys stay
/// the same slices.
#[derive(Debug)]
pub(in super::super) struct Attributes<'a> {
    /// Attributes of the current list, followed by those left over from previous ones.
    known: Vec<Attribute<'a>>,
    present: usize,
    limit: usize,
    is_relevant: fn(&str) -> bool,
}

impl<'a> Attributes<'a> {
    /// Returns an empty list. Attributes beyond the first `limit` are kept only if their keys are
    /// relevant, which bounds the memory.
    pub(in super::super) const fn new(limit: usize, is_relevant: fn(&str) -> bool) -> Self {
        Self {
            known: Vec::new(),
            present: 0,
            limit,
            is_relevant,
        }
    }

    /// Begins the next list, which must be at the same nesting depth.
    pub(super) const fn restart(&mut self) {
        self.present = 0;
    }

    /// Returns the attributes of the current list.
    pub(in super::super) fn present(&self) -> &[Attribute<'a>] {
        self.known.get(..self.present).unwrap_or_default()
    }

    /// Reads the next attribute.
    #[inline]
    pub(super) fn read(&mut self, key_value: Fields<'a>) -> Result<(), WireError> {
        let raw = key_value.bytes();
        let known = self.known.get_mut(self.present);
        if let Some(known) = &known
            && known.raw == raw
        {
            self.present += 1;
            return Ok(());
        }
        let next = match &known {
            Some(known) => known.parse_next(key_value),
            None => Attribute::parse(key_value),
        }?;
        if self.present >= self.limit && !(self.is_relevant)(next.key) {
            return Ok(());
        }
        match known {
            Some(known) => *known = next,
            None => self.known.push(next),
        }
        self.present += 1;
        Ok(())
    }
}

/// Compares name and value, not the encoding.
impl PartialEq for Attribute<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.value == other.value
    }
}

impl<'a> Attribute<'a> {
    fn parse(key_value: Fields<'a>) -> Result<Self, WireError> {
        let raw = key_value.bytes();
        let Member { key, value } = attribute(key_value)?;
        let first = raw.strip_prefix(&[KEY]).and_then(<[u8]>::split_first);
        let key_comes_first = first.is_some_and(|(&length, rest)| {
            usize::from(length) == key.len() && length < 0x80 && rest.starts_with(key.as_bytes())
        });
        Ok(Self {
            raw,
            key_end: if key_comes_first { 2 + key.len() } else { 0 },
            key,
            value,
        })
    }

    /// Reads the attribute at the same index of the next list, which mostly has the same key.
    #[inline]
    fn parse_next(&self, key_value: Fields<'a>) -> Result<Self, WireError> {
        let raw = key_value.bytes();
        let same = self.raw.get(..self.key_end).unwrap_or_default();
        match key_value.after(same) {
            Some(rest) if !same.is_empty() => {
                let Member { key, value } = attribute_with_key(self.key, rest, key_value)?;
                // Of two keys in one attribute the last one wins.
                if std::ptr::eq(key, self.key) {
                    return Ok(Self {
                        raw,
                        value,
                        ..*self
                    });
                }
                Self::parse(key_value)
            }
            _ => Self::parse(key_value),
        }
    }
}
