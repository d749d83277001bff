//! States of incidents.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use duckdb::Connection;
use echo_core::ids::{ClusterId, IncidentId, JobId, NodeId, Rank};
use echo_core::model::detector_output::{
    Baseline, CauseClass, Condition, ConditionKind, Culprit, Finding, Incident, IncidentState,
    Severity, Signal,
};
use echo_core::model::event::Source;
use echo_core::units::{Nanos, Window};

use crate::duckdb::engine::EngineResult;
use crate::duckdb::query::Query;
use crate::duckdb::rows::column::{self, Columns, Unexpected, malformed};
use crate::duckdb::rows::inputs;
use crate::duckdb::rows::row::Row;

const CULPRIT: &str = "culprit";
const OPEN: &str = "open";
const CLEARED: &str = "cleared";
const NONE: &str = "none";

/// State of an incident with its encoded inputs.
#[derive(Debug)]
struct VerdictRow<'c> {
    revision: u64,
    incident: &'c Incident,
    /// JSON.
    inputs: Option<String>,
}

impl<'c> VerdictRow<'c> {
    fn new(revision: u64, incident: &'c Incident) -> EngineResult<Self> {
        let inputs = incident.inputs.as_deref().map(inputs::write);
        Ok(Self {
            revision,
            incident,
            inputs: inputs.transpose().map_err(malformed)?,
        })
    }

    const fn culprit(&self) -> Option<&'c Culprit> {
        match &self.incident.finding {
            Finding::Culprit(culprit) => Some(culprit),
            Finding::Condition(_) => None,
        }
    }

    const fn condition(&self) -> Option<&'c Condition> {
        match &self.incident.finding {
            Finding::Culprit(_) => None,
            Finding::Condition(condition) => Some(condition),
        }
    }

    const fn node(&self) -> Option<&'c NodeId> {
        match &self.incident.finding {
            Finding::Culprit(culprit) => Some(&culprit.node),
            Finding::Condition(condition) => condition.node.as_ref(),
        }
    }
}

/// Appends states of incidents, numbered from `revision` on.
pub(super) fn append(
    connection: &Connection,
    incidents: &[Incident],
    revision: u64,
    now: Nanos,
) -> EngineResult<()> {
    let rows = (revision..).zip(incidents);
    let rows = rows.map(|(revision, incident)| VerdictRow::new(revision, incident));
    let rows: Vec<_> = rows.collect::<EngineResult<_>>()?;
    column::append(connection, "verdict_rows", &rows, |columns| {
        let columns = columns
            .u64("revision", |row| row.revision)
            .i64("revised_ns", |_| now.value());
        judgement_columns(finding_columns(identity_columns(columns)))
    })
}

fn identity_columns<'r, 'c>(columns: Columns<'r, VerdictRow<'c>>) -> Columns<'r, VerdictRow<'c>> {
    columns
        .u64("incident", |row| row.incident.id.value())
        .text("cluster", |row| row.incident.cluster.as_str())
        .maybe_text("job", |row| row.incident.job.as_ref().map(JobId::as_str))
        .text("cohort", |row| &row.incident.cohort)
}

fn finding_columns<'r, 'c>(columns: Columns<'r, VerdictRow<'c>>) -> Columns<'r, VerdictRow<'c>> {
    columns
        .text("finding", |row| match &row.incident.finding {
            Finding::Culprit(_) => CULPRIT,
            Finding::Condition(condition) => condition.kind.name(),
        })
        .maybe_text("finding_reason", |row| {
            row.condition().map(|condition| condition.detail.as_str())
        })
        .maybe_u32("rank", |row| {
            row.culprit().map(|culprit| culprit.rank.value())
        })
        .maybe_text("node", |row| row.node().map(NodeId::as_str))
        .maybe_text("gpu_uuid", |row| row.culprit()?.gpu_uuid.as_deref())
        .maybe_text("class", |row| {
            row.culprit().map(|culprit| culprit.class.name())
        })
        .maybe_text("signal", |row| {
            row.culprit().map(|culprit| culprit.signal.name())
        })
        .maybe_f64("lag_ms", |row| row.culprit().map(|culprit| culprit.lag_ms))
        .maybe_f64("z", |row| row.culprit().map(|culprit| culprit.z))
        .maybe_text("source", |row| {
            row.culprit().map(|culprit| culprit.source.name())
        })
        .maybe_list("ranks", |row| {
            let ranks = &row.condition()?.ranks;
            Some(ranks.iter().map(|rank| Some(rank.value())))
        })
        .bool("standstill", |row| {
            row.condition()
                .is_some_and(|condition| condition.is_standstill)
        })
        .bool("explained", |row| {
            row.condition()
                .is_some_and(|condition| condition.is_explained)
        })
}

