//! Decoder of the collectives that a point covers.

use echo_core::ids::{Op, RoleId};
use echo_core::model::event::{Anchor, Block, SeqRange, Source};
use fleet_proto::attribute;

use super::attributes::{Column, ColumnReader, number, sequence, text};
use super::interner::Interner;
use super::reject::RejectReason;

/// Extracts the block from the attributes; `None` without a communicator.
pub(super) fn block<'a>(
    reader: &mut ColumnReader<'_, 'a>,
    interner: &mut Interner<'a>,
) -> Result<Option<Block>, RejectReason> {
    let Some(comm) = reader.take(Column::Comm) else {
        return Ok(None);
    };
    Ok(Some(Block {
        comm: text(comm)
            .and_then(|text| interner.comm(text))
            .ok_or(RejectReason::InvalidComm)?,
        op: op(reader, interner)?,
        seqs: seqs(reader)?,
        role: role(reader, interner)?,
        iterations: iterations(reader)?,
        anchor: anchor(reader)?,
        source: source(reader)?,
    }))
}

fn op<'a>(
    reader: &mut ColumnReader<'_, 'a>,
    interner: &mut Interner<'a>,
) -> Result<Option<Op>, RejectReason> {
    let Some(value) = reader.take(Column::Op) else {
        return Ok(None);
    };
    let op = text(value).and_then(|text| interner.op(text));
    op.ok_or(RejectReason::InvalidName).map(Some)
}

fn seqs(reader: &mut ColumnReader<'_, '_>) -> Result<Option<SeqRange>, RejectReason> {
    match (reader.take(Column::SeqFirst), reader.take(Column::SeqLast)) {
        (None, None) => Ok(None),
        (Some(first), Some(last)) => SeqRange::new(sequence(first)?, sequence(last)?)
            .ok_or(RejectReason::InvalidSequence)
            .map(Some),
        _ => Err(RejectReason::InvalidSequence),
    }
}

fn role<'a>(
    reader: &mut ColumnReader<'_, 'a>,
    interner: &mut Interner<'a>,
) -> Result<Option<RoleId>, RejectReason> {
    let Some(value) = reader.take(Column::Role) else {
        return Ok(None);
    };
    let role = text(value).and_then(|text| interner.role(text));
    role.ok_or(RejectReason::InvalidRole).map(Some)
}

fn iterations(reader: &mut ColumnReader<'_, '_>) -> Result<Option<f64>, RejectReason> {
    let Some(value) = reader.take(Column::Iterations) else {
        return Ok(None);
    };
    let iterations = number(value).ok_or(RejectReason::InvalidIterations)??;
    if iterations <= 0.0 {
        return Err(RejectReason::InvalidIterations);
    }
    Ok(Some(iterations))
}

/// Extracts the source; the default is the host.
fn source(reader: &mut ColumnReader<'_, '_>) -> Result<Source, RejectReason> {
    let Some(value) = reader.take(Column::Source) else {
        return Ok(Source::Host);
    };
    match text(value) {
        Some(attribute::SOURCE_HOST) => Ok(Source::Host),
        Some(attribute::SOURCE_DEVICE) => Ok(Source::Device),
        _ => Err(RejectReason::InvalidSource),
    }
}

/// Extracts the anchor, if both of its attributes are present; otherwise they stay attributes.
fn anchor(reader: &mut ColumnReader<'_, '_>) -> Result<Option<Anchor>, RejectReason> {
    if !(reader.has(Column::AnchorSeq) && reader.has(Column::AnchorOffset)) {
        return Ok(None);
    }
    let (Some(seq), Some(offset)) = (
        reader.take(Column::AnchorSeq),
        reader.take(Column::AnchorOffset),
    ) else {
        return Ok(None);
    };
    Ok(Some(Anchor {
        seq: sequence(seq)?,
        offset_ms: number(offset).ok_or(RejectReason::NotFinite)??,
    }))
}
