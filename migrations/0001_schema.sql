-- Database schema. Until the first release this is the only file; from then on files are only added.
--
-- Tables whose names end in _rows hold dictionary ids and are private; the views are the public surface, and all of their columns
-- have a comment. No table has a key or an index: rows arrive in time order, so zone maps answer ranges
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

-- Identity of this database, so that a lake can tell the rows of several instances apart. Copies of the file share it.
CREATE TABLE database_identity (
    id UUID NOT NULL
);
INSERT INTO database_identity VALUES (uuid());

-- Ingested data.

-- Fields shared by the points of a series. The id is a hash of all other columns, or the next free number
-- if another series has that hash. The sender is not included: the ranks of a job share its series.
CREATE TABLE series (
    id        UBIGINT NOT NULL,
    metric    VARCHAR NOT NULL,
    unit      VARCHAR NOT NULL,
    op        VARCHAR,
    comm      UBIGINT,             -- set in a block of collectives
    role      UBIGINT,
    on_device BOOLEAN NOT NULL
);

-- Senders of events. The id is computed like that of a series.
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
    series           UBIGINT NOT NULL, -- series.id
    number           BIGINT,           -- an integer, or the count of a distribution
    value            DOUBLE,           -- a float, or the sum of a distribution
    min              DOUBLE,
    max              DOUBLE,
    seq_first        UBIGINT,
    seq_last         UBIGINT,
    iterations       DOUBLE,
    anchor_seq       UBIGINT,
    anchor_offset_ms DOUBLE,
    attrs            VARCHAR NOT NULL
);

CREATE TABLE sample_rows (
    event_id     UBIGINT  NOT NULL,    -- event_rows.event_id
    ordinal      UINTEGER NOT NULL,    -- index among the samples of its event
    seq          UBIGINT  NOT NULL,
    value        DOUBLE   NOT NULL,
    timestamp_ns BIGINT   NOT NULL
);

-- Recently stored batches, for deduplication. A row is either a range of batch numbers of one agent process
-- (ends inclusive) or the two halves of the hash of a request without a number.
CREATE TABLE ingested_batches (
    agent         VARCHAR,
    number_first  UBIGINT,
    number_last   UBIGINT,
    content_high  UBIGINT,
    content_low   UBIGINT,
    received_ns   BIGINT  NOT NULL,
    last_event_id UBIGINT NOT NULL     -- last event number assigned when the row was written
);

-- Slices deleted by retention, so that results about that time can report it.

