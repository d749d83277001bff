//! Reader of spans. Resources and scopes are read as for metrics, since only their contents differ.

use super::attributes::Attributes;
use super::value::attribute;
use super::{Fields, WireError};

/// Span without its attributes, as received.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in super::super) struct Span<'a> {
    pub(in super::super) trace_id: &'a [u8],
    pub(in super::super) span_id: &'a [u8],
    /// Empty if absent.
    pub(in super::super) parent_span_id: &'a [u8],
    pub(in super::super) name: &'a str,
    /// Kind as numbered in OTLP.
    pub(in super::super) kind: i32,
    /// Unix nanoseconds; 0 if absent.
    pub(in super::super) start: u64,
    /// Unix nanoseconds; 0 if absent.
    pub(in super::super) end: u64,
    pub(in super::super) status: Status<'a>,
}

/// Status of a span.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in super::super) struct Status<'a> {
    /// Status code as numbered in OTLP.
    pub(in super::super) code: i32,
    pub(in super::super) message: &'a str,
}

impl<'a> Span<'a> {
    /// Reads a span. Its attributes replace those of the previous span. Its events and links are
    /// checked and dropped.
    pub(in super::super) fn read(
        span: Fields<'a>,
        attributes: &mut Attributes<'a>,
    ) -> Result<Self, WireError> {
        attributes.restart();
        let mut read = Self::default();
        let mut fields = span;
        while let Some(field) = fields.next()? {
            match field.number {
                1 => read.trace_id = field.bytes()?,
                2 => read.span_id = field.bytes()?,
                3 => {
                    field.text()?;
                }
                4 => read.parent_span_id = field.bytes()?,
                5 => read.name = field.text()?,
                6 => read.kind = field.uint32()?.cast_signed(),
                7 => read.start = field.fixed64()?,
                8 => read.end = field.fixed64()?,
                9 => attributes.read(fields.enter(field)?)?,
                10 | 12 | 14 => {
                    field.varint()?;
                }
                11 => event(fields.enter(field)?)?,
                13 => link(fields.enter(field)?)?,
                15 => read.status.merge(fields.enter(field)?)?,
                16 => field.fixed32()?,
                _ => fields.unknown()?,
            }
        }
        Ok(read)
    }
}

impl<'a> Status<'a> {
    fn merge(&mut self, mut fields: Fields<'a>) -> Result<(), WireError> {
        while let Some(field) = fields.next()? {
            match field.number {
                2 => self.message = field.text()?,
                3 => self.code = field.uint32()?.cast_signed(),
                _ => fields.unknown()?,
            }
        }
        Ok(())
    }
}

fn event(mut fields: Fields<'_>) -> Result<(), WireError> {
    while let Some(field) = fields.next()? {
        match field.number {
            1 => {
                field.fixed64()?;
            }
            2 => {
                field.text()?;
            }
            3 => {
                attribute(fields.enter(field)?)?;
            }
            4 => {
                field.varint()?;
            }
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

fn link(mut fields: Fields<'_>) -> Result<(), WireError> {
    while let Some(field) = fields.next()? {
        match field.number {
            1 | 2 => {
                field.bytes()?;
            }
            3 => {
                field.text()?;
            }
            4 => {
                attribute(fields.enter(field)?)?;
            }
            5 => {
                field.varint()?;
            }
            6 => field.fixed32()?,
            _ => fields.unknown()?,
        }
    }
    Ok(())
}
