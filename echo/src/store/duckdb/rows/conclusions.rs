//! Incidents, lost time and policies.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use duckdb::{Connection, params};

use crate::ids::{ClusterId, IncidentId, JobId, Rank};
use crate::model::conclusion::{
    Baseline, CauseClass, Conclusions, Condition, ConditionKind, Culprit, Finding, Incident,
    IncidentState, LostTime, Severity, Signal,
};
use crate::model::event::Source;
use crate::store::duckdb::EngineResult;
use crate::store::duckdb::rows::column::{self, Columns, Unexpected, malformed};
use crate::store::duckdb::rows::filter::Query;
use crate::store::duckdb::rows::row::Row;
use crate::units::{Nanos, Window};

const CULPRIT: &str = "culprit";
const OPEN: &str = "open";
const CLEARED: &str = "cleared";
const NONE: &str = "none";

/// Appends conclusions; their rows are numbered from `revision` on. Returns the number after the last.
pub(in crate::store::duckdb) fn append(
    connection: &Connection,
    conclusions: &Conclusions,
    (revision, now): (u64, Nanos),
) -> EngineResult<u64> {
    let incidents: Vec<_> = (revision..).zip(&conclusions.incidents).collect();
    column::append(connection, "verdict_rows", &incidents, |columns| {
        let columns = columns
            .u64("revision", |(revision, _)| *revision)
            .i64("revised_ns", |_| now.value());
        judgement_columns(finding_columns(identity_columns(columns)))
    })?;
    let revision = revision + conclusions.incidents.len() as u64;
    let lost: Vec<_> = (revision..).zip(&conclusions.lost).collect();
    column::append(connection, "lost_rows", &lost, |columns| {
        columns
            .u64("revision", |(revision, _)| *revision)
            .u64("incident", |(_, lost)| lost.incident.value())
            .text("cluster", |(_, lost)| lost.cluster.as_str())
            .text("node", |(_, lost)| lost.node.as_str())
            .maybe_text("gpu_model", |(_, lost)| lost.gpu_model.as_deref())
            .i64("from_ns", |(_, lost)| lost.interval.from().value())
            .i64("to_ns", |(_, lost)| lost.interval.to().value())
            .u32("n_ranks", |(_, lost)| lost.n_ranks)
            .f64("iterations", |(_, lost)| lost.iterations)
            .f64("lost_gpu_ms", |(_, lost)| lost.lost_gpu_ms)
    })?;
    let revision = revision + conclusions.lost.len() as u64;
    let policies: Vec<_> = (revision..).zip(&conclusions.policies).collect();
    column::append(connection, "policy_rows", &policies, |columns| {
        columns
            .u64("revision", |(revision, _)| *revision)
            .text("cluster", |(_, policy)| policy.cluster.as_str())
            .u64("version", |(_, policy)| policy.version)
            .i64("computed_ns", |(_, policy)| policy.computed_at.value())
            .bytes("encoded", |(_, policy)| &policy.encoded)
    })?;
    Ok(revision + conclusions.policies.len() as u64)
}

type IncidentRow<'c> = (u64, &'c Incident);

fn identity_columns<'r, 'c>(columns: Columns<'r, IncidentRow<'c>>) -> Columns<'r, IncidentRow<'c>> {
    columns
        .u64("incident", |(_, incident)| incident.id.value())
        .text("cluster", |(_, incident)| incident.cluster.as_str())
        .maybe_text("job", |(_, incident)| {
            incident.job.as_ref().map(JobId::as_str)
        })
        .text("cohort", |(_, incident)| &incident.cohort)
}

fn finding_columns<'r, 'c>(columns: Columns<'r, IncidentRow<'c>>) -> Columns<'r, IncidentRow<'c>> {
    columns
        .text("finding", |(_, incident)| match &incident.finding {
            Finding::Culprit(_) => CULPRIT,
            Finding::Condition(condition) => condition.kind.name(),
        })
        .maybe_text("finding_reason", |(_, incident)| match &incident.finding {
            Finding::Condition(condition) => Some(condition.detail.as_str()),
            Finding::Culprit(_) => None,
        })
        .maybe_u32("rank", |row| {
            culprit(row).map(|culprit| culprit.rank.value())
        })
        .maybe_text("node", |row| {
            culprit(row).map(|culprit| culprit.node.as_str())
        })
        .maybe_text("gpu_uuid", |row| culprit(row)?.gpu_uuid.as_deref())
        .maybe_text("class", |row| {
            culprit(row).map(|culprit| culprit.class.name())
        })
        .maybe_text("signal", |row| {
            culprit(row).map(|culprit| culprit.signal.name())
        })
        .maybe_f64("lag_ms", |row| culprit(row).map(|culprit| culprit.lag_ms))
        .maybe_f64("z", |row| culprit(row).map(|culprit| culprit.z))
}

