-- Costs of whole hours, stored when the hour is over, so that they outlive the events that they rest on. Rows are only added:
-- of an hour and cluster the rows with the highest revision count, the earlier ones say what was held true before.

CREATE TABLE cost_hour_rows (
    hour_ns         BIGINT   NOT NULL,
    cluster         VARCHAR  NOT NULL,
    node            VARCHAR  NOT NULL,
    gpu_model       VARCHAR,
    revision        UBIGINT  NOT NULL,
    computed_ns     BIGINT   NOT NULL,
    gpus            UINTEGER NOT NULL,
    allocated_us    BIGINT   NOT NULL,    -- whole microseconds, so that sums are exact
    lost_us         BIGINT   NOT NULL,
    ranks_reporting UINTEGER NOT NULL,
    ranks_expected  UINTEGER NOT NULL
);

-- Hours in which something was stored since they were closed; written in the same transaction as what was stored.
CREATE TABLE due_hour_rows (
    hour_ns BIGINT NOT NULL
);

-- Everything in a database of an earlier version has to be computed for the first time.
INSERT INTO due_hour_rows
SELECT DISTINCT timestamp_ns - timestamp_ns % 3600000000000 FROM event_rows
UNION
SELECT from_ns - from_ns % 3600000000000 FROM lost_rows;

CREATE VIEW cost_hour_history AS
SELECT
    hour_ns,
    cluster AS cluster_id,
    node AS node_id,
    gpu_model,
    lost_us / 3600000000 AS lost_gpu_hours,
    allocated_us / 3600000000 AS allocated_gpu_hours,
    lost_us,
    allocated_us,
    gpus,
    ranks_reporting,
    ranks_expected,
    revision,
    computed_ns
FROM cost_hour_rows;

COMMENT ON VIEW cost_hour_history IS 'Every revision of every closed hour: late data and late conclusions give an hour a further one.';
COMMENT ON COLUMN cost_hour_history.hour_ns IS 'Beginning of the hour, event time in Unix nanoseconds.';
COMMENT ON COLUMN cost_hour_history.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN cost_hour_history.node_id IS 'Node.';
COMMENT ON COLUMN cost_hour_history.gpu_model IS 'Model of the GPUs.';
COMMENT ON COLUMN cost_hour_history.lost_gpu_hours IS 'GPU-hours lost, never below 0 for one incident in one hour.';
COMMENT ON COLUMN cost_hour_history.allocated_gpu_hours IS 'GPU-hours in which ranks reported, from the first to the last event of each.';
COMMENT ON COLUMN cost_hour_history.lost_us IS 'The same as lost_gpu_hours in whole microseconds, whose sums are exact.';
COMMENT ON COLUMN cost_hour_history.allocated_us IS 'The same as allocated_gpu_hours in whole microseconds.';
COMMENT ON COLUMN cost_hour_history.gpus IS 'Ranks on these GPUs that reported.';
COMMENT ON COLUMN cost_hour_history.ranks_reporting IS 'Ranks of the whole cluster that reported in the hour.';
COMMENT ON COLUMN cost_hour_history.ranks_expected IS 'Ranks that the reporting jobs of the cluster have.';
COMMENT ON COLUMN cost_hour_history.revision IS 'Number of the revision of this hour and cluster, from 1.';
COMMENT ON COLUMN cost_hour_history.computed_ns IS 'When it was computed, on the clock of Echo; Unix nanoseconds.';

DROP VIEW cost_hours;

CREATE VIEW cost_hours AS
WITH per_incident AS (
    SELECT
        from_ns - from_ns % 3600000000000 AS hour_ns,
        cluster_id,
        node_id,
        gpu_model,
        incident_id,
        sum(lost_gpu_ms) AS lost_gpu_ms
    FROM lost_time
    WHERE from_ns - from_ns % 3600000000000 NOT IN (SELECT hour_ns FROM cost_hour_rows)
    GROUP BY ALL
),
shared AS (
    SELECT
        *,
        greatest(sum(lost_gpu_ms) OVER incident, 0)
            * greatest(lost_gpu_ms, 0)
            / nullif(sum(greatest(lost_gpu_ms, 0)) OVER incident, 0) AS part_ms
    FROM per_incident
    WINDOW incident AS (PARTITION BY hour_ns, incident_id)
)
SELECT *
FROM cost_hour_history
QUALIFY revision = max(revision) OVER (PARTITION BY hour_ns, cluster_id)
UNION ALL
SELECT
    hour_ns,
    cluster_id,
    node_id,
    gpu_model,
    coalesce(sum(part_ms), 0) / 3600000,
    NULL,
    (coalesce(sum(part_ms), 0) * 1000)::BIGINT,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
FROM shared
GROUP BY hour_ns, cluster_id, node_id, gpu_model;

COMMENT ON VIEW cost_hours IS 'GPU-hours allocated and lost per hour, cluster, node and GPU model: closed hours in their latest revision, and of hours that are not closed yet (revision absent) what is known of the losses. An interval counts for the hour it begins in.';
COMMENT ON COLUMN cost_hours.hour_ns IS 'Beginning of the hour, event time in Unix nanoseconds.';
COMMENT ON COLUMN cost_hours.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN cost_hours.node_id IS 'Node.';
COMMENT ON COLUMN cost_hours.gpu_model IS 'Model of the GPUs.';
COMMENT ON COLUMN cost_hours.lost_gpu_hours IS 'GPU-hours lost, never below 0 for one incident in one hour.';
COMMENT ON COLUMN cost_hours.allocated_gpu_hours IS 'GPU-hours in which ranks reported, from the first to the last event of each.';
COMMENT ON COLUMN cost_hours.lost_us IS 'The same as lost_gpu_hours in whole microseconds, whose sums are exact.';
COMMENT ON COLUMN cost_hours.allocated_us IS 'The same as allocated_gpu_hours in whole microseconds.';
COMMENT ON COLUMN cost_hours.gpus IS 'Ranks on these GPUs that reported.';
COMMENT ON COLUMN cost_hours.ranks_reporting IS 'Ranks of the whole cluster that reported in the hour.';
COMMENT ON COLUMN cost_hours.ranks_expected IS 'Ranks that the reporting jobs of the cluster have.';
COMMENT ON COLUMN cost_hours.revision IS 'Number of the revision of this hour and cluster, from 1; absent while the hour is not closed.';
COMMENT ON COLUMN cost_hours.computed_ns IS 'When it was computed, on the clock of Echo; Unix nanoseconds.';
