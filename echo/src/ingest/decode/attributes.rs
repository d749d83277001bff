//! Attributes of a point and of its resource: which of them become columns, and the values in them.

use fleet_proto::attribute;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;

use super::reject::RejectReason;

/// What an attribute can be lifted into.
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

/// Column and preference (0 first) of an attribute, if it has one.
fn column(key: &str) -> Option<(Column, usize)> {
    NAMES.iter().find_map(|(column, names)| {
        let preference = names.iter().position(|name| *name == key)?;
        Some((*column, preference))
    })
}

/// One attribute that can fill a column.
#[derive(Debug, Clone, Copy)]
struct Hit<'a> {
    /// Index in the list that it comes from.
    place: usize,
    preference: usize,
    value: &'a Value,
}

/// The preferred attribute of each column in one list. Empty texts count as absent: they come from environment
/// variables that were never set.
#[derive(Debug, Clone)]
pub(super) struct Columns<'a> {
    attributes: &'a [KeyValue],
    hits: [Option<Hit<'a>>; COLUMNS],
}

impl<'a> Columns<'a> {
    pub(super) fn of(attributes: &'a [KeyValue]) -> Self {
        let mut columns = Self {
            attributes,
            hits: [None; COLUMNS],
        };
        for (place, attribute) in attributes.iter().enumerate() {
            let Some((column, preference)) = column(&attribute.key) else {
                continue;
            };
            let Some(value) = present(attribute) else {
                continue;
            };
            let Some(slot) = columns.hits.get_mut(column as usize) else {
                continue;
            };
            if slot.is_none_or(|hit| preference < hit.preference) {
                *slot = Some(Hit {
                    place,
                    preference,
                    value,
                });
            }
        }
        columns
    }

    /// The value that fills the column.
    pub(super) fn value(&self, column: Column) -> Option<&'a Value> {
        (*self.hits.get(column as usize)?).map(|hit| hit.value)
    }

    /// The indices of the attributes whose columns are in `taken`.
    fn places(&self, taken: ColumnSet) -> impl Iterator<Item = usize> {
        self.hits
            .iter()
            .enumerate()
            .filter(move |(column, _)| taken.0 & (1 << column) != 0)
            .filter_map(|(_, hit)| hit.map(|hit| hit.place))
    }

    /// The attributes that did not become one of the columns in `taken`.
    pub(super) fn rest(&self, taken: ColumnSet) -> impl Iterator<Item = &'a KeyValue> {
        self.attributes
            .iter()
            .enumerate()
            .filter(move |(place, _)| self.places(taken).all(|other| other != *place))
            .map(|(_, attribute)| attribute)
    }
}

fn present(attribute: &KeyValue) -> Option<&Value> {
    let value = attribute.value.as_ref()?.value.as_ref()?;
    match value {
        Value::StringValue(text) if text.is_empty() => None,
        _ => Some(value),
    }
}

/// A set of columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ColumnSet(u32);

impl ColumnSet {
    fn insert(&mut self, column: Column) {
        self.0 |= 1 << column as u32;
    }
}

/// The columns of a resource and of one of its points, and which of both have been used up.
#[derive(Debug)]
pub(super) struct Picked<'c, 'a> {
    resource: &'c Columns<'a>,
    point: &'c Columns<'a>,
    taken: Taken,
}

/// Which attributes became columns, by the list that they come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) resource: ColumnSet,
    pub(super) point: ColumnSet,
}

impl<'c, 'a> Picked<'c, 'a> {
    pub(super) fn new(resource: &'c Columns<'a>, point: &'c Columns<'a>, taken: Taken) -> Self {
        Self {
            resource,
            point,
            taken,
        }
    }

    pub(super) const fn taken(&self) -> Taken {
        self.taken
    }

    /// Whether the column can be filled.
    pub(super) fn has(&self, column: Column) -> bool {
        self.resource.value(column).is_some() || self.point.value(column).is_some()
    }

    /// Fills the column from the resource only.
    pub(super) fn take_from_resource(&mut self, column: Column) -> Option<&'a Value> {
        let value = self.resource.value(column)?;
        self.taken.resource.insert(column);
        Some(value)
    }

    /// Fills the column from the resource, else from the point.
    pub(super) fn take(&mut self, column: Column) -> Option<&'a Value> {
        if let Some(value) = self.take_from_resource(column) {
            return Some(value);
        }
        let value = self.point.value(column)?;
        self.taken.point.insert(column);
        Some(value)
    }
}

/// The text, if it is one.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// The whole number in an integer, a text of digits or a double without fraction.
pub(super) fn integer(value: &Value) -> Option<i64> {
    /// Doubles hold every whole number up to here.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::IntValue(number) => Some(*number),
        Value::StringValue(text) => text.parse().ok(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole and within the range that doubles hold exactly"
        )]
        Value::DoubleValue(number) if number.fract() == 0.0 && number.abs() < EXACT => {
            Some(*number as i64)
        }
        _ => None,
    }
}

/// The finite number in an integer, a double or a text.
pub(super) fn number(value: &Value) -> Option<Result<f64, RejectReason>> {
    let number = match value {
        Value::DoubleValue(number) => *number,
        #[expect(
            clippy::cast_precision_loss,
            reason = "a count of iterations or an offset in milliseconds stays far below 2^53"
        )]
        Value::IntValue(number) => *number as f64,
        Value::StringValue(text) => text.parse().ok()?,
        _ => return None,
    };
    Some(finite(number))
}

/// The number unless it is NaN or infinite.
pub(super) fn finite(number: f64) -> Result<f64, RejectReason> {
    number
        .is_finite()
        .then_some(number)
        .ok_or(RejectReason::NotFinite)
}

/// The sequence number: a whole number that is not negative.
pub(super) fn sequence(value: &Value) -> Result<u64, RejectReason> {
    integer(value)
        .and_then(|number| u64::try_from(number).ok())
        .ok_or(RejectReason::InvalidSequence)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;

    use super::{COLUMNS, NAMES, column, integer};

    #[test]
    fn every_column_is_listed_at_its_own_place() {
        for (place, (column, names)) in NAMES.iter().enumerate() {
            assert_eq!(*column as usize, place);
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
        assert_eq!(integer(&Value::IntValue(-3)), Some(-3));
        assert_eq!(integer(&Value::StringValue("17".to_owned())), Some(17));
        assert_eq!(integer(&Value::DoubleValue(4.0)), Some(4));
        for odd in [
            Value::DoubleValue(4.5),
            Value::DoubleValue(f64::NAN),
            Value::DoubleValue(1e300),
            Value::StringValue("4 ".to_owned()),
            Value::BoolValue(true),
        ] {
            assert_eq!(integer(&odd), None, "{odd:?}");
        }
    }
}