fn judgement_columns<'r, 'c>(
    columns: Columns<'r, IncidentRow<'c>>,
) -> Columns<'r, IncidentRow<'c>> {
    columns
        .text("state", |(_, incident)| match incident.state {
            IncidentState::Open => OPEN,
            IncidentState::Cleared => CLEARED,
        })
        .i64("first_seen_ns", |(_, incident)| incident.first_seen.value())
        .i64("last_seen_ns", |(_, incident)| incident.last_seen.value())
        .i64("raised_ns", |(_, incident)| incident.raised_at.value())
        .f64("first_iteration", |(_, incident)| incident.first_iteration)
        .f64("raised_iteration", |(_, incident)| {
            incident.raised_iteration
        })
        .maybe_f64("cleared_iteration", |(_, incident)| {
            incident.cleared_iteration
        })
        .u32("occurrences", |(_, incident)| incident.occurrences)
        .f64("effect_ratio", |(_, incident)| incident.effect_ratio)
        .f64("period_ms", |(_, incident)| incident.period_ms)
        .text("baseline", |(_, incident)| incident.baseline.name())
        .f64("baseline_period_ms", |(_, incident)| {
            incident.baseline.period_ms()
        })
        .f64("confidence", |(_, incident)| incident.confidence)
        .text("reason", |(_, incident)| &incident.reason)
}

const fn culprit<'c>((_, incident): &IncidentRow<'c>) -> Option<&'c Culprit> {
    match &incident.finding {
        Finding::Culprit(culprit) => Some(culprit),
        Finding::Condition(_) => None,
    }
}

/// The first number that no revision has.
pub(in crate::store::duckdb) fn next_revision(connection: &Connection) -> EngineResult<u64> {
    connection.query_row(
        "SELECT 1 + greatest(
            (SELECT coalesce(max(revision), 0) FROM verdict_rows),
            (SELECT coalesce(max(revision), 0) FROM lost_rows),
            (SELECT coalesce(max(revision), 0) FROM policy_rows))",
        [],
        |row| row.get(0),
    )
}

/// Drops states of incidents from before `cutoff`, except the last of each hour and kind, and lost time that was
/// corrected later.
pub(in crate::store::duckdb) fn compact(
    connection: &Connection,
    cutoff: Nanos,
) -> EngineResult<()> {
    connection.execute(
        "DELETE FROM verdict_rows
         WHERE revised_ns < ? AND revision NOT IN (
            SELECT max(revision) FROM verdict_rows
            GROUP BY incident, state, revised_ns // 3600000000000)",
        params![cutoff.value()],
    )?;
    connection.execute(
        "DELETE FROM lost_rows WHERE revision NOT IN (
            SELECT max(revision) FROM lost_rows
            GROUP BY incident, node, gpu_model, from_ns, to_ns)",
        [],
    )?;
    Ok(())
}

/// The latest state of each incident that was open at any time in the window.
pub(in crate::store::duckdb) fn incidents(cluster: Option<&ClusterId>, window: Window) -> Query {
    Query::new(
        "SELECT * FROM (
            SELECT * FROM verdict_rows
            QUALIFY row_number() OVER (PARTITION BY incident ORDER BY revision DESC) = 1
         ) WHERE TRUE",
    )
    .bind("AND first_seen_ns < ?", window.to().value())
    .bind("AND (state = ?", OPEN.to_owned())
    .bind("OR last_seen_ns >= ?)", window.from().value())
    .maybe(
        "AND cluster = ?",
        cluster.map(|cluster| cluster.as_str().to_owned()),
    )
    .then("ORDER BY first_seen_ns, incident")
}

