//! Conversion of rows to events and sums.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{Array, Float64Array, Int64Array, StringArray, UInt32Array, UInt64Array};
use arrow::record_batch::RecordBatch;
use echo_core::ids::{CommId, IdError};
use echo_core::model::event::{
    Anchor, Block, Event, OpSample, Origin, Reading, SeqRange, StoredEvent, Summary,
};
use echo_core::units::Nanos;
use fleet_proto::attribute;
use serde::Deserialize;

use crate::duckdb::dictionary::series::Series;
use crate::duckdb::dictionary::{Dictionary, Lease};
use crate::duckdb::engine::EngineResult;
use crate::duckdb::rows::column::{Unexpected, column, malformed, maybe};
use crate::duckdb::rows::row::Row;
use crate::timeseries::{ComparedArrivals, TimeseriesPoint};
use crate::{EvidenceSum, EvidenceTask, TimedOperations};

/// Builds events from rows. Looks up each series and origin once per reader, which serves one
/// query.
#[derive(Debug)]
pub(in crate::duckdb) struct EventReader<'d> {
    dictionary: &'d Dictionary,
    _lease: Lease,
    origins: HashMap<u64, Arc<Origin>>,
    series: HashMap<u64, Arc<Series>>,
    no_attrs: Arc<str>,
}

impl<'d> EventReader<'d> {
    /// Reader with empty caches. Created before the query, so that every entry that the rows refer
    /// to is kept.
    pub(in crate::duckdb) fn new(dictionary: &'d Dictionary) -> Self {
        Self {
            dictionary,
            _lease: dictionary.lease(),
            origins: HashMap::new(),
            series: HashMap::new(),
            no_attrs: Arc::from("{}"),
        }
    }

    /// Events in a batch of rows, without samples.
    pub(in crate::duckdb) fn events(
        &mut self,
        batch: &RecordBatch,
        into: &mut Vec<StoredEvent>,
    ) -> EngineResult<()> {
        let columns = EventColumns::new(batch)?;
        into.reserve(batch.num_rows());
        for row in 0..batch.num_rows() {
            into.push(self.event(&columns, row)?);
        }
        Ok(())
    }

    fn event(&mut self, columns: &EventColumns<'_>, row: usize) -> EngineResult<StoredEvent> {
        let series = self.series(columns.series.value(row))?;
        let attrs = columns.attrs.map(|attrs| Arc::from(attrs.value(row)));
        let event = Event {
            timestamp: Nanos::new(columns.timestamp.value(row)),
            start: maybe!(columns.start, row).map(Nanos::new),
            origin: self.origin(columns.origin.value(row))?,
            metric: series.metric.clone(),
            unit: Arc::clone(&series.unit),
            reading: columns.reading(row)?,
            block: columns.block(row, &series)?,
            attrs: attrs.unwrap_or_else(|| Arc::clone(&self.no_attrs)),
            samples: Vec::new(),
        };
        Ok(StoredEvent {
            id: columns.id.value(row),
            received: Nanos::new(columns.received.value(row)),
            event,
        })
    }

    /// Sums of host evidence in a batch of rows, each with the number of its query.
    pub(in crate::duckdb) fn evidence(
        &mut self,
        batch: &RecordBatch,
    ) -> EngineResult<Vec<(u32, EvidenceSum)>> {
        let asked: &UInt32Array = column(batch, "asked")?;
        let origin: &UInt64Array = column(batch, "origin")?;
        let metric: &StringArray = column(batch, "metric")?;
        let task_attrs: &StringArray = column(batch, "task_attrs")?;
        let (total, iterations): (&Float64Array, &Float64Array) =
            (column(batch, "total")?, column(batch, "iterations")?);
        let sum = |row| {
            let rank = self.origin(origin.value(row))?.rank;
            let rank = rank.ok_or_else(|| malformed(Unexpected("rank")))?;
            let sum = EvidenceSum {
                rank: rank.rank(),
                metric: parsed("metric", metric.value(row))?,
                task: maybe!(task_attrs, row).map(task),
                sum: total.value(row),
                iterations: iterations.value(row),
            };
            Ok((asked.value(row), sum))
        };
        (0..batch.num_rows()).map(sum).collect()
    }

