-- What of the lost time the healthy GPUs spent waiting, and what fixing one culprit alone would have saved. Both are absent in the
-- rows that came before.

DROP VIEW lost_time;

ALTER TABLE lost_rows ADD COLUMN peer_wait_gpu_ms DOUBLE;
ALTER TABLE lost_rows ADD COLUMN saved_gpu_ms DOUBLE;

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
COMMENT ON COLUMN lost_time.n_ranks IS 'GPUs that took part.';
COMMENT ON COLUMN lost_time.iterations IS 'Iterations in the interval.';
COMMENT ON COLUMN lost_time.lost_gpu_ms IS 'GPU time lost by all of them together because the job was slower (job delay), milliseconds; noise makes single intervals negative.';
COMMENT ON COLUMN lost_time.peer_wait_gpu_ms IS 'The part of it that they spent blocked because others were late (peer wait), milliseconds; never to be added to lost_gpu_ms.';
COMMENT ON COLUMN lost_time.saved_gpu_ms IS 'The part of it that would not have been lost had this culprit alone been well, milliseconds.';
