//! Reader of attribute values. Scalars are decoded, lists are kept as their encoded bytes.

use super::{Field, Fields, WireError};

/// Value of an attribute. The discriminant takes a whole word: otherwise values are copied in
/// unaligned pieces, which takes as long as reading them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(u64)]
pub(in super::super) enum Value<'a> {
    Text(&'a str),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(&'a [u8]),
    /// List of values.
    Array(Nested<'a>),
    /// List of key-value pairs.
    List(Nested<'a>),
    /// Index into a string table, which OTLP has for profiles only.
    Index(i32),
}

/// List inside a value. Protobuf may split the list into several fields, so it is identified by the
/// message that contains them. The message and the list have been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Nested<'a> {
    message: &'a [u8],
    parent: Parent,
    /// Number of value fields before the first one of the list: the last kind wins.
    before: u32,
}

/// Message that contains a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    KeyValue,
    AnyValue,
}

/// Key-value pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Member<'a> {
    pub(in super::super) key: &'a str,
    pub(in super::super) value: Option<Value<'a>>,
}

/// State of the lists inside a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Unchecked,
    Checked,
}

impl<'a> Nested<'a> {
    /// Returns the values of an array.
    pub(in super::super) fn values(self) -> impl Iterator<Item = Option<Value<'a>>> {
        self.items().map(|item| {
            let mut found = ValueReader::new(item.bytes(), Parent::AnyValue);
            found.read(item, Inner::Checked).ok()?;
            found.value
        })
    }

    /// Returns the members of a list of key-value pairs, including duplicates.
    pub(in super::super) fn members(self) -> impl Iterator<Item = Member<'a>> {
        self.items()
            .map_while(|item| member(item, Inner::Checked).ok())
    }

    fn items(self) -> impl Iterator<Item = Fields<'a>> {
        let message = Fields::new(self.message);
        let (whole, pieces) = match self.parent {
            Parent::KeyValue => (None, Some(message.all(2))),
            Parent::AnyValue => (Some(message), None),
        };
        let values = whole.into_iter().chain(pieces.into_iter().flatten());
        let variants = values.flat_map(variants);
        let before = usize::try_from(self.before).unwrap_or(usize::MAX);
        variants.skip(before).flat_map(|piece| piece.all(1))
    }
}

/// Returns the value fields of a value that was checked, in order. The last kind wins; consecutive
/// lists of one kind are merged.
fn variants(any_value: Fields<'_>) -> impl Iterator<Item = Fields<'_>> {
    let mut fields = any_value;
    std::iter::from_fn(move || {
        loop {
            let field = fields.next().ok()??;
            if (1..=8).contains(&field.number) {
                return Some(Fields::new(field.bytes().unwrap_or_default()));
            }
        }
    })
}

/// Reader of one value.
#[derive(Debug)]
struct ValueReader<'a> {
    message: &'a [u8],
    parent: Parent,
    value: Option<Value<'a>>,
    variants: u32,
}

impl<'a> ValueReader<'a> {
    const fn new(message: &'a [u8], parent: Parent) -> Self {
        Self {
            message,
            parent,
            value: None,
            variants: 0,
        }
    }

    /// Reads a part of the value.
    fn read(&mut self, any_value: Fields<'a>, inner: Inner) -> Result<(), WireError> {
        let mut fields = any_value;
        while let Some(field) = fields.next()? {
            let value = match field.number {
                1 => Value::Text(field.text()?),
                2 => Value::Bool(field.varint()? != 0),
                3 => Value::Int(field.varint()?.cast_signed()),
                4 => Value::Double(field.double()?),
                5 => self.array(&fields, field, inner)?,
                6 => self.list(&fields, field, inner)?,
                7 => Value::Bytes(field.bytes()?),
                8 => Value::Index(field.uint32()?.cast_signed()),
                _ => {
                    fields.unknown()?;
                    continue;
                }
            };
            self.value = Some(value);
            self.variants += 1;
        }
        Ok(())
    }

    fn array(
        &self,
        fields: &Fields<'a>,
        field: Field<'a>,
        inner: Inner,
    ) -> Result<Value<'a>, WireError> {
        if inner == Inner::Unchecked {
            check_items(fields.enter(field)?, any_value)?;
        }
        Ok(match self.value {
            Some(array @ Value::Array(_)) => array,
            _ => Value::Array(self.nested()),
        })
    }

    fn list(
        &self,
        fields: &Fields<'a>,
        field: Field<'a>,
        inner: Inner,
    ) -> Result<Value<'a>, WireError> {
        if inner == Inner::Unchecked {
            check_items(fields.enter(field)?, |item| {
                member(item, Inner::Unchecked).map(drop)
            })?;
        }
        Ok(match self.value {
            Some(list @ Value::List(_)) => list,
            _ => Value::List(self.nested()),
        })
    }

    const fn nested(&self) -> Nested<'a> {
        Nested {
            message: self.message,
            parent: self.parent,
            before: self.variants,
        }
    }
}

fn check_items<'a>(
    list: Fields<'a>,
    check: impl Fn(Fields<'a>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut fields = list;
    while let Some(field) = fields.next()? {
        match field.number {
            1 => check(fields.enter(field)?)?,
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

/// Checks a value that is not used.
pub(super) fn any_value(fields: Fields<'_>) -> Result<(), WireError> {
    ValueReader::new(fields.bytes(), Parent::AnyValue).read(fields, Inner::Unchecked)
}

/// Reads an attribute.
pub(super) fn attribute(key_value: Fields<'_>) -> Result<Member<'_>, WireError> {
    member(key_value, Inner::Unchecked)
}

/// Reads an attribute that begins with `key`; `rest` follows the key.
#[inline]
pub(super) fn attribute_with_key<'a>(
    key: &'a str,
    rest: Fields<'a>,
    key_value: Fields<'a>,
) -> Result<Member<'a>, WireError> {
    read_member(
        key,
        rest,
        ValueReader::new(key_value.bytes(), Parent::KeyValue),
        Inner::Unchecked,
    )
}

fn member(key_value: Fields<'_>, inner: Inner) -> Result<Member<'_>, WireError> {
    let found = ValueReader::new(key_value.bytes(), Parent::KeyValue);
    read_member("", key_value, found, inner)
}

fn read_member<'a>(
    key: &'a str,
    rest: Fields<'a>,
    mut found: ValueReader<'a>,
    inner: Inner,
) -> Result<Member<'a>, WireError> {
    let mut key = key;
    let mut fields = rest;
    while let Some(field) = fields.next()? {
        match field.number {
            1 => key = field.text()?,
            2 => found.read(fields.enter(field)?, inner)?,
            3 => {
                field.varint()?;
            }
            _ => fields.unknown()?,
        }
    }
    Ok(Member {
        key,
        value: found.value,
    })
}
