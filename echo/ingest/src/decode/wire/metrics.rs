//! Reader of resources, scopes and metrics: the properties that points share.

use super::attributes::Attributes;
use super::point::{self, Kind, Lists, Point};
use super::value;
use super::{Fields, WireError};

/// Metric without its points.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Metric<'a> {
    pub(in super::super) name: &'a str,
    pub(in super::super) unit: &'a str,
    pub(in super::super) data: Option<Data<'a>>,
}

/// Points of a metric.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Data<'a> {
    pub(in super::super) kind: Kind,
    /// Temporality as numbered in OTLP; 0 for kinds without one.
    pub(in super::super) temporality: i32,
    metric: Fields<'a>,
    /// Number of data fields before the first one of this kind: the last kind wins.
    before: usize,
}

/// Instrumentation scope of metrics, records or spans.
#[derive(Debug)]
pub(in super::super) struct Scope<'a> {
    /// Name; empty if absent.
    pub(in super::super) name: &'a str,
    pub(in super::super) attributes: Attributes<'a>,
}

/// Passes the resources of a request to `each`.
pub(in super::super) fn resources<'a>(
    request: Fields<'a>,
    mut each: impl FnMut(Fields<'a>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut fields = request;
    while let Some(field) = fields.next()? {
        match field.number {
            1 => each(fields.enter(field)?)?,
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

/// Reads the attributes of a resource, and checks everything but its scopes.
pub(in super::super) fn attributes<'a>(
    resource_metrics: Fields<'a>,
    attributes: &mut Attributes<'a>,
) -> Result<(), WireError> {
    attributes.restart();
    let mut fields = resource_metrics;
    while let Some(field) = fields.next()? {
        match field.number {
            1 => resource(fields.enter(field)?, attributes)?,
            2 => {
                fields.enter(field)?;
            }
            3 => {
                field.text()?;
            }
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

fn resource<'a>(mut fields: Fields<'a>, attributes: &mut Attributes<'a>) -> Result<(), WireError> {
    while let Some(field) = fields.next()? {
        match field.number {
            1 => attributes.read(fields.enter(field)?)?,
            2 => {
                field.varint()?;
            }
            3 => entity(fields.enter(field)?)?,
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

fn entity(mut fields: Fields<'_>) -> Result<(), WireError> {
    while let Some(field) = fields.next()? {
        match field.number {
            1..=4 => {
                field.text()?;
            }
            _ => fields.unknown()?,
        }
    }
    Ok(())
}

/// Returns the scopes of a resource whose attributes have been read.
pub(in super::super) fn scopes(resource: Fields<'_>) -> impl Iterator<Item = Fields<'_>> {
    resource.all(2)
}

impl<'a> Scope<'a> {
    /// Reads the scope, and checks everything but its contents.
    pub(in super::super) fn read(
        scope_metrics: Fields<'a>,
        attributes: Attributes<'a>,
    ) -> Result<Self, WireError> {
        let mut scope = Self {
            name: "",
            attributes,
        };
        let mut fields = scope_metrics;
        while let Some(field) = fields.next()? {
            match field.number {
                1 => scope.merge(fields.enter(field)?)?,
                2 => {
                    fields.enter(field)?;
                }
                3 => {
                    field.text()?;
                }
                _ => fields.unknown()?,
            }
        }
        Ok(scope)
    }

    fn merge(&mut self, mut fields: Fields<'a>) -> Result<(), WireError> {
        while let Some(field) = fields.next()? {
            match field.number {
                1 => self.name = field.text()?,
                2 => {
                    field.text()?;
                }
                3 => self.attributes.read(fields.enter(field)?)?,
                4 => {
                    field.varint()?;
                }
                _ => fields.unknown()?,
            }
        }
        Ok(())
    }
}

/// Returns the metrics, records or spans of a scope that has been read.
pub(in super::super) fn contents(scope: Fields<'_>) -> impl Iterator<Item = Fields<'_>> {
    scope.all(2)
}

/// Returns the number of points of a metric, up to the first malformed byte.
pub(in super::super) fn n_points(metric: Fields<'_>) -> usize {
    let mut fields = metric;
    let mut points = 0;
    while let Ok(Some(field)) = fields.next() {
        if kind(field.number).is_some()
            && let Ok(data) = fields.enter(field)
        {
            points += data.all(1).count();
        }
    }
    points
}

impl<'a> Metric<'a> {
    /// Reads the properties that the points share, and checks everything but the points.
    pub(in super::super) fn read(metric: Fields<'a>) -> Result<Self, WireError> {
        let (mut name, mut unit) = ("", "");
        let mut data: Option<Data<'a>> = None;
        let mut variants = 0;
        let mut fields = metric;
        while let Some(field) = fields.next()? {
            match field.number {
                1 => name = field.text()?,
                2 => {
                    field.text()?;
                }
                3 => unit = field.text()?,
                12 => {
                    value::attribute(fields.enter(field)?)?;
                }
                number => {
                    let Some(kind) = kind(number) else {
                        fields.unknown()?;
                        continue;
                    };
                    let data = match &mut data {
                        Some(data) if data.kind == kind => data,
                        other => other.insert(Data {
                            kind,
                            temporality: 0,
                            metric,
                            before: variants,
                        }),
                    };
                    data.merge(fields.enter(field)?)?;
                    variants += 1;
                }
            }
        }
        Ok(Self { name, unit, data })
    }

    /// Reads the points of all data fields, of which the last kind wins: its points are passed to
    /// `each`, in order.
    pub(in super::super) fn points(
        &self,
        mut lists: Lists<'_, 'a>,
        mut each: impl FnMut(&Point, &Lists<'_, 'a>),
    ) -> Result<(), WireError> {
        let Some(data) = self.data else {
            return Ok(());
        };
        let mut variants = 0;
        let mut fields = data.metric;
        while let Some(field) = fields.next()? {
            let Some(kind) = kind(field.number) else {
                continue;
            };
            for point in fields.enter(field)?.all(1) {
                let point = point::read(kind, point, &mut lists)?;
                if variants >= data.before {
                    each(&point, &lists);
                }
            }
            variants += 1;
        }
        Ok(())
    }
}

impl<'a> Data<'a> {
    /// Merges a data field into this one, and checks everything but the points.
    fn merge(&mut self, mut fields: Fields<'a>) -> Result<(), WireError> {
        while let Some(field) = fields.next()? {
            match (field.number, self.kind) {
                (1, _) => {
                    fields.enter(field)?;
                }
                (2, Kind::Sum | Kind::Histogram | Kind::Exponential) => {
                    self.temporality = field.uint32()?.cast_signed();
                }
                (3, Kind::Sum) => {
                    field.varint()?;
                }
                _ => fields.unknown()?,
            }
        }
        Ok(())
    }
}

/// Returns the kind of data in this field of a metric.
const fn kind(number: u32) -> Option<Kind> {
    Some(match number {
        5 => Kind::Gauge,
        7 => Kind::Sum,
        9 => Kind::Histogram,
        10 => Kind::Exponential,
        11 => Kind::Summary,
        _ => return None,
    })
}
