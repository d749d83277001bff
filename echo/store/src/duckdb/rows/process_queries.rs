//! Queries of reports on processes.

use echo_core::ids::{ClusterId, JobId, NodeId, Rank};
use echo_core::units::Window;
use fleet_proto::metric;

use super::event_queries::in_window;
use crate::duckdb::query::Query;
use crate::process_reports::{MAX_CHAIN_PAUSE_NANOS, ProcessQuery};

/// Processes with their first and last report.
pub(in crate::duckdb) fn processes(query: &ProcessQuery) -> Query {
    let found = Query::new(
        "SELECT cluster_id, node_id, job, rank, pid, max(process) AS process,
            min(coalesce(start_ns, timestamp_ns)) AS first_ns, max(timestamp_ns) AS last_ns
         FROM (
            SELECT cluster_id, node_id, job, rank, pid, process, start_ns, timestamp_ns FROM process_calls
            UNION ALL SELECT cluster_id, node_id, job, rank, pid, process, start_ns, timestamp_ns FROM process_chains
            UNION ALL SELECT cluster_id, node_id, job, rank, pid, process, start_ns, timestamp_ns FROM process_stacks
         ) WHERE TRUE",
    );
    filtered(found, query)
        .then("GROUP BY cluster_id, node_id, job, rank, pid")
        .bind(
            "ORDER BY cluster_id, node_id, job, rank, pid LIMIT ?",
            query.limit,
        )
}

/// Calls per process and function, with the durations of all periods one after another. Sums saturate at
/// the largest signed number of 64 bits.
pub(in crate::duckdb) fn calls(query: &ProcessQuery) -> Query {
    let found = Query::new(
        "SELECT cluster_id, node_id, job, rank, pid, max(process) AS process, function,
            if(sum(n_calls) > 9223372036854775807, 9223372036854775807, sum(n_calls))::UBIGINT AS n_calls, sum(total_ms) AS total_ms, max(max_ms) AS max_ms,
            string_agg(durations_ns, ' ') AS durations_ns,
            max(p99_ms) AS worst_p99_ms, if(sum(bytes) > 9223372036854775807, 9223372036854775807, sum(bytes))::UBIGINT AS bytes,
            max(max(timestamp_ns)) OVER one - min(min(coalesce(start_ns, timestamp_ns))) OVER one AS covered_ns
         FROM process_calls WHERE TRUE",
    );
    let found = filtered(found, query);
    let found = if query.only_graphs {
        found.then("AND (contains(function, 'Graph') OR contains(function, 'Capture'))")
    } else {
        found
    };
    found
        .then("GROUP BY cluster_id, node_id, job, rank, pid, function")
        .then("WINDOW one AS (PARTITION BY cluster_id, node_id, job, rank, pid)")
        .bind(
            "ORDER BY total_ms DESC, cluster_id, node_id, rank, pid, function LIMIT ?",
            query.limit,
        )
}