    /// Operations of ranks in a batch of rows.
    pub(in crate::duckdb) fn timed_operations(
        &mut self,
        batch: &RecordBatch,
    ) -> EngineResult<Vec<TimedOperations>> {
        let (origin, comm): (&UInt64Array, &UInt64Array) =
            (column(batch, "origin")?, column(batch, "comm")?);
        let (operations, timed): (&Float64Array, &Float64Array) =
            (column(batch, "operations")?, column(batch, "timed")?);
        let of_rank = |row| {
            Ok(TimedOperations {
                origin: self.origin(origin.value(row))?,
                comm: CommId::new(comm.value(row)),
                operations: operations.value(row),
                timed: timed.value(row),
            })
        };
        (0..batch.num_rows()).map(of_rank).collect()
    }

    /// Sums of signals in a batch of rows.
    pub(in crate::duckdb) fn timeseries(
        &mut self,
        batch: &RecordBatch,
    ) -> EngineResult<Vec<TimeseriesPoint>> {
        let (origin, series): (&UInt64Array, &UInt64Array) =
            (column(batch, "origin")?, column(batch, "series")?);
        let (count, sum): (&Float64Array, &Float64Array) =
            (column(batch, "samples")?, column(batch, "total")?);
        let iterations: &Float64Array = column(batch, "covered")?;
        let (compared, late): (&Float64Array, &Float64Array) =
            (column(batch, "compared")?, column(batch, "late")?);
        let bucket: &Int64Array = column(batch, "bucket")?;
        let point = |row| {
            let series = self.series(series.value(row))?;
            let of = series.collectives.as_ref();
            let of = of.ok_or_else(|| malformed(Unexpected("comm")))?;
            Ok(TimeseriesPoint {
                origin: self.origin(origin.value(row))?,
                metric: series.metric.clone(),
                source: of.source,
                role: of.role,
                comm: of.comm,
                op: of.op.clone(),
                bucket: bucket.value(row),
                count: count.value(row),
                sum: sum.value(row),
                iterations: iterations.value(row),
                arrivals: (compared.value(row) > 0.0).then(|| ComparedArrivals {
                    blocks: compared.value(row),
                    late_ms: late.value(row),
                }),
            })
        };
        (0..batch.num_rows()).map(point).collect()
    }

    fn origin(&mut self, id: u64) -> EngineResult<Arc<Origin>> {
        look_up(&mut self.origins, id, "origin", |id| {
            self.dictionary.origin(id)
        })
    }

    fn series(&mut self, id: u64) -> EngineResult<Arc<Series>> {
        look_up(&mut self.series, id, "series", |id| {
            self.dictionary.series(id)
        })
    }
}

fn look_up<T: Clone>(
    seen: &mut HashMap<u64, T>,
    id: u64,
    name: &'static str,
    find: impl FnOnce(u64) -> Option<T>,
) -> EngineResult<T> {
    if let Some(found) = seen.get(&id) {
        return Ok(found.clone());
    }
    let found = find(id).ok_or_else(|| malformed(Unexpected(name)))?;
    seen.insert(id, found.clone());
    Ok(found)
}

fn parsed<T: FromStr<Err = IdError>>(name: &'static str, text: &str) -> EngineResult<T> {
    text.parse()
        .map_err(|_checked_when_written| malformed(Unexpected(name)))
}

#[derive(Debug)]
struct EventColumns<'b> {
    id: &'b UInt64Array,
    timestamp: &'b Int64Array,
    received: &'b Int64Array,
    start: &'b Int64Array,
    origin: &'b UInt64Array,
    series: &'b UInt64Array,
    number: &'b Int64Array,
    value: &'b Float64Array,
    min: &'b Float64Array,
    max: &'b Float64Array,
    seq_first: &'b UInt64Array,
    seq_last: &'b UInt64Array,
    iterations: &'b Float64Array,
    anchor_seq: &'b UInt64Array,
    anchor_offset_ms: &'b Float64Array,
    attrs: Option<&'b StringArray>,
}

