//! Queries of events.

use echo_core::ids::{ClusterId, CommId, JobId, MetricName, Rank, RoleId};
use echo_core::model::event::Source;
use echo_core::units::{Nanos, Window};
use fleet_proto::metric;

use crate::duckdb::query::Query;
use crate::timeseries::{MAX_APART_NANOS, SAMPLE_MARGIN_NANOS, TimeBuckets, TimeseriesQuery};
use crate::{EventQuery, EvidenceQuery, JobQuery, WITH_ATTRS};

/// Events of a page, plus one if there are more.
pub(in crate::duckdb) fn page(query: &EventQuery) -> Query {
    let found = Query::new("SELECT * FROM event_rows WHERE TRUE");
    let found = in_window(found, query.window)
        .bind_some(
            "AND series IN (SELECT id FROM series WHERE metric = ?)",
            query.metric.as_ref().map(ToString::to_string),
        )
        .bind_some(
            "AND series IN (SELECT id FROM series WHERE op = ?)",
            query.op.as_ref().map(ToString::to_string),
        );
    let found = match query.cursor {
        Some(cursor) => found
            .bind("AND timestamp_ns <= ?", cursor.timestamp.value())
            .bind("AND (timestamp_ns < ?", cursor.timestamp.value())
            .bind("OR event_id < ?)", cursor.id),
        None => found,
    };
    let node = query.node.as_ref().map(|node| node.as_str().to_owned());
    let by_origin = query.cluster.is_some() || node.is_some() || query.rank.is_some();
    let found = if by_origin {
        let cluster = query.cluster.as_ref();
        found
            .then("AND origin IN (SELECT id FROM origins WHERE TRUE")
            .bind_some(
                "AND cluster = ?",
                cluster.map(|cluster| cluster.as_str().to_owned()),
            )
            .bind_some("AND node = ?", node)
            .bind_some("AND rank = ?", query.rank.map(Rank::value))
            .then(")")
    } else {
        found
    };
    found.bind(
        "ORDER BY timestamp_ns DESC, event_id DESC LIMIT ?",
        query.limit.saturating_add(1),
    )
}

/// Samples of the events with these numbers.
pub(in crate::duckdb) fn samples(ids: &[u64]) -> Query {
    // The engine's zone maps use the range.
    Query::new("SELECT * FROM sample_rows WHERE TRUE")
        .bind_some("AND event_id >= ?", ids.iter().min().copied())
        .bind_some("AND event_id <= ?", ids.iter().max().copied())
        .one_of("AND event_id", ids.iter().copied())
        .then("ORDER BY event_id, ordinal")
}

/// Samples of GPU waits, in the events numbered `first` to `last`.
pub(in crate::duckdb) fn device_samples(first: u64, last: u64) -> Query {
    Query::new("SELECT * FROM sample_rows WHERE TRUE")
        .bind("AND event_id >= ?", first)
        .bind("AND event_id <= ?", last)
        .bind(
            "AND event_id IN (SELECT event_id FROM event_rows WHERE event_id >= ?",
            first,
        )
        .bind("AND event_id <= ?", last)
        .bind(
            "AND series IN (SELECT id FROM series WHERE on_device AND metric = ?))",
            metric::WAIT.to_owned(),
        )
        .then("ORDER BY event_id, ordinal")
}

/// Events of the metrics with numbers above `after` and up to `until`, with only the attributes
/// that the detector reads, without host waits.
pub(in crate::duckdb) fn tail(
    after: u64,
    until: u64,
    metrics: &[MetricName],
    limit: usize,
) -> Query {
    Query::new("SELECT * EXCLUDE (attrs),")
        .one_of(
            "CASE WHEN series IN (SELECT id FROM series WHERE metric",
            WITH_ATTRS.iter().map(ToString::to_string),
        )
        .then(") THEN attrs ELSE '{}' END AS attrs FROM event_rows WHERE TRUE")
        .bind("AND event_id > ?", after)
        .bind("AND event_id <= ?", until)
        .one_of(
            "AND series IN (SELECT id FROM series WHERE metric",
            metrics.iter().map(ToString::to_string),
        )
        .bind("AND (metric <> ? OR on_device))", metric::WAIT.to_owned())
        .bind("ORDER BY event_id LIMIT ?", limit)
}

/// Kinds of host evidence that name tasks.
const TASK_METRICS: [&str; 2] = [metric::PREEMPTED_BY, metric::GPU_SHARED_BY];

