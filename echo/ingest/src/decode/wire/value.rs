//! Values of attributes: scalars as they are, lists as the bytes that they are in.

use super::{Broken, Field, Fields};

/// The value of an attribute. Its discriminant takes a whole word: otherwise values are copied around in unaligned
/// pieces, which takes as long as reading them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(u64)]
pub(in super::super) enum Value<'a> {
    Text(&'a str),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(&'a [u8]),
    /// A list of values.
    Array(Nested<'a>),
    /// A list of keys with values.
    List(Nested<'a>),
    /// A reference into a table of texts, which OTLP has for profiles only.
    Index(i32),
}

/// A list inside a value. It may have come in pieces, so that it is known by the message around it; both are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Nested<'a> {
    message: &'a [u8],
    around: Around,
    /// How many variants of the value come before the first piece: the last variant wins.
    before: u32,
}

/// Which message holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    KeyValue,
    AnyValue,
}

/// A key with its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Member<'a> {
    pub(in super::super) key: &'a str,
    pub(in super::super) value: Option<Value<'a>>,
}

/// Whether lists inside a value have been read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Unchecked,
    Checked,
}

impl<'a> Nested<'a> {
    /// The values of an array.
    pub(in super::super) fn values(self) -> impl Iterator<Item = Option<Value<'a>>> {
        self.items().map(|item| {
            let mut found = Found::new(item.bytes(), Around::AnyValue);
            found.read(item, Inner::Checked).ok()?;
            found.value
        })
    }

    /// The members of a list of keys with values, as often as they occur.
    pub(in super::super) fn members(self) -> impl Iterator<Item = Member<'a>> {
        self.items()
            .map_while(|item| member(item, Inner::Checked).ok())
    }

    fn items(self) -> impl Iterator<Item = Fields<'a>> {
        let message = Fields::of(self.message);
        let (whole, pieces) = match self.around {
            Around::KeyValue => (None, Some(message.all(2))),
            Around::AnyValue => (Some(message), None),
        };
        let values = whole.into_iter().chain(pieces.into_iter().flatten());
        let variants = values.flat_map(variants);
        let before = usize::try_from(self.before).unwrap_or(usize::MAX);
        variants.skip(before).flat_map(|piece| piece.all(1))
    }
}

/// The variants in pieces of a value that was checked, in order; the last one of a kind of its own counts.
fn variants(any_value: Fields<'_>) -> impl Iterator<Item = Fields<'_>> {
    let mut fields = any_value;
    std::iter::from_fn(move || {
        loop {
            let field = fields.next().ok()??;
            if (1..=8).contains(&field.number) {
                return Some(Fields::of(field.bytes().unwrap_or_default()));
            }
        }
    })
}

/// What has been read of a value.
#[derive(Debug)]
struct Found<'a> {
    message: &'a [u8],
    around: Around,
    value: Option<Value<'a>>,
    variants: u32,
}

impl<'a> Found<'a> {
    const fn new(message: &'a [u8], around: Around) -> Self {
        Self {
            message,
            around,
            value: None,
            variants: 0,
        }
    }

    /// Reads a piece of the value.
    fn read(&mut self, any_value: Fields<'a>, inner: Inner) -> Result<(), Broken> {
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
    ) -> Result<Value<'a>, Broken> {
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
    ) -> Result<Value<'a>, Broken> {
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
            around: self.around,
            before: self.variants,
        }
    }
}

fn check_items<'a>(
    list: Fields<'a>,
    check: impl Fn(Fields<'a>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    let mut fields = list;
    while let Some(field) = fields.next()? {
        match field.number {
            1 => check(fields.enter(field)?)?,
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

/// Checks a value that nobody reads.
pub(super) fn any_value(fields: Fields<'_>) -> Result<(), Broken> {
    Found::new(fields.bytes(), Around::AnyValue).read(fields, Inner::Unchecked)
}

/// Reads an attribute.
pub(super) fn attribute(key_value: Fields<'_>) -> Result<Member<'_>, Broken> {
    member(key_value, Inner::Unchecked)
}

/// Reads an attribute of which all but `rest` is known: it begins with that key.
#[inline]
pub(super) fn attribute_of<'a>(
    key: &'a str,
    rest: Fields<'a>,
    key_value: Fields<'a>,
) -> Result<Member<'a>, Broken> {
    read_member(
        key,
        rest,
        Found::new(key_value.bytes(), Around::KeyValue),
        Inner::Unchecked,
    )
}

fn member(key_value: Fields<'_>, inner: Inner) -> Result<Member<'_>, Broken> {
    let found = Found::new(key_value.bytes(), Around::KeyValue);
    read_member("", key_value, found, inner)
}

fn read_member<'a>(
    key: &'a str,
    rest: Fields<'a>,
    mut found: Found<'a>,
    inner: Inner,
) -> Result<Member<'a>, Broken> {
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
