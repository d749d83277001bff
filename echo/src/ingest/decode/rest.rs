//! The attributes that have no column, as one compact JSON object with sorted keys.
//!
//! An attribute of the point hides one of the scope or the resource with the same name.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use serde::ser::{Error, Serialize, SerializeMap, Serializer};

use super::attributes::{ColumnSet, Columns, Taken};
use super::names::Names;
use super::reject::RejectReason;
use super::wire::attributes::Attribute;
use super::wire::metrics::Scope;
use super::wire::value::{Member, Nested, Value};

/// Longest text of attributes of one point, in bytes.
pub(super) const MAX_ATTRS_BYTES: usize = 16 * 1024;

/// Longest text that most points have, in bytes.
const USUAL_ATTRS_BYTES: usize = 256;

/// What an attribute adds to the text beside its key: two quotes, a colon and one digit.
const LEAST_ATTRIBUTE_BYTES: usize = 4;

/// One more than the text can hold.
pub(super) const MAX_ATTRIBUTES: usize = MAX_ATTRS_BYTES / LEAST_ATTRIBUTE_BYTES + 1;

/// Key under which the name of the instrumentation scope is kept.
const SCOPE_NAME: &str = "otel.scope.name";

/// Key under which a cumulative temporality is kept.
const TEMPORALITY: &str = "otel.temporality";

/// Over which time a sum or histogram was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Temporality {
    /// Since the point before, or there is nothing to add up.
    Delta,
    /// Since the start of the sender.
    Cumulative,
}

/// Writes the attributes of the points of one scope. Neighbours mostly differ only in what became columns, so the
/// text of the point before is used again when it fits.
#[derive(Debug)]
pub(super) struct Rest<'r, 'a> {
    resource: &'r Columns<'r, 'a>,
    scope: &'r Scope<'a>,
    last: Option<Last<'a>>,
}

#[derive(Debug)]
struct Last<'a> {
    taken_of_resource: ColumnSet,
    temporality: Temporality,
    point: Vec<Attribute<'a>>,
    text: Result<Arc<str>, RejectReason>,
}

impl<'r, 'a> Rest<'r, 'a> {
    pub(super) const fn new(resource: &'r Columns<'r, 'a>, scope: &'r Scope<'a>) -> Self {
        Self {
            resource,
            scope,
            last: None,
        }
    }

    /// The text for a point whose attributes `taken` became columns.
    pub(super) fn text(
        &mut self,
        point: &Columns<'_, 'a>,
        taken: Taken,
        temporality: Temporality,
        names: &mut Names<'a>,
    ) -> Result<Arc<str>, RejectReason> {
        if let Some(last) = &self.last
            && last.taken_of_resource == taken.resource
            && last.temporality == temporality
            && last.point.iter().copied().eq(point.rest(taken.point))
        {
            return last.text.clone();
        }
        let point: Vec<_> = point.rest(taken.point).collect();
        let text = self.write(&point, taken.resource, temporality);
        names.spend_attrs(text.as_ref().map_or(MAX_ATTRS_BYTES, |text| text.len()))?;
        self.last = Some(Last {
            taken_of_resource: taken.resource,
            temporality,
            point,
            text: text.clone(),
        });
        text
    }

    /// The text for a span, with what it tells beside its attributes. It has an identity, so that no text serves twice.
    pub(super) fn text_of_span(
        &self,
        span: &Columns<'_, 'a>,
        taken: Taken,
        told: &[(&'static str, Value<'a>)],
        names: &mut Names<'a>,
    ) -> Result<Arc<str>, RejectReason> {
        let mut object = self.common(taken.resource)?;
        for attribute in span.rest(taken.point) {
            object.insert(attribute.key, attribute.value)?;
        }
        // Last, so that no attribute takes the place of an identity.
        for (name, value) in told {
            object.insert(name, Some(*value))?;
        }
        let text = object.text();
        names.spend_attrs(text.as_ref().map_or(MAX_ATTRS_BYTES, |text| text.len()))?;
        text
    }

    fn write(
        &self,
        point: &[Attribute<'a>],
        taken: ColumnSet,
        temporality: Temporality,
    ) -> Result<Arc<str>, RejectReason> {
        let mut object = self.common(taken)?;
        if temporality == Temporality::Cumulative {
            object.insert(TEMPORALITY, Some(Value::Text("cumulative")))?;
        }
        for attribute in point {
            object.insert(attribute.key, attribute.value)?;
        }
        object.text()
    }

    /// What all points of the scope have in common.
    fn common(&self, taken: ColumnSet) -> Result<Object<'a>, RejectReason> {
        let mut object = Object::default();
        for attribute in self.resource.rest(taken) {
            object.insert(attribute.key, attribute.value)?;
        }
        for attribute in self.scope.attributes.present() {
            object.insert(attribute.key, attribute.value)?;
        }
        if !self.scope.name.is_empty() {
            object.insert(SCOPE_NAME, Some(Value::Text(self.scope.name)))?;
        }
        Ok(object)
    }
}

/// A JSON object that stays small.
#[derive(Debug, Default)]
struct Object<'a> {
    members: BTreeMap<&'a str, Json<'a>>,
    at_least: usize,
}

impl<'a> Object<'a> {
    fn insert(&mut self, key: &'a str, value: Option<Value<'a>>) -> Result<(), RejectReason> {
        self.at_least += key.len() + LEAST_ATTRIBUTE_BYTES;
        if self.at_least > MAX_ATTRS_BYTES {
            return Err(RejectReason::AttributesTooLarge);
        }
        self.members.insert(key, Json(value));
        Ok(())
    }

    fn text(&self) -> Result<Arc<str>, RejectReason> {
        let mut text = Capped(Vec::with_capacity(USUAL_ATTRS_BYTES));
        serde_json::to_writer(&mut text, &self.members)
            .map_err(|_full| RejectReason::AttributesTooLarge)?;
        String::from_utf8(text.0)
            .map(Arc::from)
            .map_err(|_not_utf8| RejectReason::AttributesTooLarge)
    }
}

/// Takes [`MAX_ATTRS_BYTES`] and no more, so that an attribute of megabytes costs nothing.
#[derive(Debug)]
struct Capped(Vec<u8>);

impl io::Write for Capped {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.0.len() + buf.len() > MAX_ATTRS_BYTES {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.0.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An attribute's value on its way into JSON. Bytes become hexadecimal digits; what JSON cannot say becomes null.
#[derive(Debug, Clone, Copy)]
struct Json<'a>(Option<Value<'a>>);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None | Some(Value::Index(_)) => serializer.serialize_none(),
            Some(Value::Text(text)) => serializer.serialize_str(text),
            Some(Value::Bool(value)) => serializer.serialize_bool(value),
            Some(Value::Int(number)) => serializer.serialize_i64(number),
            Some(Value::Double(number)) => serializer.serialize_f64(number),
            Some(Value::Bytes(bytes)) => serializer.collect_str(&Hex(bytes)),
            Some(Value::Array(array)) => serializer.collect_seq(array.values().map(Json)),
            Some(Value::List(list)) => nested(list, serializer),
        }
    }
}

fn nested<S: Serializer>(list: Nested<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut members = BTreeMap::new();
    for (place, Member { key, value }) in list.members().enumerate() {
        if place + 1 >= MAX_ATTRIBUTES {
            return Err(S::Error::custom("too many members"));
        }
        members.insert(key, Json(value));
    }
    let mut map = serializer.serialize_map(Some(members.len()))?;
    for (key, value) in members {
        map.serialize_entry(key, &value)?;
    }
    map.end()
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
