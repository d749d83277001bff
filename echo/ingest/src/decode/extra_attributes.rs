//! Serialiser of attributes without a column, as one compact JSON object with sorted keys. An
//! attribute of the point overrides one of the scope or the resource with the same name.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use serde::ser::{Error, Serialize, SerializeMap, Serializer};

use super::attributes::{
    ColumnSet, Columns, MAX_ATTRIBUTES, MAX_ATTRS_BYTES, MIN_ATTRIBUTE_BYTES, UsedColumns,
};
use super::interner::Interner;
use super::point::Temporality;
use super::reject::RejectReason;
use super::wire::attributes::Attribute;
use super::wire::metrics::Scope;
use super::wire::value::{Member, Nested, Value};

/// Maximum size of the text written before overridden members are removed, in bytes.
const MAX_WRITTEN_BYTES: usize = 4 * MAX_ATTRS_BYTES;

/// Size of the text that most points do not exceed, in bytes.
const TYPICAL_ATTRS_BYTES: usize = 256;

/// Key under which the name of the instrumentation scope is kept.
const SCOPE_NAME: &str = "otel.scope.name";

/// Key under which a cumulative temporality is kept.
const TEMPORALITY: &str = "otel.temporality";

/// Serialises the attributes of the points of one scope. Most neighbours differ only in extracted
/// attributes, so the text of the previous point is reused if it matches, and common members are
/// serialised once.
#[derive(Debug)]
pub(super) struct ExtraAttributes<'r, 'a> {
    resource: &'r Columns<'r, 'a>,
    scope: &'r Scope<'a>,
    common: Option<(ColumnSet, Result<Members<'a>, RejectReason>)>,
    last: Option<Last<'a>>,
}

#[derive(Debug)]
struct Last<'a> {
    used_resource: ColumnSet,
    temporality: Temporality,
    point: Vec<Attribute<'a>>,
    text: Result<Arc<str>, RejectReason>,
}

impl<'r, 'a> ExtraAttributes<'r, 'a> {
    pub(super) const fn new(resource: &'r Columns<'r, 'a>, scope: &'r Scope<'a>) -> Self {
        Self {
            resource,
            scope,
            common: None,
            last: None,
        }
    }

    /// Returns the JSON text for a point without the attributes in `used`.
    pub(super) fn text(
        &mut self,
        point: &Columns<'_, 'a>,
        used: UsedColumns,
        temporality: Temporality,
        interner: &mut Interner<'a>,
    ) -> Result<Arc<str>, RejectReason> {
        if let Some(last) = &self.last
            && last.used_resource == used.resource
            && last.temporality == temporality
            && last.point.iter().copied().eq(point.unused(used.point))
        {
            return last.text.clone();
        }
        let point: Vec<_> = point.unused(used.point).collect();
        let cumulative = (temporality == Temporality::Cumulative)
            .then_some((TEMPORALITY, Some(Value::Text("cumulative"))));
        let own = point.iter().map(|own| (own.key, own.value));
        let text = self.write(used.resource, cumulative.into_iter().chain(own), interner);
        self.last = Some(Last {
            used_resource: used.resource,
            temporality,
            point,
            text: text.clone(),
        });
        text
    }

    /// Returns the JSON text for a span, including the fields of the span itself. Every span has an
    /// id of its own, so the text is not cached.
    pub(super) fn text_for_span(
        &mut self,
        span: &Columns<'_, 'a>,
        used: UsedColumns,
        span_fields: &[(&'static str, Value<'a>)],
        interner: &mut Interner<'a>,
    ) -> Result<Arc<str>, RejectReason> {
        let own = span.unused(used.point).map(|own| (own.key, own.value));
        // Last, so that no attribute overrides an id.
        let span_fields = span_fields
            .iter()
            .map(|(name, value)| (*name, Some(*value)));
        self.write(used.resource, own.chain(span_fields), interner)
    }

    fn write(
        &mut self,
        used: ColumnSet,
        own: impl Iterator<Item = (&'a str, Option<Value<'a>>)>,
        interner: &mut Interner<'a>,
    ) -> Result<Arc<str>, RejectReason> {
        let common = match &mut self.common {
            Some((columns, common)) if *columns == used => common,
            other => {
                let common = common(self.resource, self.scope, used);
                &mut other.insert((used, common)).1
            }
        };
        let text = match common {
            Ok(common) => Members::from_pairs(own).and_then(|own| common.merge(&own)),
            Err(reason) => Err(*reason),
        };
        interner.reserve_attrs(text.as_ref().map_or(MAX_ATTRS_BYTES, |text| text.len()))?;
        text
    }
}

