-- What Echo concluded from the events. Rows are only added: the one with the highest revision counts, the earlier ones
-- say what Echo held true before.

CREATE TABLE verdict_rows (
    revision           UBIGINT  NOT NULL,
    revised_ns         BIGINT   NOT NULL,
    incident           UBIGINT  NOT NULL,
    cluster            VARCHAR  NOT NULL,
    job                VARCHAR,
    cohort             VARCHAR  NOT NULL,
    finding            VARCHAR  NOT NULL,
    finding_reason     VARCHAR,
    rank               UINTEGER,
    node               VARCHAR,
    gpu_uuid           VARCHAR,
    class              VARCHAR,
    signal             VARCHAR,
    lag_ms             DOUBLE,
    z                  DOUBLE,
    state              VARCHAR  NOT NULL,
    first_seen_ns      BIGINT   NOT NULL,
    last_seen_ns       BIGINT   NOT NULL,
    raised_ns          BIGINT   NOT NULL,
    first_iteration    DOUBLE   NOT NULL,
    raised_iteration   DOUBLE   NOT NULL,
    cleared_iteration  DOUBLE,
    occurrences        UINTEGER NOT NULL,
    effect_ratio       DOUBLE   NOT NULL,
    period_ms          DOUBLE   NOT NULL,
    baseline           VARCHAR  NOT NULL,
    baseline_period_ms DOUBLE   NOT NULL,
    confidence         DOUBLE   NOT NULL,
    reason             VARCHAR  NOT NULL
);

CREATE TABLE lost_rows (
    revision    UBIGINT  NOT NULL,
    incident    UBIGINT  NOT NULL,
    cluster     VARCHAR  NOT NULL,
    node        VARCHAR  NOT NULL,
    gpu_model   VARCHAR,
    from_ns     BIGINT   NOT NULL,
    to_ns       BIGINT   NOT NULL,
    n_ranks     UINTEGER NOT NULL,
    iterations  DOUBLE   NOT NULL,
    lost_gpu_ms DOUBLE   NOT NULL
);

CREATE TABLE policy_rows (
    revision    UBIGINT NOT NULL,
    cluster     VARCHAR NOT NULL,
    version     UBIGINT NOT NULL,
    computed_ns BIGINT  NOT NULL,
    encoded     BLOB    NOT NULL
);

CREATE VIEW verdict_history AS
SELECT
    format('{:016x}', incident) AS incident_id,
    revision,
    revised_ns,
    cluster AS cluster_id,
    job,
    cohort,
    finding,
    finding_reason,
    rank,
    node AS node_id,
    gpu_uuid,
    class,
    signal,
    lag_ms,
    z,
    state,
    first_seen_ns,
    last_seen_ns,
    raised_ns,
    first_iteration,
    raised_iteration,
    cleared_iteration,
    occurrences,
    effect_ratio,
    period_ms,
    baseline,
    baseline_period_ms,
    confidence,
    reason
FROM verdict_rows;

COMMENT ON VIEW verdict_history IS 'Every state of every incident; states between the last of each hour are dropped after a day. Columns as in verdicts.';

CREATE VIEW verdicts AS
SELECT *
FROM verdict_history
QUALIFY row_number() OVER (PARTITION BY incident_id ORDER BY revision DESC) = 1;

