//! Coverage queries, counted by time slot.

use arrow::array::{Array, BooleanArray, Int64Array, UInt64Array};
use echo_core::units::{Nanos, Window};
use fleet_proto::metric;

use crate::Activity;
use crate::duckdb::connection_pool::Reader;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::rows::column::{column, maybe};
use crate::duckdb::rows::event_queries::in_window;

/// Period in which an origin reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::duckdb) struct Seen {
    /// First event time.
    pub(in crate::duckdb) first: Nanos,
    /// Last event time.
    pub(in crate::duckdb) last: Nanos,
    /// True if it reported host evidence.
    pub(in crate::duckdb) has_host_evidence: bool,
    /// What it did last.
    pub(in crate::duckdb) activity: Activity,
}

impl Seen {
    /// Union of both periods.
    pub(in crate::duckdb) fn with(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            has_host_evidence: self.has_host_evidence || other.has_host_evidence,
            activity: self.activity.with(other.activity),
        }
    }
}

/// Window that is counted slot by slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::duckdb) struct SlottedWindow {
    /// Window.
    pub(in crate::duckdb) window: Window,
    /// Length of a slot, nanoseconds.
    pub(in crate::duckdb) slot_nanos: i64,
}

impl SlottedWindow {
    /// Window with a single slot.
    pub(in crate::duckdb) const fn whole(window: Window) -> Self {
        Self {
            window,
            slot_nanos: i64::MAX,
        }
    }
}

/// Passes the beginning of the slot, the id of the origin and its coverage to `each`, for each
/// origin in each slot.
pub(in crate::duckdb) fn count(
    reader: &Reader,
    slotted: SlottedWindow,
    mut each: impl FnMut(Nanos, u64, Seen),
) -> EngineResult<()> {
    // Looked at once per series, of which there are few.
    let kinds = Query::new("WITH kinds AS (SELECT id,")
        .bind(
            "starts_with(metric, ?) AS is_host,",
            metric::HOST_EVIDENCE.to_owned(),
        )
        // Reports on progress are sent while nothing is issued, too.
        .bind(
            "comm IS NOT NULL AND metric <> ? AS is_operation,",
            metric::ISSUED.to_owned(),
        )
        .bind(
            "metric = ? AS is_call FROM series)",
            metric::CALLS.to_owned(),
        );
    let query = kinds
        .then("SELECT origin, timestamp_ns -")
        .bind("timestamp_ns % ? AS slot,", slotted.slot_nanos)
        .then("min(timestamp_ns) AS first, max(timestamp_ns) AS last, bool_or(is_host) AS has_host_evidence,")
        .then("max(timestamp_ns) FILTER (is_operation) AS last_operation,")
        .then("max(timestamp_ns) FILTER (is_call) AS last_call")
        .then("FROM event_rows JOIN kinds ON kinds.id = event_rows.series WHERE TRUE");
    let query = in_window(query, slotted.window).then("GROUP BY origin, slot");
    reader.each_batch(&query, |batch| {
        let (origin, slot): (&UInt64Array, &Int64Array) =
            (column(batch, "origin")?, column(batch, "slot")?);
        let (first, last): (&Int64Array, &Int64Array) =
            (column(batch, "first")?, column(batch, "last")?);
        let host: &BooleanArray = column(batch, "has_host_evidence")?;
        let (operation, call): (&Int64Array, &Int64Array) = (
            column(batch, "last_operation")?,
            column(batch, "last_call")?,
        );
        for row in 0..batch.num_rows() {
            let seen = Seen {
                first: Nanos::new(first.value(row)),
                last: Nanos::new(last.value(row)),
                has_host_evidence: maybe!(host, row).unwrap_or(false),
                activity: Activity {
                    last_operation: maybe!(operation, row).map(Nanos::new),
                    last_call: maybe!(call, row).map(Nanos::new),
                },
            };
            each(Nanos::new(slot.value(row)), origin.value(row), seen);
        }
        Ok(())
    })
}
