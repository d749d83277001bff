//! Conversion of events and samples to rows.

use duckdb::Connection;
use echo_core::model::event::{Anchor, Block, Event, Reading, SeqRange, Summary};
use echo_core::units::Nanos;

use crate::duckdb::engine::EngineResult;
use crate::duckdb::rows::column;

/// Event with the ids of its origin and series.
#[derive(Debug)]
pub(in crate::duckdb) struct EventRow<'e> {
    /// Number of the event.
    pub(in crate::duckdb) id: u64,
    /// Time at which its batch was received.
    pub(in crate::duckdb) received: Nanos,
    /// Id of its origin.
    pub(in crate::duckdb) origin: u64,
    /// Id of its series.
    pub(in crate::duckdb) series: u64,
    /// Event.
    pub(in crate::duckdb) event: &'e Event,
}

impl<'e> EventRow<'e> {
    fn summary(&self) -> Option<Summary> {
        match self.event.reading {
            Reading::Histogram(summary) => Some(summary),
            Reading::Double(_) | Reading::Int(_) => None,
        }
    }

    fn block(&self) -> Option<&'e Block> {
        self.event.block.as_ref()
    }

    fn seqs(&self) -> Option<SeqRange> {
        self.block().and_then(|block| block.seqs)
    }

    fn anchor(&self) -> Option<Anchor> {
        self.block().and_then(|block| block.anchor)
    }
}

/// Appends events and their samples.
pub(in crate::duckdb) fn append(
    connection: &Connection,
    rows: &[EventRow<'_>],
) -> EngineResult<()> {
    column::append(connection, "event_rows", rows, |columns| {
        columns
            .u64("event_id", |row| row.id)
            .i64("timestamp_ns", |row| row.event.timestamp.value())
            .i64("received_ns", |row| row.received.value())
            .maybe_i64("start_ns", |row| row.event.start.map(Nanos::value))
            .u64("origin", |row| row.origin)
            .u64("series", |row| row.series)
            .maybe_i64("number", |row| match row.event.reading {
                Reading::Int(number) => Some(number),
                // No counter reaches the upper bound.
                Reading::Histogram(summary) => Some(summary.count.try_into().unwrap_or(i64::MAX)),
                Reading::Double(_) => None,
            })
            .maybe_f64("value", |row| match row.event.reading {
                Reading::Double(value) => Some(value),
                Reading::Histogram(summary) => Some(summary.sum),
                Reading::Int(_) => None,
            })
            .maybe_f64("min", |row| row.summary().and_then(|summary| summary.min))
            .maybe_f64("max", |row| row.summary().and_then(|summary| summary.max))
            .maybe_u64("seq_first", |row| row.seqs().map(SeqRange::first))
            .maybe_u64("seq_last", |row| row.seqs().map(SeqRange::last))
            .maybe_f64("iterations", |row| {
                row.block().and_then(|block| block.iterations)
            })
            .maybe_u64("anchor_seq", |row| row.anchor().map(|anchor| anchor.seq))
            .maybe_f64("anchor_offset_ms", |row| {
                row.anchor().map(|anchor| anchor.offset_ms)
            })
            .text("attrs", |row| &row.event.attrs)
    })?;
    let samples: Vec<_> = rows
        .iter()
        .flat_map(|row| {
            let samples = (0_u32..).zip(&row.event.samples);
            samples.map(|(ordinal, sample)| (row.id, ordinal, sample))
        })
        .collect();
    column::append(connection, "sample_rows", &samples, |columns| {
        columns
            .u64("event_id", |(id, _, _)| *id)
            .u32("ordinal", |(_, ordinal, _)| *ordinal)
            .u64("seq", |(_, _, sample)| sample.seq)
            .f64("value", |(_, _, sample)| sample.value)
            .i64("timestamp_ns", |(_, _, sample)| sample.timestamp.value())
    })
}