COMMENT ON VIEW verdicts IS 'The latest state of each incident.';
COMMENT ON COLUMN verdicts.incident_id IS 'The incident, 16 hexadecimal digits.';
COMMENT ON COLUMN verdicts.revision IS 'Number of this state, growing over all incidents.';
COMMENT ON COLUMN verdicts.revised_ns IS 'When Echo stored this state, on the clock of Echo; Unix nanoseconds.';
COMMENT ON COLUMN verdicts.cluster_id IS 'Cluster of the cohort.';
COMMENT ON COLUMN verdicts.job IS 'Job of the cohort.';
COMMENT ON COLUMN verdicts.cohort IS 'Cohort whose ranks were compared.';
COMMENT ON COLUMN verdicts.finding IS 'culprit, uniform_slowdown or inconclusive.';
COMMENT ON COLUMN verdicts.finding_reason IS 'Why it is inconclusive.';
COMMENT ON COLUMN verdicts.rank IS 'Rank that holds back the cohort.';
COMMENT ON COLUMN verdicts.node_id IS 'Node of that rank.';
COMMENT ON COLUMN verdicts.gpu_uuid IS 'GPU of that rank.';
COMMENT ON COLUMN verdicts.class IS 'Class of the cause.';
COMMENT ON COLUMN verdicts.signal IS 'Signal that convicted the rank.';
COMMENT ON COLUMN verdicts.lag_ms IS 'How much later than the median of its peers it is, milliseconds per iteration.';
COMMENT ON COLUMN verdicts.z IS 'Modified z-score of that lag.';
COMMENT ON COLUMN verdicts.state IS 'open or cleared.';
COMMENT ON COLUMN verdicts.first_seen_ns IS 'Beginning of the first affected iteration, event time in Unix nanoseconds.';
COMMENT ON COLUMN verdicts.last_seen_ns IS 'End of the last affected iteration, event time in Unix nanoseconds.';
COMMENT ON COLUMN verdicts.raised_ns IS 'When there was enough evidence, event time in Unix nanoseconds.';
COMMENT ON COLUMN verdicts.first_iteration IS 'First iteration affected, counted from the first that Echo saw.';
COMMENT ON COLUMN verdicts.raised_iteration IS 'Iteration at which it was raised.';
COMMENT ON COLUMN verdicts.cleared_iteration IS 'Iteration at which it was cleared.';
COMMENT ON COLUMN verdicts.occurrences IS 'How often it came back, plus one.';
COMMENT ON COLUMN verdicts.effect_ratio IS 'How much longer an iteration takes than when healthy, as a share of the healthy period.';
COMMENT ON COLUMN verdicts.period_ms IS 'Duration of an iteration during the incident, milliseconds.';
COMMENT ON COLUMN verdicts.baseline IS 'How the healthy period is known: history or none.';
COMMENT ON COLUMN verdicts.baseline_period_ms IS 'Healthy duration of an iteration, milliseconds.';
COMMENT ON COLUMN verdicts.confidence IS 'How sure Echo is, 0 to 1.';
COMMENT ON COLUMN verdicts.reason IS 'Why, in one sentence.';

CREATE VIEW lost_time AS
SELECT
    format('{:016x}', incident) AS incident_id,
    cluster AS cluster_id,
    node AS node_id,
    gpu_model,
    from_ns,
    to_ns,
    n_ranks,
    iterations,
    lost_gpu_ms
FROM lost_rows
QUALIFY row_number() OVER (PARTITION BY incident, node, gpu_model, from_ns, to_ns ORDER BY revision DESC) = 1;

COMMENT ON VIEW lost_time IS 'GPU time that the GPUs of one model on one node lost to one incident in one interval.';
COMMENT ON COLUMN lost_time.incident_id IS 'Incident that it was lost to, 16 hexadecimal digits.';
COMMENT ON COLUMN lost_time.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN lost_time.node_id IS 'Node.';
COMMENT ON COLUMN lost_time.gpu_model IS 'Model of the GPUs.';
COMMENT ON COLUMN lost_time.from_ns IS 'Beginning of the interval, event time in Unix nanoseconds, inclusive.';
COMMENT ON COLUMN lost_time.to_ns IS 'End of the interval, event time in Unix nanoseconds, exclusive.';
COMMENT ON COLUMN lost_time.n_ranks IS 'GPUs that took part.';
COMMENT ON COLUMN lost_time.iterations IS 'Iterations in the interval.';
COMMENT ON COLUMN lost_time.lost_gpu_ms IS 'GPU time lost by all of them together, milliseconds; noise makes single intervals negative.';

CREATE VIEW cost_hours AS
WITH per_incident AS (
    SELECT
        from_ns - from_ns % 3600000000000 AS hour_ns,
        cluster_id,
        node_id,
        gpu_model,
        incident_id,
        greatest(sum(lost_gpu_ms), 0) / 3600000 AS lost_gpu_hours
    FROM lost_time
    GROUP BY ALL
)
SELECT hour_ns, cluster_id, node_id, gpu_model, sum(lost_gpu_hours) AS lost_gpu_hours
FROM per_incident
GROUP BY ALL;

COMMENT ON VIEW cost_hours IS 'GPU-hours lost per hour, cluster, node and GPU model. An interval counts for the hour it begins in.';
COMMENT ON COLUMN cost_hours.hour_ns IS 'Beginning of the hour, event time in Unix nanoseconds.';
COMMENT ON COLUMN cost_hours.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN cost_hours.node_id IS 'Node.';
COMMENT ON COLUMN cost_hours.gpu_model IS 'Model of the GPUs.';
COMMENT ON COLUMN cost_hours.lost_gpu_hours IS 'GPU-hours lost, never below 0 for one incident.';

CREATE VIEW policies AS
SELECT cluster AS cluster_id, version, computed_ns, encoded
FROM policy_rows;

COMMENT ON VIEW policies IS 'Policies as they were published.';
COMMENT ON COLUMN policies.cluster_id IS 'Cluster that it was for.';
COMMENT ON COLUMN policies.version IS 'Version of the set.';
COMMENT ON COLUMN policies.computed_ns IS 'Event time that it was computed at, Unix nanoseconds.';
COMMENT ON COLUMN policies.encoded IS 'The policy set as it was sent, Protocol Buffers.';