/// Sums of host evidence of each of these queries, with its number as `asked`. Each part is in its own
/// time, which the engine's zone maps use.
pub(in crate::duckdb) fn host_evidence(queries: &[EvidenceQuery]) -> Query {
    let parts = (0_u32..).zip(queries).map(|(number, query)| {
        Query::new("SELECT")
            .bind("?::UINTEGER AS asked, * FROM (", number)
            .append(evidence_sums(query))
            .then(")")
    });
    let all = parts.reduce(|all, part| all.then("UNION ALL").append(part));
    all.unwrap_or_else(|| Query::new("SELECT 0::UINTEGER AS asked WHERE FALSE"))
}

/// Sums of host evidence by origin, metric and, where it has one, the attributes of its task, over
/// the operations of the rank's own blocks in its most frequent role.
fn evidence_sums(query: &EvidenceQuery) -> Query {
    let rows = "FROM event_rows JOIN series ON series.id = event_rows.series";
    let own =
        Query::new("WITH own AS (SELECT role, min(seq_first) AS first, max(seq_last) AS last")
            .then(rows)
            .then("WHERE iterations IS NOT NULL AND role IS NOT NULL");
    let (cluster, job) = (&query.cluster, query.job.as_ref());
    let own = of_job(in_window(own, query.span), cluster, job, Some(query.rank))
        .bind(
            "AND starts_with(metric, ?)",
            metric::HOST_EVIDENCE.to_owned(),
        )
        .then("GROUP BY role ORDER BY count(*) DESC, role LIMIT 1)");
    let sums = own
        .then("SELECT origin, metric,")
        .one_of(
            "CASE WHEN metric",
            TASK_METRICS.map(str::to_owned).into_iter(),
        )
        .then("THEN attrs END AS task_attrs,")
        .then("sum(coalesce(value, number::DOUBLE)) AS total, sum(iterations) AS iterations")
        .then(rows)
        .then("JOIN own ON series.role = own.role")
        .then("WHERE iterations IS NOT NULL AND seq_first >= first AND seq_last <= last");
    of_job(in_window(sums, query.window), cluster, job, None)
        .bind(
            "AND starts_with(metric, ?)",
            metric::HOST_EVIDENCE.to_owned(),
        )
        .then("GROUP BY origin, metric, task_attrs")
}

/// Operations per origin and communicator, and how many of them have times of a GPU.
pub(in crate::duckdb) fn timed_operations(cluster: Option<&ClusterId>, window: Window) -> Query {
    let rows = Query::new(
        "SELECT origin, comm, sum(seq_last - seq_first + 1)::DOUBLE AS operations,",
    )
    .then(
        "sum(number)::DOUBLE AS timed FROM event_rows JOIN series ON series.id = event_rows.series",
    )
    .then("WHERE on_device AND comm IS NOT NULL AND number IS NOT NULL AND value IS NOT NULL")
    .then("AND seq_first IS NOT NULL AND op NOT IN ('Send', 'Recv')")
    .bind("AND metric = ?", metric::DURATION.to_owned());
    of_cluster(in_window(rows, window), cluster).then("GROUP BY origin, comm")
}

/// Sums of signals per origin, series and bucket of the block's mean time.
pub(in crate::duckdb) fn timeseries(query: &TimeseriesQuery) -> Query {
    let (buckets, from) = (query.buckets, query.buckets.window().from().value());
    // NULL counts as one value, so that equal keys join. The engine keeps the signals, so they have no
    // other columns.
    let signals = Query::new("WITH signals AS (SELECT origin, series, timestamp_ns, number, value,")
        .then("iterations, anchor_seq, anchor_offset_ms,")
        .bind("metric = ? AS is_wait,", metric::WAIT.to_owned())
        .then("hash(coalesce(job, ''), is_wait, coalesce(role, comm), coalesce(seq_first, 0), coalesce(seq_last, 0)) AS block,")
        .bind("metric = ? AS is_arrival", metric::ARRIVAL.to_owned())
        .then("FROM event_rows JOIN origins ON origins.id = event_rows.origin JOIN series ON series.id = event_rows.series")
        .then("WHERE comm IS NOT NULL AND iterations IS NOT NULL AND number IS NOT NULL AND value IS NOT NULL")
        .one_of("AND metric", query.metrics.iter().map(ToString::to_string))
        .bind("AND (metric <> ? OR on_device)", metric::WAIT.to_owned());
    near_samples(in_window(signals, buckets.window()), buckets)
        .then("AND rank IS NOT NULL")
        .bind("AND cluster = ?),", query.cluster.as_str().to_owned())
        .bind(
            "blocks AS (SELECT avg(timestamp_ns - ?)::BIGINT AS after,",
            from,
        )
        .then("max(timestamp_ns) - min(timestamp_ns) AS apart, mode(anchor_seq) FILTER (is_arrival) AS anchor,")
        .then("block FROM signals GROUP BY block),")
        .then("bucketed AS (SELECT origin, series, number, value, iterations, block,")
        .bind("CASE WHEN apart <= ?", MAX_APART_NANOS)
        .then("AND is_arrival AND anchor_seq = anchor THEN anchor_offset_ms + value / nullif(number, 0) END AS arrival,")
        .bind("CASE WHEN apart <= ?", MAX_APART_NANOS)
        .bind("THEN after ELSE timestamp_ns - ? END AS after", from)
        .then("FROM signals JOIN blocks USING (block))")
        .then(
            ", centers AS (SELECT block AS of_block, quantile_disc(arrival, 0.5) AS center
            FROM bucketed WHERE arrival IS NOT NULL GROUP BY block)
            SELECT origin, series, sum(number)::DOUBLE AS samples, sum(value) AS total,
            sum(iterations) AS covered, count(arrival)::DOUBLE AS compared,
            coalesce(sum(arrival - center), 0) AS late,",
        )
        .bind(
            "(after // ?)::BIGINT AS bucket FROM bucketed LEFT JOIN centers ON of_block = block AND arrival IS NOT NULL",
            buckets.length_nanos(),
        )
        .bind("WHERE after % ?", buckets.length_nanos())
        .bind("< ? GROUP BY ALL", buckets.sampled_nanos())
}

