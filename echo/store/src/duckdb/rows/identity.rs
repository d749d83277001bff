//! Series, origins and batch keys.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::UInt64Array;
use duckdb::{Connection, params};
use echo_core::ids::{CommId, JobId, MetricName, Op, RankInJob, RoleId};
use echo_core::model::event::{Origin, Source};
use echo_core::units::Nanos;

use crate::duckdb::batch_dedup::{BatchDedup, Entry};
use crate::duckdb::batches;
use crate::duckdb::dictionary::Entries;
use crate::duckdb::dictionary::series::{Collectives, Series};
use crate::duckdb::engine::EngineResult;
use crate::duckdb::inventory::Contents;
use crate::duckdb::rows::column::{self, Unexpected, column, malformed};
use crate::duckdb::rows::row::Row;

/// Row of the table of batch keys.
#[derive(Debug)]
pub(in crate::duckdb) struct LedgerRow {
    /// Batch key.
    pub(in crate::duckdb) entry: Entry,
    /// Time at which it was received.
    pub(in crate::duckdb) received: Nanos,
    /// Highest event number assigned by then.
    pub(in crate::duckdb) last_event: u64,
}

/// Appends series and origins.
pub(in crate::duckdb) fn append_entries(
    connection: &Connection,
    entries: &Entries,
) -> EngineResult<()> {
    let series: Vec<_> = entries.series.iter().collect();
    column::append(connection, "series", &series, |columns| {
        columns
            .u64("id", |(id, _)| **id)
            .text("metric", |(_, series)| series.metric.as_str())
            .text("unit", |(_, series)| &series.unit)
            .maybe_text("op", |(_, series)| {
                let of = series.collectives.as_ref()?;
                of.op.as_ref().map(Op::as_str)
            })
            .maybe_u64("comm", |(_, series)| {
                series.collectives.as_ref().map(|of| of.comm.value())
            })
            .maybe_u64("role", |(_, series)| {
                series.collectives.as_ref()?.role.map(RoleId::value)
            })
            .bool("on_device", |(_, series)| {
                let of = series.collectives.as_ref();
                of.is_some_and(|of| of.source == Source::Device)
            })
    })?;
    let origins: Vec<_> = entries.origins.iter().collect();
    column::append(connection, "origins", &origins, |columns| {
        columns
            .u64("id", |(id, _)| **id)
            .text("cluster", |(_, origin)| origin.cluster.as_str())
            .text("node", |(_, origin)| origin.node.as_str())
            .maybe_u32("rank", |(_, origin)| {
                origin.rank.map(|rank| rank.rank().value())
            })
            .maybe_u32("nranks", |(_, origin)| {
                origin.rank.and_then(RankInJob::world_size)
            })
            .maybe_text("job", |(_, origin)| origin.job.as_ref().map(JobId::as_str))
            .maybe_text("gpu_model", |(_, origin)| origin.gpu_model.as_deref())
            .maybe_text("gpu_uuid", |(_, origin)| origin.gpu_uuid.as_deref())
            .maybe_text("namespace", |(_, origin)| origin.namespace.as_deref())
            .maybe_text("pod", |(_, origin)| origin.pod.as_deref())
    })
}

/// Reads all series and origins.
pub(in crate::duckdb) fn entries(connection: &Connection) -> EngineResult<Entries> {
    let mut entries = Entries::default();
    let mut series = connection.prepare("SELECT * FROM series")?;
    let mut names = Names::default();
    for batch in batches::stream(&mut series, [])? {
        let batch = batch?;
        let ids: &UInt64Array = column(&batch, "id")?;
        for (row, id) in ids.values().iter().enumerate() {
            let series = names.series(Row::new(&batch, row))?;
            entries.series.insert(*id, Arc::new(series));
        }
    }
    let mut origins = connection.prepare("SELECT * FROM origins")?;
    for batch in batches::stream(&mut origins, [])? {
        let batch = batch?;
        let ids: &UInt64Array = column(&batch, "id")?;
        for (row, id) in ids.values().iter().enumerate() {
            let origin = origin(Row::new(&batch, row))?;
            entries.origins.insert(*id, Arc::new(origin));
        }
    }
    Ok(entries)
}

/// Interned names: there are many more series than names.
#[derive(Debug, Default)]
struct Names {
    metrics: HashMap<Box<str>, MetricName>,
    units: HashMap<Box<str>, Arc<str>>,
    ops: HashMap<Box<str>, Op>,
}

impl Names {
    fn series(&mut self, row: Row<'_>) -> EngineResult<Series> {
        let source = if row.bool("on_device")? {
            Source::Device
        } else {
            Source::Host
        };
        let collectives = match row.maybe_u64("comm")? {
            Some(comm) => Some(Collectives {
                comm: CommId::new(comm),
                op: match row.maybe_text("op")? {
                    Some(op) => Some(shared(&mut self.ops, op, || row.id("op"))?),
                    None => None,
                },
                role: row.maybe_u64("role")?.map(RoleId::new),
                source,
            }),
            None => None,
        };
        let unit = row.text("unit")?;
        Ok(Series {
            metric: shared(&mut self.metrics, row.text("metric")?, || row.id("metric"))?,
            unit: shared(&mut self.units, unit, || Ok(Arc::from(unit)))?,
            collectives,
        })
    }
}

