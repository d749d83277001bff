-- Views for questions in SQL: who reports, and blocks of collectives with their numbers worked out.

CREATE VIEW ranks AS
SELECT cluster AS cluster_id, node AS node_id, rank, nranks, job, gpu_model, gpu_uuid, namespace, pod
FROM origins;

COMMENT ON VIEW ranks IS 'Who has sent events: one row per rank with what it says of itself, and per node that sends without a rank. One that says something new has a further row.';
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
    format('{:016x}', event_rows.comm) AS comm_id,
    ops.name AS op,
    CASE WHEN event_rows.on_device THEN 'device' ELSE 'host' END AS source,
    event_rows.seq_first,
    event_rows.seq_last,
    event_rows.iterations,
    event_rows.count AS n_ops,
    event_rows.sum AS wait_sum_ms,
    event_rows.sum / nullif(event_rows.count, 0) AS wait_mean_ms,
    event_rows.min AS wait_min_ms,
    event_rows.max AS wait_max_ms
FROM event_rows
JOIN origins ON origins.id = event_rows.origin
LEFT JOIN names AS ops ON ops.id = event_rows.op
WHERE event_rows.comm IS NOT NULL
    AND event_rows.count IS NOT NULL
    AND event_rows.metric = (SELECT id FROM names WHERE name = 'nccl.collective.wait_ms');

COMMENT ON VIEW collectives IS 'How long each rank waited in collectives (metric nccl.collective.wait_ms): one row per block of consecutive operations of one communicator and rank. Who waits least is late.';
COMMENT ON COLUMN collectives.event_id IS 'Event that it is from.';
COMMENT ON COLUMN collectives.ended_at IS 'End of the block on the clock of the sender, UTC.';
COMMENT ON COLUMN collectives.timestamp_ns IS 'The same, Unix nanoseconds.';
COMMENT ON COLUMN collectives.cluster_id IS 'Cluster of the node.';
COMMENT ON COLUMN collectives.node_id IS 'Node that sent it.';
COMMENT ON COLUMN collectives.job IS 'Job that the rank belongs to.';
COMMENT ON COLUMN collectives.rank IS 'Rank within the job, counted from 0.';
COMMENT ON COLUMN collectives.nranks IS 'World size: number of ranks of the job.';
COMMENT ON COLUMN collectives.comm_id IS 'Communicator, 16 hexadecimal digits.';
COMMENT ON COLUMN collectives.op IS 'Collective operation.';
COMMENT ON COLUMN collectives.source IS 'Where it was measured: host or device.';
COMMENT ON COLUMN collectives.seq_first IS 'First sequence number of the block, inclusive; the same for all ranks.';
COMMENT ON COLUMN collectives.seq_last IS 'Last sequence number of the block, inclusive.';
COMMENT ON COLUMN collectives.iterations IS 'Number of iterations covered.';
COMMENT ON COLUMN collectives.n_ops IS 'Number of operations in the block.';
COMMENT ON COLUMN collectives.wait_sum_ms IS 'Time waited in all of them, milliseconds.';
COMMENT ON COLUMN collectives.wait_mean_ms IS 'Time waited per operation, milliseconds.';
COMMENT ON COLUMN collectives.wait_min_ms IS 'Shortest wait, milliseconds.';
COMMENT ON COLUMN collectives.wait_max_ms IS 'Longest wait, milliseconds.';
