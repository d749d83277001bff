//! What a lake holds, by instance, and whether it is consistent.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::LakeError;
use crate::location::LakeConfig;
use crate::session::{Access, LAKE, Session};

/// Name of the client in `PostgreSQL`.
const APPLICATION: &str = "fleet-echo-lake";

/// Slices of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceSlices {
    /// Identity of its database.
    pub instance: String,
    /// Number of slices.
    pub slices: u64,
    /// First event number.
    pub first_event: u64,
    /// Last event number.
    pub last_event: u64,
    /// Events in the slices.
    pub events: u64,
    /// Samples in the slices.
    pub samples: u64,
    /// States of incidents in the slices.
    pub verdicts: u64,
    /// Rows of closed hours in the slices.
    pub hours: u64,
    /// Events of the range that were deleted before they could be copied.
    pub missing_events: u64,
    /// Beginning of the first hour of costs that is not closed, Unix nanoseconds; `None` if all are.
    pub open_since_ns: Option<i64>,
    /// Time of the last commit, Unix nanoseconds.
    pub committed_ns: i64,
}

/// Parquet files of a lake.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LakeFiles {
    /// Number.
    pub files: u64,
    /// Size.
    pub bytes: u64,
}

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// What the slices say.
    pub instances: Vec<InstanceSlices>,
    /// Contradictions between slices and rows; empty for a sound lake.
    pub problems: Vec<String>,
}

/// A lake, opened for reading.
#[derive(Debug)]
pub struct Lake(Session);

impl Lake {
    /// Connects.
    pub fn open(config: &LakeConfig) -> Result<Self, LakeError> {
        Session::open(config, APPLICATION, Access::Read).map(Self)
    }

    /// Returns the slices of each instance, in the order of their last commits.
    pub fn status(&self) -> Result<Vec<InstanceSlices>, LakeError> {
        let sql = "
            SELECT instance, count(*)::UBIGINT, min(first_event), max(last_event), sum(n_events)::UBIGINT,
                   sum(n_samples)::UBIGINT, sum(n_verdicts)::UBIGINT, sum(n_hours)::UBIGINT,
                   sum(last_event + 1 - first_event - n_events)::UBIGINT,
                   (SELECT min(hour_ns) FROM lake.due_hours AS due
                    WHERE due.instance = slices.instance AND NOT was_closed), max(committed_ns)
            FROM lake.slices GROUP BY instance ORDER BY max(committed_ns), instance";
        self.0.rows("reading the slices", sql, [], |row| {
            Ok(InstanceSlices {
                instance: row.get(0)?,
                slices: row.get(1)?,
                first_event: row.get(2)?,
                last_event: row.get(3)?,
                events: row.get(4)?,
                samples: row.get(5)?,
                verdicts: row.get(6)?,
                hours: row.get(7)?,
                missing_events: row.get(8)?,
                open_since_ns: row.get(9)?,
                committed_ns: row.get(10)?,
            })
        })
    }

    /// Returns the number and the size of the Parquet files with rows in use.
    pub fn files(&self) -> Result<LakeFiles, LakeError> {
        let sql = format!(
            "SELECT coalesce(sum(file_count), 0)::UBIGINT, coalesce(sum(file_size_bytes), 0)::UBIGINT
             FROM ducklake_table_info('{LAKE}')"
        );
        let files = self.0.rows("counting the files", &sql, [], |row| {
            Ok(LakeFiles {
                files: row.get(0)?,
                bytes: row.get(1)?,
            })
        })?;
        Ok(files.first().copied().unwrap_or_default())
    }

    /// Compares the rows of the tables with the slices. Reads the whole lake.
    pub fn verify(&self) -> Result<Verification, LakeError> {
        let instances = self.status()?;
        let mut problems = self.gaps()?;
        let tables = [
            ("event_rows", "event_id", "n_events"),
            ("sample_rows", "event_id, ordinal", "n_samples"),
            ("verdict_rows", "revision, incident", "n_verdicts"),
            (
                "cost_hour_rows",
                "hour_ns, cluster, node, gpu_model, revision",
                "n_hours",
            ),
        ];
        for (table, key, count) in tables {
            problems.extend(self.contradictions(table, key, count)?);
        }
        Ok(Verification {
            instances,
            problems,
        })
    }

    /// Slices that do not begin after the end of the one before.
    fn gaps(&self) -> Result<Vec<String>, LakeError> {
        let sql = "
            SELECT instance, first_event, before FROM (
                SELECT instance, first_event, lag(last_event) OVER
                    (PARTITION BY instance ORDER BY last_event, last_revision, committed_ns) AS before
                FROM lake.slices)
            WHERE first_event <> before + 1 ORDER BY ALL";
        self.0.rows("comparing slices", sql, [], |row| {
            let (instance, first, before): (String, u64, u64) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(format!(
                "instance {instance}: a slice ends with event {before}, and the next begins with {first}"
            ))
        })
    }

    fn contradictions(
        &self,
        table: &str,
        key: &str,
        count: &str,
    ) -> Result<Vec<String>, LakeError> {
        let doing = "comparing rows with slices";
        let read = |row: &duckdb::Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)));
        let deleted = if ["n_events", "n_samples"].contains(&count) {
            format!("UNION ALL SELECT instance, -{count}::HUGEINT FROM lake.deletions")
        } else {
            String::new()
        };
        let slices = format!(
            "SELECT instance, sum(n)::UBIGINT, sum(n)::UBIGINT
             FROM (SELECT instance, {count} AS n FROM lake.slices {deleted}) GROUP BY instance"
        );
        let rows = format!(
            "SELECT instance, sum(n)::UBIGINT, count(*)::UBIGINT
             FROM (SELECT instance, count(*) AS n FROM lake.{table} GROUP BY instance, {key})
             GROUP BY instance"
        );
        type Counts = BTreeMap<String, (u64, u64)>;
        let slices: Counts = self.0.rows(doing, &slices, [], read)?.into_iter().collect();
        let found: Counts = self.0.rows(doing, &rows, [], read)?.into_iter().collect();
        let mut problems = Vec::new();
        let names = slices.keys().chain(found.keys());
        let names: std::collections::BTreeSet<_> = names.collect();
        for name in names {
            let (expected, _) = slices.get(name).copied().unwrap_or_default();
            let (rows, distinct) = found.get(name).copied().unwrap_or_default();
            if rows != expected {
                problems.push(format!(
                    "instance {name}: {table} has {rows} rows, its slices less what was deleted have {expected}"
                ));
            }
            if rows != distinct {
                problems.push(format!(
                    "instance {name}: {table} has {} rows twice",
                    rows - distinct
                ));
            }
        }
        Ok(problems)
    }
}
