//! Attributes of a point and of its resource: extraction of columns and parsing of values.

use super::reject::RejectReason;
use super::wire::attributes::{Attribute, Attributes};
use super::wire::value::Value;
use fleet_proto::attribute;

/// Maximum size of the attributes of one point as JSON text, in bytes.
pub(super) const MAX_ATTRS_BYTES: usize = 16 * 1024;

/// Minimum size of an attribute in the JSON text beside its key: two quotes, a colon, one digit.
pub(super) const MIN_ATTRIBUTE_BYTES: usize = 4;

/// Maximum number of attributes kept: one more than the JSON text can hold.
pub(super) const MAX_ATTRIBUTES: usize = MAX_ATTRS_BYTES / MIN_ATTRIBUTE_BYTES + 1;

/// Largest magnitude of a value. Sums and squares of any number of such values are finite.
const MAX_VALUE: f64 = 1e24;

/// Column that an attribute can be extracted into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Cluster,
    Node,
    Rank,
    WorldSize,
    Job,
    GpuModel,
    GpuUuid,
    Namespace,
    Pod,
    Comm,
    Op,
    SeqFirst,
    SeqLast,
    Role,
    Iterations,
    AnchorSeq,
    AnchorOffset,
    Source,
    Lag,
}

/// Attribute that held the name of an event before records had a field for it.
pub(super) const EVENT_NAME: &str = "event.name";

const COLUMNS: usize = Column::Lag as usize + 1;

/// The names of each column, the preferred one first.
const NAMES: [(Column, &[&str]); COLUMNS] = [
    (Column::Cluster, &attribute::CLUSTER_ID),
    (Column::Node, &attribute::NODE_ID),
    (Column::Rank, &attribute::RANK),
    (Column::WorldSize, &attribute::WORLD_SIZE),
    (Column::Job, &attribute::JOB),
    (Column::GpuModel, &attribute::GPU_MODEL),
    (Column::GpuUuid, &[attribute::GPU_UUID]),
    (Column::Namespace, &[attribute::NAMESPACE]),
    (Column::Pod, &[attribute::POD]),
    (Column::Comm, &[attribute::COMM_ID]),
    (Column::Op, &[attribute::OP]),
    (Column::SeqFirst, &[attribute::SEQ_FIRST]),
    (Column::SeqLast, &[attribute::SEQ_LAST]),
    (Column::Role, &[attribute::ROLE]),
    (Column::Iterations, &[attribute::ITERATIONS]),
    (Column::AnchorSeq, &[attribute::ANCHOR_SEQ]),
    (Column::AnchorOffset, &[attribute::ANCHOR_OFFSET_MS]),
    (Column::Source, &[attribute::SOURCE]),
    (Column::Lag, &[attribute::LAG_MS]),
];

/// Returns the column of an attribute and the preference of its name (0 is preferred).
fn column(key: &str) -> Option<(Column, usize)> {
    NAMES.iter().find_map(|(column, names)| {
        let preference = names.iter().position(|name| *name == key)?;
        Some((*column, preference))
    })
}

/// Keys without a column that are needed as well.
const OTHER_KEYS: [&str; 1] = [EVENT_NAME];

/// Returns an empty list. It keeps as many attributes as the columns and the JSON text can hold. Of
/// further ones it keeps only those with a column or in [`OTHER_KEYS`]: the point is rejected in
/// any case, and they decide the reason.
pub(super) const fn empty_list<'a>() -> Attributes<'a> {
    Attributes::new(MAX_ATTRIBUTES + COLUMNS, |key| {
        column(key).is_some() || OTHER_KEYS.contains(&key)
    })
}

/// Cached column of the attribute at an index.
#[derive(Debug, Clone, Copy)]
struct CachedColumn<'a> {
    key: &'a str,
    column: Option<(Column, usize)>,
}

/// Columns of the attributes at each index of the previous list; most neighbours have the same keys
/// in the same order.
#[derive(Debug, Default)]
pub(super) struct ColumnCache<'a>(Vec<CachedColumn<'a>>);