fn shared<T: Clone>(
    known: &mut HashMap<Box<str>, T>,
    name: &str,
    parse: impl FnOnce() -> EngineResult<T>,
) -> EngineResult<T> {
    if let Some(found) = known.get(name) {
        return Ok(found.clone());
    }
    let new = parse()?;
    known.insert(name.into(), new.clone());
    Ok(new)
}

fn origin(row: Row<'_>) -> EngineResult<Origin> {
    let shared = |name| row.maybe_text(name).map(|text| text.map(Arc::from));
    let nranks = row.maybe_u32("nranks")?.map(i64::from);
    let rank = row
        .maybe_u32("rank")?
        .map(|rank| RankInJob::new(i64::from(rank), nranks))
        .transpose()
        .map_err(|_checked_when_written| malformed(Unexpected("rank")))?;
    Ok(Origin {
        cluster: row.id("cluster")?,
        node: row.id("node")?,
        rank,
        job: row.maybe_id("job")?,
        gpu_model: shared("gpu_model")?,
        gpu_uuid: shared("gpu_uuid")?,
        namespace: shared("namespace")?,
        pod: shared("pod")?,
    })
}

/// Appends batch keys.
pub(in crate::duckdb) fn append_ledger(
    connection: &Connection,
    rows: &[LedgerRow],
) -> EngineResult<()> {
    let numbers = |entry: &Entry| match entry {
        Entry::Numbers { first, last, .. } => Some((*first, *last)),
        Entry::Content(_) => None,
    };
    column::append(connection, "ingested_batches", rows, |columns| {
        columns
            .maybe_text("agent", |row| match &row.entry {
                Entry::Numbers { agent, .. } => Some(agent.as_str()),
                Entry::Content(_) => None,
            })
            .maybe_u64("number_first", |row| numbers(&row.entry).map(|ends| ends.0))
            .maybe_u64("number_last", |row| numbers(&row.entry).map(|ends| ends.1))
            .maybe_u64("content_high", |row| {
                halves(&row.entry).map(|halves| halves.0)
            })
            .maybe_u64("content_low", |row| {
                halves(&row.entry).map(|halves| halves.1)
            })
            .i64("received_ns", |row| row.received.value())
            .u64("last_event_id", |row| row.last_event)
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "each half of the hash has 64 bits"
)]
const fn halves(entry: &Entry) -> Option<(u64, u64)> {
    match entry {
        Entry::Numbers { .. } => None,
        Entry::Content(hash) => Some(((*hash >> 64) as u64, *hash as u64)),
    }
}

/// Reads all batch keys.
pub(in crate::duckdb) fn ledger(connection: &Connection) -> EngineResult<BatchDedup> {
    let mut ledger = BatchDedup::default();
    let mut statement =
        connection.prepare("SELECT * FROM ingested_batches ORDER BY received_ns")?;
    for batch in batches::stream(&mut statement, [])? {
        let batch = batch?;
        for row in (0..batch.num_rows()).map(|row| Row::new(&batch, row)) {
            let entry = if let Some(agent) = row.maybe_id("agent")? {
                Entry::Numbers {
                    agent,
                    first: row.u64("number_first")?,
                    last: row.u64("number_last")?,
                }
            } else {
                let high = u128::from(row.u64("content_high")?) << 64;
                Entry::Content(high | u128::from(row.u64("content_low")?))
            };
            ledger.insert(entry, Nanos::new(row.i64("received_ns")?));
        }
    }
    Ok(ledger)
}

/// Replaces all number ranges by `ranges`, and deletes contents received before `oldest`.
pub(in crate::duckdb) fn compact_ledger(
    connection: &Connection,
    ranges: &[LedgerRow],
    oldest: Nanos,
) -> EngineResult<()> {
    connection.execute(
        "DELETE FROM ingested_batches WHERE agent IS NOT NULL OR received_ns < ?",
        params![oldest.value()],
    )?;
    append_ledger(connection, ranges)
}

/// Reads a summary of the database.
pub(in crate::duckdb) fn contents(connection: &Connection) -> EngineResult<Contents> {
    let last_event = last_event(connection)?;
    connection.query_row(
        "SELECT count(*)::UBIGINT, max(received_ns) FROM event_rows",
        [],
        |row| {
            Ok(Contents {
                events: row.get(0)?,
                last_event,
                last_received: row.get::<_, Option<i64>>(1)?.map(Nanos::new),
            })
        },
    )
}

/// Returns the highest event number ever assigned.
pub(in crate::duckdb) fn last_event(connection: &Connection) -> EngineResult<u64> {
    connection.query_row(
        "SELECT greatest(
            (SELECT coalesce(max(event_id), 0) FROM event_rows),
            (SELECT coalesce(max(last_event_id), 0) FROM ingested_batches),
            (SELECT coalesce(max(last_event_id), 0) FROM dropped_rows))::UBIGINT",
        [],
        |row| row.get(0),
    )
}