/// The latest account of each interval of lost time that begins in the window.
pub(in crate::store::duckdb) fn lost_time(cluster: Option<&ClusterId>, window: Window) -> Query {
    Query::new("SELECT * FROM lost_rows WHERE TRUE")
        .bind("AND from_ns >= ?", window.from().value())
        .bind("AND from_ns < ?", window.to().value())
        .maybe(
            "AND cluster = ?",
            cluster.map(|cluster| cluster.as_str().to_owned()),
        )
        .then(
            "QUALIFY row_number() OVER (
                PARTITION BY incident, node, gpu_model, from_ns, to_ns ORDER BY revision DESC) = 1
             ORDER BY from_ns, to_ns, incident, node, gpu_model NULLS FIRST",
        )
}

/// The incidents in a batch of rows.
pub(in crate::store::duckdb) fn read_incidents(batch: &RecordBatch) -> EngineResult<Vec<Incident>> {
    (0..batch.num_rows())
        .map(|row| Row::new(batch, row).incident())
        .collect()
}

/// The lost time in a batch of rows.
pub(in crate::store::duckdb) fn read_lost_time(batch: &RecordBatch) -> EngineResult<Vec<LostTime>> {
    (0..batch.num_rows())
        .map(|row| Row::new(batch, row).lost_time())
        .collect()
}

impl Row<'_> {
    fn incident(&self) -> EngineResult<Incident> {
        let period_ms = self.f64("baseline_period_ms")?;
        Ok(Incident {
            id: IncidentId::new(self.u64("incident")?),
            cluster: self.id("cluster")?,
            job: self.maybe_id("job")?,
            cohort: Arc::from(self.text("cohort")?),
            finding: self.finding()?,
            state: match self.text("state")? {
                OPEN => IncidentState::Open,
                CLEARED => IncidentState::Cleared,
                _ => return Err(malformed(Unexpected("state"))),
            },
            first_seen: Nanos::new(self.i64("first_seen_ns")?),
            last_seen: Nanos::new(self.i64("last_seen_ns")?),
            raised_at: Nanos::new(self.i64("raised_ns")?),
            first_iteration: self.f64("first_iteration")?,
            raised_iteration: self.f64("raised_iteration")?,
            cleared_iteration: self.maybe_f64("cleared_iteration")?,
            cleared_at: None,
            is_provisional: false,
            severity: Severity::Info,
            stability: 1.0,
            occurrences: self.u32("occurrences")?,
            effect_ratio: self.f64("effect_ratio")?,
            period_ms: self.f64("period_ms")?,
            baseline: match self.text("baseline")? {
                NONE => Baseline::None { period_ms },
                _ => Baseline::History { period_ms },
            },
            confidence: self.f64("confidence")?,
            reason: self.text("reason")?.to_owned(),
            inputs: None,
        })
    }

    fn finding(&self) -> EngineResult<Finding> {
        match self.text("finding")? {
            CULPRIT => Ok(Finding::Culprit(Culprit {
                rank: Rank::new(self.u32("rank")?),
                node: self.id("node")?,
                gpu_uuid: self.maybe_text("gpu_uuid")?.map(Arc::from),
                class: CauseClass::Host,
                signal: Signal::ALL
                    .into_iter()
                    .find(|signal| self.text("signal").is_ok_and(|name| name == signal.name()))
                    .ok_or_else(|| malformed(Unexpected("signal")))?,
                lag_ms: self.f64("lag_ms")?,
                z: self.f64("z")?,
                source: Source::Host,
                victims: Vec::new(),
            })),
            name => {
                let kind = ConditionKind::ALL
                    .into_iter()
                    .find(|kind| kind.name() == name)
                    .ok_or_else(|| malformed(Unexpected("finding")))?;
                Ok(Finding::Condition(Condition {
                    kind,
                    ranks: Vec::new(),
                    detail: self.maybe_text("finding_reason")?.unwrap_or("").to_owned(),
                }))
            }
        }
    }

    fn lost_time(&self) -> EngineResult<LostTime> {
        let interval = Window::new(
            Nanos::new(self.i64("from_ns")?),
            Nanos::new(self.i64("to_ns")?),
        );
        Ok(LostTime {
            incident: IncidentId::new(self.u64("incident")?),
            cluster: self.id("cluster")?,
            node: self.id("node")?,
            gpu_model: self.maybe_text("gpu_model")?.map(Arc::from),
            interval: interval.ok_or_else(|| malformed(Unexpected("to_ns")))?,
            n_ranks: self.u32("n_ranks")?,
            iterations: self.f64("iterations")?,
            lost_gpu_ms: self.f64("lost_gpu_ms")?,
        })
    }
}
