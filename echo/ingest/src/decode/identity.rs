//! Decoder of the identity of a sender: names and rank from the resource, else from the point.

use echo_core::ids::{ClusterId, RankInJob};
use echo_core::model::event::Origin;

use super::attributes::{Column, ColumnReader, ColumnSet, integer, text};
use super::interner::Interner;
use super::label::label;
use super::reject::RejectReason;
use super::wire::value::Value;

/// Columns that make up an identity.
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

/// [`COLUMNS`] as a set.
pub(super) const SET: ColumnSet = ColumnSet::new(&COLUMNS);

/// Extracts the identity from the attributes. The cluster may be the default one.
pub(super) fn origin<'a>(
    reader: &mut ColumnReader<'_, 'a>,
    default_cluster: Option<&ClusterId>,
    interner: &mut Interner<'a>,
) -> Result<Origin, RejectReason> {
    let cluster = named(reader.take(Column::Cluster), |text| interner.cluster(text))?;
    let cluster = cluster.or_else(|| default_cluster.cloned());
    let cluster = cluster.ok_or(RejectReason::MissingCluster)?;
    let node = named(reader.take(Column::Node), |text| interner.node(text))?;
    Ok(Origin {
        cluster,
        node: node.ok_or(RejectReason::MissingNode)?,
        rank: rank(reader)?,
        job: named(reader.take(Column::Job), |text| interner.job(text))?,
        gpu_model: named(reader.take(Column::GpuModel), |text| {
            interner.gpu_model(text)
        })?,
        gpu_uuid: named(reader.take(Column::GpuUuid), label)?,
        namespace: named(reader.take(Column::Namespace), label)?,
        pod: named(reader.take(Column::Pod), label)?,
    })
}

/// Parses a value, if present; it must be a string that `parse` accepts.
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

/// Extracts the rank, with the world size from the same list. A rank of the resource is a rank of
/// the job, but a world size on the point may be the size of a communicator.
fn rank(reader: &mut ColumnReader<'_, '_>) -> Result<Option<RankInJob>, RejectReason> {
    let (rank, world_size) = match reader.take_from_resource(Column::Rank) {
        Some(rank) => (rank, reader.take_from_resource(Column::WorldSize)),
        None => match reader.take(Column::Rank) {
            Some(rank) => (rank, reader.take(Column::WorldSize)),
            None => return Ok(None),
        },
    };
    let whole = |value| integer(value).ok_or(RejectReason::RankOutsideWorld);
    let world_size = world_size.map(whole).transpose()?;
    RankInJob::new(whole(rank)?, world_size)
        .map(Some)
        .map_err(|_outside| RejectReason::RankOutsideWorld)
}