CREATE TABLE dropped_rows (
    from_ns       BIGINT  NOT NULL,
    until_ns      BIGINT  NOT NULL,
    n_events      UBIGINT NOT NULL,
    last_event_id UBIGINT NOT NULL,    -- so that no event number is ever reused
    dropped_ns    BIGINT  NOT NULL,
    reason        VARCHAR NOT NULL
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
    series.metric AS metric_name,
    CASE WHEN event_rows.number IS NULL THEN event_rows.value END AS value_double,
    CASE WHEN event_rows.value IS NULL THEN event_rows.number END AS value_int,
    event_rows.attrs,
    CASE
        WHEN event_rows.number IS NULL THEN 'double'
        WHEN event_rows.value IS NULL THEN 'int'
        ELSE 'histogram'
    END AS kind,
    format('{:016x}', series.comm) AS comm_id,
    series.op,
    event_rows.seq_first,
    event_rows.seq_last,
    CASE WHEN event_rows.value IS NOT NULL THEN event_rows.number::UBIGINT END AS count,
    CASE WHEN event_rows.number IS NOT NULL THEN event_rows.value END AS sum,
    event_rows.min,
    event_rows.max,
    series.unit,
    origins.gpu_model,
    origins.gpu_uuid,
    origins.namespace,
    origins.pod,
    origins.job,
    event_rows.start_ns,
    format('{:016x}', series.role) AS role,
    event_rows.iterations,
    event_rows.anchor_seq,
    event_rows.anchor_offset_ms,
    CASE
        WHEN series.comm IS NULL THEN NULL
        WHEN series.on_device THEN 'device'
        ELSE 'host'
    END AS source
FROM event_rows
JOIN origins ON origins.id = event_rows.origin
JOIN series ON series.id = event_rows.series;

COMMENT ON VIEW events IS 'One row per OTLP data point.';
COMMENT ON COLUMN events.event_id IS 'Number of the event, growing with every commit.';
COMMENT ON COLUMN events.timestamp_ns IS 'Timestamp of the point, or end of its interval, on the clock of the sender; Unix nanoseconds.';
COMMENT ON COLUMN events.received_ns IS 'Time at which Echo received it, on the clock of Echo; Unix nanoseconds.';
COMMENT ON COLUMN events.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN events.node_id IS 'Node that sent it.';
COMMENT ON COLUMN events.rank IS 'Rank within the job, counted from 0.';
COMMENT ON COLUMN events.nranks IS 'World size: number of ranks of the job.';
COMMENT ON COLUMN events.metric_name IS 'Name of the metric.';
COMMENT ON COLUMN events.value_double IS 'Float value of a gauge or sum, in unit.';
COMMENT ON COLUMN events.value_int IS 'Integer value of a gauge or sum, in unit.';
COMMENT ON COLUMN events.attrs IS 'Attributes without a column of their own, as a JSON object.';
COMMENT ON COLUMN events.kind IS 'Kind of the measurement: double, int or histogram.';
COMMENT ON COLUMN events.comm_id IS 'Communicator, 16 hexadecimal digits.';
COMMENT ON COLUMN events.op IS 'Collective operation.';
COMMENT ON COLUMN events.seq_first IS 'First sequence number of the block, inclusive.';
COMMENT ON COLUMN events.seq_last IS 'Last sequence number of the block, inclusive.';
COMMENT ON COLUMN events.count IS 'Number of samples in the distribution.';
COMMENT ON COLUMN events.sum IS 'Sum of the samples, in unit.';
COMMENT ON COLUMN events.min IS 'Smallest sample, in unit.';
COMMENT ON COLUMN events.max IS 'Largest sample, in unit.';
COMMENT ON COLUMN events.unit IS 'Unit of the metric as reported by the sender; empty if it reported none.';
COMMENT ON COLUMN events.gpu_model IS 'Model of the GPU of the rank.';
COMMENT ON COLUMN events.gpu_uuid IS 'Identity of the GPU of the rank.';
COMMENT ON COLUMN events.namespace IS 'Kubernetes namespace.';
COMMENT ON COLUMN events.pod IS 'Kubernetes pod.';
COMMENT ON COLUMN events.job IS 'Job that the rank belongs to.';
COMMENT ON COLUMN events.start_ns IS 'Beginning of the interval of the point, Unix nanoseconds.';
COMMENT ON COLUMN events.role IS 'Role of the rank in an iteration, 16 hexadecimal digits; ranks of one job with one role are comparable.';
COMMENT ON COLUMN events.iterations IS 'Number of iterations covered.';
COMMENT ON COLUMN events.anchor_seq IS 'Last operation before the block that was complete on every rank.';
COMMENT ON COLUMN events.anchor_offset_ms IS 'Time from that completion to the first operation of the block, milliseconds.';
COMMENT ON COLUMN events.source IS 'Clock that measured a block of collectives: host or device.';

CREATE VIEW op_waits AS
SELECT
    sample_rows.event_id,
    sample_rows.timestamp_ns,
    origins.cluster AS cluster_id,
    origins.node AS node_id,
    origins.rank,
    series.metric AS metric_name,
    format('{:016x}', series.comm) AS comm_id,
    series.op,
    sample_rows.seq,
    sample_rows.value,
    series.unit
FROM sample_rows
JOIN event_rows ON event_rows.event_id = sample_rows.event_id
JOIN origins ON origins.id = event_rows.origin
JOIN series ON series.id = event_rows.series;

COMMENT ON VIEW op_waits IS 'Sampled single operations, one row per exemplar.';
COMMENT ON COLUMN op_waits.event_id IS 'Event that the sample belongs to.';
COMMENT ON COLUMN op_waits.timestamp_ns IS 'Time of the operation, on the clock of the sender; Unix nanoseconds.';
COMMENT ON COLUMN op_waits.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN op_waits.node_id IS 'Node that sent it.';
COMMENT ON COLUMN op_waits.rank IS 'Rank within the job, counted from 0.';
COMMENT ON COLUMN op_waits.metric_name IS 'Name of the metric.';
COMMENT ON COLUMN op_waits.comm_id IS 'Communicator, 16 hexadecimal digits.';
COMMENT ON COLUMN op_waits.op IS 'Collective operation.';
COMMENT ON COLUMN op_waits.seq IS 'Sequence number within the communicator.';
COMMENT ON COLUMN op_waits.value IS 'Value, in unit.';
COMMENT ON COLUMN op_waits.unit IS 'Unit of the metric.';

CREATE VIEW ranks AS
SELECT cluster AS cluster_id, node AS node_id, rank, nranks, job, gpu_model, gpu_uuid, namespace, pod
FROM origins;

COMMENT ON VIEW ranks IS 'Senders of events: one row per rank with its attributes, and per node that sends without a rank. A sender whose attributes change has another row.';
COMMENT ON COLUMN ranks.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN ranks.node_id IS 'Node that sends.';
COMMENT ON COLUMN ranks.rank IS 'Rank within the job, counted from 0; absent for a node.';
COMMENT ON COLUMN ranks.nranks IS 'World size: number of ranks of the job.';
COMMENT ON COLUMN ranks.job IS 'Job that the rank belongs to.';
COMMENT ON COLUMN ranks.gpu_model IS 'Model of the GPU of the rank.';
COMMENT ON COLUMN ranks.gpu_uuid IS 'Identity of the GPU of the rank.';
COMMENT ON COLUMN ranks.namespace IS 'Kubernetes namespace.';
COMMENT ON COLUMN ranks.pod IS 'Kubernetes pod.';

CREATE VIEW collectives AS
SELECT
    event_rows.event_id,
    make_timestamp_ns(event_rows.timestamp_ns) AS ended_at,
    event_rows.timestamp_ns,
    origins.cluster AS cluster_id,
    origins.node AS node_id,
    origins.job,
    origins.rank,
    origins.nranks,
    format('{:016x}', series.comm) AS comm_id,
    series.op,
    CASE WHEN series.on_device THEN 'device' ELSE 'host' END AS source,
    event_rows.seq_first,
    event_rows.seq_last,
    event_rows.iterations,
    event_rows.number::UBIGINT AS n_ops,
    event_rows.value AS wait_sum_ms,
    event_rows.value / nullif(event_rows.number, 0) AS wait_mean_ms,
    event_rows.min AS wait_min_ms,
    event_rows.max AS wait_max_ms
FROM event_rows
JOIN origins ON origins.id = event_rows.origin
JOIN series ON series.id = event_rows.series
WHERE series.metric = 'nccl.collective.wait_ms'
    AND series.comm IS NOT NULL
    AND event_rows.number IS NOT NULL
    AND event_rows.value IS NOT NULL;

COMMENT ON VIEW collectives IS 'Waiting time of each rank in collectives (metric nccl.collective.wait_ms): one row per block of consecutive operations of one communicator and rank. The rank that waits least is late.';
COMMENT ON COLUMN collectives.event_id IS 'Event of the block.';
COMMENT ON COLUMN collectives.ended_at IS 'End of the block on the clock of the sender, UTC.';
COMMENT ON COLUMN collectives.timestamp_ns IS 'The same, Unix nanoseconds.';
COMMENT ON COLUMN collectives.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN collectives.node_id IS 'Node that sent it.';
COMMENT ON COLUMN collectives.job IS 'Job that the rank belongs to.';
COMMENT ON COLUMN collectives.rank IS 'Rank within the job, counted from 0.';
COMMENT ON COLUMN collectives.nranks IS 'World size: number of ranks of the job.';
COMMENT ON COLUMN collectives.comm_id IS 'Communicator, 16 hexadecimal digits.';
COMMENT ON COLUMN collectives.op IS 'Collective operation.';
COMMENT ON COLUMN collectives.source IS 'Clock that measured it: host or device.';
COMMENT ON COLUMN collectives.seq_first IS 'First sequence number of the block, inclusive; the same for all ranks.';
COMMENT ON COLUMN collectives.seq_last IS 'Last sequence number of the block, inclusive.';
COMMENT ON COLUMN collectives.iterations IS 'Number of iterations covered.';
COMMENT ON COLUMN collectives.n_ops IS 'Number of operations in the block.';
COMMENT ON COLUMN collectives.wait_sum_ms IS 'Total waiting time, milliseconds.';
COMMENT ON COLUMN collectives.wait_mean_ms IS 'Waiting time per operation, milliseconds.';
COMMENT ON COLUMN collectives.wait_min_ms IS 'Shortest wait, milliseconds.';
COMMENT ON COLUMN collectives.wait_max_ms IS 'Longest wait, milliseconds.';

-- The classes of operations are in an attribute: AllReduce.7.21=90 are 90 operations of 2^21 elements or more, below
-- 2^22, of NCCL's element type 7. Agents send at most 13 classes.
CREATE VIEW operation_classes AS
WITH classes AS (
    SELECT
        event_rows.*,
        series.comm,
        series.on_device,
        unnest(string_split(regexp_extract(event_rows.attrs, '"fleet\.mix":"([^"]*)"', 1), ' ')[1:32]) AS class
    FROM event_rows
    JOIN series ON series.id = event_rows.series
    WHERE series.metric = 'fleet.rank.elapsed_ms' AND series.comm IS NOT NULL
),
sizes AS (
    SELECT
        *,
        split_part(split_part(class, '=', 1), '.', 2) AS element,
        try_cast(split_part(split_part(class, '=', 1), '.', 3) AS UINTEGER) AS log_elements,
        CASE
            WHEN element IN ('0', '1', '10', '11') THEN 1
            WHEN element IN ('6', '9') THEN 2
            WHEN element IN ('2', '3', '7') THEN 4
            WHEN element IN ('4', '5', '8') THEN 8
        END AS element_bytes
    FROM classes
)
SELECT
    sizes.event_id,
    sizes.timestamp_ns,
    sizes.start_ns,
    origins.cluster AS cluster_id,
    origins.node AS node_id,
    origins.job,
    origins.rank,
    origins.nranks,
    format('{:016x}', sizes.comm) AS comm_id,
    try_cast(regexp_extract(sizes.attrs, '"nccl\.comm_rank":([0-9]+)', 1) AS UINTEGER) AS comm_rank,
    try_cast(regexp_extract(sizes.attrs, '"nccl\.comm_nranks":([0-9]+)', 1) AS UINTEGER) AS comm_nranks,
    CASE WHEN sizes.on_device THEN 'device' ELSE 'host' END AS source,
    sizes.seq_first,
    sizes.seq_last,
    sizes.value AS elapsed_ms,
    split_part(split_part(sizes.class, '=', 1), '.', 1) AS op,
    try_cast(split_part(sizes.class, '=', 2) AS UBIGINT) AS n_ops,
    CASE sizes.element
        WHEN '0' THEN 'int8'
        WHEN '1' THEN 'uint8'
        WHEN '2' THEN 'int32'
        WHEN '3' THEN 'uint32'
        WHEN '4' THEN 'int64'
        WHEN '5' THEN 'uint64'
        WHEN '6' THEN 'float16'
        WHEN '7' THEN 'float32'
        WHEN '8' THEN 'float64'
        WHEN '9' THEN 'bfloat16'
        WHEN '10' THEN 'float8e4m3'
        WHEN '11' THEN 'float8e5m2'
    END AS datatype,
    CASE WHEN sizes.log_elements < 48 THEN (pow(2, sizes.log_elements) * sizes.element_bytes)::UBIGINT END AS bytes
FROM sizes
JOIN origins ON origins.id = sizes.origin
WHERE sizes.class <> '';

COMMENT ON VIEW operation_classes IS 'Classes of operations in intervals of the busiest communicator of each rank, from one completion to another (metric fleet.rank.elapsed_ms): one row per interval and class. An interval overlaps blocks of collectives and tcp_retransmits, so join them where their sequence numbers overlap.';
COMMENT ON COLUMN operation_classes.event_id IS 'Event of the interval.';
COMMENT ON COLUMN operation_classes.timestamp_ns IS 'End of the interval on the clock of the sender, Unix nanoseconds.';
COMMENT ON COLUMN operation_classes.start_ns IS 'Beginning of the interval, Unix nanoseconds.';
COMMENT ON COLUMN operation_classes.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN operation_classes.node_id IS 'Node that sent it.';
COMMENT ON COLUMN operation_classes.job IS 'Job that the rank belongs to.';
COMMENT ON COLUMN operation_classes.rank IS 'Rank within the job, counted from 0.';
COMMENT ON COLUMN operation_classes.nranks IS 'World size: number of ranks of the job.';
COMMENT ON COLUMN operation_classes.comm_id IS 'Communicator, 16 hexadecimal digits.';
COMMENT ON COLUMN operation_classes.comm_rank IS 'Rank within the communicator, counted from 0.';
COMMENT ON COLUMN operation_classes.comm_nranks IS 'Number of ranks of the communicator.';
COMMENT ON COLUMN operation_classes.source IS 'Clock that measured it: host or device.';
COMMENT ON COLUMN operation_classes.seq_first IS 'First sequence number of the interval, inclusive.';
COMMENT ON COLUMN operation_classes.seq_last IS 'Last sequence number of the interval, inclusive.';
COMMENT ON COLUMN operation_classes.elapsed_ms IS 'Duration of the whole interval, the same in each of its rows, milliseconds.';
COMMENT ON COLUMN operation_classes.op IS 'Collective operation; other for rare classes, which are counted together.';
COMMENT ON COLUMN operation_classes.n_ops IS 'Operations of this class in the interval.';
COMMENT ON COLUMN operation_classes.datatype IS 'Type of the elements; absent for other.';
COMMENT ON COLUMN operation_classes.bytes IS 'Size of one operation as its caller gives it to NCCL, with the number of elements rounded down to a power of two; absent for other.';

CREATE VIEW tcp_retransmits AS
SELECT
    event_rows.event_id,
    event_rows.timestamp_ns,
    event_rows.start_ns,
    origins.cluster AS cluster_id,
    origins.node AS node_id,
    origins.job,
    origins.rank,
    origins.nranks,
    format('{:016x}', series.comm) AS comm_id,
    event_rows.seq_first,
    event_rows.seq_last,
    coalesce(event_rows.value, event_rows.number) AS retransmits
FROM event_rows
JOIN origins ON origins.id = event_rows.origin
JOIN series ON series.id = event_rows.series
WHERE series.metric = 'fleet.host.tcp_retransmits';

COMMENT ON VIEW tcp_retransmits IS 'TCP segments that the host of a rank retransmitted, for whatever process, during a block of operations of its busiest communicator (metric fleet.host.tcp_retransmits), zeros included. Blocks have the same sequence numbers as in collectives.';
COMMENT ON COLUMN tcp_retransmits.event_id IS 'Event of the measurement.';
COMMENT ON COLUMN tcp_retransmits.timestamp_ns IS 'End of the block on the clock of the sender, Unix nanoseconds.';
COMMENT ON COLUMN tcp_retransmits.start_ns IS 'Beginning of the block, Unix nanoseconds.';
COMMENT ON COLUMN tcp_retransmits.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN tcp_retransmits.node_id IS 'Node that sent it.';
COMMENT ON COLUMN tcp_retransmits.job IS 'Job that the rank belongs to.';
COMMENT ON COLUMN tcp_retransmits.rank IS 'Rank within the job, counted from 0.';
COMMENT ON COLUMN tcp_retransmits.nranks IS 'World size: number of ranks of the job.';
COMMENT ON COLUMN tcp_retransmits.comm_id IS 'Communicator of the block, 16 hexadecimal digits.';
COMMENT ON COLUMN tcp_retransmits.seq_first IS 'First sequence number of the block, inclusive.';
COMMENT ON COLUMN tcp_retransmits.seq_last IS 'Last sequence number of the block, inclusive.';
COMMENT ON COLUMN tcp_retransmits.retransmits IS 'Segments that the host retransmitted. Ranks of one host count the same segments: sum them per rank, then take the largest sum per node.';

-- What agents report about single processes. One call of json_extract_string parses the attributes once.
CREATE VIEW process_calls AS
SELECT
    event_id,
    timestamp_ns,
    start_ns,
    cluster_id,
    node_id,
    job,
    rank,
    pod,
    try_cast(fields[1] AS UINTEGER) AS pid,
    left(fields[2], 64) AS process,
    left(fields[3], 64) AS function,
    number::UBIGINT AS n_calls,
    value AS total_ms,
    min AS min_ms,
    max AS max_ms,
    try_cast(fields[4] AS DOUBLE) AS p50_ms,
    try_cast(fields[5] AS DOUBLE) AS p95_ms,
    try_cast(fields[6] AS DOUBLE) AS p99_ms,
    left(fields[8], 4096) AS durations_ns,
    try_cast(fields[7] AS UBIGINT) AS bytes
FROM (
    SELECT
        event_rows.*,
        origins.cluster AS cluster_id,
        origins.node AS node_id,
        origins.job,
        origins.rank,
        origins.pod,
        json_extract_string(
            event_rows.attrs,
            ['$."process.pid"', '$."process.executable.name"', '$."fleet.function"', '$."fleet.p50_ms"', '$."fleet.p95_ms"', '$."fleet.p99_ms"', '$."fleet.bytes"', '$."fleet.durations_ns"']
        ) AS fields
    FROM event_rows
    JOIN origins ON origins.id = event_rows.origin
    JOIN series ON series.id = event_rows.series
    WHERE series.metric = 'fleet.process.calls_ms'
)
WHERE number IS NOT NULL AND value IS NOT NULL AND fields[3] IS NOT NULL;

COMMENT ON VIEW process_calls IS 'Calls of functions of the GPU libraries (metric fleet.process.calls_ms): one row per process, function and period of about ten seconds.';
COMMENT ON COLUMN process_calls.event_id IS 'Event of the report.';
COMMENT ON COLUMN process_calls.timestamp_ns IS 'End of the period on the clock of the sender, Unix nanoseconds.';
COMMENT ON COLUMN process_calls.start_ns IS 'Beginning of the period, Unix nanoseconds.';
COMMENT ON COLUMN process_calls.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN process_calls.node_id IS 'Node of the process.';
COMMENT ON COLUMN process_calls.job IS 'Job that the process belongs to.';
COMMENT ON COLUMN process_calls.rank IS 'Rank of the process within its job, counted from 0; absent for a process without a rank.';
COMMENT ON COLUMN process_calls.pod IS 'Kubernetes pod of the process.';
COMMENT ON COLUMN process_calls.pid IS 'Process id on its node.';
COMMENT ON COLUMN process_calls.process IS 'Name of the process.';
COMMENT ON COLUMN process_calls.function IS 'Function, such as cudaMalloc.';
COMMENT ON COLUMN process_calls.n_calls IS 'Number of calls.';
COMMENT ON COLUMN process_calls.total_ms IS 'Time in these calls, milliseconds.';
COMMENT ON COLUMN process_calls.min_ms IS 'Shortest call, milliseconds.';
COMMENT ON COLUMN process_calls.max_ms IS 'Longest call, milliseconds.';
COMMENT ON COLUMN process_calls.p50_ms IS 'Median duration, milliseconds.';
COMMENT ON COLUMN process_calls.p95_ms IS '95th percentile of the durations, milliseconds.';
COMMENT ON COLUMN process_calls.p99_ms IS '99th percentile of the durations, milliseconds.';
COMMENT ON COLUMN process_calls.durations_ns IS 'Durations, nanoseconds, with the number of calls that took about as long (within a ninth), shortest first: 8700=90 1400000=2.';
COMMENT ON COLUMN process_calls.bytes IS 'Bytes moved or allocated; absent where the function has none.';

CREATE VIEW process_chains AS
SELECT
    event_id,
    timestamp_ns,
    start_ns,
    cluster_id,
    node_id,
    job,
    rank,
    pod,
    try_cast(fields[1] AS UINTEGER) AS pid,
    left(fields[2], 64) AS process,
    left(fields[3], 64) AS cause,
    left(fields[4], 64) AS severity,
    coalesce(value, number::DOUBLE) AS share,
    fields[5] AS summary,
    fields[6] AS links,
    fields[7] AS stack,
    fields[8] AS advice
FROM (
    SELECT
        event_rows.*,
        origins.cluster AS cluster_id,
        origins.node AS node_id,
        origins.job,
        origins.rank,
        origins.pod,
        json_extract_string(
            event_rows.attrs,
            ['$."process.pid"', '$."process.executable.name"', '$."fleet.chain.cause"', '$."fleet.chain.severity"', '$."fleet.chain.summary"', '$."fleet.chain.links"', '$."fleet.chain.stack"', '$."fleet.chain.advice"']
        ) AS fields
    FROM event_rows
    JOIN origins ON origins.id = event_rows.origin
    JOIN series ON series.id = event_rows.series
    WHERE series.metric = 'fleet.process.chain'
)
WHERE fields[3] IS NOT NULL;

COMMENT ON VIEW process_chains IS 'Causal chains of processes (metric fleet.process.chain): one row per process, cause and period of about ten seconds in which the chain holds.';
COMMENT ON COLUMN process_chains.event_id IS 'Event of the report.';
COMMENT ON COLUMN process_chains.timestamp_ns IS 'End of the period on the clock of the sender, Unix nanoseconds.';
COMMENT ON COLUMN process_chains.start_ns IS 'Beginning of the period, Unix nanoseconds.';
COMMENT ON COLUMN process_chains.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN process_chains.node_id IS 'Node of the process.';
COMMENT ON COLUMN process_chains.job IS 'Job that the process belongs to.';
COMMENT ON COLUMN process_chains.rank IS 'Rank of the process within its job, counted from 0; absent for a process without a rank.';
COMMENT ON COLUMN process_chains.pod IS 'Kubernetes pod of the process.';
COMMENT ON COLUMN process_chains.pid IS 'Process id on its node.';
COMMENT ON COLUMN process_chains.process IS 'Name of the process.';
COMMENT ON COLUMN process_chains.cause IS 'Cause, such as cpu_contention.';
COMMENT ON COLUMN process_chains.severity IS 'Severity: low, medium or high.';
COMMENT ON COLUMN process_chains.share IS 'Share of its time that the process lost to the cause, 0 to 1.';
COMMENT ON COLUMN process_chains.summary IS 'The chain in one sentence.';
COMMENT ON COLUMN process_chains.links IS 'Links of the chain from the system to the call, one per line.';
COMMENT ON COLUMN process_chains.stack IS 'Stack in which the process waited, innermost frame first, one per line.';
COMMENT ON COLUMN process_chains.advice IS 'Advice, one per line.';

CREATE VIEW process_stacks AS
SELECT
    event_id,
    timestamp_ns,
    start_ns,
    cluster_id,
    node_id,
    job,
    rank,
    pod,
    try_cast(fields[1] AS UINTEGER) AS pid,
    left(fields[2], 64) AS process,
    left(fields[3], 64) AS function,
    least(greatest(coalesce(number, value), 0), 9007199254740992)::UBIGINT AS samples,
    fields[4] AS stack
FROM (
    SELECT
        event_rows.*,
        origins.cluster AS cluster_id,
        origins.node AS node_id,
        origins.job,
        origins.rank,
        origins.pod,
        json_extract_string(
            event_rows.attrs,
            ['$."process.pid"', '$."process.executable.name"', '$."fleet.function"', '$."fleet.stack"']
        ) AS fields
    FROM event_rows
    JOIN origins ON origins.id = event_rows.origin
    JOIN series ON series.id = event_rows.series
    WHERE series.metric = 'fleet.process.stack_samples'
)
WHERE fields[4] IS NOT NULL AND coalesce(number, value) >= 0;

COMMENT ON VIEW process_stacks IS 'Stack samples of processes (metric fleet.process.stack_samples): one row per process, stack and period of about ten seconds.';
COMMENT ON COLUMN process_stacks.event_id IS 'Event of the report.';
COMMENT ON COLUMN process_stacks.timestamp_ns IS 'End of the period on the clock of the sender, Unix nanoseconds.';
COMMENT ON COLUMN process_stacks.start_ns IS 'Beginning of the period, Unix nanoseconds.';
COMMENT ON COLUMN process_stacks.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN process_stacks.node_id IS 'Node of the process.';
COMMENT ON COLUMN process_stacks.job IS 'Job that the process belongs to.';
COMMENT ON COLUMN process_stacks.rank IS 'Rank of the process within its job, counted from 0; absent for a process without a rank.';
COMMENT ON COLUMN process_stacks.pod IS 'Kubernetes pod of the process.';
COMMENT ON COLUMN process_stacks.pid IS 'Process id on its node.';
COMMENT ON COLUMN process_stacks.process IS 'Name of the process.';
COMMENT ON COLUMN process_stacks.function IS 'Function of a GPU library in which the samples were taken; absent outside of such calls.';
COMMENT ON COLUMN process_stacks.samples IS 'Number of samples in which a thread had this stack.';
COMMENT ON COLUMN process_stacks.stack IS 'The stack, innermost frame first, one per line.';

CREATE VIEW dropped_slices AS
SELECT from_ns, until_ns, n_events, dropped_ns, reason
FROM dropped_rows;

COMMENT ON VIEW dropped_slices IS 'Slices of received time whose events were deleted to keep the database within its limits.';
COMMENT ON COLUMN dropped_slices.from_ns IS 'Beginning of the slice on the clock of Echo, Unix nanoseconds, inclusive.';
COMMENT ON COLUMN dropped_slices.until_ns IS 'End of the slice, exclusive.';
COMMENT ON COLUMN dropped_slices.n_events IS 'Events deleted.';
COMMENT ON COLUMN dropped_slices.dropped_ns IS 'Time at which the last of them was deleted, on the clock of Echo; Unix nanoseconds.';
COMMENT ON COLUMN dropped_slices.reason IS 'Limit that caused the deletion: age, size or floor.';

-- Detector output. Rows are only added: the one with the highest revision is current, the earlier ones are
-- previous states.

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
    node               VARCHAR,           -- of the culprit, or of the condition
    gpu_uuid           VARCHAR,
    class              VARCHAR,
    signal             VARCHAR,
    lag_ms             DOUBLE,
    z                  DOUBLE,
    source             VARCHAR,           -- set in a culprit
    ranks              UINTEGER[],        -- set in a condition
    standstill         BOOLEAN  NOT NULL,
    explained          BOOLEAN  NOT NULL,
    state              VARCHAR  NOT NULL,
    provisional        BOOLEAN  NOT NULL,
    severity           VARCHAR  NOT NULL,
    stability          DOUBLE   NOT NULL,
    first_seen_ns      BIGINT   NOT NULL,
    last_seen_ns       BIGINT   NOT NULL,
    raised_ns          BIGINT   NOT NULL,
    cleared_ns         BIGINT,
    first_iteration    DOUBLE   NOT NULL,
    raised_iteration   DOUBLE   NOT NULL,
    cleared_iteration  DOUBLE,
    occurrences        UINTEGER NOT NULL,
    effect_ratio       DOUBLE   NOT NULL,
    period_ms          DOUBLE   NOT NULL,
    baseline           VARCHAR  NOT NULL,
    baseline_period_ms DOUBLE   NOT NULL,
    confidence         DOUBLE   NOT NULL,
    reason             VARCHAR  NOT NULL,
    inputs             VARCHAR            -- JSON
);

