//! Who sent a point: names and rank from the resource, else from the point.

use echo_core::ids::RankOf;
use echo_core::model::event::Origin;

use super::attributes::{Column, ColumnSet, Picked, integer, text};
use super::interner::Names;
use super::label::label;
use super::reject::RejectReason;
use super::wire::value::Value;

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
pub(super) fn origin<'a>(
    picked: &mut Picked<'_, 'a>,
    names: &mut Names<'a>,
) -> Result<Origin, RejectReason> {
    let cluster = named(picked.take(Column::Cluster), |text| names.cluster(text))?;
    let cluster = cluster.ok_or(RejectReason::MissingCluster)?;
    let node = named(picked.take(Column::Node), |text| names.node(text))?;
    Ok(Origin {
        cluster,
        node: node.ok_or(RejectReason::MissingNode)?,
        rank: rank(picked)?,
        job: named(picked.take(Column::Job), |text| names.job(text))?,
        gpu_model: named(picked.take(Column::GpuModel), |text| names.gpu_model(text))?,
        gpu_uuid: named(picked.take(Column::GpuUuid), label)?,
        namespace: named(picked.take(Column::Namespace), label)?,
        pod: named(picked.take(Column::Pod), label)?,
    })
}

/// What the value names, if there is one; it has to be a text that `parse` takes.
fn named<'a, T>(
    value: Option<Value<'a>>,
    parse: impl FnOnce(&'a str) -> Option<T>,
) -> Result<Option<T>, RejectReason> {
    let Some(value) = value else {
        return Ok(None);
    };
    let name = text(value).and_then(parse);
    name.map(Some).ok_or(RejectReason::InvalidName)
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