impl<'b> EventColumns<'b> {
    fn new(batch: &'b RecordBatch) -> EngineResult<Self> {
        Ok(Self {
            id: column(batch, "event_id")?,
            timestamp: column(batch, "timestamp_ns")?,
            received: column(batch, "received_ns")?,
            start: column(batch, "start_ns")?,
            origin: column(batch, "origin")?,
            series: column(batch, "series")?,
            number: column(batch, "number")?,
            value: column(batch, "value")?,
            min: column(batch, "min")?,
            max: column(batch, "max")?,
            seq_first: column(batch, "seq_first")?,
            seq_last: column(batch, "seq_last")?,
            iterations: column(batch, "iterations")?,
            anchor_seq: column(batch, "anchor_seq")?,
            anchor_offset_ms: column(batch, "anchor_offset_ms")?,
            attrs: column(batch, "attrs").ok(),
        })
    }

    fn reading(&self, row: usize) -> EngineResult<Reading> {
        match (maybe!(self.number, row), maybe!(self.value, row)) {
            (Some(number), None) => Ok(Reading::Int(number)),
            (None, Some(value)) => Ok(Reading::Double(value)),
            (Some(count), Some(sum)) => Ok(Reading::Histogram(Summary {
                count: u64::try_from(count).unwrap_or(0),
                sum,
                min: maybe!(self.min, row),
                max: maybe!(self.max, row),
            })),
            (None, None) => Err(malformed(Unexpected("value"))),
        }
    }

    fn block(&self, row: usize, series: &Series) -> EngineResult<Option<Block>> {
        let Some(of) = &series.collectives else {
            return Ok(None);
        };
        let ends = maybe!(self.seq_first, row).zip(maybe!(self.seq_last, row));
        let seqs = ends
            .map(|(first, last)| {
                SeqRange::new(first, last).ok_or_else(|| malformed(Unexpected("seq_last")))
            })
            .transpose()?;
        let anchor = maybe!(self.anchor_seq, row).zip(maybe!(self.anchor_offset_ms, row));
        Ok(Some(Block {
            comm: of.comm,
            op: of.op.clone(),
            seqs,
            role: of.role,
            iterations: maybe!(self.iterations, row),
            anchor: anchor.map(|(seq, offset_ms)| Anchor { seq, offset_ms }),
            source: of.source,
        }))
    }
}

/// Parses the task in the attributes of a point. Senders choose them, so a point without a task
/// counts for those that are not named.
fn task(attrs: &str) -> EvidenceTask {
    #[derive(Default, Deserialize)]
    struct TaskAttributes {
        #[serde(rename = "fleet.task")]
        name: Option<String>,
        #[serde(rename = "fleet.cpu")]
        cpu: Option<u32>,
    }
    let TaskAttributes { name, cpu } = serde_json::from_str(attrs).unwrap_or_default();
    EvidenceTask {
        name: name.unwrap_or_else(|| attribute::OTHER_TASKS.to_owned()),
        cpu,
    }
}

/// Adds the samples in a batch of rows to their events.
pub(in crate::duckdb) fn add_samples(
    batch: &RecordBatch,
    events: &mut HashMap<u64, &mut Event>,
) -> EngineResult<()> {
    let (ids, seqs): (&UInt64Array, &UInt64Array) =
        (column(batch, "event_id")?, column(batch, "seq")?);
    let values: &Float64Array = column(batch, "value")?;
    let timestamps: &Int64Array = column(batch, "timestamp_ns")?;
    for (row, id) in ids.values().iter().enumerate() {
        if let Some(event) = events.get_mut(id) {
            event.samples.push(OpSample {
                seq: seqs.value(row),
                value: values.value(row),
                timestamp: Nanos::new(timestamps.value(row)),
            });
        }
    }
    Ok(())
}

/// First and last event time in a batch of one row.
pub(in crate::duckdb) fn read_extent(batch: &RecordBatch) -> EngineResult<Option<(Nanos, Nanos)>> {
    let row = Row::new(batch, 0);
    let ends = row.maybe_i64("first")?.zip(row.maybe_i64("last")?);
    Ok(ends.map(|(first, last)| (Nanos::new(first), Nanos::new(last))))
}
