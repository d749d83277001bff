-- Statements that must do no harm, one a line, with two dashes and the family before it. All are refused.
-- writes
DELETE FROM event_rows
INSERT INTO series VALUES (1, 'x')
UPDATE verdict_rows SET lag_ms = 0
DROP TABLE event_rows
DROP VIEW events
CREATE TABLE mine AS SELECT 1
CREATE TEMP TABLE mine AS SELECT * FROM events
CREATE OR REPLACE VIEW events AS SELECT 1
CREATE MACRO evil() AS 1
CREATE SEQUENCE s
CREATE SCHEMA s
CREATE TYPE mood AS ENUM ('a')
CREATE INDEX i ON series(id)
ALTER TABLE series ADD COLUMN x INTEGER
TRUNCATE series
MERGE INTO series USING series AS n ON TRUE WHEN MATCHED THEN DELETE
COMMENT ON VIEW events IS 'mine'
VACUUM
ANALYZE
-- writes inside WITH
WITH d AS (DELETE FROM series RETURNING *) SELECT * FROM d
WITH d AS (INSERT INTO series VALUES (1, 'x') RETURNING *) SELECT * FROM d
WITH d AS (UPDATE series SET name = 'x' RETURNING *) SELECT count(*) FROM d
WITH d AS MATERIALIZED (DELETE FROM event_rows RETURNING event_id) SELECT 1
WITH a AS (SELECT 1), d AS (DELETE FROM lost_rows RETURNING *) SELECT * FROM a
SELECT * FROM (WITH d AS (DELETE FROM series RETURNING *) SELECT * FROM d)
SELECT (WITH d AS (DELETE FROM series RETURNING id) SELECT max(id) FROM d)
(DELETE FROM series RETURNING *)
-- several statements
SELECT 1; SELECT 2
DELETE FROM series; SELECT 1
SELECT 1; DELETE FROM series
SELECT 1; COMMIT; DELETE FROM series
COMMIT; DELETE FROM event_rows; SELECT 1
;; SELECT 1; SELECT 2
SELECT 1 /* ; */ ; DROP TABLE series --
-- transactions and sessions
BEGIN
COMMIT
ROLLBACK
SET memory_limit = '1TB'
SET SESSION threads = 64
RESET ALL
SET VARIABLE a = 1
PRAGMA database_list
PRAGMA enable_profiling
USE temp
PREPARE p AS SELECT 1
EXECUTE p
DEALLOCATE p
CHECKPOINT
FORCE CHECKPOINT
CALL duckdb_settings()
CALL enable_logging()
EXPLAIN SELECT 1
EXPLAIN ANALYZE SELECT * FROM events
-- files
COPY events TO 'canary/out.csv'
COPY (SELECT 1) TO '/tmp/out.parquet' (FORMAT PARQUET)
COPY series FROM 'canary/secret.txt'
EXPORT DATABASE 'canary'
IMPORT DATABASE 'canary'
ATTACH 'canary/other.db' AS other
DETACH echo
INSTALL httpfs
LOAD httpfs
SELECT * FROM 'canary/secret.txt'
SELECT * FROM "canary/secret.txt"
FROM 'canary/*.csv'
SELECT * FROM read_csv('canary/secret.txt')
SELECT * FROM read_text('canary/secret.txt')
SELECT * FROM read_blob('echo.db')
SELECT * FROM read_parquet('canary/*')
SELECT * FROM read_json_auto('canary/secret.txt')
SELECT * FROM parquet_scan('https://example.org/x.parquet')
SELECT * FROM glob('canary/*')
SELECT * FROM sniff_csv('canary/secret.txt')
SELECT * FROM parquet_metadata('canary/x')
SELECT * FROM read_duckdb('echo.db')
SELECT read_text('canary/secret.txt')
SELECT * FROM seq_scan('series')
-- SQL in strings
SELECT * FROM query('DELETE FROM series')
SELECT * FROM query_table('series')
SELECT * FROM query_table(['series', 'origins'])
SELECT * FROM json_execute_serialized_sql('{}')
SELECT json_execute_serialized_sql('{}')
SELECT json_deserialize_sql('{}')
SELECT json_serialize_plan('SELECT 1')
PIVOT events ON op USING count(*)
SELECT * FROM (PIVOT events ON op USING count(*))
UNPIVOT verdicts ON lag_ms, z
FROM events PIVOT (count(*) FOR op IN ('AllReduce'))
SELECT * FROM parse_duckdb_log_message('a', 'b')
-- private tables and the catalogue
SELECT * FROM event_rows
SELECT * FROM series
SELECT * FROM policies
SELECT * FROM ingested_batches
SELECT * FROM schema_version
SELECT * FROM main.events
SELECT * FROM echo.main.events
SELECT * FROM temp.events
SELECT * FROM duckdb_tables
SELECT * FROM duckdb_tables()
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_databases()
SELECT * FROM duckdb_logs
SELECT * FROM duckdb_memory()
SELECT * FROM duckdb_temporary_files()
SELECT * FROM information_schema.tables
SELECT * FROM pg_catalog.pg_class
SELECT * FROM sqlite_master
SELECT * FROM pragma_storage_info('event_rows')
SELECT * FROM pragma_database_size()
SELECT * FROM pragma_show('events')
SELECT * FROM which_secret('s3://a', 's3')
DESCRIBE events
SHOW TABLES
SHOW ALL TABLES
SUMMARIZE event_rows
SELECT * FROM (DESCRIBE event_rows)
SELECT * FROM (SUMMARIZE series)
SELECT * FROM events, series
SELECT * FROM events JOIN origins ON TRUE
SELECT * FROM (SELECT * FROM event_rows)
SELECT (SELECT count(*) FROM series)
SELECT 1 WHERE EXISTS (SELECT 1 FROM series)
SELECT 1 WHERE 1 IN (SELECT id FROM series)
SELECT * FROM verdicts ORDER BY (SELECT max(id) FROM series)
SELECT * FROM verdicts LIMIT (SELECT count(*) FROM series)
SELECT sum(rank) FILTER (WHERE EXISTS (FROM series)) FROM ranks
SELECT sum(rank) OVER (ORDER BY (SELECT max(id) FROM series)) FROM ranks
SELECT 1 UNION SELECT id FROM series
SELECT 1 GROUP BY (SELECT max(id) FROM series)
SELECT * FROM ranks QUALIFY row_number() OVER () > (SELECT max(id) FROM series)
VALUES ((SELECT max(id) FROM series))
SELECT * REPLACE ((SELECT max(id) FROM series) AS rank) FROM ranks
SELECT * FROM range((SELECT max(id) FROM series))
SELECT * FROM ranks, LATERAL (SELECT * FROM series)
TABLE series
FROM series
-- series of WITH
WITH events AS (SELECT 1) SELECT * FROM events
WITH event_rows AS (SELECT 1) SELECT * FROM event_rows
WITH SERIES AS (SELECT 1) SELECT * FROM series
WITH duckdb_settings AS (SELECT 1) SELECT * FROM duckdb_settings
WITH "read_csv('x')" AS (SELECT 1) SELECT * FROM "read_csv('x')"
WITH "canary/secret.txt" AS (SELECT 1) SELECT 1
WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a
WITH a AS (SELECT 1) SELECT * FROM (WITH b AS (SELECT 2) SELECT * FROM b) x, b
SELECT * FROM later, (WITH later AS (SELECT 1) SELECT * FROM later)
-- sessions and settings
SELECT current_setting('memory_limit')
SELECT getvariable('a')
SELECT getenv('HOME')
SELECT current_user
SELECT current_schema()
SELECT current_schema
SELECT current_catalog
SELECT current_database()
SELECT session_user
SELECT user
SELECT current_query()
SELECT version()
SELECT pg_postmaster_start_time()
SELECT inet_server_addr()
SELECT txid_current()
SELECT get_block_size('echo')
SELECT nextval('s')
SELECT setval('s', 1)
SELECT setseed(0.5)
SELECT write_log('spam')
SELECT sleep_ms(100000)
SELECT pg_sleep(100)
SELECT error('x')
SELECT stats(rank) FROM ranks
SELECT in_search_path('a', 'b')
SELECT main.sum(rank) FROM ranks
SELECT system.main.upper('a')
SELECT system.main.current_setting('threads')
SELECT "current_setting"('threads')
SELECT CURRENT_SETTING('threads')
SELECT 'threads'.current_setting()
SELECT has_table_privilege('series', 'select')
SELECT pg_get_viewdef(1)
SELECT getvariable('a') OVER () FROM ranks
-- much of little
SELECT repeat('x', 2000000000)
SELECT 'x' * 1000000
SELECT lpad('x', 1500000000, 'y')
SELECT rpad('x', 1500000000, 'y')
SELECT len(range(300000000))
SELECT generate_series(1, 300000000)
SELECT [i FOR i IN range(100000000)]
SELECT list_resize([1], 1000000000)
SELECT printf('%2000000000d', 1)
SELECT format('{:>2000000000}', 1)
SELECT bitstring('1', 2000000000)
SELECT '1'::BIT
SELECT bar(1, 0, 2, 1000)
SELECT list_transform([1], lambda x: x + 1)
SELECT list_transform([1], x -> x + 1)
SELECT list_reduce([1, 2], lambda x, y: x + y)
SELECT apply([1], x -> x)
SELECT levenshtein('a', 'b')
SELECT jaccard('a', 'b')
SELECT histogram(wait_mean_ms) FROM collectives
SELECT reservoir_quantile(wait_mean_ms, 0.5, 1000000000) FROM collectives
SELECT approx_top_k(rank, 999999) FROM ranks
SELECT max(rank, 999999) FROM ranks
SELECT arg_max(rank, nranks, 999999) FROM ranks
SELECT bitstring_agg(rank, 0, 2000000000) FROM ranks
SELECT equi_width_bins(0, 10, 1000000, TRUE)
SELECT map_from_entries([(1, 2)])
SELECT array_value(1, 2)::INTEGER[2]
SELECT NULL::INTEGER[100000000]
SELECT * FROM repeat(1, 1000000000)
SELECT * FROM repeat_row(1, num_rows = 1000000000)
SELECT * FROM test_vector_types(NULL::INTEGER)
SELECT * FROM range(1000000000)
SELECT * FROM range(-1000000000, 1000000000)
SELECT * FROM range(0, 1000000000, 2)
SELECT * FROM generate_series(0, 10000000)
SELECT * FROM range(9223372036854775807)
SELECT * FROM ranks, range(rank * 1000000000)
SELECT * FROM range(0, 10, 0)
SELECT * FROM range(1000000 * 1000000)
SELECT count(*) FROM range(0::BIGINT, 9000000000000000000::BIGINT, 1::BIGINT)
SELECT count(*) FROM generate_series('0'::BIGINT, '9000000000000000000'::BIGINT, '1'::BIGINT)
SELECT count(*) FROM range(1 - 1, 9000000000000000000 + 0, 1 + 0)
SELECT * FROM events USING SAMPLE 5000000000 ROWS
WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r
WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM r) SELECT max(length(s)) FROM r
WITH RECURSIVE r USING KEY (a) AS (SELECT 1 AS a UNION SELECT a + 1 FROM r) SELECT * FROM r
SELECT count(*) FROM events GROUP BY CUBE (rank, nranks, job, pod, node_id, cluster_id)
SELECT count(*) FROM events GROUP BY GROUPING SETS (CUBE (rank, nranks, job), CUBE (pod, node_id, op, kind))
SELECT *, *, *, *, *, *, *, *, *, *, * FROM events
SELECT COLUMNS(*) + COLUMNS(*) + COLUMNS(*), *, *, *, *, *, *, *, *, *, * FROM events
SELECT count(*) FROM events a, events b, events c, events d, events e, events f, events g, events h, events i
WITH a AS (SELECT 1 AS x FROM events, events b), b AS (SELECT 1 AS x FROM a, a b, a c, a d), c AS (SELECT 1 AS x FROM b, b d, b e, b f) SELECT count(*) FROM c
WITH a AS NOT MATERIALIZED (SELECT 1 AS x FROM ranks, ranks b, ranks c), b AS NOT MATERIALIZED (SELECT a.x FROM a, a b, a c, a d) SELECT count(*) FROM b, b c, b d, b e
SELECT count(*) FROM (SELECT 1 UNION ALL BY NAME SELECT * FROM events UNION ALL BY NAME SELECT * FROM events, events b, events c, events d, events e, events f, events g, events h)
-- patterns
SELECT count(*) FROM events WHERE regexp_matches(attrs, '(x{0,99}){0,99}y')
SELECT count(*) FROM events WHERE regexp_matches(attrs, '(x?){1000}x{1000}')
SELECT count(*) FROM events WHERE attrs SIMILAR TO '(x{0,99}){0,99}y'
SELECT count(*) FROM events WHERE attrs ~ '.*\pL.*\pL.*\pL'
SELECT count(*) FROM events WHERE regexp_matches(attrs, node_id)
SELECT count(*) FROM events WHERE attrs LIKE node_id || '%'
SELECT count(*) FROM events WHERE regexp_full_match(concat(attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs, attrs), 'x*')
SELECT json_extract(attrs, '$..*') FROM events
SELECT attrs->'$.*' FROM events
SELECT attrs->(node_id) FROM events
SELECT regexp_split_to_array(attrs, '') FROM events
SELECT regexp_extract_all(attrs, '.*?') FROM events
SELECT string_split_regex(attrs, '') FROM events
-- windows
SELECT max(m) FROM (SELECT mode(i) OVER (ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT sum(DISTINCT i) OVER (ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT entropy(i) OVER (ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE TIES) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT sum(i) OVER (ORDER BY i GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT mode(i) OVER (ORDER BY i ROWS BETWEEN (i * 7919) % 500000 PRECEDING AND (i * 104729) % 500000 FOLLOWING) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT sum(i) OVER (ORDER BY i ROWS BETWEEN (i * 7919) % 500000 PRECEDING AND CURRENT ROW) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT median(i) OVER (ORDER BY i ROWS BETWEEN CAST(random() * 500000 AS BIGINT) PRECEDING AND CURRENT ROW) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT mode(i) OVER (ORDER BY i) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT MODE(i) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT mad(i) OVER (ORDER BY i ROWS BETWEEN 200000 PRECEDING AND 200000 FOLLOWING) AS m FROM range(1000000) t(i))
SELECT max(m) FROM (SELECT entropy(i) OVER (ORDER BY i ROWS 200000 PRECEDING) AS m FROM range(1000000) t(i))
-- strange forms
SELECT $1
SELECT ?
SELECT $name
SELECT DEFAULT
SELECT 'a' COLLATE NOCASE
SELECT TRY(1)
SELECT 1::mood
SELECT 1::ENUM('a')
SELECT 'series'::regclass
SELECT '{}'::STRUCT(a INTEGER)
SELECT 'x'::BLOB
SELECT 'POINT (0 0)'::GEOMETRY
SELECT 1::VARIANT
SELECT 340282366920938463463374607431768211455::UHUGEINT
SELECT 1::UINT128
SELECT MAP {1: 2}
SELECT {'a': 1}.b.c.d.e.f.g.h.i
SELECT a.b.c.d.e FROM events
SELECT * FROM events AT (TIMESTAMP => now())
SELECT * FROM events AT (VERSION => 1)
SELECT sum(DISTINCT evil(rank)) FROM ranks
SELECT rank AS a FROM ranks ORDER BY evil(a)
SELECT COLUMNS(lambda c: c LIKE 'a%') FROM ranks
SELECT unnest([1], recursive := TRUE)
SELECT * FROM unnest([1], [2])
SELECT * FROM unnest(evil())
SELECT strip_accents(node_id) FROM ranks
SELECT icu_sort_key('a', 'de')
SELECT create_sort_key('a', 'ASC')
SELECT uuid()
SELECT json_each(attrs) FROM events
SELECT * FROM json_each('{}')
SELECT from_json('{}', '{}')
SELECT json_transform('{}', '{}')
SELECT encode('a')
SELECT union_value(a := 1)
SELECT st_geomfromwkb('x')
SELECT make_type('INTEGER')
SELECT __internal_compress_string_hugeint('a')
SELECT invoke(lambda x: x, 1)
SELECT combine_aggr(1)
SELECT aggregate([1], 'sum')
SELECT list_aggregate([1], 'sum')
SELECT list_sum([1])
SELECT alias(rank) FROM ranks
SELECT vector_type(rank) FROM ranks
SELECT unbin('1')
SELECT from_base64('a')
SELECT parse_path('/etc/passwd')
SELECT 1 AS x FROM python_map_function()
SELECT * FROM pandas_scan(0)
SELECT * FROM arrow_scan(0, 0, 0)
SELECT * FROM arrow_scan_dumb(0, 0, 0)
SELECT * FROM truncate_duckdb_logs()
SELECT * FROM checkpoint()
SELECT * FROM force_checkpoint()
SELECT * FROM enable_logging()
SELECT * FROM enable_profiling()
SELECT * FROM duckdb_table_sample('series')
SELECT * FROM summary((SELECT 1))
SELECT * FROM histogram_values('series', 'name')
SELECT * FROM register_external_resource('a')
-- collected values
SELECT max(length(substr(s, j, 100000000))) FROM (SELECT string_agg(i, ',') AS s FROM range(1000000) t(i)), range(2048) r(j)
SELECT max(length(left(s, j + 5000000))) FROM (SELECT string_agg(i, ',') AS s FROM range(1000000) t(i)), range(2048) r(j)
SELECT max(length(s || j)) FROM (SELECT string_agg(i, ',') AS s FROM range(1000000) t(i)), range(2048) r(j)
SELECT max(length(s)) FROM (SELECT string_agg(i, ',') AS s FROM range(1000000) t(i)), range(2048) r(j)
SELECT max(len(l[j:])) FROM (SELECT list(i) AS l FROM range(1000000) t(i)), range(2048) r(j)
SELECT list_contains(l, -1) FROM (SELECT list(i) AS l FROM range(1000000) t(i), range(50)), range(2048) r(j)
SELECT l FROM (SELECT list(i) AS l FROM range(1000000) t(i)), range(2048) r(j)
SELECT DISTINCT l FROM (SELECT list(i) AS l FROM range(1000000) t(i)), range(2048) r(j)
SELECT l FROM (SELECT list(i) AS l FROM range(1000000) t(i)), range(2048) r(j) ORDER BY l
SELECT count(*) FROM (SELECT list(i) AS l FROM range(1000000) t(i)) a, range(2048) r(j) GROUP BY l
SELECT (SELECT list(i) FROM range(1000000) t(i)) FROM range(2048) r(j)
SELECT list(j), (SELECT list(i) FROM range(1000000) t(i)) FROM range(2048) r(j) GROUP BY j
SELECT j FROM range(2048) r(j) WHERE (SELECT list(i) FROM range(1000000) t(i)) IS NOT NULL
SELECT j FROM range(2048) r(j) WHERE [j] IN (SELECT list(i) FROM range(1000000) t(i))
WITH x AS (SELECT list(i) AS l FROM range(1000000) t(i)) SELECT * FROM x, range(2048)
WITH x AS MATERIALIZED (SELECT string_agg(i) AS s FROM range(1000000) t(i)) SELECT x FROM x, range(2048)
SELECT * FROM range(2048) r(j), LATERAL (SELECT list(i + j) AS l FROM range(1000000) t(i))
SELECT list(i) OVER (ORDER BY i) FROM range(100000) t(i)
SELECT string_agg(i, ',') OVER () FROM range(100000) t(i)
SELECT first(list(i)) OVER () FROM range(100000) t(i)
SELECT list(i) AS l, l || l FROM range(1000000) t(i)
SELECT list(i) AS l, l[1:] FROM range(1000000) t(i)
SELECT list(i) || list(i) FROM range(1000000) t(i)
SELECT list(i)::VARCHAR FROM range(1000000) t(i)
SELECT list(i)[1:] FROM range(1000000) t(i)
SELECT list(i)[max(i)] FROM range(1000000) t(i)
SELECT [list(i), list(i)] FROM range(1000000) t(i)
SELECT {'a': list(i)} FROM range(1000000) t(i)
SELECT coalesce(list(i), [1]) FROM range(1000000) t(i)
SELECT CASE WHEN TRUE THEN list(i) END FROM range(1000000) t(i)
SELECT upper(string_agg(i)) FROM range(1000000) t(i)
SELECT string_split(string_agg(i), ',') FROM range(1000000) t(i)
SELECT string_agg(i)->>'$.a' FROM range(1000000) t(i)
SELECT unnest(list(i)) FROM range(1000000) t(i)
SELECT list_sort(list_sort(list(i))) FROM range(1000000) t(i)
SELECT list_contains(list(i), 1) FROM range(1000000) t(i)
SELECT i % 3, list(i) FROM range(1000000) t(i) GROUP BY 1 HAVING list(i) > [1]
SELECT i % 3 AS k, list(i) AS l FROM range(1000000) t(i) GROUP BY k ORDER BY l
SELECT i % 3 AS k, list(i) FROM range(1000000) t(i) GROUP BY k ORDER BY 2
SELECT i % 3 AS k, list(i) FROM range(1000000) t(i) GROUP BY k ORDER BY ALL
SELECT i % 3 AS k, list(i) FROM range(1000000) t(i) GROUP BY k ORDER BY list(i)
SELECT DISTINCT list(i) FROM range(1000000) t(i)
SELECT DISTINCT ON (list(i)) list(i) FROM range(1000000) t(i)
SELECT list(i) FROM range(1000000) t(i) UNION SELECT list(i) FROM range(1000000) t(i)
SELECT list(i) FROM range(1000000) t(i) INTERSECT SELECT list(i) FROM range(1000000) t(i)
SELECT list(i) FROM range(1000000) t(i) QUALIFY row_number() OVER (ORDER BY list(i)) = 1
-- more memory than a statement may take
SELECT list(i) FROM range(1000000) t(i), range(1000) r(j)
SELECT list(i ORDER BY j) FROM range(1000000) t(i), range(1000) r(j)
SELECT len(list(i)) FROM range(1000000) t(i), range(1000) r(j)
SELECT i % 3000 AS k, list(j) FROM range(1000000) t(i), range(1000) r(j) GROUP BY k ORDER BY k
SELECT string_agg(i || 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx') FROM range(1000000) t(i), range(1000) r(j)
SELECT list([i, i, i, i]) FROM range(1000000) t(i), range(1000) r(j)
SELECT list(NULL) FROM range(1000000) t(i), range(1000) r(j)
SELECT mode(i * 1000 + j) FROM range(1000000) t(i), range(1000) r(j)
SELECT entropy(i * 1000 + j) FROM range(1000000) t(i), range(1000) r(j)
SELECT mad(i * 1000 + j) FROM range(1000000) t(i), range(1000) r(j)
SELECT mode(i * 1000 + j) FROM range(1000000) t(i), range(1000) r(j)
SELECT median('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' || i) FROM range(1000000) t(i), range(1000) r(j)
SELECT count(DISTINCT i * 1000 + j) FROM range(1000000) t(i), range(1000) r(j)
SELECT i, j, row_number() OVER (ORDER BY i + j) FROM range(1000000) t(i), range(1000) r(j)
SELECT lag('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' || i) OVER (ORDER BY i DESC) FROM range(1000000) t(i), range(1000) r(j)
SELECT DISTINCT i, j FROM range(1000000) t(i), range(1000) r(j) ORDER BY i + j
SELECT a.i, count(*) FROM range(1000000) a(i), range(1000) b(j) GROUP BY CUBE(a.i, b.j)