CREATE TABLE lost_rows (
    revision         UBIGINT  NOT NULL,
    incident         UBIGINT  NOT NULL,
    cluster          VARCHAR  NOT NULL,
    node             VARCHAR  NOT NULL,
    gpu_model        VARCHAR,
    from_ns          BIGINT   NOT NULL,
    to_ns            BIGINT   NOT NULL,
    n_ranks          UINTEGER NOT NULL,
    iterations       DOUBLE   NOT NULL,
    lost_gpu_ms      DOUBLE   NOT NULL,
    peer_wait_gpu_ms DOUBLE,           -- NULL if a rank does not report it
    saved_gpu_ms     DOUBLE   NOT NULL
);

CREATE TABLE policy_rows (
    revision    UBIGINT NOT NULL,
    cluster     VARCHAR NOT NULL,
    version     UBIGINT NOT NULL,
    computed_ns BIGINT  NOT NULL,
    encoded     BLOB    NOT NULL
);

-- Progress of the detector, so that it resumes there after a restart instead of judging all events again.
CREATE TABLE judged_rows (
    event_id UBIGINT NOT NULL    -- number of the last event that the stored output is based on
);
INSERT INTO judged_rows VALUES (0);

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
    provisional,
    severity,
    stability,
    source,
    ranks,
    inputs,
    standstill,
    explained
