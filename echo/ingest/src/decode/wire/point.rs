//! Reader of data points and their exemplars.

use fleet_proto::attribute;

use super::attributes::Attributes;
use super::value::{Value, attribute as read_attribute};
use super::{Field, Fields, WireError};

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

/// Value of a gauge, a sum or an exemplar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Number {
    Double(f64),
    Int(i64),
}

/// Data point of any kind, as received. Fields that its kind does not have are absent.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Point {
    /// Unix nanoseconds; 0 if absent.
    pub(in super::super) start: u64,
    /// Unix nanoseconds.
    pub(in super::super) end: u64,
    pub(in super::super) flags: u32,
    pub(in super::super) value: Option<Number>,
    pub(in super::super) count: u64,
    pub(in super::super) sum: Option<f64>,
    pub(in super::super) min: Option<f64>,
    pub(in super::super) max: Option<f64>,
}

/// Sampled operation: an exemplar with a sequence number in its attributes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Exemplar<'a> {
    pub(in super::super) seq: Value<'a>,
    /// Unix nanoseconds.
    pub(in super::super) time: u64,
    pub(in super::super) value: Option<Number>,
}

/// Lists of a point.
#[derive(Debug)]
pub(in super::super) struct Lists<'l, 'a> {
    pub(in super::super) attributes: &'l mut Attributes<'a>,
    pub(in super::super) exemplars: &'l mut Vec<Exemplar<'a>>,
}

/// Reads a point. Its lists replace those of the previous point.
pub(super) fn read<'a>(
    kind: Kind,
    fields: Fields<'a>,
    lists: &mut Lists<'_, 'a>,
) -> Result<Point, WireError> {
    lists.attributes.restart();
    lists.exemplars.clear();
    match kind {
        Kind::Gauge | Kind::Sum => number(fields, lists),
        Kind::Histogram => histogram(fields, lists),
        Kind::Exponential => exponential(fields, lists),
        Kind::Summary => summary(fields, lists),
    }
}

impl<'a> Lists<'_, 'a> {
    fn attribute(&mut self, point: &Fields<'a>, field: Field<'a>) -> Result<(), WireError> {
        self.attributes.read(point.enter(field)?)
    }

    fn exemplar(&mut self, point: &Fields<'a>, field: Field<'a>) -> Result<(), WireError> {
        self.exemplars.extend(exemplar(point.enter(field)?)?);
        Ok(())
    }
}

fn number<'a>(mut fields: Fields<'a>, lists: &mut Lists<'_, 'a>) -> Result<Point, WireError> {
    let mut point = Point::default();
    while let Some(field) = fields.next()? {
        match field.number {
            2 => point.start = field.fixed64()?,
            3 => point.end = field.fixed64()?,
            4 => point.value = Some(Number::Double(field.double()?)),
            5 => lists.exemplar(&fields, field)?,
            6 => point.value = Some(Number::Int(field.fixed64()?.cast_signed())),
            7 => lists.attribute(&fields, field)?,
            8 => point.flags = field.uint32()?,
            _ => fields.unknown()?,
        }
    }
    Ok(point)
}

fn histogram<'a>(mut fields: Fields<'a>, lists: &mut Lists<'_, 'a>) -> Result<Point, WireError> {
    let mut point = Point::default();
    while let Some(field) = fields.next()? {
        match field.number {
            2 => point.start = field.fixed64()?,
            3 => point.end = field.fixed64()?,
            4 => point.count = field.fixed64()?,
            5 => point.sum = Some(field.double()?),
            6 | 7 => field.fixed64s()?,
            8 => lists.exemplar(&fields, field)?,
            9 => lists.attribute(&fields, field)?,
            10 => point.flags = field.uint32()?,
            11 => point.min = Some(field.double()?),
            12 => point.max = Some(field.double()?),
            _ => fields.unknown()?,
        }
    }
    Ok(point)
}

fn exponential<'a>(mut fields: Fields<'a>, lists: &mut Lists<'_, 'a>) -> Result<Point, WireError> {
    let mut point = Point::default();
    while let Some(field) = fields.next()? {
        match field.number {
            1 => lists.attribute(&fields, field)?,
            2 => point.start = field.fixed64()?,
            3 => point.end = field.fixed64()?,
            4 => point.count = field.fixed64()?,
            5 => point.sum = Some(field.double()?),
            6 => {
                field.varint()?;
            }
            7 | 14 => {
                field.fixed64()?;
            }
            8 | 9 => buckets(fields.enter(field)?)?,
            10 => point.flags = field.uint32()?,
            11 => lists.exemplar(&fields, field)?,
            12 => point.min = Some(field.double()?),
            13 => point.max = Some(field.double()?),
            _ => fields.unknown()?,
        }
    }
    Ok(point)
}

fn summary<'a>(mut fields: Fields<'a>, lists: &mut Lists<'_, 'a>) -> Result<Point, WireError> {
    let mut point = Point {
        // The only kind whose sum is never absent.
        sum: Some(0.0),
        ..Point::default()
    };
    while let Some(field) = fields.next()? {
        match field.number {
            2 => point.start = field.fixed64()?,
            3 => point.end = field.fixed64()?,
            4 => point.count = field.fixed64()?,
            5 => point.sum = Some(field.double()?),
            6 => quantile(fields.enter(field)?)?,
            7 => lists.attribute(&fields, field)?,
            8 => point.flags = field.uint32()?,
            _ => fields.unknown()?,
        }
    }
    Ok(point)
}

fn buckets(mut fields: Fields<'_>) -> Result<(), WireError> {
    while let Some(field) = fields.next()? {
        match field.number {
            1 => {
                field.varint()?;
            }
            2 => field.varints()?,
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

fn quantile(mut fields: Fields<'_>) -> Result<(), WireError> {
    while let Some(field) = fields.next()? {
        match field.number {
            1 | 2 => {
                field.fixed64()?;
            }
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

fn exemplar(mut fields: Fields<'_>) -> Result<Option<Exemplar<'_>>, WireError> {
    let (mut time, mut value, mut seq) = (0, None, None);
    while let Some(field) = fields.next()? {
        match field.number {
            2 => time = field.fixed64()?,
            3 => value = Some(Number::Double(field.double()?)),
            4 | 5 => {
                field.bytes()?;
            }
            6 => value = Some(Number::Int(field.fixed64()?.cast_signed())),
            7 => {
                let found = read_attribute(fields.enter(field)?)?;
                if seq.is_none() && found.key == attribute::SEQ {
                    seq = Some(found.value);
                }
            }
            _ => fields.unknown()?,
        }
    }
    Ok(seq.flatten().map(|seq| Exemplar { seq, time, value }))
}
