//! Which collectives a point covers.

use echo_core::ids::{Op, RoleId};
use echo_core::model::event::{Anchor, Block, SeqRange, Source};
use fleet_proto::attribute;

use super::attributes::{Column, Picked, number, sequence, text};
use super::interner::Names;
use super::reject::RejectReason;

/// Takes the block out of the attributes; nothing, and nothing taken, when they name no communicator.
pub(super) fn block<'a>(
    picked: &mut Picked<'_, 'a>,
    names: &mut Names<'a>,
) -> Result<Option<Block>, RejectReason> {
    let Some(comm) = picked.take(Column::Comm) else {
        return Ok(None);
    };
    Ok(Some(Block {
        comm: text(comm)
            .and_then(|text| names.comm(text))
            .ok_or(RejectReason::InvalidComm)?,
        op: op(picked, names)?,
        seqs: seqs(picked)?,
        role: role(picked, names)?,
        iterations: iterations(picked)?,
        anchor: anchor(picked)?,
        source: source(picked)?,
    }))
}

fn op<'a>(picked: &mut Picked<'_, 'a>, names: &mut Names<'a>) -> Result<Option<Op>, RejectReason> {
    let Some(value) = picked.take(Column::Op) else {
        return Ok(None);
    };
    let op = text(value).and_then(|text| names.op(text));
    op.ok_or(RejectReason::InvalidName).map(Some)
}

fn seqs(picked: &mut Picked<'_, '_>) -> Result<Option<SeqRange>, RejectReason> {
    match (picked.take(Column::SeqFirst), picked.take(Column::SeqLast)) {
        (None, None) => Ok(None),
        (Some(first), Some(last)) => SeqRange::new(sequence(first)?, sequence(last)?)
            .ok_or(RejectReason::InvalidSequence)
            .map(Some),
        _ => Err(RejectReason::InvalidSequence),
    }
}

fn role<'a>(
    picked: &mut Picked<'_, 'a>,
    names: &mut Names<'a>,
) -> Result<Option<RoleId>, RejectReason> {
    let Some(value) = picked.take(Column::Role) else {
        return Ok(None);
    };
    let role = text(value).and_then(|text| names.role(text));
    role.ok_or(RejectReason::InvalidRole).map(Some)
}

fn iterations(picked: &mut Picked<'_, '_>) -> Result<Option<f64>, RejectReason> {
    let Some(value) = picked.take(Column::Iterations) else {
        return Ok(None);
    };
    let iterations = number(value).ok_or(RejectReason::InvalidIterations)??;
    if iterations <= 0.0 {
        return Err(RejectReason::InvalidIterations);
    }
    Ok(Some(iterations))
}

/// Whoever says nothing means the host.
fn source(picked: &mut Picked<'_, '_>) -> Result<Source, RejectReason> {
    let Some(value) = picked.take(Column::Source) else {
        return Ok(Source::Host);
    };
    match text(value) {
        Some(attribute::SOURCE_HOST) => Ok(Source::Host),
        Some(attribute::SOURCE_DEVICE) => Ok(Source::Device),
        _ => Err(RejectReason::InvalidSource),
    }
}

/// An anchor needs both its halves; one alone stays among the attributes.
fn anchor(picked: &mut Picked<'_, '_>) -> Result<Option<Anchor>, RejectReason> {
    if !(picked.has(Column::AnchorSeq) && picked.has(Column::AnchorOffset)) {
        return Ok(None);
    }
    let (Some(seq), Some(offset)) = (
        picked.take(Column::AnchorSeq),
        picked.take(Column::AnchorOffset),
    ) else {
        return Ok(None);
    };
    Ok(Some(Anchor {
        seq: sequence(seq)?,
        offset_ms: number(offset).ok_or(RejectReason::NotFinite)??,
    }))
}