FROM verdict_rows;

COMMENT ON VIEW verdict_history IS 'States of incidents. After a day the first, those that changed state, finding, rank, class, severity or provisional, and the last of each hour are kept; the others are dropped within the next hour. Columns as in verdicts.';

CREATE VIEW verdicts AS
SELECT *
FROM verdict_history
QUALIFY row_number() OVER (PARTITION BY incident_id ORDER BY revision DESC) = 1;

COMMENT ON VIEW verdicts IS 'The latest state of each incident.';
COMMENT ON COLUMN verdicts.incident_id IS 'The incident, 16 hexadecimal digits.';
COMMENT ON COLUMN verdicts.revision IS 'Number of this state, growing over all incidents.';
COMMENT ON COLUMN verdicts.revised_ns IS 'Time at which Echo stored this state, on the clock of Echo; Unix nanoseconds.';
COMMENT ON COLUMN verdicts.cluster_id IS 'Cluster of the cohort.';
COMMENT ON COLUMN verdicts.job IS 'Job of the cohort.';
COMMENT ON COLUMN verdicts.cohort IS 'Cohort whose ranks were compared.';
COMMENT ON COLUMN verdicts.finding IS 'culprit, or the condition: uniform_slowdown, late_node, network, stall, hang, crash, identity_conflict or unhealthy_node.';
COMMENT ON COLUMN verdicts.finding_reason IS 'Details of a condition.';
COMMENT ON COLUMN verdicts.rank IS 'Rank that holds back the cohort.';
COMMENT ON COLUMN verdicts.node_id IS 'Node of that rank, or the node of an unhealthy_node.';
COMMENT ON COLUMN verdicts.gpu_uuid IS 'GPU of that rank.';
COMMENT ON COLUMN verdicts.class IS 'Class of the cause: host, device, network or inconclusive.';
COMMENT ON COLUMN verdicts.signal IS 'Signal that identified the rank.';
COMMENT ON COLUMN verdicts.lag_ms IS 'Lag behind the median of its peers, milliseconds per iteration.';
COMMENT ON COLUMN verdicts.z IS 'Modified z-score of that lag.';
COMMENT ON COLUMN verdicts.state IS 'open or cleared.';
COMMENT ON COLUMN verdicts.first_seen_ns IS 'Beginning of the first affected iteration, event time in Unix nanoseconds.';
COMMENT ON COLUMN verdicts.last_seen_ns IS 'End of the last affected iteration, event time in Unix nanoseconds.';
COMMENT ON COLUMN verdicts.raised_ns IS 'Time at which there was enough evidence, event time in Unix nanoseconds.';
COMMENT ON COLUMN verdicts.first_iteration IS 'First iteration affected, counted from the first that Echo saw.';
COMMENT ON COLUMN verdicts.raised_iteration IS 'Iteration at which it was raised.';
COMMENT ON COLUMN verdicts.cleared_iteration IS 'Iteration at which it was cleared.';
COMMENT ON COLUMN verdicts.occurrences IS 'Number of occurrences, including the first.';
COMMENT ON COLUMN verdicts.effect_ratio IS 'Slowdown of an iteration, as a share of the healthy period.';
COMMENT ON COLUMN verdicts.period_ms IS 'Duration of an iteration during the incident, milliseconds.';
COMMENT ON COLUMN verdicts.baseline IS 'Origin of the healthy period: history or none.';
COMMENT ON COLUMN verdicts.baseline_period_ms IS 'Healthy duration of an iteration, milliseconds.';
COMMENT ON COLUMN verdicts.confidence IS 'Confidence in the finding, 0 to 1.';
COMMENT ON COLUMN verdicts.reason IS 'Reason for the finding, in one sentence.';
COMMENT ON COLUMN verdicts.cleared_ns IS 'Time at which it was cleared, event time in Unix nanoseconds.';
COMMENT ON COLUMN verdicts.provisional IS 'Whether it was raised at once because it was severe, before it had persisted.';
COMMENT ON COLUMN verdicts.severity IS 'Severity: info, warn or critical.';
COMMENT ON COLUMN verdicts.stability IS 'Share of the blocks since the beginning that were affected, 0 to 1.';
COMMENT ON COLUMN verdicts.source IS 'Clock that measured the lag of the culprit: host or device.';
COMMENT ON COLUMN verdicts.ranks IS 'Ranks affected by a condition; empty for all ranks.';
COMMENT ON COLUMN verdicts.inputs IS 'How the ranks were compared, a JSON object, milliseconds per second and peer; NULL if this was not kept.';
COMMENT ON COLUMN verdicts.standstill IS 'Whether no rank progresses although none is behind.';
COMMENT ON COLUMN verdicts.explained IS 'Whether it is known that the ranks of a hang are the reason: at a standstill, ranks that do not wait may have entered its operation.';

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
    lost_gpu_ms,
    peer_wait_gpu_ms,
    saved_gpu_ms
