//! Who sent a point: names and rank from the resource, else from the point.

use std::sync::Arc;

use super::attributes::{Column, ColumnSet, Picked, integer, text};
use super::reject::RejectReason;
use super::wire::value::Value;
use crate::ids::{IdError, MAX_NAME_BYTES, RankOf};
use crate::model::event::Origin;

/// The columns that make up an identity.
pub(super) const COLUMNS: [Column; 9] = [
    Column::Cluster,
    Column::Node,
    Column::Rank,
    Column::WorldSize,
    Column::Job,
    Column::GpuModel,
    Column::GpuUuid,
    Column::Namespace,
    Column::Pod,
];

/// The same as a set.
pub(super) const SET: ColumnSet = ColumnSet::of(&COLUMNS);

/// Takes the identity out of the attributes.
pub(super) fn origin(picked: &mut Picked<'_, '_>) -> Result<Origin, RejectReason> {
    Ok(Origin {
        cluster: name(picked.take(Column::Cluster))?.ok_or(RejectReason::MissingCluster)?,
        node: name(picked.take(Column::Node))?.ok_or(RejectReason::MissingNode)?,
        rank: rank(picked)?,
        job: name(picked.take(Column::Job))?,
        gpu_model: label(picked.take(Column::GpuModel))?,
        gpu_uuid: label(picked.take(Column::GpuUuid))?,
        namespace: label(picked.take(Column::Namespace))?,
        pod: label(picked.take(Column::Pod))?,
    })
}

fn name<T: std::str::FromStr<Err = IdError>>(
    value: Option<Value<'_>>,
) -> Result<Option<T>, RejectReason> {
    let parsed = value.map(|value| text(value).and_then(|text| text.parse().ok()));
    match parsed {
        None => Ok(None),
        Some(None) => Err(RejectReason::InvalidName),
        Some(name) => Ok(name),
    }
}

fn label(value: Option<Value<'_>>) -> Result<Option<Arc<str>>, RejectReason> {
    value
        .map(|value| text(value).and_then(printable))
        .map(|label| label.map(Arc::from).ok_or(RejectReason::InvalidName))
        .transpose()
}

/// The text if it is short and without control characters, as names are.
pub(super) fn printable(text: &str) -> Option<&str> {
    (text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control)).then_some(text)
}

/// The rank with the world size of the same list: a rank of the resource is one of the job, and the world size
/// beside a rank of the point may be that of a communicator.
fn rank(picked: &mut Picked<'_, '_>) -> Result<Option<RankOf>, RejectReason> {
    let (rank, world_size) = match picked.take_from_resource(Column::Rank) {
        Some(rank) => (rank, picked.take_from_resource(Column::WorldSize)),
        None => match picked.take(Column::Rank) {
            Some(rank) => (rank, picked.take(Column::WorldSize)),
            None => return Ok(None),
        },
    };
    let whole = |value| integer(value).ok_or(RejectReason::RankOutsideWorld);
    let world_size = world_size.map(whole).transpose()?;
    RankOf::new(whole(rank)?, world_size)
        .map(Some)
        .map_err(|_outside| RejectReason::RankOutsideWorld)
}