/// Keeps the rows that can belong to a block in a sampled part. Most of the time that a map of thousands
/// of ranks takes is that of finding the blocks of its rows.
fn near_samples(query: Query, buckets: TimeBuckets) -> Query {
    let margin = SAMPLE_MARGIN_NANOS;
    let kept = buckets.sampled_nanos().saturating_add(2 * margin);
    if kept >= buckets.length_nanos() {
        return query;
    }
    let from = buckets.window().from().value().saturating_sub(margin);
    query
        .bind("AND (timestamp_ns - ?)", from)
        .bind("% ?", buckets.length_nanos())
        .bind("< ?", kept)
}

/// Events of a job, without attributes, highest number first.
pub(in crate::duckdb) fn job_events(query: &JobQuery) -> Query {
    let events = Query::new("SELECT * EXCLUDE (attrs) FROM event_rows WHERE series IN (")
        .then("SELECT id FROM series WHERE comm IS NOT NULL")
        .one_of("AND metric", query.metrics.iter().map(ToString::to_string))
        .bind_some("AND role = ?", query.role.map(RoleId::value))
        .bind_some("AND comm = ?", query.comm.map(CommId::value))
        .bind_some(
            "AND on_device = ?",
            query.source.map(|source| source == Source::Device),
        )
        .then(")");
    let mut events = of_job(
        in_window(events, query.window),
        &query.cluster,
        query.job.as_ref(),
        query.rank,
    );
    if let Some(blocks) = &query.blocks {
        events = events.then("AND (FALSE");
        for block in blocks {
            events = events
                .bind("OR seq_last >= ?", block.first())
                .bind("AND seq_last <= ?", block.last());
        }
        events = events.then(")");
    }
    events.bind("ORDER BY event_id DESC LIMIT ?", query.limit)
}

fn of_job(query: Query, cluster: &ClusterId, job: Option<&JobId>, rank: Option<Rank>) -> Query {
    let query = query.bind(
        "AND origin IN (SELECT id FROM origins WHERE rank IS NOT NULL AND cluster = ?",
        cluster.as_str().to_owned(),
    );
    let query = match job {
        Some(job) => query.bind("AND job = ?", job.as_str().to_owned()),
        None => query.then("AND job IS NULL"),
    };
    query
        .bind_some("AND rank = ?", rank.map(Rank::value))
        .then(")")
}

/// First and last event time from an instant on.
pub(in crate::duckdb) fn extent(cluster: Option<&ClusterId>, since: Option<Nanos>) -> Query {
    let ends =
        "SELECT min(timestamp_ns) AS first, max(timestamp_ns) AS last FROM event_rows WHERE TRUE";
    of_cluster(Query::new(ends), cluster)
        .bind_some("AND timestamp_ns >= ?", since.map(Nanos::value))
}

/// Time of the first event, as both ends.
pub(in crate::duckdb) fn first(cluster: &ClusterId) -> Query {
    let times = "SELECT timestamp_ns AS first, timestamp_ns AS last FROM event_rows WHERE TRUE";
    of_cluster(Query::new(times), Some(cluster)).then("ORDER BY timestamp_ns LIMIT 1")
}

pub(super) fn in_window(query: Query, window: Window) -> Query {
    query
        .bind("AND timestamp_ns >= ?", window.from().value())
        .bind("AND timestamp_ns < ?", window.to().value())
}

fn of_cluster(query: Query, cluster: Option<&ClusterId>) -> Query {
    query.bind_some(
        "AND origin IN (SELECT id FROM origins WHERE cluster = ?)",
        cluster.map(|cluster| cluster.as_str().to_owned()),
    )
}