FROM lost_rows
QUALIFY row_number() OVER (PARTITION BY incident, node, gpu_model, from_ns, to_ns ORDER BY revision DESC) = 1;

COMMENT ON VIEW lost_time IS 'GPU time that the GPUs of one model on one node lost to one incident in one interval.';
COMMENT ON COLUMN lost_time.incident_id IS 'Incident that it was lost to, 16 hexadecimal digits.';
COMMENT ON COLUMN lost_time.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN lost_time.node_id IS 'Node.';
COMMENT ON COLUMN lost_time.gpu_model IS 'Model of the GPUs.';
COMMENT ON COLUMN lost_time.from_ns IS 'Beginning of the interval, event time in Unix nanoseconds, inclusive.';
COMMENT ON COLUMN lost_time.to_ns IS 'End of the interval, event time in Unix nanoseconds, exclusive.';
COMMENT ON COLUMN lost_time.n_ranks IS 'Number of GPUs.';
COMMENT ON COLUMN lost_time.iterations IS 'Iterations in the interval.';
COMMENT ON COLUMN lost_time.lost_gpu_ms IS 'GPU time lost by all of them together because the job was slower (job delay), milliseconds; noise makes single intervals negative.';
COMMENT ON COLUMN lost_time.peer_wait_gpu_ms IS 'Part of lost_gpu_ms spent blocked because others were late (peer wait), milliseconds; must not be added to lost_gpu_ms.';
COMMENT ON COLUMN lost_time.saved_gpu_ms IS 'Part of lost_gpu_ms that would not have been lost if this culprit alone had been healthy, milliseconds.';