fn judgement_columns<'r, 'c>(columns: Columns<'r, VerdictRow<'c>>) -> Columns<'r, VerdictRow<'c>> {
    columns
        .text("state", |row| match row.incident.state {
            IncidentState::Open => OPEN,
            IncidentState::Cleared => CLEARED,
        })
        .bool("provisional", |row| row.incident.is_provisional)
        .text("severity", |row| row.incident.severity.name())
        .f64("stability", |row| row.incident.stability)
        .i64("first_seen_ns", |row| row.incident.first_seen.value())
        .i64("last_seen_ns", |row| row.incident.last_seen.value())
        .i64("raised_ns", |row| row.incident.raised_at.value())
        .maybe_i64("cleared_ns", |row| {
            row.incident.cleared_at.map(Nanos::value)
        })
        .f64("first_iteration", |row| row.incident.first_iteration)
        .f64("raised_iteration", |row| row.incident.raised_iteration)
        .maybe_f64("cleared_iteration", |row| row.incident.cleared_iteration)
        .u32("occurrences", |row| row.incident.occurrences)
        .f64("effect_ratio", |row| row.incident.effect_ratio)
        .f64("period_ms", |row| row.incident.period_ms)
        .text("baseline", |row| row.incident.baseline.name())
        .f64("baseline_period_ms", |row| {
            row.incident.baseline.period_ms()
        })
        .f64("confidence", |row| row.incident.confidence)
        .text("reason", |row| &row.incident.reason)
        .maybe_text("inputs", |row| row.inputs.as_deref())
}

/// Latest state of each incident that was open at any time in the window.
pub(in crate::duckdb) fn incidents(cluster: Option<&ClusterId>, window: Window) -> Query {
    Query::new(
        "SELECT * FROM (
            SELECT * FROM verdict_rows
            QUALIFY row_number() OVER (PARTITION BY incident ORDER BY revision DESC) = 1
         ) WHERE TRUE",
    )
    .bind("AND first_seen_ns < ?", window.to().value())
    .bind("AND (state = ?", OPEN.to_owned())
    .bind(
        "OR coalesce(cleared_ns, last_seen_ns) >= ?)",
        window.from().value(),
    )
    .bind_some(
        "AND cluster = ?",
        cluster.map(|cluster| cluster.as_str().to_owned()),
    )
    .then("ORDER BY first_seen_ns, incident")
}

/// Incidents in a batch of rows.
pub(in crate::duckdb) fn read_incidents(batch: &RecordBatch) -> EngineResult<Vec<Incident>> {
    (0..batch.num_rows())
        .map(|row| Row::new(batch, row).incident())
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
            cleared_at: self.maybe_i64("cleared_ns")?.map(Nanos::new),
            is_provisional: self.bool("provisional")?,
            severity: self.named("severity", Severity::ALL, |level| level.name())?,
            stability: self.f64("stability")?,
            occurrences: self.u32("occurrences")?,
            effect_ratio: self.f64("effect_ratio")?,
            period_ms: self.f64("period_ms")?,
            baseline: match self.text("baseline")? {
                NONE => Baseline::None { period_ms },
                _ => Baseline::History { period_ms },
            },
            confidence: self.f64("confidence")?,
            reason: self.text("reason")?.to_owned(),
            inputs: self
                .maybe_text("inputs")?
                .and_then(inputs::read)
                .map(Arc::new),
        })
    }

    fn finding(&self) -> EngineResult<Finding> {
        if self.text("finding")? != CULPRIT {
            return Ok(Finding::Condition(Condition {
                kind: self.named("finding", ConditionKind::ALL, |kind| kind.name())?,
                node: self.maybe_id("node")?,
                ranks: self.list("ranks")?.into_iter().map(Rank::new).collect(),
                is_standstill: self.bool("standstill")?,
                is_explained: self.bool("explained")?,
                detail: self.maybe_text("finding_reason")?.unwrap_or("").to_owned(),
            }));
        }
        Ok(Finding::Culprit(Culprit {
            rank: Rank::new(self.u32("rank")?),
            node: self.id("node")?,
            gpu_uuid: self.maybe_text("gpu_uuid")?.map(Arc::from),
            class: self.named("class", CauseClass::ALL, |class| class.name())?,
            signal: self.named("signal", Signal::ALL, |signal| signal.name())?,
            lag_ms: self.f64("lag_ms")?,
            z: self.f64("z")?,
            source: self.named("source", [Source::Host, Source::Device], |source| {
                source.name()
            })?,
        }))
    }
}
