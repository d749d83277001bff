-- What comes in. Tables whose names end in _rows hold dictionary ids and are private; the views are the public surface.
-- No table has a key or an index: rows arrive in time order, so zone maps answer ranges
-- (echo/docs/decisions/0003-no-art-indexes.md).

CREATE TABLE schema_version (
    version    INTEGER NOT NULL,
    name       VARCHAR NOT NULL,
    checksum   VARCHAR NOT NULL,
    applied_at BIGINT  NOT NULL
);
COMMENT ON TABLE schema_version IS 'Migrations applied to this database.';
COMMENT ON COLUMN schema_version.version IS 'Number of the migration.';
COMMENT ON COLUMN schema_version.name IS 'Name of the migration.';
COMMENT ON COLUMN schema_version.checksum IS 'xxHash64 of its SQL, 16 hexadecimal digits.';
COMMENT ON COLUMN schema_version.applied_at IS 'When it was applied, Unix nanoseconds.';

-- Metric names, operations and units. The id is the xxHash64 of the name with seed 0.
CREATE TABLE names (
    id   UBIGINT NOT NULL,
    name VARCHAR NOT NULL
);

-- Who sends events. The id is the xxHash64 of all the other columns.
CREATE TABLE origins (
    id        UBIGINT NOT NULL,
    cluster   VARCHAR NOT NULL,
    node      VARCHAR NOT NULL,
    rank      UINTEGER,
    nranks    UINTEGER,
    job       VARCHAR,
    gpu_model VARCHAR,
    gpu_uuid  VARCHAR,
    namespace VARCHAR,
    pod       VARCHAR
);

CREATE TABLE event_rows (
    event_id         UBIGINT NOT NULL,
    timestamp_ns     BIGINT  NOT NULL,
    received_ns      BIGINT  NOT NULL,
    start_ns         BIGINT,
    origin           UBIGINT NOT NULL, -- origins.id
    metric           UBIGINT NOT NULL, -- names.id
    unit             UBIGINT NOT NULL, -- names.id
    value_double     DOUBLE,           -- set in a gauge or sum with fractions
    value_int        BIGINT,           -- set in a whole number
    count            UBIGINT,          -- set in a distribution, with sum
    sum              DOUBLE,
    min              DOUBLE,
    max              DOUBLE,
    comm             UBIGINT,          -- set in a block of collectives
    op               UBIGINT,          -- names.id
    seq_first        UBIGINT,
    seq_last         UBIGINT,
    role             UBIGINT,
    iterations       DOUBLE,
    anchor_seq       UBIGINT,
    anchor_offset_ms DOUBLE,
    attrs            VARCHAR NOT NULL
);

CREATE TABLE sample_rows (
    event_id     UBIGINT  NOT NULL,    -- event_rows.event_id
    ordinal      UINTEGER NOT NULL,    -- place among the samples of its event
    seq          UBIGINT  NOT NULL,
    value        DOUBLE   NOT NULL,
    timestamp_ns BIGINT   NOT NULL
);

-- Batches stored lately, so that one that is sent again is not stored again. A row is either a range of the numbers of
-- one agent process (ends inclusive) or the two halves of the hash of a request without number.
CREATE TABLE ingested_batches (
    agent         VARCHAR,
    number_first  UBIGINT,
    number_last   UBIGINT,
    content_high  UBIGINT,
    content_low   UBIGINT,
    received_ns   BIGINT  NOT NULL,
    last_event_id UBIGINT NOT NULL     -- last event number given when the row was written
);

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
    event_rows.anchor_offset_ms
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

CREATE VIEW op_waits AS
SELECT
    sample_rows.event_id,
    sample_rows.timestamp_ns,
    origins.cluster AS cluster_id,
    origins.node AS node_id,
    origins.rank,
    metrics.name AS metric_name,
    format('{:016x}', event_rows.comm) AS comm_id,
    ops.name AS op,
    sample_rows.seq,
    sample_rows.value,
    units.name AS unit
FROM sample_rows
JOIN event_rows ON event_rows.event_id = sample_rows.event_id
JOIN origins ON origins.id = event_rows.origin
JOIN names AS metrics ON metrics.id = event_rows.metric
JOIN names AS units ON units.id = event_rows.unit
LEFT JOIN names AS ops ON ops.id = event_rows.op;

COMMENT ON VIEW op_waits IS 'Sampled single operations, one row per exemplar.';
COMMENT ON COLUMN op_waits.event_id IS 'Event that the sample came with.';
COMMENT ON COLUMN op_waits.timestamp_ns IS 'When it happened, on the clock of the sender; Unix nanoseconds.';
COMMENT ON COLUMN op_waits.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN op_waits.node_id IS 'Node that sent it.';
COMMENT ON COLUMN op_waits.rank IS 'Rank within the job, counted from 0.';
COMMENT ON COLUMN op_waits.metric_name IS 'Name of the metric.';
COMMENT ON COLUMN op_waits.comm_id IS 'Communicator, 16 hexadecimal digits.';
COMMENT ON COLUMN op_waits.op IS 'Collective operation.';
COMMENT ON COLUMN op_waits.seq IS 'Sequence number within the communicator.';
COMMENT ON COLUMN op_waits.value IS 'Value, in unit.';
COMMENT ON COLUMN op_waits.unit IS 'Unit of the metric.';
