-- Queries of analysts. All of them succeed. One statement a line.
SELECT * FROM verdicts
FROM verdicts
SELECT cluster_id, rank, lag_ms FROM verdicts WHERE state = 'open' ORDER BY lag_ms DESC LIMIT 5
SELECT count(*) FROM events
SELECT count(*) AS n, min(timestamp_ns), max(timestamp_ns) FROM events WHERE cluster_id = 'prod'
SELECT metric_name, count(*) FROM events GROUP BY ALL ORDER BY ALL
SELECT rank, avg(wait_mean_ms) AS wait_ms FROM collectives GROUP BY rank HAVING count(*) > 0 ORDER BY wait_ms LIMIT 10
SELECT node_id, quantile_cont(wait_mean_ms, 0.5) AS median, quantile_cont(wait_mean_ms, [0.5, 0.95, 0.99]) FROM collectives GROUP BY node_id
SELECT rank, median(value_double) - mad(value_double) FROM events GROUP BY rank
SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY wait_max_ms) FROM collectives
SELECT time_bucket(INTERVAL 1 MINUTE, ended_at) AS minute, op, sum(wait_sum_ms) FROM collectives GROUP BY minute, op ORDER BY minute
SELECT time_bucket(INTERVAL '5 minutes', make_timestamp_ns(timestamp_ns)) AS t, count(*) FROM events GROUP BY 1 ORDER BY 1
SELECT date_trunc('hour', make_timestamp_ns(timestamp_ns)) AS hour, count(DISTINCT rank) FROM events GROUP BY hour
SELECT strftime(make_timestamp_ns(timestamp_ns), '%Y-%m-%d %H:%M') AS at FROM events LIMIT 3
SELECT * FROM events WHERE timestamp_ns > epoch_ns(now()) - 3600000000000
SELECT * FROM events WHERE timestamp_ns >= epoch_ns(TIMESTAMP '2026-11-01 12:00:00') AND timestamp_ns < epoch_ns(TIMESTAMP '2026-11-02')
SELECT seq_first, rank, wait_mean_ms, row_number() OVER (PARTITION BY comm_id, seq_first ORDER BY wait_mean_ms) AS place FROM collectives QUALIFY place = 1
SELECT rank, wait_mean_ms - lag(wait_mean_ms) OVER (PARTITION BY rank ORDER BY seq_first) AS change FROM collectives
SELECT rank, avg(wait_mean_ms) OVER (PARTITION BY rank ORDER BY seq_first ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) FROM collectives
SELECT rank, sum(wait_sum_ms) OVER w FROM collectives WINDOW w AS (PARTITION BY comm_id ORDER BY ended_at RANGE BETWEEN INTERVAL 1 MINUTE PRECEDING AND CURRENT ROW)
SELECT first_value(rank) OVER (PARTITION BY comm_id ORDER BY wait_mean_ms), ntile(4) OVER (ORDER BY wait_mean_ms), percent_rank() OVER (ORDER BY wait_mean_ms) FROM collectives
WITH per_rank AS (SELECT rank, avg(wait_mean_ms) AS wait FROM collectives GROUP BY rank), middle AS (SELECT median(wait) AS wait FROM per_rank) SELECT per_rank.rank, middle.wait - per_rank.wait AS lag_ms FROM per_rank, middle ORDER BY lag_ms DESC
WITH block AS (SELECT comm_id, seq_first, median(wait_mean_ms) AS m FROM collectives GROUP BY ALL) SELECT c.rank, avg(block.m - c.wait_mean_ms) AS lag_ms FROM collectives c JOIN block USING (comm_id, seq_first) GROUP BY c.rank ORDER BY lag_ms DESC
SELECT v.rank, v.reason, l.lost_gpu_ms FROM verdicts v LEFT JOIN lost_time l USING (incident_id)
SELECT v.cluster_id, sum(h.lost_gpu_hours) FROM verdicts AS v JOIN cost_hours AS h ON h.cluster_id = v.cluster_id AND h.node_id = v.node_id GROUP BY v.cluster_id
SELECT c.rank, e.value_double FROM collectives c ASOF JOIN events e ON c.rank = e.rank AND c.timestamp_ns >= e.timestamp_ns WHERE e.metric_name = 'fleet.rank.period_ms'
SELECT rank FROM ranks WHERE rank NOT IN (SELECT rank FROM verdicts WHERE rank IS NOT NULL)
SELECT r.node_id FROM ranks r WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.node_id = r.node_id)
SELECT r.rank, (SELECT max(c.wait_max_ms) FROM collectives c WHERE c.rank = r.rank) AS worst FROM ranks r
SELECT rank FROM ranks SEMI JOIN verdicts USING (rank)
SELECT rank FROM ranks ANTI JOIN verdicts USING (rank)
SELECT hour_ns, sum(lost_gpu_hours) FROM cost_hours GROUP BY ROLLUP (hour_ns)
SELECT cluster_id, gpu_model, sum(lost_gpu_hours) FROM cost_hours GROUP BY GROUPING SETS ((cluster_id), (gpu_model), ())
SELECT cluster_id, node_id, count(*) FROM ranks GROUP BY CUBE (cluster_id, node_id)
SELECT count(*) FILTER (WHERE source = 'device') AS device, count(*) FILTER (WHERE source = 'host') AS host FROM collectives
SELECT DISTINCT op FROM collectives ORDER BY op
SELECT DISTINCT ON (rank) rank, ended_at, wait_mean_ms FROM collectives ORDER BY rank, ended_at DESC
SELECT rank, arg_max(ended_at, wait_max_ms) AS worst_at, max(wait_max_ms) FROM collectives GROUP BY rank
SELECT cluster_id FROM events UNION SELECT cluster_id FROM ranks
SELECT rank, 'verdict' AS what FROM verdicts UNION ALL BY NAME SELECT 'report' AS what, rank FROM ranks
SELECT rank FROM ranks EXCEPT SELECT rank FROM verdicts
SELECT rank FROM ranks INTERSECT SELECT rank FROM verdicts
SELECT attrs->>'$.name' AS name, count(*) FROM events GROUP BY name
SELECT json_extract_string(inputs, '$.z') AS z, inputs->'lag' FROM verdicts
SELECT json_extract(attrs, 'a')::DOUBLE + 1 FROM events
SELECT missing, count(*) FROM (SELECT unnest(ranks) AS missing FROM verdicts) GROUP BY missing
SELECT incident_id, len(ranks), ranks[1], list_contains(ranks, 3) FROM verdicts
SELECT node_id, string_agg(DISTINCT op, ', ' ORDER BY op) FROM collectives GROUP BY node_id
SELECT node_id, list(rank ORDER BY rank) FROM ranks GROUP BY node_id
SELECT node_id, array_agg(DISTINCT rank) FROM ranks GROUP BY node_id
SELECT node_id, list(rank) AS its_ranks FROM ranks GROUP BY node_id ORDER BY node_id
SELECT node_id, len(list(DISTINCT rank)) FROM ranks GROUP BY node_id HAVING len(list(rank)) > 0
SELECT rank, list(wait_mean_ms ORDER BY ended_at)[1] AS first_wait FROM collectives GROUP BY rank
SELECT node_id, string_agg(op, ', ') FROM collectives WHERE op IN (SELECT DISTINCT op FROM collectives) GROUP BY node_id
SELECT CASE WHEN lag_ms > 10 THEN 'far' WHEN lag_ms > 5 THEN 'late' ELSE 'near' END AS how, count(*) FROM verdicts GROUP BY how
SELECT CASE op WHEN 'AllReduce' THEN 'sum' WHEN 'Broadcast' THEN 'copy' ELSE op END AS what, count(*) FROM collectives GROUP BY what
SELECT CAST(rank AS VARCHAR) || ' of ' || nranks::VARCHAR AS who FROM ranks
SELECT concat_ws('/', cluster_id, node_id, rank) AS path, upper(node_id), replace(node_id, 'node-', 'n'), split_part(node_id, '-', 2) FROM ranks
SELECT node_id FROM ranks WHERE node_id LIKE 'node-%' AND node_id NOT ILIKE '%-9' AND starts_with(node_id, 'n')
SELECT node_id FROM ranks WHERE regexp_matches(node_id, '^node-[0-9]+$') AND node_id GLOB 'node-*' AND node_id ~ 'n.*'
SELECT regexp_extract(node_id, '([0-9]+)$', 1)::INTEGER AS n, regexp_replace(node_id, '[0-9]+$', '#') FROM ranks
SELECT rank, greatest(lag_ms, 0), least(lag_ms, 1), coalesce(node_id, 'unknown'), nullif(job, ''), ifnull(gpu_uuid, '-') FROM verdicts
SELECT round(lag_ms, 2), ceil(lag_ms), floor(lag_ms), abs(z), sqrt(confidence), ln(period_ms), period_ms ** 2, rank % 8, rank // 8 FROM verdicts
SELECT rank BETWEEN 0 AND 7 AS first_node, rank IN (1, 2, 3), rank IS NULL, rank IS DISTINCT FROM 3 FROM ranks
SELECT * EXCLUDE (attrs) FROM events LIMIT 1
SELECT * REPLACE (round(lag_ms) AS lag_ms) FROM verdicts
SELECT COLUMNS('.*_ms') FROM verdicts
SELECT max(COLUMNS('wait_.*')) FROM collectives
SELECT corr(wait_mean_ms, rank), regr_slope(wait_mean_ms, rank), stddev(wait_mean_ms), skewness(wait_mean_ms), kurtosis(wait_mean_ms), entropy(op) FROM collectives
SELECT approx_count_distinct(node_id), approx_quantile(wait_mean_ms, 0.99), mode(op), any_value(op), bool_or(rank = 3), product(1) FROM collectives
SELECT hour, count(events.event_id) FROM range(0, 24) AS hours(hour) LEFT JOIN events ON hour = extract(hour FROM make_timestamp_ns(timestamp_ns)) GROUP BY hour
SELECT t FROM generate_series(TIMESTAMP '2026-11-01', TIMESTAMP '2026-11-02', INTERVAL 1 HOUR) AS s(t)
SELECT * FROM (VALUES ('a', 1), ('b', 2)) AS classes(name, price)
SELECT * FROM events USING SAMPLE 10 PERCENT (bernoulli)
SELECT * FROM events USING SAMPLE 100 ROWS
SELECT rank, now()::TIMESTAMP AS asked FROM ranks
SELECT date_diff('second', make_timestamp_ns(first_seen_ns), make_timestamp_ns(last_seen_ns)) AS seconds, age(make_timestamp_ns(last_seen_ns), make_timestamp_ns(first_seen_ns)) FROM verdicts
SELECT dayname(make_timestamp_ns(timestamp_ns)), dayofweek(make_timestamp_ns(timestamp_ns)), hour(make_timestamp_ns(timestamp_ns)) FROM events LIMIT 1
SELECT seq, max(value) - min(value) AS spread FROM op_waits GROUP BY seq ORDER BY spread DESC
SELECT * FROM op_waits WHERE event_id = (SELECT max(event_id) FROM op_waits)
SELECT state, count(*) FROM verdict_history GROUP BY state
SELECT * FROM dropped_slices
SELECT event_id FROM judged
SELECT sum(count) AS samples, sum(sum) / sum(count) AS mean FROM events WHERE kind = 'histogram'
SELECT md5(node_id), hash(node_id) FROM ranks
SELECT 1 AS one, 'x' AS text, NULL AS nothing, TRUE AS yes, 1.5 AS number, DATE '2026-11-01' AS day, INTERVAL 1 DAY AS length, [1, 2] AS list, {'a': 1} AS structure
SELECT rank, cume_dist() OVER (ORDER BY lag_ms), dense_rank() OVER (ORDER BY lag_ms) FROM verdicts -- with a comment
SELECT rank /* and another */ FROM verdicts;
select RANK from VERDICTS where RANK > 1 order by RANK
SELECT "rank" FROM "verdicts"
SELECT verdicts.rank, v.rank FROM verdicts, verdicts AS v
TABLE verdicts
VALUES (1), (2)
SELECT rank, lead(ended_at, 1) OVER (PARTITION BY rank ORDER BY ended_at) - ended_at AS pause FROM collectives
SELECT trunc(wait_mean_ms / 10) * 10 AS bucket, count(*) FROM collectives GROUP BY bucket ORDER BY bucket
SELECT rank, lag_ms FROM verdicts WHERE lag_ms > (SELECT avg(lag_ms) FROM verdicts) ORDER BY lag_ms NULLS LAST OFFSET 1
SELECT rank, list_extract(list(wait_mean_ms ORDER BY ended_at), 1) FROM collectives GROUP BY rank
SELECT a.rank, b.rank FROM ranks a CROSS JOIN ranks b WHERE a.rank < b.rank
SELECT * FROM ranks NATURAL JOIN verdicts
SELECT r.rank, last.ended_at FROM ranks r, LATERAL (SELECT ended_at FROM collectives c WHERE c.rank = r.rank ORDER BY ended_at DESC LIMIT 1) AS last
SELECT rank, try_cast(node_id AS INTEGER), rank::UBIGINT, rank::DECIMAL(10, 2) FROM ranks
SELECT epoch(ended_at), epoch_ms(ended_at), year(ended_at), month(ended_at), day(ended_at), minute(ended_at), second(ended_at), quarter(ended_at), week(ended_at) FROM collectives
SELECT count(*) FROM verdicts WHERE reason = 'in case of doubt' OR node_id = 'window (a) over b'
SELECT attrs->>'service.name' AS service, attrs->>'$.name' AS name, attrs->>'otel.kind', attrs->>'otel.trace_id', attrs->>'otel.span_id', attrs->>'otel.status' FROM events
SELECT left(attrs->>'$.name', 100) AS name, count(*) FROM events WHERE left(attrs->>'$.name', 100) ~ 'nccl.*' GROUP BY name
SELECT count(*) FROM events WHERE attrs LIKE '%otel.trace_id%'
SELECT count(*) FROM events WHERE attrs LIKE '%otel%kind%' AND contains(attrs, 'nccl')
SELECT count(*) FROM events WHERE attrs LIKE '%fleet.cuda_graph_id%' AND attrs ILIKE '%nccl_all_reduce%'
SELECT count(*) FROM events WHERE attrs LIKE '%"comm_id":"00aa00bb00cc00dd"%'
WITH spans AS (SELECT attrs->>'otel.trace_id' AS trace, timestamp_ns FROM events) SELECT trace, count(*) FROM spans WHERE trace IS NOT NULL GROUP BY trace ORDER BY trace
SELECT (attrs->>'$.bytes')::DOUBLE AS bytes, json_extract_string(attrs, '$.name')::VARCHAR FROM events
SELECT rank, count(DISTINCT op) OVER (ORDER BY seq_first), mode(op) OVER (PARTITION BY rank), mad(wait_mean_ms) OVER () FROM collectives
SELECT rank, sum(wait_sum_ms) OVER (ORDER BY seq_first ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING), median(wait_mean_ms) OVER (ORDER BY ended_at RANGE BETWEEN INTERVAL '1 minute' PRECEDING AND CURRENT ROW) FROM collectives
WITH a AS (SELECT *, coalesce(wait_mean_ms, 0) AS wait FROM collectives), b AS (SELECT *, wait - avg(wait) OVER (PARTITION BY rank) AS far FROM a), c AS (SELECT *, far / nullif(stddev(far) OVER (), 0) AS z FROM b) SELECT * FROM c WHERE z > 3 AND wait > 1 ORDER BY z DESC
SELECT string_split(node_id, '-')[1], list_contains(ranks, 1), ranks::VARCHAR, inputs->>'$.z' FROM verdicts
WITH spans AS (SELECT attrs->>'$.name' AS name FROM events) SELECT upper(name), lower(name), len(name), count(*) FROM spans GROUP BY ALL
