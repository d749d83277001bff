//! Events and sums, made of rows.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array};
use arrow::record_batch::RecordBatch;
use echo_core::ids::{CommId, MetricName, Op, RoleId};
use echo_core::model::event::{
    Anchor, Block, Event, OpSample, Origin, Reading, SeqRange, Source, StoredEvent, Summary,
};
use echo_core::units::Nanos;

use crate::EvidenceSum;
use crate::course::CoursePoint;
use crate::duckdb::dictionary::{Dictionary, Lease};
use crate::duckdb::engine::EngineResult;
use crate::duckdb::rows::column::{Unexpected, column, malformed, maybe};
use crate::duckdb::rows::row::Row;

/// Makes events of rows. Names and origins are looked up once per reader, which is as long as one answer.
#[derive(Debug)]
pub(in crate::duckdb) struct EventReader<'d> {
    dictionary: &'d Dictionary,
    _lease: Lease,
    origins: HashMap<u64, Arc<Origin>>,
    metrics: HashMap<u64, MetricName>,
    units: HashMap<u64, Arc<str>>,
    ops: HashMap<u64, Op>,
    no_attrs: Arc<str>,
}

impl<'d> EventReader<'d> {
    /// A reader that has looked up nothing yet. Made before the rows are asked for, so that all that they refer to is kept.
    pub(in crate::duckdb) fn new(dictionary: &'d Dictionary) -> Self {
        Self {
            dictionary,
            _lease: dictionary.lease(),
            origins: HashMap::new(),
            metrics: HashMap::new(),
            units: HashMap::new(),
            ops: HashMap::new(),
            no_attrs: Arc::from("{}"),
        }
    }