impl<'a> ColumnCache<'a> {
    #[inline]
    fn column(&mut self, index: usize, key: &'a str) -> Option<(Column, usize)> {
        match self.0.get(index) {
            // The list keeps the slice as long as the key does not change.
            Some(known) if std::ptr::eq(known.key, key) => known.column,
            _ => self.insert(index, key),
        }
    }

    fn insert(&mut self, index: usize, key: &'a str) -> Option<(Column, usize)> {
        let column = column(key);
        let cached = CachedColumn { key, column };
        match self.0.get_mut(index) {
            Some(known) => *known = cached,
            None => self.0.push(cached),
        }
        column
    }
}

/// Attribute that can fill a column.
#[derive(Debug, Clone, Copy)]
struct Hit {
    /// Index in the list that it comes from.
    index: usize,
    preference: usize,
}

/// The preferred attribute of each column in one list. Empty texts count as absent: they come from
/// environment variables that were never set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns<'s, 'a> {
    attributes: &'s [Attribute<'a>],
    cache: &'s [CachedColumn<'a>],
    hits: [Hit; COLUMNS],
    filled: ColumnSet,
}

impl<'s, 'a> Columns<'s, 'a> {
    pub(super) fn new(attributes: &'s [Attribute<'a>], cache: &'s mut ColumnCache<'a>) -> Self {
        let mut hits = [Hit {
            index: 0,
            preference: 0,
        }; COLUMNS];
        let mut filled = ColumnSet::default();
        for (index, attribute) in attributes.iter().enumerate() {
            let Some((column, preference)) = cache.column(index, attribute.key) else {
                continue;
            };
            if !is_present(attribute) {
                continue;
            }
            let Some(hit) = hits.get_mut(column as usize) else {
                continue;
            };
            if !filled.has(column) || preference < hit.preference {
                *hit = Hit { index, preference };
                filled.insert(column);
            }
        }
        Self {
            attributes,
            cache: &cache.0,
            hits,
            filled,
        }
    }

    /// Returns the value that fills the column.
    pub(super) fn value(&self, column: Column) -> Option<Value<'a>> {
        if !self.filled.has(column) {
            return None;
        }
        self.attributes.get(self.index(column)?)?.value
    }

    /// Returns true if one of the columns can be filled.
    pub(super) const fn fills(&self, columns: ColumnSet) -> bool {
        self.filled.0 & columns.0 != 0
    }

    fn index(&self, column: Column) -> Option<usize> {
        self.hits.get(column as usize).map(|hit| hit.index)
    }

    /// Returns the attributes that were not extracted into one of the columns in `used`.
    pub(super) fn unused(&self, used: ColumnSet) -> impl Iterator<Item = Attribute<'a>> {
        let cache = self.cache.iter();
        let attributes = self.attributes.iter().zip(cache).enumerate();
        attributes
            .filter(move |(index, (_, cached))| {
                let is_used = |(column, _)| used.has(column) && self.index(column) == Some(*index);
                !cached.column.is_some_and(is_used)
            })
            .map(|(_, (attribute, _))| *attribute)
    }
}