/// Latest states of causal chains. Runs of reports are numbered, so that the latest state knows when
/// its run began.
pub(in crate::duckdb) fn chains(query: &ProcessQuery) -> Query {
    let reports = Query::new(
        "SELECT cluster_id, node_id, job, rank, pid, process, cause, severity, share, summary, links, stack, advice,
            timestamp_ns AS last_ns,
            min(coalesce(start_ns, timestamp_ns)) OVER (PARTITION BY cluster_id, node_id, job, rank, pid, cause, run) AS since_ns,
            max(share) OVER chain AS max_share
         FROM (SELECT *, count(*) FILTER (is_new) OVER (
                PARTITION BY cluster_id, node_id, job, rank, pid, cause ORDER BY timestamp_ns
            ) AS run
         FROM (",
    )
    .bind(
        "SELECT *, timestamp_ns - lag(timestamp_ns) OVER (
                PARTITION BY cluster_id, node_id, job, rank, pid, cause ORDER BY timestamp_ns
            ) > ? AS is_new FROM process_chains WHERE TRUE",
        MAX_CHAIN_PAUSE_NANOS,
    );
    filtered(reports, query)
        .then(
            "))
         WINDOW chain AS (PARTITION BY cluster_id, node_id, job, rank, pid, cause)
         QUALIFY row_number() OVER (
            PARTITION BY cluster_id, node_id, job, rank, pid, cause ORDER BY timestamp_ns DESC, event_id DESC
         ) = 1",
        )
        .bind(
            "ORDER BY CASE severity WHEN 'high' THEN 0 WHEN 'medium' THEN 1 WHEN 'low' THEN 2 ELSE 3 END,
            share DESC NULLS LAST, cluster_id, node_id, rank, pid, cause LIMIT ?",
            query.limit,
        )
}

/// Samples per process, function and stack.
pub(in crate::duckdb) fn stacks(query: &ProcessQuery) -> Query {
    let found = Query::new(
        "SELECT cluster_id, node_id, job, rank, pid, max(process) AS process, function, stack,
            if(sum(samples) > 9223372036854775807, 9223372036854775807, sum(samples))::UBIGINT AS samples,
            if(sum(sum(samples)) OVER one > 9223372036854775807, 9223372036854775807, sum(sum(samples)) OVER one)::UBIGINT AS process_samples
         FROM process_stacks WHERE TRUE",
    );
    filtered(found, query)
        .then("GROUP BY cluster_id, node_id, job, rank, pid, function, stack")
        .then("WINDOW one AS (PARTITION BY cluster_id, node_id, job, rank, pid)")
        .bind(
            "ORDER BY samples DESC, cluster_id, node_id, rank, pid, function, stack LIMIT ?",
            query.limit,
        )
}

/// Parts of files about processes.
pub(in crate::duckdb) fn file_parts(query: &ProcessQuery) -> Query {
    let found = Query::new(
        r#"SELECT * EXCLUDE fields, fields[1] AS process, fields[2] AS name, fields[3] AS content
         FROM (
            SELECT timestamp_ns, cluster AS cluster_id, node AS node_id, job, rank,
                try_cast(attrs->>'$."process.pid"' AS UINTEGER) AS pid,
                try_cast(attrs->>'$."fleet.file.part"' AS UINTEGER) AS part,
                try_cast(attrs->>'$."fleet.file.parts"' AS UINTEGER) AS parts,
                json_extract_string(attrs, [
                    '$."process.executable.name"', '$."fleet.file.name"', '$."fleet.file.content"'
                ]) AS fields
            FROM event_rows JOIN origins ON origins.id = event_rows.origin JOIN series ON series.id = event_rows.series
            WHERE metric = 'fleet.process.file_bytes'
         ) WHERE name IS NOT NULL AND content IS NOT NULL AND part < parts"#,
    );
    filtered(found, query).bind(
        "ORDER BY timestamp_ns, cluster_id, node_id, rank, pid, name, part LIMIT ?",
        query.limit,
    )
}

/// Sum and last report of each metric about hosts, processes and agents, or of one of them, by node.
pub(in crate::duckdb) fn nodes(
    cluster: Option<&ClusterId>,
    window: Window,
    only: Option<&str>,
) -> Query {
    let found = Query::new(
        "SELECT cluster AS cluster_id, node AS node_id, metric,
            sum(coalesce(value, number::DOUBLE)) AS total, max(timestamp_ns) AS last_ns
         FROM event_rows JOIN origins ON origins.id = event_rows.origin JOIN series ON series.id = event_rows.series
         WHERE TRUE",
    );
    in_window(found, window)
        .bind_some(
            "AND cluster = ?",
            cluster.map(|cluster| cluster.as_str().to_owned()),
        )
        .bind(
            "AND (starts_with(metric, ?)",
            metric::HOST_EVIDENCE.to_owned(),
        )
        .bind("OR starts_with(metric, ?)", metric::PROCESS.to_owned())
        .bind("OR starts_with(metric, ?))", metric::AGENT.to_owned())
        .bind_some("AND metric = ?", only.map(str::to_owned))
        .then("GROUP BY cluster, node, metric ORDER BY cluster, node, metric")
}

fn filtered(query: Query, filters: &ProcessQuery) -> Query {
    let node = filters.node.as_ref().map(NodeId::as_str);
    in_window(query, filters.window)
        .bind_some(
            "AND cluster_id = ?",
            filters
                .cluster
                .as_ref()
                .map(|cluster| cluster.as_str().to_owned()),
        )
        .bind_some("AND node_id = ?", node.map(str::to_owned))
        .bind_some(
            "AND job = ?",
            filters.job.as_ref().map(JobId::as_str).map(str::to_owned),
        )
        .bind_some("AND rank = ?", filters.rank.map(Rank::value))
        .bind_some("AND pid = ?", filters.pid)
}
