-- What verdicts rest on, and where a block was measured. The new columns are absent in the rows that came before; the
-- views say what that means.

DROP VIEW verdicts;
DROP VIEW verdict_history;
DROP VIEW events;

ALTER TABLE verdict_rows ADD COLUMN cleared_ns BIGINT;
ALTER TABLE verdict_rows ADD COLUMN provisional BOOLEAN;
ALTER TABLE verdict_rows ADD COLUMN severity VARCHAR;
ALTER TABLE verdict_rows ADD COLUMN stability DOUBLE;
ALTER TABLE verdict_rows ADD COLUMN source VARCHAR;
ALTER TABLE verdict_rows ADD COLUMN victims UINTEGER[];
ALTER TABLE verdict_rows ADD COLUMN ranks UINTEGER[];
ALTER TABLE verdict_rows ADD COLUMN inputs VARCHAR;          -- JSON

ALTER TABLE event_rows ADD COLUMN on_device BOOLEAN;         -- set in a block of collectives

CREATE VIEW events AS
SELECT
    event_rows.event_id,
    event_rows.timestamp_ns,
    event_rows.received_ns,
    origins.cluster AS cluster_id,
    origins.node AS node_id,
    origins.rank,
    origins.nranks,
    metrics.name AS metric_name,
    event_rows.value_double,
    event_rows.value_int,
    event_rows.attrs,
    CASE
        WHEN event_rows.count IS NOT NULL THEN 'histogram'
        WHEN event_rows.value_int IS NOT NULL THEN 'int'
        ELSE 'double'
    END AS kind,
    format('{:016x}', event_rows.comm) AS comm_id,
    ops.name AS op,
    event_rows.seq_first,
    event_rows.seq_last,
    event_rows.count,
    event_rows.sum,
    event_rows.min,
    event_rows.max,
    units.name AS unit,
    origins.gpu_model,
    origins.gpu_uuid,
    origins.namespace,
    origins.pod,
    origins.job,
    event_rows.start_ns,
    format('{:016x}', event_rows.role) AS role,
    event_rows.iterations,
    event_rows.anchor_seq,
    event_rows.anchor_offset_ms,
    CASE
        WHEN event_rows.comm IS NULL THEN NULL
        WHEN event_rows.on_device THEN 'device'
        ELSE 'host'
    END AS source
FROM event_rows
JOIN origins ON origins.id = event_rows.origin
JOIN names AS metrics ON metrics.id = event_rows.metric
JOIN names AS units ON units.id = event_rows.unit
LEFT JOIN names AS ops ON ops.id = event_rows.op;

