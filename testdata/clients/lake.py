"""Counts the points of each batch in a lake with a plain DuckDB, which only reads.

Usage: lake.py EXTENSIONS CATALOG DATA STRIDE
"""

import json
import sys

import duckdb

extensions, catalog, data, stride = sys.argv[1:]
connection = duckdb.connect()
for name in ("ducklake", "postgres_scanner"):
    connection.execute(f"LOAD '{extensions}/{name}.duckdb_extension'")
connection.execute(f"ATTACH '{catalog}' AS lake (DATA_PATH '{data}', READ_ONLY)")
rows = connection.execute(
    f"""SELECT number // {stride}, count(*), count(DISTINCT number) FROM lake.events
    WHERE metric_name = 'load.point' GROUP BY 1"""
)
print(json.dumps(rows.fetchall()))
