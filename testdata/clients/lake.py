"""Counts the points of each batch in a lake with a plain DuckDB, which only reads.

Usage: lake.py EXTENSIONS CATALOG DATA STRIDE ENDPOINT

ENDPOINT is the URL of the object store, or empty for a folder.
"""

import json
import sys

import duckdb

extensions, catalog, data, stride, endpoint = sys.argv[1:]
connection = duckdb.connect()
for name in ("ducklake", "postgres_scanner", "httpfs"):
    connection.execute(f"LOAD '{extensions}/{name}.duckdb_extension'")
if endpoint:
    connection.execute(
        f"""CREATE SECRET (TYPE s3, KEY_ID 'echo', SECRET 'secret', REGION 'us-east-1',
        ENDPOINT '{endpoint.removeprefix("http://")}', URL_STYLE 'path', USE_SSL false)"""
    )
connection.execute(f"ATTACH '{catalog}' AS lake (DATA_PATH '{data}', READ_ONLY)")
rows = connection.execute(
    f"""SELECT number // {stride}, count(*), count(DISTINCT number) FROM lake.events
    WHERE metric_name = 'load.point' GROUP BY 1"""
)
print(json.dumps(rows.fetchall()))