COMMENT ON VIEW events IS 'One row per OTLP data point.';
COMMENT ON COLUMN events.event_id IS 'Number of the event, growing with every commit.';
COMMENT ON COLUMN events.timestamp_ns IS 'Instant, or end of the span, that the point is about, on the clock of the sender; Unix nanoseconds.';
COMMENT ON COLUMN events.received_ns IS 'When Echo received it, on the clock of Echo; Unix nanoseconds.';
COMMENT ON COLUMN events.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN events.node_id IS 'Node that sent it.';
COMMENT ON COLUMN events.rank IS 'Rank within the job, counted from 0.';
COMMENT ON COLUMN events.nranks IS 'World size: number of ranks of the job.';
COMMENT ON COLUMN events.metric_name IS 'Name of the metric.';
COMMENT ON COLUMN events.value_double IS 'Value of a gauge or sum with fractions, in unit.';
COMMENT ON COLUMN events.value_int IS 'Value of a gauge or sum of whole numbers, in unit.';
COMMENT ON COLUMN events.attrs IS 'Attributes without a column of their own, as a JSON object.';
COMMENT ON COLUMN events.kind IS 'Which columns hold the measurement: double, int or histogram.';
COMMENT ON COLUMN events.comm_id IS 'Communicator, 16 hexadecimal digits.';
COMMENT ON COLUMN events.op IS 'Collective operation.';
COMMENT ON COLUMN events.seq_first IS 'First sequence number of the block, inclusive.';
COMMENT ON COLUMN events.seq_last IS 'Last sequence number of the block, inclusive.';
COMMENT ON COLUMN events.count IS 'Number of samples in the distribution.';
COMMENT ON COLUMN events.sum IS 'Sum of the samples, in unit.';
COMMENT ON COLUMN events.min IS 'Smallest sample, in unit.';
COMMENT ON COLUMN events.max IS 'Largest sample, in unit.';
COMMENT ON COLUMN events.unit IS 'Unit of the metric as the sender wrote it; empty when it did not.';
COMMENT ON COLUMN events.gpu_model IS 'Model of the GPU of the rank.';
COMMENT ON COLUMN events.gpu_uuid IS 'Identity of the GPU of the rank.';
COMMENT ON COLUMN events.namespace IS 'Kubernetes namespace.';
COMMENT ON COLUMN events.pod IS 'Kubernetes pod.';
COMMENT ON COLUMN events.job IS 'Job that the rank belongs to.';
COMMENT ON COLUMN events.start_ns IS 'Beginning of the span that the point is about, Unix nanoseconds.';
COMMENT ON COLUMN events.role IS 'Role of the rank in an iteration, 16 hexadecimal digits; ranks of one job with one role are comparable.';
COMMENT ON COLUMN events.iterations IS 'Number of iterations covered.';
COMMENT ON COLUMN events.anchor_seq IS 'Last operation before the block that was complete on every rank.';
COMMENT ON COLUMN events.anchor_offset_ms IS 'From that completion to the first operation of the block, milliseconds.';
COMMENT ON COLUMN events.source IS 'Where a block of collectives was measured: host or device.';

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
    reason,
    cleared_ns,
    coalesce(provisional, FALSE) AS provisional,
    coalesce(severity, 'info') AS severity,
    coalesce(stability, 1.0) AS stability,
    CASE WHEN finding = 'culprit' THEN coalesce(source, 'host') END AS source,
    CASE WHEN finding = 'culprit' THEN coalesce(victims, []) END AS victims,
    CASE WHEN finding <> 'culprit' THEN coalesce(ranks, []) END AS ranks,
    inputs
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
COMMENT ON COLUMN verdicts.finding IS 'culprit, or the condition: uniform_slowdown, stage_imbalance, data_imbalance, network, hang or inconclusive.';
COMMENT ON COLUMN verdicts.finding_reason IS 'What is known of a condition beyond its kind.';
COMMENT ON COLUMN verdicts.rank IS 'Rank that holds back the cohort.';
COMMENT ON COLUMN verdicts.node_id IS 'Node of that rank.';
COMMENT ON COLUMN verdicts.gpu_uuid IS 'GPU of that rank.';
COMMENT ON COLUMN verdicts.class IS 'Class of the cause: host, device, network, mixed or inconclusive.';
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
COMMENT ON COLUMN verdicts.cleared_ns IS 'When it was cleared, event time in Unix nanoseconds.';
COMMENT ON COLUMN verdicts.provisional IS 'Raised at once because it was grave, before it had persisted.';
COMMENT ON COLUMN verdicts.severity IS 'How grave the damage is: info, warn or critical.';
COMMENT ON COLUMN verdicts.stability IS 'Share of the blocks since the beginning that were affected, 0 to 1.';
COMMENT ON COLUMN verdicts.source IS 'Where the lag of the culprit was measured: host or device.';
COMMENT ON COLUMN verdicts.victims IS 'Ranks that look late only because they wait for the culprit.';
COMMENT ON COLUMN verdicts.ranks IS 'Ranks that a condition is about; empty for everybody.';
COMMENT ON COLUMN verdicts.inputs IS 'What the judgement rested on, a JSON object; absent where inputs were not kept.';