CREATE VIEW policies AS
SELECT cluster AS cluster_id, version, computed_ns, encoded
FROM policy_rows;

COMMENT ON VIEW policies IS 'Published policies.';
COMMENT ON COLUMN policies.cluster_id IS 'Cluster of the policy.';
COMMENT ON COLUMN policies.version IS 'Version of the set.';
COMMENT ON COLUMN policies.computed_ns IS 'Event time at which it was computed, Unix nanoseconds.';
COMMENT ON COLUMN policies.encoded IS 'The policy set as it was sent, Protocol Buffers.';

CREATE VIEW judged AS
SELECT max(event_id) AS event_id
FROM judged_rows;

COMMENT ON VIEW judged IS 'Progress of the detector: its stored output is based on the events up to this number.';
COMMENT ON COLUMN judged.event_id IS 'Number of the last event judged.';

-- Hourly costs, stored when the hour is over, so that they outlive the events that they are based on. Rows are
-- only added: for an hour and cluster the rows with the highest revision are current.

CREATE TABLE cost_hour_rows (
    hour_ns         BIGINT   NOT NULL,
    cluster         VARCHAR  NOT NULL,
    node            VARCHAR  NOT NULL,
    gpu_model       VARCHAR,
    revision        UBIGINT  NOT NULL,
    computed_ns     BIGINT   NOT NULL,
    gpus            UINTEGER NOT NULL,
    allocated_us    BIGINT   NOT NULL,    -- integer microseconds, so that sums are exact
    lost_us         BIGINT   NOT NULL,
    ranks_reporting UINTEGER NOT NULL,
    ranks_expected  UINTEGER NOT NULL
);