fn is_present(attribute: &Attribute<'_>) -> bool {
    match attribute.value {
        None => false,
        Some(Value::Text(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

/// Set of columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ColumnSet(u32);

impl ColumnSet {
    /// Returns the set of these columns.
    pub(super) const fn new(columns: &[Column]) -> Self {
        let mut set = Self(0);
        let mut rest = columns;
        while let [column, others @ ..] = rest {
            set.insert(*column);
            rest = others;
        }
        set
    }

    const fn insert(&mut self, column: Column) {
        self.0 |= 1 << column as u32;
    }

    const fn has(self, column: Column) -> bool {
        self.0 & (1 << column as u32) != 0
    }
}

/// Reader of the columns of a resource and of one of its points. Records which ones were used.
#[derive(Debug)]
pub(super) struct ColumnReader<'c, 'a> {
    resource: &'c Columns<'c, 'a>,
    point: &'c Columns<'c, 'a>,
    used: UsedColumns,
}

/// Columns that were read, by the list that their attributes come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsedColumns {
    pub(super) resource: ColumnSet,
    pub(super) point: ColumnSet,
}

impl<'c, 'a> ColumnReader<'c, 'a> {
    pub(super) const fn new(
        resource: &'c Columns<'c, 'a>,
        point: &'c Columns<'c, 'a>,
        used: UsedColumns,
    ) -> Self {
        Self {
            resource,
            point,
            used,
        }
    }

    pub(super) const fn used(&self) -> UsedColumns {
        self.used
    }

    /// Returns true if the column can be filled.
    pub(super) fn has(&self, column: Column) -> bool {
        self.resource.filled.has(column) || self.point.filled.has(column)
    }

    /// Reads the column from the resource only, and marks it as used.
    pub(super) fn take_from_resource(&mut self, column: Column) -> Option<Value<'a>> {
        let value = self.resource.value(column)?;
        self.used.resource.insert(column);
        Some(value)
    }

    /// Reads the column from the resource, else from the point, and marks it as used.
    pub(super) fn take(&mut self, column: Column) -> Option<Value<'a>> {
        if let Some(value) = self.take_from_resource(column) {
            return Some(value);
        }
        let value = self.point.value(column)?;
        self.used.point.insert(column);
        Some(value)
    }
}

/// Returns the text, if the value is one.
pub(super) const fn text(value: Value<'_>) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// Parses an integer, a text of digits or a double without fraction as a whole number.
pub(super) fn integer(value: Value<'_>) -> Option<i64> {
    /// Doubles hold every whole number up to here.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Int(number) => Some(number),
        Value::Text(text) => text.parse().ok(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole and within the range that doubles hold exactly"
        )]
        Value::Double(number) if number.fract() == 0.0 && number.abs() < EXACT => {
            Some(number as i64)
        }
        _ => None,
    }
}

/// Parses an integer, a double or a text as a finite number.
pub(super) fn number(value: Value<'_>) -> Option<Result<f64, RejectReason>> {
    let number = match value {
        Value::Double(number) => number,
        #[expect(
            clippy::cast_precision_loss,
            reason = "a count of iterations or an offset in milliseconds stays far below 2^53"
        )]
        Value::Int(number) => number as f64,
        Value::Text(text) => text.parse().ok()?,
        _ => return None,
    };
    Some(finite(number))
}

/// Returns the number unless it is NaN, infinite or larger than [`MAX_VALUE`].
pub(super) fn finite(number: f64) -> Result<f64, RejectReason> {
    if !number.is_finite() {
        return Err(RejectReason::NotFinite);
    }
    if number.abs() > MAX_VALUE {
        return Err(RejectReason::TooLarge);
    }
    Ok(number)
}

/// Parses a sequence number: a whole number that is not negative.
pub(super) fn sequence(value: Value<'_>) -> Result<u64, RejectReason> {
    integer(value)
        .and_then(|number| u64::try_from(number).ok())
        .ok_or(RejectReason::InvalidSequence)
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, NAMES, column, integer};
    use crate::decode::wire::value::Value;

    #[test]
    fn every_column_is_listed_at_its_own_index() {
        for (index, (column, names)) in NAMES.iter().enumerate() {
            assert_eq!(*column as usize, index);
            assert!(!names.is_empty());
        }
        assert_eq!(NAMES.len(), COLUMNS);
    }

    #[test]
    fn the_first_listed_name_is_preferred() {
        let (cluster, preference) = column("fleet.cluster.id").unwrap();
        assert_eq!(preference, 0);
        assert_eq!(column("k8s.cluster.name"), Some((cluster, 2)));
        assert_eq!(column("service.name"), None);
    }

    #[test]
    fn whole_numbers_are_read_in_every_form_that_senders_use() {
        assert_eq!(integer(Value::Int(-3)), Some(-3));
        assert_eq!(integer(Value::Text("17")), Some(17));
        assert_eq!(integer(Value::Double(4.0)), Some(4));
        for odd in [
            Value::Double(4.5),
            Value::Double(f64::NAN),
            Value::Double(1e300),
            Value::Text("4 "),
            Value::Bool(true),
        ] {
            assert_eq!(integer(odd), None, "{odd:?}");
        }
    }
}
