//! Conversion of rows to reports on processes.

use arrow::record_batch::RecordBatch;
use echo_core::ids::Rank;
use echo_core::units::Nanos;

use super::call_durations::CallDurations;
use super::row::Row;
use crate::duckdb::engine::EngineResult;
use crate::process_reports::{
    CallTotals, ChainState, FilePart, NodeReport, ProcessKey, ProcessSeen, StackTotals,
};

/// Processes that reported.
pub(in crate::duckdb) fn seen(batch: &RecordBatch) -> EngineResult<Vec<ProcessSeen>> {
    each(batch, |row| {
        Ok(ProcessSeen {
            process: process(row)?,
            first: Nanos::new(row.i64("first_ns")?),
            last: Nanos::new(row.i64("last_ns")?),
        })
    })
}

/// Calls of processes.
pub(in crate::duckdb) fn calls(batch: &RecordBatch) -> EngineResult<Vec<CallTotals>> {
    each(batch, |row| {
        let max_ms = row.maybe_f64("max_ms")?;
        let durations = row.maybe_text("durations_ns")?.unwrap_or_default();
        let durations = CallDurations::parse(durations, max_ms);
        Ok(CallTotals {
            process: process(row)?,
            function: row.text("function")?.to_owned(),
            n_calls: row.u64("n_calls")?,
            total_ms: row.f64("total_ms")?,
            max_ms,
            p50_ms: durations.percentile_ms(50),
            p95_ms: durations.percentile_ms(95),
            p99_ms: durations.percentile_ms(99),
            worst_p99_ms: row.maybe_f64("worst_p99_ms")?,
            bytes: row.maybe_u64("bytes")?,
            covered_nanos: row.i64("covered_ns")?,
        })
    })
}

/// States of causal chains.
pub(in crate::duckdb) fn chains(batch: &RecordBatch) -> EngineResult<Vec<ChainState>> {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    each(batch, |row| {
        Ok(ChainState {
            process: process(row)?,
            cause: row.text("cause")?.to_owned(),
            severity: owned(row.maybe_text("severity")?),
            share: row.maybe_f64("share")?,
            max_share: row.maybe_f64("max_share")?,
            summary: owned(row.maybe_text("summary")?),
            links: owned(row.maybe_text("links")?),
            stack: owned(row.maybe_text("stack")?),
            advice: owned(row.maybe_text("advice")?),
            since: Nanos::new(row.i64("since_ns")?),
            last: Nanos::new(row.i64("last_ns")?),
        })
    })
}

/// Stack samples of processes.
pub(in crate::duckdb) fn stacks(batch: &RecordBatch) -> EngineResult<Vec<StackTotals>> {
    each(batch, |row| {
        Ok(StackTotals {
            process: process(row)?,
            function: row.maybe_text("function")?.map(str::to_owned),
            stack: row.text("stack")?.to_owned(),
            samples: row.u64("samples")?,
            process_samples: row.u64("process_samples")?,
        })
    })
}

/// Parts of files about processes.
pub(in crate::duckdb) fn file_parts(batch: &RecordBatch) -> EngineResult<Vec<FilePart>> {
    each(batch, |row| {
        Ok(FilePart {
            process: process(row)?,
            at: Nanos::new(row.i64("timestamp_ns")?),
            name: row.text("name")?.to_owned(),
            part: row.maybe_u32("part")?.unwrap_or(0),
            parts: row.maybe_u32("parts")?.unwrap_or(0),
            content: row.text("content")?.to_owned(),
        })
    })
}

/// Reports of nodes.
pub(in crate::duckdb) fn nodes(batch: &RecordBatch) -> EngineResult<Vec<NodeReport>> {
    each(batch, |row| {
        Ok(NodeReport {
            cluster: row.id("cluster_id")?,
            node: row.id("node_id")?,
            metric: row.id("metric")?,
            total: row.f64("total")?,
            last: Nanos::new(row.i64("last_ns")?),
        })
    })
}

fn each<T>(
    batch: &RecordBatch,
    read: impl Fn(&Row<'_>) -> EngineResult<T>,
) -> EngineResult<Vec<T>> {
    let rows = 0..batch.num_rows();
    rows.map(|row| read(&Row::new(batch, row))).collect()
}

fn process(row: &Row<'_>) -> EngineResult<ProcessKey> {
    Ok(ProcessKey {
        cluster: row.id("cluster_id")?,
        node: row.id("node_id")?,
        job: row.maybe_id("job")?,
        rank: row.maybe_u32("rank")?.map(Rank::new),
        pid: row.maybe_u32("pid")?,
        name: row.maybe_text("process")?.map(str::to_owned),
    })
}