-- Hours that changed since they were closed; written in the same transaction as the change.
CREATE TABLE due_hour_rows (
    hour_ns BIGINT NOT NULL
);

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

COMMENT ON VIEW cost_hour_history IS 'Every revision of every closed hour: late data and late verdicts add a revision.';
COMMENT ON COLUMN cost_hour_history.hour_ns IS 'Beginning of the hour, event time in Unix nanoseconds.';
COMMENT ON COLUMN cost_hour_history.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN cost_hour_history.node_id IS 'Node.';
COMMENT ON COLUMN cost_hour_history.gpu_model IS 'Model of the GPUs.';
COMMENT ON COLUMN cost_hour_history.lost_gpu_hours IS 'GPU-hours lost, never below 0 for one incident in one hour.';
COMMENT ON COLUMN cost_hour_history.allocated_gpu_hours IS 'GPU-hours in which ranks reported, from the first to the last event of each.';
COMMENT ON COLUMN cost_hour_history.lost_us IS 'lost_gpu_hours in integer microseconds, whose sums are exact.';
COMMENT ON COLUMN cost_hour_history.allocated_us IS 'allocated_gpu_hours in integer microseconds.';
COMMENT ON COLUMN cost_hour_history.gpus IS 'Ranks on these GPUs that reported.';
COMMENT ON COLUMN cost_hour_history.ranks_reporting IS 'Ranks of the whole cluster that reported in the hour.';
COMMENT ON COLUMN cost_hour_history.ranks_expected IS 'Ranks that the reporting jobs of the cluster have.';
COMMENT ON COLUMN cost_hour_history.revision IS 'Number of the revision of this hour and cluster, from 1.';
COMMENT ON COLUMN cost_hour_history.computed_ns IS 'Time at which it was computed, on the clock of Echo; Unix nanoseconds.';

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
    ANTI JOIN (SELECT DISTINCT hour_ns, cluster AS cluster_id FROM cost_hour_rows) closed
        ON closed.hour_ns = from_ns - from_ns % 3600000000000 AND closed.cluster_id = lost_time.cluster_id
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
    least(coalesce(sum(part_ms), 0) * 1000, 9e18)::BIGINT,
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
COMMENT ON COLUMN cost_hours.lost_us IS 'lost_gpu_hours in integer microseconds, whose sums are exact.';
COMMENT ON COLUMN cost_hours.allocated_us IS 'allocated_gpu_hours in integer microseconds.';
COMMENT ON COLUMN cost_hours.gpus IS 'Ranks on these GPUs that reported.';
COMMENT ON COLUMN cost_hours.ranks_reporting IS 'Ranks of the whole cluster that reported in the hour.';
COMMENT ON COLUMN cost_hours.ranks_expected IS 'Ranks that the reporting jobs of the cluster have.';
COMMENT ON COLUMN cost_hours.revision IS 'Number of the revision of this hour and cluster, from 1; absent while the hour is not closed.';
COMMENT ON COLUMN cost_hours.computed_ns IS 'Time at which it was computed, on the clock of Echo; Unix nanoseconds.';
