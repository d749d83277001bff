//! Reader of log records. Resources and scopes are read as for metrics, since only their contents
//! differ.

use super::attributes::Attributes;
use super::value::any_value;
use super::{Fields, WireError};

/// Log record without its attributes, as received.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Record<'a> {
    /// Time of the event, Unix nanoseconds; 0 if absent.
    pub(in super::super) time: u64,
    /// Time at which it was observed, Unix nanoseconds; 0 if absent.
    pub(in super::super) observed: u64,
    /// Name of the event; empty if absent.
    pub(in super::super) event_name: &'a str,
}

impl<'a> Record<'a> {
    /// Reads a record. Its attributes replace those of the previous record.
    pub(in super::super) fn read(
        record: Fields<'a>,
        attributes: &mut Attributes<'a>,
    ) -> Result<Self, WireError> {
        attributes.restart();
        let mut read = Self::default();
        let mut fields = record;
        while let Some(field) = fields.next()? {
            match field.number {
                1 => read.time = field.fixed64()?,
                2 | 7 => {
                    field.varint()?;
                }
                3 => {
                    field.text()?;
                }
                5 => any_value(fields.enter(field)?)?,
                6 => attributes.read(fields.enter(field)?)?,
                8 => field.fixed32()?,
                9 | 10 => {
                    field.bytes()?;
                }
                11 => read.observed = field.fixed64()?,
                12 => read.event_name = field.text()?,
                _ => fields.unknown()?,
            }
        }
        Ok(read)
    }
}