/// Returns the members that all points of a scope share.
fn common<'a>(
    resource: &Columns<'_, 'a>,
    scope: &Scope<'a>,
    used: ColumnSet,
) -> Result<Members<'a>, RejectReason> {
    let resource = resource.unused(used);
    let attributes = resource.chain(scope.attributes.present().iter().copied());
    let name = (!scope.name.is_empty()).then_some((SCOPE_NAME, Some(Value::Text(scope.name))));
    Members::from_pairs(
        attributes
            .map(|attribute| (attribute.key, attribute.value))
            .chain(name),
    )
}

/// Serialised members of a JSON object, in the order of their keys.
#[derive(Debug)]
struct Members<'a> {
    /// Texts of the members, without separators.
    text: Vec<u8>,
    /// Keys, and the end of the text of each member; `None` for a text that is too long, which is
    /// an error only if the member is not overridden.
    ends: Vec<(&'a str, Option<usize>)>,
    /// Minimum length of all members, including overridden ones.
    min_len: usize,
}

impl<'a> Members<'a> {
    /// Serialises the members. A later member overrides an earlier one with the same key.
    fn from_pairs(
        members: impl Iterator<Item = (&'a str, Option<Value<'a>>)>,
    ) -> Result<Self, RejectReason> {
        let mut min_len = 0;
        let mut sorted = Vec::new();
        for member in members {
            min_len += member.0.len() + MIN_ATTRIBUTE_BYTES;
            if min_len > MAX_ATTRS_BYTES {
                return Err(RejectReason::AttributesTooLarge);
            }
            sorted.push(member);
        }
        sorted.sort_by_key(|(key, _)| *key);
        sorted.dedup_by(|later, earlier| {
            let overrides = later.0 == earlier.0;
            if overrides {
                *earlier = *later;
            }
            overrides
        });
        let mut text = CappedWriter::default();
        text.written.reserve(TYPICAL_ATTRS_BYTES);
        let ends = sorted
            .into_iter()
            .map(|(key, value)| (key, text.member(key, value)))
            .collect();
        Ok(Self {
            text: text.written,
            ends,
            min_len,
        })
    }

    /// Returns the keys and texts of the members; `None` for a text that is too long.
    fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&[u8]>)> {
        let mut begin = 0;
        self.ends.iter().map(move |(key, end)| {
            let text = end.and_then(|end| self.text.get(begin..end));
            begin = end.unwrap_or(begin);
            (*key, text)
        })
    }

    /// Returns the object of all members. Members of `own` override those with the same key.
    fn merge(&self, own: &Self) -> Result<Arc<str>, RejectReason> {
        if self.min_len + own.min_len > MAX_ATTRS_BYTES {
            return Err(RejectReason::AttributesTooLarge);
        }
        let most = self.text.len() + self.ends.len() + own.text.len() + own.ends.len() + 2;
        let mut object = Vec::with_capacity(most);
        let mut common = self.iter().peekable();
        let mut add = |text: Option<&[u8]>| {
            object.push(if object.is_empty() { b'{' } else { b',' });
            object.extend_from_slice(text.ok_or(RejectReason::AttributesTooLarge)?);
            Ok(())
        };
        for (key, text) in own.iter() {
            while let Some((_, before)) = common.next_if(|(other, _)| *other < key) {
                add(before)?;
            }
            common.next_if(|(other, _)| *other == key);
            add(text)?;
        }
        common.try_for_each(|(_, text)| add(text))?;
        if object.is_empty() {
            object.push(b'{');
        }
        object.push(b'}');
        if object.len() > MAX_ATTRS_BYTES {
            return Err(RejectReason::AttributesTooLarge);
        }
        String::from_utf8(object)
            .map(Arc::from)
            .map_err(|_not_utf8| RejectReason::AttributesTooLarge)
    }
}

/// Writer that accepts up to [`MAX_ATTRS_BYTES`] per member and [`MAX_WRITTEN_BYTES`] in total, so
/// that an attribute of several megabytes needs no memory.
#[derive(Debug, Default)]
struct CappedWriter {
    written: Vec<u8>,
    most: usize,
}

impl CappedWriter {
    /// Writes a member. Returns the end of its text; `None` if it is too long.
    fn member(&mut self, key: &str, value: Option<Value<'_>>) -> Option<usize> {
        let begin = self.written.len();
        self.most = (begin + MAX_ATTRS_BYTES).min(MAX_WRITTEN_BYTES);
        if self.write_member(key, value).is_err() {
            self.written.truncate(begin);
            return None;
        }
        Some(self.written.len())
    }

    fn write_member(&mut self, key: &str, value: Option<Value<'_>>) -> serde_json::Result<()> {
        serde_json::to_writer(&mut *self, key)?;
        self.written.push(b':');
        serde_json::to_writer(self, &Json(value))
    }
}

impl io::Write for CappedWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.written.len() + buf.len() > self.most {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serialises the value of an attribute as JSON. Bytes become hexadecimal digits; values that JSON
/// cannot represent become null.
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
    for (index, Member { key, value }) in list.members().enumerate() {
        if index + 1 >= MAX_ATTRIBUTES {
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