    /// The events of a batch of rows, without their samples.
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
        let op = maybe!(columns.op, row).map(|id| self.op(id)).transpose()?;
        let attrs = columns.attrs.map(|attrs| Arc::from(attrs.value(row)));
        let event = Event {
            timestamp: Nanos::new(columns.timestamp.value(row)),
            start: maybe!(columns.start, row).map(Nanos::new),
            origin: self.origin(columns.origin.value(row))?,
            metric: self.metric(columns.metric.value(row))?,
            unit: self.unit(columns.unit.value(row))?,
            reading: columns.reading(row)?,
            block: columns.block(row, op)?,
            attrs: attrs.unwrap_or_else(|| Arc::clone(&self.no_attrs)),
            samples: Vec::new(),
        };
        Ok(StoredEvent {
            id: columns.id.value(row),
            received: Nanos::new(columns.received.value(row)),
            event,
        })
    }

    /// The sums of host evidence in a batch of rows.
    pub(in crate::duckdb) fn evidence(
        &mut self,
        batch: &RecordBatch,
    ) -> EngineResult<Vec<EvidenceSum>> {
        let (origin, metric): (&UInt64Array, &UInt64Array) =
            (column(batch, "origin")?, column(batch, "metric")?);
        let (total, iterations): (&Float64Array, &Float64Array) =
            (column(batch, "total")?, column(batch, "iterations")?);
        let sum = |row| {
            let rank = self.origin(origin.value(row))?.rank;
            let rank = rank.ok_or_else(|| malformed(Unexpected("rank")))?;
            Ok(EvidenceSum {
                rank: rank.rank(),
                metric: self.metric(metric.value(row))?,
                sum: total.value(row),
                iterations: iterations.value(row),
            })
        };
        (0..batch.num_rows()).map(sum).collect()
    }

    /// The sums of signals in a batch of rows.
    pub(in crate::duckdb) fn course(
        &mut self,
        batch: &RecordBatch,
    ) -> EngineResult<Vec<CoursePoint>> {
        let (origin, metric): (&UInt64Array, &UInt64Array) =
            (column(batch, "origin")?, column(batch, "metric")?);
        let (role, comm): (&UInt64Array, &UInt64Array) =
            (column(batch, "role")?, column(batch, "comm")?);
        let (op, place): (&UInt64Array, &Int64Array) =
            (column(batch, "op")?, column(batch, "place")?);
        let (count, sum): (&Float64Array, &Float64Array) =
            (column(batch, "samples")?, column(batch, "total")?);
        let iterations: &Float64Array = column(batch, "covered")?;
        let on_device: &BooleanArray = column(batch, "on_device")?;
        let point = |row| {
            Ok(CoursePoint {
                origin: self.origin(origin.value(row))?,
                metric: self.metric(metric.value(row))?,
                source: if on_device.value(row) {
                    Source::Device
                } else {
                    Source::Host
                },
                role: maybe!(role, row).map(RoleId::new),
                comm: CommId::new(comm.value(row)),
                op: maybe!(op, row).map(|id| self.op(id)).transpose()?,
                place: place.value(row),
                count: count.value(row),
                sum: sum.value(row),
                iterations: iterations.value(row),
            })
        };
        (0..batch.num_rows()).map(point).collect()
    }

    fn origin(&mut self, id: u64) -> EngineResult<Arc<Origin>> {
        look_up(&mut self.origins, id, "origin", |id| {
            self.dictionary.origin(id)
        })
    }

    fn metric(&mut self, id: u64) -> EngineResult<MetricName> {
        look_up(&mut self.metrics, id, "metric", |id| {
            parsed(self.dictionary, id)
        })
    }

    fn op(&mut self, id: u64) -> EngineResult<Op> {
        look_up(&mut self.ops, id, "op", |id| parsed(self.dictionary, id))
    }

    fn unit(&mut self, id: u64) -> EngineResult<Arc<str>> {
        look_up(&mut self.units, id, "unit", |id| self.dictionary.name(id))
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

fn parsed<T: FromStr>(dictionary: &Dictionary, id: u64) -> Option<T> {
    dictionary.name(id)?.parse().ok()
}

#[derive(Debug)]
struct EventColumns<'b> {
    id: &'b UInt64Array,
    timestamp: &'b Int64Array,
    received: &'b Int64Array,
    start: &'b Int64Array,
    origin: &'b UInt64Array,
    metric: &'b UInt64Array,
    unit: &'b UInt64Array,
    value_double: &'b Float64Array,
    value_int: &'b Int64Array,
    count: &'b UInt64Array,
    sum: &'b Float64Array,
    min: &'b Float64Array,
    max: &'b Float64Array,
    comm: &'b UInt64Array,
    op: &'b UInt64Array,
    seq_first: &'b UInt64Array,
    seq_last: &'b UInt64Array,
    role: &'b UInt64Array,
    iterations: &'b Float64Array,
    anchor_seq: &'b UInt64Array,
    anchor_offset_ms: &'b Float64Array,
    on_device: &'b BooleanArray,
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
            metric: column(batch, "metric")?,
            unit: column(batch, "unit")?,
            value_double: column(batch, "value_double")?,
            value_int: column(batch, "value_int")?,
            count: column(batch, "count")?,
            sum: column(batch, "sum")?,
            min: column(batch, "min")?,
            max: column(batch, "max")?,
            comm: column(batch, "comm")?,
            op: column(batch, "op")?,
            seq_first: column(batch, "seq_first")?,
            seq_last: column(batch, "seq_last")?,
            role: column(batch, "role")?,
            iterations: column(batch, "iterations")?,
            anchor_seq: column(batch, "anchor_seq")?,
            anchor_offset_ms: column(batch, "anchor_offset_ms")?,
            on_device: column(batch, "on_device")?,
            attrs: column(batch, "attrs").ok(),
        })
    }

    fn reading(&self, row: usize) -> EngineResult<Reading> {
        if let Some((count, sum)) = maybe!(self.count, row).zip(maybe!(self.sum, row)) {
            return Ok(Reading::Histogram(Summary {
                count,
                sum,
                min: maybe!(self.min, row),
                max: maybe!(self.max, row),
            }));
        }
        let int = maybe!(self.value_int, row).map(Reading::Int);
        int.or_else(|| maybe!(self.value_double, row).map(Reading::Double))
            .ok_or_else(|| malformed(Unexpected("value_double")))
    }

    fn block(&self, row: usize, op: Option<Op>) -> EngineResult<Option<Block>> {
        let Some(comm) = maybe!(self.comm, row) else {
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
            comm: CommId::new(comm),
            op,
            seqs,
            role: maybe!(self.role, row).map(RoleId::new),
            iterations: maybe!(self.iterations, row),
            anchor: anchor.map(|(seq, offset_ms)| Anchor { seq, offset_ms }),
            source: match maybe!(self.on_device, row) {
                Some(true) => Source::Device,
                Some(false) | None => Source::Host,
            },
        }))
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

/// The first and last event time in a batch of one row.
pub(in crate::duckdb) fn read_extent(batch: &RecordBatch) -> EngineResult<Option<(Nanos, Nanos)>> {
    let row = Row::new(batch, 0);
    let ends = row.maybe_i64("first")?.zip(row.maybe_i64("last")?);
    Ok(ends.map(|(first, last)| (Nanos::new(first), Nanos::new(last))))
}
